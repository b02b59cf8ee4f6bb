//! A running simulated agent, and the state of its connections.

use super::connection::run;
use super::options::{Acl, Asked, ConsulCounts, ConsulFault, ConsulOptions, ConsulTls};
use super::store::Store;
use super::write::{catalog_deregister, catalog_register};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A running simulated agent; ends on drop.
pub struct Consul {
    pub(super) shared: Arc<Shared>,
    pub(super) address: SocketAddr,
    pub(super) server: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    pub(super) options: ConsulOptions,
    pub(super) tls: Mutex<Option<TlsAcceptor>>,
    pub(super) state: Mutex<State>,
    /// Incremented with every change, to wake blocked queries.
    pub(super) changes: watch::Sender<u64>,
}

pub(super) struct State {
    pub(super) stores: BTreeMap<String, Store>,
    pub(super) leader: bool,
    pub(super) acl: Option<Acl>,
    pub(super) faults: Vec<(String, ConsulFault)>,
    pub(super) counts: ConsulCounts,
    pub(super) by_client: BTreeMap<IpAddr, usize>,
    pub(super) asked: Option<Vec<Asked>>,
}

impl Consul {
    /// Starts an agent.
    ///
    /// # Panics
    /// When the address is in use, or the certificate is invalid.
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

    /// Starts an agent with the default options.
    pub async fn plain() -> Self {
        Self::start(ConsulOptions::default()).await
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listen address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.shared.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Kills the agent: closes all connections and the listener. Its data stays for [`Consul::resume`].
    pub async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            // Always an error: the task was aborted.
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
    /// When the address is in use.
    pub async fn resume(&mut self) {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.expect("sockets can be had");
        socket.set_reuseaddr(true).expect("a new socket takes options");
        socket.bind(self.address).expect("the address is free");
        let listener = socket.listen(1024).expect("it is bound");
        self.address = listener.local_addr().expect("it is bound");
        self.server = Some(tokio::spawn(run(self.shared.clone(), listener)));
    }

    /// Loses all data, like a server without its disk: indexes restart at a low value.
    pub fn forget(&self) {
        let stores = Store::all(&self.shared.options);
        self.change(|state| state.stores = stores);
    }

    /// Sets the presence of a leader.
    pub fn set_leader(&self, leader: bool) {
        self.change(|state| state.leader = leader);
    }

    pub fn set_acl(&self, acl: Option<Acl>) {
        self.change(|state| state.acl = acl);
    }

    /// Uses another certificate for new connections.
    pub fn set_tls(&self, tls: &ConsulTls) {
        *self.shared.tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(acceptor(tls));
    }

    /// Injects a fault for requests with this path prefix, such as `/v1/health/service/web`, until
    /// [`Consul::heal`].
    pub fn fail(&self, path: &str, fault: ConsulFault) {
        self.change(|state| state.faults.push((path.to_owned(), fault)));
    }

    pub fn heal(&self) {
        self.change(|state| state.faults.clear());
    }

    /// Counters; resets those of requests.
    #[must_use]
    pub fn take_counts(&self) -> ConsulCounts {
        let mut state = self.shared.lock();
        let counts = state.counts.clone();
        state.counts.requests.clear();
        state.counts.refused = 0;
        state.counts.most_connections = counts.connections;
        counts
    }

    #[must_use]
    pub fn counts(&self) -> ConsulCounts {
        self.shared.lock().counts.clone()
    }

    /// Requests since the last call; the first call starts the recording.
    #[must_use]
    pub fn take_asked(&self) -> Vec<Asked> {
        self.shared.lock().asked.replace(Vec::new()).unwrap_or_default()
    }

    /// Registers like `PUT /v1/catalog/register`, without a socket.
    ///
    /// # Panics
    /// When the registration is refused.
    pub fn register(&self, registration: &Value) {
        self.change(|state| {
            catalog_register(state, &self.shared.options, registration).expect("it is taken")
        });
    }

    /// Deregisters like `PUT /v1/catalog/deregister`, without a socket.
    ///
    /// # Panics
    /// When it is refused.
    pub fn deregister(&self, what: &Value) {
        self.change(|state| catalog_deregister(state, &self.shared.options, what).expect("it is taken"));
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }
}

pub(crate) fn acceptor(tls: &ConsulTls) -> TlsAcceptor {
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
