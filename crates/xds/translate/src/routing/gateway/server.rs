//! One server of a gateway, after merging.

use crate::routing::ir::{ServerHost, WrittenHosts};
use pilotfish_config::networking::{Port, Server, ServerTlsMode, ServerTlsSettings};
use pilotfish_model::{Namespace, Origin, Protocol};
use std::sync::Arc;

/// The list of a VirtualService's routes that applies to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRoutes {
    /// `http`: plain HTTP, or HTTPS that is terminated by the server.
    Http,
    /// `tls`: connections that are passed through by their SNI.
    Tls,
    /// `tcp`: all other connections.
    Tcp,
}

impl ServerRoutes {
    /// Returns the list for a server; `None` for AUTO_PASSTHROUGH, which has no routes.
    #[must_use]
    pub(crate) fn of(port: &Port, tls: Option<&ServerTlsSettings>) -> Option<Self> {
        let protocol = Protocol::parse(&port.protocol);
        match tls.map(|tls| tls.mode) {
            _ if protocol.is_http() => Some(Self::Http),
            Some(ServerTlsMode::AutoPassthrough) => None,
            Some(ServerTlsMode::Passthrough) => Some(Self::Tls),
            Some(_) if protocol == Protocol::Https => Some(Self::Http),
            _ => Some(Self::Tcp),
        }
    }
}

/// A server after merging.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MergedServer {
    /// Its gateway as `namespace/name`.
    pub gateway: Arc<str>,
    /// The namespace of its gateway.
    pub namespace: Namespace,
    /// The server as written.
    pub spec: Server,
    /// Its port as written.
    pub port: Port,
    pub hosts: Vec<ServerHost>,
    /// The hosts as written, of Istio's Gateways.
    pub written: WrittenHosts,
    /// The name of its route configuration; empty for servers that route no requests.
    pub route: Arc<str>,
    /// The objects that made it.
    pub provenance: Arc<[Origin]>,
}

impl MergedServer {
    /// The protocol of its port.
    #[must_use]
    pub(crate) fn protocol(&self) -> Protocol {
        Protocol::parse(&self.port.protocol)
    }

    /// Returns true if connections are passed through without ending TLS.
    #[must_use]
    pub(crate) fn passes_through(&self) -> bool {
        let mode = self.spec.tls.as_ref().map(|tls| tls.mode);
        matches!(mode, Some(ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough))
    }

    /// Returns true if the server terminates TLS or passes it through; false for plain HTTP with a redirect
    /// to HTTPS.
    #[must_use]
    pub(crate) fn is_tls(&self) -> bool {
        self.spec.tls.is_some() && !self.protocol().is_http()
    }

    /// Returns true if the server routes requests: plain HTTP, or HTTPS that is terminated here.
    #[must_use]
    pub(crate) fn is_http(&self) -> bool {
        ServerRoutes::of(&self.port, self.spec.tls.as_ref()) == Some(ServerRoutes::Http)
    }

    /// Returns true if plain HTTP requests are redirected to HTTPS.
    #[must_use]
    pub(crate) fn redirects(&self) -> bool {
        self.spec.tls.as_ref().is_some_and(|tls| tls.https_redirect)
    }

    /// The SNI names that its TLS connections are matched by, sorted.
    #[must_use]
    pub(crate) fn sni_hosts(&self) -> Vec<String> {
        if self.spec.tls.is_none() {
            return Vec::new();
        }
        let mut hosts: Vec<String> = self.hosts.iter().map(|host| host.host.to_string()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }
}
