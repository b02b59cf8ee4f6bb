//! MeshConfig and MeshNetworks.

use super::extension_provider;
use crate::Duration;
use crate::mesh::{
    AccessLogEncoding, AuthenticationPolicy, CertificateData, ConnectionSettings, IstioNetworkGateway,
    KeyProvider, MeshConfig, MeshNetworks, NetworkEndpoints, OutboundTrafficPolicy,
    OutboundTrafficPolicyMode, ProxyConfig, RemoteService, ServiceEntryVisibility, TlsConfig, Tracing,
};
use crate::networking::{ECDH_CURVES, HttpRetry};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{self, each, host_port, is_dns_label, is_ip, quoted};
use crate::validate::fields::selectors;
use crate::validate::fields::values::{
    self, at_most_one, duration, is_pem, log_format, log_labels, url_scheme,
};
use crate::validate::networking::{destination_rule, http_route, locality, tls};
use crate::validate::telemetry;
use pilotfish_model::ObjectMeta;

pub(in crate::validate) fn check(mesh: &MeshConfig, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    names::port(mesh.proxy_listen_port, &at.field("proxyListenPort"), checker);
    names::port(mesh.proxy_inbound_listen_port, &at.field("proxyInboundListenPort"), checker);
    if mesh.proxy_http_port != 0 {
        names::port(mesh.proxy_http_port, &at.field("proxyHttpPort"), checker);
    }
    timeouts(mesh, at, checker);
    access_log(mesh, at, checker);
    if let Some(settings) = &mesh.tcp_keepalive {
        destination_rule::keepalive(settings, &at.field("tcpKeepalive"), checker);
    }
    if let Some(setting) = &mesh.locality_lb_setting {
        locality::check(setting, true, &at.field("localityLbSetting"), checker);
    }
    if let Some(setting) = &mesh.zone_aware_lb_setting {
        locality::check_zone_aware(setting, &at.field("zoneAwareLbSetting"), checker);
    }
    if let Some(policy) = &mesh.default_traffic_policy {
        destination_rule::default_policy(policy, &at.field("defaultTrafficPolicy"), checker);
    }
    if let Some(visibility) = &mesh.service_entry_visibility {
        entry_visibility(visibility, &at.field("serviceEntryVisibility"), checker);
    }
    trust_domain(&mesh.trust_domain, &at.field("trustDomain"), checker);
    each(&mesh.trust_domain_aliases, &at.field("trustDomainAliases"), checker, |domain, at, checker| {
        trust_domain(domain, at, checker);
    });
    each(&mesh.ca_certificates, &at.field("caCertificates"), checker, ca_certificate);
    if !is_dns_label(&mesh.root_namespace) {
        let message = format!("{} is not a namespace", quoted(&mesh.root_namespace));
        checker.error(&at.field("rootNamespace"), message);
    }
    each(&mesh.service_settings, &at.field("serviceSettings"), checker, |settings, at, checker| {
        each(&settings.hosts, &at.field("hosts"), checker, |host, at, checker| {
            names::wildcard_host(host, at, checker);
        });
    });
    scopes(mesh, at, checker);
    outbound_policy(&mesh.outbound_traffic_policy, &at.field("outboundTrafficPolicy"), checker);
    if let Some(retry) = &mesh.default_http_retry_policy {
        http_route::retries(retry, &at.field("defaultHttpRetryPolicy"), checker);
    }
    if let Some(retry) = &mesh.default_inbound_http_retry_policy {
        inbound_retries(retry, &at.field("defaultInboundHttpRetryPolicy"), checker);
    }
    tls_settings(mesh, at, checker);
    extension_provider::check(&mesh.extension_providers, &at.field("extensionProviders"), checker);
    proxy(&mesh.default_config, &at.field("defaultConfig"), checker);
}

