//! Settings of the server.

use crate::access::AccessFiles;
use crate::limits::ServerLimits;
use crate::mesh::{Mesh, NoMesh};
use pilotfish_identity::{Authenticator, Tls};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the server.
pub struct ServerSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// TLS, which has to offer [`ALPN`](crate::ALPN). Clients then have to prove an identity: by certificate or by token.
    pub tls: Option<Arc<Tls>>,
    /// Whether it may listen without TLS on an address that other machines reach.
    pub allow_plaintext: bool,
    /// Tokens and rules.
    pub access: AccessFiles,
    /// Further ways to prove an identity, such as service account tokens.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
    /// The domain of the cluster, as in `web.default.svc.cluster.local`.
    pub domain: String,
    /// The mesh that registrations are part of.
    pub mesh: Arc<dyn Mesh>,
    /// Pilotfish's version, for the OpenAPI document.
    pub version: String,
    /// Limits of clients.
    pub limits: ServerLimits,
    /// Time between two responses of a quiet watch.
    pub bookmark_interval: Duration,
    /// How often files of tokens and rules are looked at.
    pub reload_interval: Duration,
}

impl ServerSettings {
    /// The defaults, on that address.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            allow_plaintext: false,
            access: AccessFiles::default(),
            authenticators: Vec::new(),
            domain: "cluster.local".to_owned(),
            mesh: Arc::new(NoMesh),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limits: ServerLimits::default(),
            bookmark_interval: Duration::from_secs(30),
            reload_interval: Duration::from_secs(2),
        }
    }
}
