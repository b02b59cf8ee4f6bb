//! A stand-in for a Consul agent, written from HashiCorp's documentation: the real one cannot be had from a package registry.
//!
//! It speaks HTTP/1.1 over TCP, and HTTP/1.1 or HTTP/2 over TLS, on real sockets. Each rule names the page that it comes from, as
//! `[blocking]`: a page of Consul's HTTP API documentation (`api-docs/...`), or `[config]`, the agent's configuration reference.
//! Where the documentation leaves something open, the stand-in does what costs a client most: it wakes queries more often than
//! it must, never less. It knows nothing of Pilotfish's client; clients that others wrote are tried against it in
//! `tests/real_consul_clients.rs`.
//!
//! Not here: Connect, peering, prepared queries, Enterprise's namespaces, and the running of HTTP, TCP and script checks (such a
//! check keeps the status that it is given).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use regex::Regex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;

/// [blocking] The longest `wait`, and the one of a query that names none.
const MAX_WAIT: Duration = Duration::from_secs(600);
const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// [blocking] A wait is lengthened by up to this part of itself.
const JITTER_PART: u32 = 16;
/// [kv] A value may have 512 KiB; JSON around it is small.
const MAX_BODY: usize = 1 << 20;
/// What Go's HTTP/2 server allows on one connection.
const HTTP2_STREAMS: u32 = 250;
const TICK: Duration = Duration::from_millis(20);

/// How a stand-in is started.
pub struct ConsulOptions {
    /// Where it listens.
    pub address: SocketAddr,
    /// The data centres that it answers for; the first one is the agent's own.
    pub datacenters: Vec<String>,
    /// The name of the agent's node.
    pub node: String,
    /// [config, `limits.http_max_conns_per_client`] Connections of one address.
    pub connections_per_client: usize,
    /// Tokens and what they may; `None`: ACLs are off.
    pub acl: Option<Acl>,
    /// TLS with a certificate; plain without.
    pub tls: Option<ConsulTls>,
    /// [agent/check, `DeregisterCriticalServiceAfter`] How often services with critical checks are reaped, and the least time that is allowed.
    pub reap_every: Duration,
    /// See `reap_every`.
    pub reap_minimum: Duration,
    /// [streaming] Blocking queries of `health/service` come from a local view, without two of the headers.
    pub streaming: bool,
}

impl Default for ConsulOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            datacenters: vec!["dc1".to_owned()],
            node: "agent-1".to_owned(),
            connections_per_client: 200,
            acl: None,
            tls: None,
            reap_every: Duration::from_secs(30),
            reap_minimum: Duration::from_secs(60),
            streaming: false,
        }
    }
}

/// The certificate of a stand-in, in PEM.
#[derive(Clone)]
pub struct ConsulTls {
    /// The server's certificate and those that follow.
    pub chain: String,
    /// Its key.
    pub key: String,
    /// Clients must have a certificate of this authority.
    pub client_root: Option<String>,
    /// Whether HTTP/2 is offered, as Consul does.
    pub http2: bool,
}

/// [acl] Who may what; the default policy is `deny`.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    /// The rights of each token. A token that is not here is unknown (403); requests without one are `anonymous`.
    pub tokens: BTreeMap<String, Rights>,
    /// The rights of requests without a token.
    pub anonymous: Rights,
    /// Consul 1.11 and later do not tell those without a token that something was left out, so as not to tell strangers that it exists.
    pub hide_from_anonymous: bool,
}

/// What a token may.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Everything.
    pub management: bool,
    /// `service_prefix "..." { policy = "read" }`.
    pub services: Vec<String>,
    /// `node_prefix "" { policy = "read" }`.
    pub nodes: bool,
}

impl Rights {
    /// Everything.
    #[must_use]
    pub fn management() -> Self {
        Self { management: true, ..Self::default() }
    }

    /// Reads all nodes, and the services whose names begin so.
    #[must_use]
    pub fn reader(services: &[&str]) -> Self {
        Self {
            management: false,
            services: services.iter().map(|&name| name.to_owned()).collect(),
            nodes: true,
        }
    }

    fn reads_service(&self, name: &str) -> bool {
        self.management || self.services.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    fn reads_nodes(&self) -> bool {
        self.management || self.nodes
    }
}

/// What a server does wrong.
#[derive(Clone, Debug)]
pub enum ConsulFault {
    /// Answers this status and text.
    Status(u16, String),
    /// Sends half of the answer's JSON, as if it were whole.
    Truncated,
    /// Sends half of the answer and closes the connection.
    Cut,
    /// Sends what is no JSON.
    Garbled,
    /// Never answers.
    Hang,
    /// Answers so much later.
    Slow(Duration),
    /// Reports these indexes one after the other, and then its own again.
    Indexes(VecDeque<u64>),
    /// [consistency] Reports this as the milliseconds since a follower heard from the leader, where `stale` allows a follower to answer.
    LastContact(u64),
    /// Answers with an empty result, as a catalog that was lost.
    Empty,
}

/// What clients did since the counts were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsulCounts {
    /// Requests by the first three parts of their path, as `GET health/service`.
    pub requests: BTreeMap<String, u64>,
    /// Connections that are open now.
    pub connections: usize,
    /// The most that were open at once.
    pub most_connections: usize,
    /// Connections over the limit.
    pub refused: u64,
    /// Queries that wait for a change now.
    pub blocked: usize,
}

impl ConsulCounts {
    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// A request as a client made it, for tests that look at parameters.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When.
    pub at: Instant,
    /// Path and query.
    pub uri: String,
    /// The token.
    pub token: Option<String>,
}

/// A running stand-in; ends when dropped.
pub struct Consul {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: Option<JoinHandle<()>>,
}

struct Shared {
    options: ConsulOptions,
    tls: Mutex<Option<TlsAcceptor>>,
    state: Mutex<State>,
    /// Rises with every change, so that blocked queries look again.
    changes: watch::Sender<u64>,
}

struct State {
    stores: BTreeMap<String, Store>,
    leader: bool,
    acl: Option<Acl>,
    faults: Vec<(String, ConsulFault)>,
    counts: ConsulCounts,
    by_client: BTreeMap<IpAddr, usize>,
    asked: Option<Vec<Asked>>,
}

impl Consul {
    /// Starts one.
    ///
    /// # Panics
    /// When the address is taken, or the certificate is none.
    pub async fn start(options: ConsulOptions) -> Self {
        let tls = options.tls.as_ref().map(acceptor);
        let stores = Store::all(&options);
        let state = State {
            stores,
            leader: true,
            acl: options.acl.clone(),
            faults: Vec::new(),
            counts: ConsulCounts::default(),
            by_client: BTreeMap::new(),
            asked: None,
        };
        let address = options.address;
        let shared = Arc::new(Shared {
            options,
            tls: Mutex::new(tls),
            state: Mutex::new(state),
            changes: watch::channel(0).0,
        });
        let mut consul = Self { shared, address, server: None };
        consul.resume().await;
        consul
    }

    /// One with the defaults.
    pub async fn plain() -> Self {
        Self::start(ConsulOptions::default()).await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.shared.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Kills it: connections are cut, nobody listens. What it had stays for [`Consul::resume`].
    pub async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            // It was aborted.
            let _ = server.await;
        }
        let mut state = self.shared.lock();
        state.counts.connections = 0;
        state.counts.blocked = 0;
        state.by_client.clear();
    }

    /// Listens again at the same address.
    ///
    /// # Panics
    /// When the address is taken.
    pub async fn resume(&mut self) {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.expect("sockets can be had");
        socket.set_reuseaddr(true).expect("a new socket takes options");
        socket.bind(self.address).expect("the address is free");
        let listener = socket.listen(1024).expect("it is bound");
        self.address = listener.local_addr().expect("it is bound");
        self.server = Some(tokio::spawn(run(self.shared.clone(), listener)));
    }

    /// Loses everything, as a server without its disk: indexes are low again.
    pub fn forget(&self) {
        let stores = Store::all(&self.shared.options);
        self.change(|state| state.stores = stores);
    }

    /// Has a leader, or has lost it.
    pub fn set_leader(&self, leader: bool) {
        self.change(|state| state.leader = leader);
    }

    /// Changes who may what.
    pub fn set_acl(&self, acl: Option<Acl>) {
        self.change(|state| state.acl = acl);
    }

    /// Presents another certificate to new connections.
    pub fn set_tls(&self, tls: &ConsulTls) {
        *self.shared.tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(acceptor(tls));
    }

    /// Does this wrong for requests whose path begins so, as `/v1/health/service/web`, until [`Consul::heal`].
    pub fn fail(&self, path: &str, fault: ConsulFault) {
        self.change(|state| state.faults.push((path.to_owned(), fault)));
    }

    /// Does nothing wrong any more.
    pub fn heal(&self) {
        self.change(|state| state.faults.clear());
    }

    /// The counts; those of requests begin again.
    #[must_use]
    pub fn take_counts(&self) -> ConsulCounts {
        let mut state = self.shared.lock();
        let counts = state.counts.clone();
        state.counts.requests.clear();
        state.counts.refused = 0;
        state.counts.most_connections = counts.connections;
        counts
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> ConsulCounts {
        self.shared.lock().counts.clone()
    }

    /// The requests since this was last called; the first call starts the list.
    #[must_use]
    pub fn take_asked(&self) -> Vec<Asked> {
        self.shared.lock().asked.replace(Vec::new()).unwrap_or_default()
    }

    /// Registers as `PUT /v1/catalog/register` does, without a socket.
    ///
    /// # Panics
    /// When the registration is refused.
    pub fn register(&self, registration: &Value) {
        self.change(|state| {
            catalog_register(state, &self.shared.options, registration).expect("it is taken")
        });
    }

    /// Takes away as `PUT /v1/catalog/deregister` does, without a socket.
    ///
    /// # Panics
    /// When it is refused.
    pub fn deregister(&self, what: &Value) {
        self.change(|state| catalog_deregister(state, &self.shared.options, what).expect("it is taken"));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
        self.shared.changes.send_modify(|version| *version += 1);
    }
}

