//! Nodes of first requests: the stored part, and the resulting proxy.

use crate::input::Input;
use pilotfish_proto::envoy::config::core::v3::{Extension, Locality, Node};
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use pilotfish_proto::{ResourceType, Struct, Value, ValueKind};
use pilotfish_translate::{MAX_ADDRESSES, MAX_LABELS, Proxy, Translator};
use pilotfish_xds::{
    ClientId, ConnectError, Fanout, NoRecorder, PeerInfo, Protocol, Resource, ResourceSource, Snapshot,
    StreamLimits, ViewId,
};
use prost::Message;
use std::sync::Arc;
use std::time::Instant;

const KEYS: &[&str] = &[
    "LABELS",
    "STATIC_LABELS",
    "INSTANCE_IPS",
    "NAMESPACE",
    "CLUSTER_ID",
    "NETWORK",
    "INTERCEPTION_MODE",
    "ISTIO_VERSION",
    "GENERATOR",
    "HTTP10",
    "IDLE_TIMEOUT",
    "MESH_ID",
    "NODE_NAME",
    "REQUESTED_NETWORK_VIEW",
    "SERVICE_ACCOUNT",
    "DNS_AUTO_ALLOCATE",
    "DNS_CAPTURE",
    "DUAL_STACK",
    "PROXY_CONFIG",
    "UNPRIVILEGED_POD",
    "TLS_CLIENT_ROOT_CERT",
    "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY",
    "INBOUND_LISTENER_EXACT_BALANCE",
    "app",
    "proxyHeaders",
    "concurrency",
    "tracing",
    "discoveryAddress",
    "image",
];
const TEXTS: &[&str] = &[
    "true",
    "1",
    "false",
    "shop",
    "grpc",
    "NONE",
    "TPROXY",
    "10.0.0.1,::1",
    "10.0.0.1,x",
    "Kubernetes",
    "n1,n2",
    "1.29.1",
    "5s",
    "",
    ",",
    "web",
    "{}",
    "0.0.0.0",
    "istio.stats",
    "envoy.filters.network.dubbo_proxy",
];
const IDS: &[&str] = &[
    "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local",
    "router~10.0.0.2~edge.edge~edge.svc.cluster.local",
    "sidecar~~a.b~b.svc",
    "sidecar~::1~a~",
    "ztunnel~10.0.0.1~a.b~c",
    "~~~",
    "a",
];

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_raw = input.flag();
    let raw = if is_raw { input.all() } else { &[] };
    let node = node(&mut input);
    let fanout =
        Fanout::new(Arc::new(Nodes(Translator::new())), Arc::new(NoRecorder), StreamLimits::default());
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let request = if is_raw { raw.to_vec() } else { request(protocol, node.clone()) };
        let stream = fanout.open(protocol, PeerInfo::default());
        let mut stream = stream.lock();
        let now = Instant::now();
        if let Err(error) = stream.on_message(&request, now) {
            assert!(!error.to_string().is_empty());
        }
        let _ = stream.on_message(&request, now);
        let responses = (0..8).map_while(|_| stream.poll_response(now));
        assert!(responses.count() < 4, "there are no resources");
        if let Some(status) = stream.status() {
            assert!(status.node.encoded_len() <= request.len(), "more is kept than was sent");
        }
    }
    assert_eq!((fanout.stream_count(), fanout.group_count()), (0, 0));
}

fn request(protocol: Protocol, node: Node) -> Vec<u8> {
    let (node, type_url) = (Some(node), ResourceType::Cluster.type_url().to_owned());
    match protocol {
        Protocol::Sotw => DiscoveryRequest { node, type_url, ..Default::default() }.encode_to_vec(),
        Protocol::Delta => DeltaDiscoveryRequest { node, type_url, ..Default::default() }.encode_to_vec(),
    }
}

fn node(input: &mut Input<'_>) -> Node {
    let id = match input.below(8) {
        0 => input.text(40),
        _ => input.pick(IDS).unwrap_or_default().to_owned(),
    };
    let fields = (0..input.below(12)).map(|_| pair(4, input)).collect();
    let extension = |input: &mut Input<'_>| Extension {
        name: input.pick(TEXTS).unwrap_or_default().to_owned(),
        ..Default::default()
    };
    let locality = || Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() };
    Node {
        id,
        cluster: input.text(6),
        metadata: Some(Struct { fields }),
        locality: input.flag().then(locality),
        user_agent_name: input
            .pick(&["envoy", "gRPC Python", "grpc-java", ""])
            .unwrap_or_default()
            .to_owned(),
        extensions: (0..input.below(4)).map(|_| extension(input)).collect(),
        ..Default::default()
    }
}

fn pair(depth: usize, input: &mut Input<'_>) -> (String, Value) {
    let key = if input.once_in(12) { input.text(8) } else { input.pick(KEYS).unwrap_or_default().to_owned() };
    (key, value(depth, input))
}

fn value(depth: usize, input: &mut Input<'_>) -> Value {
    let kind = match input.below(if depth == 0 { 6 } else { 9 }) {
        0 => ValueKind::NullValue(0),
        1 => ValueKind::NumberValue(f64::from(input.number()) / 3.0),
        2 => ValueKind::BoolValue(input.flag()),
        3 => ValueKind::StringValue(input.text(30)),
        4 | 5 => ValueKind::StringValue(input.pick(TEXTS).unwrap_or_default().to_owned()),
        6 | 7 => ValueKind::StructValue(Struct {
            fields: (0..input.below(5)).map(|_| pair(depth - 1, input)).collect(),
        }),
        _ => {
            let values = (0..input.below(5)).map(|_| value(depth - 1, input)).collect();
            ValueKind::ListValue(pilotfish_proto::ListValue { values })
        }
    };
    Value { kind: Some(kind) }
}

/// A source that knows proxies and has no resources.
struct Nodes(Translator);

struct Nothing;

impl Snapshot<pilotfish_translate::Client> for Nothing {
    fn revision(&self) -> u64 {
        1
    }

    fn view(&self, _: &pilotfish_translate::Client, _: ResourceType) -> Option<ViewId> {
        None
    }

    fn names(&self, _: ViewId) -> Arc<[Arc<str>]> {
        Arc::default()
    }

    fn get(&self, _: ViewId, _: &str) -> Option<Resource> {
        None
    }
}

impl ResourceSource for Nodes {
    type Client = pilotfish_translate::Client;
    type Snapshot<'a> = Nothing;

    fn ready(&self) -> bool {
        true
    }

    fn reads_extension(&self, name: &str) -> bool {
        Proxy::reads_extension(name)
    }

    fn connect(&self, node: &Node, _: &PeerInfo) -> Result<Self::Client, ConnectError> {
        let proxy = Proxy::from_node(node);
        assert_eq!(proxy, Proxy::from_node(node), "a node makes one proxy");
        let proxy = proxy.map_err(|error| ConnectError::InvalidArgument(error.to_string()))?;
        assert!(!proxy.ips.is_empty() && proxy.ips.len() <= MAX_ADDRESSES);
        assert!(proxy.labels.len() <= MAX_LABELS && proxy.static_labels.len() <= MAX_LABELS);
        assert!(proxy.claimed_identity().namespace == proxy.namespace);
        Ok(self.0.connect(proxy))
    }

    fn client_id(&self, client: &Self::Client) -> ClientId {
        ClientId(client.id().0)
    }

    fn snapshot(&self) -> Nothing {
        Nothing
    }
}