/// Retries to the one endpoint of an inbound route.
fn inbound_retries(retry: &HttpRetry, at: &Path<'_>, checker: &mut Checker) {
    http_route::retries(retry, at, checker);
    for (field, set) in [
        ("perTryTimeout", retry.per_try_timeout.is_some()),
        ("retryRemoteLocalities", retry.retry_remote_localities.is_some()),
        ("retryIgnorePreviousHosts", retry.retry_ignore_previous_hosts.is_some()),
    ] {
        if set {
            checker.warning(&at.field(field), "has no effect: inbound routes have one endpoint");
        }
    }
}

fn entry_visibility(visibility: &ServiceEntryVisibility, at: &Path<'_>, checker: &mut Checker) {
    each(&visibility.policies, &at.field("policies"), checker, |policy, at, checker| {
        each(&policy.matching_rules, &at.field("matchingRules"), checker, |rule, at, checker| {
            match &rule.namespace_selector {
                Some(selector) => {
                    selectors::kubernetes_selector(selector, &at.field("namespaceSelector"), checker);
                }
                None => checker.warning(at, "has no matcher: the policy is for no namespace"),
            }
        });
    });
}

fn access_log(mesh: &MeshConfig, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("accessLogFormat");
    match mesh.access_log_encoding {
        AccessLogEncoding::Text => log_format(&mesh.access_log_format, &at, checker),
        // istiod replaces a format that is not JSON by the default, so it is no error.
        AccessLogEncoding::Json => {
            if let Ok(labels) = serde_json::from_str(&mesh.access_log_format) {
                log_labels(&labels, &at, checker);
            }
        }
    }
}

fn timeouts(mesh: &MeshConfig, at: &Path<'_>, checker: &mut Checker) {
    let connect = at.field("connectTimeout");
    duration(mesh.connect_timeout, &connect, checker);
    if mesh.connect_timeout.is_some_and(|timeout| timeout > Duration::from_secs(3_600)) {
        checker.error(&connect, "must be at most 1h");
    }
    let detection = mesh.protocol_detection_timeout.filter(|timeout| *timeout != Duration::ZERO);
    duration(detection, &at.field("protocolDetectionTimeout"), checker);
    duration(mesh.dns_refresh_rate, &at.field("dnsRefreshRate"), checker);
    let idle = mesh.hbone_idle_timeout.filter(|timeout| *timeout != Duration::ZERO);
    duration(idle, &at.field("hboneIdleTimeout"), checker);
}

fn scopes(mesh: &MeshConfig, at: &Path<'_>, checker: &mut Checker) {
    each(&mesh.discovery_selectors, &at.field("discoverySelectors"), checker, selectors::kubernetes_selector);
    each(&mesh.service_scope_configs, &at.field("serviceScopeConfigs"), checker, |scope, at, checker| {
        let both = [
            ("namespaceSelector", &scope.namespace_selector),
            ("servicesSelector", &scope.services_selector),
        ];
        for (field, selector) in both {
            if let Some(selector) = selector {
                selectors::kubernetes_selector(selector, &at.field(field), checker);
            }
        }
    });
    let exports = [
        ("defaultServiceExportTo", &mesh.default_service_export_to),
        ("defaultVirtualServiceExportTo", &mesh.default_virtual_service_export_to),
        ("defaultDestinationRuleExportTo", &mesh.default_destination_rule_export_to),
    ];
    for (field, values) in exports {
        let at = at.field(field);
        if values.len() > 1 && values.iter().any(|value| matches!(value.as_str(), "*" | "~")) {
            checker.warning(&at, "\"*\" decides alone, else \"~\": the other values have no effect");
        }
        each(values, &at, checker, |value, at, checker| {
            if !matches!(value.as_str(), "*" | "." | "~") && !is_dns_label(value) {
                checker.error(at, format!("{} is not a namespace, \".\" or \"*\"", quoted(value)));
            }
        });
    }
}

