mod delays;

use super::*;
use parking_lot::Mutex;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Hostname, KindSpec, Object, ObjectKey, ObjectMeta, Origin, Provider, Service};
use pilotfish_registry::{AggregateSettings, Applied, Input, RegistryBatch, RegistrySettings, RegistryTable};
use pilotfish_xds::{NoRecorder, StreamLimits};
use std::time::Duration;

const FEED: &str = "feed";
const FILES: &str = "files";

/// Registries of remote clusters beside both registries that read objects.
fn remote() -> RemoteRegistries {
    let names = ["Kubernetes".to_owned(), "ServiceEntry".to_owned()];
    RemoteRegistries::new(FEED.into(), &RegistryTable::default(), &names, &RegistrySettings::default())
        .unwrap()
}

/// Notes what it observes.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl ControlObserver for Notes {
    fn received(&self, what: Inbound) {
        self.note(format!("received {}", what.as_str()));
    }

    fn applied(&self, kind: Kind, what: Applied) {
        let Applied { added, updated, deleted } = what;
        self.note(format!("{} +{added} ~{updated} -{deleted}", kind.name()));
    }

    fn rejected_objects(&self, count: i64) {
        self.note(format!("rejected {count}"));
    }

    fn debounced(&self, _since: Instant) {
        self.note("debounced");
    }

    fn published(&self, why: Trigger) {
        self.note(format!("published {}", why.as_str()));
    }

    fn computed(&self, _since: Instant) {}

    fn remote_clusters(&self, count: usize) {
        self.note(format!("{count} remote clusters"));
    }

    fn remote_cluster_timed_out(&self) {
        self.note("timed out");
    }

    fn unresolved_gateways(&self, count: usize) {
        self.note(format!("{count} unresolved gateways"));
    }

    fn remote_cluster_removed(&self, cluster: &str) {
        self.note(format!("removed {cluster}"));
    }
}

/// A control loop on a clock of its own.
struct Case {
    control: Control,
    shared: Arc<Shared>,
    resources: Arc<Resources>,
    notes: Arc<Notes>,
    /// The names that are to be looked up.
    asked: mpsc::UnboundedReceiver<Arc<str>>,
    now: Now,
}

impl Case {
    fn new() -> Self {
        Self::with(|_| ())
    }

    /// The same with more registries.
    fn with(add: impl FnOnce(&mut AggregateController)) -> Self {
        let settings = RegistrySettings::default();
        let mut controller = AggregateController::new(AggregateSettings {
            config_feed: FEED.into(),
            ..AggregateSettings::default()
        });
        add(&mut controller);
        controller.add_source(FEED, FILES);
        for (provider, registry) in RegistryTable::default().iter() {
            if let Input::Objects(new) = registry.input {
                controller.add_registry(new(provider, settings.clone()), FEED);
            }
        }
        let translator = Arc::new(Translator::new());
        let resources = Arc::new(Resources::new(translator.clone(), false, Vec::new()));
        let fanout = Fanout::new(resources.clone(), Arc::new(NoRecorder), StreamLimits::default());
        let (shared, notes) = (Arc::new(Shared::default()), Arc::new(Notes::default()));
        let remote = remote();
        let (lookups, asked) = mpsc::unbounded_channel();
        let (resources_too, shared_too) = (resources.clone(), shared.clone());
        let outputs = Outputs {
            translator,
            resources: resources_too,
            fanout,
            shared: shared_too,
            lookups: Some(lookups),
        };
        let control = Control::new(controller, remote, Windows::default(), outputs, notes.clone());
        Self { control, shared, resources, notes, asked, now: Now::read() }
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now.instant += Duration::from_millis(ms);
        self
    }

    fn send(&mut self, events: Vec<SourceEvent>) -> Option<Duration> {
        let batch = SourceBatch { events, problems: None };
        let message = ControlMessage::Batch { feed: FEED.into(), source: FILES.into(), batch };
        let next = self.control.step(Some(message), self.now);
        next.map(|next| next.saturating_duration_since(self.now.instant))
    }

