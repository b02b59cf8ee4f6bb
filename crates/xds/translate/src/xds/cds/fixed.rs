//! The clusters that every proxy has: for traffic that no service is known for.

use super::connection_pool;
use super::draft::Draft;
use super::finish::finish;
use super::names::stat_name;
use super::tls::{self, Peer};
use super::view::{InboundClusters, ProxyFacets};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::{
    ALLOW_ANY_DYNAMIC_DNS, BLACK_HOLE, DnsCache, EXTERNAL_SECRETS, INBOUND_PASSTHROUGH, PASSTHROUGH,
    TrafficClass, duration,
};
use crate::proxy::{IpFamilies, ProxyKind};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{ClientTlsMode, ConnectionPoolSettings};
use pilotfish_model::Protocol;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{DiscoveryType, LbPolicy};
use pilotfish_proto::envoy::config::core::v3::{
    Address, BindConfig, ExtraSourceAddress, Pipe, SocketAddress, address, socket_address,
};
use pilotfish_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use pilotfish_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};

/// Source addresses that rules of iptables leave alone.
const V4_SOURCE: &str = "127.0.0.6";
const V6_SOURCE: &str = "::6";

/// Socket of the SDS server that hands out the external credentials of a router.
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

/// Idle timeout of passed-through connections, in seconds.
const IDLE_SECONDS: i64 = 300;

pub(super) fn clusters(cx: &Cx<'_>, facets: &ProxyFacets) -> Vec<EncodedResource> {
    let mesh = cx.mesh();
    let mut drafts = vec![(facets.context(), Draft::new(BLACK_HOLE.to_owned(), DiscoveryType::Static))];
    if facets.kind == ProxyKind::Sidecar {
        let mut outbound = passthrough(facets, &mesh, PASSTHROUGH);
        if facets.istio_filters {
            outbound.exchange_metadata();
        }
        let unknown_hosts = facets.unknown_hosts.as_deref().map(|cache| dynamic(facets, &mesh, cache));
        let mut inbound = passthrough(facets, &mesh, INBOUND_PASSTHROUGH);
        inbound.cluster.upstream_bind_config = Some(own_sources(facets.families));
        drafts.push((TrafficClass::Outbound, outbound));
        drafts.extend(unknown_hosts.map(|draft| (TrafficClass::Outbound, draft)));
        drafts.push((TrafficClass::Inbound, inbound));
    }
    if facets.credential_socket {
        drafts.push((facets.context(), external_secrets()));
    }
    let encode = |(context, mut draft): (TrafficClass, Draft)| {
        draft.cluster.connect_timeout = draft.cluster.connect_timeout.or(mesh.connect_timeout.map(duration));
        draft.cluster.common_lb_config = None;
        finish(cx, facets, context, draft.build(), &[], Vec::new())
    };
    drafts.into_iter().filter_map(encode).collect()
}

fn default_pool(mesh: &MeshConfig) -> Option<&ConnectionPoolSettings> {
    mesh.default_traffic_policy.as_ref()?.connection_pool.as_ref()
}

fn passthrough(facets: &ProxyFacets, mesh: &MeshConfig, name: &str) -> Draft {
    let mut draft = Draft::new(name.to_owned(), DiscoveryType::OriginalDst);
    draft.cluster.lb_policy = LbPolicy::ClusterProvided as i32;
    draft.cluster.alt_stat_name = stat_name(PASSTHROUGH);
    connection_pool::apply_to_streams(&mut draft, mesh, default_pool(mesh));
    pass_on(&mut draft, facets);
    draft
}

/// The cluster for requests to hosts that the proxy looks up.
fn dynamic(facets: &ProxyFacets, mesh: &MeshConfig, cache: &DnsCache) -> Draft {
    let mut draft = Draft::dynamic(ALLOW_ANY_DYNAMIC_DNS.to_owned(), cache.clone());
    connection_pool::apply_to_streams(&mut draft, mesh, None);
    pass_on(&mut draft, facets);
    let tls = mesh.outbound_traffic_policy.tls.as_ref();
    // Envoy wants TLS for any options, or an explicit permission.
    draft.insecure = tls.is_none_or(|tls| tls.mode == ClientTlsMode::Disable);
    tls::apply(&mut draft, facets, mesh, tls, &Peer::default());
    if facets.istio_filters {
        draft.exchange_metadata();
    }
    draft
}

/// The cluster of the SDS server at the socket beside a router.
fn external_secrets() -> Draft {
    let mut draft = Draft::new(EXTERNAL_SECRETS.to_owned(), DiscoveryType::Static);
    draft.set_http2();
    let pipe = Pipe { path: CREDENTIAL_SOCKET.to_owned(), ..Pipe::default() };
    let endpoint = Endpoint {
        address: Some(Address { address: Some(address::Address::Pipe(pipe)) }),
        ..Endpoint::default()
    };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
    draft.cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: EXTERNAL_SECRETS.to_owned(),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: vec![endpoint],
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    });
    draft
}

/// Applies the HTTP settings of clusters that pass requests on.
fn pass_on(draft: &mut Draft, facets: &ProxyFacets) {
    draft.set_protocol(Protocol::Unsupported, true, facets.preserve_case);
    let common = draft.http().common_http_protocol_options.get_or_insert_default();
    common.idle_timeout = Some(Duration { seconds: IDLE_SECONDS, nanos: 0 });
}

/// The source address of connections to the proxy's own workload: by it they are not captured again.
pub(super) fn own_source(view: &InboundClusters) -> BindConfig {
    let families = view.facets.proxy.families;
    if view.facets.proxy.both_redirected { own_sources(families) } else { first_source(families) }
}

fn first_source(families: IpFamilies) -> BindConfig {
    let source = match families {
        IpFamilies::V4 | IpFamilies::Dual => V4_SOURCE,
        IpFamilies::V6 => V6_SOURCE,
    };
    BindConfig { source_address: Some(socket(source)), ..BindConfig::default() }
}

/// Source addresses where redirected connections of both families arrive.
fn own_sources(families: IpFamilies) -> BindConfig {
    let extra = ExtraSourceAddress { address: Some(socket(V6_SOURCE)), ..ExtraSourceAddress::default() };
    let extra = (families == IpFamilies::Dual).then_some(extra);
    BindConfig { extra_source_addresses: extra.into_iter().collect(), ..first_source(families) }
}

fn socket(ip: &str) -> SocketAddress {
    SocketAddress {
        address: ip.to_owned(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(0)),
        ..SocketAddress::default()
    }
}
