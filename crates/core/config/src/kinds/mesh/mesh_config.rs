//! MeshConfig: settings of the whole mesh, with Istio's defaults underneath.

use super::{EnvoyFileAccessLogProvider, ExtensionProvider, ProxyConfig};
use super::{PrometheusMetricsProvider, StackdriverProvider};
use crate::kinds::message::{enumeration, kind, message};
use crate::networking::{
    ClientTlsSettings, ConnectionPoolSettings, HttpRetry, LocalityLoadBalancerSetting, OutlierDetection,
    ZoneAwareLoadBalancerSetting,
};
use crate::networking::{TcpKeepalive, TlsProtocol};
use crate::{Duration, LabelSelector};
use serde::{Deserialize, Serialize};

kind!(MeshConfig = MeshConfig;);

/// Settings of the whole mesh. Absent fields have Istio's defaults.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MeshConfig {
    pub proxy_listen_port: i32,
    pub proxy_inbound_listen_port: i32,
    pub proxy_http_port: i32,
    pub connect_timeout: Option<Duration>,
    pub protocol_detection_timeout: Option<Duration>,
    pub tcp_keepalive: Option<TcpKeepalive>,
    pub ingress_class: String,
    pub ingress_service: String,
    pub ingress_controller_mode: IngressControllerMode,
    pub ingress_selector: String,
    pub enable_tracing: bool,
    pub access_log_file: String,
    pub access_log_format: String,
    pub access_log_encoding: AccessLogEncoding,
    pub enable_envoy_access_log_service: bool,
    pub disable_envoy_listener_log: bool,
    pub default_config: ProxyConfig,
    pub outbound_traffic_policy: OutboundTrafficPolicy,
    pub inbound_traffic_policy: InboundTrafficPolicy,
    pub config_sources: Vec<ConfigSource>,
    pub enable_auto_mtls: Option<bool>,
    pub trust_domain: String,
    pub trust_domain_aliases: Vec<String>,
    pub ca_certificates: Vec<CertificateData>,
    pub default_service_export_to: Vec<String>,
    pub default_virtual_service_export_to: Vec<String>,
    pub default_destination_rule_export_to: Vec<String>,
    pub root_namespace: String,
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    pub default_traffic_policy: Option<DefaultTrafficPolicy>,
    pub dns_refresh_rate: Option<Duration>,
    pub h2_upgrade_policy: H2UpgradePolicy,
    pub inbound_cluster_stat_name: String,
    pub outbound_cluster_stat_name: String,
    pub certificates: Vec<Certificate>,
    pub service_settings: Vec<ServiceSettings>,
    pub enable_prometheus_merge: Option<bool>,
    pub verify_certificate_at_client: Option<bool>,
    pub ca: Option<Ca>,
    pub extension_providers: Vec<ExtensionProvider>,
    pub default_providers: DefaultProviders,
    pub discovery_selectors: Vec<LabelSelector>,
    pub path_normalization: ProxyPathNormalization,
    pub default_http_retry_policy: Option<HttpRetry>,
    /// Retries of requests to the proxy's own workload; of Istio 1.32.
    pub default_inbound_http_retry_policy: Option<HttpRetry>,
    #[serde(rename = "meshMTLS", alias = "meshMtls")]
    pub mesh_mtls: Option<TlsConfig>,
    pub tls_defaults: Option<TlsConfig>,
    pub hbone_idle_timeout: Option<Duration>,
    pub service_scope_configs: Vec<ServiceScopeConfig>,
    pub xds_auth: Option<serde_json::Value>,
    pub service_entry_visibility: Option<ServiceEntryVisibility>,
}

