//! Passes over the stand-in for a Polaris server, which answers as a recorded one did.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_polaris_sync::reconcile::{
    AliasKey, Desired, DesiredService, Instance, Pass, Place, ServiceKey, Target,
};
use pilotfish_polaris_sync::{
    Client, ClientSettings, Credentials, FailureClass, PassReport, PolarisTarget, Session, SessionSettings,
    SyncMetrics, TokenSource,
};
use pilotfish_runtime::GuardSettings;
use pilotfish_testkit::polaris::{Polaris, PolarisFault, PolarisOptions, Seen};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Time for an answer: long, as a busy machine may stop a test for seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
const DISCOVER: &str = "/v1/Discover";

/// A server, a session with it, and what it should have.
struct Setup {
    polaris: Polaris,
    session: Session,
    target: PolarisTarget,
    metrics: Arc<SyncMetrics>,
    desired: Desired,
    /// True if what was written is visible at once.
    is_fresh: bool,
}

fn options() -> PolarisOptions {
    PolarisOptions { tick: None, ..PolarisOptions::default() }
}

fn session_on(polaris: &Polaris, target: &PolarisTarget, credentials: Credentials, lag: Duration) -> Session {
    session_with(polaris, target, credentials, SessionSettings { lag, ..SessionSettings::default() })
}

fn session_with(
    polaris: &Polaris,
    target: &PolarisTarget,
    credentials: Credentials,
    settings: SessionSettings,
) -> Session {
    session_measured(polaris, target, credentials, settings, Arc::new(SyncMetrics::new().unwrap()), TIMEOUT)
}

fn session_measured(
    polaris: &Polaris,
    target: &PolarisTarget,
    credentials: Credentials,
    settings: SessionSettings,
    metrics: Arc<SyncMetrics>,
    timeout: Duration,
) -> Session {
    let address = ClientSettings::parse_address(&format!("127.0.0.1:{}", polaris.http_port())).unwrap();
    let client = Client::new(ClientSettings { address, tls: None, credentials, timeout }, metrics.clone());
    Session::new(client, target.clone(), settings, metrics)
}

fn none() -> Credentials {
    Credentials::new(TokenSource::None, None)
}

/// For how long reads of some tests are not believed.
const LAG: Duration = Duration::from_secs(3);

