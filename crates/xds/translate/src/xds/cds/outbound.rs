//! The clusters of one service: for each port one, and one for each subset.

use super::draft::{self, Draft};
use super::finish::finish;
use super::names::stat_name;
use super::tls::{self, Peer};
use super::view::{ClusterFacets, ProxyFacets};
use super::{connection_pool, load_balancer, outlier_detection, proxy_protocol};
use crate::engine::{ByContent, Cx, EncodedResource, Query, Refusal, ResourceBatch, Shared};
use crate::envoy::metadata::{config_path, flag, list, text};
use crate::envoy::stat_name::Names;
use crate::envoy::{DnsCache, duration, outbound_name, sni_name};
use crate::policy::destination_rule::{MergedDestinationRule, Policy, destination_rule_for};
use crate::policy::peer_authentication::{MtlsMode, StatedMtlsOf};
use crate::proxy::{IpFamilies, ProxyKind};
use crate::scope::ServiceIn;
use crate::services::client_endpoints::{client_endpoints, client_identities};
use crate::xds::eds::{ClientLocality, inline_endpoints};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{ClientTlsMode, SimpleLb, Subset, TrafficPolicy};
use pilotfish_model::{
    Endpoint, Kind, Labels, ObjectKey, Origin, Port, PortId, Resolution, Service, ServiceKey, TlsMode,
};
use pilotfish_proto::Duration;
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{DiscoveryType, DnsLookupFamily};
use pilotfish_proto::envoy::config::core::v3::{HealthStatus, HealthStatusSet, TypedExtensionConfig};
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pilotfish_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Service labels: clients stay with the endpoint that they were on, by a cookie or by a header.
const PERSISTENT_SESSION: [&str; 2] = ["istio.io/persistent-session", "istio.io/persistent-session-header"];
/// DNS answers of clusters are refreshed a little apart from each other.
const DNS_JITTER: Duration = Duration { seconds: 0, nanos: 100_000_000 };
/// Questions over one UDP channel: c-ares leaks ports without a limit.
const UDP_MAX_QUERIES: u32 = 100;

/// The clusters of a service as a client sees it; none when it does not.
pub(super) fn clusters(
    cx: &Cx<'_>,
    facets: &ClusterFacets,
    labels: &Labels,
    client_locality: &ByContent<ClientLocality>,
    key: &ServiceKey,
) -> ResourceBatch {
    let service = cx.get(&ServiceIn(facets.scope.clone(), key.hostname.clone()));
    let Some(service) = Option::as_ref(&service).filter(|service| service.namespace == key.namespace) else {
        return ResourceBatch::default();
    };
    let rule = destination_rule_for(cx, &facets.scope.namespace, key, labels);
    let query = ServiceClusters {
        proxy: facets.proxy.clone(),
        service: ByContent::new(service.clone(), key),
        rule: rule.map(|rule| {
            let identity = (rule.namespace.clone(), rule.name.clone());
            ByContent::new(rule, &identity)
        }),
        client_locality: client_locality.clone(),
    };
    ResourceBatch::clone(&cx.get(&query))
}

/// True if [`clusters`] has the one of a port and a subset, for clients of that kind with that rule.
pub(crate) fn has_cluster(
    cx: &Cx<'_>,
    kind: ProxyKind,
    service: &Service,
    rule: Option<&MergedDestinationRule>,
    (port, subset): (u32, &str),
) -> bool {
    let Some(port) = service.port(PortId::tcp(port)) else { return false };
    if rule.is_some_and(|rule| rule.closes(subset, port.number)) {
        return false;
    }
    if draft::is_dynamic(service, port) {
        return subset.is_empty();
    }
    let found = rule.and_then(|rule| rule.subset(subset));
    let Some(discovery) = draft::discovery(service, kind == ProxyKind::Router) else { return false };
    if found.is_none() && !subset.is_empty() {
        return false;
    }
    let passes = is_passthrough(found.and_then(|subset| subset.traffic_policy.as_ref()))
        || found.is_some() && default_passes(rule.and_then(|rule| rule.policy.as_ref()), port);
    let is_dns = matches!(discovery, DiscoveryType::StrictDns | DiscoveryType::LogicalDns);
    let has_endpoints = |subset: &str| {
        let anywhere = ClientLocality::anywhere();
        !inline_endpoints(cx, service, port.number, subset, rule, anywhere).0.is_empty()
    };
    // Where the default cluster cannot be made, there are none of subsets.
    !is_dns || has_endpoints("") && (passes || subset.is_empty() || has_endpoints(subset))
}

