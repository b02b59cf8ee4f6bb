//! MCP: another Pilotfish, which reads ServiceEntries from files and gives them on.

use super::grpc::Connection;
use super::{Options, Product, Seen, address, service};
use anyhow::Result;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_testkit::real::Pilotfish;
use prost::Message;
use std::fmt::Write as _;
use std::time::Instant;
use tempfile::TempDir;
use tokio::sync::mpsc;

const STREAM: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const SERVICE_ENTRY: &str = "networking.istio.io/v1/ServiceEntry";
const NODE: &str = "sidecar~127.0.0.1~bench.default~default.svc.cluster.local";
/// Services in one file; service 0 has one of its own.
const IN_FILE: usize = 100;

pub(super) struct Mcp {
    server: Pilotfish,
    folder: TempDir,
    options: Options,
}

impl Mcp {
    pub(super) async fn start(options: &Options) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mesh = folder.path().to_string_lossy().into_owned();
        let numbers: Vec<usize> = (1..options.services).collect();
        for (file, numbers) in numbers.chunks(IN_FILE).enumerate() {
            let entries: Vec<String> = numbers.iter().map(|number| entry(options, *number, None)).collect();
            std::fs::write(folder.path().join(format!("entries-{file}.yaml")), entries.join("---\n"))?;
        }
        std::fs::write(folder.path().join("entry.yaml"), entry(options, 0, None))?;
        let binary = options.pilotfish.to_string_lossy();
        let server = Pilotfish::launch(&binary, &[&mesh, "--serve-configuration", "anyone"]);
        server.ready().await;
        Ok(Self { server, folder, options: options.clone() })
    }
}

/// A ServiceEntry, with another address of its first endpoint.
fn entry(options: &Options, number: usize, first: Option<&str>) -> String {
    let name = service(number);
    let mut text = format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{name: {name}, namespace: default}}\nspec:\n  hosts: [{name}.bench.internal]\n  \
         location: MESH_INTERNAL\n  resolution: STATIC\n  \
         ports: [{{number: 8080, name: http, protocol: HTTP}}]\n  endpoints:\n"
    );
    for index in 0..options.instances {
        let own = address(options, number, index);
        let address = if index == 0 { first.unwrap_or(&own) } else { &own };
        // A String takes all that is written.
        let _ = writeln!(text, "  - {{address: {address}, labels: {{version: v1}}}}");
    }
    text
}

impl Product for Mcp {
    fn registry(&self) -> String {
        format!("mcp=xds://127.0.0.1:{}", self.server.xds_port())
    }

    /// All are in files from the start.
    async fn fill(&self, _: &Options) -> Result<()> {
        Ok(())
    }

    async fn register(&self, number: usize, _: usize, address: &str) -> Result<()> {
        let new = self.folder.path().join("new");
        std::fs::write(&new, entry(&self.options, number, Some(address)))?;
        Ok(std::fs::rename(new, self.folder.path().join("entry.yaml"))?)
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        let (send, requests) = mpsc::unbounded_channel();
        let api = Value { kind: Some(ValueKind::StringValue("api".into())) };
        let metadata = Struct { fields: [("GENERATOR".to_owned(), api)].into() };
        let node = Node { id: NODE.into(), metadata: Some(metadata), ..Node::default() };
        let request = DeltaDiscoveryRequest { type_url: SERVICE_ENTRY.into(), ..Default::default() };
        let first = DeltaDiscoveryRequest { node: Some(node), ..request.clone() };
        send.send(first.encode_to_vec().into())?;
        let mut responses = Connection::new(self.server.xds_port())?.stream(STREAM, requests).await?;
        tokio::spawn(async move {
            // The measurement ends when nothing more is said.
            while let Ok(Some(message)) = responses.message().await {
                let at = Instant::now();
                let Ok(response) = DeltaDiscoveryResponse::decode(&*message) else { return };
                if say.send((String::from_utf8_lossy(&message).into_owned(), at)).is_err() {
                    return;
                }
                let taken = DeltaDiscoveryRequest { response_nonce: response.nonce, ..request.clone() };
                if send.send(taken.encode_to_vec().into()).is_err() {
                    return;
                }
            }
        });
        Ok(seen)
    }
}