fn trust_domain(domain: &str, at: &Path<'_>, checker: &mut Checker) {
    let labels = domain.strip_suffix('.').unwrap_or(domain);
    if !labels.split('.').all(is_dns_label) {
        checker.error(at, format!("{} is not a trust domain, it must be a DNS name", quoted(domain)));
    }
}

/// Further roots. Faults leave out the roots of one item, so they are warnings.
fn ca_certificate(data: &CertificateData, at: &Path<'_>, checker: &mut Checker) {
    let both = [("pem", data.pem.is_some()), ("spiffeBundleUrl", data.spiffe_bundle_url.is_some())];
    at_most_one(&both, at, checker);
    if both.iter().all(|(_, is_set)| !is_set) {
        checker.warning(at, "has no effect: set pem or spiffeBundleUrl");
    }
    if data.pem.as_ref().is_some_and(|pem| !is_pem(pem.as_bytes())) {
        checker.warning(&at.field("pem"), "is left out: it is not PEM, -----BEGIN ...----- and base64");
    }
    let scheme = data.spiffe_bundle_url.as_deref().map(url_scheme);
    if scheme.is_some_and(|scheme| !matches!(scheme.as_deref(), Some("https" | "http"))) {
        checker.warning(&at.field("spiffeBundleUrl"), "is left out: it is not a URL, https://HOST/PATH");
    }
    for (field, is_set) in
        [("trustDomains", !data.trust_domains.is_empty()), ("certSigners", !data.cert_signers.is_empty())]
    {
        if is_set {
            checker.warning(&at.field(field), "has no effect: the roots are trusted for all trust domains");
        }
    }
}

fn outbound_policy(policy: &OutboundTrafficPolicy, at: &Path<'_>, checker: &mut Checker) {
    let Some(settings) = &policy.tls else { return };
    let at = at.field("tls");
    tls::client(settings, &at, checker);
    if policy.mode != OutboundTrafficPolicyMode::AllowAnyDynamicDns {
        checker.warning(&at, "has no effect, mode is not ALLOW_ANY_DYNAMIC_DNS");
    }
    let for_everybody = settings.credential_name.starts_with("configmap://");
    if !settings.credential_name.is_empty() && !for_everybody {
        let message = "is not handed out to sidecars: requests to unknown hosts go out in plaintext";
        checker.warning(&at.field("credentialName"), message);
    }
}

fn tls_settings(mesh: &MeshConfig, at: &Path<'_>, checker: &mut Checker) {
    if mesh.mesh_mtls.as_ref().is_some_and(|tls: &TlsConfig| !tls.ecdh_curves.is_empty()) {
        checker.error(&at.field("meshMTLS").field("ecdhCurves"), "is not supported, use tlsDefaults");
    }
    if let Some(defaults) = &mesh.tls_defaults {
        each(
            &defaults.ecdh_curves,
            &at.field("tlsDefaults").field("ecdhCurves"),
            checker,
            |curve, at, checker| {
                if !ECDH_CURVES.contains(&curve.as_str()) {
                    checker.warning(at, format!("{} is not a curve that Envoy knows", quoted(curve)));
                }
            },
        );
    }
}