/// Lets the session's time go on.
async fn wait(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

impl Setup {
    async fn start() -> Self {
        Self::with(options(), none()).await
    }

    async fn with(options: PolarisOptions, credentials: Credentials) -> Self {
        let is_fresh = !options.console_lags;
        let polaris = Polaris::start(options).await;
        let target = PolarisTarget::new("east").unwrap();
        let settings = SessionSettings { lag: Duration::ZERO, ..SessionSettings::default() };
        let metrics = Arc::new(SyncMetrics::new().unwrap());
        let session = session_measured(&polaris, &target, credentials, settings, metrics.clone(), TIMEOUT);
        Self { polaris, session, target, metrics, desired: Desired::default(), is_fresh }
    }

    /// Another process with the same name.
    fn restart(&mut self) {
        self.session = session_on(&self.polaris, &self.target, none(), Duration::ZERO);
    }

    fn service(&mut self, name: &str) -> &mut DesiredService {
        self.desired.namespaces.insert("shop".into());
        self.desired.services.entry(ServiceKey::new("shop", name)).or_default()
    }

    fn instance(&mut self, name: &str, host: &str, change: impl FnOnce(&mut Instance)) {
        let place = Place::new(host, 8080);
        let mut instance =
            Instance { protocol: "http/TCP".into(), weight: 100, ready: true, ..Instance::default() };
        change(&mut instance);
        self.target.fit_instance(&place, &mut instance).unwrap();
        self.service(name).instances.insert(place, instance);
    }

    fn instances(&mut self, name: &str, count: usize) {
        for n in 0..count {
            self.instance(name, &format!("10.0.{}.{}", n / 250, n % 250 + 1), |_| {});
        }
    }

    fn refresh(&self) {
        if self.is_fresh {
            self.polaris.refresh();
        }
    }

    async fn pass(&mut self) -> PassReport {
        self.refresh();
        self.session.pass(&self.desired, &Pass::All, &()).await.unwrap()
    }

    async fn failure(&mut self) -> pilotfish_polaris_sync::Failure {
        self.refresh();
        self.session.pass(&self.desired, &Pass::All, &()).await.unwrap_err()
    }

    /// A pass over one service.
    async fn part(&mut self, name: &str) -> PassReport {
        let key = ServiceKey::new("shop", name);
        let service = self.desired.services.get(&key).map(|service| (key.clone(), service.clone()));
        let namespaces = self.desired.namespaces.clone();
        let part = Desired { namespaces, services: service.into_iter().collect() };
        self.session.pass(&part, &Pass::Services([key].into()), &()).await.unwrap()
    }

    /// The requests that wrote, since this was asked last.
    fn writes(&self) -> Vec<String> {
        let seen = self.polaris.seen();
        let writes = seen.iter().filter(|seen| seen.method != "GET" && seen.path != DISCOVER);
        let path = |seen: &Seen| seen.path.trim_start_matches("/naming/v1").to_owned();
        let mut writes: Vec<String> =
            writes.map(|seen| format!("{} {} {}", seen.method, path(seen), seen.elements)).collect();
        writes.sort();
        writes
    }

    /// Somebody else deregisters an instance, if it is there.
    fn delete_by_hand(&self, service: &str, host: &str) {
        let gone = json!([{"namespace": "shop", "service": service, "host": host, "port": 8080}]);
        self.polaris.write("POST", "/naming/v1/instances/delete", &gone);
        self.polaris.refresh();
    }

    fn find(&self, service: &str, host: &str) -> Value {
        let found = self.polaris.instances(&[("namespace", "shop"), ("service", service), ("host", host)]);
        assert!(found.len() < 2, "{found:?}");
        found.into_iter().next().unwrap_or_default()
    }

    fn count(&self, service: &str) -> usize {
        self.polaris.instances(&[("namespace", "shop"), ("service", service)]).len()
    }

    fn problems(&self) -> Vec<String> {
        self.session.problems().values().flatten().cloned().collect()
    }

    /// A second pass writes nothing.
    async fn is_equal(&mut self) {
        self.writes();
        let report = self.pass().await;
        assert_eq!(self.writes(), Vec::<String>::new());
        assert!(report.is_equal(), "{report:?}");
    }
}

fn fields<const N: usize>(of: &Value, names: [&str; N]) -> Value {
    names.iter().map(|name| of[name].clone()).collect()
}

#[tokio::test]
async fn a_first_pass_makes_everything_in_batches_and_a_second_one_nothing() {
    let mut setup = Setup::start().await;
    setup.instances("web", 250);
    setup.service("web").metadata.insert("app".into(), "web".into());
    setup.service("web").ports.insert(80);
    let report = setup.pass().await;
    let writes = [
        "POST /instances 100",
        "POST /instances 100",
        "POST /instances 50",
        "POST /namespaces 1",
        "POST /services 1",
    ];
    assert_eq!(setup.writes(), writes);
    assert_eq!((report.instances, report.written(), setup.count("web")), (250, 252, 250));
    setup.is_equal().await;
}

#[tokio::test]
async fn an_instance_is_what_the_controller_makes_of_it() {
    let mut setup = Setup::start().await;
    setup.instance("web", "10.0.0.1", |instance| {
        instance.version = "v2".into();
        instance.weight = 7;
        instance.ttl = Some(5);
        instance.metadata.insert("app".into(), "web".into());
    });
    setup.pass().await;
    let found = setup.find("web", "10.0.0.1");
    let metadata = json!({"app": "web", "source": "polaris-controller", "clusterName": "east"});
    let check = json!({"type": "HEARTBEAT", "heartbeat": {"ttl": 5}});
    let names = ["protocol", "version", "weight", "healthy", "isolate", "metadata", "healthCheck"];
    assert_eq!(fields(&found, names), json!(["http/TCP", "v2", 7, true, false, metadata, check]));
    setup.is_equal().await;
}

#[tokio::test]
async fn everything_about_an_instance_converges() {
    let changes: [fn(&mut Instance); 7] = [
        |instance| instance.protocol = "grpc/TCP".into(),
        |instance| instance.version = "v3".into(),
        |instance| instance.weight = 0,
        |instance| instance.ready = false,
        |instance| instance.ttl = Some(9),
        |instance| drop(instance.metadata.insert("new".into(), "label".into())),
        |instance| instance.metadata.clear(),
    ];
    let plain = |instance: &mut Instance| drop(instance.metadata.insert("old".into(), "label".into()));
    let mut setup = Setup::start().await;
    setup.instance("web", "10.0.0.1", plain);
    setup.pass().await;
    for (at, change) in changes.into_iter().enumerate() {
        for back in [false, true] {
            setup.instance("web", "10.0.0.1", |instance| {
                plain(instance);
                if !back {
                    change(instance);
                }
            });
            setup.writes();
            let report = setup.part("web").await;
            assert_eq!(setup.writes(), ["PUT /instances 1"], "change {at}, {back}: {report:?}");
            setup.is_equal().await;
        }
    }
}

#[tokio::test]
async fn who_is_not_ready_is_isolated_and_what_a_person_isolated_stays() {
    let mut setup = Setup::start().await;
    setup.instance("web", "10.0.0.1", |_| {});
    setup.instance("web", "10.0.0.2", |_| {});
    setup.pass().await;
    let isolate = |isolate: bool| json!([{"namespace": "shop", "service": "web", "host": "10.0.0.2", "port": 8080, "isolate": isolate}]);
    setup.polaris.write("PUT", "/naming/v1/instances", &isolate(true));
    for ready in [false, true] {
        setup.instance("web", "10.0.0.1", |instance| instance.ready = ready);
        setup.instance("web", "10.0.0.2", |instance| instance.ready = ready);
        setup.pass().await;
        assert_eq!(setup.find("web", "10.0.0.1")["isolate"], json!(!ready));
        assert_eq!(setup.find("web", "10.0.0.2")["isolate"], json!(true), "a person's, ready: {ready}");
        setup.is_equal().await;
    }
    assert_eq!(setup.pass().await.isolated, 1, "it is told");
    setup.polaris.write("PUT", "/naming/v1/instances", &isolate(false));
    setup.is_equal().await;
    assert_eq!(setup.find("web", "10.0.0.2")["isolate"], json!(false));
}

/// What the original controller leaves: one with the old key, one not ready, one gone meanwhile.
#[tokio::test]
async fn it_takes_over_from_the_controller_without_a_duplicate_or_a_gap() {
    let mut setup = Setup::start().await;
    setup.instances("web", 5);
    let left = |n: usize| {
        let key = if n == 2 { "platform" } else { "source" };
        json!({
            "namespace": "shop", "service": "web", "host": format!("10.0.0.{n}"), "port": 8080,
            "protocol": "http/TCP", "weight": 100, "healthy": true, "isolate": n == 3, "enableHealthCheck": false,
            "metadata": {key: "polaris-controller", "clusterName": "east"},
        })
    };
    let service = json!([{"namespace": "shop", "name": "web", "owners": "polaris-controller"}]);
    setup.polaris.write("POST", "/naming/v1/services", &service);
    setup.polaris.write("POST", "/naming/v1/instances", &json!((1..=6).map(left).collect::<Vec<_>>()));
    let target = setup.target.clone().with_taken_isolation(true);
    setup.session = session_on(&setup.polaris, &target, none(), Duration::ZERO);
    setup.pass().await;
    // The old key and the isolation that is over are changed, the sixth is gone; the others stay as they are.
    assert_eq!(setup.writes(), ["POST /instances/delete 1", "PUT /instances 1", "PUT /instances 2"]);
    assert_eq!((setup.count("web"), &setup.find("web", "10.0.0.3")["isolate"]), (5, &json!(false)));
    setup.restart();
    setup.is_equal().await;
}

#[tokio::test]
async fn instances_of_others_are_not_touched() {
    let mut setup = Setup::start().await;
    let west = json!({"source": "polaris-controller", "clusterName": "west"});
    let foreign = json!([
        // One that registered itself where ours should be, one of another cluster, one elsewhere.
        {"namespace": "shop", "service": "web", "host": "10.0.0.1", "port": 8080, "metadata": {"by": "sdk"}},
        {"namespace": "shop", "service": "web", "host": "10.0.0.9", "port": 8080, "metadata": west},
        {"namespace": "shop", "service": "other", "host": "10.0.0.9", "port": 8080},
    ]);
    setup.polaris.write("POST", "/naming/v1/instances", &foreign);
    let before = setup.polaris.instances(&[("namespace", "shop")]);
    setup.instances("web", 2);
    let report = setup.pass().await;
    assert_eq!((report.conflicts, report.is_equal()), (1, false));
    assert_eq!(setup.problems(), ["10.0.0.1:8080: an instance of somebody else is there; it is not touched"]);
    setup.desired = Desired::default();
    setup.pass().await;
    assert_eq!(setup.polaris.instances(&[("namespace", "shop")]), before);
}

#[tokio::test]
async fn two_clusters_share_a_service() {
    let mut east = Setup::start().await;
    east.instances("web", 3);
    east.service("web").metadata.insert("app".into(), "web".into());
    east.pass().await;
    let target = PolarisTarget::new("west").unwrap();
    let mut west = session_on(&east.polaris, &target, none(), Duration::ZERO);
    let mut desired = east.desired.clone();
    let places = (1..=2).map(|n| {
        let place = Place::new(format!("10.9.0.{n}"), 8080);
        let mut instance = Instance { weight: 100, ready: true, ..Instance::default() };
        target.fit_instance(&place, &mut instance).unwrap();
        (place, instance)
    });
    desired.services.get_mut(&ServiceKey::new("shop", "web")).unwrap().instances = places.collect();
    west.pass(&desired, &Pass::All, &()).await.unwrap();
    assert_eq!(east.count("web"), 5);
    east.is_equal().await;
    assert!(west.pass(&desired, &Pass::All, &()).await.unwrap().written() == 0);
    west.pass(&Desired::default(), &Pass::All, &()).await.unwrap();
    assert_eq!(east.count("web"), 3);
    east.is_equal().await;
}

/// It registered itself after our last look: a change of ours must not take it.
#[tokio::test]
async fn what_became_somebody_elses_meanwhile_is_left_to_them() {
    let mut setup = Setup::start().await;
    setup.instances("web", 2);
    setup.pass().await;
    let theirs =
        json!([{"namespace": "shop", "service": "web", "host": "10.0.0.1", "port": 8080, "weight": 3}]);
    setup.polaris.write("POST", "/naming/v1/instances", &theirs);
    let before = setup.find("web", "10.0.0.1");
    setup.instance("web", "10.0.0.1", |instance| instance.weight = 9);
    assert_eq!(setup.part("web").await.conflicts, 1);
    setup.service("web").instances.clear();
    setup.part("web").await;
    assert_eq!((setup.find("web", "10.0.0.1"), setup.count("web")), (before, 1));
}

#[tokio::test]
async fn orphans_are_swept_wherever_they_are() {
    let mut setup = Setup::start().await;
    setup.instances("web", 8);
    setup.instances("api", 3);
    setup.pass().await;
    // Nobody runs while a Service and some endpoints go.
    setup.desired = Desired::default();
    setup.instances("web", 6);
    setup.restart();
    setup.writes();
    setup.pass().await;
    assert_eq!(setup.writes(), ["POST /instances/delete 5", "PUT /instances 5"]);
    assert_eq!((setup.count("web"), setup.count("api")), (6, 0));
}

#[tokio::test]
async fn a_mass_deletion_waits_for_a_confirmation_and_nothing_else_does() {
    let mut setup = Setup::start().await;
    setup.instances("web", 100);
    setup.pass().await;
    setup.desired = Desired::default();
    setup.instance("api", "10.1.0.1", |_| {});
    let report = setup.pass().await;
    assert_eq!((report.held, setup.count("web"), setup.count("api")), (100, 100, 1));
    setup.session.confirm_deletions();
    assert_eq!(setup.pass().await.held, 100, "it is not time yet");
    let (held, until) = setup.session.held().unwrap();
    assert_eq!(held, 100);
    tokio::time::pause();
    tokio::time::advance(until - tokio::time::Instant::now()).await;
    setup.session.confirm_deletions();
    tokio::time::resume();
    assert_eq!((setup.pass().await.held, setup.count("web"), setup.session.held()), (0, 0, None));
}

#[tokio::test]
async fn aliases_come_move_and_go_and_a_name_that_is_taken_is_told() {
    let mut setup = Setup::start().await;
    let alias = |name: &str| AliasKey(ServiceKey::new("old", name));
    setup.service("web").aliases.insert(alias("www"));
    setup.service("api");
    let services = json!([{"namespace": "old", "name": "taken"}, {"namespace": "old", "name": "theirs"}]);
    setup.polaris.write("POST", "/naming/v1/services", &services);
    let theirs = json!({"namespace": "old", "service": "theirs", "alias": "alien", "alias_namespace": "old"});
    setup.polaris.write("POST", "/naming/v1/service/alias", &theirs);
    setup.pass().await;
    assert_eq!(setup.polaris.aliases().get("old/www").map(String::as_str), Some("shop/web"));
    setup.is_equal().await;
    setup.service("web").aliases.clear();
    setup.service("api").aliases.insert(alias("www"));
    setup.pass().await;
    assert_eq!(setup.polaris.aliases().get("old/www").map(String::as_str), Some("shop/api"));
    setup.service("api").aliases = [alias("taken"), alias("alien")].into();
    setup.pass().await;
    assert_eq!(setup.polaris.aliases(), [("old/alien".to_owned(), "old/theirs".to_owned())].into());
    assert_eq!(setup.polaris.services(&[("namespace", "old"), ("name", "taken")]).len(), 1);
    assert_eq!(setup.problems().len(), 2, "{:?}", setup.problems());
}

/// An alias of the original controller has no mark of a cluster: one that is wanted is taken over, another
/// one stays.
#[tokio::test]
async fn aliases_of_the_controller_are_adopted_where_they_are_wanted() {
    let mut setup = Setup::start().await;
    let service = json!([{"namespace": "shop", "name": "web", "owners": "polaris-controller"}]);
    setup.polaris.write("POST", "/naming/v1/services", &service);
    for name in ["www", "old"] {
        let alias = json!({
            "namespace": "shop", "service": "web", "alias": name, "alias_namespace": "shop", "owners": "polaris-controller",
        });
        setup.polaris.write("POST", "/naming/v1/service/alias", &alias);
    }
    setup.service("web").aliases.insert(AliasKey(ServiceKey::new("shop", "www")));
    setup.pass().await;
    assert_eq!(setup.writes(), ["PUT /service/alias 1"]);
    setup.is_equal().await;
    setup.service("web").aliases.clear();
    setup.pass().await;
    assert_eq!(setup.polaris.aliases(), [("shop/old".to_owned(), "shop/web".to_owned())].into());
}

/// One element that the server refuses costs that one alone.
#[tokio::test]
async fn a_bad_element_does_not_cost_its_batch() {
    let mut setup = Setup::start().await;
    setup.instances("web", 50);
    let place = Place::new("10.0.0.7", 8080);
    // Longer than the server takes, and than `fit_instance` lets through.
    setup.service("web").instances.get_mut(&place).unwrap().version = "v".repeat(33).into();
    let report = setup.pass().await;
    assert_eq!((report.refused, setup.count("web")), (1, 49));
    let problems = setup.problems();
    let is_told =
        problems.len() == 1 && problems[0].contains("10.0.0.7:8080") && problems[0].contains("400137");
    assert!(is_told, "{problems:?}");
    setup.service("web").instances.get_mut(&place).unwrap().version = "v".into();
    setup.part("web").await;
    assert_eq!((setup.count("web"), setup.problems().len()), (50, 0));
}

#[tokio::test]
async fn a_server_that_goes_away_in_mid_batch_gets_the_rest_later() {
    for fault in [
        PolarisFault::Closed,
        PolarisFault::ClosedAfter,
        PolarisFault::Status(502),
        PolarisFault::Slow(2 * TIMEOUT),
    ] {
        let mut setup = Setup::start().await;
        setup.instances("web", 250);
        if matches!(fault, PolarisFault::Slow(_)) {
            let settings = SessionSettings { lag: Duration::ZERO, ..SessionSettings::default() };
            let (metrics, short) = (setup.metrics.clone(), Duration::from_secs(2));
            setup.session = session_measured(&setup.polaris, &setup.target, none(), settings, metrics, short);
        }
        setup.polaris.fail("POST", "/instances", fault.clone());
        let failure = setup.failure().await;
        assert_eq!(failure.class, FailureClass::Transient, "{fault:?}: {failure}");
        setup.restart();
        setup.pass().await;
        assert_eq!(setup.count("web"), 250, "{fault:?}");
        setup.is_equal().await;
    }
}

#[tokio::test]
async fn a_read_that_fails_is_not_an_empty_server() {
    let mut setup = Setup::start().await;
    setup.instances("web", 120);
    setup.pass().await;
    for (method, path, fault) in [
        ("GET", "/instances", PolarisFault::Code(500_000)),
        ("GET", "/instances", PolarisFault::Status(503)),
        ("GET", "/services", PolarisFault::Code(401_001)),
        ("GET", "/aliases", PolarisFault::Closed),
        ("GET", "/namespaces", PolarisFault::Code(429_002)),
        ("POST", DISCOVER, PolarisFault::Code(500_000)),
        ("POST", DISCOVER, PolarisFault::Status(502)),
        ("POST", DISCOVER, PolarisFault::Closed),
    ] {
        if path == "/instances" {
            // All instances are listed by the first pass.
            setup.restart();
        } else {
            setup.pass().await;
        }
        setup.writes();
        setup.polaris.fail(method, path, fault.clone());
        setup.failure().await;
        assert_eq!(setup.writes(), Vec::<String>::new(), "{path} {fault:?}");
    }
    setup.is_equal().await;
}

#[tokio::test]
async fn codes_of_a_write_decide_what_happens_next() {
    // A limit or a failure of the server: what is left is tried again, the rest goes on.
    for code in [429_001, 403_003, 500_001, 400_208] {
        let mut setup = Setup::start().await;
        setup.instances("web", 150);
        setup.polaris.fail("POST", "/instances", PolarisFault::Code(code));
        let report = setup.pass().await;
        assert_eq!(report.left, [ServiceKey::new("shop", "web")].into(), "{code}");
        let count = setup.count("web");
        assert!(report.failed > 0 && count > 0 && count < 150, "{code}: {report:?}");
        setup.part("web").await;
        assert_eq!(setup.count("web"), 150, "{code}");
    }
}

#[tokio::test]
async fn a_batch_that_is_refused_without_a_word_is_halved() {
    let mut setup = Setup::start().await;
    setup.instances("web", 4);
    setup.polaris.fail("POST", "/instances", PolarisFault::Code(400_103));
    let report = setup.pass().await;
    assert_eq!((report.refused, setup.count("web")), (0, 4));
    // What met the fault is not noted.
    assert_eq!(setup.writes().iter().filter(|call| call.as_str() == "POST /instances 2").count(), 2);
}

#[tokio::test]
async fn a_server_that_refuses_everything_is_not_asked_for_ever() {
    let mut setup = Setup::start().await;
    setup.instances("web", 100);
    for _ in 0..200 {
        setup.polaris.fail("POST", "/instances", PolarisFault::Code(400_001));
    }
    let report = setup.pass().await;
    assert_eq!((report.refused, setup.count("web")), (100, 0));
    let left = setup.polaris.planned();
    assert!((170..200).contains(&left), "{left} of 200 requests were not made");
}

#[tokio::test]
async fn a_token_that_is_refused_for_a_write_ends_the_pass() {
    let mut setup = Setup::start().await;
    setup.instances("web", 100);
    setup.polaris.fail("POST", "/instances", PolarisFault::Code(401_001));
    let failure = setup.failure().await;
    assert_eq!((failure.class, failure.retry_after), (FailureClass::Denied, Duration::from_secs(10)));
    setup.pass().await;
    assert_eq!(setup.count("web"), 100);
}

#[tokio::test]
async fn an_instance_that_is_limited_goes_later() {
    let limited = PolarisOptions { instance_limit: Some((1, 1000)), ..options() };
    let mut setup = Setup::with(limited, none()).await;
    setup.instances("web", 2);
    setup.pass().await;
    setup.is_equal().await;
}

#[tokio::test]
async fn a_server_that_forgets_everything_has_it_again() {
    let mut setup = Setup::start().await;
    setup.instances("web", 20);
    setup.service("web").metadata.insert("app".into(), "web".into());
    setup.pass().await;
    setup.polaris.lose_everything();
    setup.pass().await;
    assert_eq!(setup.count("web"), 20);
    setup.is_equal().await;
}

#[tokio::test]
async fn metadata_of_a_service_is_added_to_what_others_wrote() {
    let mut setup = Setup::start().await;
    let metadata = json!({"cost": "7", "app": "old"});
    let theirs = json!([{"namespace": "shop", "name": "web", "owners": "team", "metadata": metadata, "business": "b"}]);
    setup.polaris.write("POST", "/naming/v1/services", &theirs);
    setup.service("web").metadata.insert("app".into(), "web".into());
    setup.service("web").ports.insert(80);
    setup.pass().await;
    let found = setup.polaris.services(&[("namespace", "shop"), ("name", "web")]).remove(0);
    let shown = fields(&found, ["metadata", "owners", "business", "ports"]);
    assert_eq!(shown, json!([{"cost": "7", "app": "web"}, "team", "b", "80"]));
    setup.is_equal().await;
}

#[tokio::test]
async fn reads_that_lag_lead_to_no_second_write() {
    let mut setup = Setup::with(PolarisOptions { console_lags: true, ..options() }, none()).await;
    setup.session = session_on(&setup.polaris, &setup.target, none(), Duration::from_secs(60));
    setup.instances("web", 5);
    setup.pass().await;
    setup.is_equal().await;
    setup.instance("web", "10.0.0.1", |instance| instance.weight = 5);
    setup.service("web").instances.remove(&Place::new("10.0.0.2", 8080));
    setup.part("web").await;
    assert_eq!(setup.writes(), ["POST /instances/delete 1", "PUT /instances 1", "PUT /instances 1"]);
    setup.is_equal().await;
    setup.polaris.refresh();
    setup.is_equal().await;
}

/// Reads are not believed then, and nothing about the service changes after it.
#[tokio::test]
async fn what_others_delete_right_after_a_write_is_made_up_for() {
    let mut setup = Setup::start().await;
    setup.session = session_on(&setup.polaris, &setup.target, none(), LAG);
    setup.instances("web", 5);
    setup.pass().await;
    setup.delete_by_hand("web", "10.0.0.2");
    setup.is_equal().await;
    assert_eq!(setup.count("web"), 4, "the read may be older than the write");
    wait(LAG).await;
    setup.pass().await;
    assert_eq!(setup.count("web"), 5);
    setup.is_equal().await;
}

#[tokio::test]
async fn a_token_is_read_again_when_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "wrong\n").unwrap();
    let secured = PolarisOptions { token: Some("right".to_owned()), ..options() };
    let credentials = Credentials::new(TokenSource::File(file.clone()), None);
    let mut setup = Setup::with(secured, credentials).await;
    setup.instances("web", 3);
    let failure = setup.failure().await;
    assert_eq!((failure.class, failure.code), (FailureClass::Denied, Some(401_001)));
    std::fs::write(&file, "right\n").unwrap();
    setup.pass().await;
    assert_eq!(setup.count("web"), 3);
    setup.polaris.set_tokens(Some("newer"), None);
    std::fs::write(&file, "newer\n").unwrap();
    setup.is_equal().await;
}

