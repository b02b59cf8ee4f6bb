//! Tables: what is registered, and the services that come of it.

use super::*;
use crate::mirror::Registrations;
use crate::testing::registrations;
use pilotfish_model::HealthStatus;

/// A line for each service with its ports, and one for each instance.
fn lines(services: &[CatalogService]) -> Vec<String> {
    let mut lines = Vec::new();
    for service in services {
        let ports: Vec<String> = service
            .ports
            .iter()
            .map(|port| format!("{} {}", port.number, port.protocol.as_deref().unwrap_or("?")))
            .collect();
        lines.push(format!("{} = {}: {}", service.id, service.host, ports.join(", ")));
        for instance in &service.instances {
            let ports: Vec<String> = instance
                .ports
                .iter()
                .map(|port| format!("{}>{}", port.service.number, port.number))
                .collect();
            let mut line = format!("- {} {}", instance.addresses.join(","), ports.join(" "));
            if instance.weight > 0 {
                line.push_str(&format!(" weight={}", instance.weight));
            }
            if instance.health != HealthStatus::Healthy {
                line.push_str(" off");
            }
            for (key, value) in &instance.labels {
                line.push_str(&format!(" {key}={value}"));
            }
            lines.push(line);
        }
    }
    lines
}

fn all(nodes: &[(&str, &str)]) -> Vec<String> {
    lines(&Mapper::new("ns".into(), "").all(&registrations(nodes)))
}

fn provider(url: &str) -> String {
    let url = percent_encoding::utf8_percent_encode(url, percent_encoding::NON_ALPHANUMERIC);
    format!("/dubbo/a.B/providers/{url}")
}

fn configurator(url: &str) -> String {
    let url = percent_encoding::utf8_percent_encode(url, percent_encoding::NON_ALPHANUMERIC);
    format!("/dubbo/a.B/configurators/{url}")
}

/// An instance of Dubbo with a revision, whose metadata are stored in ZooKeeper (`remote`) or not (`local`).
fn instance(storage: &str) -> String {
    format!(
        r#"{{"address":"10.0.0.1","port":20880,"payload":{{"metadata":{{
        "dubbo.endpoints":"[{{\"port\":20880,\"protocol\":\"dubbo\"}},{{\"port\":50052,\"protocol\":\"tri\"}}]",
        "dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"{storage}","timestamp":"1","team":"red"}}}}}}"#
    )
}

const METADATA: &str = r#"{"services":{
    "g/a.B:1.0.0:dubbo":{"name":"a.B","group":"g","version":"1.0.0","protocol":"dubbo","port":20880,"params":{"weight":"50","timestamp":"9"}},
    "g/a.B:1.0.0:tri":{"name":"a.B","group":"g","version":"1.0.0","protocol":"tri","port":50052,"params":{}},
    "c.D:dubbo":{"name":"c.D","protocol":"dubbo","port":20880,"params":{}}}}"#;

#[test]
fn each_group_and_version_is_a_service() {
    let nodes = [
        provider("dubbo://10.0.0.1:20880/a.B?application=shop&timestamp=1&pid=7&methods=x"),
        provider("dubbo://10.0.0.2:20881/a.B?application=shop&timestamp=2"),
        provider("tri://10.0.0.1:50051/a.B?group=blue&version=1.0.0&zone=a"),
        provider("empty://0.0.0.0/a.B?category=providers"),
        provider("dubbo://10.0.0.3:20880/a.B?category=routers"),
        provider("dubbo://10.0.0.3/a.B"),
    ];
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|path| (path.as_str(), "")).collect();
    assert_eq!(
        all(&nodes),
        [
            "interface a.B = a.B: 20880 dubbo",
            "- 10.0.0.1 20880>20880 application=shop",
            "- 10.0.0.2 20880>20881 application=shop",
            "interface blue/a.B:1.0.0 = a.B-blue-1-0-0: 50051 grpc",
            "- 10.0.0.1 50051>50051 group=blue version=1.0.0 zone=a",
        ]
    );
}