impl Drop for Consul {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }
}

fn acceptor(tls: &ConsulTls) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has the versions");
    let builder = match &tls.client_root {
        None => builder.with_no_client_auth(),
        Some(root) => {
            let mut roots = rustls::RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("PEM");
            roots.add(root).expect("it is a certificate");
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
        }
    };
    let chain = CertificateDer::pem_slice_iter(tls.chain.as_bytes()).collect::<Result<_, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(tls.key.as_bytes()).expect("PEM");
    let mut config = builder.with_single_cert(chain, key).expect("the key is the certificate's");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if tls.http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    TlsAcceptor::from(Arc::new(config))
}

// ---------------------------------------------------------------------------------------------------------------------
// Connections

async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((io, peer)) = accepted else { continue };
                connections.spawn(connection(shared.clone(), io, peer.ip()));
            }
            _ = ticks.tick() => tick(&shared),
            Some(_) = connections.join_next() => {}
        }
    }
}

/// [config, `limits.http_max_conns_per_client`] One connection too many is answered with 429, over TLS it is closed.
async fn connection(shared: Arc<Shared>, mut io: TcpStream, client: IpAddr) {
    const TEXT: &str = "Your IP is issuing too many concurrent connections, please rate limit your calls\n";
    let Some(_place) = Place::take(&shared, client) else {
        if shared.options.tls.is_none() {
            let length = TEXT.len();
            let head = format!(
                "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{TEXT}"
            );
            // The client may be gone.
            let _ = io.write_all(head.as_bytes()).await;
            let _ = io.shutdown().await;
        }
        return;
    };
    // A socket that takes no options is closed already.
    let _ = io.set_nodelay(true);
    let tls = shared.tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    match tls {
        None => http1(shared.clone(), io).await,
        Some(tls) => {
            let Ok(io) = tls.accept(io).await else { return };
            if io.get_ref().1.alpn_protocol() == Some(b"h2") {
                http2(shared.clone(), io).await;
            } else {
                http1(shared.clone(), io).await;
            }
        }
    }
}