    fn send_live(&mut self, input: LiveInput) {
        self.control.step(Some(ControlMessage::Registry { shard: live(), input }), self.now);
    }

    /// How the live registry is.
    fn live(&self) -> pilotfish_api::Registry {
        let all = self.shared.registries();
        all.iter().find(|registry| registry.name == live().to_string()).unwrap().clone()
    }

    /// Answers the lookup of a name, which must have been asked for.
    fn answer(&mut self, result: LookupResult) {
        let name = self.asked.try_recv().expect("a name is asked for");
        self.control.step(Some(ControlMessage::GatewayName { name, result }), self.now);
    }

    fn gateways(&self) -> Vec<String> {
        self.shared.world().network_gateways().iter().map(|gateway| gateway.address.to_string()).collect()
    }

    fn wait(&mut self) -> Option<Duration> {
        let next = self.control.step(None, self.now);
        next.map(|next| next.saturating_duration_since(self.now.instant))
    }
}

fn live() -> ShardKey {
    ShardKey::new(Provider::new(2, "test"), "c").with_instance("one")
}

/// All that the live registry has: services of these hosts.
fn complete(hosts: &[&str]) -> LiveInput {
    let mut batch = RegistryBatch::complete();
    for host in hosts {
        let origin = Origin::registered(live(), *host);
        let hostname = Hostname::parse(host).unwrap();
        batch.set_service(Service::registered(live().provider, hostname, "shop", Vec::new(), origin));
    }
    LiveInput { batch: Some(batch), synced: true, failure: None }
}

fn failed(reason: &str) -> LiveInput {
    LiveInput { failure: Some(reason.into()), ..LiveInput::default() }
}

fn entry(name: &str) -> SourceEvent {
    let key = ObjectKey::new(ServiceEntry::KIND, "shop", name);
    let spec: ServiceEntry = serde_json::from_value(serde_json::json!({
        "hosts": [format!("{name}.example.com")], "addresses": ["10.1.1.1"], "resolution": "STATIC",
        "ports": [{"name": "http", "number": 80, "protocol": "HTTP"}], "endpoints": [{"address": "10.2.1.1"}],
    }))
    .unwrap();
    SourceEvent::Apply(Object::new(ObjectMeta::of(key), spec))
}

#[test]
fn nothing_is_published_before_the_first_complete_list() {
    let mut case = Case::new();
    assert_eq!(case.send(vec![entry("a")]), None);
    assert_eq!(case.after(1000).wait(), None);
    assert!(!case.resources.is_ready());
    assert_eq!(case.shared.world().revision(), 0);
    assert!(!case.shared.waiting_for().is_empty());
    case.send(vec![SourceEvent::Listed]);
    assert!(case.resources.is_ready());
    assert_eq!(case.shared.world().service_count(), 1);
    assert!(case.shared.waiting_for().is_empty());
    assert!(case.shared.registries().iter().all(|registry| registry.synced));
    assert_eq!(
        case.notes.take(),
        ["received svc", "ServiceEntry +1 ~0 -0", "received source", "published config"]
    );
}

#[test]
fn a_step_returns_when_the_next_one_is_due() {
    let mut case = Case::new();
    assert_eq!(case.send(vec![entry("a"), SourceEvent::Listed]), None);
    assert_eq!(case.after(1000).send(vec![entry("b")]), None, "a lone change goes at once");
    assert_eq!(case.shared.world().service_count(), 2);
    // The rest of a burst waits for its pause: first the endpoints, then the service.
    assert_eq!(case.after(1).send(vec![entry("c")]), Some(Duration::from_millis(3)));
    assert_eq!(case.after(5).wait(), Some(Duration::from_millis(15)));
    assert_eq!(case.shared.world().service_count(), 2);
    assert_eq!(case.after(15).wait(), None);
    assert_eq!(case.shared.world().service_count(), 3);
}

