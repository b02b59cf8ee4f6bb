//! Parts of a proxy's clusters, and the facets of the proxy on which each part may depend.

use super::sni_dnat;
use crate::credentials::CertificateSource;
use crate::engine::{ByContent, Cx, Query};
use crate::envoy::{DnsCache, TrafficClass};
use crate::envoy_filter::{Patches, Subject};
use crate::policy::destination_rule;
use crate::proxy::locality::ProxyLocality;
use crate::proxy::targets::{Target, TargetsOf};
use crate::proxy::workload::Identity;
use crate::proxy::{InterceptionMode, IpFamilies, Proxy, ProxyKind, proxy_config};
use crate::scope::{Scope, ServicesOf, cache_of_unknown_hosts};
use crate::xds::eds::ClientLocality;
use pilotfish_config::networking::IstioIngressListener;
use pilotfish_model::{Labels, Resolution, Service};
use std::sync::Arc;

/// A part of a proxy's clusters, with the facets that this part may depend on. Proxies of different workloads
/// differ in the clusters of their own ports and share the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClusterView {
    /// The clusters of the ports of the proxy's own workload.
    Inbound(Arc<InboundClusters>),
    /// Clusters of services that depend on additional facets of the client: see [`ClientClusters`].
    Client(Arc<ClientClusters>),
    /// The clusters of all other services, those of every proxy, and those that patches add.
    Outbound(Arc<ClusterFacets>),
    /// The clusters of a gRPC client, which subscribes to them by name.
    Grpc(Arc<GrpcClusters>),
}

/// Inputs of the clusters for the proxy's own ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InboundClusters {
    pub facets: Arc<ClusterFacets>,
    /// The ports of the proxy's own workload.
    pub targets: Arc<[Target]>,
    /// The proxy's own address, where a Sidecar sends inbound traffic to it; else empty.
    pub address: Arc<str>,
}

/// Inputs of the clusters that contain their endpoints, and of those with rules that select clients by label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientClusters {
    pub facets: Arc<ClusterFacets>,
    /// The labels of the proxy that rules match.
    pub labels: Labels,
    /// Locality and network, for endpoints within clusters; the default if no cluster contains endpoints.
    pub client_locality: ByContent<ClientLocality>,
}

/// Inputs of the clusters of a gRPC client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GrpcClusters {
    pub scope: Scope,
    /// The labels of the client that rules match.
    pub labels: Labels,
    /// True if the client balances by open requests (least request).
    pub least_request: bool,
}

/// The facets of a proxy that all of its clusters may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterFacets {
    pub scope: Scope,
    pub proxy: Arc<ProxyFacets>,
}

/// The facets of a proxy on which a cluster depends, for a given service and rule. They are equal for proxies
/// of many namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProxyFacets {
    /// The kind of the proxy.
    pub kind: ProxyKind,
    /// The IP families of its addresses.
    pub families: IpFamilies,
    /// True if redirected connections of both IP families reach it.
    pub both_redirected: bool,
    /// The DNS cache for hosts without a service, if the proxy looks them up.
    pub unknown_hosts: Option<Arc<DnsCache>>,
    /// True if the proxy has the filters of Istio's Envoy build.
    pub istio_filters: bool,
    /// Source of the workload's certificate.
    pub certificate_source: CertificateSource,
    /// True if it is a router with an SDS server at a socket beside it.
    pub credential_socket: bool,
    /// True if it is a gateway that routes mutual TLS by SNI without terminating it (AUTO_PASSTHROUGH).
    pub by_sni: bool,
    /// The EnvoyFilter patches on its clusters.
    pub patches: Patches,
    /// Client certificate files for mutual TLS.
    pub certificates: Option<Certificates>,
    /// True if the case of header names is preserved.
    pub preserve_case: bool,
}

