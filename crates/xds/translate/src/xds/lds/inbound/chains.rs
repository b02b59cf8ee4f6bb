//! Filter chains of an inbound port.

use super::inbound_port::InboundPort;
use super::matches::{self, Match};
use super::{Builder, NAME, route};
use crate::envoy::stat_name::{self, Names};
use crate::envoy::{TrafficClass, filters};
use crate::policy::peer_authentication::MtlsMode;
use crate::xds::lds::address;
use crate::xds::lds::connection_manager::Manager;
use crate::xds::lds::tcp_proxy::{self, Stream, TcpDestination};
use crate::xds::lds::tls::{self, TlsPayload};
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

/// The filter chains of an inbound port.
pub(super) fn of(builder: &Builder<'_>, inbound_port: &InboundPort) -> Vec<FilterChain> {
    let mode = match builder.mtls.port(inbound_port.port) {
        // Without certificates, only plaintext is possible.
        MtlsMode::Permissive if !builder.view.base.certificate_source.is_some() => MtlsMode::Disable,
        mode => mode,
    };
    matches::of(mode, inbound_port.protocol).iter().map(|found| chain(builder, inbound_port, found)).collect()
}

fn chain(builder: &Builder<'_>, inbound_port: &InboundPort, found: &Match) -> FilterChain {
    let source = builder.view.base.certificate_source;
    let payload = if found.http { TlsPayload::Http } else { TlsPayload::Tcp };
    FilterChain {
        name: name(inbound_port, found.http),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: (inbound_port.port > 0).then_some(inbound_port.port),
            application_protocols: found.alpn.iter().map(|protocol| (*protocol).to_owned()).collect(),
            transport_protocol: found.transport.to_owned(),
            ..Default::default()
        }),
        filters: if found.http { http(builder, inbound_port) } else { streams(builder, inbound_port) },
        transport_socket: found.terminates.then(|| tls::mutual(builder.cx, source, payload)),
        metadata: inbound_port.metadata.clone(),
        ..Default::default()
    }
}

fn name(inbound_port: &InboundPort, http: bool) -> String {
    match (inbound_port.passthrough, http) {
        (true, true) => format!("{NAME}-catchall-http"),
        (true, false) => NAME.to_owned(),
        (false, _) => address::name(&inbound_port.bind, inbound_port.port),
    }
}

fn http(builder: &Builder<'_>, inbound_port: &InboundPort) -> Vec<Filter> {
    let stat_prefix = match inbound_port.passthrough {
        true => format!("{};", inbound_port.cluster),
        false => format!("inbound_{};", address::name(&inbound_port.bind, inbound_port.port)),
    };
    let manager = Manager {
        base: &builder.view.base,
        class: TrafficClass::Inbound,
        stat_prefix,
        routes: route::of(inbound_port, builder.cx.mesh().default_inbound_http_retry_policy.as_ref()),
        protocol: inbound_port.protocol,
        http1: None,
        port: inbound_port.port,
        hosts: None,
        policies: &builder.policies,
    };
    let before = builder.policies.before_http(inbound_port.port);
    exchange(builder).chain(before).chain([manager.filter(builder.cx)]).collect()
}

fn streams(builder: &Builder<'_>, inbound_port: &InboundPort) -> Vec<Filter> {
    let names = Names {
        host: &inbound_port.host,
        service: inbound_port
            .service
            .as_ref()
            .map(|(name, namespace, provider)| (&**name, namespace, *provider)),
        subset: "",
        port: inbound_port.service_port,
        port_name: &inbound_port.port_name,
        target_port: inbound_port.port,
    };
    let pattern = builder.cx.mesh().inbound_cluster_stat_name.clone();
    let stream = Stream {
        destination: TcpDestination::Cluster(inbound_port.cluster.clone()),
        stat_prefix: stat_name::of(&pattern, &inbound_port.cluster, &names),
        protocol: inbound_port.protocol,
        idle_timeout: &builder.view.base.idle_timeout,
        rule: None,
        subset: "",
        access_log: &builder.policies.logs.tcp,
    };
    exchange(builder).chain(builder.policies.tcp(inbound_port.port)).chain(stream.filters()).collect()
}

/// Returns the filter chain that closes connections to the port of the listener itself.
pub(super) fn loop_guard(builder: &Builder<'_>, port: u32) -> FilterChain {
    tcp_proxy::loop_guard(NAME, port, exchange(builder).chain(builder.policies.tcp_metrics()))
}

fn exchange(builder: &Builder<'_>) -> impl Iterator<Item = Filter> + use<> {
    builder.view.base.istio_filters.then(filters::tcp_metadata_exchange).into_iter()
}
