use super::*;
use crate::history::{Began, History, Published};
use pilotfish_config::networking::{Destination, HttpRoute, HttpRouteDestination, VirtualService};
use pilotfish_explain::Subject;
use pilotfish_model::{
    Endpoint, HealthStatus, Hostname, Kind, Object, ObjectKey, ObjectMeta, Origin, Port, Protocol, Provider,
    Service, ServiceKey, ShardKey, Update, Workload, World, WorldWriter,
};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::{Proxy, Translator};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::SystemTime;

/// One change of a small world.
#[derive(Clone, Debug)]
enum Step {
    Service { host: usize, port: u32 },
    RemoveService(usize),
    Endpoints { host: usize, count: u8 },
    Route { host: usize, timeout: i64 },
    RemoveRoute(usize),
    Secret(usize),
}

const HOSTS: [&str; 3] = ["a.example.com", "b.example.com", "c.example.com"];

fn step() -> impl Strategy<Value = Step> {
    let host = 0..HOSTS.len();
    prop_oneof![
        (host.clone(), 80..83_u32).prop_map(|(host, port)| Step::Service { host, port }),
        host.clone().prop_map(Step::RemoveService),
        (host.clone(), 0..4_u8).prop_map(|(host, count)| Step::Endpoints { host, count }),
        (host.clone(), 1..5_i64).prop_map(|(host, timeout)| Step::Route { host, timeout }),
        host.clone().prop_map(Step::RemoveRoute),
        host.prop_map(Step::Secret),
    ]
}

fn shard() -> ShardKey {
    ShardKey::new(Provider::new(7, "invented"), "east").with_instance("one")
}

fn key(host: usize) -> ServiceKey {
    ServiceKey { hostname: Hostname::parse(HOSTS[host]).unwrap(), namespace: "shop".into() }
}

fn port(number: u32) -> Port {
    Port { number, name: "http".into(), protocol: Protocol::Http, target_port: None }
}

fn object_key(kind: Kind, host: usize) -> ObjectKey {
    ObjectKey::new(kind, "shop", HOSTS[host])
}

fn update(step: &Step) -> Update {
    match step {
        Step::Service { host, port: number } => {
            let origin = Origin::registered(shard(), HOSTS[*host]);
            let key = key(*host);
            let service = Service::registered(
                shard().provider,
                key.hostname.clone(),
                "shop",
                vec![port(*number)],
                origin,
            );
            Update::Services(key, Arc::from([Arc::new(service)]))
        }
        Step::RemoveService(host) => Update::Services(key(*host), Arc::default()),
        Step::Endpoints { host, count } => {
            let workload = |n: u8| {
                Workload::registered(&shard(), "shop", format!("w{n}"), vec![format!("10.0.0.{n}").into()])
            };
            let endpoint = |n: u8| {
                let endpoint = workload(n).endpoint(&port(80), 8080);
                Arc::new(Endpoint { health: HealthStatus::Healthy, ..endpoint })
            };
            Update::Endpoints(key(*host), shard(), (0..*count).map(endpoint).collect())
        }
        Step::Route { host, timeout } => {
            let destination = Destination { host: HOSTS[*host].into(), ..Destination::default() };
            let route = vec![HttpRouteDestination {
                destination: Some(destination),
                ..HttpRouteDestination::default()
            }];
            let timeout = pilotfish_config::Duration::parse(&format!("{timeout}s")).ok();
            let http = vec![HttpRoute { route, timeout, ..HttpRoute::default() }];
            let spec = VirtualService { hosts: vec![HOSTS[*host].into()], http, ..VirtualService::default() };
            Update::Object(Object::new(ObjectMeta::of(object_key(Kind::VirtualService, *host)), spec))
        }
        Step::RemoveRoute(host) => Update::RemoveObject(object_key(Kind::VirtualService, *host)),
        Step::Secret(host) => {
            let data = [("password".to_owned(), pilotfish_config::Base64(b"open sesame".to_vec()))];
            let spec = pilotfish_config::kubernetes::Secret { data: data.into(), ..Default::default() };
            Update::Object(Object::new(ObjectMeta::of(object_key(Kind::Secret, *host)), spec))
        }
    }
}

/// A history in which one step was published after the other.
fn history(steps: &[Step]) -> History {
    let (history, mut writer, mut before) =
        (History::default(), WorldWriter::new(), Arc::new(World::default()));
    let first = [Step::Service { host: 0, port: 80 }, Step::Endpoints { host: 0, count: 2 }];
    first.iter().for_each(|step| writer.apply(update(step)));
    for step in [None].into_iter().chain(steps.iter().map(Some)) {
        step.into_iter().for_each(|step| writer.apply(update(step)));
        let Some((world, changes)) = writer.publish() else { continue };
        let (revision, at) = (world.revision(), SystemTime::now());
        let before_that = Began { received: at, computing: at };
        history.note(Published {
            revision,
            at,
            before_that,
            before: std::mem::replace(&mut before, world.clone()),
            world,
            changes,
            concerned: Vec::new(),
        });
    }
    history
}

fn sidecar(name: &str) -> Recordable {
    let id = format!("sidecar~10.0.0.9~{name}.shop~shop.svc.cluster.local");
    let node = Node { id, ..Node::default() };
    let proxy = Proxy::from_node(&node).unwrap();
    let subject = Subject { name: format!("{name}.shop"), proxy, names: Default::default() };
    Recordable { subject, node: Arc::new(node), identities: Vec::new() }
}

