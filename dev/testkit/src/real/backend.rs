//! Sample backends: HTTP servers that respond with their name.

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A server that answers every request with its name. Ends on drop.
pub struct Backend {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Backend {
    /// Starts a backend on a free port of an address.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(ip: &str, name: &str) -> Self {
        Self::listen((ip, 0), name).await
    }

    /// Starts a backend on that address.
    ///
    /// # Panics
    /// When it cannot be bound.
    pub async fn listen(address: (&str, u16), name: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("the address is free");
        let address = listener.local_addr().expect("it is bound");
        let name: Arc<str> = name.into();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((io, peer)) = listener.accept().await {
                let name = name.clone();
                let answer = move |_: Request<Incoming>| {
                    let name = name.clone();
                    async move { Ok::<_, Infallible>(answer(&name, peer)) }
                };
                connections
                    .spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service_fn(answer)));
            }
        });
        Self { address, task }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Response with the name, and the caller's address in a header.
fn answer(name: &str, peer: SocketAddr) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(name.as_bytes().to_vec())));
    if let Ok(peer) = peer.ip().to_string().parse() {
        answer.headers_mut().insert("x-peer", peer);
    }
    answer
}