/// The clusters of a service by the rule for it, for all proxies that are equal as clients: whichever scopes
/// they see it by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceClusters {
    pub(super) proxy: Arc<ProxyFacets>,
    pub(super) service: ByContent<Service>,
    pub(super) rule: Option<ByContent<MergedDestinationRule>>,
    pub(super) client_locality: ByContent<ClientLocality>,
}

impl Query for ServiceClusters {
    type Output = ResourceBatch;

    fn compute(&self, cx: &Cx<'_>) -> ResourceBatch {
        let context = ServiceClusterBuilder::of(cx, self);
        let ports = || context.service.tcp_ports();
        let by_sni = self.proxy.by_sni && !context.service.mesh_external;
        let modes: &[Mode] = if by_sni { &[Mode::Plain, Mode::BySni] } else { &[Mode::Plain] };
        let mut budget = ClusterBudget::new(ports().count() * modes.len());
        let mut clusters: Vec<EncodedResource> = Vec::new();
        for mode in modes {
            ports().for_each(|port| context.add_clusters(port, *mode, &mut budget, &mut clusters));
        }
        let refused = budget.refused(&context.provenance());
        let mut clusters = clusters.into_iter();
        let first = clusters.next().map(|first| first.without(refused));
        first.into_iter().chain(clusters).collect::<Vec<_>>().into()
    }

    fn share(batch: ResourceBatch, shared: &Shared) -> ResourceBatch {
        shared.batch(batch)
    }
}

/// The most clusters of one service (limit `service-clusters`): subsets beyond it have none, so requests to
/// them fail.
pub(crate) const MAX_SERVICE_CLUSTERS: usize = 10_000;
/// The most bytes of them (limit `service-clusters-bytes`).
pub(crate) const MAX_SERVICE_CLUSTERS_BYTES: usize = 64 << 20;

/// Remaining number and bytes of clusters of a service.
struct ClusterBudget {
    /// Subsets that each port may have.
    subsets: usize,
    bytes: usize,
    too_many: bool,
}

impl ClusterBudget {
    /// For a service with clusters for so many ports.
    fn new(ports: usize) -> Self {
        let each = MAX_SERVICE_CLUSTERS / ports.max(1);
        Self { subsets: each.saturating_sub(1), bytes: MAX_SERVICE_CLUSTERS_BYTES, too_many: false }
    }

    fn has_bytes(&self) -> bool {
        self.bytes > 0
    }

    fn has_subset(&mut self, position: usize) -> bool {
        self.too_many |= position >= self.subsets;
        position < self.subsets && self.has_bytes()
    }

    fn taken(&mut self, cluster: Option<EncodedResource>) -> Option<EncodedResource> {
        self.bytes = self.bytes.saturating_sub(cluster.as_ref().map_or(0, |cluster| cluster.body.len()));
        cluster
    }

    /// Refusals for objects whose clusters would exceed a limit.
    fn refused(&self, objects: &[Origin]) -> Vec<Refusal> {
        let limit = match (self.too_many, self.has_bytes()) {
            (true, _) => format!("{MAX_SERVICE_CLUSTERS} clusters (limit service-clusters)"),
            (false, false) => {
                format!("{MAX_SERVICE_CLUSTERS_BYTES} bytes of clusters (limit service-clusters-bytes)")
            }
            (false, true) => return Vec::new(),
        };
        let fault =
            format!("its ports and subsets would make more than {limit}: requests to those beyond it fail");
        let refusal =
            |object: &Origin| Refusal { object: object.clone(), field: String::new(), fault: fault.clone() };
        objects.iter().map(refusal).collect()
    }
}

