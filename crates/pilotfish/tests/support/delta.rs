//! A proxy as a bare client of delta xDS, which shows what it is sent.

use bytes::Bytes;
use pilotfish_bench::connection::Connection;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint::HostIdentifier};
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A connected proxy.
pub(crate) struct Proxy {
    connection: Connection,
}

/// The node of a sidecar with this id (`sidecar~IP~NAME.NS~NS.svc.DOMAIN`) and metadata of text.
pub(crate) fn node(id: &str, metadata: &[(&str, &str)]) -> Node {
    let field = |(key, value): &(&str, &str)| {
        let value = Value { kind: Some(ValueKind::StringValue((*value).to_owned())) };
        ((*key).to_owned(), value)
    };
    let metadata = Some(Struct { fields: metadata.iter().map(field).collect() });
    Node { id: id.to_owned(), metadata, ..Node::default() }
}

impl Proxy {
    /// Connects with a node and subscribes to the endpoints of clusters.
    pub(crate) async fn connect(
        pilotfish: &Pilotfish,
        node: Node,
        clusters: &[&str],
    ) -> anyhow::Result<Self> {
        Self::connect_to(pilotfish.xds_port(), node, clusters, &[]).await
    }

    /// The same at a port of loopback, with further headers.
    pub(crate) async fn connect_to(
        port: u16,
        node: Node,
        clusters: &[&str],
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let first = DeltaDiscoveryRequest {
            node: Some(node),
            type_url: ENDPOINTS.to_owned(),
            resource_names_subscribe: clusters.iter().map(|&name| name.to_owned()).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let first = vec![Bytes::from(first.encode_to_vec())];
        let connection = Connection::open_with(target, PATH, headers, first).await?;
        Ok(Self { connection })
    }

    /// Waits until the endpoints of a cluster are these, as `address:port weight`, sorted.
    pub(crate) async fn has_endpoints(&mut self, cluster: &str, wanted: &[&str]) {
        let mut last = Vec::new();
        let until = async {
            while let Some(message) = self.connection.next().await.expect("the stream goes on") {
                let response = DeltaDiscoveryResponse::decode(message).expect("it is a response");
                self.acknowledge(&response);
                for resource in response.resources.iter().filter(|resource| resource.name == cluster) {
                    let body = resource.resource.as_ref().expect("there is a resource");
                    last =
                        endpoints(&ClusterLoadAssignment::decode(&*body.value).expect("it is an assignment"));
                }
                if last == wanted {
                    return;
                }
            }
            panic!("the stream ended");
        };
        let done = tokio::time::timeout(LIMIT, until).await;
        assert!(done.is_ok(), "{cluster}: {last:?}, not {wanted:?}");
    }

    /// Waits until the stream is ended with an error, and gives it.
    pub(crate) async fn end(&mut self) -> anyhow::Error {
        let until = async {
            loop {
                match self.connection.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("the stream ended well"),
                    Err(error) => return error,
                }
            }
        };
        tokio::time::timeout(LIMIT, until).await.expect("the stream is ended")
    }

    /// Sends a request, whatever it is.
    pub(crate) fn send(&mut self, request: &DeltaDiscoveryRequest) {
        self.connection.send(&request.encode_to_vec()).expect("the stream is open");
    }

    /// Subscribes to all clusters, and from now on remembers everything that is pushed.
    pub(crate) fn record(mut self) -> Recorder {
        self.send(&DeltaDiscoveryRequest {
            type_url: CLUSTERS.to_owned(),
            ..DeltaDiscoveryRequest::default()
        });
        let record = Arc::new(Mutex::new(Record::default()));
        let shared = record.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(message)) = self.connection.next().await {
                let response = DeltaDiscoveryResponse::decode(message).expect("it is a response");
                self.acknowledge(&response);
                shared.lock().expect("no holder panics").take(&response);
            }
            shared.lock().expect("no holder panics").ended = true;
        });
        Recorder { record, task }
    }

    fn acknowledge(&mut self, response: &DeltaDiscoveryResponse) {
        self.send(&DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        });
    }
}

/// Everything that a stream was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Of each cluster, how many endpoints each push had; 0 when it was removed.
    pub(crate) endpoints: BTreeMap<String, Vec<usize>>,
    /// The clusters there are.
    pub(crate) clusters: BTreeSet<String>,
    /// Clusters that were taken away at any time.
    pub(crate) removed: Vec<String>,
    /// Whether the stream ended.
    pub(crate) ended: bool,
}

impl Record {
    fn take(&mut self, response: &DeltaDiscoveryResponse) {
        for resource in &response.resources {
            if response.type_url == CLUSTERS {
                self.clusters.insert(resource.name.clone());
                continue;
            }
            let body = resource.resource.as_ref().expect("there is a resource");
            let assignment = ClusterLoadAssignment::decode(&*body.value).expect("it is an assignment");
            self.endpoints.entry(resource.name.clone()).or_default().push(endpoints(&assignment).len());
        }
        for name in &response.removed_resources {
            if response.type_url == CLUSTERS {
                self.clusters.remove(name);
                self.removed.push(name.clone());
            } else {
                self.endpoints.entry(name.clone()).or_default().push(0);
            }
        }
    }

    /// Asserts that nothing was ever taken away: no cluster, no stream, and no endpoint unless there are at
    /// least `least` left.
    pub(crate) fn lost_nothing(&self, act: &str, least: &BTreeMap<String, usize>) {
        assert!(!self.ended, "{act}: the stream ended");
        assert!(self.removed.is_empty(), "{act}: clusters were taken away: {:?}", self.removed);
        for (cluster, pushes) in &self.endpoints {
            let least = least.get(cluster).copied().unwrap_or(usize::MAX);
            let mut last = 0;
            for count in pushes {
                assert!(*count >= last.min(least), "{act}: {cluster} was pushed with {pushes:?} endpoints");
                last = *count;
            }
        }
    }
}

/// A proxy that remembers everything that it is pushed.
pub(crate) struct Recorder {
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(crate) fn so_far(&self) -> Record {
        self.record.lock().expect("no holder panics").clone()
    }

    /// Waits until the newest push of a cluster has so many endpoints.
    pub(crate) async fn has(&self, cluster: &str, count: usize) {
        eventually(&format!("{count} endpoints of {cluster} are pushed"), || async {
            let record = self.so_far();
            let last = record.endpoints.get(cluster).and_then(|pushes| pushes.last()).copied();
            if last == Some(count) { Ok(()) } else { Err(record) }
        })
        .await;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn endpoints(assignment: &ClusterLoadAssignment) -> Vec<String> {
    use pilotfish_proto::envoy::config::core::v3::{address::Address, socket_address::PortSpecifier};
    let all = assignment.endpoints.iter().flat_map(|locality| &locality.lb_endpoints);
    let mut texts: Vec<String> = all
        .filter_map(|endpoint| {
            let Some(HostIdentifier::Endpoint(found)) = &endpoint.host_identifier else { return None };
            let Some(Address::SocketAddress(address)) = &found.address.as_ref()?.address else { return None };
            let Some(PortSpecifier::PortValue(port)) = address.port_specifier else { return None };
            let weight = endpoint.load_balancing_weight.unwrap_or_default();
            Some(format!("{}:{port} {weight}", address.address))
        })
        .collect();
    texts.sort();
    texts
}