/// The proxy settings of the mesh, which are not the kind ProxyConfig.
fn connections(settings: &ConnectionSettings, at: &Path<'_>, checker: &mut Checker) {
    const LEAST_WINDOW: i32 = 65_535;
    let least = [
        ("listenerPerConnectionBufferLimitBytes", settings.listener_per_connection_buffer_limit_bytes, 0),
        ("clusterPerConnectionBufferLimitBytes", settings.cluster_per_connection_buffer_limit_bytes, 0),
        ("listenerConnectionLimit", settings.listener_connection_limit, 1),
        ("globalDownstreamConnectionLimit", settings.global_downstream_connection_limit, 1),
        ("httpMaxConcurrentStreams", settings.http_max_concurrent_streams, 1),
        ("http2InitialStreamWindowSize", settings.http2_initial_stream_window_size, LEAST_WINDOW),
        ("http2InitialConnectionWindowSize", settings.http2_initial_connection_window_size, LEAST_WINDOW),
    ];
    for (field, value, least) in least {
        if let Some(value) = value.filter(|value| *value < least) {
            checker.error(&at.field(field), format!("{value} is below {least}"));
        }
    }
    let unused = [
        ("clusterPerConnectionBufferLimitBytes", settings.cluster_per_connection_buffer_limit_bytes),
        ("listenerConnectionLimit", settings.listener_connection_limit),
        ("globalDownstreamConnectionLimit", settings.global_downstream_connection_limit),
    ];
    for (field, _) in unused.iter().filter(|(_, value)| value.is_some()) {
        checker.warning(&at.field(field), "has no effect");
    }
    for (field, value) in [
        ("httpIdleTimeout", settings.http_idle_timeout),
        ("httpMaxConnectionDuration", settings.http_max_connection_duration),
        ("httpMaxStreamDuration", settings.http_max_stream_duration),
        ("httpStreamIdleTimeout", settings.http_stream_idle_timeout),
        ("httpRequestTimeout", settings.http_request_timeout),
        ("httpRequestHeadersTimeout", settings.http_request_headers_timeout),
        ("httpDrainTimeout", settings.http_drain_timeout),
    ] {
        values::duration_or_zero(value, &at.field(field), checker);
    }
}

fn proxy(config: &ProxyConfig, at: &Path<'_>, checker: &mut Checker) {
    for (field, value) in [("configPath", &config.config_path), ("binaryPath", &config.binary_path)] {
        if value.is_empty() {
            checker.error(&at.field(field), "must be set");
        }
    }
    if config.tracing_service_name.is_none() && config.service_cluster.as_ref().is_none_or(String::is_empty) {
        checker.error(at, "one of serviceCluster and tracingServiceName must be set");
    }
    duration(config.drain_duration, &at.field("drainDuration"), checker);
    if config.drain_duration.is_some_and(|drain| drain.0.subsec_nanos() > 0) {
        checker.error(&at.field("drainDuration"), "must be whole seconds");
    }
    host_port(&config.discovery_address, &at.field("discoveryAddress"), checker);
    names::port(config.proxy_admin_port, &at.field("proxyAdminPort"), checker);
    names::port(config.status_port, &at.field("statusPort"), checker);
    values::not_negative(config.concurrency.unwrap_or_default(), &at.field("concurrency"), checker);
    if config.control_plane_auth_policy == AuthenticationPolicy::Inherit {
        checker.error(&at.field("controlPlaneAuthPolicy"), "must be NONE or MUTUAL_TLS");
    }
    if let Some(value) = &config.tracing {
        tracing(value, &at.field("tracing"), checker);
    }
    reports(config, at, checker);
    if let Some(settings) = &config.connection_settings {
        connections(settings, &at.field("connectionSettings"), checker);
    }
    if let Some(provider) = &config.private_key_provider {
        let at = at.field("privateKeyProvider");
        key_provider(&[("cryptomb", &provider.cryptomb), ("qat", &provider.qat)], &at, checker);
    }
    if let Some(matcher) = &config.proxy_stats_matcher {
        let at = at.field("proxyStatsMatcher");
        each(
            &matcher.inclusion_regexps,
            &at.field("inclusionRegexps"),
            checker,
            |expression, at, checker| {
                values::regular_expression(expression, at, checker);
            },
        );
    }
}

fn reports(config: &ProxyConfig, at: &Path<'_>, checker: &mut Checker) {
    let addresses = [
        ("statsdUdpAddress", &config.statsd_udp_address),
        ("envoyMetricsServiceAddress", &config.envoy_metrics_service_address),
    ];
    for (field, address) in addresses {
        if !address.is_empty() {
            host_port(address, &at.field(field), checker);
        }
    }
    let services = [
        ("envoyMetricsService", &config.envoy_metrics_service),
        ("envoyAccessLogService", &config.envoy_access_log_service),
    ];
    for (field, service) in services {
        if let Some(RemoteService { address, .. }) =
            service.as_ref().filter(|service| !service.address.is_empty())
        {
            host_port(address, &at.field(field).field("address"), checker);
        }
    }
}

