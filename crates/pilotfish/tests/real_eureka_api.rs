//! Clients of Eureka that register with Pilotfish: another Pilotfish reads it as a Eureka server, and Spring
//! Cloud's client registers with it, and a Eureka server replicates to it.

use pilotfish_testkit::real::{
    EurekaInstance, EurekaServer, Pilotfish, eureka_application_with, eventually, free_port,
};
use std::path::Path;

/// A Pilotfish that serves clients of Eureka at this port.
fn server(port: u16, data: &Path) -> Pilotfish {
    let registration = format!("127.0.0.1:{}", free_port());
    let arguments = [
        "--registration-address",
        &registration,
        "--eureka-address",
        &format!("127.0.0.1:{port}"),
        "--data-dir",
        &data.display().to_string(),
    ];
    Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments)
}

/// A Pilotfish that reads that one as a Eureka server.
fn reader(port: u16) -> Pilotfish {
    let registry = format!("eureka=http://127.0.0.1:{port}/eureka?interval=200ms&guard=off");
    Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry])
}

async fn until_endpoint(pilotfish: &Pilotfish, what: &str, port: u16, is_there: bool) {
    let endpoint = format!("\"EndpointPort\":{port},");
    eventually(what, || async {
        let page = pilotfish.page("/debug/endpointz").await?;
        if page.contains(&endpoint) == is_there { Ok(()) } else { Err(page) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn springs_client_registers_and_is_gone_after_it_was_killed() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, own) = (free_port(), free_port());
    let server = server(port, folder.path());
    server.ready().await;
    let reader = reader(port);
    let arguments = [
        "--eureka.instance.lease-expiration-duration-in-seconds=10",
        "--eureka.client.registry-fetch-interval-seconds=1",
    ];
    let started = eureka_application_with(port, "Greeter", "greeter-1", own, folder.path(), &arguments);
    let Some(mut application) = started else { return };
    until_endpoint(&server, "it registered", own, true).await;
    until_endpoint(&reader, "another Pilotfish reads it as a Eureka server", own, true).await;
    eventually("the client reads the applications", || async {
        let printed = application.printed();
        if printed.contains("The response status is 200") { Ok(()) } else { Err(printed) }
    })
    .await;
    let printed = application.printed();
    assert!(!printed.contains("hashcodes do not match"), "it accepts the changes: {printed}");
    application.kill().await;
    until_endpoint(&reader, "it is gone after its lease", own, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_of_a_eureka_server_is_replicated() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let port = free_port();
    let server = server(port, folder.path());
    server.ready().await;
    // A peer with the host name of the server itself would be taken for the server.
    let peer = format!("--eureka.client.service-url.defaultZone=http://localhost:{port}/eureka/");
    let Some(old) = EurekaServer::start(&[&peer]).await else { return };
    old.register(&EurekaInstance::up("Orders", "o-1", "10.0.0.1")).await;
    until_endpoint(&server, "it is replicated", 8080, true).await;
    old.cancel("ORDERS", "o-1").await;
    until_endpoint(&server, "its cancellation is replicated", 8080, false).await;
}
