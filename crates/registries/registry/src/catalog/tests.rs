use super::*;
use crate::live::RegistryBatch;
use crate::registry::RegistryUpdate;
use pilotfish_model::{HealthStatus, Locality, Protocol, Provider, Resolution};
use pilotfish_runtime::GuardSettings;
use proptest::prelude::*;
use std::time::Duration;

fn shard() -> ShardKey {
    ShardKey::new(Provider::new(2, "test"), "c")
}

fn catalog() -> Catalog {
    Catalog::new(shard(), CatalogOptions::default())
}

fn service(id: &str, instances: &[(&str, u32)]) -> CatalogService {
    let mut service = CatalogService::new(id, format!("{id}.test"), "ns");
    for (address, port) in instances {
        service
            .instances
            .push(CatalogInstance::new(format!("{address}:{port}"), *address).with_port(*port, Some("http")));
    }
    service
}

/// A batch in words.
fn words(batch: RegistryBatch) -> Vec<String> {
    let complete = if batch.is_complete() { vec!["complete".to_owned()] } else { Vec::new() };
    let updates = batch.into_updates().filter_map(|update| match update {
        RegistryUpdate::Services(key, list) => Some(match list.first() {
            None => format!("-service {}", key.hostname),
            Some(service) => {
                let ports: Vec<String> = service
                    .ports
                    .iter()
                    .map(|p| format!("{}={}/{:?}", p.name, p.number, p.protocol))
                    .collect();
                format!("service {} {} {:?}", key.hostname, ports.join(","), service.resolution)
            }
        }),
        RegistryUpdate::Endpoints(key, None) => Some(format!("-endpoints {}", key.hostname)),
        RegistryUpdate::Endpoints(key, Some(list)) => {
            let list: Vec<String> = list
                .iter()
                .map(|e| {
                    format!(
                        "{}:{}>{}{}",
                        e.address(),
                        e.port,
                        e.service_port,
                        if e.health == HealthStatus::Healthy { "" } else { "!" }
                    )
                })
                .collect();
            Some(format!("endpoints {} {}", key.hostname, list.join(",")))
        }
        RegistryUpdate::Workload(key, None) => Some(format!("-workload {}", key.name)),
        RegistryUpdate::Workload(key, Some(_)) => Some(format!("workload {}", key.name)),
        RegistryUpdate::Gateways(_) => None,
        _ => Some("another update".to_owned()),
    });
    complete.into_iter().chain(updates).collect()
}

fn batch(change: Change) -> Vec<String> {
    match change {
        Change::Batch(batch) => words(batch),
        Change::Unchanged => vec!["unchanged".to_owned()],
        Change::Held(held) => vec![format!("held {} to {}", held.before, held.after)],
    }
}

#[test]
fn a_change_is_what_differs() {
    let (mut catalog, now) = (catalog(), Instant::now());
    let early = catalog.apply(vec![service("early", &[("10.0.0.9", 1)])], vec![], now);
    assert_eq!(batch(early), ["unchanged"], "nothing is sent before the first full answer");
    let all = vec![service("a", &[("10.0.0.1", 80), ("10.0.0.2", 80)]), service("b", &[("10.0.0.3", 81)])];
    assert_eq!(
        batch(catalog.replace(all.clone(), now)),
        [
            "complete",
            "service a.test http=80/Http ClientSideLB",
            "service b.test http=81/Http ClientSideLB",
            "endpoints a.test 10.0.0.1:80>http,10.0.0.2:80>http",
            "endpoints b.test 10.0.0.3:81>http",
            "workload a/10.0.0.1:80",
            "workload a/10.0.0.2:80",
            "workload b/10.0.0.3:81",
        ]
    );
    assert_eq!(batch(catalog.replace(all, now)), ["unchanged"]);
    let more = service("b", &[("10.0.0.3", 81), ("10.0.0.4", 82)]);
    assert_eq!(
        batch(catalog.apply(vec![more], vec![], now)),
        [
            "service b.test http=81/Http,http-82=82/Http ClientSideLB",
            "endpoints b.test 10.0.0.3:81>http,10.0.0.4:82>http-82",
            "workload b/10.0.0.4:82",
        ]
    );
    let mut sick = service("a", &[("10.0.0.1", 80), ("10.0.0.2", 80)]);
    sick.instances[1].health = HealthStatus::Unhealthy;
    assert_eq!(
        batch(catalog.apply(vec![sick], vec![], now)),
        ["endpoints a.test 10.0.0.1:80>http,10.0.0.2:80>http!", "workload a/10.0.0.2:80"]
    );
    assert_eq!(
        batch(catalog.apply(vec![], vec!["a".into(), "unknown".into()], now)),
        ["-service a.test", "-endpoints a.test", "-workload a/10.0.0.1:80", "-workload a/10.0.0.2:80"]
    );
}

