//! Views for listeners: the facets of a proxy that they depend on.

use crate::credentials::CertificateSource;
use crate::engine::{Cx, Query};
use crate::envoy::DnsCache;
use crate::policy::attachment::Policy;
use crate::policy::destination_rule;
use crate::policy::telemetry::tracing::Tags;
use crate::proxy::selectors::Selectors;
use crate::proxy::targets::{Target, TargetsOf};
use crate::proxy::workload::{self, Identity};
use crate::proxy::{InterceptionMode, IpFamilies, Proxy, ProxyKind, WasmSupport, proxy_config};
use crate::routing::SourceLabels;
use crate::scope::{Scope, cache_of_unknown_hosts};
use crate::services::service_address::AddressView;
use pilotfish_config::extensions::{TrafficExtension, WasmPlugin};
use pilotfish_config::mesh::{ExtensionProvider, ServiceAttributeEnrichment};
use pilotfish_config::networking::Sidecar;
use pilotfish_config::security::{AuthorizationPolicy, PeerAuthentication, RequestAuthentication};
use pilotfish_config::telemetry::Telemetry;
use pilotfish_model::{Labels, Namespace, Resolution};
use std::net::IpAddr;
use std::sync::Arc;

/// Facets that every listener of a proxy depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListenerBase {
    /// Scope of the services that it sees.
    pub scope: Scope,
    pub families: IpFamilies,
    /// True if redirected connections of both families reach it.
    pub both_redirected: bool,
    /// The DNS cache for hosts without a service, if the proxy looks them up.
    pub unknown_hosts: Option<Arc<DnsCache>>,
    /// Redirection of its traffic.
    pub interception: InterceptionMode,
    /// True if it has the filters that only Istio's build of Envoy has.
    pub istio_filters: bool,
    /// The plugins that it can run.
    pub wasm: WasmSupport,
    /// Source of the workload's certificate.
    pub certificate_source: CertificateSource,
    /// True if it accepts HTTP/1.0.
    pub http10: bool,
    /// `IDLE_TIMEOUT` for connections; empty for none.
    pub idle_timeout: Arc<str>,
    /// Names of the proxy in its spans.
    pub tags: Arc<Tags>,
    /// Its labels, as far as the selector of some policy names them.
    pub labels: Labels,
    /// Its own settings, as JSON; empty for those of the mesh.
    pub proxy_config: Arc<str>,
}

/// Facets that the listeners for traffic out of a sidecar depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutboundView {
    /// Facets that all listeners depend on.
    pub base: Arc<ListenerBase>,
    /// Facets that the addresses of services depend on.
    pub addresses: AddressView,
    /// True if it may not bind ports below 1024 (`UNPRIVILEGED_POD`).
    pub unprivileged: bool,
    /// The ports that its own listeners have, sorted.
    pub reserved: Arc<[u32]>,
    /// True if it has the filter for Dubbo calls.
    pub dubbo_proxy: bool,
    /// The port of the explicit HTTP proxy (`HTTP_PROXY_PORT`); 0 for the mesh's.
    pub http_proxy_port: u32,
    /// True if connections are balanced exactly over threads.
    pub exact_balance: bool,
}

/// Facets that the listeners for traffic out of one sidecar depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnOutboundView {
    /// View that most sidecars of a namespace share.
    pub shared: Arc<OutboundView>,
    /// Its own address, where clients of a service connect to it directly.
    pub own_endpoint: Option<IpAddr>,
}

/// Facets that the listeners for traffic to a sidecar's workload depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InboundView {
    /// Facets that all listeners depend on.
    pub base: Arc<ListenerBase>,
    /// Service ports that lead to its workload.
    pub targets: Arc<[Target]>,
    /// Its address, where a Sidecar declares ports.
    pub own_address: Option<IpAddr>,
    /// True if it may not bind ports below 1024 (`UNPRIVILEGED_POD`).
    pub unprivileged: bool,
    /// The ports that its own listeners have, sorted.
    pub reserved: Arc<[u32]>,
    /// True if connections are balanced exactly over threads.
    pub exact_balance: bool,
}

impl ListenerBase {
    /// The facets of a proxy.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy, side: Side) -> Self {
        let labels = workload::labels_of(cx, proxy);
        // Nothing is captured for a router.
        let is_router = side == Side::Gateway;
        let scope = Scope::of(cx, proxy);
        let unknown_hosts =
            if side == Side::Client { cache_of_unknown_hosts(cx, &scope, proxy) } else { None };
        Self {
            scope,
            unknown_hosts,
            families: IpFamilies::of(proxy),
            both_redirected: IpFamilies::both_redirected(proxy),
            interception: if is_router { InterceptionMode::default() } else { proxy.interception },
            istio_filters: proxy.istio_filters,
            wasm: proxy.wasm,
            certificate_source: match proxy.certificate_source {
                // Listeners of routers take the agent's for granted.
                CertificateSource::Agent if is_router => CertificateSource::Nobody,
                source => source,
            },
            http10: proxy.meta("HTTP10") == "1",
            idle_timeout: proxy.meta("IDLE_TIMEOUT").into(),
            tags: Arc::new(tags(cx, proxy, &labels)),
            labels: selected_labels(cx, proxy, &labels, side),
            proxy_config: proxy_config::narrowed(&proxy.proxy_config, &USED_SETTINGS),
        }
    }
}

