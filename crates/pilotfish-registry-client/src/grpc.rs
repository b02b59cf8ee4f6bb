//! gRPC to a product.

use crate::connect::UriConnector;
use crate::{Connector, Server};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// A server that does not answer pings for this long is gone: a silent one must not look like a quiet one.
const PING: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A channel to a server, which connects at its first call. TLS needs options with ALPN `h2`.
///
/// # Errors
/// When the server is no host and port of a URI.
pub fn grpc_channel(connector: Connector, server: &Server) -> Result<Channel, tonic::transport::Error> {
    // The connector does TLS, or not: told of `https`, tonic would do it itself. Requests say what it is.
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
