//! TLS to the endpoints of a service.
//!
//! Without a rule, mutual TLS of the mesh is used with endpoints that can (by their metadata), plain
//! text with the others. A rule with TLS settings decides for all endpoints.
#![allow(deprecated, reason = "Istio writes fields that Envoy has newer forms of")]

use super::draft::Draft;
use super::view::{Certificates, ProxyFacets};
use crate::credentials::{CA_SUFFIX, CertificateSource, with_ca_suffix};
use crate::envoy::metadata;
use crate::proxy::ProxyKind;
use crate::routing::gateway_api::UNUSABLE;
use pilotfish_config::mesh::{MeshConfig, TlsConfig};
use pilotfish_config::networking::{ClientTlsMode, ClientTlsSettings};
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{DiscoveryType, TransportSocketMatch};
use pilotfish_proto::envoy::config::core::v3::data_source::Specifier;
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use pilotfish_proto::envoy::config::core::v3::{DataSource, TransportSocket};
use pilotfish_proto::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3 as envoy_tls;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, TlsParameters, UpstreamTlsContext,
    tls_parameters::TlsProtocol as EnvoyProtocol,
};
use pilotfish_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

/// Name of Envoy's TLS transport socket.
pub(super) const TLS: &str = "envoy.transport_sockets.tls";
/// Name of Envoy's plaintext transport socket.
pub(super) const RAW_BUFFER: &str = "envoy.transport_sockets.raw_buffer";

/// Facts about the peer of a cluster.
#[derive(Default)]
pub(super) struct Peer<'a> {
    /// Identities of its endpoints.
    pub(super) accounts: &'a [String],
    /// The SNI, which names the service, port and subset.
    pub(super) sni: String,
    /// True if the mesh's mutual TLS is used without a rule (auto mTLS).
    pub(super) auto_mtls: bool,
    /// True if the identities also hold for TLS that a rule configures, as those of a ServiceEntry do.
    pub(super) accounts_for_tls: bool,
    /// True if the rule is for selected workloads.
    pub(super) rule_selects: bool,
}

/// Applies the settings of a rule, or automatic mutual TLS.
pub(super) fn apply(
    draft: &mut Draft,
    facets: &ProxyFacets,
    mesh: &MeshConfig,
    settings: Option<&ClientTlsSettings>,
    peer: &Peer<'_>,
) {
    let Some(settings) = settings else {
        if peer.auto_mtls {
            automatic(draft, facets, mesh, peer);
        }
        return;
    };
    let own = facets.certificates.as_ref();
    let context = match (settings.mode, own) {
        (ClientTlsMode::Disable, _) => None,
        (ClientTlsMode::IstioMutual, None) => {
            let sni = if settings.sni.is_empty() { &peer.sni } else { &settings.sni };
            let names = &settings.subject_alt_names;
            let names = if names.is_empty() { peer.accounts } else { names };
            Some(istio_mutual(draft, facets.certificate_source, names, sni))
        }
        (ClientTlsMode::Mutual | ClientTlsMode::IstioMutual, Some(own)) => {
            let settings = with_certificates(own, &settings.subject_alt_names, &settings.sni);
            origination(draft, facets, mesh, &settings, peer)
        }
        _ => origination(draft, facets, mesh, settings, peer),
    };
    draft.cluster.transport_socket = context.map(|context| socket(&context));
}

/// Mutual TLS with the endpoints that can. Where there are no endpoints to match (connections go where the
/// client wanted to), all of them were found able before.
fn automatic(draft: &mut Draft, facets: &ProxyFacets, mesh: &MeshConfig, peer: &Peer<'_>) {
    if let Some(own) = &facets.certificates {
        let settings = with_certificates(own, peer.accounts, &peer.sni);
        let context = origination(draft, facets, mesh, &settings, peer);
        draft.cluster.transport_socket = context.map(|context| socket(&context));
        return;
    }
    let socket = socket(&istio_mutual(draft, facets.certificate_source, peer.accounts, &peer.sni));
    if draft.kind() == Some(DiscoveryType::OriginalDst) {
        draft.cluster.transport_socket = Some(socket);
        return;
    }
    let able = metadata::fields([("tlsMode", metadata::text("istio"))]);
    let choice = |name: &str, fields, socket| TransportSocketMatch {
        name: name.to_owned(),
        r#match: Some(fields),
        transport_socket: Some(socket),
    };
    draft.cluster.transport_socket_matches = vec![
        choice("tlsMode-istio", able, socket),
        choice("tlsMode-disabled", pilotfish_proto::Struct::default(), raw_buffer(RAW_BUFFER)),
    ];
}

/// Mutual TLS by the certificate files that the proxy brings along.
fn with_certificates(own: &Certificates, names: &[String], sni: &str) -> ClientTlsSettings {
    ClientTlsSettings {
        mode: ClientTlsMode::Mutual,
        client_certificate: own.chain.to_string(),
        private_key: own.key.to_string(),
        ca_certificates: own.root.to_string(),
        subject_alt_names: names.to_vec(),
        sni: sni.to_owned(),
        ..ClientTlsSettings::default()
    }
}