#[test]
fn weights_and_switches_come_from_providers_and_overrides() {
    let nodes = [
        provider("dubbo://10.0.0.1:20880/a.B?weight=200"),
        provider("dubbo://10.0.0.2:20880/a.B"),
        provider("dubbo://10.0.0.3:20880/a.B?disabled=true"),
        provider("dubbo://10.0.0.4:20880/a.B?weight=0"),
        provider("dubbo://10.0.0.5:20880/a.B?enabled=false"),
        provider("dubbo://10.0.0.6:20880/a.B?weight=many"),
        provider("dubbo://10.0.0.7:20880/a.B"),
        provider("dubbo://10.0.0.8:20880/a.B"),
        configurator("override://10.0.0.7:20880/a.B?disabled=true"),
        configurator("override://10.0.0.8/a.B?weight=1"),
        configurator("override://10.0.0.3/a.B?disabled=false"),
    ];
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|path| (path.as_str(), "")).collect();
    assert_eq!(
        all(&nodes),
        [
            "interface a.B = a.B: 20880 dubbo",
            "- 10.0.0.1 20880>20880 weight=200",
            "- 10.0.0.2 20880>20880 weight=100",
            "- 10.0.0.3 20880>20880 weight=100",
            "- 10.0.0.4 20880>20880 off",
            "- 10.0.0.5 20880>20880 weight=100 off",
            "- 10.0.0.6 20880>20880 weight=100",
            "- 10.0.0.7 20880>20880 weight=100 off",
            "- 10.0.0.8 20880>20880 weight=1",
        ]
    );
}

#[test]
fn a_provider_that_is_registered_both_ways_is_one_endpoint() {
    let by_interface = provider("dubbo://10.0.0.1:20880/a.B?group=g&version=1.0.0&weight=50");
    let remote = instance("remote");
    let nodes = [
        (by_interface.as_str(), ""),
        ("/services/shop/10.0.0.1:20880", remote.as_str()),
        ("/dubbo/mapping/a.B", "shop"),
        ("/dubbo/mapping/c.D", "shop,gone"),
        ("/dubbo/metadata/shop/r1", METADATA),
    ];
    let want = [
        "interface g/a.B:1.0.0 = a.B-g-1-0-0: 20880 dubbo, 50051 grpc",
        "- 10.0.0.1 20880>20880 weight=50 group=g version=1.0.0",
        "- 10.0.0.1 50051>50052 weight=100 team=red",
        "interface c.D = c.D: 20880 dubbo",
        "- 10.0.0.1 20880>20880 team=red",
        "application shop = shop: 20880 dubbo, 50051 grpc",
        "- 10.0.0.1 20880>20880 50051>50052 team=red",
    ];
    assert_eq!(all(&nodes), want);
    // Registered by application alone, its metadata say the same.
    assert_eq!(all(&nodes[1..])[1], "- 10.0.0.1 20880>20880 weight=50 team=red");
    // Metadata that only the instance knows: what it did not register by interface goes to the host without
    // group and version.
    let local = instance("local");
    let nodes = [nodes[0], ("/services/shop/10.0.0.1:20880", local.as_str()), nodes[2]];
    assert_eq!(
        all(&nodes)[..4],
        [
            "interface a.B = a.B: 50051 grpc",
            "- 10.0.0.1 50051>50052 team=red",
            "interface g/a.B:1.0.0 = a.B-g-1-0-0: 20880 dubbo",
            "- 10.0.0.1 20880>20880 weight=50 group=g version=1.0.0",
        ]
    );
}

#[test]
fn what_envoy_cannot_read_is_tcp() {
    for (parameters, want) in [
        ("", "dubbo"),
        ("?serialization=hessian2", "dubbo"),
        ("?serialization=fastjson2", "tcp"),
        ("?prefer.serialization=hessian2,fastjson2", "dubbo"),
        ("?prefer.serialization=fastjson2,hessian2&serialization=hessian2", "tcp"),
    ] {
        let nodes = [
            provider("dubbo://10.0.0.1:20880/a.B"),
            provider(&format!("dubbo://10.0.0.2:20880/a.B{parameters}")),
        ];
        let nodes: Vec<(&str, &str)> = nodes.iter().map(|path| (path.as_str(), "")).collect();
        assert_eq!(all(&nodes)[0], format!("interface a.B = a.B: 20880 {want}"), "{parameters}");
    }
    let several = provider("dubbo://10.0.0.1:20880/a.B?ext.protocol=tri,");
    let want =
        ["interface a.B = a.B: 20880 dubbo, 50051 grpc", "- 10.0.0.1 20880>20880", "- 10.0.0.1 50051>20880"];
    assert_eq!(all(&[(&several, "")]), want);
}

