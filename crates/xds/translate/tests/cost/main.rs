//! What translation costs: worlds of the shapes that multiply worst, at two sizes. The work, counted as bytes
//! that are allocated and as results that are computed, grows no faster than what was read and what is sent.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

mod endpoint;
mod shapes;
mod world;

use pilotfish_translate::Translator;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::{Mutex, PoisonError};
use world::Case;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One measurement at a time: the allocator counts for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Growth beyond linear that sorting and tables account for.
const SLACK: f64 = 1.3;

/// What one proxy's whole configuration took.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Bytes of the configuration and of the resources.
    size: f64,
    /// Bytes that were allocated, also if they were freed soon after.
    allocated: f64,
    allocations: f64,
    /// Results of queries.
    computed: f64,
}

#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn measure(case: &Case) -> Cost {
    let (world, changes) = case.publish();
    let region = Region::new(ALLOCATOR);
    let translator = Translator::new();
    translator.publish(world, &changes);
    let sent = case.sent_by(&translator);
    let change = region.change();
    Cost {
        size: (case.input + sent) as f64,
        allocated: change.bytes_allocated as f64,
        allocations: (change.allocations + change.reallocations) as f64,
        computed: translator.computed() as f64,
    }
}

/// Measures a shape at a size and at four times that.
fn grows_linearly(shape: fn(usize) -> Case, size: usize) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (small, large) = (measure(&shape(size)), measure(&shape(4 * size)));
    let growth = |of: fn(&Cost) -> f64| of(&large) / of(&small);
    let work = [
        ("allocated bytes", growth(|cost| cost.allocated)),
        ("allocations", growth(|cost| cost.allocations)),
        ("results", growth(|cost| cost.computed)),
    ];
    let size = growth(|cost| cost.size);
    for (what, work) in work {
        assert!(
            work <= SLACK * size,
            "{work:.1} times the {what} for {size:.1} times the size: {small:?}, then {large:?}"
        );
    }
}

#[test]
fn delegates() {
    grows_linearly(shapes::delegates, 25);
}

#[test]
fn hosts_of_one_rule() {
    grows_linearly(shapes::hosts_of_one_rule, 100);
}

#[test]
fn wildcard_hosts() {
    grows_linearly(shapes::wildcard_hosts, 100);
}

#[test]
fn subsets_and_ports() {
    grows_linearly(shapes::subsets_and_ports, 20);
}

#[test]
fn aliases_in_a_row() {
    grows_linearly(shapes::aliases_in_a_row, 250);
}

#[test]
fn aliases_of_one_service() {
    grows_linearly(shapes::aliases_of_one_service, 100);
}

#[test]
fn hosts_of_gateways() {
    grows_linearly(shapes::hosts_of_gateways, 75);
}

#[test]
fn hosts_of_one_server() {
    grows_linearly(shapes::hosts_of_one_server, 100);
}

#[test]
fn secure_servers() {
    grows_linearly(shapes::secure_servers, 75);
}

#[test]
fn envoy_filters() {
    grows_linearly(shapes::envoy_filters, 50);
}

#[test]
fn envoy_filters_that_match_nothing() {
    grows_linearly(shapes::envoy_filters_that_match_nothing, 50);
}

#[test]
fn envoy_filters_with_a_fault() {
    grows_linearly(shapes::envoy_filters_with_a_fault, 50);
}

#[test]
fn authorization_policies() {
    grows_linearly(shapes::authorization_policies, 50);
}

#[test]
fn services_of_one_host() {
    grows_linearly(shapes::services_of_one_host, 100);
}

#[test]
fn streams_on_one_port() {
    grows_linearly(shapes::streams_on_one_port, 100);
}

#[test]
fn routes_of_streams() {
    grows_linearly(shapes::routes_of_streams, 75);
}

#[test]
fn imports() {
    grows_linearly(shapes::imports, 100);
}

#[test]
fn destination_rules_of_wildcards() {
    grows_linearly(shapes::destination_rules_of_wildcards, 75);
}