#[test]
fn the_first_id_has_the_host_and_the_next_takes_over() {
    let (mut catalog, now) = (catalog(), Instant::now());
    let named = |id: &str, address: &str| CatalogService {
        host: "Same_Host".into(),
        ..service(id, &[(address, 80)])
    };
    let all = vec![
        named("two", "10.0.0.2"),
        named("one", "10.0.0.1"),
        CatalogService { host: "..".into(), ..service("none", &[]) },
    ];
    let first = batch(catalog.replace(all, now));
    assert!(first.contains(&"endpoints same_host 10.0.0.1:80>http".to_owned()), "{first:?}");
    let problems = catalog.problems();
    assert_eq!(problems.total, 2);
    assert_eq!(
        problems.first.iter().map(|line| &**line).collect::<Vec<_>>(),
        [
            "none: left out: \"..\" is no host name, and none can be made of it",
            "two: left out, as its host same_host in the namespace ns is that of one"
        ]
    );
    let next = batch(catalog.apply(vec![], vec!["one".into()], now));
    assert_eq!(
        next,
        [
            "service same_host http=80/Http ClientSideLB",
            "endpoints same_host 10.0.0.2:80>http",
            "-workload one/10.0.0.1:80",
            "workload two/10.0.0.2:80",
        ]
    );
    assert_eq!(catalog.problems().total, 1, "what is mended is gone");
}

#[test]
fn what_cannot_be_an_endpoint_is_left_out_and_said() {
    let (mut catalog, now) = (catalog(), Instant::now());
    let mut odd =
        service("odd", &[("10.0.0.1", 80), ("0.0.0.0", 80), ("not an address", 80), ("10.0.0.2", 0)]);
    odd.instances.push(CatalogInstance { addresses: vec![], ..CatalogInstance::new("none", "") });
    odd.instances.push(CatalogInstance::new("named", "Db.example.com").with_port(99_999, None));
    let words = batch(catalog.replace(vec![odd], now));
    assert_eq!(words[1], "service odd.test http=80/Http DNSLB");
    assert_eq!(words[2], "endpoints odd.test 10.0.0.1:80>http");
    let problems = catalog.problems();
    assert_eq!(problems.total, 5, "{problems:?}");
}

#[test]
fn ports_have_names_and_protocols() {
    let options = CatalogOptions { protocol: Protocol::Tcp, ..CatalogOptions::default() };
    let mut catalog = Catalog::new(shard(), options);
    let port = |number, name: Option<&str>, protocol: Option<&str>| CatalogPort {
        number,
        name: name.map(str::to_owned),
        protocol: protocol.map(str::to_owned),
    };
    let mut given = service("p", &[]);
    given.ports = vec![
        port(1, Some("http-web"), None),
        port(2, None, Some("gRPC")),
        port(3, None, Some("unheard")),
        port(4, Some("http-web"), Some("tcp")),
        port(3306, None, None),
        port(70_000, None, None),
    ];
    let words = batch(catalog.replace(vec![given], Instant::now()));
    assert_eq!(
        words[1],
        "service p.test http-web=1/Http,grpc=2/Grpc,tcp=3/Tcp,http-web-4=4/Tcp,tcp-3306=3306/Tcp ClientSideLB"
    );
}

#[test]
fn tcp_and_udp_ports_of_one_number_are_two_ports() {
    let port = |name: &str, protocol: &str| CatalogPort {
        number: 53,
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
    };
    for ports in [[port("dns-udp", "udp"), port("dns", "tcp")], [port("dns", "tcp"), port("dns-udp", "udp")]]
    {
        let mut catalog = catalog();
        let mut given = service("p", &[]);
        given.ports = ports.to_vec();
        let at = |id: &str, protocol| CatalogInstance::new(id, id).with_port(53, protocol);
        given.instances =
            vec![at("10.0.0.1", Some("udp")), at("10.0.0.2", Some("tcp")), at("10.0.0.3", None)];
        let words = batch(catalog.replace(vec![given], Instant::now()));
        assert_eq!(words[1], "service p.test dns=53/Tcp,dns-udp=53/Udp ClientSideLB");
        assert_eq!(words[2], "endpoints p.test 10.0.0.1:53>dns-udp,10.0.0.2:53>dns,10.0.0.3:53>dns");
    }
}