impl Default for MeshConfig {
    fn default() -> Self {
        let everywhere = || vec!["*".to_owned()];
        let locality = LocalityLoadBalancerSetting { enabled: Some(true), ..Default::default() };
        Self {
            proxy_listen_port: 15001,
            proxy_inbound_listen_port: 15006,
            proxy_http_port: 0,
            connect_timeout: Some(Duration::from_secs(10)),
            protocol_detection_timeout: Some(Duration::ZERO),
            tcp_keepalive: None,
            ingress_class: "istio".to_owned(),
            ingress_service: "istio-ingressgateway".to_owned(),
            ingress_controller_mode: IngressControllerMode::Strict,
            ingress_selector: String::new(),
            enable_tracing: true,
            access_log_file: String::new(),
            access_log_format: String::new(),
            access_log_encoding: AccessLogEncoding::Text,
            enable_envoy_access_log_service: false,
            disable_envoy_listener_log: false,
            default_config: ProxyConfig::default(),
            outbound_traffic_policy: OutboundTrafficPolicy {
                mode: OutboundTrafficPolicyMode::AllowAny,
                tls: None,
            },
            inbound_traffic_policy: InboundTrafficPolicy::default(),
            config_sources: Vec::new(),
            enable_auto_mtls: Some(true),
            trust_domain: "cluster.local".to_owned(),
            trust_domain_aliases: Vec::new(),
            ca_certificates: Vec::new(),
            default_service_export_to: everywhere(),
            default_virtual_service_export_to: everywhere(),
            default_destination_rule_export_to: everywhere(),
            root_namespace: "istio-system".to_owned(),
            locality_lb_setting: Some(locality),
            zone_aware_lb_setting: None,
            default_traffic_policy: None,
            dns_refresh_rate: Some(Duration::from_secs(60)),
            h2_upgrade_policy: H2UpgradePolicy::default(),
            inbound_cluster_stat_name: String::new(),
            outbound_cluster_stat_name: String::new(),
            certificates: Vec::new(),
            service_settings: Vec::new(),
            enable_prometheus_merge: Some(true),
            verify_certificate_at_client: None,
            ca: None,
            extension_providers: default_extension_providers(),
            default_providers: DefaultProviders::default(),
            discovery_selectors: Vec::new(),
            path_normalization: ProxyPathNormalization::default(),
            default_http_retry_policy: None,
            default_inbound_http_retry_policy: None,
            mesh_mtls: None,
            tls_defaults: None,
            hbone_idle_timeout: None,
            service_scope_configs: Vec::new(),
            xds_auth: None,
            service_entry_visibility: None,
        }
    }
}

/// Providers that every mesh has, unless the mesh config has a provider of the name.
fn default_extension_providers() -> Vec<ExtensionProvider> {
    let named = |name: &str| ExtensionProvider { name: name.to_owned(), ..Default::default() };
    let file = EnvoyFileAccessLogProvider { path: "/dev/stdout".to_owned(), ..Default::default() };
    vec![
        ExtensionProvider { prometheus: Some(PrometheusMetricsProvider {}), ..named("prometheus") },
        ExtensionProvider { stackdriver: Some(StackdriverProvider::default()), ..named("stackdriver") },
        ExtensionProvider { envoy_file_access_log: Some(file), ..named("envoy") },
    ]
}

impl MeshConfig {
    /// Completes settings as istiod does: adds its own providers after the configured ones, except for names
    /// that are configured, and sorts the aliases of the trust domain.
    pub(crate) fn complete(&mut self) {
        for provider in default_extension_providers() {
            if !self.extension_providers.iter().any(|written| written.name == provider.name) {
                self.extension_providers.push(provider);
            }
        }
        self.trust_domain_aliases.sort();
        self.trust_domain_aliases.dedup();
    }

    /// True if a trust domain is the mesh's or an alias of it. Namespaces of other domains are different
    /// namespaces, regardless of the signer.
    #[must_use]
    pub fn has_trust_domain(&self, domain: &str) -> bool {
        self.trust_domain == domain || self.trust_domain_aliases.iter().any(|alias| alias == domain)
    }

    /// The extension provider of that name.
    #[must_use]
    pub fn extension_provider(&self, name: &str) -> Option<&ExtensionProvider> {
        self.extension_providers.iter().find(|provider| provider.name == name)
    }
}

