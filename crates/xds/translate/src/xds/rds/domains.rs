//! The domains under which a host is found: its full name, the short forms that a client may use, its
//! addresses.

use super::view::RouteView;
use crate::services::short_name;
use pilotfish_model::{Hostname, Resolution, Service};
use std::collections::BTreeSet;

/// Domains of one route configuration, each in one virtual host only.
pub(super) struct Domains<'a> {
    view: &'a RouteView,
    /// True if ports in the `Host` header are ignored, so that domains need none.
    ignore_port: bool,
    taken: BTreeSet<String>,
    /// Full names of services and of their virtual hosts.
    known: BTreeSet<String>,
    /// Services of live registries whose full name has the form of a short one, with their ports, until
    /// [`Self::settle`].
    ambiguous: Vec<(Hostname, u32)>,
    /// Hosts that give way to the service of which they are the short form.
    yielding: BTreeSet<Hostname>,
    /// Short forms among the domains that were handed out.
    short: BTreeSet<String>,
}

impl<'a> Domains<'a> {
    pub(super) fn new(view: &'a RouteView, ignore_port: bool) -> Self {
        Self {
            view,
            ignore_port,
            taken: BTreeSet::new(),
            known: BTreeSet::new(),
            ambiguous: Vec::new(),
            yielding: BTreeSet::new(),
            short: BTreeSet::new(),
        }
    }

    /// Notes the full name of a service: no short form of another takes it, unless a live registry made up a
    /// name that is one.
    pub(super) fn know(&mut self, service: &Service, port: u32) {
        let is_live = service.provenance.as_object().is_none();
        if is_live && short_name::full_name(service.hostname.as_str(), &self.view.dns_domain).is_some() {
            return self.ambiguous.push((service.hostname.clone(), port));
        }
        self.know_host(&service.hostname, port);
    }

    fn know_host(&mut self, host: &Hostname, port: u32) {
        self.known.insert(host.as_str().to_owned());
        self.known.insert(host_port(host.as_str(), port));
    }

    /// Decides between full names of live registries and the short forms of services, once all are known.
    /// Clients that may register a host must not take the requests of clients that call a Kubernetes Service
    /// by its short name.
    pub(super) fn settle(&mut self) {
        for (host, port) in std::mem::take(&mut self.ambiguous) {
            let full = short_name::full_name(host.as_str(), &self.view.dns_domain);
            if full.is_some_and(|full| self.known.contains(&full)) {
                self.yielding.insert(host);
            } else {
                self.know_host(&host, port);
            }
        }
    }

    /// Keeps of these domains those that no virtual host has yet, and takes them.
    pub(super) fn take(&mut self, domains: Vec<String>) -> Vec<String> {
        let short = std::mem::take(&mut self.short);
        let free = |domain: &String| !(short.contains(domain) && self.known.contains(domain));
        let mut kept = Vec::with_capacity(domains.len());
        for domain in domains {
            if free(&domain) && self.taken.insert(domain.clone()) {
                kept.push(domain);
            }
        }
        kept
    }

    /// The domains of a host that no service has.
    pub(super) fn of_host(&mut self, host: &Hostname, port: u32) -> Vec<String> {
        let mut domains = Vec::new();
        self.push(&mut domains, host.as_str(), port);
        domains
    }

    /// The domains of a service and of its aliases.
    pub(super) fn of_service(&mut self, service: &Service, aliases: &[Hostname], port: u32) -> Vec<String> {
        let mut domains = Vec::new();
        let mut short = Vec::new();
        let names = std::iter::once(&service.hostname).chain(aliases);
        for name in names.filter(|name| !self.yielding.contains(*name)) {
            self.push(&mut domains, name.as_str(), port);
            self.push(&mut domains, &format!("{name}."), port);
            for form in short_name::forms(name.as_str(), &self.view.dns_domain) {
                self.push(&mut short, &form, port);
            }
            domains.append(&mut short.clone());
            self.short.extend(short.drain(..));
        }
        if service.headless && service.resolution == Resolution::Passthrough {
            let wildcards: Vec<String> = domains.iter().map(|domain| format!("*.{domain}")).collect();
            domains.extend(wildcards);
        }
        let addresses = &self.view.addresses;
        let primary = addresses.primary(service);
        // A Kubernetes Service whose addresses are all of a family that the proxy lacks has none for it.
        let is_usable = service.addresses.is_empty() || addresses.families.has(&primary);
        if is_usable && !primary.is_empty() && &*primary != Service::UNSPECIFIED {
            self.push(&mut domains, &primary, port);
        }
        for extra in addresses.extra(service) {
            self.push(&mut domains, &extra, port);
        }
        domains
    }

    fn push(&self, domains: &mut Vec<String>, host: &str, port: u32) {
        domains.push(bracketed(host).into_owned());
        if !self.ignore_port {
            domains.push(host_port(host, port));
        }
    }
}

/// `host:port`, the name of a virtual host, with brackets around an IPv6 address.
pub(super) fn host_port(host: &str, port: u32) -> String {
    format!("{}:{port}", bracketed(host))
}

/// The host with brackets around an IPv6 address.
pub(super) fn bracketed(host: &str) -> std::borrow::Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}
