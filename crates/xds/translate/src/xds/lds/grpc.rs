//! Listeners of proxyless gRPC clients and servers.
//!
//! A client subscribes to `host:port` and receives a listener with the name of its routes. A server
//! subscribes to a name that contains its address and receives one filter chain, with or without mutual TLS.

use super::view::{Side, policy_labels};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::outbound_name;
use crate::policy::peer_authentication::{MtlsMode, PeerAuthenticationsOf};
use crate::policy::security::{Subject, grpc_filters};
use crate::proxy::Proxy;
use crate::proxy::targets::TargetsOf;
use crate::proxy::workload::{self, Identity};
use crate::scope::{Scope, ServiceIn};
use crate::services::alias;
use crate::services::service_address::AddressView;
use crate::xds::cds::grpc_tls;
use pilotfish_model::{Hostname, Labels, Origin, PortId, Service};
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::core::v3::address::Address as AddressKind;
use pilotfish_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use pilotfish_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use pilotfish_proto::envoy::config::core::v3::transport_socket;
use pilotfish_proto::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ConfigSource, SocketAddress, TransportSocket,
};
use pilotfish_proto::envoy::config::listener::v3::{ApiListener, Filter, FilterChain, Listener, filter};
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{
    NonForwardingAction, Route, RouteConfiguration, RouteMatch, VirtualHost,
};
use pilotfish_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use pilotfish_proto::envoy::extensions::filters::http::router::v3::Router;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Prefix of the name of a server's listener; its address follows.
const INBOUND: &str = "xds.istio.io/grpc/lds/inbound/";
/// The label that declares that a workload accepts Istio's mutual TLS.
const TLS_MODE: &str = "security.istio.io/tlsMode";

/// Inputs of the listeners of a gRPC client or server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GrpcView {
    pub scope: Scope,
    pub addresses: AddressView,
    /// The domain in which it completes short names.
    pub dns_domain: Arc<str>,
    /// Ports of its workload, by workload port.
    pub served: Arc<BTreeMap<u32, ServedPort>>,
    /// The labels that selectors of policies match.
    pub labels: Labels,
}

/// One port of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServedPort {
    /// True if clients must use mutual TLS. gRPC cannot distinguish it from plain text, so there is no
    /// permissive mode.
    pub mutual_tls: bool,
    /// The services and policies that it comes from.
    pub provenance: Arc<[Origin]>,
}