#[test]
fn counts_of_registries_are_those_of_the_published_world() {
    let mut case = Case::new();
    let services =
        |case: &Case| case.shared.registries().iter().map(|registry| registry.services).collect::<Vec<_>>();
    case.send(vec![entry("a"), SourceEvent::Listed]);
    assert_eq!(services(&case), [0, 1]);
    case.after(1).send(vec![entry("b")]);
    let before = case.shared.registry_states();
    assert_eq!(services(&case), [0, 2]);
    case.after(1).send(vec![entry("c")]);
    assert!(Arc::ptr_eq(&before, &case.shared.registry_states()), "they are not made for every message");
    case.after(20).wait();
    assert_eq!(services(&case), [0, 3]);
}

#[test]
fn a_source_that_fails_shows_at_once() {
    let mut case = Case::new();
    case.send(vec![entry("a"), SourceEvent::Listed]);
    let failed = SourceEvent::Failed { at: case.now.time, reason: "no such folder".into() };
    case.after(1000).send(vec![failed]);
    let failing = case.shared.registries().iter().filter(|registry| registry.failure.is_some()).count();
    assert_eq!(failing, 2);
    assert_eq!(case.shared.world().service_count(), 1, "what was read stays");
    case.send(vec![SourceEvent::Recovered]);
    assert!(case.shared.registries().iter().all(|registry| registry.failure.is_none()));
}

#[test]
fn an_object_is_not_a_mesh_wide_setting() {
    let mut case = Case::new();
    let mesh = Object::new(
        ObjectMeta::of(pilotfish_config::MeshFile::Config.key()),
        pilotfish_config::mesh::MeshConfig::default(),
    );
    case.send(vec![SourceEvent::Apply(mesh), SourceEvent::Listed]);
    assert!(case.resources.is_ready() && !case.control.has_objects);
    case.send(vec![entry("a")]);
    assert!(case.control.has_objects);
}

#[test]
fn objects_are_added_updated_and_deleted() {
    let mut case = Case::new();
    let kind = Kind::ServiceEntry;
    case.send(vec![entry("a"), entry("b"), SourceEvent::Listed, entry("a")]);
    case.send(vec![SourceEvent::Delete(ObjectKey::new(kind, "n", "no such"))]);
    case.send(vec![SourceEvent::ListBegan(kind), entry("b"), SourceEvent::ListEnded(kind)]);
    let notes = case.notes.take();
    let counted: Vec<&String> = notes.iter().filter(|note| note.starts_with("ServiceEntry")).collect();
    let of = |counts: &str| format!("ServiceEntry {counts}");
    let expected = ["+1 ~0 -0", "+1 ~0 -0", "+0 ~1 -0", "+0 ~0 -0", "+0 ~1 -0", "+0 ~0 -1"].map(of);
    assert_eq!(counted, expected.iter().collect::<Vec<_>>());
}

#[test]
fn readiness_waits_for_a_live_registry_until_its_timeout() {
    let mut case = Case::with(|controller| controller.add_live(live()));
    case.send(vec![entry("a"), SourceEvent::Listed]);
    assert_eq!(*case.shared.waiting_for(), ["test/c/one"]);
    case.send_live(failed("connection refused"));
    assert_eq!(*case.shared.waiting_for(), ["test/c/one (connection refused)"]);
    assert!(!case.resources.is_ready() && case.live().failing_since.is_some());
    case.notes.take();

    case.control.step(Some(ControlMessage::RegistryTimeout(live())), case.now);
    assert!(case.resources.is_ready() && case.shared.waiting_for().is_empty());
    assert!(case.live().given_up && !case.live().synced);
    assert_eq!(case.shared.world().service_count(), 1);
    assert_eq!(case.notes.take(), ["published config"]);

    // It comes late, and counts.
    case.after(1000).send_live(complete(&["late.example.com"]));
    assert_eq!(case.shared.world().service_count(), 2);
    let live = case.live();
    assert!(live.synced && !live.given_up && live.failure.is_none(), "{live:?}");
    assert_eq!(live.services, 1);
    assert_eq!(case.notes.take(), ["received registry", "debounced", "published service"]);
}