#[tokio::test]
async fn the_token_of_an_operator_is_asked_for_again_when_it_is_refused() {
    let user = Some(("ops".to_owned(), "first".to_owned()));
    let secured = PolarisOptions { token: Some("main".to_owned()), user, ..options() };
    let credentials = Credentials::new(TokenSource::Text("main".into()), Some("ops".to_owned()));
    let mut setup = Setup::with(secured, credentials).await;
    setup.instances("web", 3);
    let tokens = |setup: &Setup| -> BTreeSet<(bool, String)> {
        let seen = setup.polaris.seen();
        seen.into_iter().map(|seen| (seen.path.contains("/user/token"), seen.token)).collect()
    };
    setup.pass().await;
    assert_eq!(tokens(&setup), [(false, "first".to_owned()), (true, "main".to_owned())].into());
    setup.polaris.set_tokens(Some("main"), Some(("ops", "second")));
    setup.pass().await;
    // Requests that are refused are not noted.
    assert_eq!(tokens(&setup), [(false, "second".to_owned()), (true, "main".to_owned())].into());
}

/// Heartbeats say whether an instance with a check is healthy, and the server marks it: that is nothing to
/// correct.
#[tokio::test]
async fn the_health_of_what_beats_is_left_to_the_server() {
    let mut setup = Setup::with(PolarisOptions { checks_heartbeats: true, ..options() }, none()).await;
    setup.instance("web", "10.0.0.1", |instance| instance.ttl = Some(1));
    setup.pass().await;
    assert_eq!(setup.find("web", "10.0.0.1")["healthy"], json!(true));
    setup.polaris.advance(Duration::from_secs(3));
    setup.polaris.refresh();
    assert_eq!(setup.find("web", "10.0.0.1")["healthy"], json!(false), "no beat for three times its TTL");
    setup.is_equal().await;
    let beat = json!({"namespace": "shop", "service": "web", "host": "10.0.0.1", "port": 8080});
    setup.polaris.write("POST", "/v1/Heartbeat", &beat);
    setup.polaris.refresh();
    assert_eq!(setup.find("web", "10.0.0.1")["healthy"], json!(true));
    setup.is_equal().await;
}