async fn http1(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(move |request| serve(shared.clone(), request));
    // How a connection ends is the client's affair, or a fault that was asked for.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

async fn http2(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request| serve(shared.clone(), request));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(HTTP2_STREAMS);
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

/// One of a client's connections, while it is open.
struct Place {
    shared: Arc<Shared>,
    client: IpAddr,
}

impl Place {
    fn take(shared: &Arc<Shared>, client: IpAddr) -> Option<Self> {
        let mut state = shared.lock();
        let limit = shared.options.connections_per_client;
        let open = state.by_client.entry(client).or_default();
        if *open >= limit {
            state.counts.refused += 1;
            return None;
        }
        *open += 1;
        state.counts.connections += 1;
        state.counts.most_connections = state.counts.most_connections.max(state.counts.connections);
        drop(state);
        Some(Self { shared: shared.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.counts.connections = state.counts.connections.saturating_sub(1);
        if let Some(open) = state.by_client.get_mut(&self.client) {
            *open = open.saturating_sub(1);
        }
    }
}

/// A query that waits for a change, while it waits.
struct Blocked(Arc<Shared>);

impl Blocked {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().counts.blocked += 1;
        Self(shared.clone())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.counts.blocked = state.counts.blocked.saturating_sub(1);
    }
}

/// The bytes of an answer, and perhaps a break after them.
#[derive(Default)]
struct Content {
    bytes: Option<Bytes>,
    broken: bool,
    /// What came before the break was sent.
    is_sent: bool,
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            // What was sent before leaves first.
            None if self.broken && !self.is_sent => {
                self.is_sent = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.broken => Poll::Ready(Some(Err(std::io::Error::other("cut")))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && !self.broken
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.as_ref().map_or(0, Bytes::len);
        if self.broken {
            SizeHint::default()
        } else {
            SizeHint::with_exact(length.try_into().unwrap_or(u64::MAX))
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Requests

/// What is answered instead of data.
#[derive(Debug)]
struct Refusal(StatusCode, String);

type Answer<T> = Result<T, Refusal>;

fn refuse<T>(status: StatusCode, text: impl Into<String>) -> Answer<T> {
    Err(Refusal(status, text.into()))
}

/// The parameters behind the `?`.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// Percent-decodes a part of a URL.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let high =
            (byte == b'%').then(|| rest.clone().next()).flatten().and_then(|c| (c as char).to_digit(16));
        let low = high.and_then(|_| rest.clone().nth(1)).and_then(|c| (c as char).to_digit(16));
        match (byte, high, low) {
            (b'+', ..) => bytes.push(b' '),
            (_, Some(high), Some(low)) => {
                rest.nth(1);
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a handler gives back: a value, and the headers of a read.
struct Found {
    status: StatusCode,
    body: Content,
    json: bool,
    headers: Vec<(&'static str, String)>,
}

impl Found {
    fn json(value: &Value) -> Self {
        let bytes = Some(Bytes::from(value.to_string()));
        Self {
            status: StatusCode::OK,
            body: Content { bytes, ..Content::default() },
            json: true,
            headers: Vec::new(),
        }
    }

    /// Agent endpoints that only confirm have no content.
    fn nothing() -> Self {
        let body = Content::default();
        Self { status: StatusCode::OK, body, json: false, headers: Vec::new() }
    }
}

async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Content>, Infallible> {
    let (head, body) = request.into_parts();
    let answer = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => serve_whole(&shared, &head, &body.to_bytes()).await,
        Err(_) => refuse(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large"),
    };
    Ok(answer.map_or_else(response_of_refusal, response))
}

fn response(found: Found) -> Response<Content> {
    let mut response = Response::new(found.body);
    *response.status_mut() = found.status;
    if found.json {
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    }
    for (name, value) in found.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn response_of_refusal(Refusal(status, text): Refusal) -> Response<Content> {
    let mut response = Response::new(Content { bytes: Some(text.into()), ..Content::default() });
    *response.status_mut() = status;
    response
}

/// [index, authentication] The token comes in one of two headers, or, deprecated, as a parameter.
fn token(headers: &HeaderMap, query: &Query) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let token = text("x-consul-token").or_else(bearer).or_else(|| query.get("token"));
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

async fn serve_whole(shared: &Arc<Shared>, head: &Parts, body: &Bytes) -> Answer<Found> {
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let token = token(&head.headers, &query);
    let path = head.uri.path();
    note(shared, head, token.as_deref());
    let fault = fault_for(&shared.lock(), path);
    match &fault {
        Some(ConsulFault::Status(status, text)) => {
            return refuse(StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text);
        }
        Some(ConsulFault::Hang) => std::future::pending().await,
        Some(ConsulFault::Slow(time)) => sleep(*time).await,
        _ => {}
    }
    let parts: Vec<String> = path.trim_start_matches('/').split('/').map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let ["v1", parts @ ..] = parts.as_slice() else {
        return refuse(StatusCode::NOT_FOUND, "404 page not found");
    };
    let rights = rights(&shared.lock(), token.as_deref())?;
    let found = if head.method == Method::GET {
        get(shared, path, parts, &query, &rights, token.is_some()).await
    } else {
        write(shared, &head.method, parts, &query, body, &rights)
    };
    // A query that blocked may meet a fault that came meanwhile.
    let fault = fault_for(&shared.lock(), path);
    Ok(spoil(fault.as_ref(), found?))
}

fn note(shared: &Shared, head: &Parts, token: Option<&str>) {
    let mut state = shared.lock();
    let kind: Vec<&str> = head.uri.path().split('/').skip(2).take(2).collect();
    *state.counts.requests.entry(format!("{} {}", head.method, kind.join("/"))).or_default() += 1;
    if let Some(asked) = &mut state.asked {
        asked.push(Asked { at: Instant::now(), uri: head.uri.to_string(), token: token.map(str::to_owned) });
    }
}

fn fault_for(state: &State, path: &str) -> Option<ConsulFault> {
    state.faults.iter().find(|(prefix, _)| path.starts_with(prefix.as_str())).map(|(_, fault)| fault.clone())
}

fn spoil(fault: Option<&ConsulFault>, mut found: Found) -> Found {
    let half = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.slice(..bytes.len() / 2));
    match fault {
        Some(ConsulFault::Truncated) => found.body.bytes = half(found.body.bytes.take()),
        Some(ConsulFault::Cut) => {
            found.body.bytes = half(found.body.bytes.take());
            found.body.broken = true;
        }
        Some(ConsulFault::Garbled) => found.body.bytes = Some(Bytes::from_static(b"\x00<html>[{\"Node\":3")),
        _ => {}
    }
    found
}

/// [acl] A token that nobody knows is refused; none is the anonymous one.
fn rights(state: &State, token: Option<&str>) -> Answer<Rights> {
    match (&state.acl, token) {
        (None, _) => Ok(Rights::management()),
        (Some(acl), None) => Ok(acl.anonymous.clone()),
        (Some(acl), Some(token)) => match acl.tokens.get(token) {
            Some(rights) => Ok(rights.clone()),
            None => refuse(StatusCode::FORBIDDEN, "ACL not found"),
        },
    }
}

/// A duration as Go writes it: `90s`, `1m30s`, `250ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end =
            rest[end..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| end + at);
        let seconds = match &rest[end..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        sum += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(sum)
}

/// A number that differs from call to call; of no use but for jitter and names.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn uuid() -> String {
    let (a, b) = (random(), random());
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    )
}

// ---------------------------------------------------------------------------------------------------------------------
// Reads

/// [consistency] Who may answer a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consistency {
    Default,
    Consistent,
    Stale,
}

impl Consistency {
    fn of(query: &Query) -> Answer<Self> {
        match (query.has("stale"), query.has("consistent")) {
            (true, true) => refuse(
                StatusCode::BAD_REQUEST,
                "Cannot specify ?stale with ?consistent, conflicting semantics.",
            ),
            (true, false) => Ok(Self::Stale),
            (false, true) => Ok(Self::Consistent),
            (false, false) => Ok(Self::Default),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Default => "leader",
            Self::Consistent => "consistent",
            Self::Stale => "stale",
        }
    }
}

/// A read that may block.
enum Read {
    Services,
    Nodes,
    Node(String),
    Instances(String),
    Health(String),
    Checks(String),
    NodeChecks(String),
    State(String),
    Key(String),
    Session(String),
    Sessions(Option<String>),
}

impl Read {
    fn parse(parts: &[&str]) -> Option<Self> {
        let own = |name: &&str| (*name).to_owned();
        Some(match parts {
            ["catalog", "services"] => Self::Services,
            ["catalog", "nodes"] => Self::Nodes,
            ["catalog", "node", name] => Self::Node(own(name)),
            ["catalog", "service", name] => Self::Instances(own(name)),
            ["health", "service", name] => Self::Health(own(name)),
            ["health", "checks", name] => Self::Checks(own(name)),
            ["health", "node", name] => Self::NodeChecks(own(name)),
            ["health", "state", name] => Self::State(own(name)),
            ["kv", key @ ..] => Self::Key(key.join("/")),
            ["session", "info", id] => Self::Session(own(id)),
            ["session", "node", name] => Self::Sessions(Some(own(name))),
            ["session", "list"] => Self::Sessions(None),
            _ => return None,
        })
    }

    /// [blocking] The index of what is asked for. A service that does not exist has none of its own: any change of services counts.
    fn index(&self, store: &Store, query: &Query) -> u64 {
        let index = match self {
            Self::Services => {
                store.services_index.max(if query.has("node-meta") { store.nodes_index } else { 0 })
            }
            Self::Nodes => store.nodes_index,
            Self::Node(_) => store.services_index.max(store.nodes_index),
            Self::Instances(name) | Self::Health(name) | Self::Checks(name) => {
                store.by_service.get(name).copied().unwrap_or(store.services_index)
            }
            Self::NodeChecks(_) | Self::State(_) => store.checks_index,
            Self::Key(key) if query.has("recurse") || query.has("keys") => {
                let below =
                    store.kv.range(key.clone()..).take_while(|(name, _)| name.starts_with(key.as_str()));
                below.map(|(_, pair)| pair.modified).max().unwrap_or_default().max(store.deleted_index)
            }
            Self::Key(key) => store.kv.get(key).map_or(store.deleted_index, |pair| pair.modified),
            Self::Session(_) | Self::Sessions(_) => store.sessions_index,
        };
        index.max(1)
    }

    fn is_known(&self) -> Answer<()> {
        match self {
            // [health, list checks in state] The states that there are.
            Self::State(state)
                if !["any", "unknown", "passing", "warning", "critical"].contains(&state.as_str()) =>
            {
                refuse(StatusCode::BAD_REQUEST, "invalid state")
            }
            _ => Ok(()),
        }
    }

    /// The value, and whether something was left out for want of rights.
    fn value(&self, store: &Store, query: &Query, rights: &Rights) -> Answer<Listed> {
        let mut listed = match self {
            Self::Services => return store.list_services(query, rights),
            Self::Key(key) => return store.read_key(key, query).map(Listed::whole),
            Self::Node(name) => return Ok(store.node_services(name)),
            Self::Nodes => Listed::of(store.nodes.values().map(|node| (rights.reads_nodes(), node.clone()))),
            Self::Health(name) => Listed::of(store.instances(name).map(|(node, service)| {
                (rights.reads_service(name) && rights.reads_nodes(), store.entry(node, service))
            })),
            Self::Instances(name) => Listed::of(store.instances(name).map(|(node, service)| {
                (rights.reads_service(name) && rights.reads_nodes(), store.flat(node, service))
            })),
            Self::Checks(name) => store.list_checks(rights, |check| text(check, "ServiceName") == name),
            Self::NodeChecks(name) => store.list_checks(rights, |check| text(check, "Node") == name),
            Self::State(state) => {
                store.list_checks(rights, |check| state == "any" || text(check, "Status") == state)
            }
            Self::Session(id) => {
                Listed::of(store.sessions.get(id).map(|session| (true, session.value.clone())))
            }
            Self::Sessions(node) => Listed::of(
                store
                    .sessions
                    .values()
                    .filter(|session| node.as_ref().is_none_or(|node| text(&session.value, "Node") == node))
                    .map(|session| (true, session.value.clone())),
            ),
        };
        listed.narrow(self, query)?;
        Ok(listed)
    }
}

/// A list, and whether something was left out for want of rights.
struct Listed {
    value: Value,
    filtered: bool,
}

impl Listed {
    fn whole(value: Value) -> Self {
        Self { value, filtered: false }
    }

    fn of(items: impl IntoIterator<Item = (bool, Value)>) -> Self {
        let mut filtered = false;
        let mut list = Vec::new();
        for (allowed, item) in items {
            if allowed {
                list.push(item);
            } else {
                filtered = true;
            }
        }
        Self { value: Value::Array(list), filtered }
    }

    /// [health, list service instances] `tag` and `node-meta` may be repeated and must all hold; `passing`; then the filter.
    fn narrow(&mut self, read: &Read, query: &Query) -> Answer<()> {
        let filter = query.get("filter").filter(|text| !text.is_empty()).map(Filter::parse).transpose()?;
        let Value::Array(items) = &mut self.value else { return Ok(()) };
        let (tags, meta, passing) = match read {
            Read::Health(_) => ("/Service/Tags", "/Node/Meta", query.has("passing")),
            Read::Instances(_) => ("/ServiceTags", "/NodeMeta", false),
            _ => ("", "/Meta", false),
        };
        items.retain(|item| {
            let has_tag = |tag: &str| {
                let tags = item.pointer(tags).and_then(Value::as_array);
                tags.is_some_and(|tags| tags.iter().any(|own| own.as_str() == Some(tag)))
            };
            query.all("tag").all(has_tag)
                && query.all("node-meta").all(|pair| has_meta(item.pointer(meta), pair))
                && (!passing || checks_of(item).all(|check| text(check, "Status") == "passing"))
                && filter.as_ref().is_none_or(|filter| filter.holds(item))
        });
        Ok(())
    }
}

fn checks_of(entry: &Value) -> impl Iterator<Item = &Value> {
    entry.get("Checks").and_then(Value::as_array).into_iter().flatten()
}

/// [catalog, `node-meta`] A pair `key:value`.
fn has_meta(meta: Option<&Value>, pair: &str) -> bool {
    let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
    meta.and_then(|meta| meta.get(key)).and_then(Value::as_str) == Some(value)
}

async fn get(
    shared: &Arc<Shared>,
    path: &str,
    parts: &[&str],
    query: &Query,
    rights: &Rights,
    authenticated: bool,
) -> Answer<Found> {
    let Some(read) = Read::parse(parts) else { return get_now(shared, parts, rights) };
    read.is_known()?;
    let consistency = Consistency::of(query)?;
    let asked = index_parameter(query)?;
    if asked > 0 {
        wait_for_change(shared, path, &read, query, asked).await?;
    }
    let mut state = shared.lock();
    let dc = datacenter(&state, &shared.options, query)?.to_owned();
    if !state.leader && consistency != Consistency::Stale {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No cluster leader");
    }
    let fault = fault_for(&state, path);
    let store = &state.stores[&dc];
    let index = reported(fault.as_ref(), &read, store, query);
    let mut listed = read.value(store, query, rights)?;
    if let Some(ConsulFault::Empty) = fault {
        listed.value = if listed.value.is_object() { json!({}) } else { json!([]) };
    }
    // [blocking] A list of reported indexes goes on with every answer.
    for (prefix, fault) in &mut state.faults {
        if let (true, ConsulFault::Indexes(indexes)) = (path.starts_with(prefix.as_str()), fault) {
            indexes.pop_front();
        }
    }
    let mut found = if matches!((&read, query.has("raw")), (Read::Key(_), true)) {
        raw(&listed.value)
    } else {
        Found::json(&listed.value)
    };
    if listed.value.is_null() {
        // [kv] A key that is not there is a 404 that can be waited for.
        found = Found { status: StatusCode::NOT_FOUND, ..Found::nothing() };
    }
    let streamed =
        shared.options.streaming && asked > 0 && matches!(read, Read::Health(_)) && !query.has("near");
    let about = About { index, consistency, filtered: listed.filtered, authenticated, streamed };
    found.headers = about.headers(&state, fault.as_ref());
    Ok(found)
}

/// [kv, raw] The value alone.
fn raw(value: &Value) -> Found {
    let text = value.pointer("/0/Value").and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(text).unwrap_or_default();
    Found { body: Content { bytes: Some(bytes.into()), ..Content::default() }, ..Found::nothing() }
}

/// What the headers of a read tell.
struct About {
    index: u64,
    consistency: Consistency,
    filtered: bool,
    authenticated: bool,
    streamed: bool,
}

impl About {
    /// [consistency] [index] The headers of every read.
    fn headers(&self, state: &State, fault: Option<&ConsulFault>) -> Vec<(&'static str, String)> {
        let policy = if state.acl.is_some() { "deny" } else { "allow" };
        let backend = if self.streamed { "streaming" } else { "blocking-query" };
        let mut headers = vec![
            ("x-consul-index", self.index.to_string()),
            ("x-consul-default-acl-policy", policy.to_owned()),
            ("x-consul-effective-consistency", self.consistency.name().to_owned()),
            ("x-consul-query-backend", backend.to_owned()),
        ];
        if !self.streamed {
            let last_contact = match fault {
                Some(ConsulFault::LastContact(time)) if self.consistency == Consistency::Stale => *time,
                _ => 0,
            };
            headers.push(("x-consul-knownleader", state.leader.to_string()));
            headers.push(("x-consul-lastcontact", last_contact.to_string()));
        }
        // [index, results filtered by ACLs] Consul 1.11 and later say so.
        let hidden = state.acl.as_ref().is_some_and(|acl| acl.hide_from_anonymous) && !self.authenticated;
        if self.filtered && !hidden {
            headers.push(("x-consul-results-filtered-by-acls", "true".to_owned()));
        }
        headers
    }
}

fn index_parameter(query: &Query) -> Answer<u64> {
    match query.get("index") {
        None | Some("") => Ok(0),
        Some(text) => text.parse().or_else(|_| refuse(StatusCode::BAD_REQUEST, "Invalid index")),
    }
}

/// The index that is reported: that of the store, or one that a fault has next.
fn reported(fault: Option<&ConsulFault>, read: &Read, store: &Store, query: &Query) -> u64 {
    match fault {
        Some(ConsulFault::Indexes(indexes)) if !indexes.is_empty() => indexes[0],
        _ => read.index(store, query),
    }
}

/// [blocking] Waits until the index is higher than the one asked with, or `wait` and its jitter are over. A lower index does not end the
/// wait: such a query returns when its time is over.
async fn wait_for_change(
    shared: &Arc<Shared>,
    path: &str,
    read: &Read,
    query: &Query,
    asked: u64,
) -> Answer<()> {
    let wait = match query.get("wait") {
        None | Some("") => DEFAULT_WAIT,
        Some(text) => match duration(text) {
            Some(Duration::ZERO) => DEFAULT_WAIT,
            Some(wait) => wait.min(MAX_WAIT),
            None => return refuse(StatusCode::BAD_REQUEST, "Invalid wait time"),
        },
    };
    let jitter = wait / JITTER_PART;
    let part = u32::try_from(random() % 1000).unwrap_or_default();
    let deadline = Instant::now() + wait + jitter * part / 1000;
    let mut changes = shared.changes.subscribe();
    let _blocked = Blocked::new(shared);
    loop {
        changes.mark_unchanged();
        {
            let state = shared.lock();
            let dc = datacenter(&state, &shared.options, query)?;
            if reported(fault_for(&state, path).as_ref(), read, &state.stores[dc], query) > asked {
                return Ok(());
            }
        }
        match timeout_at(deadline, changes.changed()).await {
            Ok(Ok(())) => {}
            // Its time is over; the sender lives as long as this.
            _ => return Ok(()),
        }
    }
}

fn datacenter<'a>(state: &State, options: &'a ConsulOptions, query: &'a Query) -> Answer<&'a str> {
    let dc = query
        .get("dc")
        .filter(|dc| !dc.is_empty())
        .or_else(|| options.datacenters.first().map(String::as_str));
    match dc {
        Some(dc) if state.stores.contains_key(dc) => Ok(dc),
        // [kv] "No path to datacenter" where there is none of that name.
        _ => refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter"),
    }
}

/// Reads that do not block.
fn get_now(shared: &Shared, parts: &[&str], rights: &Rights) -> Answer<Found> {
    let state = shared.lock();
    let options = &shared.options;
    let store = own_store(&state, options);
    let agent = &options.node;
    let value = match parts {
        // [status] The address of the leader's Raft; empty while there is none.
        ["status", "leader"] => json!(if state.leader { "127.0.0.1:8300" } else { "" }),
        ["status", "peers"] => json!(["127.0.0.1:8300"]),
        // [catalog, list datacenters] Works without a leader.
        ["catalog", "datacenters"] => json!(options.datacenters),
        ["agent", "self"] if !rights.reads_nodes() => {
            return refuse(StatusCode::FORBIDDEN, "Permission denied");
        }
        ["agent", "self"] => json!({
            "Config": {"Datacenter": options.datacenters[0], "NodeName": agent, "Server": true, "Version": "1.20.0"},
            "Member": {"Name": agent, "Addr": "127.0.0.1", "Status": 1},
            "Meta": {},
        }),
        ["agent", "members"] => {
            json!([{"Name": agent, "Addr": "127.0.0.1", "Port": 8301, "Status": 1, "Tags": {}}])
        }
        ["agent", "services"] => {
            let own = store.services.iter().filter(|((node, id), _)| node == agent && id != "consul");
            Value::Object(own.map(|((_, id), service)| (id.clone(), service.clone())).collect())
        }
        ["agent", "checks"] => {
            let own = store.checks.iter().filter(|((node, id), _)| node == agent && id != "serfHealth");
            Value::Object(own.map(|((_, id), check)| (id.clone(), check.clone())).collect())
        }
        ["agent", "service", id] => match store.services.get(&(agent.clone(), (*id).to_owned())) {
            Some(service) => service.clone(),
            None => return refuse(StatusCode::NOT_FOUND, format!("unknown service ID: {id}")),
        },
        ["agent", "health", "service", "name", name] => return agent_health(store, agent, name),
        _ => return refuse(StatusCode::NOT_FOUND, "404 page not found"),
    };
    Ok(Found::json(&value))
}

/// [agent/service, local service health] 200 passing, 429 warning, 503 critical, 404 unknown.
fn agent_health(store: &Store, agent: &str, name: &str) -> Answer<Found> {
    let own: Vec<_> = store.instances(name).filter(|(node, _)| *node == agent).collect();
    let mut worst = "passing";
    let mut list = Vec::new();
    for (node, service) in &own {
        let entry = store.entry(node, service);
        let mut status = "passing";
        for check in checks_of(&entry) {
            match text(check, "Status") {
                "critical" => status = "critical",
                "warning" if status == "passing" => status = "warning",
                _ => {}
            }
        }
        if status == "critical" || worst == "passing" {
            worst = status;
        }
        list.push(json!({"AggregatedStatus": status, "Service": service, "Checks": entry["Checks"]}));
    }
    let body = Value::Array(list);
    match (own.is_empty(), worst) {
        (true, _) => refuse(StatusCode::NOT_FOUND, "[]"),
        (_, "warning") => refuse(StatusCode::TOO_MANY_REQUESTS, body.to_string()),
        (_, "critical") => refuse(StatusCode::SERVICE_UNAVAILABLE, body.to_string()),
        _ => Ok(Found::json(&body)),
    }
}

fn own_store<'a>(state: &'a State, options: &ConsulOptions) -> &'a Store {
    &state.stores[&options.datacenters[0]]
}

// ---------------------------------------------------------------------------------------------------------------------
// Writes

fn write(
    shared: &Shared,
    method: &Method,
    parts: &[&str],
    query: &Query,
    body: &Bytes,
    rights: &Rights,
) -> Answer<Found> {
    // [acl] Every write here needs a right that only management has in this stand-in.
    if !rights.management {
        return refuse(StatusCode::FORBIDDEN, "Permission denied");
    }
    let mut state = shared.lock();
    if !state.leader {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No cluster leader");
    }
    let written = match (method, parts) {
        (&Method::PUT, ["kv", key @ ..]) => put_key(&mut state, &shared.options, &key.join("/"), query, body),
        (&Method::DELETE, ["kv", key @ ..]) => delete_key(&mut state, &shared.options, &key.join("/"), query),
        (&Method::PUT, _) => {
            let payload = if body.is_empty() { Ok(json!({})) } else { serde_json::from_slice(body) };
            match payload {
                Ok(payload) => put(&mut state, &shared.options, parts, query, &payload),
                Err(error) => refuse(StatusCode::BAD_REQUEST, format!("Request decode failed: {error}")),
            }
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
    };
    drop(state);
    shared.changed();
    written
}

fn put(
    state: &mut State,
    options: &ConsulOptions,
    parts: &[&str],
    query: &Query,
    payload: &Value,
) -> Answer<Found> {
    let own = options.datacenters[0].as_str();
    let agent = options.node.as_str();
    match parts {
        ["catalog", "register"] => {
            return catalog_register(state, options, payload).map(|()| Found::json(&json!(true)));
        }
        ["catalog", "deregister"] => {
            return catalog_deregister(state, options, payload).map(|()| Found::json(&json!(true)));
        }
        ["session", ..] => return put_session(state, options, parts, query, payload),
        _ => {}
    }
    let Some(store) = state.stores.get_mut(own) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    match parts {
        ["agent", "service", "register"] => {
            store.agent_register(options, payload, query.has("replace-existing-checks"))?;
        }
        ["agent", "service", "deregister", id] => {
            if !store.remove_service(agent, id) {
                return refuse(
                    StatusCode::NOT_FOUND,
                    format!(
                        "Unknown service ID {id:?}. Ensure that the service ID is passed, not the service name."
                    ),
                );
            }
        }
        // [agent/service, maintenance] A critical check of a well-known name marks it.
        ["agent", "service", "maintenance", id] => {
            if !store.services.contains_key(&(agent.to_owned(), (*id).to_owned())) {
                return refuse(StatusCode::NOT_FOUND, format!("Unknown service ID {id:?}"));
            }
            store.maintenance(agent, &format!("_service_maintenance:{id}"), id, query)?;
        }
        ["agent", "maintenance"] => store.maintenance(agent, "_node_maintenance", "", query)?,
        ["agent", "check", "register"] => {
            store.agent_check(options, payload, text_of(payload, "ServiceID"), 0)?
        }
        ["agent", "check", "deregister", id] => store.remove_check(agent, id),
        ["agent", "check", verb @ ("pass" | "warn" | "fail" | "update"), id] => {
            store.update_ttl(agent, verb, id, query, payload)?;
        }
        _ => return refuse(StatusCode::NOT_FOUND, "404 page not found"),
    }
    Ok(Found::nothing())
}

/// [catalog, register entity] A node, and with it a service, a check, or several checks.
fn catalog_register(state: &mut State, options: &ConsulOptions, payload: &Value) -> Answer<()> {
    let (node, address) = (text_of(payload, "Node"), text_of(payload, "Address"));
    if node.is_empty() || address.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "Must provide node and address");
    }
    let dc = if text_of(payload, "Datacenter").is_empty() {
        options.datacenters[0].clone()
    } else {
        text_of(payload, "Datacenter").to_owned()
    };
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    // [catalog, `SkipNodeUpdate`] A node that is there stays as it is.
    let skip = field(payload, "SkipNodeUpdate").and_then(Value::as_bool).unwrap_or_default();
    if !(skip && store.nodes.contains_key(node)) {
        store.put_node(
            node,
            json!({
                "ID": text_of(payload, "ID"), "Node": node, "Address": address, "Datacenter": dc,
                "TaggedAddresses": object(payload, "TaggedAddresses"), "Meta": object(payload, "NodeMeta"),
            }),
        );
    }
    if let Some(service) = field(payload, "Service").filter(|service| !service.is_null()) {
        store.put_service(node, service)?;
    }
    let one = field(payload, "Check").filter(|check| !check.is_null());
    let more = field(payload, "Checks").and_then(Value::as_array).into_iter().flatten();
    for check in one.into_iter().chain(more) {
        let id = first(&[text_of(check, "CheckID"), text_of(check, "Name")]).to_owned();
        let status = first(&[text_of(check, "Status"), "critical"]).to_owned();
        store.put_check(node, &id, check, text_of(check, "ServiceID"), &status, text_of(check, "Output"))?;
    }
    Ok(())
}

/// [catalog, deregister entity] A check, a service with its checks, or a node with all that it has.
fn catalog_deregister(state: &mut State, options: &ConsulOptions, payload: &Value) -> Answer<()> {
    let node = text_of(payload, "Node");
    if node.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "Must provide node");
    }
    let dc = first(&[text_of(payload, "Datacenter"), &options.datacenters[0]]).to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    match (text_of(payload, "ServiceID"), text_of(payload, "CheckID")) {
        ("", "") => store.remove_node(node),
        ("", check) => store.remove_check(node, check),
        (service, _) => {
            store.remove_service(node, service);
        }
    }
    Ok(())
}

/// [session] Sessions are made, renewed and destroyed.
fn put_session(
    state: &mut State,
    options: &ConsulOptions,
    parts: &[&str],
    query: &Query,
    payload: &Value,
) -> Answer<Found> {
    let dc = datacenter(state, options, query)?.to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    let value = match parts {
        ["session", "create"] => json!({"ID": store.create_session(&options.node, payload)?}),
        // [session, delete] One that is not there is no mistake.
        ["session", "destroy", id] => {
            store.destroy_session(id);
            json!(true)
        }
        ["session", "renew", id] => match store.sessions.get_mut(*id) {
            Some(session) => {
                session.deadline = session.ttl.map(|ttl| Instant::now() + ttl);
                json!([session.value])
            }
            None => return refuse(StatusCode::NOT_FOUND, format!("Session id '{id}' not found")),
        },
        _ => return refuse(StatusCode::NOT_FOUND, "404 page not found"),
    };
    Ok(Found::json(&value))
}

/// [kv, create/update] `cas`, `acquire` and `release` decide whether the write counts.
fn put_key(
    state: &mut State,
    options: &ConsulOptions,
    key: &str,
    query: &Query,
    body: &Bytes,
) -> Answer<Found> {
    let dc = datacenter(state, options, query)?.to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    let before = store.kv.get(key).cloned();
    let cas = query.get("cas").map(str::parse::<u64>).transpose();
    let Ok(cas) = cas else { return refuse(StatusCode::BAD_REQUEST, "Invalid cas") };
    if cas.is_some_and(|cas| cas != before.as_ref().map_or(0, |pair| pair.modified)) {
        return Ok(Found::json(&json!(false)));
    }
    let index = store.next();
    let mut pair = before.unwrap_or_else(|| Pair { created: index, ..Pair::default() });
    if let Some(session) = query.get("acquire") {
        if !store.sessions.contains_key(session) {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("invalid session {session:?}"));
        }
        let delayed = store.delayed.get(key).is_some_and(|until| Instant::now() < *until);
        match &pair.session {
            Some(owner) if owner == session => {}
            None if !delayed => {
                pair.session = Some(session.to_owned());
                pair.locks += 1;
            }
            _ => return Ok(Found::json(&json!(false))),
        }
    }
    if let Some(session) = query.get("release") {
        if pair.session.as_deref() != Some(session) {
            return Ok(Found::json(&json!(false)));
        }
        pair.session = None;
    }
    pair.flags = query.get("flags").and_then(|flags| flags.parse().ok()).unwrap_or(pair.flags);
    pair.value = body.to_vec();
    pair.modified = index;
    store.kv.insert(key.to_owned(), pair);
    Ok(Found::json(&json!(true)))
}

