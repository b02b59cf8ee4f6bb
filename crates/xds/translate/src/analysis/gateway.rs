//! Gateways: their workloads, their certificates, and conflicts with others.

use super::finding::{Report, listed};
use super::workloads::{LabelsIn, Selected};
use super::{Code, Completeness, Known};
use crate::credentials::{BUILT_IN, KeyPairIn, Unusable};
use crate::engine::{Cx, Query};
use crate::routing::ir::ServerHost;
use pilotfish_config::did_you_mean;
use pilotfish_config::kubernetes::Secret;
use pilotfish_config::networking::{Gateway, ServerTlsMode, ServerTlsSettings};
use pilotfish_model::{Namespace, ObjectKey, TargetPort, Typed, label_subset};
use std::collections::{BTreeMap, BTreeSet};

/// Checks all references of a Gateway.
pub(super) fn check(report: &mut Report<'_, '_>, known: Known, object: &Typed<Gateway>) {
    let selected = match object.selector.is_empty() {
        true => None,
        false => Option::clone(&report.cx.get(&Selected::new(None, &object.selector))),
    };
    if selected.as_ref().is_some_and(BTreeSet::is_empty) {
        let message = format!("no workload has the labels {}", pairs(&object.selector));
        report.absent("spec.selector", message, None);
    }
    let homes = selected.filter(|selected| !selected.is_empty());
    check_credentials(report, known, object, homes.as_ref());
    if let Some(homes) = &homes {
        check_ports(report, object, homes);
    }
    let shared = report.cx.get(&SharedBy(report.key().clone()));
    for (code, path, message) in shared.iter() {
        report.add(*code, path, message.clone());
    }
}

pub(super) fn pairs(labels: &BTreeMap<String, String>) -> String {
    listed(labels.iter().map(|(key, value)| format!("{key}={value}")))
}

/// Reports missing and unusable Secrets of servers. They are in the namespace of the gateway's workloads.
fn check_credentials(
    report: &mut Report<'_, '_>,
    known: Known,
    object: &Typed<Gateway>,
    homes: Option<&BTreeSet<Namespace>>,
) {
    let own = BTreeSet::from([object.namespace().clone()]);
    for (index, server) in object.servers.iter().enumerate() {
        let Some(tls) = &server.tls else { continue };
        for (field, name) in names(tls) {
            let path = format!("spec.servers[{index}].tls.{field}");
            check_secret(report, known, &path, name, homes.unwrap_or(&own), homes.is_some());
        }
    }
}

/// Returns the Secrets of a server, by the fields with their names.
fn names(tls: &ServerTlsSettings) -> impl Iterator<Item = (String, &str)> {
    let is_used = !matches!(
        tls.mode,
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough | ServerTlsMode::IstioMutual
    );
    let single = std::iter::once(("credentialName".to_owned(), tls.credential_name.as_str()));
    let several = tls.credential_names.iter().enumerate();
    let several = several.map(|(index, name)| (format!("credentialNames[{index}]"), name.as_str()));
    // Names with a scheme are passed to the proxy unchanged and name no Secret here.
    let is_plain = |name: &str| !name.is_empty() && name != BUILT_IN && !name.contains("://");
    single.chain(several).filter(move |(_, name)| is_used && is_plain(name))
}

fn check_secret(
    report: &mut Report<'_, '_>,
    known: Known,
    path: &str,
    name: &str,
    homes: &BTreeSet<Namespace>,
    is_certain: bool,
) {
    let outcome = |namespace: &Namespace| {
        let query = KeyPairIn { namespace: namespace.clone(), name: name.into() };
        Result::clone(&report.cx.get(&query))
    };
    let outcomes: Vec<_> = homes.iter().map(outcome).collect();
    if outcomes.iter().any(Result::is_ok) {
        return;
    }
    let absent = outcomes.iter().all(|outcome| *outcome == Err(Unusable::Absent));
    if let (false, Some(Err(error))) =
        (absent, outcomes.iter().find(|outcome| **outcome != Err(Unusable::Absent)))
    {
        let message = format!("the Secret {name:?} {error}; connections to the server fail");
        return report.add(Code::InvalidGatewayCredential, path, message);
    }
    let secrets = report.cx.get(&SecretNames);
    let elsewhere: Vec<&Namespace> =
        secrets.iter().filter(|(_, names)| names.contains(name)).map(|(namespace, _)| namespace).collect();
    // The namespace of unknown workloads is unknown, too.
    if !is_certain && !elsewhere.is_empty() || known.secrets == Completeness::Partly && secrets.is_empty() {
        return;
    }
    let hint = match elsewhere.is_empty() {
        true => {
            let near = homes.iter().filter_map(|namespace| secrets.get(namespace)).flatten();
            did_you_mean(name, near.map(String::as_str))
        }
        false => Some(format!("there is one in namespace {}", listed(elsewhere))),
    };
    let message = format!(
        "there is no Secret {name:?} with a certificate in namespace {}; connections to the server fail",
        listed(homes)
    );
    report.absent(path, message, hint);
}

/// The names of all Secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SecretNames;

impl Query for SecretNames {
    type Output = BTreeMap<Namespace, BTreeSet<String>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out: BTreeMap<Namespace, BTreeSet<String>> = BTreeMap::new();
        for secret in cx.objects::<Secret>() {
            out.entry(secret.namespace().clone()).or_default().insert(secret.name().to_owned());
        }
        out
    }
}

