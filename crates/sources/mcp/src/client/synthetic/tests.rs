use super::*;
use pilotfish_config::networking::ServicePort;
use pilotfish_model::{Kind, ObjectMeta};
use pilotfish_proto::envoy::config::core::v3 as core;
use pilotfish_proto::envoy::config::endpoint::v3 as endpoint;

fn entry(name: &str, ports: &[(u32, &str)]) -> Object {
    let ports = ports.iter().map(|(number, name)| ServicePort {
        number: *number,
        name: (*name).to_owned(),
        ..ServicePort::default()
    });
    let spec = ServiceEntry {
        hosts: vec![format!("{name}.example")],
        ports: ports.collect(),
        resolution: Resolution::Static,
        ..ServiceEntry::default()
    };
    Object::new(ObjectMeta::of(ObjectKey::new(Kind::ServiceEntry, "n", name)), spec)
}

fn assignment(cluster: &str, addresses: &[(&str, u32)]) -> ClusterLoadAssignment {
    let lb_endpoints = addresses.iter().map(|(address, port)| {
        let socket = core::SocketAddress {
            address: (*address).to_owned(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(*port)),
            ..Default::default()
        };
        let address = core::Address { address: Some(core::address::Address::SocketAddress(socket)) };
        let host = endpoint::Endpoint { address: Some(address), ..Default::default() };
        endpoint::LbEndpoint {
            host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(host)),
            ..Default::default()
        }
    });
    let group = endpoint::LocalityLbEndpoints { lb_endpoints: lb_endpoints.collect(), ..Default::default() };
    ClusterLoadAssignment { cluster_name: cluster.to_owned(), endpoints: vec![group], ..Default::default() }
}

fn answer(list: Vec<ClusterLoadAssignment>, is_first: bool) -> Assignments {
    Assignments { list, removed: Vec::new(), is_first }
}

/// What was sent on: entries with their endpoints.
fn shown(events: Vec<SourceEvent>) -> Vec<String> {
    let show = |event| match event {
        SourceEvent::Apply(object) => {
            let entry = object.typed::<ServiceEntry>().unwrap();
            let of = |endpoint: &WorkloadEntry| format!("{}{:?}", endpoint.address, endpoint.ports);
            format!("{} {}", object.key().name, entry.endpoints.iter().map(of).collect::<Vec<_>>().join(" "))
        }
        SourceEvent::Delete(key) => format!("-{}", key.name),
        other => format!("{other:?}"),
    };
    events.into_iter().map(show).collect()
}

const HTTP: &str = "outbound|80||synthetic-a.example";
const GRPC: &str = "outbound|90||synthetic-a.example";

#[test]
fn an_entry_waits_for_all_of_its_ports_and_so_does_the_end_of_the_list() {
    let mut synthetic = Synthetic::new(GuardSettings::default());
    let own = entry("other", &[(80, "http")]);
    let of_istiod = entry("synthetic-a", &[(80, "http"), (90, "grpc")]);
    let first = vec![SourceEvent::Apply(of_istiod), SourceEvent::Apply(own), SourceEvent::Listed];
    assert_eq!(shown(synthetic.complete(first)), ["other "]);
    let (more, fewer) = synthetic.take_subscriptions();
    assert_eq!(
        (more.into_iter().collect::<Vec<_>>(), fewer.len()),
        (vec![HTTP.to_owned(), GRPC.to_owned()], 0)
    );

    let http = assignment(HTTP, &[("10.0.0.1", 8080), ("10.0.0.2", 8080)]);
    synthetic.answer(&answer(vec![http, assignment("outbound|80||unknown", &[])], true), Instant::now());
    assert_eq!(shown(synthetic.complete(Vec::new())), Vec::<String>::new());
    synthetic.answer(
        &answer(vec![assignment(GRPC, &[("10.0.0.1", 9090), ("10.0.0.2", 9090)])], false),
        Instant::now(),
    );
    let both = r#"synthetic-a 10.0.0.1{"grpc": 9090, "http": 8080} 10.0.0.2{"grpc": 9090, "http": 8080}"#;
    assert_eq!(shown(synthetic.complete(Vec::new())), [both, "Listed"]);
    // An equal answer is no change; one that names one cluster changes that.
    synthetic.answer(
        &answer(vec![assignment(GRPC, &[("10.0.0.1", 9090), ("10.0.0.2", 9090)])], false),
        Instant::now(),
    );
    assert!(synthetic.complete(Vec::new()).is_empty());
    synthetic.answer(&answer(vec![assignment(HTTP, &[("10.0.0.1", 8080)])], false), Instant::now());
    let one = r#"synthetic-a 10.0.0.1{"grpc": 9090, "http": 8080} 10.0.0.2{"grpc": 9090}"#;
    assert_eq!(shown(synthetic.complete(Vec::new())), [one]);

    let gone = vec![SourceEvent::Delete(ObjectKey::new(Kind::ServiceEntry, "n", "synthetic-a"))];
    assert_eq!(shown(synthetic.complete(gone)), ["-synthetic-a"]);
    assert_eq!(synthetic.take_subscriptions().1.len(), 2);
    assert!(synthetic.clusters.is_empty() && synthetic.entries.is_empty());
}

#[test]
fn first_answer_without_most_endpoints_waits_for_that_of_another_stream() {
    let mut synthetic = Synthetic::new(GuardSettings::default());
    let now = Instant::now();
    synthetic.complete(vec![SourceEvent::Apply(entry("synthetic-a", &[(80, "http"), (90, "grpc")]))]);
    let four = [("10.0.0.1", 8080), ("10.0.0.2", 8080), ("10.0.0.3", 8080), ("10.0.0.4", 8080)];
    let full = vec![assignment(HTTP, &four), assignment(GRPC, &[])];
    synthetic.answer(&answer(full, true), now);
    synthetic.complete(Vec::new());
    let small = answer(vec![assignment(HTTP, &[]), assignment(GRPC, &[("10.0.0.5", 90)])], true);
    synthetic.answer(&small, now);
    assert_eq!(
        synthetic.held().map(|held| (held.before, held.after)),
        Some((4, 0)),
        "one that came makes up for none"
    );
    let shown_now = shown(synthetic.complete(Vec::new())).concat();
    assert!(
        shown_now.contains("10.0.0.4") && shown_now.contains("10.0.0.5"),
        "only more is believed: {shown_now}"
    );
    assert_eq!(synthetic.begin().0.len(), 2, "a new stream asks for all");
    let until = synthetic.held().unwrap().until;
    synthetic.answer(&small, until);
    assert_eq!(shown(synthetic.complete(Vec::new())), [r#"synthetic-a 10.0.0.5{"grpc": 90}"#]);
    // A change that is told is believed at once.
    synthetic.answer(&answer(vec![assignment(GRPC, &[])], false), until);
    assert_eq!(shown(synthetic.complete(Vec::new())), ["synthetic-a "]);
}

#[test]
fn two_workloads_at_one_address_stay_two() {
    let mut synthetic = Synthetic::new(GuardSettings::default());
    synthetic.complete(vec![SourceEvent::Apply(entry("synthetic-a", &[(80, "http"), (90, "grpc")]))]);
    let http = assignment(HTTP, &[("10.0.0.1", 1), ("10.0.0.1", 2)]);
    synthetic.answer(&answer(vec![http, assignment(GRPC, &[("10.0.0.1", 3)])], true), Instant::now());
    let two = r#"synthetic-a 10.0.0.1{"grpc": 3, "http": 1} 10.0.0.1{"http": 2}"#;
    assert_eq!(shown(synthetic.complete(Vec::new())), [two]);
}