#[test]
fn a_live_registry_that_fails_right_after_its_first_list_is_in_sync() {
    let mut case = Case::with(|controller| controller.add_live(live()));
    case.send(vec![SourceEvent::Listed]);
    assert!(!case.resources.is_ready());
    case.send_live(LiveInput { failure: Some("connection reset".into()), ..complete(&["a.example.com"]) });
    assert!(case.resources.is_ready());
    assert_eq!(case.live().failure.as_deref(), Some("connection reset"));
    assert_eq!(case.shared.world().service_count(), 1);
    // A timeout that comes after the first list changes nothing.
    case.control.step(Some(ControlMessage::RegistryTimeout(live())), case.now);
    assert!(!case.live().given_up);
    case.after(1000).send_live(complete(&[]));
    assert_eq!((case.shared.world().service_count(), case.live().failure), (0, None));
}

/// What a live registry sends that has one gateway, at this address.
fn gateway(address: &str) -> LiveInput {
    let mut batch = RegistryBatch::complete();
    batch.set_gateways([NetworkGateway {
        network: "far".into(),
        cluster: "c".into(),
        address: address.into(),
        port: 15443,
        hbone_port: 0,
        service_account: "".into(),
    }]);
    LiveInput { batch: Some(batch), synced: true, failure: None }
}

#[test]
fn proxies_are_served_when_the_names_of_gateways_are_resolved() {
    let mut case = Case::with(|controller| controller.add_live(live()));
    case.send(vec![SourceEvent::Listed]);
    case.send_live(gateway("gw.example.com"));
    assert!(!case.resources.is_ready());
    case.answer(Ok(vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]));
    assert!(case.resources.is_ready());
    assert_eq!(case.gateways(), ["192.0.2.1", "192.0.2.2"]);

    // Half a minute later there is another address.
    assert_eq!(case.wait(), Some(Duration::from_secs(30)));
    assert!(case.asked.try_recv().is_err());
    case.after(30_000).wait();
    case.answer(Ok(vec![[192, 0, 2, 3].into()]));
    assert_eq!(case.gateways(), ["192.0.2.3"]);

    // A failure takes nothing away and shows.
    case.notes.take();
    case.after(30_000).wait();
    case.answer(Err("no answer".into()));
    assert_eq!(case.gateways(), ["192.0.2.3"]);
    assert_eq!(case.shared.registry_problems().len(), 1, "{:?}", case.shared.registry_problems());
    assert_eq!(case.notes.take(), ["1 unresolved gateways"]);

    // Another name: the address of the one before is gone with it.
    case.after(1_000).send_live(gateway("other.example.com"));
    assert_eq!(case.gateways(), ["other.example.com"]);
    assert!(case.shared.registry_problems().is_empty());
    while case.asked.try_recv().is_ok_and(|name| &*name != "other.example.com") {}
    case.after(1_000).send_live(gateway("192.0.2.9"));
    assert_eq!(case.gateways(), ["192.0.2.9"]);
}

#[test]
fn readiness_does_not_wait_for_ever_for_a_gateway() {
    let mut case = Case::with(|controller| controller.add_live(live()));
    case.send_live(gateway("gw.example.com"));
    // Nothing is lost while the lists are not complete, and nobody spins.
    assert_eq!(case.wait(), Some(Duration::from_secs(5)));
    assert_eq!(case.after(5_000).wait(), None);
    case.send(vec![SourceEvent::Listed]);
    assert!(case.resources.is_ready());
    assert_eq!(case.gateways(), ["gw.example.com"]);
    case.answer(Ok(vec![[192, 0, 2, 1].into()]));
    assert_eq!(case.gateways(), ["192.0.2.1"]);
}