/// Kind of a cluster, by how requests select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Selected by the routes of proxies.
    Plain,
    /// By the SNI of mutual TLS that passes through: the client's TLS reaches the endpoint, so there is none
    /// of our own.
    BySni,
}

/// Builder of a service's clusters, with the values that all of them share.
struct ServiceClusterBuilder<'a> {
    cx: &'a Cx<'a>,
    proxy: &'a ProxyFacets,
    client_locality: &'a ClientLocality,
    mesh: Arc<MeshConfig>,
    mesh_origin: Option<Origin>,
    key: ServiceKey,
    service: &'a Service,
    rule: Option<&'a MergedDestinationRule>,
    accounts: Vec<String>,
}

/// Port, subset and mode of one cluster of a service.
struct ClusterVariant<'a> {
    mode: Mode,
    port: &'a Port,
    subset: Option<&'a Subset>,
    policy: Policy<'a>,
}

impl ClusterVariant<'_> {
    fn subset_name(&self) -> &str {
        self.subset.map_or("", |subset| &subset.name)
    }
}

impl<'a> ServiceClusterBuilder<'a> {
    fn of(cx: &'a Cx<'a>, query: &'a ServiceClusters) -> Self {
        let service: &Service = query.service.get();
        let key = service.key();
        let mesh = cx.mesh();
        Self {
            cx,
            proxy: &query.proxy,
            client_locality: &query.client_locality,
            rule: query.rule.as_ref().map(|rule| &**rule.get()),
            accounts: accounts(cx, &mesh, service, &key),
            mesh_origin: cx.mesh_origin(),
            key,
            service,
            mesh,
        }
    }

    /// Adds the clusters of a port. Where the default one cannot be made, there are none: requests fail.
    fn add_clusters(
        &self,
        port: &Port,
        mode: Mode,
        budget: &mut ClusterBudget,
        clusters: &mut Vec<EncodedResource>,
    ) {
        let rule = self.rule;
        if rule.is_some_and(|rule| rule.closed) || !budget.has_bytes() {
            return;
        }
        let of_mesh = self.mesh.default_traffic_policy.as_ref();
        let policy = rule.map_or_else(Policy::default, |rule| rule.policy(port.number)).over_mesh(of_mesh);
        let default = self.cluster(&ClusterVariant { mode, port, subset: None, policy });
        let Some(default) = default else { return };
        if !policy.is_closed() {
            clusters.extend(budget.taken(self.finished(default)));
        }
        let subsets = rule.into_iter().flat_map(|rule| rule.subsets.iter().map(move |subset| (rule, subset)));
        for (position, (rule, subset)) in subsets.enumerate() {
            if !budget.has_subset(position) {
                return;
            }
            let policy = rule.subset_policy_over_mesh(subset, port.number, of_mesh);
            if policy.is_closed() {
                continue;
            }
            let made = self.cluster(&ClusterVariant { mode, port, subset: Some(subset), policy });
            clusters.extend(budget.taken(made.and_then(|made| self.finished(made))));
        }
    }

    fn cluster(&self, variant: &ClusterVariant<'_>) -> Option<(Cluster, Vec<Origin>)> {
        let (port, subset) = (variant.port.number, variant.subset_name());
        let name = match variant.mode {
            Mode::Plain => outbound_name(port, subset, self.service.written_host()),
            // Envoy has the SNI of a connection in small letters.
            Mode::BySni => sni_name(port, subset, self.key.hostname.as_str()),
        };
        let mut draft = self.draft(name, variant)?;
        let mut provenance = self.provenance();
        provenance.extend(self.discover(&mut draft, variant)?);
        if variant.policy.tls.is_none() {
            provenance.extend(self.policies_against_mtls());
        }
        let sniffs = self.proxy.kind != ProxyKind::Router;
        draft.set_protocol(variant.port.protocol, sniffs, self.proxy.preserve_case);
        self.name(&mut draft, variant);
        self.apply_policy(&mut draft, variant);
        draft.set_eds();
        if self.proxy.istio_filters {
            draft.exchange_metadata();
        }
        self.describe(&mut draft, variant);
        Some((draft.build(), provenance))
    }