impl ProxyFacets {
    /// The traffic class of its clusters, except those for inbound traffic.
    pub(super) fn context(&self) -> TrafficClass {
        match self.kind {
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
    /// Returns the parts of a proxy's clusters: its own first, the most widely shared last.
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Vec<Self> {
        let scope = Scope::of(cx, proxy);
        let place = ProxyLocality::of(cx, proxy);
        let labels = destination_rule::selected_labels(cx, &proxy.namespace, &place.labels);
        if proxy.kind == ProxyKind::Grpc {
            let least_request = !proxy.refuses_least_request;
            return vec![Self::Grpc(Arc::new(GrpcClusters { scope, labels, least_request }))];
        }
        let facets = Arc::new(ClusterFacets { proxy: Arc::new(ProxyFacets::of(cx, &scope, proxy)), scope });
        let inbound = InboundClusters::of(cx, proxy, &facets).map(|view| Self::Inbound(Arc::new(view)));
        let client = (*cx.get(&AnyClientService(facets.scope.clone()))).then(|| {
            let inline = *cx.get(&AnyInline);
            let client_locality = if inline {
                cx.shared().by_content(ClientLocality::of(cx, proxy, &place))
            } else {
                ClientLocality::anywhere().clone()
            };
            Self::Client(Arc::new(ClientClusters { facets: facets.clone(), labels, client_locality }))
        });
        inbound.into_iter().chain(client).chain([Self::Outbound(facets)]).collect()
    }
}

impl ProxyFacets {
    fn of(cx: &Cx<'_>, scope: &Scope, proxy: &Proxy) -> Self {
        Self {
            kind: proxy.kind,
            families: IpFamilies::of(proxy),
            both_redirected: IpFamilies::both_redirected(proxy),
            unknown_hosts: cache_of_unknown_hosts(cx, scope, proxy),
            istio_filters: proxy.istio_filters,
            certificate_source: proxy.certificate_source,
            credential_socket: proxy.kind == ProxyKind::Router && proxy.has_credential_socket(),
            by_sni: sni_dnat::is_used_by(cx, proxy),
            patches: Patches::of(cx, proxy, Subject::Cluster),
            certificates: Certificates::of(proxy),
            preserve_case: preserves_case(cx, proxy),
        }
    }
}

impl InboundClusters {
    /// `None` where the proxy has no clusters for its own ports.
    fn of(cx: &Cx<'_>, proxy: &Proxy, facets: &Arc<ClusterFacets>) -> Option<Self> {
        if proxy.kind != ProxyKind::Sidecar {
            return None;
        }
        let sidecar = facets.scope.sidecar_object(cx);
        let ingress = sidecar.as_ref().map_or(&[][..], |sidecar| &sidecar.ingress);
        // If nothing is captured, the workload's ports serve only what a Sidecar declares.
        let captured = proxy.interception != InterceptionMode::None;
        if !captured && ingress.is_empty() {
            return None;
        }
        Some(Self {
            facets: facets.clone(),
            targets: Arc::clone(&*cx.get(&TargetsOf(Identity::of(proxy)))),
            address: own_address(proxy, ingress),
        })
    }
}

fn preserves_case(cx: &Cx<'_>, proxy: &Proxy) -> bool {
    let config = proxy_config::of(cx, proxy);
    config.proxy_headers.as_ref().and_then(|headers| headers.preserve_http1_header_case) == Some(true)
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

/// Returns true if the clusters of a service contain their endpoints, for Envoy to resolve by DNS.
fn is_inline(service: &Service) -> bool {
    matches!(service.resolution, Resolution::DNSLB | Resolution::DNSRoundRobin)
}

/// True if any service has clusters that contain their endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyInline;

impl Query for AnyInline {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        cx.services().any(|(_, services)| services.iter().any(|service| is_inline(service)))
    }
}

/// Returns true if the clusters of a service depend on more facets of the client than [`ClusterFacets`].
pub(super) fn depends_on_client(cx: &Cx<'_>, scope: &Scope, service: &Service) -> bool {
    is_inline(service) || destination_rule::any_selects_clients(cx, &scope.namespace, &service.hostname)
}

/// True if a scope has services whose clusters depend on more facets of the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyClientService(Scope);

impl Query for AnyClientService {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let services = cx.get(&ServicesOf(self.0.clone()));
        services.list.iter().any(|service| depends_on_client(cx, &self.0, service))
    }
}
