//! Stand-in for istiod: serves recorded resources over delta ADS in plaintext, or over TLS to workloads with
//! a token, and the debug pages that list its proxies.

use crate::cases::{Case, ProxyEntry};
use crate::consul::{ConsulTls, acceptor};
use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD as BASE64, Engine};
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use pilotfish_proto::{Any, ResourceType, ValueKind, pool, to_json};
use prost::Message;
use prost_reflect::{DynamicMessage, ReflectMessage, Value as Reflected};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Kinds of recordings with their types.
const KINDS: [(&str, ResourceType); 6] = [
    ("clusters", ResourceType::Cluster),
    ("endpoints", ResourceType::Endpoint),
    ("listeners", ResourceType::Listener),
    ("routes", ResourceType::Route),
    ("extensions", ResourceType::ExtensionConfig),
    ("names", ResourceType::NameTable),
];

/// A proxy that the stand-in serves.
#[derive(Clone, Debug)]
pub struct ServedProxy {
    pub node: Node,
    /// Listeners that a client of gRPC subscribes to.
    pub listeners: Option<Vec<String>>,
    resources: Encoded,
}

/// Resources by type URL and name.
type Encoded = BTreeMap<&'static str, BTreeMap<String, Any>>;

impl ServedProxy {
    /// Proxy of a case with its recording.
    ///
    /// # Errors
    /// When there is no recording, or a resource in it is no message of Envoy's API.
    pub fn of(case: &Case, proxy: &ProxyEntry) -> Result<Self> {
        Self::new(proxy.node(), proxy.listeners.clone(), &case.golden(proxy)?)
    }

    /// Proxy with resources by kind and name.
    ///
    /// # Errors
    /// When a resource is no message of Envoy's API.
    pub fn new(node: Node, listeners: Option<Vec<String>>, resources: &Value) -> Result<Self> {
        let mut all = Encoded::new();
        for (kind, ty) in KINDS {
            for (name, resource) in resources[kind].as_object().into_iter().flatten() {
                let encoded = encode(ty.type_url(), resource).with_context(|| format!("{kind} {name}"))?;
                all.entry(ty.type_url()).or_default().insert(name.clone(), encoded);
            }
        }
        Ok(Self { node, listeners, resources: all })
    }
}

/// State of the servers.
struct Served {
    proxies: Vec<ServedProxy>,
    refused: BTreeSet<String>,
    nodes: Mutex<Vec<Node>>,
    tls: Option<IstiodTls>,
}

/// TLS of the stand-in, and the tokens that it accepts.
pub struct IstiodTls {
    /// Certificate of the server, and its key.
    pub certificate: (String, String),
    /// Tokens by service account, as `namespace/name`.
    pub tokens: BTreeMap<String, String>,
}

impl IstiodTls {
    fn acceptor(&self) -> TlsAcceptor {
        let (chain, key) = self.certificate.clone();
        acceptor(&ConsulTls { chain, key, client_root: None, http2: true })
    }

    /// True if the token is that of the service account of the node.
    fn accepts(&self, node: &Node, authorization: &str) -> bool {
        let fields = node.metadata.clone().unwrap_or_default().fields;
        let text = |name: &str| match fields.get(name).and_then(|value| value.kind.clone()) {
            Some(ValueKind::StringValue(text)) => text,
            _ => String::new(),
        };
        let account = format!("{}/{}", text("NAMESPACE"), text("SERVICE_ACCOUNT"));
        let token = self.tokens.get(&account);
        token.is_some_and(|token| authorization.strip_prefix("Bearer ") == Some(token))
    }
}

impl Served {
    /// Proxy of a node. Several may have one id and differ in their metadata.
    fn proxy(&self, node: &Node) -> Option<&ServedProxy> {
        let fields = |node: &Node| node.metadata.clone().unwrap_or_default().fields;
        let asked = fields(node);
        let is_same =
            |proxy: &&ServedProxy| fields(&proxy.node).iter().all(|it| asked.get(it.0) == Some(it.1));
        let of_id = self.proxies.iter().filter(|proxy| proxy.node.id == node.id);
        let first = of_id.clone().next();
        // The one with most metadata: that of others is a part of it.
        let most = of_id.filter(is_same).max_by_key(|proxy| fields(&proxy.node).len());
        most.or(first).filter(|_| !self.refused.contains(&node.id))
    }
}

/// Running servers. Dropping it stops them.
pub struct Istiod {
    pub xds: SocketAddr,
    pub debug: SocketAddr,
    served: Arc<Served>,
    tasks: [JoinHandle<()>; 2],
}

