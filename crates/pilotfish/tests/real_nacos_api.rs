//! Clients of Nacos that register with Pilotfish: another Pilotfish reads it as a Nacos server, by HTTP and
//! gRPC, and Nacos's own client registers with it and subscribes to it.

use pilotfish_testkit::real::{Java, Pilotfish, Program, eventually, free_port};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns a port whose port for gRPC is free, too.
fn free_ports() -> u16 {
    loop {
        let port = free_port();
        let above = port.checked_add(1000);
        if above.is_some_and(|above| std::net::TcpListener::bind(("127.0.0.1", above)).is_ok()) {
            return port;
        }
    }
}

/// A Pilotfish that serves clients of Nacos at this port.
fn server(port: u16, data: &Path) -> Pilotfish {
    let registration = format!("127.0.0.1:{}", free_port());
    let arguments = [
        "--registration-address",
        &registration,
        "--nacos-address",
        &format!("127.0.0.1:{port}"),
        "--data-dir",
        &data.display().to_string(),
    ];
    Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments)
}

/// A Pilotfish that reads that one as a Nacos server.
fn reader(port: u16, api: &str) -> Pilotfish {
    let registry = format!("nacos=http://127.0.0.1:{port}?api={api}&groups=G&refresh=300ms&guard=off");
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

/// Sends a request to the HTTP API and returns the answer.
async fn call(port: u16, method: &str, query: &str) -> String {
    let mut io = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    let head = format!(
        "{method} /nacos/v1/ns/instance?{query} HTTP/1.0\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
    );
    io.write_all(head.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.expect("it answers");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_of_nacos_reads_it_by_http_and_grpc() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, own) = (free_ports(), free_port());
    let server = server(port, folder.path());
    server.ready().await;
    let (http, grpc) = (reader(port, "http"), reader(port, "grpc"));
    // Without beats, it lives for ten minutes.
    let long = "metadata=%7B%22preserved.heart.beat.timeout%22:%22600000%22%7D";
    let query = format!("serviceName=Orders&groupName=G&ip=127.0.0.1&port={own}&{long}");
    let answer = call(port, "POST", &query).await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    for (name, pilotfish) in [("itself", &server), ("HTTP", &http), ("gRPC", &grpc)] {
        until_endpoint(pilotfish, name, own, true).await;
        let page = pilotfish.page("/debug/endpointz").await.unwrap_or_default();
        assert!(page.contains("orders.g.public.nacos"), "{name}: one host: {page}");
    }
    call(port, "DELETE", &query).await;
    for (name, pilotfish) in [("itself", &server), ("HTTP", &http), ("gRPC", &grpc)] {
        until_endpoint(pilotfish, name, own, false).await;
    }
}

/// A program with Nacos's own client.
fn java(main: &str, port: u16, arguments: &[&str], folder: &Path) -> Option<Program> {
    let home = folder.display().to_string();
    let mut command = Java::find("nacos")?.command(&[("user.home", &home)], main);
    command.arg(format!("127.0.0.1:{port}")).args(arguments).current_dir(folder);
    Some(Program::start(&mut command, folder.join(format!("{main}.log"))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nacoss_client_registers_discovers_and_is_gone_after_it_was_killed() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, own) = (free_ports(), free_port());
    let server = server(port, folder.path());
    server.ready().await;
    let service = ["public", "G", "orders"];
    let Some(mut discover) = java("pilotfish.nacos.Discover", port, &service, folder.path()) else { return };
    discover.until_printed("instances []").await;
    let instance = ["public", "G", "orders", "127.0.0.1", &own.to_string(), "version=v2"];
    let Some(mut register) = java("pilotfish.nacos.Register", port, &instance, folder.path()) else { return };
    register.until_printed("registered").await;
    until_endpoint(&server, "it registered", own, true).await;
    discover.until_printed(&format!("127.0.0.1:{own} {{version=v2}}")).await;
    register.kill().await;
    until_endpoint(&server, "it is gone with its connection", own, false).await;
    eventually("the subscriber knows", || async {
        let printed = discover.printed();
        let last = printed.lines().rfind(|line| line.starts_with("instances ")).unwrap_or_default();
        if last == "instances []" { Ok(()) } else { Err(printed) }
    })
    .await;
}
