//! Where a router gets certificates and authorities from, by tables.

use crate::credentials::CertificateSource;
use crate::engine::{Cx, Query};
use crate::proxy::{CERTIFICATES_KEY, CERTIFICATES_OVER_ADS, Proxy, ProxyKind};
use crate::testing::{evaluate, labels, line, mesh, service, sidecar, world, yaml};
use crate::xds::lds::ListenerView;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::Update;
use pilotfish_proto::envoy::config::core::v3::ConfigSource;
use pilotfish_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use pilotfish_proto::envoy::config::core::v3::grpc_service::TargetSpecifier;
use pilotfish_proto::envoy::config::core::v3::transport_socket::ConfigType;
use pilotfish_proto::envoy::config::listener::v3::Listener;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
};
use prost::Message;

/// How the only server of a router ends TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TlsOf(Proxy);

impl Query for TlsOf {
    type Output = DownstreamTlsContext;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let [view] = &ListenerView::of(cx, &self.0)[..] else { panic!("a router's listeners have one part") };
        let batch_keys = view.batch_keys(cx).unwrap();
        let resource =
            batch_keys.iter().flat_map(|key| view.generate(cx, key).resources.to_vec()).next().unwrap();
        let packed = pilotfish_proto::Any::decode(resource.body).unwrap();
        let listener = Listener::decode(&*packed.value).unwrap();
        let socket = listener.filter_chains[0].transport_socket.clone().unwrap();
        let Some(ConfigType::TypedConfig(packed)) = socket.config_type else { panic!("no configuration") };
        DownstreamTlsContext::decode(&*packed.value).unwrap()
    }
}

fn context(tls: &str, metadata: &[(&str, &str)]) -> CommonTlsContext {
    context_in(Vec::new(), tls, metadata)
}

fn context_in(more: Vec<Update>, tls: &str, metadata: &[(&str, &str)]) -> CommonTlsContext {
    let spec = format!(
        "{{selector: {{istio: quay}}, servers: [{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [a.com], tls: {tls}}}]}}"
    );
    let gateway = yaml(&line("networking.istio.io/v1", "Gateway", "edge", "g", &spec));
    let world = world(gateway.into_iter().chain(more));
    let router = Proxy {
        kind: ProxyKind::Router,
        labels: labels(&[("istio", "quay")]),
        metadata: metadata.iter().copied().collect(),
        certificate_source: if metadata.contains(&OVER_ADS) {
            CertificateSource::ControlPlane
        } else {
            CertificateSource::Agent
        },
        ..sidecar("quay-0", "edge")
    };
    evaluate(&world, &TlsOf(router)).common_tls_context.clone().unwrap()
}

/// Metadata of a router whose certificate comes from the control plane.
const OVER_ADS: (&str, &str) = (CERTIFICATES_KEY, CERTIFICATES_OVER_ADS);

/// The name of a secret, who hands it out, and whether it is waited for without limit.
fn place(secret: &SdsSecretConfig) -> String {
    let source: &ConfigSource = secret.sds_config.as_ref().unwrap();
    let from = match source.config_source_specifier.as_ref().unwrap() {
        ConfigSourceSpecifier::Ads(_) => "ads".to_owned(),
        ConfigSourceSpecifier::ApiConfigSource(api) => {
            let Some(TargetSpecifier::EnvoyGrpc(grpc)) = &api.grpc_services[0].target_specifier else {
                panic!("no Envoy gRPC")
            };
            grpc.cluster_name.clone()
        }
        other => panic!("{other:?}"),
    };
    let waits = if source.initial_fetch_timeout.is_some() { "!" } else { "" };
    format!("{} {from}{waits}", secret.name)
}

/// The certificates, and the authorities behind `|`.
fn places(tls: &str, metadata: &[(&str, &str)]) -> String {
    places_of(&context(tls, metadata))
}

fn places_of(context: &CommonTlsContext) -> String {
    let certificates: Vec<String> = context.tls_certificate_sds_secret_configs.iter().map(place).collect();
    let authorities = match &context.validation_context_type {
        None => String::new(),
        Some(ValidationContextType::CombinedValidationContext(combined)) => {
            place(combined.validation_context_sds_secret_config.as_ref().unwrap())
        }
        Some(other) => panic!("{other:?}"),
    };
    format!("{} | {authorities}", certificates.join(", ")).trim().to_owned()
}

/// Fields of Istio 1.32.
#[test]
fn curves_and_protocols_of_a_server_replace_those_of_the_mesh() {
    for (tls, alpn, curves) in [
        ("{mode: SIMPLE, credentialName: c}", "h2,http/1.1", ""),
        ("{mode: SIMPLE, credentialName: c, alpnProtocols: [http/1.1]}", "http/1.1", ""),
        (
            "{mode: MUTUAL, credentialName: c, ecdhCurves: [P-384, X25519, P-384]}",
            "h2,http/1.1",
            "P-384,X25519",
        ),
        ("{mode: SIMPLE, credentialName: c, ecdhCurves: [P-1]}", "h2,http/1.1", ""),
        ("{mode: ISTIO_MUTUAL, alpnProtocols: [h2]}", "h2", ""),
    ] {
        let context = context(tls, &[]);
        let found = context.tls_params.map(|params| params.ecdh_curves.join(",")).unwrap_or_default();
        assert_eq!((context.alpn_protocols.join(","), found), (alpn.to_owned(), curves.to_owned()), "{tls}");
    }
}