#[test]
fn names_of_load_balancers_and_of_mesh_networks_are_resolved() {
    let service = "{apiVersion: v1, kind: Service, \
        metadata: {name: gw, namespace: edge, labels: {topology.istio.io/network: far}}, \
        spec: {type: LoadBalancer, clusterIP: 10.0.0.9, ports: [{name: tls, port: 15443}]}, \
        status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}}";
    let networks = "networks: {near: {endpoints: [{fromCidr: 10.9.0.0/16}], \
        gateways: [{address: mesh.example.com, port: 15443}]}}";
    let limits = pilotfish_config::Limits::default();
    let file = pilotfish_config::read("gw.yaml", service.as_bytes(), &limits);
    let which = pilotfish_config::MeshFile::Networks;
    let mesh = pilotfish_config::read_mesh_file(which, "networks.yaml", networks.as_bytes(), &limits);
    assert!(file.rejected.is_empty() && mesh.rejected.is_empty(), "{file:?} {mesh:?}");
    let objects = file.objects.into_iter().chain(mesh.objects);
    let events = objects.map(|read| SourceEvent::Apply(read.object)).chain([SourceEvent::Listed]);
    let mut case = Case::new();
    case.send(events.collect());
    assert!(!case.resources.is_ready());
    case.answer(Ok(vec![[192, 0, 2, 1].into()]));
    assert!(!case.resources.is_ready(), "the other one is not answered yet");
    case.answer(Ok(vec![[192, 0, 2, 2].into()]));
    assert!(case.resources.is_ready());
    let gateways = case.shared.world().network_gateways().clone();
    let shown = gateways.iter().map(|gateway| format!("{} {}", gateway.network, gateway.address));
    assert_eq!(shown.collect::<Vec<_>>(), ["far 192.0.2.1", "near 192.0.2.2"]);
}

#[test]
fn a_delegate_that_is_too_much_under_another_object_is_a_problem() {
    use pilotfish_config::networking::{Delegate, HttpRoute, MAX_CONDITIONS, VirtualService};
    let apply = |name: &str, spec: VirtualService| {
        let key = ObjectKey::new(Kind::VirtualService, "shop", name);
        SourceEvent::Apply(Object::new(ObjectMeta::of(key), spec))
    };
    let leaves =
        |count| VirtualService { http: vec![HttpRoute::default(); count], ..VirtualService::default() };
    let delegate = Some(Delegate { name: "leaf".into(), namespace: String::new() });
    let http = vec![HttpRoute { delegate, ..HttpRoute::default() }; 2];
    let root = VirtualService { hosts: vec!["web".into()], http, ..VirtualService::default() };
    let mut case = Case::new();
    case.send(vec![apply("root", root), apply("leaf", leaves(MAX_CONDITIONS / 2 + 1)), SourceEvent::Listed]);
    let problems: Vec<_> = case.shared.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1);
    let (names, root) = ("translation: VirtualService shop/leaf: spec.http: ", "VirtualService shop/root");
    assert!(problems[0].starts_with(names) && problems[0].contains(root), "{problems:?}");
    assert_eq!(case.shared.rejected(), 1);
    case.after(1_000).send(vec![apply("leaf", leaves(2))]);
    case.after(1_000).wait();
    assert!(case.shared.problems().is_empty());
}