#[test]
fn applications_of_spring_cloud_have_their_own_ports() {
    let up = r#"{"address":"10.0.0.1","port":8080,"sslPort":8443,"payload":{"metadata":{"instance_status":"UP","tier":"x","weight":"3"}}}"#;
    let down = r#"{"address":"host.example","port":8081,"payload":{"metadata":{"instance_status":"OUT_OF_SERVICE"}}}"#;
    let nodes = [("/services/shop/1", up), ("/services/shop/2", down)];
    let services = Mapper::new("ns".into(), ".example.").all(&registrations(&nodes));
    assert_eq!(
        lines(&services),
        [
            "application shop = shop.example: 8080 ?, 8081 ?, 8443 https",
            "- 10.0.0.1 8080>8080 8443>8443 weight=3 tier=x",
            "- host.example 8081>8081 off",
        ]
    );
}

#[test]
fn a_service_that_loses_its_last_provider_stays_without_endpoints() {
    let gone = provider("dubbo://10.0.0.1:20880/a.B?group=g");
    let full = registrations(&[(&gone, ""), ("/services/shop/1", r#"{"address":"10.0.0.1","port":80}"#)]);
    let empty = registrations(&[("/dubbo/a.B/providers", ""), ("/services/shop", "")]);
    let nothing = Registrations::default();
    let changed = Changed { interfaces: ["a.B".to_owned()].into(), applications: ["shop".to_owned()].into() };

    let mut mapper = Mapper::new("ns".into(), "");
    assert_eq!(lines(&mapper.all(&full)).len(), 4);
    let difference = mapper.changed(&empty, &changed);
    assert_eq!(
        lines(&difference.set),
        ["application shop = shop: 80 ?", "interface g/a.B = a.B-g: 20880 dubbo"]
    );
    assert!(difference.removed.is_empty());
    assert_eq!(lines(&mapper.all(&empty)).len(), 2, "a full read says the same");
    let difference = mapper.changed(&nothing, &changed);
    assert!(difference.set.is_empty());
    assert_eq!(difference.removed, ["application shop".into(), "interface g/a.B".into()]);
    assert!(mapper.all(&empty).is_empty(), "nothing is known of nodes that were always empty");
}

#[test]
fn a_change_of_an_application_changes_its_interfaces() {
    let (remote, interface) = (instance("remote"), ("/dubbo/mapping/a.B", "shop"));
    let with = [("/services/shop/1", remote.as_str()), interface, ("/dubbo/metadata/shop/r1", METADATA)];
    let mut mapper = Mapper::new("ns".into(), "");
    assert_eq!(mapper.all(&registrations(&[("/services/shop", ""), interface])).len(), 0);
    let changed = Changed { interfaces: BTreeSet::new(), applications: ["shop".to_owned()].into() };
    let difference = mapper.changed(&registrations(&with), &changed);
    let ids: Vec<&str> = difference.set.iter().map(|service| &*service.id).collect();
    assert_eq!(ids, ["application shop", "interface g/a.B:1.0.0"]);
}

#[test]
fn what_is_kept_empty_is_limited() {
    let nodes: Vec<String> =
        (0..40).map(|version| provider(&format!("dubbo://10.0.0.1:20880/a.B?version={version}"))).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|path| (path.as_str(), "")).collect();
    let mut mapper = Mapper::new("ns".into(), "");
    assert_eq!(mapper.all(&registrations(&nodes)).len(), 40);
    let changed = Changed { interfaces: ["a.B".to_owned()].into(), applications: BTreeSet::new() };
    let difference = mapper.changed(&registrations(&[("/dubbo/a.B/providers", "")]), &changed);
    assert_eq!((difference.set.len(), difference.removed.len()), (MAX_EMPTY, 40 - MAX_EMPTY));
}