/// [kv, delete] `recurse` and `cas`.
fn delete_key(state: &mut State, options: &ConsulOptions, key: &str, query: &Query) -> Answer<Found> {
    let dc = datacenter(state, options, query)?.to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    let cas = query.get("cas").and_then(|cas| cas.parse::<u64>().ok());
    if cas.is_some_and(|cas| cas == 0 || store.kv.get(key).is_none_or(|pair| pair.modified != cas)) {
        return Ok(Found::json(&json!(false)));
    }
    let recurse = query.has("recurse");
    store.kv.retain(|name, _| !(name == key || recurse && name.starts_with(key)));
    store.deleted_index = store.next();
    Ok(Found::json(&json!(true)))
}

// ---------------------------------------------------------------------------------------------------------------------
// Time

/// [agent/check, TTL] A check that was not refreshed in time is critical. [agent/check, `DeregisterCriticalServiceAfter`] A service whose
/// check was critical for so long is deregistered. [session, TTL] A session that was not renewed is invalid.
fn tick(shared: &Shared) {
    let now = Instant::now();
    let mut state = shared.lock();
    let mut changed = false;
    for store in state.stores.values_mut() {
        let expired: Vec<_> =
            store.ttls.iter().filter(|(_, ttl)| ttl.deadline <= now).map(|(key, _)| key.clone()).collect();
        for (node, id) in expired {
            if let Some(ttl) = store.ttls.get_mut(&(node.clone(), id.clone())) {
                ttl.deadline = now + ttl.every;
            }
            store.set_status(&node, &id, "critical", "TTL expired");
            changed = true;
        }
        if store.reaped + shared.options.reap_every <= now {
            store.reaped = now;
            changed |= store.reap(now);
        }
        let ended: Vec<_> = store
            .sessions
            .iter()
            .filter(|(_, session)| session.deadline.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            store.destroy_session(&id);
            changed = true;
        }
    }
    drop(state);
    if changed {
        shared.changed();
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The store of one data centre

/// What one data centre has. Nodes, services and checks are kept as they are answered.
struct Store {
    index: u64,
    nodes: BTreeMap<String, Value>,
    /// By node and id.
    services: BTreeMap<(String, String), Value>,
    /// By name: node and id.
    names: BTreeMap<String, BTreeSet<(String, String)>>,
    checks: BTreeMap<(String, String), Value>,
    kv: BTreeMap<String, Pair>,
    sessions: BTreeMap<String, Session>,
    /// [session, `LockDelay`] Keys that may not be locked yet.
    delayed: BTreeMap<String, Instant>,
    ttls: BTreeMap<(String, String), Ttl>,
    /// Since when a check is critical, and after how long its service goes.
    reapable: BTreeMap<(String, String), (Instant, Duration)>,
    reaped: Instant,
    nodes_index: u64,
    services_index: u64,
    checks_index: u64,
    sessions_index: u64,
    deleted_index: u64,
    /// [blocking] Each service has an index of its own.
    by_service: BTreeMap<String, u64>,
}

#[derive(Clone, Default)]
struct Pair {
    created: u64,
    modified: u64,
    locks: u64,
    flags: u64,
    value: Vec<u8>,
    session: Option<String>,
}

struct Session {
    value: Value,
    ttl: Option<Duration>,
    deadline: Option<Instant>,
    deletes: bool,
    delay: Duration,
}

struct Ttl {
    every: Duration,
    deadline: Instant,
}

/// A field by its name, in any case and with underscores or without, as agents read it [agent/service, register].
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(name).or_else(|| {
        let same = |key: &str| {
            let plain = key.chars().filter(|c| *c != '_');
            plain.map(|c| c.to_ascii_lowercase()).eq(name.chars().map(|c| c.to_ascii_lowercase()))
        };
        object.iter().find(|(key, _)| same(key)).map(|(_, value)| value)
    })
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    field(value, name).and_then(Value::as_str).unwrap_or_default()
}

fn object(value: &Value, name: &str) -> Value {
    field(value, name).filter(|value| value.is_object()).cloned().unwrap_or_else(|| json!({}))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn first<'a>(texts: &[&'a str]) -> &'a str {
    texts.iter().find(|text| !text.is_empty()).copied().unwrap_or_default()
}