/// Polaris derives these keys from fields of an instance, and leaves them out of what it shows.
#[tokio::test]
async fn metadata_that_polaris_hides_is_not_written_in_each_pass() {
    let hidden = ["version", "protocol", "region", "zone", "campus"];
    let mut setup = Setup::start().await;
    let labels = |instance: &mut Instance, zone: &str| {
        instance.version = "v2".into();
        instance.metadata.insert("app".into(), "web".into());
        for key in hidden {
            instance.metadata.insert(key.into(), if key == "zone" { zone } else { "v2" }.into());
        }
    };
    setup.instance("web", "10.0.0.1", |instance| labels(instance, "a"));
    setup.pass().await;
    let shown = setup.find("web", "10.0.0.1")["metadata"].clone();
    assert_eq!(shown, json!({"app": "web", "source": "polaris-controller", "clusterName": "east"}));
    for _ in 0..3 {
        setup.is_equal().await;
    }
    setup.restart();
    setup.is_equal().await;
    setup.is_equal().await;
    // A change of nothing else arrives while the session knows what it wrote.
    setup.instance("web", "10.0.0.2", |instance| labels(instance, "a"));
    setup.pass().await;
    setup.is_equal().await;
    setup.instance("web", "10.0.0.2", |instance| labels(instance, "b"));
    setup.writes();
    setup.part("web").await;
    assert_eq!(setup.writes(), ["PUT /instances 1"]);
    setup.is_equal().await;
}