#[test]
fn one_port_can_stand_for_all() {
    let options = CatalogOptions { port: Some(80), ..CatalogOptions::default() };
    let mut catalog = Catalog::new(shard(), options);
    let mut given = service("a", &[("10.0.0.1", 31_001), ("10.0.0.2", 31_002)]);
    let declared = |number| CatalogPort { number, name: Some("http".into()), protocol: Some("http".into()) };
    given.ports = vec![declared(31_001), declared(9_000)];
    let words = batch(catalog.replace(vec![given.clone()], Instant::now()));
    assert_eq!(words[1], "service a.test http=80/Http,http-9000=9000/Http ClientSideLB");
    assert_eq!(words[2], "endpoints a.test 10.0.0.1:31001>http,10.0.0.2:31002>http");
    given.instances.clear();
    given.ports.truncate(1);
    let words = batch(catalog.replace(vec![given], Instant::now() + Duration::from_secs(60)));
    assert_eq!(
        words[0], "service a.test http=80/Http ClientSideLB",
        "without an instance the declared port is the one"
    );
}

#[test]
fn a_mass_loss_waits_for_a_second_answer() {
    let (mut catalog, now) = (catalog(), Instant::now());
    let all = || (0..10).map(|n| service(&format!("s{n}"), &[("10.0.0.1", 80)])).collect::<Vec<_>>();
    batch(catalog.replace(all(), now));
    let later = |seconds| now + Duration::from_secs(seconds);
    assert_eq!(batch(catalog.replace(vec![], later(60))), ["held 10 to 0"]);
    assert!(catalog.held().is_some());
    assert_eq!(batch(catalog.replace(vec![], later(61))), ["held 10 to 0"]);
    assert_eq!(batch(catalog.replace(all(), later(62))), ["unchanged"]);
    assert_eq!(catalog.held(), None);
    assert_eq!(batch(catalog.replace(vec![], later(100))), ["held 10 to 0"]);
    assert_eq!(
        batch(catalog.replace(vec![], later(111))).len(),
        30,
        "ten services, endpoint lists and workloads"
    );
    let sick = |n: u32| {
        let mut service = service("sick", &[("10.0.0.1", 80), ("10.0.0.2", 80), ("10.0.0.3", 80)]);
        service.instances.iter_mut().take(n as usize).for_each(|i| i.health = HealthStatus::Unhealthy);
        vec![service]
    };
    batch(catalog.replace(sick(0), later(200)));
    assert_ne!(batch(catalog.replace(sick(2), later(300))), ["held 3 to 1"], "few are no mass loss");
    batch(catalog.replace(sick(0), later(400)));
    assert_eq!(batch(catalog.replace(sick(3), later(500))), ["held 3 to 0"], "unusable counts as lost");
}

#[test]
fn other_services_in_the_place_of_most_wait_for_a_second_answer() {
    let services = |names: std::ops::Range<u32>| -> Vec<_> {
        names.map(|n| service(&format!("s{n}"), &[("10.0.0.1", 80)])).collect()
    };
    let (mut catalog, now) = (catalog(), Instant::now());
    let later = |seconds| now + Duration::from_secs(seconds);
    batch(catalog.replace(services(0..10), now));
    assert_eq!(batch(catalog.replace(services(10..30), later(60))), ["held 10 to 0"]);
    assert_eq!(batch(catalog.replace(services(6..30), later(61))), ["held 10 to 4"]);
    assert_ne!(batch(catalog.replace(services(5..30), later(62))), ["held 10 to 5"]);
    assert_eq!(catalog.held(), None, "half is no mass loss");
}

#[test]
fn rolling_replacement_of_endpoints_is_no_loss() {
    let of = |addresses: std::ops::Range<u32>| {
        let addresses: Vec<String> = addresses.map(|n| format!("10.0.0.{n}")).collect();
        let instances: Vec<_> = addresses.iter().map(|address| (&**address, 80)).collect();
        vec![service("a", &instances), service("b", &instances)]
    };
    let (mut catalog, now) = (catalog(), Instant::now());
    batch(catalog.replace(of(0..10), now));
    assert!(!batch(catalog.replace(of(10..20), now + Duration::from_secs(60))).is_empty());
    assert_eq!(catalog.held(), None);
}