#[test]
fn what_was_read_is_told_when_all_that_was_read_before_is_published() {
    let mut case = Case::new();
    case.send(vec![entry("a"), SourceEvent::Listed]);
    let ask = |case: &mut Case, name: &str| {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let key = ObjectKey::new(ServiceEntry::KIND, "shop", name);
        case.control.step(Some(ControlMessage::Read { key, answer }), case.now);
        answered
    };
    let known = ask(&mut case, "a").try_recv().expect("nothing waits");
    assert!(matches!(known, ReadObject::Known(meta) if &*meta.key.name == "a"));
    // The second of two changes waits for more to come.
    case.after(500).send(vec![entry("b")]);
    case.after(1).send(vec![entry("c")]);
    let revision = case.shared.world().revision();
    let answered = ask(&mut case, "c");
    assert!(answered.try_recv().is_err(), "it is read and not published");
    case.after(1).send(vec![entry("d")]);
    assert!(answered.try_recv().is_err());
    case.after(200).wait();
    assert!(case.shared.world().revision() > revision);
    assert!(matches!(answered.try_recv().unwrap(), ReadObject::Known(_)));
    let unknown = ask(&mut case, "z").try_recv().unwrap();
    assert!(matches!(unknown, ReadObject::Unknown(near) if near.len() == 4), "the others are offered");
}

#[test]
fn before_the_first_lists_are_complete_nothing_is_told_of_objects() {
    let mut case = Case::new();
    case.send(vec![entry("a")]);
    let (answer, answered) = std::sync::mpsc::sync_channel(1);
    let key = ObjectKey::new(ServiceEntry::KIND, "shop", "a");
    case.control.step(Some(ControlMessage::Read { key, answer }), case.now);
    assert!(answered.try_recv().is_err());
    case.send(vec![SourceEvent::Listed]);
    assert!(matches!(answered.try_recv().unwrap(), ReadObject::Known(_)));
}

#[test]
fn questions_that_wait_are_limited_as_the_page_says() {
    let page = include_str!("../../../../docs/limits.md");
    assert!(page.contains(&format!("that wait until what was read is published | {QUESTIONS}; 5 s |")));
    let mut case = Case::new();
    let key = ObjectKey::new(ServiceEntry::KIND, "shop", "a");
    let mut ask = || {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        case.control.step(Some(ControlMessage::Read { key: key.clone(), answer }), case.now);
        answered.try_recv()
    };
    // Nothing is listed yet.
    let waits = std::sync::mpsc::TryRecvError::Empty;
    let kept: Vec<_> = (0..QUESTIONS).map(|_| ask()).collect();
    assert!(kept.iter().all(|answer| *answer == Err(waits)));
    assert_eq!(ask(), Err(std::sync::mpsc::TryRecvError::Disconnected), "one more has no answer at once");
}

/// A ServiceEntry that makes so many services with two ports and so many endpoints each.
fn multiplied(namespace: &str, name: &str, hosts: usize, endpoints: usize) -> SourceEvent {
    let hosts = (0..hosts).map(|n| format!("h{n}.{name}.{namespace}.example.com")).collect();
    let port = |number| pilotfish_config::networking::ServicePort {
        number,
        name: format!("tcp-{number}"),
        protocol: "TCP".to_owned(),
        ..Default::default()
    };
    let endpoint = |n: usize| pilotfish_config::networking::WorkloadEntry {
        address: format!("10.0.{}.{}", n / 250, n % 250),
        ..Default::default()
    };
    let spec = ServiceEntry {
        hosts,
        ports: vec![port(1), port(2)],
        resolution: pilotfish_config::networking::Resolution::Static,
        endpoints: (0..endpoints).map(endpoint).collect(),
        ..ServiceEntry::default()
    };
    SourceEvent::Apply(Object::new(ObjectMeta::of(ObjectKey::new(ServiceEntry::KIND, namespace, name)), spec))
}

