//! Extension providers of the mesh settings, by name and as Envoy reaches them.

use crate::engine::Cx;
use crate::envoy::outbound_name;
use crate::scope::is_visible;
use pilotfish_config::mesh::{ExtensionProvider, HttpHeader, MeshConfig};
use pilotfish_model::{Hostname, Namespace, ServiceKey};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use pilotfish_proto::envoy::config::core::v3::{
    GrpcService, HeaderValue, HeaderValueOption, HttpService, HttpUri, grpc_service, http_uri,
};

/// The service of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderService {
    pub host: String,
    /// The cluster of one of its ports.
    pub cluster: String,
}

/// Returns the service of a provider, given as `namespace/host`, or as a host that exists in one namespace
/// only.
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
    found(cx, &ServiceKey { hostname, namespace }, port)
}

/// Returns the service of a host in a policy, for proxies of a namespace: that of the policy's own namespace,
/// or that of the root namespace, or else the only one that the policy's namespace sees. `None` if there are
/// several, or if the proxies would reach another service by that name: the author of a ServiceEntry
/// elsewhere must not control whom a policy trusts.
#[must_use]
pub(crate) fn visible_service(
    cx: &Cx<'_>,
    host: &str,
    port: u32,
    policy: &Namespace,
    proxies: &Namespace,
) -> Option<ProviderService> {
    let hostname = Hostname::parse(host).ok()?;
    let namespaces = cx.namespaces_of(&hostname);
    let key = |namespace: &Namespace| ServiceKey { hostname: hostname.clone(), namespace: namespace.clone() };
    let seen_from = |from: &Namespace| -> Option<Namespace> {
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let mut seen = namespaces.iter().filter(|namespace| is_seen(cx, &key(namespace), from));
        let preferred = [from, &root].into_iter().find(|wanted| seen.clone().any(|found| found == *wanted));
        match (preferred, seen.next(), seen.next()) {
            (Some(preferred), ..) => Some(preferred.clone()),
            (None, Some(only), None) => Some(only.clone()),
            _ => None,
        }
    };
    let namespace = seen_from(policy)?;
    let is_reached = policy == proxies || seen_from(proxies).is_some_and(|reached| reached == namespace);
    if is_reached { found(cx, &key(&namespace), port) } else { None }
}

fn is_seen(cx: &Cx<'_>, key: &ServiceKey, from: &Namespace) -> bool {
    cx.services_of(key)
        .iter()
        .flat_map(|services| services.iter())
        .any(|service| is_visible(cx, service, from))
}

fn found(cx: &Cx<'_>, key: &ServiceKey, port: u32) -> Option<ProviderService> {
    let services = cx.services_of(key)?;
    let host = services.first()?.written_host().to_string();
    Some(ProviderService { cluster: outbound_name(port, "", &host), host })
}

/// Returns the provider with that name, ignoring case.
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

/// Returns a header with a fixed value. Values from the control plane's environment are empty: the
/// environment is no input of translation.
pub(super) fn header_value(header: &HttpHeader) -> HeaderValue {
    HeaderValue {
        key: header.name.clone(),
        value: header.value.clone().unwrap_or_default(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Query;
    use crate::testing::{evaluate, service, world};
    use pilotfish_model::{ExportTo, Update};

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Found(&'static str, &'static str);

    impl Query for Found {
        type Output = bool;

        fn compute(&self, cx: &Cx<'_>) -> bool {
            visible_service(cx, "idp.example.com", 443, &self.0.into(), &self.1.into()).is_some()
        }
    }

    /// A service of that host, by its namespace and those that it is exported to.
    fn idp((namespace, export_to): &(&str, &[&str])) -> Update {
        let found = service("idp", namespace).with(|service| {
            service.hostname = Hostname::parse("idp.example.com").unwrap();
            service.export_to = ExportTo::parse(export_to.iter().copied(), &(*namespace).into());
        });
        found.update()
    }

    #[test]
    fn a_policy_trusts_its_own_namespace_then_the_root_then_the_only_one_that_it_sees() {
        for (services, policy, proxies, expected) in [
            (&[("shop", &["*"][..])][..], "shop", "shop", true),
            (&[("other", &["*"])], "shop", "shop", true),
            // Others cannot turn it off, nor take its place.
            (&[("shop", &["*"]), ("other", &["*"])], "shop", "shop", true),
            (&[("istio-system", &["*"]), ("other", &["*"])], "shop", "shop", true),
            // Nobody can tell which one is meant.
            (&[("other", &["*"]), ("third", &["*"])], "shop", "shop", false),
            // It does not see that one.
            (&[("other", &["."])], "shop", "shop", false),
            (&[("other", &["~"])], "other", "other", false),
            (&[("other", &["shop"])], "shop", "shop", true),
            (&[("other", &["*"]), ("third", &["."])], "shop", "shop", true),
            // A policy of the root namespace is for all, but a proxy that reaches something else under the
            // name cannot follow it.
            (&[("istio-system", &["*"])], "istio-system", "shop", true),
            (&[("istio-system", &["*"]), ("shop", &["."])], "istio-system", "shop", false),
            (&[("istio-system", &["."])], "istio-system", "shop", false),
            (&[], "shop", "shop", false),
        ] {
            let world = world(services.iter().map(idp));
            let found = evaluate(&world, &Found(policy, proxies));
            assert_eq!(*found, expected, "{services:?}, a policy of {policy}, proxies of {proxies}");
        }
    }

    #[test]
    fn of_two_that_proxies_may_reach_the_chosen_one_is_in_the_policy() {
        let updates = [idp(&("shop", &["*"])), idp(&("other", &["*"]))];
        let world = world(updates);
        assert!(*evaluate(&world, &Found("shop", "shop")));
        assert!(!*evaluate(&world, &Found("third", "shop")));
    }
}
