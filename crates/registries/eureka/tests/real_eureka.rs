//! With a real Eureka server: what comes, changes and goes, by the API and by its usual client.

use pilotfish_eureka::EUREKA;
use pilotfish_testkit::real::{
    EurekaInstance, EurekaServer, LiveRegistry, RegistryState, eureka_application, free_port,
};

fn fresh(state: &RegistryState) -> bool {
    state.synced && state.failure.is_none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_come_and_change_and_go() {
    let Some(server) = EurekaServer::start(&[]).await else { return };
    let zoned = EurekaInstance {
        metadata: r#"{"zone":"z1","version":"v1","weight":"3"}"#,
        ..EurekaInstance::up("Orders", "o-1", "10.0.0.1")
    };
    server.register(&zoned).await;
    let registry = LiveRegistry::start(&EUREKA, &format!("{}&region=r1&guard=off", server.address()));
    registry
        .has(&[
            "orders.eureka in default: 8080 http Http",
            "- 10.0.0.1:8080 of http weight=3 locality=r1/z1 \
             labels=app=orders,topology.istio.io/cluster=Kubernetes,\
             topology.kubernetes.io/region=r1,topology.kubernetes.io/zone=z1,version=v1,weight=3,zone=z1",
        ])
        .await;

    server.register(&EurekaInstance::up("Orders", "o-2", "10.0.0.2")).await;
    server.register(&EurekaInstance::up("cart", "c-1", "10.0.0.3")).await;
    registry
        .until("two applications", |state| {
            state.addresses() == ["10.0.0.3:8080", "10.0.0.1:8080", "10.0.0.2:8080"]
        })
        .await;

    server.order("ORDERS", "o-2", "OUT_OF_SERVICE").await;
    let is_marked = |state: &RegistryState| {
        state.endpoints().iter().any(|it| it.starts_with("10.0.0.2") && it.contains("Unhealthy"))
    };
    registry.until("an order counts", is_marked).await;
    server.take_back("ORDERS", "o-2").await;
    registry.until("an order is taken back", |state| !is_marked(state)).await;

    server
        .register(&EurekaInstance { status: "DOWN", ..EurekaInstance::up("CART", "c-1", "10.0.0.3") })
        .await;
    registry
        .until("an instance is down", |state| {
            state.endpoints().iter().any(|it| it.starts_with("10.0.0.3") && it.contains("Unhealthy"))
        })
        .await;

    server.cancel("ORDERS", "o-1").await;
    registry.until("an instance left", |state| state.addresses() == ["10.0.0.3:8080", "10.0.0.2:8080"]).await;
    server.cancel("CART", "c-1").await;
    let state = registry.until("an application ended", |state| state.services().len() == 1).await;
    assert!(fresh(&state), "{state:?}");
    assert_eq!((registry.failures(), registry.report().sessions), (0, 1), "all of it by changes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_addresses_are_services_of_several_applications() {
    let Some(server) = EurekaServer::start(&[]).await else { return };
    server
        .register(&EurekaInstance { vip: "shop.example.net,all", ..EurekaInstance::up("A", "1", "10.0.0.1") })
        .await;
    server.register(&EurekaInstance { vip: "all", ..EurekaInstance::up("B", "1", "10.0.0.2") }).await;
    let registry = LiveRegistry::start(&EUREKA, &format!("{}&by=vip&domain=mesh&port=80", server.address()));
    registry
        .has(&[
            "all.mesh in default: 80 http Http",
            "- 10.0.0.1:8080 of http labels=app=a,topology.istio.io/cluster=Kubernetes",
            "- 10.0.0.2:8080 of http labels=app=b,topology.istio.io/cluster=Kubernetes",
            "shop.example.net in default: 80 http Http",
            "- 10.0.0.1:8080 of http labels=app=a,topology.istio.io/cluster=Kubernetes",
        ])
        .await;
    server.register(&EurekaInstance { vip: "all", ..EurekaInstance::up("A", "1", "10.0.0.1") }).await;
    registry
        .until("it left one of them", |state| state.services().len() == 1 && state.endpoints().len() == 2)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_the_usual_client_is_found() {
    let Some(server) = EurekaServer::start(&[]).await else { return };
    let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder can be made"));
    let started = eureka_application(server.port, "Greeter", "greeter-1", port, folder.path());
    let mut application = started.expect("there is a JVM");
    let registry = LiveRegistry::start(&EUREKA, &format!("{}&guard=off", server.address()));
    let state =
        registry.until("it registered", |state| state.addresses() == [format!("127.0.0.1:{port}")]).await;
    assert_eq!(state.services(), [format!("greeter.eureka in default: {port} http Http")]);
    assert!(state.endpoints()[0].contains("locality=/z1"), "{state:?}");
    // A stop is told to the server.
    application.terminate().await;
    registry.until("it left", |state| state.lines.is_empty()).await;
}