impl Istiod {
    /// Serves the proxies on free ports of loopback; those whose node id is in `refused` are listed and
    /// refused.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(proxies: Vec<ServedProxy>, refused: &[&str]) -> Result<Self> {
        Self::start_with(proxies, refused, None).await
    }

    /// Variant of [`Self::start`] whose xDS port has TLS.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start_with(
        proxies: Vec<ServedProxy>,
        refused: &[&str],
        tls: Option<IstiodTls>,
    ) -> Result<Self> {
        let xds = TcpListener::bind("127.0.0.1:0").await?;
        let debug = TcpListener::bind("127.0.0.1:0").await?;
        let served = Arc::new(Served {
            proxies,
            refused: refused.iter().map(|id| (*id).to_owned()).collect(),
            nodes: Mutex::default(),
            tls,
        });
        Ok(Self {
            xds: xds.local_addr()?,
            debug: debug.local_addr()?,
            tasks: [
                tokio::spawn(accept(xds, served.clone(), serve_xds)),
                tokio::spawn(accept(debug, served.clone(), serve_page)),
            ],
            served,
        })
    }

    /// Nodes of all streams so far.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        self.served.nodes.lock().clone()
    }
}

impl Drop for Istiod {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn accept<F>(listener: TcpListener, served: Arc<Served>, serve: fn(TcpStream, Arc<Served>) -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    while let Ok((socket, _)) = listener.accept().await {
        let serving = serve(socket, served.clone());
        // Errors of a connection appear on its client.
        tokio::spawn(async move { drop(serving.await) });
    }
}

async fn serve_xds(socket: TcpStream, served: Arc<Served>) -> Result<()> {
    socket.set_nodelay(true)?;
    match &served.tls {
        Some(tls) => serve_streams(tls.acceptor().accept(socket).await?, served.clone()).await,
        None => serve_streams(socket, served).await,
    }
}

async fn serve_streams<T>(socket: T, served: Arc<Served>) -> Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = h2::server::handshake(socket).await?;
    while let Some(opened) = connection.accept().await {
        let (request, respond) = opened?;
        let stream = serve_stream(request, respond, served.clone());
        tokio::spawn(async move { drop(stream.await) });
    }
    Ok(())
}

async fn serve_stream(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    served: Arc<Served>,
) -> Result<()> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default().to_owned();
    let mut requests = request.into_body();
    let response = http::Response::builder().header("content-type", "application/grpc").body(())?;
    let mut responses = respond.send_response(response, false)?;
    let mut part = BytesMut::new();
    let mut proxy = None;
    while let Some(data) = requests.data().await {
        let data = data?;
        requests.flow_control().release_capacity(data.len())?;
        part.extend_from_slice(&data);
        while let Some(message) = take_message(&mut part) {
            let request = DeltaDiscoveryRequest::decode(message)?;
            if let Some(node) = &request.node {
                served.nodes.lock().push(node.clone());
                let is_accepted = served.tls.as_ref().is_none_or(|tls| tls.accepts(node, &authorization));
                proxy = served.proxy(node).filter(|_| is_accepted);
            }
            let Some(proxy) = proxy else {
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("16"));
                trailers.insert("grpc-message", http::HeaderValue::from_static("authentication failure"));
                return Ok(responses.send_trailers(trailers)?);
            };
            if let Some(response) = answer(&request, &proxy.resources) {
                responses.send_data(framed(&response.encode_to_vec()), false)?;
            }
        }
    }
    Ok(())
}

/// Response to a subscription; `None` to an ACK.
fn answer(request: &DeltaDiscoveryRequest, all: &Encoded) -> Option<DeltaDiscoveryResponse> {
    let names = &request.resource_names_subscribe;
    if names.is_empty() && !request.response_nonce.is_empty() {
        return None;
    }
    let none = BTreeMap::new();
    let of_type = all.get(request.type_url.as_str()).unwrap_or(&none);
    let is_meant = |name: &String| names.is_empty() || names.contains(name);
    let resource = |(name, resource): (&String, &Any)| Resource {
        name: name.clone(),
        version: "1".into(),
        resource: Some(resource.clone()),
        ..Resource::default()
    };
    Some(DeltaDiscoveryResponse {
        type_url: request.type_url.clone(),
        nonce: "1".into(),
        resources: of_type.iter().filter(|(name, _)| is_meant(name)).map(resource).collect(),
        removed_resources: names.iter().filter(|name| !of_type.contains_key(*name)).cloned().collect(),
        ..DeltaDiscoveryResponse::default()
    })
}

