//! Nacos: a real rnacos. Instances are ephemeral, registered by gRPC as Nacos's own clients do, and live as
//! long as the connection.

use super::grpc::Connection;
use super::{Product, Say, Seen, service};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use parking_lot::Mutex;
use pilotfish_testkit::real::{Rnacos, eventually};
use prost::Message;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const MISSING: &str = "rnacos is missing: run `cargo xtask tools rnacos`";
const GROUP: &str = "DEFAULT_GROUP";
const NAMESPACE: &str = "public";
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const REQUEST: &str = "/Request/request";

/// The one message of Nacos's gRPC (`nacos_grpc_service.proto`).
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, optional, tag = "2")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "3")]
    body: Option<prost_types::Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "3")]
    kind: String,
    #[prost(string, tag = "8")]
    client_ip: String,
    #[prost(map = "string, string", tag = "7")]
    headers: HashMap<String, String>,
}

fn payload(kind: &str, content: &Value) -> Vec<u8> {
    let metadata = Metadata { kind: kind.into(), ..Metadata::default() };
    let body = prost_types::Any { type_url: String::new(), value: content.to_string().into_bytes() };
    Payload { metadata: Some(metadata), body: Some(body) }.encode_to_vec()
}

/// Kind and content of a message.
fn open(message: &[u8]) -> Result<(String, Value)> {
    let payload = Payload::decode(message)?;
    let content = serde_json::from_slice(&payload.body.unwrap_or_default().value)?;
    Ok((payload.metadata.unwrap_or_default().kind, content))
}

pub(super) struct Nacos {
    server: Rnacos,
    connection: Connection,
    /// Receiver of the server's pushes.
    pushes: Arc<Mutex<Option<Say>>>,
}

impl Nacos {
    pub(super) async fn start() -> Result<Self> {
        let server = Rnacos::start(&[]).await.context(MISSING)?;
        let connection = Connection::new(server.grpc_port())?;
        let nacos = Self { server, connection, pushes: Arc::default() };
        nacos.connect().await?;
        Ok(nacos)
    }

    /// Introduces the connection, and answers what the server asks on it.
    async fn connect(&self) -> Result<()> {
        let (send, messages) = mpsc::unbounded_channel();
        let labels = json!({"source": "sdk", "module": "naming", "AppName": "bench"});
        let setup = json!({"clientVersion": "bench", "tenant": NAMESPACE, "labels": labels, "abilities": {}});
        send.send(Bytes::from(payload("ConnectionSetupRequest", &setup)))?;
        let (connection, pushes) = (self.connection.clone(), self.pushes.clone());
        tokio::spawn(async move {
            let mut stream = connection.stream("/BiRequestStream/requestBiStream", messages).await?;
            while let Some(message) = stream.message().await? {
                let at = Instant::now();
                let (kind, content) = open(&message)?;
                let answer = json!({
                    "requestId": content["requestId"], "resultCode": 200, "errorCode": 0, "success": true
                });
                send.send(Bytes::from(payload(&kind.replace("Request", "Response"), &answer)))?;
                if let Some(pushes) = &*pushes.lock() {
                    pushes.send((content.to_string(), at))?;
                }
            }
            anyhow::Ok(())
        });
        eventually("the connection is known", || async {
            self.call("HealthCheckRequest", &json!({})).await.map_err(|error| error.to_string())
        })
        .await;
        self.keep_alive();
        Ok(())
    }

    /// A server forgets a connection that is silent, and all its instances.
    fn keep_alive(&self) {
        let connection = self.connection.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(KEEP_ALIVE).await;
                // A failure here shows up in the measurement, too.
                let _ = connection.call(REQUEST, payload("HealthCheckRequest", &json!({}))).await;
            }
        });
    }

    async fn call(&self, kind: &str, content: &Value) -> Result<Value> {
        let (_, answer) = open(&self.connection.call(REQUEST, payload(kind, content)).await?)?;
        ensure!(answer["resultCode"] == 200, "{kind}: {answer}");
        Ok(answer)
    }
}

impl Product for Nacos {
    fn registry(&self) -> String {
        format!("nacos=http://127.0.0.1:{}", self.server.port())
    }

    async fn register(&self, number: usize, _: usize, address: &str) -> Result<()> {
        let instance = json!({
            "instanceId": null, "ip": address, "port": 8080, "weight": 1.0, "healthy": true, "enabled": true,
            "ephemeral": true,
            "clusterName": "DEFAULT", "serviceName": null, "metadata": {"version": "v1", "protocol": "http"},
        });
        let request = json!({
            "namespace": NAMESPACE, "groupName": GROUP, "serviceName": service(number),
            "type": "registerInstance",
            "instance": instance,
        });
        self.call("InstanceRequest", &request).await.map(drop)
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        *self.pushes.lock() = Some(say);
        let request = json!({
            "namespace": NAMESPACE, "groupName": GROUP, "serviceName": service(0), "subscribe": true,
            "clusters": "",
        });
        self.call("SubscribeServiceRequest", &request).await?;
        Ok(seen)
    }
}
