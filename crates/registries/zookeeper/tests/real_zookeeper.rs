//! The registry against a real ZooKeeper: what is registered, changes, and everything that can happen to a
//! server.

use pilotfish_testkit::real::{
    Authority, Fault, FaultProxy, LiveRegistry, Nodes, RegistryState, ZooKeeper, eventually,
};
use pilotfish_zookeeper::ZOOKEEPER;
use std::time::Duration;

const GREETER: &str = "/dubbo/org.example.Greeter";

/// The node of a provider of the interface.
fn provider(address: &str, query: &str) -> String {
    let (address, query) = (address.replace(':', "%3A"), query.replace('=', "%3D").replace('&', "%26"));
    format!("{GREETER}/providers/dubbo%3A%2F%2F{address}%2Forg.example.Greeter%3Fside%3Dprovider{query}")
}

async fn start() -> Option<(ZooKeeper, Nodes)> {
    let server = ZooKeeper::start().await?;
    let nodes = server.nodes(None).await?;
    Some((server, nodes))
}

/// Three providers, of one service.
async fn three(nodes: &mut Nodes) {
    for host in 1..=3 {
        nodes.run(&format!("put {}", provider(&format!("10.0.0.{host}:20880"), ""))).await;
    }
}

const THREE: &[&str] = &[
    "org.example.greeter in default: 20880 dubbo Dubbo",
    "- 10.0.0.1:20880 of dubbo",
    "- 10.0.0.2:20880 of dubbo",
    "- 10.0.0.3:20880 of dubbo",
];

/// The lines, without the label of the cluster, which all have.
fn short(state: &RegistryState) -> Vec<String> {
    const CLUSTER: &str = "topology.istio.io/cluster=Kubernetes";
    let own = |line: &String| line.replace(&format!("{CLUSTER},"), "").replace(&format!(",{CLUSTER}"), "");
    state.lines.iter().map(|line| own(line).replace(&format!(" labels={CLUSTER}"), "")).collect()
}

/// Waits until a registry is in sync, does not fail, and has exactly these lines.
async fn has(registry: &LiveRegistry, lines: &[&str]) {
    let wanted = |state: &RegistryState| state.synced && state.failure.is_none() && short(state) == lines;
    registry.until(&format!("the world has {lines:#?}"), wanted).await;
}

