//! Destinations of routes for the clients that have them, and reasons for missing clusters.
//!
//! Clusters of destinations are determined by the functions that generate routes and clusters, with other
//! clients.

use super::Known;
use super::clients::Client;
use super::finding::listed;
use super::hosts::{self, Lookup};
use crate::engine::Cx;
use crate::policy::destination_rule::DestinationRulesFor;
use crate::proxy::ProxyKind;
use crate::routing::destination_port;
use crate::scope::{own_service_seen, service_seen};
use crate::services::alias;
use crate::xds::cds::has_cluster;
use pilotfish_config::did_you_mean;
use pilotfish_config::networking::Destination;
use pilotfish_model::{Hostname, Namespace, PortId, Resolution, Service};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The list of a VirtualService that contains a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteList {
    Http,
    Streams,
}

/// Reason why requests to a destination fail.
pub(super) struct Missing {
    /// The field below the destination; empty for the destination itself.
    pub(super) field: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Missing {
    fn new(field: &'static str, message: String, hint: Option<String>) -> Option<Self> {
        Some(Self { field, message, hint })
    }
}

/// A destination from the perspective of one client.
pub(super) struct Destined<'a, 'c> {
    pub(super) cx: &'a Cx<'c>,
    pub(super) known: Known,
    pub(super) client: &'a Client,
    pub(super) list: RouteList,
    /// The full host name of the destination.
    pub(super) full: &'a str,
    pub(super) to: &'a Destination,
}

impl Destined<'_, '_> {
    /// Returns the reason why there is no cluster for traffic to a port (`None`: unknown port); `None` if
    /// there is one, or if that is unknown.
    pub(super) fn missing(&self, listener: Option<u32>) -> Option<Missing> {
        let (host, target) = alias::behind(self.cx, self.full, |host| self.target(host));
        let hostname = Hostname::parse(&host).ok()?;
        let Some(service) = self.client.service(self.cx, &hostname) else { return self.absent(&hostname) };
        let knows_all_ports = self.list == RouteList::Streams || self.client.kind == ProxyKind::Router;
        let target = target.as_deref().filter(|_| knows_all_ports);
        let listener = listener.or_else(|| Some(service.tcp_ports().next()?.number))?;
        let port = destination_port(self.to, target, listener);
        if service.port(PortId::tcp(port)).is_none() {
            return self.without_port(&service, port);
        }
        self.without_cluster(&service, port)
    }

    /// Returns the service that the client's routes use for a host.
    fn target(&self, host: &Hostname) -> Option<Arc<Service>> {
        let client = self.client;
        let own = (client.kind == ProxyKind::Router)
            .then(|| own_service_seen(self.cx, &client.namespace, &client.rule, host));
        own.flatten().or_else(|| client.service(self.cx, host))
    }

    /// Returns the host for messages, with the alias that leads to it.
    fn named(&self, host: &Hostname) -> String {
        if self.full.eq_ignore_ascii_case(host.as_str()) {
            return format!("{:?}", self.full);
        }
        format!("{:?} (of which {:?} is an alias)", host.as_str(), self.full)
    }

    /// True if the client would see a host without its Sidecar.
    fn is_hidden_by_sidecar(&self, host: &Hostname) -> bool {
        let Client { kind, namespace, scope, .. } = self.client;
        scope.is_some() && service_seen(self.cx, *kind, namespace, host).is_some()
    }

    fn absent(&self, host: &Hostname) -> Option<Missing> {
        match hosts::look_up(self.cx, self.known, host) {
            Lookup::Unknown => None,
            Lookup::Absent(hint) => {
                let message = format!("no service has the host {}; requests get 503", self.named(host));
                Missing::new(".host", message, hint)
            }
            Lookup::Services(_) if self.is_hidden_by_sidecar(host) => {
                let sidecar = self.client.scope.as_ref().and_then(|scope| scope.sidecar.as_ref());
                let sidecar = sidecar.map(|(namespace, name)| format!("{namespace}/{name}"));
                let message = format!(
                    "{} is not imported by the Sidecar {}; requests get 503",
                    self.named(host),
                    sidecar.unwrap_or_default()
                );
                Missing::new(".host", message, Some("add it to egress.hosts of the Sidecar".to_owned()))
            }
            Lookup::Services(services) => {
                let homes: BTreeSet<&Namespace> = services.iter().map(|service| &service.namespace).collect();
                let message = format!(
                    "{} of namespace {} is not exported to the clients of this route",
                    self.named(host),
                    listed(homes)
                );
                Missing::new(".host", message, Some("see its exportTo".to_owned()))
            }
        }
    }

    fn without_port(&self, service: &Service, port: u32) -> Option<Missing> {
        let ports: BTreeSet<u32> = service.tcp_ports().map(|port| port.number).collect();
        let (host, has) = (&service.hostname, listed(&ports));
        if self.to.port.is_some() {
            let message = format!("{host} has no port {port}, but {has}; requests get 503");
            return Missing::new(".port.number", message, None);
        }
        let message = format!(
            "the route names no port, so requests to port {port} lead to port {port} of {host}, which has \
             only {has}; they get 503"
        );
        Missing::new("", message, Some("set port.number".to_owned()))
    }

    fn without_cluster(&self, service: &Service, port: u32) -> Option<Missing> {
        let key = service.key();
        let rules = self.cx.get(&DestinationRulesFor::new(&self.client.namespace, key));
        let subset = self.to.subset.as_str();
        let is_there = |rule| has_cluster(self.cx, self.client.kind, service, rule, (port, subset));
        let found = match rules.all() {
            [] => is_there(None),
            all => all.iter().any(|rule| is_there(Some(rule))),
        };
        if found {
            return None;
        }
        let host = &service.hostname;
        let names: BTreeSet<&str> = rules.subsets().collect();
        if !subset.is_empty() && !names.contains(subset) {
            let own = &self.client.namespace;
            let message = if names.is_empty() {
                format!(
                    "no DestinationRule for {host} that proxies of namespace {own} follow has subsets, so \
                     there is no {subset:?}; requests get 503"
                )
            } else {
                format!(
                    "no DestinationRule for {host} has a subset {subset:?}, but {}; requests get 503",
                    listed(&names)
                )
            };
            return Missing::new(".subset", message, did_you_mean(subset, names.into_iter()));
        }
        if rules.all().iter().all(|rule| rule.closes(subset, port)) && !rules.all().is_empty() {
            let message = format!("the DestinationRule for {host} cannot be used; requests get 503");
            return Missing::new(".host", message, None);
        }
        if service.resolution == Resolution::DynamicDns {
            let message = format!(
                "port {port} of {host} has no cluster, as resolution DYNAMIC_DNS is for HTTP, HTTP2, GRPC \
                 and TLS; requests get 503"
            );
            return Missing::new(".host", message, None);
        }
        let (field, of) = match subset {
            "" => (".host", String::new()),
            subset => (".subset", format!(" in the subset {subset:?}")),
        };
        let message = format!("port {port} of {host} has no endpoint{of}; requests get 503");
        Missing::new(field, message, None)
    }
}
