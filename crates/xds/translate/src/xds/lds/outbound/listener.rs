//! Conversion of the chains of an address and port to a listener.

use super::{Builder, ListenerDraft};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::filters;
use crate::xds::lds::http_proxy::ACCEPT_AT_ONCE;
use crate::xds::lds::tcp_proxy::{Stream, TcpDestination};
use crate::xds::lds::view::OutboundView;
use crate::xds::lds::{address, overlap};
use pilotfish_model::Protocol;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{
    AdditionalAddress, FilterChain, FilterChainMatch, Listener, ListenerFilter,
};

/// Builds and encodes the listener.
pub(super) fn encode(
    cx: &Cx<'_>,
    view: &OutboundView,
    builder: &Builder<'_>,
    mut entry: ListenerDraft,
) -> EncodedResource {
    let name = address::name(entry.binds.first().map_or("", |bind| bind), entry.port);
    let mut provenance = std::mem::take(&mut entry.provenance);
    provenance.extend(builder.policies.provenance.iter().cloned());
    provenance.extend(entry.chains.iter().flat_map(|chain| chain.provenance.iter().cloned()));
    provenance.extend(cx.mesh_origin());
    let mut addresses = entry.binds.iter().map(|bind| address::of(bind, entry.port));
    // Only protocol sniffing of the first bytes may time out.
    let sniffs = entry.chains.iter().any(|chain| chain.http);
    let timeout = if sniffs { address::detection_timeout(cx) } else { Some(Duration::default()) };
    let mut listener = Listener {
        name: name.clone(),
        address: addresses.next(),
        additional_addresses: addresses
            .map(|address| AdditionalAddress { address: Some(address), ..Default::default() })
            .collect(),
        traffic_direction: TrafficDirection::Outbound.into(),
        listener_filters: inspectors(&entry),
        listener_filters_timeout: timeout,
        continue_on_listener_filters_timeout: true,
        bind_to_port: (!entry.bind_to_port).then_some(false),
        max_connections_to_accept_per_socket_event: entry.bind_to_port.then_some(ACCEPT_AT_ONCE),
        connection_balance_config: address::exact_balance(view.exact_balance),
        ..Default::default()
    };
    // Connections to a bound port have no original destination.
    let unknown = (!entry.bind_to_port).then_some(builder.passthrough.as_str());
    let chains = entry.chains.into_iter().map(|mut chain| {
        let objects = std::mem::take(&mut chain.provenance);
        (chain.build(view.base.http10, unknown), objects)
    });
    let (chains, refused) = overlap::first_wins(chains);
    (listener.filter_chains, listener.default_filter_chain) = split(chains);
    if !takes_everything(&listener) {
        listener.default_filter_chain = Some(passthrough(builder));
    }
    EncodedResource::new(name, &listener, provenance).without(refused)
}

/// A chain without conditions becomes the default filter chain, if there are others.
fn split(chains: Vec<FilterChain>) -> (Vec<FilterChain>, Option<FilterChain>) {
    if chains.len() < 2 {
        return (chains, None);
    }
    let (mut all, some): (Vec<_>, Vec<_>) =
        chains.into_iter().partition(|chain| chain.filter_chain_match.is_none());
    all.truncate(1);
    (some, all.pop())
}

fn takes_everything(listener: &Listener) -> bool {
    listener.default_filter_chain.is_some()
        || listener.filter_chains.iter().any(|chain| chain.filter_chain_match.is_none())
}

/// Returns the filter chain for traffic that no service's chain matches.
fn passthrough(builder: &Builder<'_>) -> FilterChain {
    let stream = Stream {
        destination: TcpDestination::Cluster(builder.passthrough.clone()),
        stat_prefix: builder.passthrough.clone(),
        protocol: Protocol::Tcp,
        idle_timeout: &builder.view.base.idle_timeout,
        rule: None,
        subset: "",
        access_log: &builder.policies.logs.tcp,
    };
    FilterChain {
        name: "PassthroughFilterChain".to_owned(),
        filter_chain_match: Some(FilterChainMatch::default()),
        filters: builder.policies.tcp_metrics().chain(stream.filters()).collect(),
        ..Default::default()
    }
}

/// Returns the listener filters that detect the properties by which chains are selected.
fn inspectors(entry: &ListenerDraft) -> Vec<ListenerFilter> {
    let sni = entry.chains.iter().any(super::Chain::needs_sni).then(filters::tls_inspector);
    let http = entry.chains.iter().any(|chain| chain.http).then(filters::http_inspector);
    sni.into_iter().chain(http).collect()
}