fn has_addresses(count: usize) -> impl Fn(&RegistryState) -> bool {
    move |state| state.synced && state.failure.is_none() && state.addresses().len() == count
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_registered_becomes_services_and_changes_arrive() {
    let Some((server, mut nodes)) = start().await else { return };
    nodes.run(&format!("put {}", provider("10.0.0.1:20880", "&zone=a&weight=50"))).await;
    nodes.run(&format!("ephemeral {}", provider("10.0.0.2:20881", "&zone=b"))).await;
    nodes.run("curator shop 1 10.0.0.7 8080 UP").await;
    let registry = LiveRegistry::start(&ZOOKEEPER, &format!("zk://{}?guard=off", server.address()));
    has(
        &registry,
        &[
            "org.example.greeter in default: 20880 dubbo Dubbo",
            "- 10.0.0.1:20880 of dubbo weight=50 labels=zone=a",
            "- 10.0.0.2:20881 of dubbo weight=100 labels=zone=b",
            "shop in default: 8080 default Unsupported",
            "- 10.0.0.7:8080 of default labels=tier=web",
        ],
    )
    .await;

    nodes.run("curator shop 2 10.0.0.8 8080 OUT_OF_SERVICE").await;
    nodes
        .run(&format!("put {GREETER}/configurators/override%3A%2F%2F10.0.0.2%3A20881%2Fx%3Fdisabled%3Dtrue"))
        .await;
    nodes.run("put /dubbo/org.example.Other/providers/tri%3A%2F%2F10.0.0.3%3A50051%2Forg.example.Other%3Fversion%3D2.0").await;
    has(
        &registry,
        &[
            "org.example.greeter in default: 20880 dubbo Dubbo",
            "- 10.0.0.1:20880 of dubbo weight=50 labels=zone=a",
            "- 10.0.0.2:20881 of dubbo health=Unhealthy weight=100 labels=zone=b",
            "org.example.other-2-0 in default: 50051 tri Grpc",
            "- 10.0.0.3:50051 of tri labels=version=2.0",
            "shop in default: 8080 default Unsupported",
            "- 10.0.0.7:8080 of default labels=tier=web",
            "- 10.0.0.8:8080 of default health=Unhealthy labels=tier=web",
        ],
    )
    .await;

    // The last provider goes: the service stays, without endpoints.
    nodes.run(&format!("delete {}", provider("10.0.0.1:20880", "&zone=a&weight=50"))).await;
    nodes.run(&format!("delete {}", provider("10.0.0.2:20881", "&zone=b"))).await;
    nodes.run("delete /dubbo/org.example.Other").await;
    nodes.run("leave shop 1").await;
    nodes.run("leave shop 2").await;
    has(
        &registry,
        &["org.example.greeter in default: 20880 dubbo Dubbo", "shop in default: 8080 default Unsupported"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_dies_goes_with_its_session() {
    let Some((server, mut nodes)) = start().await else { return };
    three(&mut nodes).await;
    let mut dying = server.nodes(None).await.expect("it was there before");
    dying.run(&format!("ephemeral {}", provider("10.0.0.4:20880", ""))).await;
    let registry = LiveRegistry::start(&ZOOKEEPER, &format!("zk://{}", server.address()));
    registry.until("four providers", has_addresses(4)).await;
    drop(dying);
    has(&registry, THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_before_3_6_are_watched_node_by_node() {
    let Some((server, mut nodes)) = start().await else { return };
    let text = format!("zk://{}?watches=single&guard=off", server.address());
    let registry = LiveRegistry::start(&ZOOKEEPER, &text);
    has(&registry, &[]).await;
    three(&mut nodes).await;
    has(&registry, THREE).await;
    nodes.run(&format!("delete {}", provider("10.0.0.3:20880", ""))).await;
    has(&registry, &THREE[..3]).await;
    nodes.run("curator shop 1 10.0.0.7 8080 UP").await;
    registry.until("shop", |state| state.services().iter().any(|line| line.starts_with("shop "))).await;
    nodes.run("delete /dubbo").await;
    registry.until("Dubbo's are gone", |state| state.services().len() == 1).await;
    three(&mut nodes).await;
    registry.until("they are back", has_addresses(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_takes_nothing_away_and_is_found_again() {
    let Some((mut server, mut nodes)) = start().await else { return };
    three(&mut nodes).await;
    let registry = LiveRegistry::start(&ZOOKEEPER, &format!("zk://{}", server.address()));
    has(&registry, THREE).await;
    let _ = registry.fewest_endpoints();
    server.kill().await;
    let state = registry.fails("connect").await;
    assert_eq!(short(&state), THREE);
    server.start_again().await;
    let mut nodes = server.nodes(None).await.expect("it was there before");
    nodes.run(&format!("put {}", provider("10.0.0.4:20880", ""))).await;
    registry.until("the change arrives", has_addresses(4)).await;
    assert_eq!(registry.fewest_endpoints(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_state_is_believed_when_it_says_so_twice() {
    let Some((mut server, mut nodes)) = start().await else { return };
    three(&mut nodes).await;
    let text = format!("zk://{}?guardWait=3s", server.address());
    let registry = LiveRegistry::start(&ZOOKEEPER, &text);
    has(&registry, THREE).await;
    server.kill().await;
    server.lose_state();
    server.start_again().await;
    // Its transactions begin anew, so it is behind what was seen, as a follower could be: it is asked again
    // before it is believed.
    let state = registry.fails("refuses the session").await;
    assert_eq!(short(&state), THREE);
    has(&registry, &[]).await;
    let mut nodes = server.nodes(None).await.expect("it was there before");
    three(&mut nodes).await;
    has(&registry, THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_given_up_and_nothing_is_lost() {
    let Some((mut server, mut nodes)) = start().await else { return };
    three(&mut nodes).await;
    let text = format!("zk://{}?sessionTimeout=3s", server.address());
    let registry = LiveRegistry::start(&ZOOKEEPER, &text);
    has(&registry, THREE).await;
    let _ = registry.fewest_endpoints();
    server.program().freeze().await;
    let state = registry.fails("silent").await;
    assert_eq!(short(&state), THREE);
    server.program().thaw().await;
    has(&registry, THREE).await;
    assert_eq!(registry.fewest_endpoints(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_takes_nothing_away() {
    let Some((server, mut nodes)) = start().await else { return };
    three(&mut nodes).await;
    let proxy = FaultProxy::before(server.port()).await;
    let text = format!("zk://{}?sessionTimeout=3s", proxy.address());
    let registry = LiveRegistry::start(&ZOOKEEPER, &text);
    has(&registry, THREE).await;
    let _ = registry.fewest_endpoints();
    let faults = [
        Fault::Refuse,
        Fault::Close,
        Fault::Hang,
        Fault::Truncate(10),
        Fault::Truncate(120),
        Fault::Truncate(300),
        Fault::Garble(1),
        Fault::Garble(7),
        Fault::Garble(43),
        Fault::Garble(90),
        Fault::Replace(b'/', b'\xff'),
    ];
    for fault in faults {
        let before = registry.failures();
        proxy.set(fault).await;
        proxy.cut();
        eventually(&format!("{fault:?} is noticed"), || async {
            let count = registry.failures();
            if count > before { Ok(()) } else { Err(registry.state()) }
        })
        .await;
        proxy.set(Fault::None).await;
        proxy.cut();
        has(&registry, THREE).await;
        assert_eq!(registry.fewest_endpoints(), 3, "{fault:?}");
    }
    // Slow is not broken: a session of the usual length bears a second, also on a busy machine.
    drop(registry);
    let patient = LiveRegistry::start(&ZOOKEEPER, &format!("zk://{}", proxy.address()));
    has(&patient, THREE).await;
    proxy.set(Fault::Delay(Duration::from_secs(1))).await;
    nodes.run(&format!("put {}", provider("10.0.0.4:20880", ""))).await;
    patient.until("the change arrives", has_addresses(4)).await;
    assert_eq!(patient.failures(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_secret_opens_is_read_with_it_alone() {
    let Some(server) = ZooKeeper::start().await else { return };
    let Some(mut nodes) = server.nodes(Some("mesh:right")).await else { return };
    three(&mut nodes).await;
    nodes.run("private /dubbo").await;
    let file = server.folder().join("secret");
    std::fs::write(&file, "mesh:wrong").expect("a file can be written");
    let text = format!("zk://{}?digestFile={}", server.address(), file.display());
    let registry = LiveRegistry::start(&ZOOKEEPER, &text);
    let state = registry.fails("/dubbo cannot be read: reading it is not permitted").await;
    assert!(!state.synced);
    // The file is read again.
    std::fs::write(&file, "mesh:right\n").expect("a file can be written");
    has(&registry, THREE).await;

    // A single node that is closed later keeps what it had, in the session and in the next one.
    nodes.run("public /dubbo").await;
    nodes.run(&format!("private {GREETER}/providers")).await;
    std::fs::write(&file, "mesh:wrong").expect("a file can be written");
    let proxy = FaultProxy::before(server.port()).await;
    let text = format!("zk://{}?guard=off", proxy.address());
    nodes.run(&format!("public {GREETER}/providers")).await;
    let other = LiveRegistry::start(&ZOOKEEPER, &text);
    has(&other, THREE).await;
    nodes.run(&format!("private {GREETER}/providers")).await;
    proxy.cut();
    let state = other.fails("providers: reading it is not permitted").await;
    assert_eq!(short(&state), THREE);
    nodes.run(&format!("public {GREETER}/providers")).await;
    proxy.cut();
    has(&other, THREE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbled_nodes_cost_themselves_alone() {
    let Some((server, mut nodes)) = start().await else { return };
    three(&mut nodes).await;
    nodes.run("curator shop 1 10.0.0.7 8080 UP").await;
    let registry = LiveRegistry::start(&ZOOKEEPER, &format!("zk://{}", server.address()));
    registry.until("all of it", has_addresses(4)).await;
    let before = short(&registry.state());
    nodes.run("put /services/shop/1 {\"address\":").await;
    nodes.run(&format!("put {GREETER}/providers/nothing%20of%20Dubbo")).await;
    let state = registry.fails("it has no protocol (and 1 more nodes)").await;
    assert_eq!(short(&state), before, "the last good instance stays");
    nodes.run(&format!("delete {GREETER}/providers/nothing%20of%20Dubbo")).await;
    nodes.run("put /services/shop/1 {\"address\":\"10.0.0.8\",\"port\":8080}").await;
    let healed =
        |state: &RegistryState| state.failure.is_none() && state.addresses().contains(&"10.0.0.8:8080");
    registry.until("the good one is there", healed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_the_right_certificates_on_both_sides() {
    let authority = Authority::new();
    let (certificate, key) = authority.server();
    let Some(server) = ZooKeeper::start_secure(authority.root(), &format!("{certificate}{key}")).await else {
        return;
    };
    let Some(mut nodes) = server.nodes(None).await else { return };
    three(&mut nodes).await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    };
    let (certificate, key) = authority.client("pilotfish");
    let (ca, certificate, key) =
        (file("ca", authority.root()), file("cert", &certificate), file("key", &key));
    let address = format!("zks://{}?serverName=localhost", server.secure_address());
    let registry = LiveRegistry::start(
        &ZOOKEEPER,
        &format!("{address}&caFile={ca}&certFile={certificate}&keyFile={key}"),
    );
    has(&registry, THREE).await;

    let other = file("other", Authority::new().root());
    let wrong = LiveRegistry::start(
        &ZOOKEEPER,
        &format!("{address}&caFile={other}&certFile={certificate}&keyFile={key}"),
    );
    wrong.fails("no TLS with").await;
    let nobody = LiveRegistry::start(&ZOOKEEPER, &format!("{address}&caFile={ca}"));
    let state = nobody.until("it fails", |state| state.failure.is_some()).await;
    assert!(!state.synced, "a client without a certificate is not served");
    let (expired, its_key) = authority.expired("spiffe://cluster.local/ns/a/sa/b");
    let (expired, its_key) = (file("expired", &expired), file("expired-key", &its_key));
    let late = LiveRegistry::start(
        &ZOOKEEPER,
        &format!("{address}&caFile={ca}&certFile={expired}&keyFile={its_key}"),
    );
    let state = late.until("it fails", |state| state.failure.is_some()).await;
    assert!(!state.synced, "an expired certificate is none");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_nodes_are_two_watches_and_no_storm() {
    const INTERFACES: u32 = 3_000;
    let Some((server, mut nodes)) = start().await else { return };
    nodes.run(&format!("bulk {INTERFACES}")).await;
    let before = server.figure("zk_packets_received").await;
    let text = format!("zk://{}?sessionTimeout=10s", server.address());
    let registry = LiveRegistry::start(&ZOOKEEPER, &text);
    let all = usize::try_from(INTERFACES * 2).expect("it is small");
    registry.until("all of them", has_addresses(all)).await;
    let requests = server.figure("zk_packets_received").await - before;
    let needed = f64::from(INTERFACES * 2);
    assert!((needed..needed + 60.0).contains(&requests), "{requests} packets for {INTERFACES} interfaces");
    // The server counts each twice: for what nodes hold, and for their children.
    assert_eq!(server.figure("zk_watch_count").await, 4.0);

    let before = server.figure("zk_packets_received").await;
    for host in 1..=20 {
        nodes.run(&format!("put {}", provider(&format!("10.9.0.{host}:20880"), ""))).await;
    }
    registry.until("twenty more", has_addresses(all + 20)).await;
    let requests = server.figure("zk_packets_received").await - before;
    // Each `put` is three or four requests of its own, to make the nodes above it.
    assert!(requests < 20.0 * 5.0 + 30.0, "{requests} packets for twenty changes");
}
