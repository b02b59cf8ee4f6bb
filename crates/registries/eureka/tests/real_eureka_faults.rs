//! What a Eureka server can do wrong: endpoints are lost only when it says so twice, and everything comes
//! back by itself.

use pilotfish_eureka::EUREKA;
use pilotfish_testkit::real::{
    Authority, EurekaInstance, EurekaServer, Fault, FaultProxy, LiveRegistry, RegistryState, eventually,
};
use std::time::Duration;

/// Four instances of two applications.
async fn register(server: &EurekaServer) {
    for (app, id, ip) in
        [("A", "1", "10.0.0.1"), ("A", "2", "10.0.0.2"), ("B", "1", "10.0.0.3"), ("B", "2", "10.0.0.4")]
    {
        server.register(&EurekaInstance::up(app, id, ip)).await;
    }
}

async fn has(registry: &LiveRegistry, count: usize) -> RegistryState {
    let wanted =
        |state: &RegistryState| state.synced && state.failure.is_none() && state.addresses().len() == count;
    registry.until(&format!("{count} endpoints"), wanted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_or_silent_takes_nothing_away() {
    let Some(mut server) = EurekaServer::start(&[]).await else { return };
    register(&server).await;
    let registry = LiveRegistry::start(&EUREKA, &format!("{}&guardWait=1h", server.address()));
    has(&registry, 4).await;

    server.freeze().await;
    registry.fails("did not answer within 10s").await;
    server.thaw().await;
    has(&registry, 4).await;

    server.kill().await;
    registry.fails("127.0.0.1").await;
    server.restart().await;
    // It is empty, and alone in saying so.
    eventually("it is empty", || async {
        let source = registry.report();
        if source.held.as_ref().is_some_and(|held| held.after == 0) { Ok(()) } else { Err(source) }
    })
    .await;
    assert_eq!(registry.fewest_endpoints(), 4, "never fewer");
    register(&server).await;
    server.register(&EurekaInstance::up("C", "1", "10.0.0.5")).await;
    has(&registry, 5).await;
    // While they come back one after the other, half of them is believed.
    assert!(registry.fewest_endpoints() >= 2, "never fewer than the guard lets pass");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_server_is_believed_when_it_says_so_twice() {
    let Some(mut server) = EurekaServer::start(&[]).await else { return };
    register(&server).await;
    let registry = LiveRegistry::start(&EUREKA, &format!("{}&guardWait=2s", server.address()));
    has(&registry, 4).await;
    server.kill().await;
    server.restart().await;
    registry.until("it is believed", |state| state.lines.is_empty() && state.failure.is_none()).await;
    server.register(&EurekaInstance::up("A", "1", "10.0.0.1")).await;
    has(&registry, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_slow_or_cut_or_garbled_take_nothing_away() {
    let Some(server) = EurekaServer::start(&[]).await else { return };
    register(&server).await;
    let proxy = FaultProxy::before(server.port).await;
    let address = format!("http://{}/eureka?interval=200ms&guardWait=1h", proxy.address());
    let registry = LiveRegistry::start(&EUREKA, &address);
    has(&registry, 4).await;
    for (fault, reason) in [
        (Fault::Truncate(300), "127.0.0.1"),
        (Fault::Close, "127.0.0.1"),
        (Fault::Refuse, "cannot connect"),
        (Fault::Garble(7), "127.0.0.1"),
        // `UP` becomes `XP`: JSON as before, that says something else.
        (Fault::Replace(b'U', b'X'), "counts its instances"),
        (Fault::Replace(b'{', b'['), "cannot be read"),
    ] {
        proxy.set(fault).await;
        registry.fails(reason).await;
        proxy.set(Fault::None).await;
        has(&registry, 4).await;
    }
    // Slow is no failure.
    let failures = registry.failures();
    proxy.set(Fault::Delay(Duration::from_secs(3))).await;
    server.register(&EurekaInstance::up("C", "1", "10.0.0.5")).await;
    has(&registry, 5).await;
    assert_eq!(registry.failures(), failures);
    assert_eq!(registry.fewest_endpoints(), 4, "never fewer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_takes_over() {
    let Some(mut first) = EurekaServer::start(&[]).await else { return };
    let Some(second) = EurekaServer::start(&[]).await else { return };
    for server in [&first, &second] {
        register(server).await;
    }
    let servers = format!("http://127.0.0.1:{},127.0.0.1:{}", first.port, second.port);
    let registry = LiveRegistry::start(&EUREKA, &format!("{servers}/eureka?interval=200ms"));
    has(&registry, 4).await;
    first.kill().await;
    second.register(&EurekaInstance::up("C", "1", "10.0.0.5")).await;
    has(&registry, 5).await;
    assert_eq!((registry.failures(), registry.fewest_endpoints()), (0, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_and_certificates_are_asked_for_and_read_again() {
    let (authority, other) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    let certify = |(certificate, key): (String, String)| {
        write("certificate.pem", &certificate);
        write("key.pem", &key);
    };
    certify(authority.expired_server());
    write("ca.pem", other.root());
    write("password", "wrong\n");
    let Some(mut server) = EurekaServer::start(&[
        "--spring.security.user.name=user",
        "--spring.security.user.password=open sesame",
        &format!("--server.ssl.certificate={}", path("certificate.pem")),
        &format!("--server.ssl.certificate-private-key={}", path("key.pem")),
    ])
    .await
    else {
        return;
    };
    let address = format!(
        "https://127.0.0.1:{}/eureka?interval=200ms&username=user&passwordFile={}&caFile={}",
        server.port,
        path("password"),
        path("ca.pem")
    );
    let registry = LiveRegistry::start(&EUREKA, &address);
    registry.fails("invalid peer certificate").await;
    write("ca.pem", authority.root());
    registry.fails("xpired").await;
    certify(authority.server());
    server.restart().await;
    let state = registry.fails("answered /eureka/apps with 401 Unauthorized").await;
    assert!(!format!("{state:?}").contains("wrong"), "{state:?}");
    write("password", "open sesame\n");
    registry.until("it is let in", |state| state.synced && state.failure.is_none()).await;
}
