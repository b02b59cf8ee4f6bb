//! The registry on a real etcd, which etcdctl writes to: what is there, what changes, and every fault that
//! can be had.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_etcd::ETCD;
use pilotfish_testkit::real::{Authority, Etcd, EtcdTls, Fault, FaultProxy, LiveRegistry};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Instances `web/0` to `web/N-1` at 10.0.0.1, 10.0.0.2, ...
async fn put_web(etcd: &Etcd, count: usize) {
    for n in 0..count {
        etcd.put(&format!("/services/web/{n}"), &format!(r#"{{"address": "10.0.0.{}:80"}}"#, n + 1)).await;
    }
}

fn start(proxy: &FaultProxy, options: &str) -> LiveRegistry {
    LiveRegistry::start(&ETCD, &format!("http://{}{options}", proxy.address()))
}

/// Waits until these are the addresses, without a failure.
async fn has_addresses(registry: &LiveRegistry, addresses: &[&str]) {
    let what = format!("the addresses are {addresses:?}");
    let wanted = |state: &pilotfish_testkit::real::RegistryState| {
        state.synced && state.failure.is_none() && state.addresses() == addresses
    };
    registry.until(&what, wanted).await;
}

const WEB: [&str; 3] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];

#[tokio::test]
async fn keys_become_services_and_changes_arrive() {
    let Some(etcd) = Etcd::start().await else { return };
    let full = r#"{"host": "10.0.0.1", "port": 8080, "protocol": "http", "weight": 3, "region": "eu", "zone": "a",
        "labels": {"version": "v1"}, "node": "n1"}"#;
    etcd.put("/services/shop/web/a", full).await;
    etcd.put(
        "/services/shop/web/b",
        r#"{"host": "10.0.0.2", "port": 8080, "protocol": "http", "health": "down"}"#,
    )
    .await;
    etcd.put("/services/shop/db/a", r#"{"host": "10.0.0.3", "port": 5432}"#).await;
    etcd.put("/services-old/shop/db/a", r#"{"host": "10.0.0.4", "port": 5432}"#).await;
    etcd.put("/services/README", "not an instance").await;
    let url = format!(
        "http://127.0.0.1:{}?key={{namespace}}/{{service}}/{{instance}}&prefix=/services&protocol=tcp",
        etcd.port(0)
    );
    let registry = LiveRegistry::start(&ETCD, &url);
    let labels = "labels=kubernetes.io/hostname=n1,topology.istio.io/cluster=Kubernetes,topology.kubernetes.io/region=eu,topology.kubernetes.io/zone=a,version=v1";
    let first = format!("- 10.0.0.1:8080 of http weight=3 locality=eu/a node=n1 {labels}");
    let second = "- 10.0.0.2:8080 of http health=Unhealthy labels=topology.istio.io/cluster=Kubernetes";
    let db = "- 10.0.0.3:5432 of tcp labels=topology.istio.io/cluster=Kubernetes";
    registry
        .has(&["db.etcd in shop: 5432 tcp Tcp", db, "web.etcd in shop: 8080 http Http", &first, second])
        .await;

    etcd.put("/services/shop/web/b", r#"{"host": "10.0.0.2", "port": 8080, "protocol": "http"}"#).await;
    etcd.delete("/services/shop/db/a").await;
    let second = second.replace(" health=Unhealthy", "");
    registry.has(&["web.etcd in shop: 8080 http Http", &first, &second]).await;
    etcd.put("/services/shop/web/b", "{broken").await;
    etcd.put("/services/shop/web/c", r#"{"host": "10.0.0.5", "port": 8080, "protocol": "http"}"#).await;
    let third = second.replace("10.0.0.2", "10.0.0.5");
    registry.has(&["web.etcd in shop: 8080 http Http", &first, &second, &third]).await;
    let problems = registry.report().problems;
    assert_eq!(problems.total, 1);
    assert!(problems.first[0].contains("the key \"shop/web/b\": its value is not JSON"), "{problems:?}");
    assert_eq!(registry.failures(), 0, "one bad value is no failure of the registry");
}

/// The lease ends by itself, as when a program that registered has crashed.
#[tokio::test]
async fn an_instance_goes_with_its_lease() {
    let Some(etcd) = Etcd::start().await else { return };
    put_web(&etcd, 2).await;
    let granted = etcd.ctl(&["lease", "grant", "10"]).await;
    let lease = granted.split_whitespace().nth(1).unwrap().to_owned();
    let program = etcd.start_ctl(&["lease", "keep-alive", &lease]);
    etcd.ctl(&["put", "--lease", &lease, "/services/web/leased", r#"{"address": "10.0.0.9:80"}"#]).await;
    let registry = LiveRegistry::start(&ETCD, &format!("http://127.0.0.1:{}", etcd.port(0)));
    has_addresses(&registry, &["10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"]).await;
    drop(program);
    has_addresses(&registry, &WEB[..2]).await;
    assert_eq!((registry.failures(), registry.report().sessions), (0, 1));
}

/// More keys than a page has, larger ones than a message may carry all of, and a transaction that comes in
/// one piece.
#[tokio::test]
async fn many_and_large_keys_are_read() {
    let Some(etcd) = Etcd::start().await else { return };
    let value = |n: usize| format!(r#"{{"address": "10.1.{}.{}:80"}}"#, n / 250, n % 250 + 1);
    for part in 0..25 {
        let changes: Vec<_> = (0..100)
            .map(|n| (format!("/services/many/{:04}", part * 100 + n), Some(value(part * 100 + n))))
            .collect();
        etcd.transaction(&changes).await;
    }
    // 1,000 of them would be more than a message may have: pages get smaller.
    let padding = "x".repeat(200 << 10);
    for n in 0..100 {
        let large = format!(r#"{{"address": "10.2.0.{}:80", "padding": "{padding}"}}"#, n + 1);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), large).unwrap();
        etcd.put_file(&format!("/services/large/{n:03}"), file.path()).await;
    }
    let registry = LiveRegistry::start(&ETCD, &format!("http://127.0.0.1:{}", etcd.port(0)));
    registry.until("all are there", |state| state.endpoints().len() == 2_600).await;
    let changes: Vec<_> = (0..100).map(|n| (format!("/services/many/{n:04}"), None)).collect();
    etcd.transaction(&changes).await;
    registry.until("100 are gone", |state| state.endpoints().len() == 2_500).await;
    assert_eq!((registry.failures(), registry.fewest_endpoints()), (0, 2_500), "never fewer");
}

#[tokio::test]
async fn a_dead_etcd_takes_nothing_away_and_changes_arrive_when_it_is_back() {
    let Some(mut etcd) = Etcd::start().await else { return };
    put_web(&etcd, 2).await;
    let registry = LiveRegistry::start(&ETCD, &format!("http://127.0.0.1:{}", etcd.port(0)));
    has_addresses(&registry, &WEB[..2]).await;
    etcd.program(0).kill().await;
    let state = registry.fails("").await;
    assert_eq!(state.addresses(), &WEB[..2]);
    registry.until("it tries again", |_| registry.report().failures > 2).await;
    etcd.restart(0);
    etcd.answers().await;
    etcd.put("/services/web/2", r#"{"address": "10.0.0.3:80"}"#).await;
    has_addresses(&registry, &WEB).await;
    assert_eq!(registry.fewest_endpoints(), 2);
}

/// A watch from the old revision would wait for thousands of writes, or for ever: everything is read again,
/// and a cluster that has nothing is believed when it says so twice.
#[tokio::test]
async fn a_cluster_that_lost_its_data_is_believed_the_second_time() {
    let Some(mut etcd) = Etcd::start().await else { return };
    put_web(&etcd, 3).await;
    // The first registry holds the loss for longer than the test runs, the second one believes it soon.
    let url = format!("http://127.0.0.1:{}?guardWait", etcd.port(0));
    let (patient, quick) =
        (LiveRegistry::start(&ETCD, &format!("{url}=1h")), LiveRegistry::start(&ETCD, &format!("{url}=3s")));
    has_addresses(&patient, &WEB).await;
    has_addresses(&quick, &WEB).await;
    etcd.lose_everything().await;
    patient.until("the answer is held back", |_| patient.report().held.is_some()).await;
    has_addresses(&quick, &[]).await;
    assert_eq!((quick.report().held, quick.report().holds), (None, 1));
    assert_eq!(patient.state().addresses(), WEB, "all stay until a second answer");
    assert_eq!(patient.fewest_endpoints(), 3);
    put_web(&etcd, 3).await;
    has_addresses(&quick, &WEB).await;
}

#[tokio::test]
async fn a_silent_etcd_is_noticed() {
    let Some(mut etcd) = Etcd::start().await else { return };
    put_web(&etcd, 2).await;
    let registry = LiveRegistry::start(&ETCD, &format!("http://127.0.0.1:{}", etcd.port(0)));
    has_addresses(&registry, &WEB[..2]).await;
    etcd.program(0).freeze().await;
    let state = registry.fails("").await;
    assert_eq!(state.addresses(), &WEB[..2]);
    etcd.program(0).thaw().await;
    etcd.put("/services/web/2", r#"{"address": "10.0.0.3:80"}"#).await;
    has_addresses(&registry, &WEB).await;
    assert_eq!(registry.fewest_endpoints(), 2);
}

/// While the watch is cut off, the changes that it missed are compacted.
#[tokio::test]
async fn compaction_while_cut_off_costs_one_more_read() {
    let Some(etcd) = Etcd::start().await else { return };
    put_web(&etcd, 1).await;
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let registry = start(&proxy, "");
    has_addresses(&registry, &WEB[..1]).await;
    proxy.set(Fault::Refuse).await;
    registry.fails("").await;
    put_web(&etcd, 3).await;
    etcd.delete("/services/web/1").await;
    let status = etcd.ctl(&["get", "/services/web/0", "-w", "fields"]).await;
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap().to_owned();
    etcd.ctl(&["compact", "--physical", &revision]).await;
    proxy.set(Fault::None).await;
    has_addresses(&registry, &[WEB[0], WEB[2]]).await;
}

#[tokio::test]
async fn slow_cut_and_garbled_answers_take_nothing_away() {
    let Some(etcd) = Etcd::start().await else { return };
    put_web(&etcd, 2).await;
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let registry = start(&proxy, "");
    has_addresses(&registry, &WEB[..2]).await;

    proxy.set(Fault::Delay(Duration::from_secs(2))).await;
    proxy.cut();
    registry.fails("").await;
    etcd.put("/services/web/2", r#"{"address": "10.0.0.3:80"}"#).await;
    has_addresses(&registry, &WEB).await;
    assert_eq!(registry.fewest_endpoints(), 2);

    for fault in [Fault::Truncate(150), Fault::Garble(40), Fault::Garble(400), Fault::Close] {
        let before = registry.report().failures;
        proxy.set(fault).await;
        proxy.cut();
        registry.until(&format!("{fault:?} is noticed"), |_| registry.report().failures > before + 1).await;
        proxy.set(Fault::None).await;
        proxy.cut();
        has_addresses(&registry, &WEB).await;
        assert_eq!(registry.fewest_endpoints(), 3, "{fault:?}");
    }
}

/// Answers that are right as messages and wrong in what they say.
#[tokio::test]
async fn bad_values_cost_nothing_that_was_good() {
    let Some(etcd) = Etcd::start().await else { return };
    put_web(&etcd, 3).await;
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let registry = start(&proxy, "");
    has_addresses(&registry, &WEB).await;
    // `:80` becomes `:{0`.
    proxy.set(Fault::Replace(b'8', b'{')).await;
    proxy.cut();
    registry.until("they are told", |_| registry.report().problems.total == 3).await;
    assert_eq!((registry.state().addresses(), registry.fewest_endpoints()), (WEB.to_vec(), 3));
    proxy.set(Fault::None).await;
    proxy.cut();
    registry.until("they are good again", |_| registry.report().problems.total == 0).await;
    has_addresses(&registry, &WEB).await;
}

#[tokio::test]
async fn another_member_takes_over() {
    let Some(mut etcd) = Etcd::start_with(3, None, &[]).await else { return };
    put_web(&etcd, 2).await;
    let proxies = [
        FaultProxy::before(etcd.port(0)).await,
        FaultProxy::before(etcd.port(1)).await,
        FaultProxy::before(etcd.port(2)).await,
    ];
    let servers: Vec<String> = proxies.iter().map(FaultProxy::address).collect();
    let registry = LiveRegistry::start(&ETCD, &format!("http://{}", servers.join(",")));
    has_addresses(&registry, &WEB[..2]).await;
    let of = |proxies: &[FaultProxy; 3]| proxies.iter().position(|proxy| proxy.open() > 0);
    let first = of(&proxies).unwrap();
    etcd.program(first).kill().await;
    registry.until("another one is asked", |_| of(&proxies).is_some_and(|now| now != first)).await;
    etcd.put("/services/web/2", r#"{"address": "10.0.0.3:80"}"#).await;
    has_addresses(&registry, &WEB).await;
    // A member without a majority has no leader: it would be silent, and says so.
    let second = of(&proxies).unwrap();
    let third = 3 - first - second;
    etcd.program(third).freeze().await;
    let state = registry.fails("").await;
    assert_eq!(state.addresses(), WEB);
    etcd.program(third).thaw().await;
    etcd.restart(first);
    etcd.answers().await;
    etcd.delete("/services/web/0").await;
    has_addresses(&registry, &WEB[1..]).await;
}

#[tokio::test]
async fn users_log_in_with_a_password_from_a_file() {
    let Some(etcd) = Etcd::start().await else { return };
    put_web(&etcd, 2).await;
    for arguments in [
        &["user", "add", "root:top"][..],
        &["role", "add", "reader"],
        &["role", "grant-permission", "--prefix=true", "reader", "read", "/services/"],
        &["user", "add", "pilot:first"],
        &["user", "grant-role", "pilot", "reader"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(arguments).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let nobody = LiveRegistry::start(&ETCD, &format!("http://127.0.0.1:{}", etcd.port(0)));
    nobody.fails("user name is empty").await;
    std::fs::write(&file, "wrong\n").unwrap();
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let options = format!("?user=pilot&passwordFile={}", file.display());
    let registry = start(&proxy, &options);
    let failure = registry.fails("authentication failed").await.failure.unwrap();
    assert!(!failure.contains("wrong"), "{failure}");
    std::fs::write(&file, "first\n").unwrap();
    has_addresses(&registry, &WEB[..2]).await;
    let elsewhere = start(&proxy, &format!("{options}&prefix=/other/"));
    elsewhere.fails("permission denied").await;
}

/// Files of an authority and what it signed.
struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new() };
        std::fs::write(this.path("ca.pem"), this.authority.root()).unwrap();
        this.write("server", &this.authority.server());
        this.write("client", &this.authority.client("pilot"));
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, (certificate, key): &(String, String)) {
        std::fs::write(self.path(&format!("{name}.pem")), certificate).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key).unwrap();
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")))
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn tls_proves_both_ends_and_follows_its_files() {
    let files = Files::new();
    let tls = EtcdTls {
        server: files.pair("server"),
        ca: files.path("ca.pem"),
        client: Some(files.pair("client")),
    };
    let Some(mut etcd) = Etcd::start_with(1, Some(tls), &[]).await else { return };
    put_web(&etcd, 2).await;
    let (url, ca) = (format!("https://127.0.0.1:{}", etcd.port(0)), shown(&files.path("ca.pem")));
    let (certificate, key) = files.pair("client");
    let client = format!("&certFile={}&keyFile={}", shown(&certificate), shown(&key));
    let registry = LiveRegistry::start(&ETCD, &format!("{url}?caFile={ca}{client}"));
    has_addresses(&registry, &WEB[..2]).await;
    let without = LiveRegistry::start(&ETCD, &format!("{url}?caFile={ca}"));
    without.fails("ertificate").await;
    let other = Files::new();
    let stranger =
        LiveRegistry::start(&ETCD, &format!("{url}?caFile={}{client}", shown(&other.path("ca.pem"))));
    stranger.fails("ertificate").await;
    let plain = LiveRegistry::start(&ETCD, &format!("http://127.0.0.1:{}", etcd.port(0)));
    plain.fails("").await;

    // etcd reads its certificate for each connection: only a new one finds it expired.
    files.write("server", &files.authority.expired_server());
    etcd.program(0).kill().await;
    registry.fails("").await;
    etcd.restart(0);
    let state = registry.fails("xpired").await;
    assert_eq!(state.addresses(), &WEB[..2]);
    files.write("server", &files.authority.server());
    has_addresses(&registry, &WEB[..2]).await;
    assert_eq!(registry.fewest_endpoints(), 2);
}

#[tokio::test]
async fn layouts_of_other_programs_are_read() {
    let Some(etcd) = Etcd::start().await else { return };
    etcd.put("/skydns/com/example/web/x1", r#"{"host":"10.0.0.1","port":8080,"ttl":60}"#).await;
    etcd.put("rpc/hello/10.0.0.2:5000", r#"{"Op":0,"Addr":"10.0.0.2:5000","Metadata":null}"#).await;
    let url = format!("http://127.0.0.1:{}", etcd.port(0));
    let skydns = LiveRegistry::start(&ETCD, &format!("{url}?layout=skydns&protocol=http"));
    let cluster = "labels=topology.istio.io/cluster=Kubernetes";
    skydns
        .has(&["web.example.com in default: 8080 http Http", &format!("- 10.0.0.1:8080 of http {cluster}")])
        .await;
    let grpc = LiveRegistry::start(&ETCD, &format!("{url}?layout=grpc&prefix=rpc&port=80"));
    grpc.has(&["hello.etcd in default: 80 grpc Grpc", &format!("- 10.0.0.2:5000 of grpc {cluster}")]).await;
}

/// A quiet registry asks six times a minute whether the server is there, however many services it has, with
/// one connection.
#[tokio::test]
async fn a_quiet_registry_costs_little() {
    let Some(etcd) = Etcd::start().await else { return };
    put_web(&etcd, 3).await;
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let registry = start(&proxy, "");
    has_addresses(&registry, &WEB).await;
    let before = registry.report();
    assert_eq!((before.sessions, proxy.connections()), (1, 1));
    registry.until("etcd was asked", |_| registry.report().requests > before.requests).await;
    registry.until("it answered", |_| registry.report().last_answer > before.last_answer).await;
    assert_eq!((registry.report().sessions, proxy.connections()), (1, 1));
}
