//! A cluster while it is built.

use crate::envoy::DnsCache;
use crate::envoy::header_case;
use crate::envoy::metadata::{self, record, text};
use pilotfish_model::{Port, Protocol, Service};
use pilotfish_proto::envoy::config::cluster::v3::cluster::{
    self, ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use pilotfish_proto::envoy::config::cluster::v3::{Cluster, Filter};
use pilotfish_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use pilotfish_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, Http1ProtocolOptions, Http2ProtocolOptions,
};
use pilotfish_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use pilotfish_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
    explicit_http_config::ProtocolConfig,
};
use pilotfish_proto::{Duration, Value, any, typed_struct};

/// Key of a cluster's HTTP options (`typed_extension_protocol_options`).
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// A cluster while it is built: the HTTP options are packed at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) cluster: Cluster,
    pub(super) http: Option<HttpProtocolOptions>,
    /// The DNS cache of a dynamic forward proxy; such a cluster has no discovery type.
    dns_cache: Option<DnsCache>,
    /// True if a dynamic forward proxy may use TLS without checking the host of the request.
    pub(super) insecure: bool,
}

impl Draft {
    /// A cluster of that name and kind.
    pub(super) fn new(name: String, kind: DiscoveryType) -> Self {
        let cluster = Cluster {
            alt_stat_name: super::names::stat_name(&name),
            name,
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind as i32)),
            common_lb_config: Some(CommonLbConfig::default()),
            ..Cluster::default()
        };
        Self { cluster, ..Self::default() }
    }

    /// A dynamic forward proxy of that name.
    pub(super) fn dynamic(name: String, cache: DnsCache) -> Self {
        let cluster = Cluster {
            alt_stat_name: super::names::stat_name(&name),
            name,
            lb_policy: LbPolicy::ClusterProvided as i32,
            ..Cluster::default()
        };
        Self { cluster, dns_cache: Some(cache), ..Self::default() }
    }

    /// Returns true if the host of each request is looked up.
    pub(super) fn is_dynamic(&self) -> bool {
        self.dns_cache.is_some()
    }

    /// Returns the discovery type, if one is set.
    pub(super) fn kind(&self) -> Option<DiscoveryType> {
        match self.cluster.cluster_discovery_type {
            Some(ClusterDiscoveryType::Type(kind)) => DiscoveryType::try_from(kind).ok(),
            _ => None,
        }
    }

    pub(super) fn set_kind(&mut self, kind: DiscoveryType) {
        self.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind as i32));
    }

    pub(super) fn common_lb(&mut self) -> &mut CommonLbConfig {
        self.cluster.common_lb_config.get_or_insert_default()
    }

    pub(super) fn http(&mut self) -> &mut HttpProtocolOptions {
        self.http.get_or_insert_default()
    }

    /// Sets the declared protocol of the port; without one, the protocol of the downstream connection, if the
    /// proxy detects it.
    pub(super) fn set_protocol(&mut self, protocol: Protocol, sniffs: bool, preserve_case: bool) {
        if protocol.is_http2() {
            self.set_http2();
            return;
        }
        if preserve_case && (protocol.is_http() || protocol.is_unsupported()) {
            let http1 = Http1ProtocolOptions {
                header_key_format: Some(header_case::preserved()),
                ..Http1ProtocolOptions::default()
            };
            self.http().upstream_protocol_options =
                Some(explicit(ProtocolConfig::HttpProtocolOptions(http1)));
        }
        if protocol.is_unsupported() && sniffs {
            self.use_downstream_protocol();
        }
    }

    /// Sets HTTP/2, overriding an earlier protocol.
    pub(super) fn set_http2(&mut self) {
        let http2 = ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default());
        self.http().upstream_protocol_options = Some(explicit(http2));
    }

    /// Uses the downstream protocol, and keeps the HTTP/1 options that were set.
    pub(super) fn use_downstream_protocol(&mut self) {
        let http1 = match self.http().upstream_protocol_options.take() {
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::HttpProtocolOptions(http1)),
            })) => http1,
            _ => Http1ProtocolOptions::default(),
        };
        self.http().upstream_protocol_options = Some(downstream_protocol(http1));
    }

    /// Returns true if requests are sent upstream in the protocol of the downstream connection.
    pub(super) fn uses_downstream_protocol(&self) -> bool {
        let protocol = self.http.as_ref().and_then(|http| http.upstream_protocol_options.as_ref());
        matches!(protocol, Some(UpstreamProtocolOptions::UseDownstreamProtocolConfig(_)))
    }

    pub(super) fn http2_options(&mut self) -> Option<&mut Http2ProtocolOptions> {
        match self.http.as_mut()?.upstream_protocol_options.as_mut()? {
            UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(options)),
            }) => Some(options),
            _ => None,
        }
    }

    /// Returns true if requests are always sent as HTTP/2.
    pub(super) fn is_http2(&mut self) -> bool {
        self.http2_options().is_some()
    }

    pub(super) fn set_istio(&mut self, field: &str, value: Value) {
        metadata::set_istio(&mut self.cluster.metadata, field, value);
    }

    /// Sets ADS as the source of endpoints, if the final discovery type is EDS.
    pub(super) fn set_eds(&mut self) {
        if self.kind() == Some(DiscoveryType::Eds) {
            self.cluster.eds_cluster_config =
                Some(EdsClusterConfig { eds_config: Some(ads()), service_name: self.cluster.name.clone() });
        }
    }

    /// Telemetry between proxies over TCP.
    pub(super) fn exchange_metadata(&mut self) {
        self.cluster.filters.push(metadata_exchange());
    }

    /// Returns the finished cluster message.
    pub(super) fn build(mut self) -> Cluster {
        // With options, Envoy refuses a cluster that looks up hosts unless they check the host of requests,
        // also where the cluster has no TLS.
        let unchecked = self.http.as_ref().is_some_and(|http| {
            let options = http.upstream_http_protocol_options.as_ref();
            !options.is_some_and(|options| options.auto_sni && options.auto_san_validation)
        });
        if let Some(mut http) = self.http {
            // Envoy insists on a protocol as soon as there are any options.
            let http1 = ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default());
            http.upstream_protocol_options.get_or_insert(explicit(http1));
            self.cluster.typed_extension_protocol_options.insert(HTTP_OPTIONS.to_owned(), any(&http));
        }
        if let Some(cache) = self.dns_cache {
            self.cluster.cluster_discovery_type =
                Some(ClusterDiscoveryType::ClusterType(cache.cluster_type(self.insecure || unchecked)));
        }
        self.cluster
    }
}