/// The settings of a proxy that listeners depend on.
const USED_SETTINGS: [&str; 4] = ["tracing", "gatewayTopology", "proxyHeaders", "connectionSettings"];

fn tags(cx: &Cx<'_>, proxy: &Proxy, labels: &Labels) -> Tags {
    if !*cx.get(&AnyTracing) {
        return Tags::default();
    }
    let mesh = cx.mesh();
    let has_tracer = |is: fn(&ExtensionProvider) -> bool| mesh.extension_providers.iter().any(is);
    let names_service = has_tracer(|tracer| tracer.opentelemetry.is_some() || tracer.datadog.is_some());
    let by_conventions = has_tracer(|tracer| {
        tracer.opentelemetry.as_ref().is_some_and(|otel| {
            otel.service_attribute_enrichment == ServiceAttributeEnrichment::OtelSemanticConventions
        })
    });
    let or = |text: &str, default: &str| Arc::from(if text.is_empty() { default } else { text });
    let label = |key: &str| labels.get(key).unwrap_or_default();
    Tags {
        service: or(label("service.istio.io/canonical-name"), "unknown"),
        revision: or(label("service.istio.io/canonical-revision"), "latest"),
        mesh: or(proxy.meta("MESH_ID"), "unknown"),
        cluster: or(proxy.meta("CLUSTER_ID"), "unknown"),
        namespace: or(proxy.meta("NAMESPACE"), "default"),
        service_name: if names_service { proxy.service_cluster.clone() } else { "".into() },
        workload_name: if by_conventions { workload_name(proxy) } else { "".into() },
        can_stop_propagation: *cx.get(&AnyStopsPropagation) && proxy.is_since((1, 30)),
        is_router: proxy.kind == ProxyKind::Router,
    }
}

/// The service name of a proxy's spans by OpenTelemetry's conventions for Kubernetes.
fn workload_name(proxy: &Proxy) -> Arc<str> {
    let label = |key: &str| proxy.labels.get(key).unwrap_or_default();
    let named = [
        &*proxy.span_service,
        label("app.kubernetes.io/instance"),
        label("app.kubernetes.io/name"),
        proxy.meta("WORKLOAD_NAME"),
        &proxy.name,
        proxy.meta("APP_CONTAINERS"),
    ];
    // Of several containers none is the service.
    let is_name = |name: &&str| !name.is_empty() && !name.contains(',');
    named.into_iter().find(is_name).unwrap_or("unknown_service").into()
}

/// True if some Telemetry has trace headers left alone, for which the version of a proxy counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyStopsPropagation;

impl Query for AnyStopsPropagation {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let stops = |telemetry: &Telemetry| {
            telemetry.tracing.iter().any(|tracing| tracing.disable_context_propagation == Some(true))
        };
        cx.objects::<Telemetry>().any(|telemetry| stops(&telemetry))
    }
}

/// Query: true if requests of some proxy may be traced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyTracing;

impl Query for AnyTracing {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let mesh = cx.mesh();
        mesh.enable_tracing
            || !mesh.default_providers.tracing.is_empty()
            || cx.objects::<Telemetry>().any(|telemetry| !telemetry.tracing.is_empty())
    }
}

impl OwnOutboundView {
    /// The view of a proxy.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        let base = Arc::new(ListenerBase::of(cx, proxy, Side::Client));
        let shared = Arc::new(OutboundView::of(cx, proxy, &base));
        Self { shared, own_endpoint: own_endpoint(cx, proxy) }
    }
}

impl OutboundView {
    /// The view without the names of the workload in spans.
    #[must_use]
    pub(super) fn untagged(view: &Arc<Self>) -> Arc<Self> {
        if *view.base.tags == Tags::default() {
            return view.clone();
        }
        let base = Arc::new(ListenerBase { tags: Arc::default(), ..ListenerBase::clone(&view.base) });
        Arc::new(Self { base, ..Self::clone(view) })
    }

    /// The view of a proxy.
    #[must_use]
    fn of(cx: &Cx<'_>, proxy: &Proxy, base: &Arc<ListenerBase>) -> Self {
        Self {
            base: base.clone(),
            addresses: AddressView::of(cx, proxy),
            unprivileged: proxy.meta_flag("UNPRIVILEGED_POD"),
            reserved: reserved_ports(proxy),
            dubbo_proxy: proxy.dubbo_proxy,
            http_proxy_port: port(proxy, "HTTP_PROXY_PORT").unwrap_or(0),
            exact_balance: proxy.meta_flag("OUTBOUND_LISTENER_EXACT_BALANCE"),
        }
    }
}

