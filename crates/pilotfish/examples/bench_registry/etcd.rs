//! etcd: a real one, by its JSON gateway.

use super::http_api::HttpApi;
use super::process::Process;
use super::{Product, Seen, service};
use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::TryStreamExt;
use http::Method;
use http_body_util::BodyExt;
use pilotfish_testkit::real::{Tool, free_port};
use serde_json::json;
use std::time::Instant;
use tokio::process::Command;
use tokio::sync::mpsc;

pub(super) struct Etcd {
    _process: Process,
    api: HttpApi,
}

impl Etcd {
    pub(super) async fn start() -> Result<Self> {
        let etcd = Tool::Etcd.find().context("etcd is missing: run `cargo xtask tools etcd`")?;
        let (port, peer) = (free_port(), free_port());
        let process = Process::start(|folder| {
            let mut command = Command::new(etcd);
            command
                .arg("--data-dir")
                .arg(folder.path().join("data"))
                .args(["--unsafe-no-fsync", "--quota-backend-bytes=2147483648"]);
            for (name, port) in [("client", port), ("peer", peer)] {
                let url = format!("http://127.0.0.1:{port}");
                command.arg(format!("--listen-{name}-urls={url}"));
                let advertised =
                    if name == "client" { "advertise-client-urls" } else { "initial-advertise-peer-urls" };
                command.arg(format!("--{advertised}={url}"));
            }
            command.arg(format!("--initial-cluster=default=http://127.0.0.1:{peer}"));
            Ok(command)
        })?;
        let api = HttpApi::new(port);
        api.until_answered(Method::POST, "/v3/maintenance/status", "{}").await?;
        Ok(Self { _process: process, api })
    }
}

fn key(number: usize) -> String {
    format!("/services/{}/", service(number))
}

impl Product for Etcd {
    fn registry(&self) -> String {
        format!("etcd=http://{}", self.api.at)
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let key = format!("{}instance-{index}", key(number));
        let value =
            json!({"address": address, "port": 8080, "protocol": "http", "metadata": {"version": "v1"}});
        let body =
            json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value.to_string())});
        self.api.send(Method::POST, "/v3/kv/put", body.to_string()).await.map(drop)
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        let end = key(0).replace("0/", "00");
        let body = json!({"create_request": {
            "key": BASE64_STANDARD.encode(key(0)), "range_end": BASE64_STANDARD.encode(end)
        }});
        let stream = tokio::net::TcpStream::connect((self.api.at.host.as_str(), self.api.at.port)).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = http::Request::post("/v3/watch").header("host", self.api.at.to_string());
        let answer = sender.send_request(request.body(body.to_string())?).await?;
        tokio::spawn(async move {
            let mut data = answer.into_body().into_data_stream();
            while let Ok(Some(bytes)) = data.try_next().await {
                // Values are Base64 in the JSON of the gateway, one message in each chunk.
                let text = String::from_utf8_lossy(&bytes);
                let values = text.split("\"value\":\"").skip(1).filter_map(|rest| rest.split('"').next());
                let values =
                    values.filter_map(|value| BASE64_STANDARD.decode(value).ok()).flatten().collect();
                let text = String::from_utf8(values).unwrap_or_default();
                if say.send((text, Instant::now())).is_err() {
                    return;
                }
            }
            drop(sender);
        });
        Ok(seen)
    }
}