#[test]
fn costly_changes_of_a_namespace_delay_another_one_by_a_slice() {
    let mut case = Case::new();
    case.send(vec![SourceEvent::Listed]);
    let count = |case: &Case, namespace: &str| {
        case.shared.world().services().filter(|(key, _)| key.namespace == namespace).count()
    };
    let costly: Vec<_> = (0..20).map(|n| multiplied("costly", &format!("e{n:02}"), 600, 4)).collect();
    let next = case.after(500).send(costly);
    assert_eq!(next, Some(Duration::ZERO), "there is more to do at once");
    assert_eq!(count(&case, "costly"), 600, "one object, and it is whole");
    case.after(1).send(vec![multiplied("calm", "web", 1, 1)]);
    assert_eq!(count(&case, "calm"), 1);
    let mut seen = Vec::new();
    for _ in 0..80 {
        case.after(5).wait();
        let world = case.shared.world();
        for (key, _) in world.services() {
            let endpoints = world.endpoints_of(key).map_or(0, |all| all.iter().count());
            assert!(endpoints == 8 || key.namespace == "calm", "{key} is whole: {endpoints}");
        }
        seen.push(count(&case, "costly"));
    }
    assert_eq!(seen.last(), Some(&12_000));
    seen.dedup();
    assert!(seen.len() > 4 && seen.iter().all(|count| count % 600 == 0), "{seen:?}");
    assert_eq!(case.wait(), None, "nothing is left");
}

#[test]
fn entry_that_changes_while_it_waits_is_applied_once_in_its_newest_version() {
    let mut case = Case::new();
    case.send(vec![SourceEvent::Listed]);
    case.after(500).send((0..9).map(|n| multiplied("costly", &format!("e{n}"), 600, 1)).collect());
    case.send(vec![multiplied("costly", "e8", 1, 1)]);
    let key = |n: usize| SourceEvent::Delete(ObjectKey::new(ServiceEntry::KIND, "costly", format!("e{n}")));
    case.send(vec![key(0), key(7)]);
    case.notes.take();
    for _ in 0..100 {
        case.after(20).wait();
    }
    assert_eq!(case.shared.world().service_count(), 6 * 600 + 1);
    // A fresh list is about all that the source sent before.
    case.after(500).send((0..9).map(|n| multiplied("costly", &format!("f{n}"), 600, 1)).collect());
    case.send(vec![SourceEvent::ListBegan(ServiceEntry::KIND), multiplied("costly", "g", 1, 1)]);
    case.send(vec![SourceEvent::ListEnded(ServiceEntry::KIND)]);
    for _ in 0..100 {
        case.after(20).wait();
    }
    assert_eq!(case.shared.world().service_count(), 1, "the list has one object");
}

#[test]
fn what_a_source_says_of_itself_takes_its_backlog_in_slices() {
    let mut case = Case::new();
    case.send(vec![SourceEvent::Listed]);
    let failed = SourceEvent::Failed { at: case.now.time, reason: "no such folder".into() };
    case.send(vec![failed]);
    let failing = |case: &Case| case.shared.registries().iter().any(|registry| registry.failure.is_some());
    let count = |case: &Case, namespace: &str| {
        case.shared.world().services().filter(|(key, _)| key.namespace == namespace).count()
    };
    let costly = (0..9).map(|n| multiplied("costly", &format!("e{n}"), 600, 1));
    case.after(500).send(costly.chain([SourceEvent::Recovered]).collect());
    assert_eq!(count(&case, "costly"), 600, "one object in a step");
    case.after(1).send(vec![multiplied("calm", "web", 1, 1)]);
    assert_eq!(count(&case, "calm"), 1, "what came after the statement does not wait for it");
    assert!(failing(&case), "not all that came before is in force");
    for _ in 0..7 {
        assert!(failing(&case));
        case.after(300).wait();
    }
    assert!(!failing(&case));
    case.after(300).wait();
    assert_eq!(count(&case, "costly"), 9 * 600);
}

