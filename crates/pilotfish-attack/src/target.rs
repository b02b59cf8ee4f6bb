//! The control plane under attack.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use pilotfish_testkit::real::{ApiServer, ApiServerProxy};

/// The cluster of the control plane under attack.
pub struct Cluster {
    /// The API server, which the attacker may write to.
    pub server: ApiServer,
    /// The way of the control plane to it.
    pub proxy: ApiServerProxy,
}

/// Where the control plane under attack listens, and the files that it reads. What is `None` could not be started: its attacks skip
/// themselves and say why ([`Tally::skipped`](crate::Tally::skipped)).
#[derive(Clone)]
pub struct Target {
    /// The executable, for attacks that start one of their own.
    pub pilotfish: PathBuf,
    /// xDS without TLS.
    pub plaintext_xds: SocketAddr,
    /// xDS over TLS, for clients with a certificate of [`ca_certificate`](Self::ca_certificate) or a token.
    pub tls_xds: SocketAddr,
    /// Health, metrics and debug pages.
    pub admin: SocketAddr,
    /// The admission webhooks, over TLS. They need an API server.
    pub webhook: Option<SocketAddr>,
    /// Its cluster. `None` without an API server.
    pub cluster: Option<Arc<Cluster>>,
    /// The registration API, without TLS.
    pub registration: Option<SocketAddr>,
    /// The authority of the server's certificate on [`tls_xds`](Self::tls_xds) and of those of its clients, in PEM.
    pub ca_certificate: PathBuf,
    /// The chain and the key of such a server, in PEM.
    pub server: (PathBuf, PathBuf),
    /// The chain, in PEM, of a client that has an identity: the service account `bench/stranger`.
    pub client_certificate: PathBuf,
    /// Its key, in PEM.
    pub client_key: PathBuf,
    /// The chain and the key, in PEM, of a client of the same authority and of another trust domain:
    /// `spiffe://foreign.example/ns/bench/sa/stranger`.
    pub foreign: (PathBuf, PathBuf),
    /// Chains and keys, in PEM, of the same authority that prove no identity: with several URIs, or one that
    /// is no SPIFFE id.
    pub unproven: Vec<(PathBuf, PathBuf)>,
    /// The folder of YAML that is watched. An attack that writes here removes its files at its end.
    pub config: PathBuf,
}