#[test]
fn files_come_from_the_agent_or_from_a_server_of_their_own() {
    const PAIR: &str = "serverCertificate: /c, privateKey: /k";
    for (tls, expected) in [
        (format!("{{mode: SIMPLE, {PAIR}}}"), "file-cert:/c~/k FILES |"),
        (format!("{{mode: MUTUAL, {PAIR}, caCertificates: /ca}}"), "file-cert:/c~/k FILES | file-root:/ca FILES"),
        (format!("{{mode: OPTIONAL_MUTUAL, {PAIR}, caCertificates: /ca}}"), "file-cert:/c~/k FILES | file-root:/ca FILES"),
        (
            "{mode: SIMPLE, tlsCertificates: [{serverCertificate: /a, privateKey: /b}, {serverCertificate: /c, privateKey: /d}]}".to_owned(),
            "file-cert:/a~/b FILES, file-cert:/c~/d FILES |",
        ),
        (
            "{mode: MUTUAL, tlsCertificates: [{serverCertificate: /a, privateKey: /b}, {serverCertificate: /c, privateKey: /d, caCertificates: /ca}]}".to_owned(),
            "file-cert:/a~/b FILES, file-cert:/c~/d FILES | file-root:/ca FILES",
        ),
        (
            "{mode: MUTUAL, caCertificates: /first, tlsCertificates: [{serverCertificate: /a, privateKey: /b, caCertificates: /ca}]}".to_owned(),
            "file-cert:/a~/b FILES | file-root:/first FILES",
        ),
        ("{mode: ISTIO_MUTUAL}".to_owned(), "default sds-grpc! | ROOTCA sds-grpc!"),
        ("{mode: SIMPLE, credentialName: c}".to_owned(), "kubernetes://c ads |"),
    ] {
        for (metadata, server) in [
            (&[][..], "sds-grpc"),
            (&[("file-credential", "true")], "sds-files-grpc"),
            (&[("file-credential", "false")], "sds-grpc"),
            (&[("file-credential", "1")], "sds-grpc"),
        ] {
            assert_eq!(places(&tls, metadata), expected.replace("FILES", server), "{tls} {metadata:?}");
        }
    }
}

#[test]
fn credentials_come_from_the_control_plane_and_the_workloads_own_from_the_agent() {
    for (tls, expected) in [
        ("{mode: MUTUAL, credentialName: c}", "kubernetes://c ads | kubernetes://c-cacert ads"),
        ("{mode: OPTIONAL_MUTUAL, credentialName: c}", "kubernetes://c ads | kubernetes://c-cacert ads"),
        (
            "{mode: MUTUAL, credentialName: c, caCertCredentialName: d}",
            "kubernetes://c ads | kubernetes://d-cacert ads",
        ),
        (
            "{mode: MUTUAL, credentialName: c, caCertCredentialName: d-cacert}",
            "kubernetes://c ads | kubernetes://d-cacert ads",
        ),
        ("{mode: SIMPLE, credentialNames: [c, d]}", "kubernetes://c ads, kubernetes://d ads |"),
        ("{mode: SIMPLE, credentialName: 'builtin://'}", "default sds-grpc! |"),
        ("{mode: MUTUAL, credentialName: 'builtin://'}", "default sds-grpc! | ROOTCA sds-grpc!"),
        (
            "{mode: MUTUAL, credentialName: 'builtin://', caCertCredentialName: 'configmap://a/b-cacert'}",
            "default sds-grpc! | configmap://a/b-cacert ads",
        ),
    ] {
        assert_eq!(places(tls, &[]), expected, "{tls}");
        assert_eq!(places(tls, &[OVER_ADS]), expected.replace("sds-grpc", "ads"), "{tls}");
    }
}

#[test]
fn ciphers_that_envoy_does_not_know_are_left_out() {
    for (ciphers, expected) in [
        ("AES128-SHA, ECDHE-RSA-AES128-GCM-SHA256", &["AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256"][..]),
        ("AES128-SHA, NO-SUCH-CIPHER, AES128-SHA", &["AES128-SHA"]),
        ("NO-SUCH-CIPHER", &[]),
    ] {
        let tls = format!("{{mode: SIMPLE, credentialName: c, cipherSuites: [{ciphers}]}}");
        let found = context(&tls, &[]).tls_params.map(|parameters| parameters.cipher_suites);
        assert_eq!(found.unwrap_or_default(), expected, "{ciphers}");
    }
}

/// Rule 31 of Istio 1.31: the server beside the router, else the first of the mesh config, else the control
/// plane.
#[test]
fn external_credentials_come_from_the_nearest_server_of_secrets() {
    let sds =
        r#"{"name": "any", "sds": {"name": "any", "service": "sds.vault.svc.cluster.local", "port": 80}}"#;
    let config: MeshConfig = serde_json::from_str(&format!(r#"{{"extensionProviders": [{sds}]}}"#)).unwrap();
    let provider = || vec![Update::Object(mesh(config.clone())), service("sds", "vault").update()];
    let cluster = "outbound|80||sds.vault.svc.cluster.local";
    let (own, upper) = (&[("credential", "true")][..], &[("credential", "TRUE")][..]);
    for (more, metadata, expected) in [
        (vec![], &[][..], "kubernetes://c ads | kubernetes://c-cacert ads".to_owned()),
        (provider(), &[], format!("c {cluster} | c-cacert {cluster}")),
        (vec![], own, "sds://c sds-external | sds://c-cacert sds-external".to_owned()),
        (provider(), own, "sds://c sds-external | sds://c-cacert sds-external".to_owned()),
        (vec![], upper, "kubernetes://c ads | kubernetes://c-cacert ads".to_owned()),
    ] {
        let context = context_in(more, "{mode: MUTUAL, credentialName: 'sds://c'}", metadata);
        assert_eq!(places_of(&context), expected, "{metadata:?}");
    }
    assert_eq!(places("{mode: SIMPLE, credentialName: c}", own), "kubernetes://c ads |");
}
