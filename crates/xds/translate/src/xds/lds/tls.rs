//! TLS that a sidecar terminates: the mesh's mutual TLS with certificates of workloads.

use crate::credentials::{self, CertificateSource};
use crate::engine::Cx;
use pilotfish_config::networking::TlsProtocol;
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::core::v3::{
    TransportSocket, config_source, grpc_service, transport_socket,
};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3 as tls;
use pilotfish_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};
use std::collections::BTreeSet;

/// Payload of a TLS connection, which decides the ALPN protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsPayload {
    /// HTTP requests, of any version.
    Http,
    /// A stream of bytes.
    Tcp,
}

/// Ciphers where the mesh settings name none.
const CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

/// The server side of the mesh's mutual TLS.
pub(crate) fn mutual(cx: &Cx<'_>, source: CertificateSource, payload: TlsPayload) -> TransportSocket {
    let alpn: &[&str] = match payload {
        TlsPayload::Http => &["h2", "http/1.1"],
        TlsPayload::Tcp => &["istio-peer-exchange", "h2", "http/1.1"],
    };
    let validation = tls::common_tls_context::CombinedCertificateValidationContext {
        default_validation_context: Some(trusted_identities(cx)),
        validation_context_sds_secret_config: Some(source.roots()),
        ..Default::default()
    };
    let common = tls::CommonTlsContext {
        tls_params: Some(parameters(cx)),
        tls_certificate_sds_secret_configs: vec![source.certificate()],
        alpn_protocols: alpn.iter().map(|protocol| (*protocol).to_owned()).collect(),
        validation_context_type: Some(
            tls::common_tls_context::ValidationContextType::CombinedValidationContext(validation),
        ),
        ..Default::default()
    };
    let context = tls::DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(true),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: config_any(&context).map(transport_socket::ConfigType::TypedConfig),
    }
}

/// Peers of the mesh's trust domain and its aliases.
fn trusted_identities(cx: &Cx<'_>) -> tls::CertificateValidationContext {
    let mesh = cx.mesh();
    let domains: BTreeSet<&str> =
        std::iter::once(&mesh.trust_domain).chain(&mesh.trust_domain_aliases).map(String::as_str).collect();
    let of_domain = |domain: &str| StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::Prefix(format!("spiffe://{domain}/"))),
        ..Default::default()
    };
    #[allow(deprecated, reason = "istiod writes the older field, and proxies of any version understand it")]
    tls::CertificateValidationContext {
        match_subject_alt_names: domains.into_iter().map(of_domain).collect(),
        ..Default::default()
    }
}

fn parameters(cx: &Cx<'_>) -> tls::TlsParameters {
    let mesh = cx.mesh();
    let settings = mesh.mesh_mtls.as_ref();
    let minimum = settings.map_or(TlsProtocol::TlsAuto, |settings| settings.min_protocol_version);
    let ciphers = settings.map_or(&[][..], |settings| &settings.cipher_suites);
    tls::TlsParameters {
        tls_minimum_protocol_version: match minimum {
            TlsProtocol::TlsV1_3 => tls::tls_parameters::TlsProtocol::TlSv13.into(),
            _ => tls::tls_parameters::TlsProtocol::TlSv12.into(),
        },
        tls_maximum_protocol_version: tls::tls_parameters::TlsProtocol::TlSv13.into(),
        cipher_suites: match ciphers {
            [] => CIPHERS.iter().map(|cipher| (*cipher).to_owned()).collect(),
            listed => listed.to_vec(),
        },
        ..Default::default()
    }
}

/// Files of the proxy that an SDS server beside it reads: the agent, or one of the cluster `server`.
pub(crate) fn from_files(name: &str, server: &str) -> tls::SdsSecretConfig {
    tls::SdsSecretConfig { name: name.to_owned(), sds_config: Some(credentials::from_server(server)) }
}

/// A secret of a server that the mesh names, with the host by which it is called.
pub(crate) fn from_server(name: &str, cluster: &str, host: &str) -> tls::SdsSecretConfig {
    let mut source = credentials::from_server(cluster);
    if let Some(config_source::ConfigSourceSpecifier::ApiConfigSource(api)) =
        &mut source.config_source_specifier
    {
        for service in &mut api.grpc_services {
            if let Some(grpc_service::TargetSpecifier::EnvoyGrpc(grpc)) = &mut service.target_specifier {
                host.clone_into(&mut grpc.authority);
            }
        }
    }
    tls::SdsSecretConfig { name: name.to_owned(), sds_config: Some(source) }
}
