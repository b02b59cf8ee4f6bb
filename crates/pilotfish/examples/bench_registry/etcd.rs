//! etcd: a real one, by its JSON gateway.

use super::{Product, service};
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::TryStreamExt;
use http::Method;
use http_body_util::BodyExt;
use pilotfish_registry_client::{Connector, HttpClient, HttpRequest, Server};
use pilotfish_testkit::real::{Tool, free_port};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub(super) struct Etcd {
    process: Child,
    server: Server,
    client: HttpClient,
    _data: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It is gone already where this fails.
        let _ = self.process.kill();
    }
}

impl Etcd {
    pub(super) async fn start() -> Result<Self> {
        let etcd = Tool::Etcd.find().context("etcd is missing: run `cargo xtask tools etcd`")?;
        let (port, peer, data) = (free_port(), free_port(), tempfile::tempdir()?);
        let mut command = Command::new(etcd);
        command
            .arg("--data-dir")
            .arg(data.path())
            .args(["--unsafe-no-fsync", "--quota-backend-bytes=2147483648"]);
        for (name, port) in [("client", port), ("peer", peer)] {
            let url = format!("http://127.0.0.1:{port}");
            command.arg(format!("--listen-{name}-urls={url}"));
            let advertised =
                if name == "client" { "advertise-client-urls" } else { "initial-advertise-peer-urls" };
            command.arg(format!("--{advertised}={url}"));
        }
        command.arg(format!("--initial-cluster=default=http://127.0.0.1:{peer}"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let server = Server { host: "127.0.0.1".into(), port };
        let etcd = Self { process, server, client: HttpClient::new(Connector::default(), 32), _data: data };
        let began = Instant::now();
        while etcd.ask("/v3/maintenance/status", &json!({})).await.is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                bail!("etcd does not answer");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(etcd)
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<()> {
        let request =
            HttpRequest { method: Method::POST, body: body.to_string().into(), ..HttpRequest::get(path) };
        let answer = self.client.send(&self.server, request).await?;
        if answer.status.is_success() { Ok(()) } else { bail!("etcd answered {}", answer.status) }
    }
}

fn key(number: usize) -> String {
    format!("/services/{}/", service(number))
}

impl Product for Etcd {
    fn registry(&self) -> String {
        format!("etcd=http://{}", self.server)
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let key = format!("{}instance-{index}", key(number));
        let value =
            json!({"address": address, "port": 8080, "protocol": "http", "metadata": {"version": "v1"}});
        let body =
            json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value.to_string())});
        self.ask("/v3/kv/put", &body).await
    }

    async fn watch(&self) -> Result<mpsc::UnboundedReceiver<(String, Instant)>> {
        let (say, seen) = mpsc::unbounded_channel();
        let end = key(0).replace("0/", "00");
        let body = json!({"create_request": {"key": BASE64_STANDARD.encode(key(0)), "range_end": BASE64_STANDARD.encode(end)}});
        let stream = tokio::net::TcpStream::connect((self.server.host.as_str(), self.server.port)).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = http::Request::post("/v3/watch").header("host", self.server.to_string());
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
