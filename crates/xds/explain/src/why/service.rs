//! Service that a host refers to for a proxy.

use super::{Request, Walk, Way, dropped, object, origin, step};
use pilotfish_api::v1::{Dropped, Failure, Step, Verdict};
use pilotfish_model::{ExportTo, Hostname, Namespace, PortId, Resolution, Service};
use pilotfish_translate::{HostSeen, Unseen};
use std::sync::Arc;

impl Walk<'_> {
    /// Finds the service of a host, its port, and the addresses that an application connects to.
    pub(super) fn service(&self, request: &Request, steps: &mut Vec<Step>) -> Way {
        let host = self.full_host(&request.host);
        let Some(host) = host else {
            // Hosts of gateways need no service.
            let unknown = (!self.is_router()).then(|| self.unknown(&request.host));
            let missed = unknown.as_ref().map(|step| step.text.clone());
            steps.extend(unknown);
            let port = request.port.unwrap_or(80);
            return Way { request: request.clone(), port, missed, ..Way::default() };
        };
        let seen = self.snapshot().host_seen(self.proxy, &host);
        let others: Vec<Dropped> =
            seen.others.iter().map(|(other, why)| self.unseen(other, why, &seen)).collect();
        let Some(service) = seen.service.clone() else {
            let why = others.first().map(|other| other.why.clone()).unwrap_or_default();
            let text = format!("{host} exists, and this proxy does not see it: {why}");
            let mut hidden = step("service", Verdict::Ends, "", text.clone());
            hidden.decided_by = seen.others.iter().map(|(other, _)| origin(&other.provenance)).collect();
            hidden.decided_by.extend(seen.sidecar.as_ref().map(object));
            hidden.others = others;
            steps.push(hidden);
            let port = request.port.unwrap_or(80);
            let missed = (!self.is_router()).then_some(text);
            return Way { request: request.clone(), port, missed, ..Way::default() };
        };
        let mut found = step("service", Verdict::Ok, host.to_string(), "");
        let port = self.port(&service, request, &mut found);
        let is_alias = service.resolution == Resolution::Alias;
        let is_missed = !self.is_router() && (is_alias || service.port(PortId::tcp(port)).is_none());
        let missed = is_missed.then(|| format!("{host}: {}", found.text));
        found.decided_by = vec![origin(&service.provenance)];
        found.others = others;
        self.registry(&service, &mut found);
        steps.push(found);
        let addresses = self.addresses(&service);
        Way { request: request.clone(), service: Some(service), port, addresses, missed, ..Way::default() }
    }

    /// Host of a service with this name: the name itself, or completed as the proxy's resolver does.
    fn full_host(&self, name: &str) -> Option<Hostname> {
        let has = |host: &Hostname| self.world().services_of_host(host).next().is_some();
        let domain = &self.proxy.dns_domain;
        let namespace = &self.proxy.namespace;
        let cluster_domain =
            domain.find("svc.").and_then(|at| domain.get(at..)).unwrap_or("svc.cluster.local");
        let candidates = [
            name.to_owned(),
            format!("{name}.{namespace}.{cluster_domain}"),
            format!("{name}.{cluster_domain}"),
            format!("{name}.{}", cluster_domain.trim_start_matches("svc.")),
        ];
        let exact = candidates.iter().filter_map(|candidate| Hostname::parse(candidate).ok()).find(has);
        exact.or_else(|| self.host_at(name)).or_else(|| self.wildcard(name))
    }

    /// Host of the service with this virtual address.
    fn host_at(&self, address: &str) -> Option<Hostname> {
        address.parse::<std::net::IpAddr>().ok()?;
        let has = |service: &Arc<Service>| self.addresses(service).iter().any(|own| own == address);
        let mut services = self.world().services().flat_map(|(_, services)| services.iter());
        services.find(|service| has(service)).map(|service| service.hostname.clone())
    }

    /// Wildcard host that covers a name, such as `*.example.com` for `a.example.com`.
    fn wildcard(&self, name: &str) -> Option<Hostname> {
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            let host = Hostname::parse(&format!("*.{parent}")).ok()?;
            if self.world().services_of_host(&host).next().is_some() {
                return Some(host);
            }
            rest = parent;
        }
        None
    }

    fn unknown(&self, host: &str) -> Step {
        let hosts = self.world().services().map(|(key, _)| key.hostname.as_str());
        let near = Failure::unknown("host", host, hosts).names;
        let mut text = format!("no service has the host {host}");
        match near.as_slice() {
            [] => {}
            [one] => text += &format!("; the nearest is {one}"),
            all => text += &format!("; the nearest are {}", all.join(", ")),
        }
        let failing: Vec<String> = self.registries.iter().filter_map(trouble).collect();
        if !failing.is_empty() {
            text += &format!("; services may be missing: {}", failing.join("; "));
        }
        step("service", Verdict::Doubtful, "", text)
    }

    fn unseen(&self, service: &Service, why: &Unseen, seen: &HostSeen) -> Dropped {
        dropped(origin(&service.provenance), unseen(&self.proxy.namespace, service, why, seen))
    }

    /// Port of a request, which is also added to the step.
    fn port(&self, service: &Service, request: &Request, found: &mut Step) -> u32 {
        let all: Vec<String> = service
            .ports
            .iter()
            .map(|port| format!("{} ({}, {})", port.number, port.name, port.protocol.istio_name()))
            .collect();
        let all = all.join(", ");
        let fallback = || {
            let http = service.port(PortId::tcp(80));
            http.or_else(|| service.tcp_ports().next()).map_or(80, |port| port.number)
        };
        let number = request.port.unwrap_or_else(fallback);
        if let Some(target) = alias_target(service) {
            found.text = format!("port {number} of {target}, of which it is an alias");
            return number;
        }
        match service.port(PortId::tcp(number)) {
            Some(port) => {
                found.text = format!("port {number} ({}), {}", port.name, port.protocol.istio_name());
                if port.protocol.is_unsupported() {
                    found.text += ": its protocol is not declared, so the proxy looks at the bytes; a name \
                        such as http-NAME, or appProtocol, declares it";
                } else if port.protocol.is_tcp() && request.path != "/" {
                    found.verdict = Verdict::Doubtful;
                    found.text += ": taken for TCP because of its name, so paths and headers are not looked \
                        at; name it http or set appProtocol";
                }
            }
            None => {
                found.verdict = Verdict::Doubtful;
                found.text = format!("port {number} is none of its ports: {all}");
            }
        }
        number
    }

    /// Adds a note if the registry of a service cannot be read.
    fn registry(&self, service: &Service, found: &mut Step) {
        let own = service.provider.to_string();
        let is_own = |registry: &&pilotfish_api::Registry| {
            registry.name.split('/').next().is_some_and(|provider| provider.eq_ignore_ascii_case(&own))
        };
        let failing: Vec<String> = self.registries.iter().filter(is_own).filter_map(trouble).collect();
        if !failing.is_empty() {
            found.verdict = Verdict::Doubtful;
            found.text += &format!("; {}", failing.join("; "));
        }
    }

    /// Addresses that an application of the proxy connects to.
    fn addresses(&self, service: &Service) -> Vec<String> {
        let of_cluster = service.addresses.iter().find(|(cluster, _)| **cluster == self.proxy.cluster);
        let mut all: Vec<String> =
            of_cluster.into_iter().flat_map(|(_, list)| list.iter().map(ToString::to_string)).collect();
        if all.is_empty() && !service.default_address.is_empty() && &*service.default_address != "0.0.0.0" {
            all.push(service.default_address.to_string());
        }
        all.extend(
            service.auto_addresses.iter().filter(|address| !address.is_empty()).map(ToString::to_string),
        );
        all
    }
}