/// A copy without the indexes, to tell whether a write changes something.
fn same(old: Option<&Value>, new: &Value) -> bool {
    let plain = |value: &Value| {
        let mut object = value.as_object().cloned().unwrap_or_default();
        object.remove("CreateIndex");
        object.remove("ModifyIndex");
        object
    };
    old.is_some_and(|old| plain(old) == plain(new))
}

fn stamp(value: &mut Value, old: Option<&Value>, index: u64) {
    let created = old.and_then(|old| old.get("CreateIndex")).cloned().unwrap_or_else(|| json!(index));
    value["CreateIndex"] = created;
    value["ModifyIndex"] = json!(index);
}

impl Store {
    fn all(options: &ConsulOptions) -> BTreeMap<String, Self> {
        let named = |dc: &String| (dc.clone(), Self::new(dc, &options.node));
        options.datacenters.iter().map(named).collect()
    }

    /// A server has itself in its catalog: its node with `serfHealth`, and the service `consul`.
    fn new(dc: &str, agent: &str) -> Self {
        let mut store = Self {
            index: 10,
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            names: BTreeMap::new(),
            checks: BTreeMap::new(),
            kv: BTreeMap::new(),
            sessions: BTreeMap::new(),
            delayed: BTreeMap::new(),
            ttls: BTreeMap::new(),
            reapable: BTreeMap::new(),
            reaped: Instant::now(),
            nodes_index: 0,
            services_index: 0,
            checks_index: 0,
            sessions_index: 0,
            deleted_index: 0,
            by_service: BTreeMap::new(),
        };
        let addresses =
            json!({"lan": "127.0.0.1", "lan_ipv4": "127.0.0.1", "wan": "127.0.0.1", "wan_ipv4": "127.0.0.1"});
        store.put_node(
            agent,
            json!({
                "ID": uuid(), "Node": agent, "Address": "127.0.0.1", "Datacenter": dc,
                "TaggedAddresses": addresses, "Meta": {"consul-network-segment": ""},
            }),
        );
        let taken = store
            .put_service(agent, &json!({"ID": "consul", "Service": "consul", "Port": 8300}))
            .and_then(|()| {
                let check = json!({"Name": "Serf Health Status"});
                store.put_check(agent, "serfHealth", &check, "", "passing", "Agent alive and reachable")
            });
        taken.expect("the agent's own registration is well-formed");
        store
    }