#[test]
fn entries_beyond_the_bound_of_a_namespace_are_problems_until_they_fit() {
    let mut case = Case::new();
    case.send(vec![SourceEvent::Listed]);
    let send = |case: &mut Case, event| {
        case.after(500).send(vec![event]);
        case.shared.problems()
    };
    for n in 0..5 {
        assert!(send(&mut case, multiplied("shop", &format!("e{n}"), 500, 180)).is_empty());
    }
    let problems = send(&mut case, multiplied("shop", "late", 500, 180));
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!((&*problem.object.as_ref().unwrap().name, problem.effective), ("late", Effective::Dropped));
    assert!(problem.message.contains("180000") && problem.message.contains("900000"), "{problem}");
    assert_eq!(case.shared.world().service_count(), 2_500);
    let key = ObjectKey::new(ServiceEntry::KIND, "shop", "e0");
    assert!(send(&mut case, SourceEvent::Delete(key)).is_empty());
    assert_eq!(case.shared.world().service_count(), 2_500);
}

#[test]
fn plan_computes_on_a_copy_and_leaves_nothing() {
    let mut case = Case::new();
    case.send(vec![multiplied("shop", "a", 3, 1), SourceEvent::Listed]);
    let (answer, answered) = std::sync::mpsc::sync_channel(1);
    case.control.step(Some(ControlMessage::Fork { answer }), case.now);
    let fork = answered.try_recv().unwrap();
    // What happens meanwhile is in neither of its worlds.
    case.after(500).send(vec![multiplied("shop", "b", 5, 1)]);
    let SourceEvent::Apply(object) = multiplied("shop", "c", 7, 1) else { unreachable!() };
    let Supposed { before, after, objects, .. } =
        fork.suppose([(object.key().clone(), Some(object))].into_iter().collect());
    assert_eq!((before.service_count(), after.service_count(), objects), (3, 10, 1));
    case.after(500).wait();
    assert_eq!(case.shared.world().service_count(), 8);
}

#[test]
fn tag_brings_its_objects_into_force_and_takes_them_out() {
    let with_tags =
        |tags: &[&str]| Revision::named("canary").with_tags(tags.iter().map(|tag| Arc::from(*tag)).collect());
    let labelled = |name: &str, label: &str| {
        let SourceEvent::Apply(object) = entry(name) else { unreachable!("it is an object") };
        let labels = Arc::new([(pilotfish_model::REVISION_LABEL, label)].into_iter().collect());
        let meta = ObjectMeta { labels, ..ObjectMeta::clone(&object.meta) };
        SourceEvent::Apply(Object { meta: Arc::new(meta), ..object })
    };
    let mut case = Case::with(|controller| controller.set_revision(&Revision::named("canary")));
    let state = |case: &Case| {
        let hosts =
            case.shared.world().services().map(|(key, _)| key.hostname.to_string()).collect::<Vec<_>>();
        (hosts.join(" "), case.shared.left_to_other_revisions())
    };
    case.send(vec![entry("a"), labelled("b", "prod"), labelled("c", "canary"), SourceEvent::Listed]);
    assert!(!case.resources.is_ready(), "b may have a tag of the revision");
    let tell = |case: &mut Case, tags: &[&str]| {
        case.control.step(Some(ControlMessage::Revision(with_tags(tags))), case.now);
        case.after(1000).wait();
    };
    tell(&mut case, &[]);
    assert!(case.resources.is_ready());
    assert_eq!(state(&case), ("a.example.com c.example.com".into(), 1));
    tell(&mut case, &["prod"]);
    assert_eq!(state(&case), ("a.example.com b.example.com c.example.com".into(), 0));
    tell(&mut case, &[]);
    assert_eq!(state(&case), ("a.example.com c.example.com".into(), 1));
    // A new label moves an object at once, as its deletion would.
    case.send(vec![labelled("a", "stable"), labelled("b", "canary")]);
    case.after(1000).wait();
    assert_eq!(state(&case), ("b.example.com c.example.com".into(), 1));
    assert_eq!(case.shared.world().all_objects().count(), 2, "nothing of the others is in the world");
}
