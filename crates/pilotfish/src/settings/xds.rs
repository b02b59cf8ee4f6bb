//! Listener of xDS, its limits, and the debounce windows.

use super::check::Check;
use super::parse;
use clap::Args;
use pilotfish_control_plane::control::Windows;
use pilotfish_control_plane::resources::ConfigurationClients;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "xDS")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct XdsArgs {
    /// Listen address of xDS without TLS (gRPC) [default: 127.0.0.1:15010]
    #[arg(long, env = "PILOTFISH_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) xds_address: Option<String>,
    /// Allows a --xds-address that other machines reach: every client that can reach the port can read the
    /// configuration of all namespaces, without TLS
    #[arg(long, env = "PILOTFISH_ALLOW_PLAINTEXT_XDS")]
    pub(crate) allow_plaintext_xds: bool,
    /// Trusts the namespace and service account in a proxy's node metadata on connections from 127.0.0.1 and
    /// ::1 without authentication: the proxy then gets the secrets of that namespace. Needs --xds-address on
    /// loopback
    #[arg(long, env = "PILOTFISH_TRUST_NODES")]
    pub(crate) trust_nodes: bool,
    /// Clients that may read the configuration itself, as MCP over xDS: namespaces (all their identities),
    /// identities, `anyone` (also without TLS), or `nobody` [default: the root namespace]
    #[arg(long, env = "PILOTFISH_SERVE_CONFIGURATION", value_name = "CLIENT,...")]
    pub(crate) serve_configuration: Option<String>,
    /// Maximum duration of a graceful stop; then streams are closed [default: 10s]
    #[arg(long, env = "PILOTFISH_DRAIN_DEADLINE", value_name = "DURATION")]
    pub(crate) drain_deadline: Option<String>,
    /// Maximum size of a request of a proxy, in bytes [default: 4194304]
    #[arg(long, env = "PILOTFISH_MAX_REQUEST_BYTES", value_name = "N")]
    pub(crate) max_request_bytes: Option<String>,
    /// Maximum number of streams of each of the two ports [default: 100000]
    #[arg(long, env = "PILOTFISH_MAX_STREAMS", value_name = "N")]
    pub(crate) max_streams: Option<String>,
    /// Maximum number of connections of each of the two ports [default: 50000, or what the limit of open
    /// files allows]
    #[arg(long, env = "PILOTFISH_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<String>,
    /// Maximum duration of a connection with TLS: then its client connects and authenticates again
    /// [default: 30m]
    #[arg(long, env = "PILOTFISH_MAX_IDENTITY_AGE", value_name = "DURATION")]
    pub(crate) max_identity_age: Option<String>,
    /// Maximum number of resource names that one stream may subscribe to, over all types [default: 100000]
    #[arg(long, env = "PILOTFISH_MAX_SUBSCRIPTIONS", value_name = "N")]
    pub(crate) max_subscriptions: Option<String>,
    /// Memory for the resource names that all streams subscribe to, in bytes: at most three parts of 32 of it
    /// for one identity, five for all clients that have none, and four for one address of these
    /// [default: 1073741824]
    #[arg(long, env = "PILOTFISH_MAX_ALL_SUBSCRIPTION_BYTES", value_name = "N")]
    pub(crate) max_all_subscription_bytes: Option<String>,
    /// Memory for what all streams' nodes say, in bytes: at most a quarter of it for one identity, as much
    /// for all clients that have none, and a sixteenth for one address of these [default: 536870912]
    #[arg(long, env = "PILOTFISH_MAX_ALL_NODE_BYTES", value_name = "N")]
    pub(crate) max_all_node_bytes: Option<String>,
    /// Debounce of endpoint changes of one namespace: pause and ceiling
    /// [default: 3ms,30ms]
    #[arg(long, env = "PILOTFISH_ENDPOINT_WINDOW", value_name = "PAUSE,CEILING")]
    pub(crate) endpoint_window: Option<String>,
    /// Debounce of configuration changes of one namespace: pause and ceiling [default: 20ms,200ms]
    #[arg(long, env = "PILOTFISH_CONFIG_WINDOW", value_name = "PAUSE,CEILING")]
    pub(crate) config_window: Option<String>,
}

