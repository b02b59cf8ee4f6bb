use super::TargetsOf;
use crate::proxy::Proxy;
use crate::proxy::workload::Identity;
use crate::testing::{TestService, endpoint, evaluate, labels, pod, service, sidecar, world};
use pilotfish_model::{
    Hostname, Port, Protocol, ShardKey, TargetPort, Update, Workload, WorkloadKind, World,
};
use std::sync::Arc;

fn port(number: u32, protocol: Protocol, target_port: TargetPort) -> Port {
    Port { number, name: format!("p-{number}").into(), protocol, target_port: Some(target_port) }
}

fn number(number: u32) -> TargetPort {
    TargetPort::Number(number)
}

fn named(name: &str) -> TargetPort {
    TargetPort::Name(name.into())
}

fn selecting(name: &str, created: i64, ports: &[Port]) -> TestService {
    service(name, "shop").with(|service| {
        service.selector = labels(&[("app", "web")]);
        service.created = created;
        service.ports = ports.into();
    })
}

fn proxy() -> Proxy {
    sidecar("web-0", "shop")
}

fn workload(change: impl FnOnce(&mut Workload)) -> Update {
    let mut workload = pod("web-0", "shop", "10.0.99.1", &[("app", "web")]);
    workload.ports = Arc::new([(Arc::from("http"), 8080)].into());
    change(&mut workload);
    Update::Workload(Arc::new(workload))
}

/// `service:port>target` of the targets.
fn targets(world: &Arc<World>, proxy: &Proxy) -> Vec<String> {
    let proxy = Proxy { cluster: "Kubernetes".into(), ..proxy.clone() };
    let found = evaluate(world, &TargetsOf(Identity::of(&proxy)));
    found.iter().map(|t| format!("{}:{}>{}", t.name, t.port.number, t.target_port)).collect()
}

#[test]
fn services_lead_to_a_pod_by_number_or_by_the_name_of_a_container_port() {
    let http = Protocol::Http;
    let world = world([
        selecting("young", 2, &[port(80, http, named("http")), port(81, http, named("gone"))]).update(),
        selecting("old", 1, &[port(90, http, number(9090))]).update(),
        service("other", "shop").with(|s| s.selector = labels(&[("app", "db")])).update(),
        workload(|_| {}),
    ]);
    assert_eq!(targets(&world, &proxy()), ["old:90>9090", "young:80>8080"]);
    assert!(targets(&world, &sidecar("web-1", "shop")).is_empty());
}

#[test]
fn of_two_ports_of_a_service_for_one_target_and_protocol_the_first_counts() {
    let (http, tcp) = (Protocol::Http, Protocol::Tcp);
    let ports = [port(80, http, number(8080)), port(81, http, number(8080)), port(82, tcp, number(8080))];
    let world = world([selecting("web", 0, &ports).update(), workload(|_| {})]);
    assert_eq!(targets(&world, &proxy()), ["web:80>8080", "web:82>8080"]);
}

#[test]
fn a_workload_entry_has_its_own_ports_and_no_udp() {
    let ports = [
        port(80, Protocol::Http, number(8080)),
        port(81, Protocol::Http, named("admin")),
        port(82, Protocol::Http, named("gone")),
        port(53, Protocol::Udp, number(53)),
    ];
    let entry = workload(|entry| {
        entry.key.kind = WorkloadKind::WorkloadEntry;
        entry.ports = Arc::new([(Arc::from("p-80"), 18080), (Arc::from("admin"), 9000)].into());
    });
    let sick = workload(|entry| {
        entry.key.kind = WorkloadKind::WorkloadEntry;
        entry.ready = false;
    });
    let service = selecting("web", 0, &ports);
    let with_entry = world([service.update(), entry]);
    assert_eq!(targets(&with_entry, &proxy()), ["web:80>18080", "web:81>9000"]);
    let with_sick = world([service.update(), sick]);
    assert!(targets(&with_sick, &proxy()).is_empty());
}

#[test]
fn entries_with_an_endpoint_at_the_proxy_are_served_in_its_namespace_only() {
    let external = |namespace: &str| {
        service("api", namespace).with(|service| {
            service.hostname = Hostname::parse("api.com").unwrap();
            service.name = format!("api-{namespace}").into();
            crate::testing::of_service_entry(service);
        })
    };
    let shard = ShardKey::new(crate::testing::EXTERNAL, "Kubernetes");
    let at = |service: &TestService, address: &str| {
        let endpoint = Arc::new(endpoint(address, 8443, "http"));
        Update::Endpoints(service.key(), shard.clone(), Arc::from([endpoint]))
    };
    let (own, other) = (external("shop"), external("pay"));
    let world = world([own.update(), other.update(), at(&own, "10.0.99.1"), at(&other, "10.0.99.1")]);
    assert_eq!(targets(&world, &proxy()), ["api-shop:80>8443"]);
    let elsewhere = Proxy { ips: Arc::from(["10.0.99.2".parse().unwrap()]), ..proxy() };
    assert!(targets(&world, &elsewhere).is_empty());
}

#[test]
fn an_instance_of_a_registry_without_objects_serves_what_another_registry_describes() {
    use pilotfish_model::{Origin, Provider};
    let web = selecting("web", 0, &[port(80, Protocol::Http, named("gone"))]);
    let (own, others) = (
        ShardKey::new(Provider::new(9, "registration"), "Kubernetes"),
        ShardKey::new(crate::testing::EXTERNAL, "Kubernetes"),
    );
    let at = |shard: &ShardKey, origin: Origin| {
        let registered = endpoint("10.0.99.1", 8001, "p-80").with_attributes(|all| all.provenance = origin);
        Update::Endpoints(web.key(), shard.clone(), Arc::from([Arc::new(registered)]))
    };
    let registered = || Origin::registered(own.clone(), "web-1");
    let instance = || {
        let addresses: Arc<[Arc<str>]> = Arc::from([Arc::from("10.0.99.1")]);
        Update::Workload(Arc::new(Workload::registered(&own, "shop", "web-1", addresses)))
    };
    let alone = world([web.update(), instance(), at(&own, registered())]);
    assert_eq!(targets(&alone, &proxy()), ["web:80>8001"]);
    // A pod with the same port is the same target; an endpoint of objects of another registry is none.
    let pod = workload(|pod| pod.ports = Arc::new([(Arc::from("gone"), 8001)].into()));
    let both = world([web.update(), pod, instance(), at(&own, registered())]);
    assert_eq!(targets(&both, &proxy()), ["web:80>8001"]);
    let of_object = endpoint("10.0.99.1", 8001, "p-80").attributes.provenance.clone();
    assert!(targets(&world([web.update(), instance(), at(&others, of_object)]), &proxy()).is_empty());
}
