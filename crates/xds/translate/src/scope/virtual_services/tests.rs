use super::{MeshVirtualServicesOf, StreamVirtualServicesFor, VirtualServiceOf};
use crate::proxy::ProxyKind;
use crate::routing::VirtualServiceId;
use crate::scope::Scope;
use crate::testing::{evaluate, world_of};
use pilotfish_config::{Limits, read};
use pilotfish_model::{Hostname, Kind, World};
use std::sync::Arc;

fn world(rules: &[(&str, &str, &str)]) -> Arc<World> {
    let objects = rules.iter().flat_map(|(namespace, name, spec)| {
        let yaml = format!(
            "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
        );
        let file = read("test.yaml", yaml.as_bytes(), &Limits::default());
        assert!(file.rejected.is_empty(), "{:?}", file.rejected);
        file.objects.into_iter().map(|read| read.object)
    });
    world_of(objects)
}

fn scope(namespace: &str) -> Scope {
    Scope { kind: ProxyKind::Sidecar, namespace: namespace.into(), sidecar: None }
}

/// The name of the virtual service that serves a host for a client of a namespace.
fn serving(world: &Arc<World>, namespace: &str, host: &str) -> Option<String> {
    let rules = evaluate(world, &MeshVirtualServicesOf(scope(namespace), 0));
    rules.serving(&Hostname::parse(host).unwrap()).map(|header| header.id.name.to_string())
}

const ROUTE: &str = "http: [{route: [{destination: {host: catalog}}]}]";

#[test]
fn private_rules_come_before_exported_and_public_ones() {
    let rule =
        |export: &str| format!("{{hosts: [catalog.shop.svc.cluster.local], exportTo: {export}, {ROUTE}}}");
    let world = world(&[
        ("shop", "a-public", &rule("['*']")),
        ("shop", "b-for-two", &rule("[one, two]")),
        ("two", "c-private", &rule("['.']")),
        ("shop", "d-nobody", &rule("['~']")),
    ]);
    let host = "catalog.shop.svc.cluster.local";
    assert_eq!(serving(&world, "zero", host).as_deref(), Some("a-public"));
    assert_eq!(serving(&world, "one", host).as_deref(), Some("b-for-two"));
    assert_eq!(serving(&world, "two", host).as_deref(), Some("c-private"));
}

#[test]
fn the_longest_host_wins_and_rules_with_delegates_come_last() {
    let world = world(&[
        ("shop", "a-root", "{hosts: [x.example.com], http: [{delegate: {name: d}}]}"),
        ("shop", "b", &format!("{{hosts: [x.example.com, '*.example.com'], {ROUTE}}}")),
        ("shop", "c", &format!("{{hosts: ['*.com', '*.deep.example.com'], {ROUTE}}}")),
        ("shop", "d", &format!("{{{ROUTE}}}")),
        ("shop", "e", &format!("{{hosts: [y.com], gateways: [edge], {ROUTE}}}")),
    ]);
    for (host, want) in [
        ("x.example.com", Some("b")),
        ("z.example.com", Some("b")),
        ("*.example.com", Some("b")),
        ("a.deep.example.com", Some("c")),
        ("*.other.com", Some("c")),
        ("example.org", None),
        ("y.com", Some("c")),
    ] {
        assert_eq!(serving(&world, "shop", host).as_deref(), want, "{host}");
    }
}

#[test]
fn delegates_are_merged_under_the_root() {
    let world = world(&[
        (
            "shop",
            "root",
            "{hosts: [catalog], http: [
              {name: items, match: [{uri: {prefix: /items}, name: r}, {uri: {exact: /other}}], timeout: 5s,
               delegate: {name: items}},
              {match: [{uri: {prefix: /hidden}}], delegate: {name: hidden, namespace: away}},
              {match: [{uri: {prefix: /missing}}], delegate: {name: missing}},
              {name: rest, route: [{destination: {host: catalog}}]}]}",
        ),
        (
            "shop",
            "items",
            "{http: [
              {name: id, match: [{uri: {prefix: /items/id}}], timeout: 2s, route: [{destination: {host: catalog}}]},
              {name: other, match: [{uri: {regex: '.*'}}], route: [{destination: {host: catalog}}]},
              {route: [{destination: {host: catalog}}]}]}",
        ),
        ("away", "hidden", &format!("{{exportTo: ['.'], {ROUTE}}}")),
    ]);
    let id = VirtualServiceId { source: Kind::VirtualService, namespace: "shop".into(), name: "root".into() };
    let rule = evaluate(&world, &VirtualServiceOf(id));
    let rule = Option::as_ref(&rule).unwrap();
    let names: Vec<_> = rule.http.iter().map(|route| route.whole().name.clone()).collect();
    assert_eq!(names, ["items-id", "items", "rest"]);
    let (first, second) = (rule.http[0].whole(), rule.http[1].whole());
    assert_eq!(
        (first.timeout.unwrap().to_string(), second.timeout.unwrap().to_string()),
        ("2s".into(), "5s".into())
    );
    assert_eq!((first.r#match.len(), second.r#match.len()), (1, 2));
    assert_eq!(first.r#match[0].name, "r");
    assert_eq!(first.route[0].destination.as_ref().unwrap().host, "catalog.shop.svc.cluster.local");
    assert_eq!(rule.provenance.len(), 2);
}

#[test]
fn routes_of_streams_are_found_by_host() {
    let tcp = "tcp: [{route: [{destination: {host: db}}]}]";
    let world = world(&[
        ("data", "a", &format!("{{hosts: [db], {tcp}}}")),
        ("data", "b", &format!("{{hosts: ['*.data.svc.cluster.local'], {tcp}}}")),
        ("data", "c", &format!("{{hosts: [db], {ROUTE}}}")),
    ]);
    let query = StreamVirtualServicesFor {
        scope: scope("x"),
        listener: 0,
        host: Hostname::parse("db.data.svc.cluster.local").unwrap(),
    };
    let names: Vec<_> = evaluate(&world, &query).iter().map(|rule| rule.id.name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
}
