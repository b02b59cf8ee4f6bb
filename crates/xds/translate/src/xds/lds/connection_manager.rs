//! The HTTP connection manager: what all have in common, and what differs between both directions of sidecars
//! and routers.

use super::connection_settings;
use super::tcp_proxy::written_duration;
use super::view::ListenerBase;
use crate::engine::Cx;
use crate::envoy::{DnsCache, TrafficClass, filters, header_case};
use crate::proxy::proxy_config::EffectiveProxyConfig;
use pilotfish_config::mesh::{
    ForwardClientCertDetails as Forward, MetadataExchangeMode, NormalizationType, ProxyConfig, ProxyHeaders,
};
use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, Http1ProtocolOptions, HttpProtocolOptions,
    config_source,
};
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::http::router::v3::Router;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, RequestIdExtension,
    http_connection_manager::{
        ForwardClientCertDetails, PathWithEscapedSlashesAction, RouteSpecifier, ServerHeaderTransformation,
        SetCurrentClientCertDetails, UpgradeConfig,
    },
};
use pilotfish_proto::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use pilotfish_proto::{Duration, config_any};

/// An HTTP connection manager, before it is built.
#[derive(Clone, Debug)]
pub(crate) struct Manager<'a> {
    pub(crate) base: &'a ListenerBase,
    /// Side of the requests: inbound, outbound or gateway.
    pub(crate) class: TrafficClass,
    /// The prefix of its statistics.
    pub(crate) stat_prefix: String,
    /// Source of its routes: inline, or RDS.
    pub(crate) routes: RouteSpecifier,
    /// The protocol of the port.
    pub(crate) protocol: Protocol,
    /// Settings of HTTP/1, where there are any.
    pub(crate) http1: Option<Http1ProtocolOptions>,
    /// The port of the listener; to a workload, the workload's port.
    pub(crate) port: u32,
    /// The DNS cache of the listener's service, if its hosts are looked up.
    pub(crate) hosts: Option<DnsCache>,
    /// Filters and settings that policies add.
    pub(crate) policies: &'a super::policies::Policies,
}

