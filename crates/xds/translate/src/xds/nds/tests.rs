use crate::proxy::Proxy;
use crate::testing::{endpoint, service, sidecar, world};
use crate::translator::Translator;
use pilotfish_model::{
    ChangeSet, ClusterAddresses, Endpoint, Fact, HealthStatus, Resolution, Service, ShardKey, Update,
};
use pilotfish_proto::istio::{NameInfo, NameTable};
use pilotfish_proto::{Any, ResourceType};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

fn table(proxy: &Proxy, updates: impl IntoIterator<Item = Update>) -> BTreeMap<String, NameInfo> {
    let translator = Translator::new();
    translator.publish(world(updates), &ChangeSet { facts: [Fact::Services].into() });
    let client = translator.connect(proxy.clone());
    let snapshot = translator.snapshot();
    let view = snapshot.view(&client, ResourceType::NameTable).unwrap();
    assert_eq!(*snapshot.names(view), [Arc::from("")]);
    let encoded = snapshot.get(view, "").unwrap();
    NameTable::decode(&*Any::decode(encoded.body).unwrap().value).unwrap().table
}

fn addressed(addresses: &[&str]) -> impl Fn(&mut Service) {
    let list: Arc<[Arc<str>]> = addresses.iter().map(|address| Arc::from(*address)).collect();
    move |service| service.addresses = ClusterAddresses::from([("Kubernetes".into(), list.clone())])
}

fn external(service: &mut Service) {
    crate::testing::of_service_entry(service);
    service.resolution = Resolution::DNSLB;
}

#[test]
fn services_are_listed_with_their_addresses() {
    let none = service("none", "shop").with(external);
    let range =
        service("range", "shop").with(external).with(|service| service.default_address = "10.0.0.0/8".into());
    let one =
        service("one", "shop").with(external).with(|service| service.default_address = "240.0.0.1".into());
    let web = service("web", "shop").with(addressed(&["10.96.0.1"]));
    let table = table(&sidecar("a", "shop"), [none, range, one, web].map(|service| service.update()));
    let show =
        |info: &NameInfo| format!("{:?} {} {} {}", info.ips, info.registry, info.shortname, info.namespace);
    let shown: Vec<_> = table.iter().map(|(host, info)| format!("{host} {}", show(info))).collect();
    assert_eq!(
        shown,
        [
            r#"one.shop.svc.cluster.local ["240.0.0.1"] External  "#,
            r#"range.shop.svc.cluster.local [] External  "#,
            r#"web.shop.svc.cluster.local ["10.96.0.1"] Kubernetes web shop"#,
        ]
    );
}

/// Rule 45 of Istio 1.31: a Service without an address of the proxy's families is left out, addresses that a
/// ServiceEntry states are not.
#[test]
fn cluster_addresses_of_other_families_are_no_answers() {
    let of = |name: &str, addresses: &[&str]| service(name, "shop").with(addressed(addresses)).update();
    let stated =
        service("stated", "shop").with(external).with(|service| service.default_address = "fd00::9".into());
    for (ips, expected) in [
        (&["10.0.99.1"][..], "duo: 10.96.0.2, four: 10.96.0.1, stated: fd00::9"),
        (&["fd00::1"], "duo: fd00::2, six: fd00::3, stated: fd00::9"),
        (&["10.0.99.1", "fd00::1"], "duo: 10.96.0.2, four: 10.96.0.1, six: fd00::3, stated: fd00::9"),
    ] {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let proxy = Proxy { ips, ..sidecar("a", "shop") };
        let services = [
            of("four", &["10.96.0.1"]),
            of("duo", &["10.96.0.2", "fd00::2"]),
            of("six", &["fd00::3"]),
            stated.update(),
        ];
        let table = table(&proxy, services);
        let shown = table.iter().map(|(host, info)| {
            format!("{}: {}", host.split('.').next().unwrap_or_default(), info.ips.join(" "))
        });
        assert_eq!(shown.collect::<Vec<_>>().join(", "), expected, "{:?}", proxy.ips);
    }
}

#[test]
fn hosts_of_live_registries_are_not_answered_for_the_short_name_of_a_service() {
    let registered = |host: &str| {
        service("x", "evil").with(addressed(&["10.66.0.1"])).with(|service| {
            service.hostname = pilotfish_model::Hostname::parse(host).unwrap();
            let shard = ShardKey::new(pilotfish_model::Provider::new(2, "registration"), "c");
            service.provenance = pilotfish_model::Origin::registered(shard, host);
        })
    };
    let pay = service("pay", "payments")
        .with(addressed(&["10.96.0.1"]))
        .with(|service| service.has_short_name = true);
    let hosts = ["pay.payments", "pay.payments.svc", "free.payments", "pay.example.com"];
    let services = hosts.map(|host| registered(host).update());
    let table = table(&sidecar("a", "shop"), services.into_iter().chain([pay.update()]));
    let names: Vec<_> = table.keys().map(String::as_str).collect();
    assert_eq!(names, ["free.payments", "pay.example.com", "pay.payments.svc.cluster.local"]);
}

#[test]
fn a_headless_service_has_the_addresses_of_its_ready_pods() {
    let db = service("db", "shop").with(|service| service.resolution = Resolution::Passthrough);
    let pod = |address: &str, name: &str, cluster: &str, health| {
        let endpoint = Endpoint { health, ..endpoint(address, 5432, "tcp") };
        endpoint.with_attributes(|pod| {
            pod.hostname = name.into();
            pod.sub_domain = "db".into();
            pod.cluster = cluster.into();
        })
    };
    let list = |cluster: &str, endpoints: Vec<Endpoint>| {
        let shard = ShardKey::new(crate::testing::KUBERNETES, cluster);
        Update::Endpoints(db.key(), shard, endpoints.into_iter().map(Arc::new).collect())
    };
    let own = list(
        "Kubernetes",
        vec![
            pod("10.0.0.1", "db-0", "Kubernetes", HealthStatus::Healthy),
            pod("10.0.0.1", "db-0", "Kubernetes", HealthStatus::Healthy),
            pod("10.0.0.2", "db-1", "Kubernetes", HealthStatus::Unhealthy),
        ],
    );
    let other = list(
        "Aother",
        vec![
            pod("10.9.0.1", "db-0", "Aother", HealthStatus::Healthy),
            pod("10.9.0.3", "db-9", "Aother", HealthStatus::Healthy),
            pod("10.9.0.4", "db-8", "Aother", HealthStatus::Healthy)
                .with_attributes(|pod| pod.network = "far".into()),
        ],
    );
    let proxy = Proxy { network: "near".into(), ..sidecar("a", "shop") };
    let table = table(&proxy, [db.update(), own, other]);
    let ips: BTreeMap<&str, &[String]> =
        table.iter().map(|(host, info)| (host.split_once(".shop").unwrap().0, &*info.ips)).collect();
    let want =
        [("db", "10.0.0.1"), ("db-0.db", "10.0.0.1"), ("db-1.db", "10.0.0.2"), ("db-9.db", "10.9.0.3")];
    let want: BTreeMap<&str, Vec<String>> =
        want.into_iter().map(|(name, ip)| (name, vec![ip.to_owned()])).collect();
    assert_eq!(ips, want.iter().map(|(name, ips)| (*name, &**ips)).collect());
    assert_eq!(table["db-0.db.shop.svc.cluster.local"].shortname, "db-0.db");
}
