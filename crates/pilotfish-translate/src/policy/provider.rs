//! Extension providers of the mesh settings, by name and as Envoy reaches them.

use crate::engine::Cx;
use crate::envoy::outbound_name;
use pilotfish_config::mesh::{ExtensionProvider, HttpHeader, MeshConfig};
use pilotfish_model::{Hostname, Namespace, ServiceKey};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use pilotfish_proto::envoy::config::core::v3::{
    GrpcService, HeaderValue, HeaderValueOption, HttpService, HttpUri, grpc_service, http_uri,
};

/// A service that a provider names, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderService {
    pub host: String,
    /// The cluster of one of its ports.
    pub cluster: String,
}

/// The service that a provider names as `namespace/host`, or as a host that only one namespace has.
#[must_use]
pub(crate) fn provider_service(cx: &Cx<'_>, service: &str, port: u32) -> Option<ProviderService> {
    let (namespace, host) = match service.split_once('/') {
        Some((namespace, host)) => (Some(Namespace::from(namespace)), host),
        None => (None, service),
    };
    let hostname = Hostname::parse(host).ok()?;
    let namespace = match namespace {
        Some(namespace) => namespace,
        None => match cx.namespaces_of(&hostname).as_slice() {
            [only] => only.clone(),
            _ => return None,
        },
    };
    let services = cx.services_of(&ServiceKey { hostname, namespace })?;
    let host = services.first()?.written_host().to_string();
    Some(ProviderService { cluster: outbound_name(port, "", &host), host })
}

/// The provider of that name, in any case.
pub(super) fn find<'a>(mesh: &'a MeshConfig, name: &str) -> Option<&'a ExtensionProvider> {
    mesh.extension_providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
}

/// A gRPC service behind a cluster.
pub(super) fn grpc(service: &ProviderService) -> GrpcService {
    let target = grpc_service::EnvoyGrpc {
        cluster_name: service.cluster.clone(),
        authority: service.host.clone(),
        ..Default::default()
    };
    GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(target)),
        ..Default::default()
    }
}

/// An HTTP service behind a cluster.
pub(super) fn http(
    service: &ProviderService,
    uri: String,
    timeout: Option<Duration>,
    headers: &[HttpHeader],
) -> HttpService {
    HttpService {
        http_uri: Some(HttpUri {
            uri,
            timeout,
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(service.cluster.clone())),
        }),
        request_headers_to_add: headers
            .iter()
            .map(|header| HeaderValueOption {
                header: Some(header_value(header)),
                append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

/// A header with a fixed value. One from the control plane's environment is empty: the environment is no input of translation.
pub(super) fn header_value(header: &HttpHeader) -> HeaderValue {
    HeaderValue {
        key: header.name.clone(),
        value: header.value.clone().unwrap_or_default(),
        ..Default::default()
    }
}
