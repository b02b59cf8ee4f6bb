//! Attacked control plane.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use pilotfish_testkit::real::{ApiServer, ApiServerProxy};

/// Cluster of the attacked control plane.
pub struct Cluster {
    /// API server, which the attacker may write to.
    pub server: ApiServer,
    /// Proxy between the control plane and the API server.
    pub proxy: ApiServerProxy,
}

/// Addresses of the attacked control plane, and its files. For parts that could not be started (`None`),
/// attacks skip themselves with a reason ([`Tally::skipped`](crate::Tally::skipped)).
#[derive(Clone)]
pub struct Target {
    /// Executable, for attacks that start their own one.
    pub pilotfish: PathBuf,
    pub plaintext_xds: SocketAddr,
    /// xDS over TLS, for clients with a certificate of [`ca_certificate`](Self::ca_certificate) or a token.
    pub tls_xds: SocketAddr,
    /// Health, metrics and debug pages.
    pub admin: SocketAddr,
    /// Admission webhooks, over TLS. They need an API server.
    pub webhook: Option<SocketAddr>,
    /// Its cluster; `None` without an API server.
    pub cluster: Option<Arc<Cluster>>,
    /// Registration API, without TLS.
    pub registration: Option<SocketAddr>,
    /// Authority of the server's certificate on [`tls_xds`](Self::tls_xds) and of those of its clients, in
    /// PEM.
    pub ca_certificate: PathBuf,
    /// Chain and key of a server certificate, in PEM.
    pub server: (PathBuf, PathBuf),
    /// Chain, in PEM, of a client with an identity: the service account `bench/stranger`.
    pub client_certificate: PathBuf,
    /// Key of that client, in PEM.
    pub client_key: PathBuf,
    /// Chain and key, in PEM, of a client of the same authority and of another trust domain:
    /// `spiffe://foreign.example/ns/bench/sa/stranger`.
    pub foreign: (PathBuf, PathBuf),
    /// Chains and keys, in PEM, of the same authority without a valid identity: with several URIs, or one
    /// that is not a SPIFFE id.
    pub unproven: Vec<(PathBuf, PathBuf)>,
    /// Chain and key, in PEM, of an expired certificate of the stranger.
    pub expired: (PathBuf, PathBuf),
    /// Chains and keys, in PEM, of the service accounts `bench/many-0`, `bench/many-1` and so on.
    pub many: Vec<(PathBuf, PathBuf)>,
    /// Watched directory of YAML files. An attack that writes here removes its files at its end.
    pub config: PathBuf,
}
