//! gRPC channels.

use crate::connector::UriConnector;
use crate::{Connector, Server};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Keepalive interval: without pings, a dead server is indistinguishable from one without changes.
const PING: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a channel to a server, which connects at its first call. TLS needs options with ALPN `h2`.
///
/// # Errors
/// When host and port are not valid in a URI.
pub fn grpc_channel(connector: Connector, server: &Server) -> Result<Channel, tonic::transport::Error> {
    // The connector does TLS: for an `https` endpoint tonic would add its own. The origin carries the real
    // scheme.
    let scheme = if connector.is_tls() { "https" } else { "http" };
    let origin = Endpoint::from_shared(format!("{scheme}://{server}"))?.uri().clone();
    let endpoint = Endpoint::from_shared(format!("http://{server}"))?
        .origin(origin)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector_lazy(UriConnector::new(connector)))
}