impl Manager<'_> {
    /// Builds the network filter.
    pub(crate) fn filter(&self, cx: &Cx<'_>) -> Filter {
        filters::network("envoy.filters.network.http_connection_manager", &self.build(cx))
    }

    fn build(&self, cx: &Cx<'_>) -> HttpConnectionManager {
        let config = cx.get(&EffectiveProxyConfig(self.base.proxy_config.clone()));
        let headers = config.proxy_headers.as_ref();
        let mut manager = HttpConnectionManager {
            stat_prefix: self.stat_prefix.clone(),
            http_filters: self.http_filters(headers),
            tracing: self.policies.traced.tracing.clone(),
            access_log: self.policies.logs.http.clone(),
            stream_idle_timeout: Some(Duration::default()),
            common_http_protocol_options: written_duration(&self.base.idle_timeout)
                .map(|idle| HttpProtocolOptions { idle_timeout: Some(idle), ..Default::default() }),
            use_remote_address: Some(false),
            proxy_100_continue: true,
            upgrade_configs: vec![UpgradeConfig {
                upgrade_type: "websocket".to_owned(),
                ..Default::default()
            }],
            request_id_extension: Some(request_ids(self.policies.traced.sample_by_request_id)),
            route_specifier: Some(self.routes.clone()),
            http_protocol_options: self.http1_options(headers),
            ..Default::default()
        };
        normalize_paths(cx, &mut manager);
        if let Some(settings) = connection_settings::of(&config, self.class == TrafficClass::Gateway) {
            connection_settings::apply(&settings, &mut manager);
        }
        apply_headers(headers, &mut manager);
        match self.class {
            TrafficClass::Outbound => manager.server_name = written_server_name(headers).unwrap_or_default(),
            TrafficClass::Inbound => self.apply_server(&config, &mut manager),
            TrafficClass::Gateway => apply_gateway(&config, &mut manager),
        }
        manager
    }

    /// Sets the fields of inbound managers only: the server's name, and the forwarded client certificate.
    fn apply_server(&self, config: &ProxyConfig, manager: &mut HttpConnectionManager) {
        let headers = config.proxy_headers.as_ref();
        apply_server_name(headers, manager);
        let forward = headers.map_or(Forward::Undefined, |headers| headers.forwarded_client_cert);
        manager.forward_client_cert_details =
            forward_details(forward, ForwardClientCertDetails::AppendForward);
        let details = headers.and_then(|headers| headers.set_current_client_cert_details.as_ref());
        let or = |written: Option<bool>, default: bool| written.unwrap_or(default);
        manager.set_current_client_cert_details = Some(match details {
            None => SetCurrentClientCertDetails {
                subject: Some(true),
                uri: true,
                dns: true,
                ..Default::default()
            },
            Some(details) => SetCurrentClientCertDetails {
                subject: Some(or(details.subject, true)),
                cert: or(details.cert, false),
                chain: or(details.chain, false),
                dns: or(details.dns, true),
                uri: or(details.uri, true),
                ..Default::default()
            },
        });
        if self.protocol.is_http2() {
            manager.http2_protocol_options.get_or_insert_default();
        }
    }

    /// The filters in the order of Istio: who the peer is, who may pass, what is measured, what routes switch
    /// on.
    fn http_filters(&self, headers: Option<&ProxyHeaders>) -> Vec<HttpFilter> {
        let mut list = Vec::with_capacity(8);
        if self.base.istio_filters {
            let within = headers.and_then(|headers| headers.metadata_exchange_headers.as_ref());
            let in_mesh = within.is_some_and(|within| within.mode == MetadataExchangeMode::InMesh);
            list.push(filters::http_metadata_exchange(self.class, in_mesh));
        }
        list.extend(self.policies.http(self.port));
        list.extend(filters::grpc(self.protocol));
        if self.base.istio_filters && self.class != TrafficClass::Inbound {
            list.push(filters::alpn());
        }
        list.extend([filters::fault(), filters::cors()]);
        list.extend(self.policies.http_metrics());
        list.extend(self.hosts.iter().map(DnsCache::http_filter));
        list.extend(self.base.unknown_hosts.iter().map(|cache| cache.http_filter()));
        let quiet = headers
            .and_then(|headers| headers.envoy_debug_headers.as_ref())
            .is_some_and(|header| header.disabled == Some(true));
        list.push(filters::router(&Router { suppress_envoy_headers: quiet, ..Default::default() }));
        list
    }

    fn http1_options(&self, headers: Option<&ProxyHeaders>) -> Option<Http1ProtocolOptions> {
        let mut options = self.http1.clone();
        if self.base.http10 {
            options.get_or_insert_default().accept_http_10 = true;
        }
        if headers.and_then(|headers| headers.preserve_http1_header_case) == Some(true) {
            options.get_or_insert_default().header_key_format = Some(header_case::preserved());
        }
        options
    }
}

/// Applies the settings of routers only: the name of the server, and the trust in headers that clients send
/// about themselves.
fn apply_gateway(config: &ProxyConfig, manager: &mut HttpConnectionManager) {
    apply_server_name(config.proxy_headers.as_ref(), manager);
    let topology = config.gateway_topology.as_ref();
    let forward = topology.map_or(Forward::Undefined, |topology| topology.forward_client_cert_details);
    manager.use_remote_address = Some(true);
    manager.xff_num_trusted_hops = topology.map_or(0, |topology| topology.num_trusted_proxies);
    manager.forward_client_cert_details = forward_details(forward, ForwardClientCertDetails::SanitizeSet);
    let adds = [ForwardClientCertDetails::SanitizeSet, ForwardClientCertDetails::AppendForward];
    if adds.contains(&manager.forward_client_cert_details()) {
        manager.set_current_client_cert_details = Some(SetCurrentClientCertDetails {
            subject: Some(true),
            cert: true,
            uri: true,
            dns: true,
            ..Default::default()
        });
    }
    manager.http_protocol_options.get_or_insert_default();
}

