//! A proxy as a bare client of delta xDS, which shows what it is sent.

use bytes::Bytes;
use pilotfish_bench::connection::Connection;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint::HostIdentifier};
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_testkit::real::{LIMIT, Pilotfish};
use prost::Message;
use std::net::SocketAddr;

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

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
    /// Connects with a node and asks for the endpoints of clusters.
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

    fn acknowledge(&mut self, response: &DeltaDiscoveryResponse) {
        self.send(&DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        });
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