impl GrpcView {
    /// The view of a client or server.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        let served = served(cx, proxy);
        // Policies apply to servers only.
        let labels = match served.is_empty() {
            true => Labels::default(),
            false => policy_labels(cx, &proxy.namespace, &workload::labels_of(cx, proxy), Side::Server),
        };
        Self {
            scope: Scope::of(cx, proxy),
            addresses: AddressView::of(cx, proxy),
            dns_domain: proxy.dns_domain.clone(),
            served: Arc::new(served),
            labels,
        }
    }

    /// Returns the listener of that name; `None` for an unknown host, port or address.
    #[must_use]
    pub(super) fn listener(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<EncodedResource> {
        match name.strip_prefix(INBOUND) {
            Some(address) => self.inbound(cx, name, address),
            None => self.outbound(cx, name),
        }
    }

    fn outbound(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<EncodedResource> {
        let (host, port) = name.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let service = self.find(cx, host).filter(|service| service.port(PortId::tcp(port)).is_some())?;
        let manager = HttpConnectionManager {
            http_filters: vec![
                http_filter("envoy.filters.http.fault", config_any(&HttpFault::default())),
                router(),
            ],
            route_specifier: Some(RouteSpecifier::Rds(Rds {
                config_source: Some(ConfigSource {
                    config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
                    ..Default::default()
                }),
                route_config_name: outbound_name(port, "", service.hostname.as_str()),
            })),
            ..Default::default()
        };
        let listener = Listener {
            name: name.to_string(),
            address: Some(address(&self.addresses.primary(&service), port)),
            api_listener: Some(ApiListener { api_listener: config_any(&manager) }),
            ..Default::default()
        };
        Some(EncodedResource::new(name.clone(), &listener, vec![service.provenance.clone()]))
    }

    /// Returns the service of a host, which may be a short name in the client's own namespace.
    fn find(&self, cx: &Cx<'_>, host: &str) -> Option<Arc<Service>> {
        let find = |host: &Hostname| Option::clone(&cx.get(&ServiceIn(self.scope.clone(), host.clone())));
        let of = |name: &str| alias::behind(cx, name, find).1;
        let written = of(host);
        // As in domains of virtual hosts, a live registry's host does not take precedence over the short name
        // of a service.
        if written.as_ref().is_some_and(|service| service.provenance.as_object().is_some()) {
            return written;
        }
        self.full_name(host).and_then(|full| of(&full)).or(written)
    }

    fn full_name(&self, host: &str) -> Option<String> {
        let domain = &self.dns_domain;
        if !host.contains('.') {
            return Some(format!("{host}.{domain}"));
        }
        let namespace = self.scope.namespace.as_str();
        [namespace.to_owned(), format!("{namespace}.svc")].iter().find_map(|suffix| {
            let name = host.strip_suffix(suffix.as_str())?.strip_suffix('.')?;
            domain.starts_with(suffix.as_str()).then(|| format!("{name}.{domain}"))
        })
    }

    fn inbound(&self, cx: &Cx<'_>, name: &Arc<str>, at: &str) -> Option<EncodedResource> {
        let (host, port) = at.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let served = self.served.get(&port)?;
        let subject = Subject {
            namespace: self.scope.namespace.clone(),
            labels: self.labels.clone(),
            is_gateway: false,
        };
        let (policies, provenance) = grpc_filters(cx, &subject);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let listener = Listener {
            name: name.to_string(),
            address: Some(address(host, port)),
            filter_chains: vec![filter_chain(served.mutual_tls, policies)],
            ..Default::default()
        };
        let provenance = served.provenance.iter().cloned().chain(provenance).collect();
        Some(EncodedResource::new(name.clone(), &listener, provenance))
    }
}

/// Returns the ports of the proxy's own workload, with the modes of PeerAuthentications. If both TLS and
/// plain text are allowed, a workload whose label declares mutual TLS uses it, and any other uses plain text.
fn served(cx: &Cx<'_>, proxy: &Proxy) -> BTreeMap<u32, ServedPort> {
    let targets = cx.get(&TargetsOf(Identity::of(proxy)));
    if targets.is_empty() {
        return BTreeMap::new();
    }
    let labels = workload::labels_of(cx, proxy);
    let policies = cx.get(&PeerAuthenticationsOf(proxy.namespace.clone()));
    let promised = labels.get(TLS_MODE).is_some_and(|mode| mode == "istio");
    let mut served: BTreeMap<u32, ServedPort> = BTreeMap::new();
    for target in targets.iter() {
        let mutual_tls = match policies.port(&labels, target.target_port) {
            MtlsMode::Strict => true,
            MtlsMode::Permissive => promised,
            MtlsMode::Disable => false,
        };
        let mut provenance = policies.provenance_of(&labels);
        provenance.push(target.object.clone());
        let before = served.get(&target.target_port).map(|served| served.provenance.clone());
        provenance.extend(before.iter().flat_map(|before| before.iter().cloned()));
        served.insert(target.target_port, ServedPort { mutual_tls, provenance: provenance.into() });
    }
    served
}

fn filter_chain(mutual_tls: bool, policies: Vec<HttpFilter>) -> FilterChain {
    let suffix = if mutual_tls { "mtls" } else { "plaintext" };
    let manager = HttpConnectionManager {
        http_filters: policies.into_iter().chain([router()]).collect(),
        route_specifier: Some(RouteSpecifier::RouteConfig(RouteConfiguration {
            name: "inbound".to_owned(),
            virtual_hosts: vec![VirtualHost {
                domains: vec!["*".to_owned()],
                routes: vec![Route {
                    r#match: Some(RouteMatch {
                        path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
                        ..Default::default()
                    }),
                    action: Some(Action::NonForwardingAction(NonForwardingAction {})),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        })),
        ..Default::default()
    };
    FilterChain {
        name: format!("inbound-{suffix}"),
        filters: vec![Filter {
            name: format!("inbound-hcm{suffix}"),
            config_type: config_any(&manager).map(filter::ConfigType::TypedConfig),
        }],
        transport_socket: mutual_tls.then(transport_socket),
        ..Default::default()
    }
}

fn transport_socket() -> TransportSocket {
    let context = DownstreamTlsContext {
        common_tls_context: Some(grpc_tls(&[])),
        require_client_certificate: Some(true),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: config_any(&context).map(transport_socket::ConfigType::TypedConfig),
    }
}

fn router() -> HttpFilter {
    http_filter("envoy.filters.http.router", config_any(&Router::default()))
}

fn http_filter(name: &str, config: Option<pilotfish_proto::Any>) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: config.map(http_filter::ConfigType::TypedConfig),
        ..Default::default()
    }
}

fn address(host: &str, port: u32) -> Address {
    Address {
        address: Some(AddressKind::SocketAddress(SocketAddress {
            address: host.to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}