/// Listener of xDS, its limits, and the debounce windows.
#[derive(Clone, Debug)]
pub(crate) struct XdsSettings {
    pub(crate) address: SocketAddr,
    /// True if a proxy's node is trusted on a connection without authentication.
    pub(crate) trust_nodes: bool,
    /// Clients that may read configuration; `None` for the root namespace.
    pub(crate) serve_configuration: Option<ConfigurationClients>,
    pub(crate) drain_deadline: Duration,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_streams: usize,
    /// Maximum number of connections of a port; `None` for what open files allow.
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_identity_age: Duration,
    /// Maximum number of names of one stream.
    pub(crate) max_subscriptions: usize,
    /// Bytes of the names of all streams.
    pub(crate) max_all_subscription_bytes: usize,
    /// Bytes of the nodes of all streams.
    pub(crate) max_all_node_bytes: usize,
    pub(crate) windows: Windows,
}

impl XdsArgs {
    pub(super) fn check(self, check: &mut Check) -> XdsSettings {
        let address = check.parse("--xds-address", self.xds_address.as_deref(), parse::address);
        let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 15010)));
        if !address.ip().is_loopback() {
            let text = address.to_string();
            if self.trust_nodes {
                let hint = "other machines reach it, and with --trust-nodes every client gets the secrets of \
                    any namespace: use --secure-xds-address";
                check.wrong("--xds-address", &text, hint);
            } else if !self.allow_plaintext_xds {
                let hint = "other machines reach it, and the port has no TLS: use --secure-xds-address, or \
                    add --allow-plaintext-xds";
                check.wrong("--xds-address", &text, hint);
            }
        }
        let age = check.parse("--max-identity-age", self.max_identity_age.as_deref(), parse::duration);
        let serve_configuration = check.parse(
            "--serve-configuration",
            self.serve_configuration.as_deref(),
            ConfigurationClients::parse,
        );
        let deadline = check.parse("--drain-deadline", self.drain_deadline.as_deref(), parse::duration);
        let mut limit =
            |flag, value: Option<&str>, default| check.parse(flag, value, parse::limit).unwrap_or(default);
        let max_request_bytes = limit("--max-request-bytes", self.max_request_bytes.as_deref(), 4 << 20);
        let max_streams = limit("--max-streams", self.max_streams.as_deref(), 100_000);
        let max_connections = self.max_connections.as_deref();
        let max_connections = max_connections.map(|text| limit("--max-connections", Some(text), 50_000));
        let max_subscriptions = limit("--max-subscriptions", self.max_subscriptions.as_deref(), 100_000);
        let all_bytes = self.max_all_subscription_bytes.as_deref();
        let max_all_subscription_bytes = limit("--max-all-subscription-bytes", all_bytes, 1 << 30);
        let node_bytes = self.max_all_node_bytes.as_deref();
        let max_all_node_bytes = limit("--max-all-node-bytes", node_bytes, 512 << 20);
        let default = Windows::default();
        let endpoints = check.parse("--endpoint-window", self.endpoint_window.as_deref(), parse::window);
        let config = check.parse("--config-window", self.config_window.as_deref(), parse::window);
        XdsSettings {
            address,
            trust_nodes: self.trust_nodes,
            serve_configuration,
            drain_deadline: deadline.unwrap_or(Duration::from_secs(10)),
            max_request_bytes,
            max_streams,
            max_connections,
            max_identity_age: age.unwrap_or(Duration::from_secs(30 * 60)),
            max_subscriptions,
            max_all_subscription_bytes,
            max_all_node_bytes,
            windows: Windows {
                endpoints: endpoints.unwrap_or(default.endpoints),
                config: config.unwrap_or(default.config),
            },
        }
    }
}