fn apply_server_name(headers: Option<&ProxyHeaders>, manager: &mut HttpConnectionManager) {
    let hidden = |headers: &ProxyHeaders| headers.server.as_ref().is_some_and(|s| s.disabled == Some(true));
    if headers.is_some_and(hidden) {
        return;
    }
    manager.server_name = written_server_name(headers).unwrap_or_else(|| "istio-envoy".to_owned());
}

/// The name in the `server` header, where one is written and the header is not left as it is.
fn written_server_name(headers: Option<&ProxyHeaders>) -> Option<String> {
    let server = headers?.server.as_ref().filter(|server| server.disabled != Some(true))?;
    Some(server.value.clone()).filter(|value| !value.is_empty())
}

/// Routes that the proxy subscribes to by name (RDS).
pub(crate) fn by_name(name: &str) -> RouteSpecifier {
    RouteSpecifier::Rds(Rds {
        config_source: Some(ConfigSource {
            config_source_specifier: Some(config_source::ConfigSourceSpecifier::Ads(
                AggregatedConfigSource {},
            )),
            initial_fetch_timeout: Some(Duration::default()),
            resource_api_version: ApiVersion::V3.into(),
            ..Default::default()
        }),
        route_config_name: name.to_owned(),
    })
}

fn request_ids(decide_on_sampling: bool) -> RequestIdExtension {
    let config = UuidRequestIdConfig {
        use_request_id_for_trace_sampling: Some(decide_on_sampling),
        ..Default::default()
    };
    RequestIdExtension { typed_config: config_any(&config) }
}

fn normalize_paths(cx: &Cx<'_>, manager: &mut HttpConnectionManager) {
    use PathWithEscapedSlashesAction::{KeepUnchanged, UnescapeAndForward};
    let level = cx.mesh().path_normalization.normalization;
    manager.normalize_path = Some(level != NormalizationType::None);
    manager.merge_slashes =
        matches!(level, NormalizationType::MergeSlashes | NormalizationType::DecodeAndMergeSlashes);
    manager.path_with_escaped_slashes_action = match level {
        NormalizationType::DecodeAndMergeSlashes => UnescapeAndForward.into(),
        _ => KeepUnchanged.into(),
    };
}

/// Headers that are left out or passed on, in both directions.
fn apply_headers(headers: Option<&ProxyHeaders>, manager: &mut HttpConnectionManager) {
    let Some(headers) = headers else { return };
    if headers.server.as_ref().is_some_and(|server| server.disabled == Some(true)) {
        manager.server_header_transformation = ServerHeaderTransformation::PassThrough.into();
    }
    manager.append_x_forwarded_port =
        headers.x_forwarded_port.as_ref().is_some_and(|port| port.enabled == Some(true));
    if headers.request_id.as_ref().is_some_and(|id| id.disabled == Some(true)) {
        manager.generate_request_id = Some(false);
    }
}

/// Handling of the header with the client's certificate; `default` without a setting.
pub(crate) fn forward_details(written: Forward, default: ForwardClientCertDetails) -> i32 {
    match written {
        Forward::Undefined => default,
        Forward::Sanitize => ForwardClientCertDetails::Sanitize,
        Forward::ForwardOnly => ForwardClientCertDetails::ForwardOnly,
        Forward::AppendForward => ForwardClientCertDetails::AppendForward,
        Forward::SanitizeSet => ForwardClientCertDetails::SanitizeSet,
        Forward::AlwaysForwardOnly => ForwardClientCertDetails::AlwaysForwardOnly,
    }
    .into()
}