/// Each page of instances costs the server a scan of all of them.
#[tokio::test]
async fn a_comparison_reads_instances_of_changed_services_alone() {
    let mut setup = Setup::start().await;
    for service in 0..12 {
        setup.instances(&format!("web-{service}"), 30);
    }
    let requests = |setup: &Setup| {
        let seen = setup.polaris.seen();
        let of = |method: &str, path: &str| {
            seen.iter().filter(|seen| seen.method == method && seen.path == path).count()
        };
        (of("GET", "/naming/v1/instances"), of("POST", DISCOVER))
    };
    setup.pass().await;
    assert_eq!(requests(&setup).1, 0, "the first pass lists everything");
    // The second one has no revisions yet.
    for _ in 0..4 {
        setup.pass().await;
        assert_eq!(requests(&setup), (0, 12));
    }
    let unchanged = |setup: &Setup| {
        let text = setup.metrics.text().unwrap();
        let line =
            text.lines().find(|line| line.contains("seconds_count{code=\"200001\",operation=\"discover\"}"));
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
    };
    assert_eq!(unchanged(&setup), 3 * 12, "all but the second pass");
    // Drift is found and repaired: one service is read, the others are not.
    let drift =
        json!([{"namespace": "shop", "service": "web-3", "host": "10.0.0.7", "port": 8080, "weight": 1}]);
    setup.polaris.write("PUT", "/naming/v1/instances", &drift);
    setup.writes();
    setup.pass().await;
    assert_eq!((setup.writes(), unchanged(&setup)), (vec!["PUT /instances 1".to_owned()], 4 * 12 - 1));
    assert_eq!(setup.find("web-3", "10.0.0.7")["weight"], json!(100));
    let gone = json!([{"namespace": "shop", "service": "web-4", "host": "10.0.0.8", "port": 8080}]);
    setup.polaris.write("POST", "/naming/v1/instances/delete", &gone);
    setup.pass().await;
    assert_eq!(setup.count("web-4"), 30);
    setup.is_equal().await;
}