    fn next(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    fn put_node(&mut self, name: &str, mut node: Value) {
        let old = self.nodes.get(name);
        if same(old, &node) {
            return;
        }
        let index = self.next();
        stamp(&mut node, self.nodes.get(name), index);
        self.nodes.insert(name.to_owned(), node);
        self.nodes_index = index;
        self.touch_node(name, index);
    }

    /// What changes on a node changes every service that has an instance there.
    fn touch_node(&mut self, node: &str, index: u64) {
        let own =
            self.services.range((node.to_owned(), String::new())..).take_while(|((on, _), _)| on == node);
        for (_, service) in own {
            self.by_service.insert(text(service, "Service").to_owned(), index);
        }
    }

    /// [agent/service] [catalog] A service with what it does not say filled in.
    fn put_service(&mut self, node: &str, payload: &Value) -> Answer<()> {
        let name = first(&[text_of(payload, "Service"), text_of(payload, "Name")]).to_owned();
        if name.is_empty() {
            return refuse(StatusCode::BAD_REQUEST, "Missing service name");
        }
        let id = first(&[text_of(payload, "ID"), &name]).to_owned();
        let mut service = service_value(payload, &id, &name);
        let key = (node.to_owned(), id);
        if same(self.services.get(&key), &service) {
            return Ok(());
        }
        let index = self.next();
        let old = self.services.get(&key).cloned();
        stamp(&mut service, old.as_ref(), index);
        if let Some(old) = old.filter(|old| text(old, "Service") != name) {
            self.forget_name(text(&old, "Service"), &key);
        }
        self.names.entry(name.clone()).or_default().insert(key.clone());
        self.services.insert(key, service);
        self.services_index = index;
        self.by_service.insert(name, index);
        Ok(())
    }

    fn forget_name(&mut self, name: &str, key: &(String, String)) {
        let Some(keys) = self.names.get_mut(name) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.names.remove(name);
            self.by_service.remove(name);
        } else {
            self.by_service.insert(name.to_owned(), self.index);
        }
    }

    fn remove_service(&mut self, node: &str, id: &str) -> bool {
        let key = (node.to_owned(), id.to_owned());
        let Some(service) = self.services.remove(&key) else { return false };
        self.services_index = self.next();
        let checks: Vec<_> = self
            .checks
            .iter()
            .filter(|((on, _), check)| on == node && text(check, "ServiceID") == id)
            .map(|((_, check), _)| check.clone())
            .collect();
        for check in checks {
            self.remove_check(node, &check);
        }
        self.forget_name(text(&service, "Service"), &key);
        true
    }

    fn remove_node(&mut self, node: &str) {
        let of = |keys: Vec<(String, String)>| {
            keys.into_iter().filter(|(on, _)| on == node).map(|(_, id)| id).collect()
        };
        let services: Vec<String> = of(self.services.keys().cloned().collect());
        let checks: Vec<String> = of(self.checks.keys().cloned().collect());
        for id in services {
            self.remove_service(node, &id);
        }
        for id in checks {
            self.remove_check(node, &id);
        }
        if self.nodes.remove(node).is_some() {
            self.nodes_index = self.next();
        }
    }

    /// [catalog, `Check`] With the id of a service on the node it is a check of that service, else one of the node.
    fn put_check(
        &mut self,
        node: &str,
        id: &str,
        payload: &Value,
        service: &str,
        status: &str,
        output: &str,
    ) -> Answer<()> {
        if !["passing", "warning", "critical"].contains(&status) {
            return refuse(StatusCode::BAD_REQUEST, format!("Invalid check status: {status:?}"));
        }
        let of = self.services.get(&(node.to_owned(), service.to_owned()));
        let mut check = json!({
            "Node": node, "CheckID": id, "Name": first(&[text_of(payload, "Name"), id]), "Status": status,
            "Notes": text_of(payload, "Notes"), "Output": output, "ServiceID": service,
            "ServiceName": of.map_or("", |service| text(service, "Service")),
            "ServiceTags": of.map_or_else(|| json!([]), |service| service["Tags"].clone()),
            "Type": text_of(payload, "Type"), "Interval": text_of(payload, "Interval"), "Timeout": text_of(payload, "Timeout"),
            "ExposedPort": 0, "Definition": object(payload, "Definition"),
        });
        let key = (node.to_owned(), id.to_owned());
        if same(self.checks.get(&key), &check) {
            return Ok(());
        }
        let index = self.next();
        stamp(&mut check, self.checks.get(&key), index);
        self.touch_check(node, &check, index);
        self.checks.insert(key, check);
        Ok(())
    }

    fn touch_check(&mut self, node: &str, check: &Value, index: u64) {
        self.checks_index = index;
        match text(check, "ServiceName") {
            "" => self.touch_node(node, index),
            name => {
                self.by_service.insert(name.to_owned(), index);
            }
        }
    }

    fn remove_check(&mut self, node: &str, id: &str) {
        let key = (node.to_owned(), id.to_owned());
        self.ttls.remove(&key);
        self.reapable.remove(&key);
        if let Some(check) = self.checks.remove(&key) {
            let index = self.next();
            self.touch_check(node, &check, index);
        }
    }

    fn set_status(&mut self, node: &str, id: &str, status: &str, output: &str) {
        let key = (node.to_owned(), id.to_owned());
        let Some(mut check) = self.checks.get(&key).cloned() else { return };
        if let Some((since, _)) = self.reapable.get_mut(&key)
            && (text(&check, "Status") != "critical" || status != "critical")
        {
            *since = Instant::now();
        }
        check["Status"] = json!(status);
        check["Output"] = json!(output);
        if same(self.checks.get(&key), &check) {
            return;
        }
        let index = self.next();
        check["ModifyIndex"] = json!(index);
        self.touch_check(node, &check, index);
        self.checks.insert(key, check);
    }

    /// [agent/service, register] A service of the agent's own node, with its checks.
    fn agent_register(&mut self, options: &ConsulOptions, payload: &Value, replace: bool) -> Answer<()> {
        let node = options.node.clone();
        let id = first(&[text_of(payload, "ID"), text_of(payload, "Name")]).to_owned();
        self.put_service(&node, payload)?;
        if replace {
            let old: Vec<_> = self
                .checks
                .iter()
                .filter(|(_, check)| text(check, "Node") == node && text(check, "ServiceID") == id)
                .map(|((_, check), _)| check.clone())
                .collect();
            for check in old {
                self.remove_check(&node, &check);
            }
        }
        let one = field(payload, "Check").filter(|check| !check.is_null());
        let more = field(payload, "Checks").and_then(Value::as_array).into_iter().flatten();
        for (number, check) in one.into_iter().chain(more).enumerate() {
            self.agent_check(options, check, &id, number)?;
        }
        Ok(())
    }

