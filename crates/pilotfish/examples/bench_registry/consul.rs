//! Consul: the stand-in of the testkit, as a process of its own.

use super::http_api::HttpApi;
use super::process::Process;
use super::{Product, Seen, service};
use anyhow::Result;
use http::Method;
use pilotfish_connect::HttpRequest;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub(super) struct Consul {
    _process: Process,
    api: HttpApi,
}

impl Consul {
    pub(super) async fn start() -> Result<Self> {
        let port = pilotfish_testkit::real::free_port();
        let process = Process::stand_in("consul", &["--http".into(), format!("127.0.0.1:{port}")])?;
        let api = HttpApi::new(port);
        api.until_answered(Method::GET, "/v1/status/leader", "").await?;
        Ok(Self { _process: process, api })
    }
}

impl Product for Consul {
    fn registry(&self) -> String {
        format!("consul=http://{}", self.api.at)
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let (name, node) = (service(number), format!("node-{index}"));
        let entry = json!({
            "Node": node,
            "Address": format!("10.0.0.{}", index + 1),
            "Service": {"ID": format!("{name}-{index}"), "Service": name, "Address": address, "Port": 8080,
                "Meta": {"protocol": "http", "version": "v1"}},
        });
        self.api.send(Method::PUT, "/v1/catalog/register", entry.to_string()).await.map(drop)
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        let api = self.api.clone();
        tokio::spawn(async move {
            let mut index = 0u64;
            loop {
                let path = format!("/v1/health/service/{}?index={index}&wait=60s", service(0));
                let request = HttpRequest { timeout: Duration::from_secs(70), ..HttpRequest::get(path) };
                // The measurement ends when nothing more is said.
                let Ok(answer) = api.ask(request).await else { return };
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
