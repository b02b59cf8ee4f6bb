//! TLS that ends at a router: certificates by credential name, of the workload, or from files; and who may
//! connect.
#![allow(
    deprecated,
    reason = "istiod writes the older field for names, and proxies of any version understand it"
)]

use super::Builder;
use crate::credentials::{BUILT_IN, CA_SUFFIX, CertificateSource, from_stream, with_ca_suffix};
use crate::engine::Cx;
use crate::envoy::EXTERNAL_SECRETS;
use crate::policy::provider::provider_service;
use crate::routing::gateway::MergedServer;
use crate::xds::lds::tls;
use pilotfish_config::mesh::TlsConfig;
use pilotfish_config::networking::{ServerTlsMode, ServerTlsSettings, TlsCertificate, TlsProtocol};
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::core::v3::data_source::Specifier;
use pilotfish_proto::envoy::config::core::v3::{DataSource, TransportSocket, transport_socket};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol as Version;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, TlsParameters,
    certificate_validation_context::TrustChainVerification,
};
use pilotfish_proto::envoy::r#type::matcher::v3::StringMatcher;
use pilotfish_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

/// Transport socket of a server that terminates TLS; `None` for others.
pub(super) fn socket(builder: &Builder<'_>, server: &MergedServer) -> Option<TransportSocket> {
    let settings = server.spec.tls.as_ref().filter(|_| server.is_tls() && !server.passes_through())?;
    let context = DownstreamTlsContext {
        common_tls_context: Some(common(builder, settings, server.is_http())),
        require_client_certificate: Some(matches!(
            settings.mode,
            ServerTlsMode::Mutual | ServerTlsMode::IstioMutual
        )),
        ..Default::default()
    };
    Some(TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: config_any(&context).map(transport_socket::ConfigType::TypedConfig),
    })
}

fn common(builder: &Builder<'_>, settings: &ServerTlsSettings, http: bool) -> CommonTlsContext {
    let of_mesh = settings.mode == ServerTlsMode::IstioMutual;
    let alpn: &[&str] = match (of_mesh, http) {
        (true, false) => &["istio-peer-exchange", "h2", "http/1.1"],
        _ => &["h2", "http/1.1"],
    };
    let mut context = CommonTlsContext {
        alpn_protocols: match settings.alpn_protocols.as_slice() {
            [] => alpn.iter().map(|protocol| (*protocol).to_owned()).collect(),
            own => own.to_vec(),
        },
        ..Default::default()
    };
    let source = builder.view.base.certificate_source;
    if of_mesh {
        context.tls_certificate_sds_secret_configs = vec![source.certificate()];
        context.validation_context_type = Some(combined(by_names(settings), source.roots()));
        return context;
    }
    match credentials(settings).as_slice() {
        [] => from_files(settings, builder.view.files_from, source, &mut context),
        names => {
            let secrets =
                Secrets { cx: builder.cx, socket: builder.view.credential_socket, certificates: source };
            from_secrets(&secrets, settings, names, &mut context);
        }
    }
    context.tls_params = parameters(builder.cx.mesh().tls_defaults.as_ref(), settings);
    context
}

/// The names of the credentials, as written.
fn credentials(settings: &ServerTlsSettings) -> Vec<&str> {
    match settings.credential_names.as_slice() {
        [] if settings.credential_name.is_empty() => Vec::new(),
        [] => vec![&settings.credential_name],
        names => names.iter().map(String::as_str).collect(),
    }
}

/// True if clients must or may present a certificate.
fn verifies_client(settings: &ServerTlsSettings) -> bool {
    matches!(settings.mode, ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual)
}

/// Certificates out of secrets, handed out by the control plane.
fn from_secrets(
    secrets: &Secrets<'_>,
    settings: &ServerTlsSettings,
    names: &[&str],
    context: &mut CommonTlsContext,
) {
    context.tls_certificate_sds_secret_configs = names.iter().map(|name| secrets.credential(name)).collect();
    if verifies_client(settings) {
        let first = names.first().copied().unwrap_or_default();
        let roots = match settings.ca_cert_credential_name.as_str() {
            "" => format!("{first}{CA_SUFFIX}"),
            name => with_ca_suffix(name),
        };
        let by_names = CertificateValidationContext {
            verify_certificate_spki: settings.verify_certificate_spki.clone(),
            verify_certificate_hash: settings.verify_certificate_hash.clone(),
            ..by_names(settings)
        };
        context.validation_context_type = Some(combined(by_names, secrets.credential(&roots)));
    } else if !settings.subject_alt_names.is_empty() {
        let names = CertificateValidationContext {
            match_subject_alt_names: names_of(settings),
            ..Default::default()
        };
        context.validation_context_type = Some(ValidationContextType::ValidationContext(names));
    }
}

/// Certificates in files of the router, which the SDS server of the cluster `server` reads and hands out.
fn from_files(
    settings: &ServerTlsSettings,
    server: &str,
    source: CertificateSource,
    context: &mut CommonTlsContext,
) {
    let named = |certificate: &str, key: &str| match (certificate, key) {
        ("", _) | (_, "") => source.certificate(),
        (certificate, key) => tls::from_files(&format!("file-cert:{certificate}~{key}"), server),
    };
    let several = |list: &[TlsCertificate]| -> Vec<SdsSecretConfig> {
        list.iter().map(|c| named(&c.server_certificate, &c.private_key)).collect()
    };
    context.tls_certificate_sds_secret_configs = match settings.tls_certificates.as_slice() {
        [] => vec![named(&settings.server_certificate, &settings.private_key)],
        list => several(list),
    };
    if verifies_client(settings) {
        let roots = match ca_file(settings) {
            "" => source.roots(),
            path => tls::from_files(&format!("file-root:{path}"), server),
        };
        context.validation_context_type = Some(combined(by_names(settings), roots));
    }
}

