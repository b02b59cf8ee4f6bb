//! Filter chains of an inlet.

use super::inlet::Inlet;
use super::matches::{self, Match};
use super::{Builder, NAME, route};
use crate::envoy::stat_name::{self, Names};
use crate::envoy::{ListenerClass, filters};
use crate::policy::peer_authentication::MtlsMode;
use crate::xds::lds::address;
use crate::xds::lds::connection_manager::Manager;
use crate::xds::lds::tcp_proxy::{Stream, To};
use crate::xds::lds::tls::{self, Carries};
use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

/// The filter chains of an inlet.
pub(super) fn of(builder: &Builder<'_>, inlet: &Inlet) -> Vec<FilterChain> {
    let mode = match builder.mtls.port(inlet.port) {
        // Without certificates there is only the plaintext half.
        MtlsMode::Permissive if !builder.view.base.agent => MtlsMode::Disable,
        mode => mode,
    };
    matches::of(mode, inlet.protocol).iter().map(|found| chain(builder, inlet, found)).collect()
}

fn chain(builder: &Builder<'_>, inlet: &Inlet, found: &Match) -> FilterChain {
    let carries = if found.http { Carries::Http } else { Carries::Tcp };
    FilterChain {
        name: name(inlet, found.http),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: (inlet.port > 0).then_some(inlet.port),
            application_protocols: found.alpn.iter().map(|protocol| (*protocol).to_owned()).collect(),
            transport_protocol: found.transport.to_owned(),
            ..Default::default()
        }),
        filters: if found.http { http(builder, inlet) } else { streams(builder, inlet) },
        transport_socket: found.terminates.then(|| tls::mutual(builder.cx, carries)),
        metadata: inlet.metadata.clone(),
        ..Default::default()
    }
}

fn name(inlet: &Inlet, http: bool) -> String {
    match (inlet.passthrough, http) {
        (true, true) => format!("{NAME}-catchall-http"),
        (true, false) => NAME.to_owned(),
        (false, _) => address::name(&inlet.bind, inlet.port),
    }
}

fn http(builder: &Builder<'_>, inlet: &Inlet) -> Vec<Filter> {
    let stat_prefix = match inlet.passthrough {
        true => format!("{};", inlet.cluster),
        false => format!("inbound_{};", address::name(&inlet.bind, inlet.port)),
    };
    let manager = Manager {
        base: &builder.view.base,
        class: ListenerClass::Inbound,
        stat_prefix,
        routes: route::of(inlet),
        protocol: inlet.protocol,
        http1: None,
        port: inlet.port,
        policies: &builder.policies,
    };
    let before = builder.policies.before_http(inlet.port);
    exchange(builder).chain(before).chain([manager.filter(builder.cx)]).collect()
}

fn streams(builder: &Builder<'_>, inlet: &Inlet) -> Vec<Filter> {
    let names = Names {
        host: &inlet.host,
        service: inlet.service.as_ref().map(|(name, namespace, short)| (&**name, namespace, *short)),
        subset: "",
        port: inlet.service_port,
        port_name: &inlet.port_name,
        target_port: inlet.port,
    };
    let pattern = builder.cx.mesh().inbound_cluster_stat_name.clone();
    let stream = Stream {
        to: To::Cluster(inlet.cluster.clone()),
        stat_prefix: stat_name::of(&pattern, &inlet.cluster, &names),
        protocol: inlet.protocol,
        idle_timeout: &builder.view.base.idle_timeout,
        rule: None,
        subset: "",
        access_log: &builder.policies.logs.tcp,
    };
    exchange(builder).chain(builder.policies.tcp(inlet.port)).chain(stream.filters()).collect()
}

/// Traffic to the port of the listener itself would go round for ever.
pub(super) fn loop_guard(builder: &Builder<'_>, port: u32) -> FilterChain {
    let stream = Stream {
        to: To::Cluster("BlackHoleCluster".to_owned()),
        stat_prefix: "BlackHoleCluster".to_owned(),
        protocol: Protocol::Tcp,
        idle_timeout: "",
        rule: None,
        subset: "",
        access_log: &[],
    };
    FilterChain {
        name: format!("{NAME}-blackhole"),
        filter_chain_match: Some(FilterChainMatch { destination_port: Some(port), ..Default::default() }),
        filters: exchange(builder).chain(builder.policies.tcp_metrics()).chain(stream.filters()).collect(),
        ..Default::default()
    }
}

fn exchange(builder: &Builder<'_>) -> impl Iterator<Item = Filter> + use<> {
    builder.view.base.istio_filters.then(filters::tcp_metadata_exchange).into_iter()
}
