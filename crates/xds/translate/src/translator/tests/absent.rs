//! Names that no resource has: what they cost, and that they are reported when a resource has them.

use super::{NETWORKING, Plane, WEB};
use crate::testing::{line, service, sidecar, yaml};
use crate::translator::{Changes, Client, ViewId};
use pilotfish_model::{Port, Update};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A proxy that has its endpoints.
fn connected(plane: &Plane) -> (Client, ViewId) {
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    assert!(plane.has(view));
    (client, view)
}

fn ask(plane: &Plane, view: ViewId, names: &[Arc<str>]) {
    for name in names {
        assert!(plane.translator.snapshot().get(view, name).is_some(), "{name}: empty, but there");
    }
}

fn names(count: usize, make: impl Fn(usize) -> String) -> Vec<Arc<str>> {
    (0..count).map(|n| make(n).into()).collect()
}

/// Names that are reported of a view.
fn reported(changes: &Changes, view: ViewId) -> BTreeSet<&str> {
    changes.changes.iter().filter(|change| change.view == view).map(|change| &*change.name).collect()
}

fn rule(subsets: &[&str]) -> Vec<Update> {
    let subsets: Vec<_> =
        subsets.iter().map(|name| format!("{{name: {name}, labels: {{v: {name}}}}}")).collect();
    let spec = format!("{{host: web, subsets: [{}]}}", subsets.join(", "));
    yaml(&line(NETWORKING, "DestinationRule", "shop", "rule", &spec))
}

/// The service `web` with these ports.
fn with_ports(name: &str, numbers: &[u32]) -> Update {
    let service = service(name, "shop").with(|service| {
        let port = |number: &u32| Port {
            number: *number,
            name: format!("p{number}").into(),
            ..service.ports[0].clone()
        };
        service.ports = numbers.iter().map(port).collect();
    });
    service.update()
}

#[test]
fn names_of_one_host_cost_no_more_than_names_of_many() {
    let plane = Plane::new();
    let (_client, view) = connected(&plane);
    let time = |count: usize| {
        let names = names(count, |n| format!("outbound|80|x{n:05}|nohost.example.com"));
        let began = Instant::now();
        ask(&plane, view, &names);
        plane.translator.unsubscribed(view, &names, &|_| false);
        began.elapsed()
    };
    // Of several attempts, as other tests run beside this one.
    let ratios = (0..5).map(|_| time(20_000).div_duration_f64(time(2_500).max(Duration::from_micros(1))));
    let ratio = ratios.fold(f64::INFINITY, f64::min);
    assert!(ratio < 24.0, "8 times as many names cost {ratio:.0} times as much");
}

#[test]
fn invented_subsets_ports_and_spellings_of_a_host_leave_no_results() {
    const MANY: usize = 1_000;
    let mut plane = Plane::new();
    plane.apply(rule(&["v1"]));
    let (_client, view) = connected(&plane);
    let before = plane.translator.results();
    let host = "web.shop.svc.cluster.local";
    let all = [
        names(MANY, |n| format!("outbound|80|x{n}|{host}")),
        names(MANY, |n| format!("outbound|{}||{host}", 1_000 + n)),
        names(MANY, |n| format!("outbound_.{}_.v1_.{host}", 1_000 + n)),
        names(2, |n| format!("outbound|80||{}", [host.to_uppercase(), format!("{host}.")][n])),
    ]
    .concat();
    ask(&plane, view, &all);
    let kept = plane.translator.results() - before;
    assert!(kept <= 1, "{kept} results: the subsets of the host are one");
    // A change of the service or of its rule does not touch what was made up.
    let computed = plane.translator.computed();
    let mut service = service("web", "shop");
    service = service.with(|service| service.mesh_external = true);
    assert_eq!(reported(&plane.apply([service.update()]), view).len(), 0);
    assert_eq!(reported(&plane.apply(rule(&["v1", "v2"])), view).len(), 0);
    let computed = plane.translator.computed() - computed;
    assert!(computed < 200, "{computed} results were computed");
    plane.translator.unsubscribed(view, &all, &|_| false);
    plane.translator.memo.sweep();
    let left = plane.translator.results();
    assert!(left <= before + 1, "{left} results, and were {before}");
}

#[test]
fn a_subset_that_comes_is_reported_to_who_asked_before() {
    let mut plane = Plane::new();
    let (_client, view) = connected(&plane);
    let (v1, v2) = (WEB.replace("||", "|v1|"), WEB.replace("||", "|v2|"));
    ask(&plane, view, &[v1.as_str().into(), v2.as_str().into()]);
    assert_eq!(reported(&plane.apply(rule(&["v1"])), view), BTreeSet::from([&*v1]));
    ask(&plane, view, &[v1.as_str().into()]);
    assert!(reported(&plane.apply(rule(&["v1", "v2"])), view).contains(&*v2));
    // What has gone is as if it had not been there.
    plane.apply(rule(&[]));
    ask(&plane, view, &[v1.as_str().into(), v2.as_str().into()]);
    let again = plane.apply(rule(&["v2"]));
    assert!(reported(&again, view).contains(&*v2), "{again:?}");
}

#[test]
fn a_port_that_comes_is_reported_to_who_asked_before_with_its_subsets() {
    let mut plane = Plane::new();
    plane.apply(rule(&["v1"]));
    let (_client, view) = connected(&plane);
    let [plain, v1, v2, sni] = ["outbound|81||", "outbound|81|v1|", "outbound|81|v2|", "outbound_.81_.v1_."]
        .map(|begin| format!("{begin}web.shop.svc.cluster.local"));
    let asked: Vec<Arc<str>> = [&plain, &v1, &v2, &sni].map(|name| name.as_str().into()).to_vec();
    ask(&plane, view, &asked);
    let changes = plane.apply([with_ports("web", &[80, 81])]);
    let expected = BTreeSet::from([&*plain, &*v1, &*sni]);
    assert!(reported(&changes, view).is_superset(&expected), "{changes:?}");
    assert!(!reported(&changes, view).contains(&*v2), "no rule has it");
    ask(&plane, view, &asked);
    assert!(reported(&plane.apply(rule(&["v1", "v2"])), view).contains(&*v2));
}

#[test]
fn what_comes_is_found_among_very_many_names_that_do_not() {
    let mut plane = Plane::new();
    let (_client, view) = connected(&plane);
    let host = "new.shop.svc.cluster.local";
    let invented = names(1_000, |n| format!("outbound|80|x{n}|{host}"));
    ask(&plane, view, &invented);
    let real: Vec<Arc<str>> =
        ["outbound|80||", "outbound_.80_._."].map(|begin| format!("{begin}{host}").into()).to_vec();
    ask(&plane, view, &real);
    let changes = plane.apply([service("new", "shop").update()]);
    assert_eq!(reported(&changes, view), real.iter().map(|name| &**name).collect());
    // The others wait for subsets.
    let spec = format!("{{host: {host}, subsets: [{{name: x7}}]}}");
    let changes = plane.apply(yaml(&line(NETWORKING, "DestinationRule", "shop", "new", &spec)));
    assert!(reported(&changes, view).contains(&*invented[7]), "{changes:?}");
    assert!(!reported(&changes, view).contains(&*invented[8]));
}