    fn finished(&self, (cluster, provenance): (Cluster, Vec<Origin>)) -> Option<EncodedResource> {
        finish(self.cx, self.proxy, self.proxy.context(), cluster, &[], provenance)
    }

    /// Returns the draft of a cluster. Clusters of resolution `DYNAMIC_DNS` have no subsets.
    fn draft(&self, name: String, variant: &ClusterVariant<'_>) -> Option<Draft> {
        if !draft::is_dynamic(self.service, variant.port) {
            return Some(Draft::new(name, self.kind(variant)?));
        }
        let (families, both) = (self.proxy.families, self.proxy.both_redirected);
        let cache = DnsCache::of_host(self.service.written_host(), families, both);
        let is_default = variant.mode == Mode::Plain && variant.subset.is_none();
        is_default.then(|| Draft::dynamic(name, cache))
    }

    /// Discovery type of a cluster. A subset with PASSTHROUGH has no endpoints of its own.
    fn kind(&self, variant: &ClusterVariant<'_>) -> Option<DiscoveryType> {
        let kind = draft::discovery(self.service, self.proxy.kind == ProxyKind::Router)?;
        let own = variant.subset.and_then(|subset| subset.traffic_policy.as_ref());
        let default = variant.subset.and(self.rule).and_then(|rule| rule.policy.as_ref());
        // A subset starts from what the policy of the host made of the default cluster.
        let passthrough =
            is_passthrough(own) || variant.subset.is_some() && default_passes(default, variant.port);
        Some(if passthrough { DiscoveryType::OriginalDst } else { kind })
    }

    /// Sets the source of endpoints; returns the objects that made inline ones. `None` for a DNS cluster
    /// without endpoints.
    fn discover(&self, draft: &mut Draft, variant: &ClusterVariant<'_>) -> Option<Vec<Origin>> {
        if draft.is_dynamic() {
            return Some(Vec::new());
        }
        match draft.kind()? {
            DiscoveryType::StrictDns | DiscoveryType::LogicalDns => {
                self.set_dns(draft);
                let (endpoints, provenance) = inline_endpoints(
                    self.cx,
                    self.service,
                    variant.port.number,
                    variant.subset_name(),
                    self.rule,
                    self.client_locality,
                );
                if endpoints.is_empty() {
                    return None;
                }
                draft.cluster.load_assignment = Some(ClusterLoadAssignment {
                    cluster_name: draft.cluster.name.clone(),
                    endpoints,
                    ..ClusterLoadAssignment::default()
                });
                Some(provenance)
            }
            DiscoveryType::OriginalDst => {
                draft.cluster.lb_config = draft::port_override(self.service, variant.port);
                Some(Vec::new())
            }
            DiscoveryType::Eds | DiscoveryType::Static => Some(Vec::new()),
        }
    }

