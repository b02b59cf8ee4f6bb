//! Mapping of DNS records to services, ports, endpoints and weights.

use crate::entry::{Entry, EntryKind};
use crate::name::Name;
use crate::plan::Found;
use pilotfish_model::{Namespace, Protocol};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The label with the priority of an SRV record.
const PRIORITY_LABEL: &str = "srv-priority";
/// Factor of SRV weights, so that a weight of 0 beside others becomes small but not zero (RFC 2782), and the
/// addresses of one target can share its weight.
const SCALE: u32 = 100;

/// Selection of SRV records by priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priorities {
    /// Records of the lowest priority number whose targets have addresses.
    #[default]
    Best,
    /// All records, labelled with their priority.
    All,
}

/// Options of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) priorities: Priorities,
    pub(crate) namespace: Namespace,
}

impl Mapping {
    /// Returns the service of a host, from all its entries and their records.
    pub(crate) fn service<'a>(
        &self,
        host: &Name,
        entries: impl Iterator<Item = (&'a Entry, &'a [Found])>,
    ) -> CatalogService {
        let mut service = CatalogService::new(host.as_str(), host.as_str(), self.namespace.clone());
        for (entry, found) in entries {
            let used = self.used(found);
            // Without a port of their own, clients use the lowest port of the servers.
            let lowest = used.iter().map(|found| found.port).min();
            let Some(port) = entry.port.or(lowest) else { continue };
            let port = port_of(entry, port);
            let weights = weights(&used);
            for (found, weight) in used.iter().zip(weights) {
                service.instances.push(instance(entry, found, &port, weight));
            }
            service.ports.push(port);
        }
        service
    }

    fn used<'a>(&self, found: &'a [Found]) -> Vec<&'a Found> {
        let best = found.iter().map(|found| found.priority).min();
        let is_used = |found: &&Found| self.priorities == Priorities::All || Some(found.priority) == best;
        found.iter().filter(is_used).collect()
    }
}

fn instance(entry: &Entry, found: &Found, port: &CatalogPort, weight: u32) -> CatalogInstance {
    let id = format!("{}/{}/{}:{}", entry.name, found.target, found.address, found.port);
    let mut instance = CatalogInstance::new(id, found.address.to_string());
    instance.ports = vec![InstancePort { service: port.clone(), number: found.port.into() }];
    instance.weight = weight;
    if matches!(entry.kind, EntryKind::Srv(_)) {
        instance.labels = BTreeMap::from([(PRIORITY_LABEL.to_owned(), found.priority.to_string())]);
    }
    instance
}

/// The port of an entry. The SRV service `_http._tcp` is http; a service without an Istio protocol is TCP, so
/// that it is not sniffed.
fn port_of(entry: &Entry, number: u16) -> CatalogPort {
    let number = number.into();
    let EntryKind::Srv(Some(name)) = &entry.kind else {
        return CatalogPort { number, name: None, protocol: None };
    };
    let protocol = match (&*name.transport, &*name.service) {
        ("udp", _) => "udp",
        (_, "mongodb") => "mongo",
        (_, "http-alt" | "www" | "www-http") => "http",
        (_, service) if Protocol::parse(service) != Protocol::Unsupported => service,
        _ => "tcp",
    };
    CatalogPort { number, name: Some(name.service.clone()), protocol: Some(protocol.to_owned()) }
}