fn take_message(part: &mut BytesMut) -> Option<BytesMut> {
    let (header, rest) = part.split_first_chunk::<5>()?;
    let [_, length @ ..] = *header;
    let length = u32::from_be_bytes(length) as usize;
    if rest.len() < length {
        return None;
    }
    part.advance(5);
    Some(part.split_to(length))
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a recording is below 4 GiB");
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

/// Serves one debug page over HTTP/1.1.
async fn serve_page(mut socket: TcpStream, served: Arc<Served>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let (path, query) =
        head.split(' ').nth(1).map_or(("", ""), |target| target.split_once('?').unwrap_or((target, "")));
    let asked = query.strip_prefix("proxyID=");
    let is_asked = |proxy: &&ServedProxy| asked.is_none_or(|asked| name(proxy) == asked);
    let page = match path {
        "/debug/syncz" => Some(served.proxies.iter().map(sync_status).collect()),
        "/debug/adsz" => {
            let clients: Vec<Value> =
                served.proxies.iter().filter(is_asked).enumerate().map(client).collect();
            Some(json!({"totalClients": clients.len(), "clients": clients}))
        }
        _ => None,
    };
    let (status, body) =
        page.map_or(("404 Not Found", String::new()), |page: Value| ("200 OK", page.to_string()));
    let response =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    Ok(socket.write_all(response.as_bytes()).await?)
}

/// Name of a proxy in istiod's pages.
fn name(proxy: &ServedProxy) -> &str {
    proxy.node.id.split('~').nth(2).unwrap_or_default()
}

fn sync_status(proxy: &ServedProxy) -> Value {
    let kind = proxy.node.id.split('~').next();
    json!({"cluster_id": "Kubernetes", "proxy": name(proxy), "proxy_type": kind, "istio_version": "1.31.0"})
}

fn client((at, proxy): (usize, &ServedProxy)) -> Value {
    let bytes = proxy.node.metadata.as_ref().map(Message::encode_to_vec).unwrap_or_default();
    let mut metadata = to_json("type.googleapis.com/google.protobuf.Struct", &bytes).expect("a struct");
    metadata.as_object_mut().map(|fields| fields.remove("@type"));
    let mut watches = Map::new();
    if let Some(names) = &proxy.listeners {
        watches.insert(ResourceType::Listener.type_url().to_owned(), json!(names));
    }
    let mut client = json!({
        "connectionId": format!("{}-{}", name(proxy), at + 1), "connectedAt": "2026-11-23T13:05:00Z",
        "address": "10.0.0.1:40000", "labels": {}, "metadata": metadata, "watches": watches,
    });
    if let Some(locality) = &proxy.node.locality {
        client["locality"] =
            json!({"region": locality.region, "zone": locality.zone, "sub_zone": locality.sub_zone});
    }
    client
}

/// Type in whose place opaque messages are while a recording is encoded.
const OPAQUE: &str = "type.googleapis.com/google.protobuf.BytesValue";

/// Encodes recorded JSON. Messages of types without a descriptor are recorded as bytes.
fn encode(type_url: &str, json: &Value) -> Result<Any> {
    let mut json = json.clone();
    mark_opaque(&mut json);
    let name = type_url.rsplit('/').next().unwrap_or_default();
    let descriptor = pool().get_message_by_name(name).context("an unknown type")?;
    let mut message = DynamicMessage::deserialize(descriptor, json)?;
    restore_opaque(&mut message)?;
    Ok(Any { type_url: type_url.to_owned(), value: message.encode_to_vec() })
}

fn mark_opaque(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let (Some(ty), Some(bytes)) = (fields.get("@type"), fields.get("@bytes")) {
                let text =
                    format!("{} {}", ty.as_str().unwrap_or_default(), bytes.as_str().unwrap_or_default());
                *value = json!({"@type": OPAQUE, "value": BASE64.encode(text)});
            } else {
                fields.values_mut().for_each(mark_opaque);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mark_opaque),
        _ => {}
    }
}

fn restore_opaque(message: &mut DynamicMessage) -> Result<()> {
    if message.descriptor().full_name() == "google.protobuf.Any" {
        return restore_any(message);
    }
    message.fields_mut().try_for_each(|(_, value)| restore_value(value))
}

fn restore_value(value: &mut Reflected) -> Result<()> {
    match value {
        Reflected::Message(message) => restore_opaque(message),
        Reflected::List(items) => items.iter_mut().try_for_each(restore_value),
        Reflected::Map(entries) => entries.values_mut().try_for_each(restore_value),
        _ => Ok(()),
    }
}

fn restore_any(any: &mut DynamicMessage) -> Result<()> {
    let mut packed: Any = any.transcode_to()?;
    if packed.type_url == OPAQUE {
        let text = String::from_utf8(Vec::<u8>::decode(&packed.value[..])?)?;
        let (ty, bytes) = text.split_once(' ').context("a marked message")?;
        packed = Any { type_url: ty.to_owned(), value: BASE64.decode(bytes)? };
    } else {
        let name = packed.type_url.rsplit('/').next().unwrap_or_default();
        let descriptor = pool().get_message_by_name(name).context("an unknown type")?;
        let mut inner = DynamicMessage::decode(descriptor, &packed.value[..])?;
        restore_opaque(&mut inner)?;
        packed.value = inner.encode_to_vec();
    }
    Ok(any.transcode_from(&packed)?)
}
