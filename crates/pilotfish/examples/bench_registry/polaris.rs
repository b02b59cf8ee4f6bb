//! Polaris: the stand-in of the testkit, as a process of its own. It has no push: both clients ask once a
//! second.

use super::grpc::Connection;
use super::http_api::HttpApi;
use super::process::Process;
use super::{Product, Seen, service};
use anyhow::Result;
use http::Method;
use pilotfish_testkit::real::free_port;
use prost::Message;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const INTERVAL: Duration = Duration::from_secs(1);
const NAMESPACE: &str = "bench";
/// `DiscoverRequest.type` of a service's instances.
const INSTANCES: i32 = 1;

/// `v1.DiscoverRequest`, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct DiscoverRequest {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    service: Option<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(message, optional, tag = "1")]
    name: Option<String>,
    #[prost(message, optional, tag = "2")]
    namespace: Option<String>,
}

pub(super) struct Polaris {
    _process: Process,
    api: HttpApi,
    grpc: u16,
}

impl Polaris {
    pub(super) async fn start() -> Result<Self> {
        let (http, grpc) = (free_port(), free_port());
        let ports = [("--http-port", http), ("--grpc-port", grpc)];
        let arguments: Vec<String> = ports.iter().map(|(name, port)| format!("{name}={port}")).collect();
        let process = Process::stand_in("polaris", &arguments)?;
        let api = HttpApi::new(http);
        api.until_answered(Method::GET, "/naming/v1/namespaces?limit=1", "").await?;
        Ok(Self { _process: process, api, grpc })
    }
}

impl Product for Polaris {
    fn registry(&self) -> String {
        format!("polaris=grpc://127.0.0.1:{}?namespaces={NAMESPACE}&interval={INTERVAL:?}", self.grpc)
    }

    async fn register(&self, number: usize, _: usize, address: &str) -> Result<()> {
        let instances = json!([{
            "service": service(number), "namespace": NAMESPACE, "host": address, "port": 8080,
            "protocol": "http",
            "metadata": {"version": "v1"},
        }]);
        self.api.send(Method::POST, "/naming/v1/instances", instances.to_string()).await.map(drop)
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        let (ask, questions) = mpsc::unbounded_channel();
        let wanted = Service { name: Some(service(0)), namespace: Some(NAMESPACE.into()) };
        let question = DiscoverRequest { kind: INSTANCES, service: Some(wanted) }.encode_to_vec();
        ask.send(question.clone().into())?;
        let mut answers = Connection::new(self.grpc)?.stream("/v1.PolarisGRPC/Discover", questions).await?;
        tokio::spawn(async move {
            // The measurement ends when nothing more is said.
            while let Ok(Some(answer)) = answers.message().await {
                if say.send((String::from_utf8_lossy(&answer).into_owned(), Instant::now())).is_err() {
                    return;
                }
                tokio::time::sleep(INTERVAL).await;
                if ask.send(question.clone().into()).is_err() {
                    return;
                }
            }
        });
        Ok(seen)
    }
}
