//! The view of routes: the facets of a proxy on which its routes may depend.

use crate::engine::Cx;
use crate::policy::destination_rule::selected_labels;
use crate::proxy::{IpFamilies, Proxy, ProxyKind, proxy_config, workload};
use crate::routing::gateway::RouterGateways;
use crate::routing::{MESH, SourceLabels};
use crate::scope::Scope;
use crate::services::service_address::{AddressView, Automatic};
use pilotfish_model::Labels;
use std::sync::Arc;

/// The facets of a proxy that its route configurations may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteView {
    /// The facets of the client that the routes themselves depend on.
    pub facets: RouteFacets,
    /// The domain in which it completes short names.
    pub dns_domain: Arc<str>,
    pub addresses: AddressView,
    /// True if requests carry their attempt number (`x-envoy-attempt-count`).
    pub attempt_count: bool,
    /// The gateways of a router.
    pub gateways: RouterGateways,
}

/// Inputs of the routes themselves, apart from the domains of their virtual hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RouteFacets {
    pub scope: Scope,
    /// The labels that some rule matches.
    pub labels: Labels,
    /// True if a host rewrite keeps the original host in a header.
    pub forwarded_host: bool,
}

impl RouteView {
    /// The view of a proxy; every kind of client is served routes.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        let scope = Scope::of(cx, proxy);
        let config = proxy_config::of(cx, proxy);
        let headers = config.proxy_headers.as_ref();
        let disabled = headers.and_then(|headers| headers.attempt_count.as_ref()?.disabled);
        let forwarded_host = headers.and_then(|headers| headers.x_forwarded_host.as_ref()?.enabled);
        Some(Self {
            facets: RouteFacets {
                labels: labels(cx, proxy, &scope),
                forwarded_host: forwarded_host.unwrap_or(false),
                scope,
            },
            dns_domain: if proxy.kind == ProxyKind::Router { "".into() } else { proxy.dns_domain.clone() },
            addresses: addresses(cx, proxy),
            attempt_count: !disabled.unwrap_or(false),
            gateways: match proxy.kind {
                ProxyKind::Router => RouterGateways::of(cx, proxy),
                ProxyKind::Sidecar | ProxyKind::Grpc => RouterGateways::default(),
            },
        })
    }
}

/// A router's hosts are those of its gateways, without addresses of services.
fn addresses(cx: &Cx<'_>, proxy: &Proxy) -> AddressView {
    match proxy.kind {
        ProxyKind::Sidecar | ProxyKind::Grpc => AddressView::of(cx, proxy),
        ProxyKind::Router => AddressView {
            cluster: None,
            families: IpFamilies::V4,
            both_redirected: false,
            automatic: Automatic::No,
        },
    }
}

/// Returns the labels that VirtualServices match in their source, and by which DestinationRules select
/// clients.
fn labels(cx: &Cx<'_>, proxy: &Proxy, scope: &Scope) -> Labels {
    let all = workload::labels_of(cx, proxy);
    let by_rules = selected_labels(cx, &scope.namespace, &all);
    let by_rules = by_rules.iter().map(|(key, value)| (key.clone(), value.clone()));
    Arc::new(cx.get(&SourceLabels::Requests).of(&all).with(by_rules))
}

/// The gateway of all sidecars, `mesh`.
pub(super) fn mesh_gateway() -> Arc<[Arc<str>]> {
    Arc::from([Arc::from(MESH)])
}