fn tracing(tracing: &Tracing, at: &Path<'_>, checker: &mut Checker) {
    let tracers = [
        ("zipkin", tracing.zipkin.is_some()),
        ("lightstep", tracing.lightstep.is_some()),
        ("datadog", tracing.datadog.is_some()),
        ("stackdriver", tracing.stackdriver.is_some()),
        ("openCensusAgent", tracing.open_census_agent.is_some()),
    ];
    at_most_one(&tracers, at, checker);
    for (field, tracer) in [("zipkin", &tracing.zipkin), ("datadog", &tracing.datadog)] {
        if let Some(tracer) = tracer {
            let address = tracer.address.replacen("$(HOST_IP)", "127.0.0.1", 1);
            host_port(&address, &at.field(field).field("address"), checker);
        }
    }
    if let Some(lightstep) = &tracing.lightstep {
        let at = at.field("lightstep");
        host_port(&lightstep.address, &at.field("address"), checker);
        if lightstep.access_token.is_empty() {
            checker.error(&at.field("accessToken"), "must be set");
        }
    }
    if let Some(settings) = &tracing.tls_settings {
        tls::client(settings, &at.field("tlsSettings"), checker);
    }
    values::percent(tracing.sampling, &at.field("sampling"), checker);
    telemetry::custom_tags(&tracing.custom_tags, &at.field("customTags"), checker);
}

fn key_provider(providers: &[(&str, &Option<KeyProvider>)], at: &Path<'_>, checker: &mut Checker) {
    let set: Vec<_> = providers.iter().map(|(name, provider)| (*name, provider.is_some())).collect();
    at_most_one(&set, at, checker);
    if set.iter().all(|(_, set)| !set) {
        checker.error(at, "one of cryptomb and qat must be set");
    }
    for (field, provider) in providers {
        let Some(provider) = provider else { continue };
        if provider.poll_delay.is_none_or(|delay| delay == Duration::ZERO) {
            checker.error(&at.field(field).field("pollDelay"), "must be set and not be 0");
        }
    }
}

pub(in crate::validate) fn check_networks(
    networks: &MeshNetworks,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let at = at.field("networks");
    for (name, network) in &networks.networks {
        let at = at.key(name);
        each(&network.endpoints, &at.field("endpoints"), checker, network_endpoints);
        each(&network.gateways, &at.field("gateways"), checker, network_gateway);
    }
}

fn network_endpoints(endpoints: &NetworkEndpoints, at: &Path<'_>, checker: &mut Checker) {
    let (cidr, registry) = (&endpoints.from_cidr, &endpoints.from_registry);
    at_most_one(&[("fromCidr", cidr.is_some()), ("fromRegistry", registry.is_some())], at, checker);
    if let Some(block) = cidr {
        names::ip_or_cidr(block, &at.field("fromCidr"), checker);
    }
    if let Some(name) = registry.as_ref().filter(|name| !is_dns_label(name)) {
        checker.error(&at.field("fromRegistry"), format!("{} is not the name of a registry", quoted(name)));
    }
}

fn network_gateway(gateway: &IstioNetworkGateway, at: &Path<'_>, checker: &mut Checker) {
    let (service, address) = (&gateway.registry_service_name, &gateway.address);
    at_most_one(&[("registryServiceName", service.is_some()), ("address", address.is_some())], at, checker);
    if let Some(name) = service {
        names::fqdn(name, &at.field("registryServiceName"), checker);
    }
    if let Some(address) = address.as_ref().filter(|address| !is_ip(address)) {
        names::ip_or_fqdn(address, &at.field("address"), checker);
    }
    names::port(gateway.port, &at.field("port"), checker);
}