/// A token may be good for the console alone.
#[tokio::test]
async fn a_server_that_refuses_discover_is_listed() {
    let mut setup = Setup::start().await;
    setup.instances("web", 3);
    setup.pass().await;
    let drift =
        json!([{"namespace": "shop", "service": "web", "host": "10.0.0.1", "port": 8080, "weight": 1}]);
    for fault in [PolarisFault::Code(401_001), PolarisFault::Status(404)] {
        setup.polaris.write("PUT", "/naming/v1/instances", &drift);
        setup.polaris.fail("POST", DISCOVER, fault);
        setup.pass().await;
        assert_eq!(setup.find("web", "10.0.0.1")["weight"], json!(100));
    }
}

/// Its cache notices the deletion of an instance only if that was changed shortly before.
#[tokio::test]
async fn old_instances_of_a_boltdb_server_go_because_they_are_isolated_first() {
    let mut setup = Setup::with(PolarisOptions { shows_deleted: true, ..options() }, none()).await;
    setup.instances("web", 5);
    setup.instance("web", "10.0.0.5", |instance| instance.ready = false);
    setup.pass().await;
    setup.polaris.advance(Duration::from_secs(60));
    for host in ["10.0.0.4", "10.0.0.5"] {
        setup.service("web").instances.remove(&Place::new(host, 8080));
    }
    setup.writes();
    setup.pass().await;
    assert_eq!(setup.writes(), ["POST /instances/delete 2", "PUT /instances 2"]);
    assert_eq!(setup.count("web"), 3);
    setup.is_equal().await;
}