fn record(history: &History, from: Option<u64>) -> String {
    let proxies = vec![sidecar("web"), sidecar("cart")];
    let record = write(history, &Translator::new(), proxies, from).unwrap();
    String::from_utf8(record).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_ends_in_the_hashes_of_the_record(steps in prop::collection::vec(step(), 0..12), from in 0..12_u64) {
        let history = history(&steps);
        let (oldest, newest) = history.span();
        let from = oldest + from % (newest - oldest + 1);
        let record = record(&history, Some(from));
        prop_assert!(!record.contains("sesame") && !record.contains("b3BlbiBz"), "{}", record);
        let replayed = replay(record.as_bytes()).unwrap();
        prop_assert!(replayed.same && replayed.unlike_then.is_empty(), "{:?}", replayed);
        prop_assert_eq!((replayed.from, replayed.to, replayed.proxies), (from, newest, 2));
        prop_assert_eq!(replayed.publications as u64, newest - from + 1);
    }
}

#[test]
fn a_replay_that_differs_says_where() {
    let history = history(&[Step::Route { host: 0, timeout: 3 }]);
    let record = record(&history, None);
    assert!(record.contains("\"3s\""), "{record}");
    let replayed = replay(record.replace("\"3s\"", "\"4s\"").as_bytes()).unwrap();
    let differ: Vec<_> = replayed.differ.iter().map(|one| (&*one.proxy, &*one.resource_type)).collect();
    assert_eq!(differ, [("cart.shop", "rds"), ("web.shop", "rds")]);
    assert!(
        replayed.differ.iter().all(|one| one.replayed == one.from_scratch && one.replayed != one.recorded)
    );
}

#[test]
fn what_is_no_record_is_said_in_one_line() {
    let record = record(&history(&[]), None);
    let cut: String = record.lines().take(3).map(|line| format!("{line}\n")).collect();
    let old = record.replacen("\"format\":2", "\"format\":99", 1);
    for (text, message) in [
        ("", "the record has no end: it is cut off"),
        (&cut, "the record has no end: it is cut off"),
        ("{}", "this is no record: line 1: "),
        ("{\"proxy\":{\"name\":\"a\",\"node\":\"\"}}", "line 1: a record begins with another line"),
        (&old, "the record has format 99, of version "),
        (&record.replace("\"node\":\"", "\"node\":\"zz"), "line 2: no hexadecimal digits"),
    ] {
        let error = format!("{:#}", replay(text.as_bytes()).unwrap_err());
        assert!(error.starts_with(message), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_revision_that_is_not_kept_has_no_record() {
    let error = write(&history(&[]), &Translator::new(), Vec::new(), Some(9)).unwrap_err();
    assert_eq!(error.error, "revision 9 is not known: 1 is in force");
}

/// Every kind of object, service, endpoint and workload that the recorded cases have.
#[test]
fn what_a_record_says_is_what_was_there() {
    let cases = pilotfish_testkit::cases::Case::all(std::path::Path::new("../../oracle/cases")).unwrap();
    assert!(cases.len() > 50);
    let mut left_out = 0;
    for case in cases {
        let world = pilotfish_registry::testing::world_from_objects(case.objects().unwrap().objects);
        let mut there = WorldWriter::new();
        let mut back = WorldWriter::new();
        for update in World::default().updates_to(&world, &world.facts()) {
            // Registries read it, with its status; the world of a control plane has what they make of it.
            if matches!(&update, Update::Object(object) if object.key().kind == Kind::WorkloadEntry) {
                continue;
            }
            let Ok(recorded) = lines::RecordedUpdate::of(update.clone()) else {
                left_out += 1;
                continue;
            };
            there.apply(update);
            let text = serde_json::to_string(&recorded).unwrap();
            let read: lines::RecordedUpdate =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}: {text}", case.name));
            back.apply(read.into_update().unwrap_or_else(|error| panic!("{}: {error}: {text}", case.name)));
        }
        let (one, other) = (there.world(), back.world());
        let mut all = one.facts();
        all.merge(other.facts());
        let mut writer = WorldWriter::at(one);
        one.updates_to(other, &all).into_iter().for_each(|update| writer.apply(update));
        let differs = writer.publish().map(|(_, changes)| changes);
        assert!(differs.is_none(), "{}: {differs:?}", case.name);
    }
    assert!(left_out < 60, "{left_out} of all are Secrets and closed objects");
}

#[test]
fn values_of_variables_of_wasm_plugins_are_redacted() {
    use pilotfish_config::extensions::{EnvVar, TrafficExtension, VmConfig, WasmPlugin};
    let variable =
        |name: &str, value: &str| EnvVar { name: name.into(), value: value.into(), ..EnvVar::default() };
    let env = vec![variable("TOKEN", "open sesame"), variable("EMPTY", "")];
    let plugin =
        WasmPlugin { url: "oci://a/b".into(), vm_config: Some(VmConfig { env }), ..WasmPlugin::default() };
    let extension = TrafficExtension::from(&plugin);
    let meta = |kind| ObjectMeta::of(object_key(kind, 0));
    for object in
        [Object::new(meta(Kind::WasmPlugin), plugin), Object::new(meta(Kind::TrafficExtension), extension)]
    {
        let recorded = lines::RecordedUpdate::of(lines::redacted(Update::Object(object))).unwrap();
        let text = serde_json::to_string(&recorded).unwrap();
        assert!(text.contains("oci://a/b") && text.contains("TOKEN") && text.contains("redacted"), "{text}");
        assert!(!text.contains("open sesame"), "{text}");
    }
    let route = update(&Step::Route { host: 0, timeout: 3 });
    assert_eq!(format!("{:?}", lines::redacted(route.clone())), format!("{route:?}"));
}