    /// [agent/check, register] A check is critical until it was seen otherwise, or begins with the status that is given.
    fn agent_check(
        &mut self,
        options: &ConsulOptions,
        payload: &Value,
        service: &str,
        number: usize,
    ) -> Answer<()> {
        let node = options.node.as_str();
        let suffix = if number == 0 { String::new() } else { format!(":{}", number + 1) };
        let default = if service.is_empty() { String::new() } else { format!("service:{service}{suffix}") };
        let own = first(&[text_of(payload, "CheckID"), text_of(payload, "ID")]);
        let id = first(&[own, &default, text_of(payload, "Name")]).to_owned();
        let ttl = text_of(payload, "TTL");
        let kinds = [
            "HTTP",
            "TCP",
            "GRPC",
            "Args",
            "H2PING",
            "UDP",
            "AliasService",
            "AliasNode",
            "DockerContainerID",
        ];
        let kind = kinds.iter().find(|kind| field(payload, kind).is_some());
        if ttl.is_empty() && kind.is_none() {
            return refuse(StatusCode::BAD_REQUEST, "Invalid check: TTL must be > 0 for TTL checks");
        }
        let status = first(&[text_of(payload, "Status"), "critical"]);
        let mut typed = payload.clone();
        typed["Type"] = json!(kind.map_or("ttl".to_owned(), |kind| kind.to_ascii_lowercase()));
        self.put_check(node, &id, &typed, service, status, "")?;
        let key = (node.to_owned(), id);
        if !ttl.is_empty() {
            let Some(every) = duration(ttl) else { return refuse(StatusCode::BAD_REQUEST, "Invalid TTL") };
            self.ttls.insert(key.clone(), Ttl { every, deadline: Instant::now() + every });
        }
        if let Some(after) = duration(text_of(payload, "DeregisterCriticalServiceAfter")) {
            self.reapable.insert(key, (Instant::now(), after.max(options.reap_minimum)));
        }
        Ok(())
    }

    /// [agent/check, TTL check pass, warn, fail, update]
    fn update_ttl(&mut self, node: &str, verb: &str, id: &str, query: &Query, payload: &Value) -> Answer<()> {
        let status = match verb {
            "pass" => "passing",
            "warn" => "warning",
            "fail" => "critical",
            _ => text_of(payload, "Status"),
        };
        if !["passing", "warning", "critical"].contains(&status) {
            return refuse(StatusCode::BAD_REQUEST, format!("Invalid check status: {status:?}"));
        }
        let Some(ttl) = self.ttls.get_mut(&(node.to_owned(), id.to_owned())) else {
            return refuse(
                StatusCode::NOT_FOUND,
                format!("Unknown check ID {id:?}. Ensure that the check ID is passed, not the check name."),
            );
        };
        ttl.deadline = Instant::now() + ttl.every;
        let output = first(&[query.get("note").unwrap_or_default(), text_of(payload, "Output")]).to_owned();
        self.set_status(node, id, status, &output);
        Ok(())
    }

    fn maintenance(&mut self, node: &str, check: &str, service: &str, query: &Query) -> Answer<()> {
        match query.get("enable") {
            // [agent/service, maintenance] A boolean, as Go reads it.
            Some("true" | "True" | "TRUE" | "t" | "T" | "1") => {
                let reason = query.get("reason").filter(|reason| !reason.is_empty());
                let payload = json!({"Name": "Maintenance Mode", "Notes": reason.unwrap_or("Maintenance mode is enabled"), "Type": "maintenance"});
                self.put_check(node, check, &payload, service, "critical", "")
            }
            Some("false" | "False" | "FALSE" | "f" | "F" | "0") => {
                self.remove_check(node, check);
                Ok(())
            }
            _ => refuse(StatusCode::BAD_REQUEST, "Missing value for enable"),
        }
    }

    fn reap(&mut self, now: Instant) -> bool {
        let due: Vec<_> = self
            .reapable
            .iter()
            .filter(|(key, (since, after))| {
                *since + *after <= now
                    && self.checks.get(*key).is_some_and(|check| text(check, "Status") == "critical")
            })
            .filter_map(|(key, _)| Some((key.0.clone(), text(self.checks.get(key)?, "ServiceID").to_owned())))
            .collect();
        for (node, service) in &due {
            self.remove_service(node, service);
        }
        !due.is_empty()
    }

    fn instances(&self, name: &str) -> impl Iterator<Item = (&str, &Value)> {
        let keys = self.names.get(name).into_iter().flatten();
        keys.filter_map(|key| Some((key.0.as_str(), self.services.get(key)?)))
    }

    /// [health, list service instances] The instance, its node, and the checks of both.
    fn entry(&self, node: &str, service: &Value) -> Value {
        let checks =
            self.checks.range((node.to_owned(), String::new())..).take_while(|((on, _), _)| on == node);
        let id = text(service, "ID");
        let own = checks.map(|(_, check)| check).filter(|check| ["", id].contains(&text(check, "ServiceID")));
        let own: Vec<Value> = own.cloned().collect();
        json!({"Node": self.nodes.get(node), "Service": service, "Checks": own})
    }

    /// [catalog, list nodes for service] The same in one object, without health.
    fn flat(&self, node: &str, service: &Value) -> Value {
        let mut flat = self.nodes.get(node).cloned().unwrap_or_else(|| json!({}));
        let meta = flat.as_object_mut().and_then(|node| node.remove("Meta")).unwrap_or_default();
        flat["NodeMeta"] = meta;
        flat["ServiceName"] = service["Service"].clone();
        for (name, value) in service.as_object().into_iter().flatten() {
            if !["Service", "CreateIndex", "ModifyIndex"].contains(&name.as_str()) {
                flat[format!("Service{name}")] = value.clone();
            }
        }
        flat["ServiceKind"] = json!(text(service, "Kind"));
        flat["CreateIndex"] = service["CreateIndex"].clone();
        flat["ModifyIndex"] = service["ModifyIndex"].clone();
        flat
    }

    /// [catalog, list services] Names, each with the tags of all its instances.
    fn list_services(&self, query: &Query, rights: &Rights) -> Answer<Listed> {
        let filter = query.get("filter").filter(|text| !text.is_empty()).map(Filter::parse).transpose()?;
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut filtered = false;
        for ((node, _), service) in &self.services {
            let name = text(service, "Service");
            let meta = self.nodes.get(node).and_then(|node| node.get("Meta"));
            if !query.all("node-meta").all(|pair| has_meta(meta, pair)) {
                continue;
            }
            if !rights.reads_service(name) {
                filtered = true;
                continue;
            }
            if filter.as_ref().is_some_and(|filter| !filter.holds(&self.flat(node, service))) {
                continue;
            }
            let tags = service["Tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.entry(name).or_default().extend(tags);
        }
        Ok(Listed { value: json!(names), filtered })
    }

    fn list_checks(&self, rights: &Rights, wanted: impl Fn(&Value) -> bool) -> Listed {
        let checks = self.checks.values().filter(|check| wanted(check));
        Listed::of(checks.map(|check| {
            let service = text(check, "ServiceName");
            let allowed = rights.reads_nodes() && (service.is_empty() || rights.reads_service(service));
            (allowed, check.clone())
        }))
    }

    /// [catalog, list services for node] `null` where there is no such node: a 404 in this stand-in's words.
    fn node_services(&self, name: &str) -> Listed {
        let Some(node) = self.nodes.get(name) else { return Listed::whole(Value::Null) };
        let own = self.services.iter().filter(|((on, _), _)| on == name);
        let services: Map<String, Value> =
            own.map(|((_, id), service)| (id.clone(), service.clone())).collect();
        Listed::whole(json!({"Node": node, "Services": services}))
    }

    /// [kv, read key] 404 where there is nothing.
    fn read_key(&self, key: &str, query: &Query) -> Answer<Value> {
        let below = || self.kv.range(key.to_owned()..).take_while(|(name, _)| name.starts_with(key));
        if query.has("keys") {
            let separator = query.get("separator").filter(|separator| !separator.is_empty());
            let cut = |name: &String| {
                let rest = &name[key.len()..];
                let end = separator.and_then(|separator| rest.find(separator).map(|at| at + separator.len()));
                name[..end.map_or(name.len(), |end| key.len() + end)].to_owned()
            };
            let names: BTreeSet<String> = below().map(|(name, _)| cut(name)).collect();
            return if names.is_empty() { refuse(StatusCode::NOT_FOUND, "") } else { Ok(json!(names)) };
        }
        let one = self.kv.get_key_value(key);
        let pairs: Vec<Value> = if query.has("recurse") {
            below().map(|(name, pair)| pair.value(name)).collect()
        } else {
            one.into_iter().map(|(name, pair)| pair.value(name)).collect()
        };
        Ok(if pairs.is_empty() { Value::Null } else { Value::Array(pairs) })
    }

    /// [session, create] The defaults, and the limits of the TTL.
    fn create_session(&mut self, agent: &str, payload: &Value) -> Answer<String> {
        let ttl = text_of(payload, "TTL");
        let seconds = duration(ttl).filter(|_| !ttl.is_empty());
        if !ttl.is_empty() && !seconds.is_some_and(|ttl| (10..=86400).contains(&ttl.as_secs())) {
            return refuse(
                StatusCode::BAD_REQUEST,
                format!("Invalid Session TTL {ttl:?}, must be between [10s=24h0m0s]"),
            );
        }
        let node = first(&[text_of(payload, "Node"), agent]);
        if !self.nodes.contains_key(node) {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "Missing node registration");
        }
        let delay = duration(text_of(payload, "LockDelay")).unwrap_or(Duration::from_secs(15));
        let behavior = first(&[text_of(payload, "Behavior"), "release"]);
        let checks = field(payload, "NodeChecks").or_else(|| field(payload, "Checks"));
        let checks =
            checks.filter(|checks| checks.is_array()).cloned().unwrap_or_else(|| json!(["serfHealth"]));
        let id = uuid();
        let index = self.next();
        self.sessions_index = index;
        let value = json!({
            "ID": id, "Name": text_of(payload, "Name"), "Node": node,
            "LockDelay": u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), "Behavior": behavior, "TTL": ttl,
            "Checks": checks, "NodeChecks": checks, "ServiceChecks": null, "CreateIndex": index, "ModifyIndex": index,
        });
        let deadline = seconds.map(|ttl| Instant::now() + ttl);
        let session = Session { deletes: behavior == "delete", value, ttl: seconds, deadline, delay };
        self.sessions.insert(id.clone(), session);
        Ok(id)
    }

    /// [session, `Behavior`, `LockDelay`] What it held is released or deleted, and cannot be locked for a while.
    fn destroy_session(&mut self, id: &str) {
        let Some(session) = self.sessions.remove(id) else { return };
        let index = self.next();
        self.sessions_index = index;
        let held: Vec<String> = self
            .kv
            .iter()
            .filter(|(_, pair)| pair.session.as_deref() == Some(id))
            .map(|(key, _)| key.clone())
            .collect();
        for key in held {
            self.delayed.insert(key.clone(), Instant::now() + session.delay);
            if session.deletes {
                self.kv.remove(&key);
                self.deleted_index = index;
            } else if let Some(pair) = self.kv.get_mut(&key) {
                pair.session = None;
                pair.modified = index;
            }
        }
    }
}

