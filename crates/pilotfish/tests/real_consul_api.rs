//! Clients of Consul that register with Pilotfish: py-consul and the npm package `consul` do, and another
//! Pilotfish reads it as a Consul agent.

use pilotfish_testkit::consul::Consul;
use pilotfish_testkit::real::{Pilotfish, Program, Tool, eventually, fetch, free_port};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

/// A Pilotfish that serves clients of Consul at this port.
fn server(port: u16, data: &Path) -> Pilotfish {
    server_with(port, data, &[])
}

/// The same with more arguments.
fn server_with(port: u16, data: &Path, more: &[&str]) -> Pilotfish {
    let registration = format!("127.0.0.1:{}", free_port());
    let (address, data) = (format!("127.0.0.1:{port}"), data.display().to_string());
    let own = ["--registration-address", &registration, "--consul-address", &address, "--data-dir", &data];
    Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &[&own, more].concat())
}

/// A Pilotfish that reads that one as a Consul agent.
fn reader(port: u16) -> Pilotfish {
    let registry = format!("consul=http://127.0.0.1:{port}?guard=off");
    Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &["--registry", &registry])
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consul_api").join(name)
}

fn python(program: &Path, server: u16, step: &str, port: u16) -> Command {
    let mut command = Command::new(program);
    command.arg(script("client.py")).arg(format!("127.0.0.1:{server}")).arg(step).arg(port.to_string());
    command
}

async fn ends_well(command: &mut Command) {
    let output = command.output().await.expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim() == "done", "{out}{err}");
}

/// An instance of the service `web` at an agent.
fn service(port: u16) -> Value {
    json!({"Node": "node-1", "Address": "127.0.0.1",
        "Service": {"Service": "web", "ID": "web-1", "Port": port, "Address": "127.0.0.1"}})
}

async fn put(port: u16, path: &str, body: &str) {
    let mut io = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    let head = format!("PUT {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    io.write_all(format!("{head}{body}").as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.expect("it answers");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
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
async fn py_consul_registers_and_another_pilotfish_reads_it() {
    let Some(program) = Tool::Python.find() else { return };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, own, nobody) = (free_port(), free_port(), free_port());
    let server = server(port, folder.path());
    server.ready().await;
    let reader = reader(port);
    ends_well(&mut python(&program, port, "register", own)).await;
    until_endpoint(&server, "it registered", own, true).await;
    until_endpoint(&reader, "another Pilotfish reads it as a Consul agent", own, true).await;
    let page = reader.page("/debug/endpointz").await.expect("it is served");
    assert!(page.contains("py.service.consul"), "{page}");
    ends_well(&mut python(&program, port, "checked", nobody)).await;
    ends_well(&mut python(&program, port, "leave", own)).await;
    until_endpoint(&server, "it has left", own, false).await;
    until_endpoint(&reader, "the other Pilotfish has seen it", own, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_program_is_critical_after_its_ttl() {
    let Some(program) = Tool::Python.find() else { return };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, own) = (free_port(), free_port());
    let server = server(port, folder.path());
    server.ready().await;
    let mut command = python(&program, port, "beat", own);
    let mut beating = Program::start(&mut command, folder.path().join("beat.log"));
    beating.until_printed("beaten").await;
    let critical = format!("http://127.0.0.1:{port}/v1/health/state/critical");
    beating.kill().await;
    eventually("its TTL is over", || async {
        let body = fetch(&critical).await?;
        if body.contains("\"TTL expired\"") { Ok(()) } else { Err(body) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_npm_package_consul_registers_and_watches() {
    let Some(packages) = Tool::NodePackages.find() else { return };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let port = free_port();
    let server = server(port, folder.path());
    server.ready().await;
    let mut node = Command::new("node");
    node.env("NODE_PATH", packages).arg(script("client.js")).arg(format!("127.0.0.1:{port}"));
    ends_well(&mut node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_consul_and_of_its_clients_are_one_service_while_they_move() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (port, old_instance, new_instance) = (free_port(), free_port(), free_port());
    let old = Consul::plain().await;
    old.register(&service(old_instance));
    let registry = format!("consul=http://{}?port=80&guard=off", old.address());
    let more = ["--registry", &registry, "--consul-service-port", "80"];
    let server = server_with(port, folder.path(), &more);
    server.ready().await;
    until_endpoint(&server, "the registry reads the old one", old_instance, true).await;
    let body = json!({"Name": "web", "ID": "web-2", "Address": "127.0.0.1", "Port": new_instance});
    put(port, "/v1/agent/service/register", &body.to_string()).await;
    until_endpoint(&server, "one has moved", new_instance, true).await;
    let page = server.json("/debug/endpointz").await;
    let shards = page["web.service.consul"]["default"]["Shards"].as_object().expect("one service");
    let ports: Vec<&Value> = shards
        .values()
        .flat_map(|shard| shard.as_array().expect("endpoints"))
        .map(|endpoint| &endpoint["ServicePortName"])
        .collect();
    assert_eq!((shards.len(), ports), (2, vec![&json!("tcp"); 2]), "{page}");
}
