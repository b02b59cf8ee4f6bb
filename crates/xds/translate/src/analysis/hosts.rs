//! Hosts in configuration: their services, and likely corrections.

use super::{Completeness, Known};
use crate::engine::{Cx, Query};
use pilotfish_config::{did_you_mean, nearest};
use pilotfish_model::{Hostname, Namespace, Service, ServiceKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most names with which one is compared: the cost is the product of their lengths.
const MOST_COMPARED: usize = 2_000;

/// Result of a host lookup.
pub(super) enum Lookup {
    /// The services that have it, of all namespaces.
    Services(Vec<Arc<Service>>),
    /// No service has it; with the host that was likely meant.
    Absent(Option<String>),
    /// The known objects do not suffice to decide.
    Unknown,
}

/// Looks up a full host name.
pub(super) fn look_up(cx: &Cx<'_>, known: Known, host: &Hostname) -> Lookup {
    let found = services_of(cx, host);
    if !found.is_empty() {
        return Lookup::Services(found);
    }
    let names = cx.get(&HostNames);
    let hint = covering(cx, host).or_else(|| names.nearest(cx, host));
    let like_it = || names.has_like(cx, host);
    if known.services == Completeness::Partly && hint.is_none() && !like_it() {
        return Lookup::Unknown;
    }
    Lookup::Absent(hint)
}

/// The services of a host in all namespaces.
pub(super) fn services_of(cx: &Cx<'_>, host: &Hostname) -> Vec<Arc<Service>> {
    let keys = cx.namespaces_of(host).into_iter();
    let keys = keys.map(|namespace| ServiceKey { hostname: host.clone(), namespace });
    keys.filter_map(|key| cx.services_of(&key)).flat_map(|services| services.to_vec()).collect()
}

/// Returns the wildcards that cover a host, the longest first.
pub(super) fn wildcards_above(host: &Hostname) -> impl Iterator<Item = Hostname> {
    let text = host.as_str();
    // A wildcard does not cover itself.
    let ends = text.match_indices('.').skip(usize::from(host.is_wildcard()));
    let ends = ends.filter_map(|(at, _)| text.get(at..)).chain((text != "*").then_some(""));
    ends.filter_map(|end| Hostname::parse(&format!("*{end}")).ok())
}

/// Returns a hint if a service with a wildcard host covers the host: its clusters have the wildcard's name.
fn covering(cx: &Cx<'_>, host: &Hostname) -> Option<String> {
    let wildcard = wildcards_above(host).find(|wildcard| !cx.namespaces_of(wildcard).is_empty())?;
    Some(format!(
        "{wildcard} has the cluster {wildcard} and none for each host below it: name that, or add a \
         ServiceEntry for this host"
    ))
}

/// True if any service has a host that a wildcard covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AnyBelow(pub(super) Hostname);

impl Query for AnyBelow {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        cx.services().any(|(key, _)| key.hostname.is_subset_of(&self.0))
    }
}

/// Query for all hosts, to find the one that was likely meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostNames;

/// The answer to [`HostNames`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct Names {
    /// The names of Services by namespace.
    services: BTreeMap<Namespace, BTreeSet<Arc<str>>>,
    /// The namespaces of Services by their names.
    namespaces: BTreeMap<Arc<str>, BTreeSet<Namespace>>,
    /// Hosts that are not names of Kubernetes Services.
    others: BTreeSet<Hostname>,
}

impl Query for HostNames {
    type Output = Names;

    fn compute(&self, cx: &Cx<'_>) -> Names {
        let mut names = Names::default();
        for (key, _) in cx.services() {
            match short(cx, &key.hostname) {
                Some((name, namespace)) => {
                    let (name, namespace): (Arc<str>, Namespace) = (name.into(), namespace.into());
                    names.services.entry(namespace.clone()).or_default().insert(name.clone());
                    names.namespaces.entry(name).or_default().insert(namespace);
                }
                None => drop(names.others.insert(key.hostname.clone())),
            }
        }
        names
    }
}

/// The name and the namespace in the host of a Kubernetes Service.
pub(super) fn short<'h>(cx: &Cx<'_>, host: &'h Hostname) -> Option<(&'h str, &'h str)> {
    let domain = cx.domain().service("", &Namespace::default());
    // With an empty name and namespace, the domain follows two dots, of which one is stripped here.
    let end = domain.strip_prefix('.')?;
    let (name, namespace) = host.as_str().strip_suffix(end)?.split_once('.')?;
    (!namespace.contains('.')).then_some((name, namespace))
}

impl Names {
    /// `did you mean "..."?`: a Service of the same namespace with a name like it, or of the same name in
    /// another namespace.
    fn nearest(&self, cx: &Cx<'_>, host: &Hostname) -> Option<String> {
        let Some((name, namespace)) = short(cx, host) else {
            let length = host.as_str().len();
            let alike = |other: &&Hostname| other.as_str().len().abs_diff(length) <= 4;
            let others = self.others.iter().filter(alike).take(MOST_COMPARED);
            return self
                .without_domain(host)
                .or_else(|| did_you_mean(host.as_str(), others.map(Hostname::as_str)));
        };
        let own = self.services.get(namespace).into_iter().flatten();
        if let Some(hint) = did_you_mean(name, own.map(|name| &**name).take(MOST_COMPARED)) {
            return Some(hint);
        }
        let elsewhere = self.namespaces.get(name)?;
        let meant = nearest(namespace, elsewhere.iter().map(Namespace::as_str).take(MOST_COMPARED));
        match (meant, elsewhere.iter().next()) {
            (Some(namespace), _) => Some(format!("did you mean \"{name}.{namespace}\"?")),
            (None, Some(only)) if elsewhere.len() == 1 => {
                Some(format!("there is a {name:?} in namespace {only}"))
            }
            (None, _) => None,
        }
    }

    /// `web.shop` names no Service: only names without a dot are completed.
    fn without_domain(&self, host: &Hostname) -> Option<String> {
        let mut parts = host.as_str().split('.');
        let (name, namespace) = (parts.next()?, parts.next()?);
        let is_there = self.services.get(namespace).is_some_and(|names| names.contains(name));
        is_there.then(|| {
            format!(
                "write the Service {name} of namespace {namespace} as its full host name; only a name \
                without a dot is completed"
            )
        })
    }

    /// Returns true if names are known that the host may be a misspelling of: Services of its namespace, or
    /// any other host.
    fn has_like(&self, cx: &Cx<'_>, host: &Hostname) -> bool {
        match short(cx, host) {
            Some((_, namespace)) => self.services.contains_key(namespace),
            None => !self.others.is_empty(),
        }
    }

    pub(super) fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.services.contains_key(namespace)
    }
}
