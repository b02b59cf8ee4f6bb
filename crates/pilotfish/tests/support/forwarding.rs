//! An API server that lists Pods and forwards a port of them, as the kubelet does behind a real one.

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

/// The subprotocol of port forwarding: each message begins with a channel, of which a port has one for data
/// and one for errors.
const PROTOCOL: &str = "v4.channel.k8s.io";

/// A server.
pub(crate) struct ForwardingServer {
    address: SocketAddr,
    /// The targets of the requests that it got.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl ForwardingServer {
    /// Begins to serve these Pods. Their port leads to `target`, where there is one; else it is refused as a
    /// kubelet refuses it.
    pub(crate) async fn start(pods: Vec<Value>, target: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, pods) = (asked.clone(), Arc::new(pods));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, pods.clone(), target, log.clone()));
            }
        });
        Self { address, asked }
    }

    /// A kubeconfig whose context `here` leads to it, and whose current context leads nowhere.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let cluster = |server: String| json!({"server": server});
        let context = |name: &str| json!({"name": name, "context": {"cluster": name, "user": "somebody"}});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
            "clusters": [
                {"name": "here", "cluster": cluster(format!("http://{}", self.address))},
                {"name": "nowhere", "cluster": cluster("http://127.0.0.1:1".to_owned())},
            ],
            "contexts": [context("here"), context("nowhere")],
            "users": [{"name": "somebody", "user": {}}],
        });
        let path = folder.join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}

/// A Pod, with its admin port.
pub(crate) fn pod(name: &str, is_ready: bool) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "istio-system", "labels": {"app.kubernetes.io/name": "pilotfish"}},
        "spec": {"containers": [{"name": "pilotfish", "ports": [
            {"name": "tls-xds", "containerPort": 15012}, {"name": "http-monitoring", "containerPort": 15999},
        ]}]},
        "status": {"conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]},
    })
}

/// Answers one request of a connection.
async fn serve(
    mut stream: TcpStream,
    pods: Arc<Vec<Value>>,
    target: Option<SocketAddr>,
    asked: Arc<Mutex<Vec<String>>>,
) {
    let mut head = [0; 16_384];
    let read = stream.peek(&mut head).await.unwrap_or(0);
    let line = String::from_utf8_lossy(&head[..read]).lines().next().unwrap_or_default().to_owned();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    asked.lock().unwrap().push(path.clone());
    if path.contains("/portforward?") {
        return forward(stream, &path, target).await;
    }
    let list = if path.ends_with("/token") { token(&path) } else { list(&path, &pods) }.to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{list}",
        list.len()
    );
    // The request is read, so that closing does not reset the connection before the answer is.
    read_request(&mut stream).await;
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Reads a request with its body.
async fn read_request(stream: &mut TcpStream) {
    let mut all = Vec::new();
    let is_whole = |all: &[u8]| {
        let text = String::from_utf8_lossy(all).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0)
    };
    while !is_whole(&all) {
        if !matches!(stream.read_buf(&mut all).await, Ok(1..)) {
            return;
        }
    }
}

/// The Pods that a path asks for: all of them, or those with a label, which are Pilotfish's.
fn list(path: &str, pods: &[Value]) -> Value {
    let is_meant = |pod: &&Value| {
        !path.contains("labelSelector=") || pod["metadata"]["labels"]["app.kubernetes.io/name"] == "pilotfish"
    };
    let items: Vec<&Value> = pods.iter().filter(is_meant).collect();
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
}

/// A token of the service account of a path: `NAMESPACE/NAME`.
fn token(path: &str) -> Value {
    let parts: Vec<&str> = path.split('/').collect();
    json!({"kind": "TokenRequest", "status": {"token": format!("{}/{}", parts[4], parts[6])}})
}

#[allow(clippy::result_large_err, reason = "the type is the library's")]
fn accept(_: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    response.headers_mut().insert("sec-websocket-protocol", PROTOCOL.parse().unwrap());
    Ok(response)
}

/// Carries bytes between a WebSocket and a port.
async fn forward(stream: TcpStream, path: &str, target: Option<SocketAddr>) {
    let port: u16 = path.split_once("ports=").unwrap().1.parse().unwrap();
    let socket = tokio_tungstenite::accept_hdr_async(stream, accept).await.unwrap();
    let (mut out, mut messages) = socket.split();
    for channel in [0, 1] {
        let [low, high] = port.to_le_bytes();
        out.send(Message::binary(vec![channel, low, high])).await.unwrap();
    }
    let connected = match target {
        Some(target) => TcpStream::connect(target).await.ok(),
        None => None,
    };
    let Some(connected) = connected else {
        let words = format!("failed to connect to localhost:{port} inside namespace");
        let _ = out.send(Message::binary([&[1], words.as_bytes()].concat())).await;
        let _ = out.close().await;
        return;
    };
    let (mut from, mut to) = connected.into_split();
    let sending = async {
        let mut bytes = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            if out.send(Message::binary([&[0], &bytes[..read]].concat())).await.is_err() {
                return;
            }
        }
        let _ = out.close().await;
    };
    let receiving = async {
        while let Some(Ok(message)) = messages.next().await {
            if let [0, bytes @ ..] = &*message.into_data()
                && to.write_all(bytes).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! { () = sending => {}, () = receiving => {} }
}