/// The host that an `ExternalName` Service stands for. Ports of the alias itself mean nothing.
fn alias_target(service: &Service) -> Option<&str> {
    if service.resolution != Resolution::Alias {
        return None;
    }
    service.kubernetes.as_ref()?.external_name.as_deref()
}

/// Failure of a registry, as text; `None` for a healthy one.
fn trouble(registry: &pilotfish_api::Registry) -> Option<String> {
    let since = registry.failing_since.as_deref().unwrap_or_default();
    match (&registry.failure, registry.synced) {
        (Some(reason), true) => Some(format!(
            "registry {} cannot be read since {since} ({reason}); what it said before stays in force",
            registry.name
        )),
        (Some(reason), false) => {
            Some(format!("registry {} cannot be read since {since} ({reason})", registry.name))
        }
        (None, false) => Some(format!("registry {} is not in sync yet", registry.name)),
        (None, true) => None,
    }
}

/// Reason why a proxy of a namespace does not see a service.
pub(crate) fn unseen(namespace: &Namespace, service: &Service, why: &Unseen, seen: &HostSeen) -> String {
    match why {
        Unseen::NotExported(ExportTo::Nobody) => "its exportTo says ~, so nobody sees it".to_owned(),
        Unseen::NotExported(ExportTo::Namespaces(namespaces)) => {
            let to: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
            format!("its exportTo names {}, and not {namespace}", to.join(", "))
        }
        Unseen::NotExported(_) => {
            format!("defaultServiceExportTo of the mesh config does not show it to {namespace}")
        }
        Unseen::OutsideSidecar => match &seen.sidecar {
            Some(sidecar) => {
                format!("{sidecar} does not import {}/{}", service.namespace, service.hostname)
            }
            None => "no egress listener imports it".to_owned(),
        },
        Unseen::Overruled => match &seen.service {
            Some(winner) => format!("{} is in its place", winner.provenance),
            None => "another service is in its place".to_owned(),
        },
    }
}