/// The file with the authorities of clients: the server's, else that of the first certificate that has one.
/// Envoy takes one for all certificates of a chain.
fn ca_file(settings: &ServerTlsSettings) -> &str {
    let of_certificates = settings.tls_certificates.iter().map(|files| &files.ca_certificates);
    let mut files = std::iter::once(&settings.ca_certificates).chain(of_certificates);
    files.find(|path| !path.is_empty()).map_or("", String::as_str)
}

/// Peers with one of these names, and with none of the revoked certificates.
fn by_names(settings: &ServerTlsSettings) -> CertificateValidationContext {
    let crl = (!settings.ca_crl.is_empty()).then(|| DataSource {
        specifier: Some(Specifier::Filename(settings.ca_crl.clone())),
        ..Default::default()
    });
    // Of secrets, the revocation list is a part.
    let from_secret = !credentials(settings).is_empty();
    CertificateValidationContext {
        match_subject_alt_names: names_of(settings),
        trust_chain_verification: trust_chain(settings).into(),
        crl: if from_secret { None } else { crl },
        ..Default::default()
    }
}

fn trust_chain(settings: &ServerTlsSettings) -> TrustChainVerification {
    match settings.insecure_skip_verify {
        Some(true) => TrustChainVerification::AcceptUntrusted,
        _ => TrustChainVerification::VerifyTrustChain,
    }
}

/// Start of credentials that a server of secrets hands out, which is not the control plane.
const EXTERNAL: &str = "sds://";

fn names_of(settings: &ServerTlsSettings) -> Vec<StringMatcher> {
    let exact = |name: &String| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(name.clone())),
        ..Default::default()
    };
    settings.subject_alt_names.iter().map(exact).collect()
}

fn combined(by_names: CertificateValidationContext, roots: SdsSecretConfig) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(by_names),
        validation_context_sds_secret_config: Some(roots),
        ..Default::default()
    })
}

/// Sources of the secrets of a router.
struct Secrets<'a> {
    cx: &'a Cx<'a>,
    /// True if there is one at a socket beside the router.
    socket: bool,
    /// Source of the workload's own certificate.
    certificates: CertificateSource,
}

impl Secrets<'_> {
    /// A secret that the control plane hands out, or the workload's own. A name without a
    /// scheme is that of a Kubernetes Secret beside the router. `sds://NAME` is of the server beside the
    /// router, else of the first one that the mesh config has, else of the control plane.
    fn credential(&self, name: &str) -> SdsSecretConfig {
        let Some(external) = name.strip_prefix(EXTERNAL) else {
            return self.sent_by_control_plane(name);
        };
        if self.socket {
            return tls::from_files(name, EXTERNAL_SECRETS);
        }
        let mesh = self.cx.mesh();
        let server = mesh.extension_providers.iter().find_map(|provider| provider.sds.as_ref());
        match server.and_then(|server| provider_service(self.cx, &server.service, server.port)) {
            Some(server) => tls::from_server(external, &server.cluster, &server.host),
            None => self.sent_by_control_plane(external),
        }
    }

    fn sent_by_control_plane(&self, name: &str) -> SdsSecretConfig {
        match name.strip_prefix(BUILT_IN) {
            Some("") => return self.certificates.certificate(),
            Some(CA_SUFFIX) => return self.certificates.roots(),
            _ => {}
        }
        let name = if name.contains("://") { name.to_owned() } else { format!("kubernetes://{name}") };
        SdsSecretConfig { name, sds_config: Some(from_stream()) }
    }
}

/// Versions, ciphers and curves: of the server, else of the mesh; `None` where neither sets any.
fn parameters(mesh: Option<&TlsConfig>, settings: &ServerTlsSettings) -> Option<TlsParameters> {
    let mut out = TlsParameters::default();
    if let Some(mesh) = mesh {
        out.ecdh_curves.clone_from(&mesh.ecdh_curves);
        out.cipher_suites.clone_from(&mesh.cipher_suites);
        out.tls_minimum_protocol_version = version(mesh.min_protocol_version).into();
    }
    if settings.min_protocol_version != TlsProtocol::TlsAuto {
        out.tls_minimum_protocol_version = version(settings.min_protocol_version).into();
    }
    out.tls_maximum_protocol_version = version(settings.max_protocol_version).into();
    let curves = settings.known_ecdh_curves();
    if !curves.is_empty() {
        out.ecdh_curves = curves;
    }
    let ciphers = settings.known_cipher_suites();
    if !ciphers.is_empty() {
        out.cipher_suites = ciphers;
    }
    (out != TlsParameters::default()).then_some(out)
}

fn version(version: TlsProtocol) -> Version {
    match version {
        TlsProtocol::TlsAuto => Version::TlsAuto,
        TlsProtocol::TlsV1_0 => Version::TlSv10,
        TlsProtocol::TlsV1_1 => Version::TlSv11,
        TlsProtocol::TlsV1_2 => Version::TlSv12,
        TlsProtocol::TlsV1_3 => Version::TlSv13,
    }
}

#[cfg(test)]
mod tests;
