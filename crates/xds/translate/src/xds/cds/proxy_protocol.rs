//! The PROXY protocol towards endpoints: a socket around the one that was chosen.

use super::draft::Draft;
use super::tls::raw_buffer;
use pilotfish_config::networking::{ProxyProtocol, ProxyProtocolVersion};
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::core::v3::proxy_protocol_config::Version;
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use pilotfish_proto::envoy::config::core::v3::{ProxyProtocolConfig, TransportSocket};
use pilotfish_proto::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;

/// Applies the settings. Must be called after TLS is set.
pub(super) fn apply(draft: &mut Draft, settings: Option<&ProxyProtocol>) {
    let Some(settings) = settings else { return };
    let version = match settings.version {
        ProxyProtocolVersion::V1 => Version::V1,
        ProxyProtocolVersion::V2 => Version::V2,
    };
    let cluster = &mut draft.cluster;
    if cluster.transport_socket_matches.is_empty() {
        let inner = cluster.transport_socket.take().unwrap_or_else(|| raw_buffer("raw_buffer"));
        cluster.transport_socket = Some(around(inner, version));
        return;
    }
    for choice in &mut cluster.transport_socket_matches {
        choice.transport_socket = choice.transport_socket.take().map(|inner| around(inner, version));
    }
}

fn around(inner: TransportSocket, version: Version) -> TransportSocket {
    let transport = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig { version: version as i32, ..ProxyProtocolConfig::default() }),
        transport_socket: Some(inner),
        ..ProxyProtocolUpstreamTransport::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".to_owned(),
        config_type: config_any(&transport).map(ConfigType::TypedConfig),
    }
}