/// Returns the weights of endpoints; 0, unset, if all are equal.
fn weights(used: &[&Found]) -> Vec<u32> {
    let is_weighted = used.iter().any(|found| found.weight > 0);
    let weight = |found: &&Found| {
        let own = match (is_weighted, found.weight) {
            (false, _) => SCALE,
            (true, 0) => 1,
            (true, weight) => u32::from(weight) * SCALE,
        };
        (own / u32::try_from(found.addresses).unwrap_or(u32::MAX).max(1)).max(1)
    };
    let weights: Vec<u32> = used.iter().map(weight).collect();
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return vec![0; weights.len()];
    }
    weights.into_iter().map(|weight| weight / divisor).collect()
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Returns the indexes of the entries of each host.
pub(crate) fn by_host(entries: &[Entry]) -> BTreeMap<Name, Arc<[usize]>> {
    let mut hosts = BTreeMap::<Name, Vec<usize>>::new();
    for (index, entry) in entries.iter().enumerate() {
        hosts.entry(entry.host.clone()).or_default().push(index);
    }
    hosts.into_iter().map(|(host, entries)| (host, entries.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn found(target: &str, address: &str, numbers: (u16, u16, u16)) -> Found {
        let (priority, weight, port) = numbers;
        let address = address.parse().expect("an IP");
        Found { target: name(target), address, port, priority, weight, addresses: 1 }
    }

    fn mapping(priorities: Priorities) -> Mapping {
        Mapping { priorities, namespace: "default".into() }
    }

    fn service(priorities: Priorities, entries: &[(&str, Vec<Found>)]) -> CatalogService {
        let entries: Vec<_> =
            entries.iter().map(|(text, found)| (Entry::parse(text).expect("an entry"), found)).collect();
        let entries = entries.iter().map(|(entry, found)| (entry, &found[..]));
        mapping(priorities).service(&name("web.example.com"), entries)
    }

    fn ports(service: &CatalogService) -> Vec<(u32, Option<&str>, Option<&str>)> {
        service
            .ports
            .iter()
            .map(|port| (port.number, port.name.as_deref(), port.protocol.as_deref()))
            .collect()
    }

    fn endpoints(service: &CatalogService) -> Vec<(&str, u32, u32)> {
        service.instances.iter().map(|it| (&*it.addresses[0], it.ports[0].number, it.weight)).collect()
    }

    #[test]
    fn names_with_a_service_are_ports_of_one_host() {
        let service = service(
            Priorities::Best,
            &[
                (
                    "_http._tcp.web.example.com",
                    vec![found("a", "10.0.0.1", (0, 0, 8081)), found("b", "10.0.0.2", (0, 0, 8080))],
                ),
                ("_grpc._tcp.web.example.com:90", vec![found("a", "10.0.0.1", (0, 0, 9000))]),
                ("_sip._udp.web.example.com", vec![found("a", "10.0.0.1", (0, 0, 5060))]),
                ("_ldap._tcp.web.example.com", vec![found("a", "10.0.0.1", (0, 0, 389))]),
                ("web.example.com:6379", vec![found("web.example.com", "10.0.0.3", (0, 0, 6379))]),
            ],
        );
        assert_eq!(
            ports(&service),
            [
                (8080, Some("http"), Some("http")),
                (90, Some("grpc"), Some("grpc")),
                (5060, Some("sip"), Some("udp")),
                (389, Some("ldap"), Some("tcp")),
                (6379, None, None),
            ]
        );
        let expected = [
            ("10.0.0.1", 8081, 0),
            ("10.0.0.2", 8080, 0),
            ("10.0.0.1", 9000, 0),
            ("10.0.0.1", 5060, 0),
            ("10.0.0.1", 389, 0),
            ("10.0.0.3", 6379, 0),
        ];
        assert_eq!(endpoints(&service), expected);
        assert_eq!(service.instances[0].ports[0].service.number, 8080, "one port of the service for all");
    }

    #[test]
    fn the_best_priority_is_used_or_all_with_their_numbers() {
        let entries = [(
            "_http._tcp.web",
            vec![found("b", "10.0.0.2", (20, 0, 80)), found("a", "10.0.0.1", (10, 0, 80))],
        )];
        assert_eq!(endpoints(&service(Priorities::Best, &entries)), [("10.0.0.1", 80, 0)]);
        let all = service(Priorities::All, &entries);
        let labels: Vec<_> = all.instances.iter().map(|it| &*it.labels[PRIORITY_LABEL]).collect();
        assert_eq!(labels, ["20", "10"]);
    }

    #[test]
    fn weights_are_shared_and_none_beside_others_is_little() {
        for (given, expected) in [
            (&[][..], &[][..]),
            (&[(5, 1)], &[0]),
            (&[(0, 1), (0, 1)], &[0, 0]),
            (&[(7, 1), (7, 1)], &[0, 0]),
            (&[(10, 1), (30, 1)], &[1, 3]),
            (&[(10, 1), (0, 1)], &[1000, 1]),
            // The first target has two addresses.
            (&[(10, 2), (10, 2), (10, 1)], &[1, 1, 2]),
            (&[(0, 2), (0, 2), (0, 1)], &[1, 1, 2]),
            (&[(65_535, 1), (1, 1)], &[65_535, 1]),
        ] {
            let found: Vec<_> = given
                .iter()
                .map(|(weight, addresses)| Found {
                    addresses: *addresses,
                    ..found("a", "10.0.0.1", (0, *weight, 80))
                })
                .collect();
            assert_eq!(weights(&found.iter().collect::<Vec<_>>()), expected, "{given:?}");
        }
    }

    #[test]
    fn a_host_without_servers_keeps_the_ports_that_it_was_given() {
        let service = service(
            Priorities::Best,
            &[("web.example.com:80", vec![]), ("_http._tcp.web.example.com", vec![])],
        );
        assert_eq!((ports(&service), service.instances.len()), (vec![(80, None, None)], 0));
    }
}
