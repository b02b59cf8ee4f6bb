//! Cost of ServiceEntries, counted as allocated bytes: linear in the hosts of one entry.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_model::{Kind, ObjectKey};
use pilotfish_registry::testing::Scene;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::{Mutex, PoisonError};
use support::se_with;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One measurement at a time: the allocator counts for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

fn entry(name: &str, hosts: usize, resolution: &str, more: &str) -> String {
    let hosts = list(hosts, |n| format!("h{n}.{name}.example.com"));
    let ports = "[{number: 80, name: http, protocol: HTTP}]";
    let spec = format!("{{hosts: [{hosts}], ports: {ports}, resolution: {resolution}{more}}}");
    se_with(name, ", creationTimestamp: '2026-01-01T00:00:00Z'", &spec)
}

/// Bytes that the registries and the world allocate for a change.
fn bytes_of(scene: &mut Scene, change: impl FnOnce(&mut Scene)) -> usize {
    change(scene);
    let region = Region::new(ALLOCATOR);
    scene.world();
    region.change().bytes_allocated
}

/// Checks that an entry of four times the hosts costs at most about four times the bytes, when it is applied
/// and when it is deleted.
fn grows_linearly(text: impl Fn(usize) -> String) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [small, large] = [250, 1_000].map(|hosts| {
        let mut scene = Scene::new();
        // Tables of fixed size are allocated first.
        scene.apply(&entry("other", 1, "DNS", "")).unwrap();
        scene.world();
        let text = text(hosts);
        let applied = bytes_of(&mut scene, |scene| scene.apply(&text).unwrap());
        let deleted =
            bytes_of(&mut scene, |scene| scene.delete(ObjectKey::new(Kind::ServiceEntry, "ns", "e")));
        [applied, deleted]
    });
    for (small, large) in small.into_iter().zip(large) {
        assert!(large <= 5 * small, "{large} bytes for four times the hosts of {small} bytes");
    }
}

#[test]
fn hosts_that_are_their_own_endpoints() {
    grows_linearly(|hosts| entry("e", hosts, "DNS", ""));
}

#[test]
fn hosts_with_addresses_in_the_status() {
    grows_linearly(|hosts| {
        let addresses =
            list(hosts, |n| format!("{{host: h{n}.e.example.com, value: 10.0.{}.{}}}", n / 250, n % 250));
        let entry = entry("e", hosts, "STATIC", "");
        entry.replace("\n---", &format!("\nstatus: {{addresses: [{addresses}]}}\n---"))
    });
}

#[test]
fn hosts_with_a_selector_and_names_in_certificates() {
    grows_linearly(|hosts| {
        let labels = list(hosts, |n| format!("label-{n}: a"));
        let names = list(hosts, |n| format!("spiffe://cluster.local/ns/{n}"));
        let more = format!(
            ", workloadSelector: {{labels: {{{labels}}}}}, subjectAltNames: ['{}']",
            names.replace(", ", "', '")
        );
        entry("e", hosts, "STATIC", &more)
    });
}

#[test]
fn host_of_one_entry_beside_many_others() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [few, many] = [100, 3_000].map(|hosts| {
        let mut scene = Scene::new();
        scene.apply(&entry("many", hosts, "STATIC", "")).unwrap();
        scene.world();
        bytes_of(&mut scene, |scene| scene.apply(&entry("one", 1, "STATIC", "")).unwrap())
    });
    assert!(many <= 2 * few, "{many} bytes beside 3,000 hosts, {few} beside 100");
}