#[test]
fn second_mass_loss_waits_after_growth_by_partial_answers() {
    let all = || (0..10).map(|n| service(&format!("s{n}"), &[("10.0.0.1", 80)])).collect::<Vec<_>>();
    let (mut catalog, now) = (catalog(), Instant::now());
    batch(catalog.replace(all(), now));
    for hour in 1..4 {
        let at = now + Duration::from_secs(3_600 * hour);
        assert_eq!(batch(catalog.replace(vec![], at)), ["held 10 to 0"], "hour {hour}");
        assert_eq!(batch(catalog.replace(vec![], at + Duration::from_secs(10))).len(), 30);
        batch(catalog.apply(all(), vec![], at + Duration::from_secs(20)));
    }
}

/// What somebody who applies all batches has.
#[derive(Debug, Default, PartialEq)]
struct Applied(BTreeMap<String, String>);

impl Applied {
    fn take(&mut self, change: Change) {
        let Change::Batch(batch) = change else { return };
        if batch.is_complete() {
            self.0.clear();
        }
        for update in batch.into_updates() {
            let (key, value) = match update {
                RegistryUpdate::Services(key, list) => {
                    (format!("s {}", key.hostname), list.first().map(|s| format!("{s:?}")))
                }
                RegistryUpdate::Endpoints(key, list) => {
                    (format!("e {}", key.hostname), list.map(|list| format!("{list:?}")))
                }
                RegistryUpdate::Workload(key, workload) => {
                    (format!("w {key:?}"), workload.map(|w| format!("{w:?}")))
                }
                _ => continue,
            };
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }
}

fn any_service() -> impl Strategy<Value = CatalogService> {
    let instance = (0..4u8, 80..83u32, any::<bool>(), 0..3u8);
    (0..5u8, 0..4u8, proptest::collection::vec(instance, 0..4)).prop_map(|(id, host, instances)| {
        let mut service = CatalogService::new(format!("id{id}"), format!("host{host}"), "ns");
        if host == 3 {
            service.resolution = Resolution::DNSLB;
        }
        for (n, port, healthy, zone) in instances {
            let mut instance =
                CatalogInstance::new(format!("i{n}"), format!("10.0.0.{n}")).with_port(port, None);
            instance.health = if healthy { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
            instance.locality = Locality { zone: format!("z{zone}").into(), ..Locality::default() };
            service.instances.push(instance);
        }
        service
    })
}

proptest! {
    /// Whatever the history, what was sent adds up to what one full answer of the last state gives.
    #[test]
    fn changes_add_up_to_the_whole(history in proptest::collection::vec((any_service(), any::<bool>()), 1..30)) {
        let now = Instant::now();
        let options = CatalogOptions { guard: GuardSettings::off(), ..CatalogOptions::default() };
        let mut catalog = Catalog::new(shard(), options.clone());
        let (mut applied, mut last) = (Applied::default(), BTreeMap::new());
        applied.take(catalog.replace(vec![], now));
        for (service, is_removed) in history {
            if is_removed {
                last.remove(&service.id);
                applied.take(catalog.apply(vec![], vec![service.id], now));
            } else {
                last.insert(service.id.clone(), service.clone());
                applied.take(catalog.apply(vec![service], vec![], now));
            }
        }
        let mut fresh = Catalog::new(shard(), options);
        let mut whole = Applied::default();
        whole.take(fresh.replace(last.into_values().collect(), now));
        prop_assert_eq!(applied, whole);
        prop_assert_eq!(catalog.problems(), fresh.problems());
    }
}

#[test]
fn what_is_wrong_beside_services_is_shown_until_it_is_good() {
    let mut catalog = catalog();
    let key: Arc<str> = "/services/web/1".into();
    catalog.note(&key, Some("it is no address".into()));
    catalog.note(&key, Some("it is no port".into()));
    let _ = catalog.replace(vec![service("a", &[("10.0.0.1", 80)])], Instant::now());
    let problems = catalog.problems();
    assert_eq!((problems.total, problems.first), (1, vec!["it is no port".into()]));
    catalog.note(&key, None);
    assert_eq!(catalog.problems(), CatalogProblems::default());
}