/// Mutual TLS of the mesh.
fn istio_mutual(
    draft: &mut Draft,
    source: CertificateSource,
    names: &[String],
    sni: &str,
) -> UpstreamTlsContext {
    if draft.is_dynamic() {
        name_host(draft, sni.is_empty(), true);
    }
    let mut alpn = vec!["istio-peer-exchange".to_owned(), "istio".to_owned()];
    if draft.is_http2() {
        alpn.push("h2".to_owned());
    }
    let validation = CertificateValidationContext {
        match_subject_alt_names: exact_names(names),
        ..CertificateValidationContext::default()
    };
    UpstreamTlsContext {
        sni: sni.to_owned(),
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters(None)),
            tls_certificate_sds_secret_configs: vec![source.certificate()],
            validation_context_type: Some(combined(validation, source.roots())),
            alpn_protocols: alpn,
            ..CommonTlsContext::default()
        }),
        ..UpstreamTlsContext::default()
    }
}

/// TLS with certificates that the rule names. `None` where it cannot be set up.
fn origination(
    draft: &mut Draft,
    facets: &ProxyFacets,
    mesh: &MeshConfig,
    settings: &ClientTlsSettings,
    peer: &Peer<'_>,
) -> Option<UpstreamTlsContext> {
    let for_all_sidecars = is_for_all_sidecars(facets, peer);
    let by_credential = !settings.credential_name.is_empty();
    let credential = settings.credential_name.as_str();
    // An unusable credential was meant for TLS: plaintext instead, as from istiod, would expose protected
    // data.
    let for_everybody = credential.starts_with(secrets::CONFIG_MAP) || credential == UNUSABLE;
    if by_credential && for_all_sidecars && !for_everybody {
        // Else every sidecar would wait for a secret that most may not read.
        return None;
    }
    // Even where the certificate turns out to be missing below.
    check_host(draft, settings);
    let is_mutual = settings.mode == ClientTlsMode::Mutual;
    let certificate = match (is_mutual, by_credential) {
        (false, _) => None,
        (true, true) => Some(secrets::of_credential(&settings.credential_name)),
        (true, false) if settings.client_certificate.is_empty() || settings.private_key.is_empty() => {
            return None;
        }
        (true, false) => Some(secrets::of_file(&format!(
            "file-cert:{}~{}",
            settings.client_certificate, settings.private_key
        ))),
    };
    let alpn_protocols = if draft.is_http2() { vec!["h2".to_owned()] } else { Vec::new() };
    Some(UpstreamTlsContext {
        sni: settings.sni.clone(),
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters(mesh.tls_defaults.as_ref())),
            tls_certificate_sds_secret_configs: certificate.into_iter().collect(),
            validation_context_type: validation(facets, settings, peer),
            alpn_protocols,
            ..CommonTlsContext::default()
        }),
        ..UpstreamTlsContext::default()
    })
}

/// True if every sidecar has the rule: most may not read its secrets.
fn is_for_all_sidecars(facets: &ProxyFacets, peer: &Peer<'_>) -> bool {
    facets.kind != ProxyKind::Router && !peer.rule_selects
}

/// The authorities that come on their own; `None` for those of the credential or of files.
fn authorities(facets: &ProxyFacets, settings: &ClientTlsSettings, peer: &Peer<'_>) -> Option<String> {
    let name = settings.ca_cert_credential_name.as_str();
    let for_everybody = name.starts_with(secrets::CONFIG_MAP);
    if name.is_empty() || is_for_all_sidecars(facets, peer) && !for_everybody {
        return None;
    }
    Some(with_ca_suffix(name))
}

/// Without an SNI, the host of each request is it; without names to check either, the certificate must have
/// that host. Where hosts are looked up, it must have that host in any case.
fn check_host(draft: &mut Draft, settings: &ClientTlsSettings) {
    let verify = settings.insecure_skip_verify != Some(true);
    if draft.is_dynamic() {
        name_host(draft, settings.sni.is_empty(), verify);
    } else if settings.sni.is_empty() {
        name_host(draft, true, verify && settings.subject_alt_names.is_empty());
    }
}

/// Takes the SNI, and the name that the certificate must have, from the host of each request.
fn name_host(draft: &mut Draft, sni: bool, verify: bool) {
    draft.insecure |= draft.is_dynamic() && !(sni && verify);
    if !sni && !verify {
        return;
    }
    let options = draft.http().upstream_http_protocol_options.get_or_insert_default();
    options.auto_sni |= sni;
    options.auto_san_validation |= verify;
}

