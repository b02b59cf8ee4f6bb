//! The facets of a proxy that its clusters may depend on.

use super::sni_dnat;
use crate::engine::{Cx, Query};
use crate::envoy::TrafficClass;
use crate::envoy_filter::{Patches, Subject};
use crate::policy::destination_rule;
use crate::proxy::locality::ProxyLocality;
use crate::proxy::targets::{Target, TargetsOf};
use crate::proxy::workload::Identity;
use crate::proxy::{InterceptionMode, IpFamilies, Proxy, ProxyKind, proxy_config};
use crate::scope::Scope;
use crate::xds::eds::ClientLocality;
use pilotfish_config::networking::IstioIngressListener;
use pilotfish_model::{Labels, Resolution};
use std::sync::Arc;

/// The facets of a proxy that its clusters may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterView {
    /// The facets for traffic out of the proxy. Proxies of different workloads share these clusters.
    pub facets: Arc<ClusterFacets>,
    /// The ports of the proxy's own workload; none where they make no clusters.
    pub targets: Arc<[Target]>,
    /// The proxy's own address, where a Sidecar sends inbound traffic to it; else empty.
    pub address: Arc<str>,
}

/// The facets of a proxy that clusters of services depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterFacets {
    /// Which services it sees.
    pub scope: Scope,
    /// The IP families of its addresses.
    pub families: IpFamilies,
    /// Whether redirected connections of both families reach it.
    pub both_redirected: bool,
    /// Whether it has the filters of Istio's own Envoy build.
    pub istio_filters: bool,
    /// Whether an agent hands out workload certificates.
    pub agent: bool,
    /// Its labels, as far as rules select by them.
    pub labels: Labels,
    /// Its locality and network, for the endpoints that clusters hold themselves; the default where no cluster does.
    pub client_locality: ClientLocality,
    /// Whether it is a gateway that routes mutual TLS by SNI without ending it (AUTO_PASSTHROUGH).
    pub by_sni: bool,
    /// The EnvoyFilter patches on its clusters.
    pub patches: Patches,
    /// Certificate files that it brings along for mutual TLS.
    pub certificates: Option<Certificates>,
    /// Whether header names are sent as they were written.
    pub preserve_case: bool,
    /// Whether it is a gRPC library that balances by open requests.
    pub least_request: bool,
}

impl ClusterFacets {
    /// The context of its clusters, but for those of inbound traffic.
    pub(super) fn context(&self) -> TrafficClass {
        match self.scope.kind {
            ProxyKind::Router => TrafficClass::Gateway,
            ProxyKind::Sidecar | ProxyKind::Grpc => TrafficClass::Outbound,
        }
    }
}

/// Paths of certificate files (`TLS_CLIENT_CERT_CHAIN`, `TLS_CLIENT_KEY`, `TLS_CLIENT_ROOT_CERT`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Certificates {
    pub chain: Arc<str>,
    pub key: Arc<str>,
    pub root: Arc<str>,
}

impl Certificates {
    fn of(proxy: &Proxy) -> Option<Self> {
        let [chain, key, root] =
            ["TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_KEY", "TLS_CLIENT_ROOT_CERT"].map(|name| proxy.meta(name));
        (!root.is_empty()).then(|| Self { chain: chain.into(), key: key.into(), root: root.into() })
    }
}

impl ClusterView {
    /// The view of a proxy; `None` when it is not served this type.
    #[allow(clippy::unnecessary_wraps, reason = "the same shape for every resource type")]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        let scope = Scope::of(cx, proxy);
        let place = ProxyLocality::of(cx, proxy);
        // gRPC clients resolve no names, have no filters, and have certificates only of their own bootstrap.
        let is_envoy = proxy.kind != ProxyKind::Grpc;
        let inline = is_envoy && *cx.get(&AnyInline);
        let facets = ClusterFacets {
            client_locality: if inline {
                ClientLocality::of(cx, proxy, &place)
            } else {
                ClientLocality::default()
            },
            families: if is_envoy { IpFamilies::of(proxy) } else { IpFamilies::V4 },
            both_redirected: is_envoy && IpFamilies::both_redirected(proxy),
            istio_filters: proxy.istio_filters && is_envoy,
            agent: proxy.agent && is_envoy,
            labels: destination_rule::selector_labels(cx, &proxy.namespace, &place.labels),
            by_sni: sni_dnat::is_used_by(cx, proxy),
            patches: match proxy.kind {
                ProxyKind::Grpc => Patches::default(),
                ProxyKind::Sidecar | ProxyKind::Router => Patches::of(cx, proxy, Subject::Cluster),
            },
            least_request: !is_envoy && !proxy.refuses_least_request,
            certificates: if is_envoy { Certificates::of(proxy) } else { None },
            preserve_case: is_envoy && preserves_case(cx, proxy),
            scope,
        };
        let sidecar = if proxy.kind == ProxyKind::Sidecar { facets.scope.sidecar_object(cx) } else { None };
        let ingress = sidecar.as_ref().map_or(&[][..], |sidecar| &sidecar.ingress);
        let targets = if has_inbound(proxy, ingress) {
            Arc::clone(&*cx.get(&TargetsOf(Identity::of(proxy))))
        } else {
            Arc::default()
        };
        Some(Self { targets, address: own_address(proxy, ingress), facets: Arc::new(facets) })
    }
}

fn preserves_case(cx: &Cx<'_>, proxy: &Proxy) -> bool {
    let config = proxy_config::of(cx, proxy);
    config.proxy_headers.as_ref().and_then(|headers| headers.preserve_http1_header_case) == Some(true)
}

/// Where nothing is captured, only what a Sidecar declares is served on the workload's ports.
fn has_inbound(proxy: &Proxy, ingress: &[IstioIngressListener]) -> bool {
    let captured = proxy.interception != InterceptionMode::None;
    proxy.kind == ProxyKind::Sidecar && (captured || !ingress.is_empty())
}

/// The address that `0.0.0.0` in a `defaultEndpoint` stands for: the first one of IPv4, else the first.
fn own_address(proxy: &Proxy, ingress: &[IstioIngressListener]) -> Arc<str> {
    let any = ["0.0.0.0:", "[::]:"];
    let is_wildcard =
        |listener: &IstioIngressListener| any.iter().any(|any| listener.default_endpoint.starts_with(any));
    let first = proxy.ips.iter().find(|ip| ip.is_ipv4()).or(proxy.ips.first());
    match first.filter(|_| ingress.iter().any(is_wildcard)) {
        Some(ip) => ip.to_string().into(),
        None => "".into(),
    }
}

/// Whether any service has clusters that hold their endpoints themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyInline;

impl Query for AnyInline {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let is_inline = |resolution| matches!(resolution, Resolution::DNSLB | Resolution::DNSRoundRobin);
        cx.services().any(|(_, services)| services.iter().any(|service| is_inline(service.resolution)))
    }
}
