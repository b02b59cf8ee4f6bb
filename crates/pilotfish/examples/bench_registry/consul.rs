//! Consul: the stand-in of the testkit, as a process of its own.

use super::{Product, service};
use anyhow::{Context, Result, bail};
use http::Method;
use pilotfish_registry_client::{Connector, HttpClient, HttpRequest, Server};
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub(super) struct Consul {
    process: Child,
    server: Server,
    client: HttpClient,
}

impl Drop for Consul {
    fn drop(&mut self) {
        // It is gone already where this fails.
        let _ = self.process.kill();
    }
}

impl Consul {
    pub(super) async fn start() -> Result<Self> {
        let port = pilotfish_testkit::real::free_port();
        // `cargo xtask bench` builds it beside this example.
        let folder =
            std::env::current_exe()?.ancestors().nth(2).context("no folder of executables")?.to_owned();
        let mut command = Command::new(folder.join("consul"));
        command.args(["--http", &format!("127.0.0.1:{port}")]).stdout(Stdio::null());
        let process = command.spawn().context("the stand-in for Consul is missing")?;
        let server = Server { host: "127.0.0.1".into(), port };
        let consul = Self { process, server, client: HttpClient::new(Connector::default(), 32) };
        let began = Instant::now();
        while consul.client.send(&consul.server, HttpRequest::get("/v1/status/leader")).await.is_err() {
            if began.elapsed() > Duration::from_secs(10) {
                bail!("the stand-in for Consul does not answer");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(consul)
    }
}

impl Product for Consul {
    fn registry(&self) -> String {
        format!("consul=http://{}", self.server)
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let (name, node) = (service(number), format!("node-{index}"));
        let entry = json!({
            "Node": node,
            "Address": format!("10.0.0.{}", index + 1),
            "Service": {"ID": format!("{name}-{index}"), "Service": name, "Address": address, "Port": 8080,
                "Meta": {"protocol": "http", "version": "v1"}},
        });
        let request = HttpRequest {
            method: Method::PUT,
            body: entry.to_string().into(),
            ..HttpRequest::get("/v1/catalog/register")
        };
        let answer = self.client.send(&self.server, request).await?;
        if answer.status.is_success() { Ok(()) } else { bail!("Consul answered {}", answer.status) }
    }

    async fn watch(&self) -> Result<mpsc::UnboundedReceiver<(String, Instant)>> {
        let (say, seen) = mpsc::unbounded_channel();
        let (client, server) = (self.client.clone(), self.server.clone());
        tokio::spawn(async move {
            let mut index = 0u64;
            loop {
                let path = format!("/v1/health/service/{}?index={index}&wait=60s", service(0));
                let request = HttpRequest { timeout: Duration::from_secs(70), ..HttpRequest::get(path) };
                let Ok(answer) = client.send(&server, request).await else { return };
                let header = answer.headers.get("X-Consul-Index").and_then(|value| value.to_str().ok());
                index = header.and_then(|value| value.parse().ok()).unwrap_or(0);
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                if say.send((text, Instant::now())).is_err() {
                    return;
                }
            }
        });
        Ok(seen)
    }
}