    #[allow(
        deprecated,
        reason = "the fields that Istio writes; the newer cluster type is not in older Envoys"
    )]
    fn set_dns(&self, draft: &mut Draft) {
        let family = match self.proxy.families {
            IpFamilies::V4 => DnsLookupFamily::V4Only,
            IpFamilies::V6 => DnsLookupFamily::V6Only,
            IpFamilies::Dual => DnsLookupFamily::All,
        };
        // Racing for the first connection needs all addresses.
        let family = if self.service.race_first_tcp_connect { DnsLookupFamily::All } else { family };
        let resolver = CaresDnsResolverConfig {
            udp_max_queries: Some(UDP_MAX_QUERIES),
            ..CaresDnsResolverConfig::default()
        };
        let cluster = &mut draft.cluster;
        cluster.dns_lookup_family = family as i32;
        cluster.dns_refresh_rate = self.mesh.dns_refresh_rate.map(duration);
        cluster.dns_jitter = Some(DNS_JITTER);
        cluster.respect_dns_ttl = true;
        cluster.typed_dns_resolver_config = Some(TypedExtensionConfig {
            name: "envoy.network.dns_resolver.cares".to_owned(),
            typed_config: config_any(&resolver),
        });
    }

    /// The name in statistics.
    fn name(&self, draft: &mut Draft, variant: &ClusterVariant<'_>) {
        let template = &self.mesh.outbound_cluster_stat_name;
        if !template.is_empty() {
            let service = self.service;
            let names = Names {
                host: self.service.written_host(),
                service: Some((&service.name, &service.namespace, service.has_short_name)),
                subset: variant.subset_name(),
                port: variant.port.number,
                port_name: &variant.port.name,
                target_port: 0,
            };
            draft.cluster.alt_stat_name = stat_name(&crate::envoy::stat_name::of(template, "", &names));
        }
    }

    fn apply_policy(&self, draft: &mut Draft, variant: &ClusterVariant<'_>) {
        let ClusterVariant { port, policy, .. } = variant;
        connection_pool::apply_h2_upgrade(draft, &self.mesh, port, policy.connection_pool);
        connection_pool::apply(draft, &self.mesh, policy.connection_pool, policy.retry_budget);
        outlier_detection::apply(draft, policy.outlier_detection);
        if !draft.is_dynamic() {
            let switches = self.cx.switches();
            load_balancer::apply(draft, &self.mesh, switches, self.service, policy.load_balancer);
        }
        if variant.mode == Mode::BySni {
            return;
        }
        let own_name = || sni_name(port.number, variant.subset_name(), self.service.written_host());
        let peer = Peer {
            accounts: &self.accounts,
            sni: if draft.is_dynamic() { String::new() } else { own_name() },
            auto_mtls: self.auto_mtls(variant),
            accounts_for_tls: self.service.names_for_tls,
            rule_selects: self.rule.is_some_and(|rule| rule.selector.is_some()),
        };
        tls::apply(draft, self.proxy, &self.mesh, policy.tls, &peer);
        proxy_protocol::apply(draft, policy.proxy_protocol);
    }

    /// True if the mesh's mutual TLS is used without a rule (auto mTLS): not without certificates, not
    /// outside the mesh, not in a namespace that disables it, and not if some endpoints of connections that
    /// are passed on do not support it.
    fn auto_mtls(&self, variant: &ClusterVariant<'_>) -> bool {
        let has_certificate = self.proxy.certificate_source.is_some();
        if !has_certificate || self.service.mesh_external || self.mesh.enable_auto_mtls == Some(false) {
            return false;
        }
        let stated = match variant.subset {
            Some(subset) => subset.traffic_policy.as_ref(),
            None => self.rule.and_then(|rule| rule.policy.as_ref()),
        };
        let passes = self.service.resolution == Resolution::Passthrough || is_passthrough(stated);
        let query = AllSpeakMtls {
            service: self.key.clone(),
            port: variant.port.name.clone(),
            entries: self.service.entries.clone(),
        };
        if passes && !*self.cx.get(&query) {
            return false;
        }
        self.policies_against_mtls().is_empty()
    }

    /// The policies by which the whole namespace of the service does without mutual TLS; none where it does
    /// not.
    fn policies_against_mtls(&self) -> Vec<Origin> {
        let stated = self.cx.get(&StatedMtlsOf(self.service.namespace.clone()));
        if stated.mode == Some(MtlsMode::Disable) { stated.provenance.clone() } else { Vec::new() }
    }

    /// Metadata, and what else telemetry and sessions need.
    fn describe(&self, draft: &mut Draft, variant: &ClusterVariant<'_>) {
        let service = self.service;
        if !draft.is_dynamic() {
            let described =
                draft::service_metadata(service.written_host(), &service.name, service.namespace.as_str());
            draft.set_istio("services", list(vec![described]));
        }
        if let Some(rule) = self.rule {
            let key = ObjectKey::new(Kind::DestinationRule, rule.namespace.clone(), rule.name.clone());
            draft.set_istio("config", text(&config_path(&key)));
            let mode = variant.policy.tls.map(|tls| tls.mode);
            if matches!(mode, Some(ClientTlsMode::Simple | ClientTlsMode::Mutual)) {
                draft.set_istio("alpn_override", text("false"));
            }
        }
        if variant.subset.is_some() {
            draft.set_istio("subset", text(variant.subset_name()));
            return;
        }
        if variant.mode == Mode::BySni {
            return;
        }
        if service.mesh_external {
            draft.set_istio("external", flag(true));
        }
        let has_label = |label: &&str| service.labels.get(label).is_some_and(|name| !name.is_empty());
        if !draft.is_dynamic() && PERSISTENT_SESSION.iter().any(has_label) {
            draft.common_lb().override_host_status = Some(session_statuses());
        }
    }

    fn provenance(&self) -> Vec<Origin> {
        let rule = self.rule.iter().flat_map(|rule| rule.provenance.iter().cloned());
        std::iter::once(self.service.provenance.clone()).chain(rule).chain(self.mesh_origin.clone()).collect()
    }
}