message! {
/// Widest visibility of ServiceEntries, by labels of their namespaces.
pub struct ServiceEntryVisibility {
    pub default_visibility: EntryVisibility,
    /// True if it counts for proxies at all.
    pub apply_to_sidecars: bool,
    /// Matchers; the first that matches decides.
    pub policies: Vec<ServiceEntryVisibilityPolicy>,
}

/// Visibility for namespaces that satisfy all rules.
pub struct ServiceEntryVisibilityPolicy {
    pub visibility: EntryVisibility,
    pub matching_rules: Vec<ServiceEntryMatchingRule>,
}

/// Rule on a namespace; without a known matcher it matches nothing.
pub struct ServiceEntryMatchingRule {
    pub namespace_selector: Option<LabelSelector>,
}

/// Parts of a traffic policy for services whose DestinationRule has none of its own.
pub struct DefaultTrafficPolicy {
    pub connection_pool: Option<ConnectionPoolSettings>,
    pub outlier_detection: Option<OutlierDetection>,
}

/// Policy for traffic to hosts without a service.
pub struct OutboundTrafficPolicy {
    pub mode: OutboundTrafficPolicyMode,
    /// TLS towards hosts that the proxy resolves (mode `ALLOW_ANY_DYNAMIC_DNS`).
    pub tls: Option<ClientTlsSettings>,
}

/// Policy for inbound traffic.
pub struct InboundTrafficPolicy {
    pub mode: InboundTrafficPolicyMode,
}

/// Another source of configuration for istiod.
pub struct ConfigSource {
    pub address: String,
    pub tls_settings: Option<ClientTlsSettings>,
    pub subscribed_resources: Vec<String>,
}

/// A root certificate; the certificate and the URL are a oneof.
pub struct CertificateData {
    pub pem: Option<String>,
    pub spiffe_bundle_url: Option<String>,
    pub cert_signers: Vec<String>,
    pub trust_domains: Vec<String>,
}

/// A certificate that istiod provisions.
pub struct Certificate {
    pub secret_name: String,
    pub dns_names: Vec<String>,
}

/// Settings of some services.
pub struct ServiceSettings {
    pub settings: Settings,
    pub hosts: Vec<String>,
}

/// Settings of a [`ServiceSettings`] entry; `cluster_local` hides the endpoints of other clusters.
pub struct Settings {
    pub cluster_local: bool,
}

/// An external certificate authority.
pub struct Ca {
    pub address: String,
    pub tls_settings: Option<ClientTlsSettings>,
    pub request_timeout: Option<Duration>,
    pub istiod_side: bool,
}

/// Extension providers used if none is named.
pub struct DefaultProviders {
    pub tracing: Vec<String>,
    pub metrics: Vec<String>,
    pub access_logging: Vec<String>,
}

/// Normalization of request paths before matching.
pub struct ProxyPathNormalization {
    pub normalization: NormalizationType,
}

/// Versions, curves and ciphers of TLS.
pub struct TlsConfig {
    pub min_protocol_version: TlsProtocol,
    pub ecdh_curves: Vec<String>,
    pub cipher_suites: Vec<String>,
}

/// Scope of the services that match both selectors.
pub struct ServiceScopeConfig {
    pub namespace_selector: Option<LabelSelector>,
    pub services_selector: Option<LabelSelector>,
    pub scope: ServiceScope,
}
}

enumeration! {
/// Handling of traffic for hosts without a service.
pub enum OutboundTrafficPolicyMode {
    #[default]
    RegistryOnly,
    AllowAny,
    /// The proxy resolves the hosts of requests; other traffic passes.
    AllowAnyDynamicDns,
}

/// Widest visibility of the ServiceEntries of a namespace.
pub enum EntryVisibility {
    /// No restriction, as with `PUBLIC`.
    #[default]
    Unspecified,
    None,
    Namespace,
    Public,
}

/// Clusters in which a service is known.
pub enum ServiceScope {
    #[default]
    Local,
    Global,
}

/// Selection of Ingresses by their class.
pub enum IngressControllerMode {
    #[default]
    Unspecified,
    Off,
    Default,
    Strict,
}

/// Format of access logs.
pub enum AccessLogEncoding {
    #[default]
    Text,
    Json,
}

/// Destination address of inbound traffic.
pub enum InboundTrafficPolicyMode {
    #[default]
    Passthrough,
    Localhost,
}

/// Default upgrade of HTTP/1.1 requests to HTTP/2.
pub enum H2UpgradePolicy {
    #[default]
    DoNotUpgrade,
    Upgrade,
}

/// Steps of path normalization.
pub enum NormalizationType {
    #[default]
    Default,
    None,
    Base,
    MergeSlashes,
    DecodeAndMergeSlashes,
}
}