#[tokio::test]
async fn an_instance_that_is_shown_after_its_deletion_is_told_and_not_deleted_again() {
    let mut setup = Setup::with(PolarisOptions { shows_deleted: true, ..options() }, none()).await;
    setup.instances("web", 5);
    setup.pass().await;
    setup.polaris.advance(Duration::from_secs(60));
    // Something in between kept it from being changed first.
    setup.polaris.fail("PUT", "/instances", PolarisFault::Code(500_001));
    setup.service("web").instances.remove(&Place::new("10.0.0.4", 8080));
    setup.pass().await;
    for _ in 0..3 {
        setup.is_equal().await;
        assert_eq!((setup.count("web"), setup.pass().await.lingering), (5, 1));
        let shown = ["10.0.0.4:8080: Polaris acknowledged its deletion, and shows it as before"];
        assert_eq!(setup.problems(), shown);
    }
    // It is wanted again, and then no longer.
    setup.instances("web", 5);
    setup.writes();
    assert_eq!(setup.pass().await.lingering, 0);
    assert_eq!(setup.writes(), ["POST /instances 1"]);
    setup.is_equal().await;
    setup.service("web").instances.remove(&Place::new("10.0.0.4", 8080));
    setup.pass().await;
    assert_eq!(setup.count("web"), 4);
    setup.is_equal().await;
    // A process that knows nothing of it deletes it once.
    setup.polaris.advance(Duration::from_secs(60));
    setup.polaris.fail("PUT", "/instances", PolarisFault::Code(500_001));
    setup.service("web").instances.remove(&Place::new("10.0.0.3", 8080));
    setup.pass().await;
    setup.restart();
    setup.pass().await;
    setup.is_equal().await;
    // A server that is started again does not show it.
    assert_eq!(setup.pass().await.lingering, 1);
    setup.polaris.notice_deletions();
    assert_eq!((setup.pass().await.lingering, setup.count("web")), (0, 3));
}