fn explicit(config: ProtocolConfig) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig { protocol_config: Some(config) })
}

fn downstream_protocol(http1: Http1ProtocolOptions) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
        http_protocol_options: Some(http1),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        ..UseDownstreamHttpConfig::default()
    })
}

/// Clusters and endpoints come from the same stream; the wait for endpoints has no timeout.
fn ads() -> ConfigSource {
    ConfigSource {
        initial_fetch_timeout: Some(Duration::default()),
        resource_api_version: ApiVersion::V3 as i32,
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
        ..ConfigSource::default()
    }
}

fn metadata_exchange() -> Filter {
    let value = metadata::fields([
        ("protocol", text("istio-peer-exchange")),
        ("enable_discovery", metadata::flag(true)),
    ]);
    Filter {
        name: "istio.metadata_exchange".to_owned(),
        typed_config: Some(typed_struct(
            "type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange",
            value,
        )),
        ..Filter::default()
    }
}

/// Returns the metadata that names a service in its clusters.
pub(super) fn service_metadata(host: &str, name: &str, namespace: &str) -> Value {
    record([("host", text(host)), ("name", text(name)), ("namespace", text(namespace))])
}

/// Returns true if a port of a service has a cluster that looks up the hosts of requests.
pub(super) fn is_dynamic(service: &Service, port: &Port) -> bool {
    let names_hosts =
        matches!(port.protocol, Protocol::Http | Protocol::Http2 | Protocol::Grpc | Protocol::Tls);
    service.resolution == pilotfish_model::Resolution::DynamicDns && names_hosts
}

/// Returns the discovery type of a service's clusters for sidecars or routers; `None` where they have none.
pub(super) fn discovery(service: &Service, is_router: bool) -> Option<DiscoveryType> {
    use pilotfish_model::Resolution;
    Some(match service.resolution {
        Resolution::ClientSideLB => DiscoveryType::Eds,
        Resolution::DNSLB if service.race_first_tcp_connect => DiscoveryType::LogicalDns,
        Resolution::DNSLB => DiscoveryType::StrictDns,
        Resolution::DNSRoundRobin => DiscoveryType::LogicalDns,
        // A router has no original destination: it accepted the connection itself.
        Resolution::Passthrough if is_router => DiscoveryType::Eds,
        Resolution::Passthrough => DiscoveryType::OriginalDst,
        Resolution::Alias | Resolution::DynamicDns => return None,
    })
}

/// Returns the port to which a service of resolution NONE sends connections, if it is not the original port.
pub(super) fn port_override(service: &Service, port: &Port) -> Option<cluster::LbConfig> {
    use pilotfish_model::TargetPort;
    let Some(TargetPort::Number(target)) = port.target_port else { return None };
    // If a service has addresses in a cluster, the cluster's network maps them to the target port.
    let differs = service.addresses.is_empty() && target != 0 && target != port.number;
    differs.then(|| {
        cluster::LbConfig::OriginalDstLbConfig(cluster::OriginalDstLbConfig {
            upstream_port_override: Some(target),
            ..cluster::OriginalDstLbConfig::default()
        })
    })
}