/// Validation of the peer's certificate; `None` for a credential whose peer is not verified.
fn validation(
    facets: &ProxyFacets,
    settings: &ClientTlsSettings,
    peer: &Peer<'_>,
) -> Option<ValidationContextType> {
    let skip = settings.insecure_skip_verify == Some(true);
    let by_credential = !settings.credential_name.is_empty();
    if skip {
        let nothing = ValidationContextType::ValidationContext(CertificateValidationContext::default());
        return (!by_credential).then_some(nothing);
    }
    let names = &settings.subject_alt_names;
    let names = if names.is_empty() && peer.accounts_for_tls { peer.accounts } else { names };
    let context = CertificateValidationContext {
        match_subject_alt_names: exact_names(names),
        crl: (!settings.ca_crl.is_empty() && !by_credential).then(|| DataSource {
            specifier: Some(Specifier::Filename(settings.ca_crl.clone())),
            ..DataSource::default()
        }),
        ..CertificateValidationContext::default()
    };
    let secret = match (authorities(facets, settings, peer), settings.ca_certificates.as_str()) {
        _ if settings.credential_name == UNUSABLE => secrets::unusable(facets.kind),
        (Some(own), _) => secrets::of_credential(&own),
        _ if by_credential => secrets::of_credential(&format!("{}{CA_SUFFIX}", settings.credential_name)),
        (None, "") => secrets::of_file("file-root:system"),
        (None, path) => secrets::of_file(&format!("file-root:{path}")),
    };
    Some(combined(context, secret))
}

fn combined(
    context: CertificateValidationContext,
    secret: envoy_tls::SdsSecretConfig,
) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(context),
        validation_context_sds_secret_config: Some(secret),
        ..CombinedCertificateValidationContext::default()
    })
}

pub(super) fn exact_names(names: &[String]) -> Vec<StringMatcher> {
    let exact = |name: &String| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(name.clone())),
        ..StringMatcher::default()
    };
    names.iter().map(exact).collect()
}

/// Versions, and for TLS out of the mesh curves and ciphers of the mesh config: its minimal version is for
/// what is accepted.
fn parameters(defaults: Option<&TlsConfig>) -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: EnvoyProtocol::TlSv12 as i32,
        tls_maximum_protocol_version: EnvoyProtocol::TlSv13 as i32,
        cipher_suites: defaults.map(|defaults| defaults.cipher_suites.clone()).unwrap_or_default(),
        ecdh_curves: defaults.map(|defaults| defaults.ecdh_curves.clone()).unwrap_or_default(),
        ..TlsParameters::default()
    }
}

fn socket(context: &UpstreamTlsContext) -> TransportSocket {
    TransportSocket { name: TLS.to_owned(), config_type: config_any(context).map(ConfigType::TypedConfig) }
}

/// Plain text. Envoy knows the socket by its type; the name is free.
pub(super) fn raw_buffer(name: &str) -> TransportSocket {
    TransportSocket {
        name: name.to_owned(),
        config_type: config_any(&RawBuffer::default()).map(ConfigType::TypedConfig),
    }
}

/// Sources of certificates and keys (SDS).
mod secrets {
    use super::UNUSABLE;
    use crate::credentials::{from_server, from_stream};
    use crate::proxy::ProxyKind;
    use pilotfish_proto::Duration;
    use pilotfish_proto::envoy::config::core::v3::ConfigSource;
    use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::SdsSecretConfig;

    /// Prefix of a credential in a ConfigMap.
    pub(super) const CONFIG_MAP: &str = "configmap://";
    /// Time that a starting sidecar waits for a secret that never comes; Envoy's default is 15 s.
    const UNUSABLE_WAIT: Duration = Duration { seconds: 0, nanos: 100_000_000 };
    /// Start of credentials that gateways ask another server for.
    const EXTERNAL: &str = "sds://";
    /// Prefixes of credentials that already name their source.
    const PREFIXES: [&str; 4] = [CONFIG_MAP, "kubernetes://", "kubernetes-gateway://", "builtin://"];

    /// Files that the agent reads.
    pub(super) fn of_file(name: &str) -> SdsSecretConfig {
        SdsSecretConfig { name: name.to_owned(), sds_config: Some(from_server("sds-grpc")) }
    }

    /// A secret that the control plane sends.
    pub(super) fn of_credential(credential: &str) -> SdsSecretConfig {
        // Clusters know no server of secrets but the control plane.
        let credential = credential.strip_prefix(EXTERNAL).unwrap_or(credential);
        let known = PREFIXES.iter().any(|prefix| credential.starts_with(prefix));
        let name = if known { credential.to_owned() } else { format!("kubernetes://{credential}") };
        SdsSecretConfig { name, sds_config: Some(from_stream()) }
    }

    /// A secret that nobody sends. istiod has sidecars do without TLS in its place.
    pub(super) fn unusable(kind: ProxyKind) -> SdsSecretConfig {
        let source = match kind {
            // As from istiod.
            ProxyKind::Router => from_stream(),
            // An Envoy that starts waits for the secrets of its clusters, and a policy of one namespace is in
            // the clusters of every sidecar.
            ProxyKind::Sidecar | ProxyKind::Grpc => {
                ConfigSource { initial_fetch_timeout: Some(UNUSABLE_WAIT), ..from_stream() }
            }
        };
        SdsSecretConfig { name: UNUSABLE.to_owned(), sds_config: Some(source) }
    }
}
