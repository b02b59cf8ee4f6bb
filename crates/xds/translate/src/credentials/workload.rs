//! Certificates of workloads, for mutual TLS of the mesh.

use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::api_config_source::ApiType;
use pilotfish_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use pilotfish_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use pilotfish_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiConfigSource, ApiVersion, ConfigSource, GrpcService,
};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::SdsSecretConfig;

/// Secret with the certificate and key of a workload.
const CERTIFICATE: &str = "default";
/// Secret with the roots of the mesh.
const ROOTS: &str = "ROOTCA";
/// Cluster of the agent beside a proxy.
const AGENT: &str = "sds-grpc";

/// Server from which a proxy gets the certificate of its workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertificateSource {
    /// None. An Envoy would wait for a certificate for ever, so mutual TLS is used only where a rule
    /// configures it.
    #[default]
    Nobody,
    /// Istio's agent beside the proxy, under the cluster name `sds-grpc`.
    Agent,
    /// The control plane, on the proxy's own stream.
    ControlPlane,
}

impl CertificateSource {
    /// True if the proxy gets a certificate without a rule that configures it.
    #[must_use]
    pub fn is_some(self) -> bool {
        self != Self::Nobody
    }

    /// Reference to the certificate and key of the workload. Envoy waits for them without limit.
    pub(crate) fn certificate(self) -> SdsSecretConfig {
        self.secret(CERTIFICATE)
    }

    /// Reference to the roots of the mesh. Envoy waits for them without limit.
    pub(crate) fn roots(self) -> SdsSecretConfig {
        self.secret(ROOTS)
    }

    fn secret(self, name: &str) -> SdsSecretConfig {
        let server = match self {
            Self::ControlPlane => from_stream(),
            Self::Nobody | Self::Agent => from_server(AGENT),
        };
        let source = ConfigSource { initial_fetch_timeout: Some(Duration::default()), ..server };
        SdsSecretConfig { name: name.to_owned(), sds_config: Some(source) }
    }
}

/// The control plane, on the stream of all other resources.
pub(crate) fn from_stream() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
        ..ConfigSource::default()
    }
}

/// An SDS server, by its cluster.
pub(crate) fn from_server(cluster: &str) -> ConfigSource {
    let server = EnvoyGrpc { cluster_name: cluster.to_owned(), ..EnvoyGrpc::default() };
    let source = ApiConfigSource {
        api_type: ApiType::Grpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(server)),
            ..GrpcService::default()
        }],
        set_node_on_first_message_only: true,
        ..ApiConfigSource::default()
    };
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(source)),
        ..ConfigSource::default()
    }
}
