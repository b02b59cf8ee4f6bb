//! Construction of filters, and filters that all listeners of a kind have.

use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::listener::v3::{Filter, ListenerFilter, filter, listener_filter};
use pilotfish_proto::envoy::extensions::filters::http::cors::v3::Cors;
use pilotfish_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use pilotfish_proto::envoy::extensions::filters::http::grpc_stats::v3::FilterConfig as GrpcStats;
use pilotfish_proto::envoy::extensions::filters::http::grpc_stats::v3::filter_config;
use pilotfish_proto::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use pilotfish_proto::envoy::extensions::filters::http::router::v3::Router;
use pilotfish_proto::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use pilotfish_proto::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use pilotfish_proto::envoy::extensions::filters::listener::original_src::v3::OriginalSrc;
use pilotfish_proto::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use pilotfish_proto::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use pilotfish_proto::istio::{AlpnFilterConfig, AlpnOverride, UpstreamProtocol};
use pilotfish_proto::{Any, any, typed_struct};
use prost::{Message, Name};

use crate::envoy::TrafficClass;
use crate::envoy::metadata::{fields, flag, list, record, text};

/// The ALPN protocols that the HTTP inspector reports for clear-text HTTP.
pub(crate) const PLAINTEXT_HTTP: [&str; 2] = ["http/1.1", "h2c"];
/// As above, for proxies that speak HTTP/1.0.
pub(crate) const PLAINTEXT_HTTP10: [&str; 3] = ["http/1.0", "http/1.1", "h2c"];
/// Transport protocol of connections without TLS.
pub(crate) const RAW_BUFFER: &str = "raw_buffer";
/// Transport protocol that the TLS inspector sets for TLS connections.
pub(crate) const TLS: &str = "tls";

pub(crate) fn network<M: Message + Name>(name: &str, config: &M) -> Filter {
    network_any(name, any(config))
}

/// A network filter with an encoded configuration.
pub(crate) fn network_any(name: &str, config: Any) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(config)) }
}

pub(crate) fn http<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    http_any(name, any(config))
}

/// An HTTP filter with an encoded configuration.
pub(crate) fn http_any(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(config)),
        ..Default::default()
    }
}

pub(crate) fn listener<M: Message + Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(config))),
        ..Default::default()
    }
}

/// Detects SNI and ALPN of TLS connections.
pub(crate) fn tls_inspector() -> ListenerFilter {
    let config = TlsInspector { initial_read_buffer_size: Some(512), ..Default::default() };
    listener("envoy.filters.listener.tls_inspector", &config)
}

/// Detects HTTP (the HTTP inspector).
pub(crate) fn http_inspector() -> ListenerFilter {
    listener("envoy.filters.listener.http_inspector", &HttpInspector::default())
}

/// Restores the original destination address of a redirected connection.
pub(crate) fn original_destination() -> ListenerFilter {
    listener("envoy.filters.listener.original_dst", &OriginalDst::default())
}

/// Connects to the workload from the client's address.
pub(crate) fn original_source() -> ListenerFilter {
    // Mark of the proxy's connections, for Istio's routing rules.
    let config = OriginalSrc { mark: 1337, ..Default::default() };
    listener("envoy.filters.listener.original_src", &config)
}

/// Exchanges metadata with the peer of a TCP connection. Requires Istio's Envoy build.
pub(crate) fn tcp_metadata_exchange() -> Filter {
    let value = fields([("protocol", text("istio-peer-exchange")), ("enable_discovery", flag(true))]);
    let kind = "type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange";
    network_any("istio.metadata_exchange", typed_struct(kind, value))
}

/// Exchanges metadata with the peer of a request. Requires Istio's Envoy build.
pub(crate) fn http_metadata_exchange(class: TrafficClass, in_mesh: bool) -> HttpFilter {
    let method = |name: &str| record([(name, record([]))]);
    let discovery = list(vec![method("istio_headers"), method("workload_discovery")]);
    let propagation = list(vec![method("istio_headers")]);
    let value = match class {
        TrafficClass::Inbound => {
            fields([("downstream_discovery", discovery), ("downstream_propagation", propagation)])
        }
        TrafficClass::Outbound | TrafficClass::Gateway => {
            // Peers outside the mesh should not receive metadata of the workload.
            let sparing =
                list(vec![record([("istio_headers", record([("skip_external_clusters", flag(true))]))])]);
            let propagation = if in_mesh { sparing } else { propagation };
            fields([("upstream_discovery", discovery), ("upstream_propagation", propagation)])
        }
    };
    let kind = "type.googleapis.com/io.istio.http.peer_metadata.Config";
    http_any("istio.metadata_exchange", typed_struct(kind, value))
}

/// Offers Istio's ALPN protocols upstream, by the protocol of the request. Requires Istio's Envoy build.
pub(crate) fn alpn() -> HttpFilter {
    let offer = |protocol: UpstreamProtocol, own: &str, plain: &str| AlpnOverride {
        upstream_protocol: protocol.into(),
        alpn_override: vec![own.to_owned(), "istio".to_owned(), plain.to_owned()],
    };
    let config = AlpnFilterConfig {
        alpn_override: vec![
            offer(UpstreamProtocol::Http10, "istio-http/1.0", "http/1.0"),
            offer(UpstreamProtocol::Http11, "istio-http/1.1", "http/1.1"),
            offer(UpstreamProtocol::Http2, "istio-h2", "h2"),
        ],
    };
    http("istio.alpn", &config)
}

/// Filters for gRPC: conversion of gRPC-Web where the port has it, and statistics.
pub(crate) fn grpc(protocol: Protocol) -> Vec<HttpFilter> {
    let stats = GrpcStats {
        emit_filter_state: true,
        per_method_stat_specifier: Some(filter_config::PerMethodStatSpecifier::StatsForAllMethods(false)),
        ..Default::default()
    };
    let web =
        (protocol == Protocol::GrpcWeb).then(|| http("envoy.filters.http.grpc_web", &GrpcWeb::default()));
    web.into_iter().chain([http("envoy.filters.http.grpc_stats", &stats)]).collect()
}

/// Fault injection, which routes enable.
pub(crate) fn fault() -> HttpFilter {
    http("envoy.filters.http.fault", &HttpFault::default())
}

/// CORS, which routes enable.
pub(crate) fn cors() -> HttpFilter {
    http("envoy.filters.http.cors", &Cors::default())
}

/// The last filter: sends the request upstream.
pub(crate) fn router(config: &Router) -> HttpFilter {
    http("envoy.filters.http.router", config)
}

/// Filters in front of the TCP proxy that know the protocol of a port.
pub(crate) fn of_stream_protocol(protocol: Protocol, stat_prefix: &str) -> Option<Filter> {
    let config = || MongoProxy { stat_prefix: stat_prefix.to_owned(), ..Default::default() };
    (protocol == Protocol::Mongo).then(|| network("envoy.filters.network.mongo_proxy", &config()))
}