/// A random world after the other, with faults at random calls and deletions by hand: a pass may fail, and in
/// the end everything is there, nothing is left over, and what others registered is as it was. Every second
/// time the reads may be older than the writes.
#[tokio::test]
async fn histories_with_faults_at_any_call_converge() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut setup = Setup::start().await;
        // Without the guard: worlds follow each other too fast for it.
        let lag = if seed % 2 == 0 { Duration::ZERO } else { LAG };
        let settings = SessionSettings { guard: GuardSettings::off(), lag };
        setup.session = session_with(&setup.polaris, &setup.target, none(), settings);
        let foreign: Vec<Value> = (0..random.below(6))
            .map(|n| json!({"namespace": "shop", "service": random.service(), "host": format!("10.0.0.{n}"), "port": 8080}))
            .collect();
        if !foreign.is_empty() {
            setup.polaris.write("POST", "/naming/v1/instances", &json!(foreign));
        }
        let theirs = |setup: &Setup| -> Vec<Value> {
            let all = setup.polaris.instances(&[("service", "*")]);
            all.into_iter().filter(|one| one["metadata"] == json!({})).collect()
        };
        let before = theirs(&setup);
        for _ in 0..4 {
            random.change(&mut setup);
            let (service, host) = (random.service(), format!("10.0.0.{}", random.below(9)));
            if setup.find(service, &host)["metadata"]["clusterName"] == "east" {
                setup.delete_by_hand(service, &host);
            }
            for _ in 0..random.below(4) {
                let (method, path, fault) = random.fault();
                setup.polaris.fail(method, path, fault);
            }
            setup.polaris.refresh();
            // Whether it fails is not the question.
            drop(setup.session.pass(&setup.desired, &Pass::All, &()).await);
        }
        setup.polaris.recover();
        setup.pass().await;
        wait(lag).await;
        for _ in 0..2 {
            setup.pass().await;
        }
        setup.writes();
        setup.pass().await;
        assert_eq!(setup.writes(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(theirs(&setup), before, "seed {seed}");
        let ours = setup.polaris.instances(&[("keys", "clusterName"), ("values", "east")]).len();
        let taken = setup.session.problems().values().map(Vec::len).sum::<usize>();
        assert_eq!(ours + taken, setup.desired.instances(), "seed {seed}: {:?}", setup.problems());
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }

    fn service(&mut self) -> &'static str {
        ["web", "api", "db"][usize::try_from(self.below(3)).unwrap()]
    }

    fn fault(&mut self) -> (&'static str, &'static str, PolarisFault) {
        let calls = [
            ("POST", "/instances"),
            ("PUT", "/instances"),
            ("POST", "/instances/delete"),
            ("POST", "/services"),
            ("POST", "/namespaces"),
            ("GET", "/instances"),
            ("GET", "/services"),
            ("POST", DISCOVER),
        ];
        let faults = [
            PolarisFault::Closed,
            PolarisFault::ClosedAfter,
            PolarisFault::Code(500_001),
            PolarisFault::Code(429_001),
            PolarisFault::Code(400_000),
            PolarisFault::Code(400_301),
            PolarisFault::Status(502),
        ];
        let (method, path) = calls[usize::try_from(self.below(8)).unwrap()];
        (method, path, faults[usize::try_from(self.below(7)).unwrap()].clone())
    }

    fn change(&mut self, setup: &mut Setup) {
        setup.desired = Desired::default();
        for n in 0..self.below(9) {
            let (service, weight, ready) = (self.service(), self.below(3), self.below(2) == 0);
            setup.instance(service, &format!("10.0.0.{n}"), |instance| {
                instance.weight = u32::try_from(weight).unwrap();
                instance.ready = ready;
            });
        }
    }
}

#[tokio::test]
async fn every_request_has_an_id_of_its_own() {
    let mut setup = Setup::start().await;
    setup.instances("web", 3);
    setup.pass().await;
    let seen = setup.polaris.seen();
    let ids: BTreeSet<_> = seen.iter().map(|seen| seen.id.clone()).collect();
    assert_eq!(ids.len(), seen.len());
    assert!(ids.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'4'), "{ids:?}");
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_says_what_it_would() {
    let mut setup = Setup::start().await;
    setup.instances("web", 150);
    let dry = setup.session.dry_run(&setup.desired).await.unwrap();
    assert_eq!(setup.writes(), Vec::<String>::new());
    let size = |body: &Value| body.as_array().unwrap().len();
    let calls: Vec<_> = dry.requests.iter().map(|call| (call.method, call.path, size(&call.body))).collect();
    let expected = [
        ("POST", "/naming/v1/namespaces", 1),
        ("POST", "/naming/v1/services", 1),
        ("POST", "/naming/v1/instances", 100),
        ("POST", "/naming/v1/instances", 50),
    ];
    assert_eq!(calls, expected);
    let metadata = json!({"source": "polaris-controller", "clusterName": "east"});
    assert_eq!(dry.requests[2].body[0]["metadata"], metadata);
}