fn port(proxy: &Proxy, key: &str) -> Option<u32> {
    proxy.meta(key).parse().ok().filter(|port| *port > 0)
}

fn reserved_ports(proxy: &Proxy) -> Arc<[u32]> {
    let own = ["ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"];
    let mut ports: Vec<u32> = own.into_iter().filter_map(|key| port(proxy, key)).collect();
    ports.sort_unstable();
    ports.into()
}

/// The proxy's address, if a service whose clients connect to endpoints directly has an endpoint there.
fn own_endpoint(cx: &Cx<'_>, proxy: &Proxy) -> Option<IpAddr> {
    let own = *proxy.ips.first()?;
    let direct = cx.services_at(&own.to_string()).iter().any(|key| {
        cx.services_of(key).iter().flat_map(|s| s.iter()).any(|s| s.resolution == Resolution::Passthrough)
    });
    direct.then_some(own)
}

impl InboundView {
    /// The view of a proxy.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        let base = Arc::new(ListenerBase::of(cx, proxy, Side::Server));
        let ingress = base.scope.sidecar_object(cx).is_some_and(|sidecar| !sidecar.ingress.is_empty());
        let targets = cx.get(&TargetsOf(Identity::of(proxy)));
        Self {
            base,
            targets: Arc::clone(&targets),
            own_address: if ingress { proxy.ips.iter().find(|ip| is_global(ip)).copied() } else { None },
            unprivileged: proxy.meta_flag("UNPRIVILEGED_POD"),
            reserved: reserved_ports(proxy),
            exact_balance: proxy.meta_flag("INBOUND_LISTENER_EXACT_BALANCE"),
        }
    }
}

/// An address that others can reach: neither loopback, link-local, multicast nor unspecified.
fn is_global(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}

/// Side of a proxy whose policies count for its listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// A sidecar's, for traffic out of its workload.
    Client,
    /// A sidecar's, for traffic to its workload.
    Server,
    /// A router, for all of its traffic.
    Gateway,
}

/// The facet of a proxy's labels that listeners may depend on: those of the selectors of policies and of the
/// conditions of routes that hold for it.
fn selected_labels(cx: &Cx<'_>, proxy: &Proxy, labels: &Labels, side: Side) -> Labels {
    let policies = policy_labels(cx, &proxy.namespace, labels, side);
    let rules = || destination_rule::selected_labels(cx, &proxy.namespace, labels);
    let pairs = |labels: &Labels| labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
    Arc::new(match side {
        Side::Server => return policies,
        // Clients of a gateway have no labels.
        Side::Gateway => policies.with(pairs(&rules())),
        Side::Client => {
            let sources = Arc::new(cx.get(&SourceLabels::Connections).of(labels));
            policies.with(pairs(&rules())).with(pairs(&sources))
        }
    })
}

/// Those of a proxy's labels by which policies select it.
pub(super) fn policy_labels(cx: &Cx<'_>, namespace: &Namespace, labels: &Labels, side: Side) -> Labels {
    let security = side != Side::Client;
    let root: Namespace = cx.mesh().root_namespace.as_str().into();
    let of = |namespace: &Namespace| cx.get(&SelectorsIn { namespace: namespace.clone(), security });
    Arc::new(Selectors::of_all(&[of(namespace), of(&root)], labels))
}

/// Query for the selectors by which the policies of a namespace select workloads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SelectorsIn {
    namespace: Namespace,
    /// True if policies that authorize or authenticate clients count too.
    security: bool,
}

impl Query for SelectorsIn {
    type Output = Selectors;

    fn compute(&self, cx: &Cx<'_>) -> Selectors {
        fn add<T: Policy>(cx: &Cx<'_>, namespace: &Namespace, selectors: &mut Selectors) {
            cx.objects_in::<T>(namespace).iter().for_each(|policy| policy.add_to(selectors));
        }
        let mut selectors = Selectors::default();
        if self.security {
            add::<AuthorizationPolicy>(cx, &self.namespace, &mut selectors);
            add::<RequestAuthentication>(cx, &self.namespace, &mut selectors);
            add::<PeerAuthentication>(cx, &self.namespace, &mut selectors);
        }
        add::<Telemetry>(cx, &self.namespace, &mut selectors);
        add::<WasmPlugin>(cx, &self.namespace, &mut selectors);
        add::<TrafficExtension>(cx, &self.namespace, &mut selectors);
        selectors
    }
}

/// The Sidecar's declared ports, if it has any.
#[must_use]
pub(super) fn ingress_of(cx: &Cx<'_>, scope: &Scope) -> Option<pilotfish_model::Typed<Sidecar>> {
    scope.sidecar_object(cx).filter(|sidecar| !sidecar.ingress.is_empty())
}
