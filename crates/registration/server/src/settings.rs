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
    pub address: SocketAddr,
    /// TLS, which must offer [`ALPN`](crate::ALPN). Clients then need an identity: a certificate or a token.
    pub tls: Option<Arc<Tls>>,
    /// Allows plaintext on an address that other machines reach.
    pub allow_plaintext: bool,
    /// Files of tokens and rules.
    pub access: AccessFiles,
    /// Additional authenticators, such as service account tokens.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
    /// The domain of the cluster, as in `web.default.svc.cluster.local`.
    pub domain: String,
    /// The mesh that registrations are part of.
    pub mesh: Arc<dyn Mesh>,
    /// Pilotfish's version, for the OpenAPI document.
    pub version: String,
    /// Limits and timeouts of clients.
    pub limits: ServerLimits,
    /// Interval of responses of a watch without changes.
    pub bookmark_interval: Duration,
    /// Polling interval of the files of tokens and rules.
    pub reload_interval: Duration,
}

impl ServerSettings {
    /// Default settings with this address.
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