/// Health statuses of endpoints that keep their sessions: draining ones too.
fn session_statuses() -> HealthStatusSet {
    let statuses =
        [HealthStatus::Healthy, HealthStatus::Draining, HealthStatus::Unknown, HealthStatus::Degraded];
    HealthStatusSet { statuses: statuses.map(|status| status as i32).to_vec() }
}

fn default_passes(policy: Option<&TrafficPolicy>, port: &Port) -> bool {
    let balancer = policy.and_then(|policy| Policy::of(policy, port.number).load_balancer);
    balancer.is_some_and(|balancer| balancer.simple == Some(SimpleLb::Passthrough))
}

fn is_passthrough(policy: Option<&TrafficPolicy>) -> bool {
    let balancer = policy.and_then(|policy| policy.load_balancer.as_ref());
    balancer.is_some_and(|balancer| balancer.simple == Some(SimpleLb::Passthrough))
}

/// The identities of a service: those of its endpoints and its own, in the trust domain and its aliases.
pub(super) fn accounts(cx: &Cx<'_>, mesh: &MeshConfig, service: &Service, key: &ServiceKey) -> Vec<String> {
    let mut all: BTreeSet<String> = service.service_accounts.iter().map(ToString::to_string).collect();
    if service.entries.is_empty() {
        all.extend(client_identities(cx, key).iter().map(ToString::to_string));
    } else if let Some(endpoints) = cx.endpoints_of(key) {
        let own = endpoints.iter().filter(|endpoint| service.has_endpoint(endpoint));
        all.extend(own.filter_map(|endpoint| Some(endpoint.attributes.identity.as_ref()?.to_string())));
    }
    let paths: Vec<String> = all.iter().filter_map(|identity| spiffe_path(identity)).collect();
    for alias in &mesh.trust_domain_aliases {
        all.extend(paths.iter().map(|path| format!("spiffe://{alias}/{path}")));
    }
    all.into_iter().collect()
}

/// The part of a SPIFFE identity after the trust domain.
fn spiffe_path(identity: &str) -> Option<String> {
    let (_, path) = identity.strip_prefix("spiffe://")?.split_once('/')?;
    Some(path.to_owned())
}

/// Query: true if a port has endpoints and all of them speak mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllSpeakMtls {
    service: ServiceKey,
    /// The name of the port.
    port: Arc<str>,
    /// The ServiceEntries whose endpoints count, where that makes a difference.
    entries: BTreeSet<Arc<str>>,
}

impl Query for AllSpeakMtls {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let Some(endpoints) = client_endpoints(cx, &self.service) else { return false };
        let counts =
            |endpoint: &&Arc<Endpoint>| endpoint.service_port == self.port && endpoint.is_of(&self.entries);
        let mut of_port = endpoints.iter().filter(counts).peekable();
        of_port.peek().is_some() && of_port.all(|endpoint| endpoint.attributes.tls_mode == TlsMode::Istio)
    }
}