impl Pair {
    fn value(&self, key: &str) -> Value {
        let mut value = json!({
            "LockIndex": self.locks, "Key": key, "Flags": self.flags, "Value": STANDARD.encode(&self.value),
            "CreateIndex": self.created, "ModifyIndex": self.modified,
        });
        if let Some(session) = &self.session {
            value["Session"] = json!(session);
        }
        value
    }
}

fn service_value(payload: &Value, id: &str, name: &str) -> Value {
    let tags = field(payload, "Tags").filter(|tags| tags.is_array()).cloned().unwrap_or_else(|| json!([]));
    let weights = object(payload, "Weights");
    let weight = |name: &str| field(&weights, name).and_then(Value::as_u64).unwrap_or(1);
    let mut tagged = Map::new();
    for (name, address) in object(payload, "TaggedAddresses").as_object().into_iter().flatten() {
        let port = field(address, "Port").and_then(Value::as_u64).unwrap_or_default();
        tagged.insert(name.clone(), json!({"Address": text_of(address, "Address"), "Port": port}));
    }
    let mut service = json!({
        "ID": id, "Service": name, "Tags": tags, "Address": text_of(payload, "Address"),
        "TaggedAddresses": tagged, "Meta": object(payload, "Meta"),
        "Port": field(payload, "Port").and_then(Value::as_u64).unwrap_or_default(),
        "Weights": {"Passing": weight("Passing"), "Warning": weight("Warning")},
        "EnableTagOverride": field(payload, "EnableTagOverride").and_then(Value::as_bool).unwrap_or_default(),
        "Proxy": object(payload, "Proxy"), "Connect": object(payload, "Connect"),
    });
    // Present only where it says something.
    if !text_of(payload, "Kind").is_empty() {
        service["Kind"] = json!(text_of(payload, "Kind"));
    }
    if let Some(locality) = field(payload, "Locality").filter(|locality| locality.is_object()) {
        service["Locality"] = locality.clone();
    }
    service
}

// ---------------------------------------------------------------------------------------------------------------------
// Filters

/// [filtering] An expression: selectors with `==`, `!=`, `is empty`, `in`, `contains`, `matches`, joined by `and`, `or`, `not` and parentheses.
enum Filter {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Equal(Vec<String>, String),
    Empty(Vec<String>),
    Contains(Vec<String>, String),
    Matches(Vec<String>, Regex),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
}

impl Filter {
    fn parse(text: &str) -> Answer<Self> {
        let failed = |reason: String| {
            Refusal(
                StatusCode::BAD_REQUEST,
                format!("Failed to create boolean expression evaluator: {reason}"),
            )
        };
        let mut tokens = Self::tokens(text).map_err(failed)?;
        let filter = Self::or(&mut tokens).map_err(failed)?;
        match tokens.front() {
            None => Ok(filter),
            Some(token) => Err(failed(format!("unexpected {token:?}"))),
        }
    }

    fn tokens(text: &str) -> Result<VecDeque<Token>, String> {
        let mut tokens = VecDeque::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let signs = ["==", "!=", "(", ")"];
            let (token, length) = if let Some(sign) = signs.into_iter().find(|sign| rest.starts_with(sign)) {
                (Token::Sign(sign), sign.len())
            } else if first == '"' || first == '`' {
                let end = rest[1..].find(first).ok_or("a string does not end")?;
                (Token::Text(rest[1..=end].to_owned()), end + 2)
            } else {
                // A selector may have a key in brackets.
                let mut quoted = false;
                let end = rest.find(|c: char| {
                    quoted ^= c == '"';
                    !quoted && (c.is_whitespace() || "()!=`".contains(c))
                });
                let end = end.unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            };
            if length == 0 {
                return Err(format!("unexpected {first:?}"));
            }
            tokens.push_back(token);
            rest = rest[length..].trim_start();
        }
        Ok(tokens)
    }

    fn or(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        let mut left = Self::and(tokens)?;
        while Self::word(tokens, "or") {
            left = Self::Or(Box::new(left), Box::new(Self::and(tokens)?));
        }
        Ok(left)
    }

    fn and(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        let mut left = Self::not(tokens)?;
        while Self::word(tokens, "and") {
            left = Self::And(Box::new(left), Box::new(Self::not(tokens)?));
        }
        Ok(left)
    }

    fn not(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        if Self::word(tokens, "not") {
            return Ok(Self::Not(Box::new(Self::not(tokens)?)));
        }
        if tokens.front() == Some(&Token::Sign("(")) {
            tokens.pop_front();
            let inner = Self::or(tokens)?;
            return match tokens.pop_front() {
                Some(Token::Sign(")")) => Ok(inner),
                _ => Err("a parenthesis does not end".to_owned()),
            };
        }
        Self::matching(tokens)
    }

    fn matching(tokens: &mut VecDeque<Token>) -> Result<Self, String> {
        let left = tokens.pop_front().ok_or("an expression is missing")?;
        if tokens.front() == Some(&Token::Sign("==")) || tokens.front() == Some(&Token::Sign("!=")) {
            let unequal = tokens.pop_front() == Some(Token::Sign("!="));
            let equal = Self::Equal(Self::selector(&left)?, Self::value(tokens.pop_front())?);
            return Ok(if unequal { Self::Not(Box::new(equal)) } else { equal });
        }
        if Self::word(tokens, "is") {
            let not = Self::word(tokens, "not");
            return if Self::word(tokens, "empty") {
                let empty = Self::Empty(Self::selector(&left)?);
                Ok(if not { Self::Not(Box::new(empty)) } else { empty })
            } else {
                Err("`is` needs `empty`".to_owned())
            };
        }
        let not = Self::word(tokens, "not");
        let plain = if Self::word(tokens, "in") {
            let right = tokens.pop_front().ok_or("a selector is missing")?;
            Self::Contains(Self::selector(&right)?, Self::value(Some(left))?)
        } else if Self::word(tokens, "contains") {
            Self::Contains(Self::selector(&left)?, Self::value(tokens.pop_front())?)
        } else if Self::word(tokens, "matches") {
            let pattern = Self::value(tokens.pop_front())?;
            Self::Matches(Self::selector(&left)?, Regex::new(&pattern).map_err(|error| error.to_string())?)
        } else {
            return Err(format!("no operator after {left:?}"));
        };
        Ok(if not { Self::Not(Box::new(plain)) } else { plain })
    }

    fn word(tokens: &mut VecDeque<Token>, word: &str) -> bool {
        let there = matches!(tokens.front(), Some(Token::Word(own)) if own == word);
        if there {
            tokens.pop_front();
        }
        there
    }

    fn value(token: Option<Token>) -> Result<String, String> {
        match token {
            Some(Token::Word(text) | Token::Text(text)) => Ok(text),
            _ => Err("a value is missing".to_owned()),
        }
    }

    /// `Service.Meta.key` or `Service.Meta["key"]`.
    fn selector(token: &Token) -> Result<Vec<String>, String> {
        let Token::Word(text) = token else { return Err(format!("not a selector: {token:?}")) };
        let mut parts = Vec::new();
        for part in text.split('[') {
            match part.strip_suffix("\"]").and_then(|part| part.strip_prefix('"')) {
                Some(key) => parts.push(key.to_owned()),
                None => parts.extend(part.split('.').filter(|part| !part.is_empty()).map(str::to_owned)),
            }
        }
        Ok(parts)
    }

    fn holds(&self, item: &Value) -> bool {
        match self {
            Self::And(left, right) => left.holds(item) && right.holds(item),
            Self::Or(left, right) => left.holds(item) || right.holds(item),
            Self::Not(inner) => !inner.holds(item),
            Self::Equal(path, value) => any(item, path, &|found| plain(found) == *value),
            Self::Empty(path) => !any(item, path, &|found| match found {
                Value::Array(list) => !list.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::String(text) => !text.is_empty(),
                _ => true,
            }),
            Self::Contains(path, value) => any(item, path, &|found| match found {
                Value::Array(list) => list.iter().any(|one| plain(one) == *value),
                Value::Object(map) => map.contains_key(value),
                Value::String(text) => text.contains(value.as_str()),
                _ => false,
            }),
            Self::Matches(path, pattern) => any(item, path, &|found| pattern.is_match(&plain(found))),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether something at the path satisfies the test; what is within a list is looked at one by one.
fn any(value: &Value, path: &[String], test: &dyn Fn(&Value) -> bool) -> bool {
    let Some((name, rest)) = path.split_first() else { return test(value) };
    match value {
        Value::Array(list) => list.iter().any(|one| any(one, path, test)),
        _ => value.get(name).is_some_and(|inner| any(inner, rest, test)),
    }
}