/// Reports ports that no Service maps, if any Service selects the workloads.
fn check_ports(report: &mut Report<'_, '_>, object: &Gateway, homes: &BTreeSet<Namespace>) {
    let query =
        |namespace: &Namespace| PortsTo { namespace: namespace.clone(), selector: object.selector.clone() };
    let reached: Vec<_> = homes.iter().map(|namespace| report.cx.get(&query(namespace))).collect();
    if reached.iter().all(|ports| ports.is_empty()) {
        return;
    }
    for (index, server) in object.servers.iter().enumerate() {
        let Some(port) = &server.port else { continue };
        if !reached.iter().any(|ports| ports.contains(&port.number)) {
            let all = reached.iter().flat_map(|ports| ports.iter()).collect::<BTreeSet<_>>();
            let message =
                format!("no Service leads to port {} of the workloads, but to {}", port.number, listed(all));
            report.add(
                Code::GatewayPortNotDefinedOnService,
                format!("spec.servers[{index}].port.number"),
                message,
            );
        }
    }
}

/// Query for the ports, and their target ports, of the Services that select workloads with some labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortsTo {
    namespace: Namespace,
    selector: BTreeMap<String, String>,
}

impl Query for PortsTo {
    type Output = BTreeSet<u32>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let labels = cx.get(&LabelsIn(self.namespace.clone()));
        let workloads: Vec<_> = labels.iter().filter(|labels| label_subset(&self.selector, labels)).collect();
        let of_namespace = cx.services().filter(|(key, _)| key.namespace == self.namespace);
        let services = of_namespace.flat_map(|(_, services)| services.iter());
        let leads = services.filter(|service| {
            !service.selector.is_empty()
                && workloads.iter().any(|labels| label_subset(&*service.selector, labels))
        });
        leads
            .flat_map(|service| service.tcp_ports())
            .flat_map(|port| match &port.target_port {
                Some(TargetPort::Number(number)) => vec![port.number, *number],
                _ => vec![port.number],
            })
            .collect()
    }
}

/// Conflicts of a Gateway with other Gateways: code, path and message of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SharedBy(ObjectKey);

impl Query for SharedBy {
    type Output = Vec<(Code, String, String)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&Shared).get(&self.0).cloned().unwrap_or_default()
    }
}

/// Conflicts of all Gateways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shared;

/// Workloads, port and address of a server.
type Place<'a> = (&'a BTreeMap<String, String>, u32, &'a str);

impl Query for Shared {
    type Output = BTreeMap<ObjectKey, Vec<(Code, String, String)>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut gateways: Vec<Typed<Gateway>> = cx.objects::<Gateway>().collect();
        gateways.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        let mut out = BTreeMap::new();
        same_hosts(&gateways, &mut out);
        same_certificates(&gateways, &mut out);
        out
    }
}

type Messages = BTreeMap<ObjectKey, Vec<(Code, String, String)>>;

/// Reports servers of two Gateways for the same host, workloads, port and address: the first one takes
/// precedence.
fn same_hosts(gateways: &[Typed<Gateway>], out: &mut Messages) {
    let mut first: BTreeMap<(Place<'_>, ServerHost), &Typed<Gateway>> = BTreeMap::new();
    for gateway in gateways {
        for (index, server) in gateway.servers.iter().enumerate() {
            let Some(port) = &server.port else { continue };
            let place = (&gateway.selector, port.number, server.bind.as_str());
            let hosts = server.hosts.iter().filter_map(|host| ServerHost::parse(host, gateway.namespace()));
            for host in hosts {
                let name = host.host.clone();
                let owner = *first.entry((place, host)).or_insert(gateway);
                if owner.key() != gateway.key() {
                    let message = format!(
                        "{} takes precedence for the host {name} on port {}",
                        owner.key(),
                        port.number
                    );
                    let path = format!("spec.servers[{index}].hosts");
                    let messages = out.entry(gateway.key().clone()).or_default();
                    messages.push((Code::ConflictingGateways, path, message));
                }
            }
        }
    }
}

/// A certificate: the workloads that present it, and its name.
type Certificate<'a> = (&'a BTreeMap<String, String>, &'a str);

/// Reports certificates that servers use for different hosts: clients that reuse an HTTP/2 connection get 404
/// for the other hosts.
fn same_certificates(gateways: &[Typed<Gateway>], out: &mut Messages) {
    let mut users: BTreeMap<Certificate<'_>, Vec<(&Typed<Gateway>, usize)>> = BTreeMap::new();
    for gateway in gateways {
        for (index, server) in gateway.servers.iter().enumerate() {
            for (_, name) in server.tls.iter().flat_map(names) {
                users.entry((&gateway.selector, name)).or_default().push((gateway, index));
            }
        }
    }
    for ((_, name), users) in users {
        let names: BTreeSet<&ObjectKey> = users.iter().map(|(gateway, _)| gateway.key()).collect();
        if names.len() < 2 {
            continue;
        }
        for (gateway, index) in users {
            let others = listed(names.iter().filter(|other| **other != gateway.key()));
            let message = format!(
                "{others} shows the certificate {name:?}, too: clients that reuse an HTTP/2 connection get \
                 404 for its hosts"
            );
            let messages = out.entry(gateway.key().clone()).or_default();
            messages.push((Code::GatewayDuplicateCertificate, format!("spec.servers[{index}].tls"), message));
        }
    }
}
