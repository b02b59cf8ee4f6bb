//! Aliases: services of type ExternalName, whose names lead to another service.

use crate::engine::{Cx, Query, Refusal};
use pilotfish_model::{Hostname, Namespace, Origin, Resolution, Service};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most aliases in a row (limit `alias-chain`). An alias of a longer chain has no destination, like one
/// in a loop.
pub(crate) const MAX_ALIAS_CHAIN: usize = 32;

/// Query for the aliases of each service that has any, including aliases of aliases. Ordered by namespace and
/// host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Aliases;

/// The answer to [`Aliases`].
#[derive(Debug, Default, PartialEq)]
struct Chains {
    names: BTreeMap<Hostname, Arc<[Hostname]>>,
    /// The service host at the end of each alias.
    ends: BTreeMap<Hostname, Hostname>,
    /// The first alias of each chain that exceeds the limit.
    too_long: Vec<Origin>,
}

impl Query for Aliases {
    type Output = Chains;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut target: BTreeMap<Hostname, Alias> = BTreeMap::new();
        for service in cx.services().flat_map(|(_, services)| services.iter()) {
            if let Some(to) = external_name(service) {
                target
                    .entry(service.hostname.clone())
                    .or_insert_with(|| Alias { service: service.clone(), to });
            }
        }
        let mut ends = Ends::new(&target);
        let mut found: BTreeMap<Hostname, Vec<(Namespace, Hostname)>> = BTreeMap::new();
        let mut behind = BTreeMap::new();
        for (host, alias) in &target {
            if let Some(end) = ends.of(host) {
                found.entry(end.clone()).or_default().push((alias.service.namespace.clone(), host.clone()));
                behind.insert(host.clone(), end.clone());
            }
        }
        let sorted = found.into_iter().map(|(concrete, mut list)| {
            list.sort();
            (concrete, list.into_iter().map(|(_, host)| host).collect())
        });
        Chains { names: sorted.collect(), ends: behind, too_long: ends.too_long }
    }
}

/// A service that is an alias of another.
struct Alias {
    service: Arc<Service>,
    to: Hostname,
}

fn external_name(service: &Service) -> Option<Hostname> {
    if service.resolution != Resolution::Alias {
        return None;
    }
    Hostname::parse(service.kubernetes.as_ref()?.external_name.as_deref()?).ok()
}

/// Ends of chains of aliases. Each alias is followed once, however many lead to it.
struct Ends<'a> {
    target: &'a BTreeMap<Hostname, Alias>,
    known: HashMap<&'a Hostname, End<'a>>,
    too_long: Vec<Origin>,
}

/// Last host of a chain and number of aliases; `None` for a loop, for a chain that leads into one, and for
/// one that exceeds the limit.
type End<'a> = Option<(&'a Hostname, usize)>;

impl<'a> Ends<'a> {
    fn new(target: &'a BTreeMap<Hostname, Alias>) -> Self {
        Self { target, known: HashMap::new(), too_long: Vec::new() }
    }

    /// Returns the last host of the chain that starts at a host.
    fn of(&mut self, host: &'a Hostname) -> Option<&'a Hostname> {
        let mut passed = Vec::new();
        let mut at = host;
        let end = loop {
            if let Some(known) = self.known.get(at) {
                break *known;
            }
            let Some(alias) = self.target.get(at) else { break Some((at, 0)) };
            // Until its end is known, the name counts as a loop: a chain that returns to it has no end.
            self.known.insert(at, None);
            passed.push((at, alias));
            at = &alias.to;
        };
        let (end, after) = match end {
            Some((end, after)) => (Some(end), after),
            None => (None, 0),
        };
        for ((host, alias), length) in passed.into_iter().rev().zip(after + 1..) {
            self.known.insert(host, end.filter(|_| length <= MAX_ALIAS_CHAIN).map(|end| (end, length)));
            if end.is_some() && length == MAX_ALIAS_CHAIN + 1 {
                self.too_long.push(alias.service.provenance.clone());
            }
        }
        self.known.get(host).copied().flatten().map(|(end, _)| end)
    }
}

/// True if any alias leads to a service. Most worlds have none, and then no host needs a result of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyAlias;

impl Query for AnyAlias {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        !cx.get(&Aliases).names.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AliasesOf(Hostname);

impl Query for AliasesOf {
    type Output = Arc<[Hostname]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&Aliases).names.get(&self.0).cloned().unwrap_or_default()
    }
}

/// Query for the host at the end of an alias; `None` for other hosts, and for aliases without a destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EndOf(Hostname);

impl Query for EndOf {
    type Output = Option<Hostname>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&Aliases).ends.get(&self.0).cloned()
    }
}

/// Query for the aliases of chains that exceed the limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusedAliases;

impl Query for RefusedAliases {
    type Output = Vec<Refusal>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let fault = format!(
            "leads through more than {MAX_ALIAS_CHAIN} aliases (limit alias-chain): this alias has no \
             destination, and neither have aliases that lead to it"
        );
        let refusal = |object: &Origin| Refusal {
            object: object.clone(),
            field: "spec.externalName".to_owned(),
            fault: fault.clone(),
        };
        cx.get(&Aliases).too_long.iter().map(refusal).collect()
    }
}

/// Returns the aliases of a host.
#[must_use]
pub(crate) fn names(cx: &Cx<'_>, host: &Hostname) -> Arc<[Hostname]> {
    if *cx.get(&AnyAlias) { Arc::clone(&cx.get(&AliasesOf(host.clone()))) } else { Arc::default() }
}

/// Returns the host at the end of an alias; `None` for other hosts, and for aliases without a destination.
#[must_use]
pub(crate) fn end(cx: &Cx<'_>, host: &Hostname) -> Option<Hostname> {
    if *cx.get(&AnyAlias) { Option::clone(&cx.get(&EndOf(host.clone()))) } else { None }
}

/// Returns the host of a destination and its service; for an alias those at its end, because its own ports
/// are ignored. `find` looks up a host from the client's perspective. An alias of a host that the client does
/// not see leads to the name in the alias.
#[must_use]
pub(crate) fn behind(
    cx: &Cx<'_>,
    host: &str,
    find: impl Fn(&Hostname) -> Option<Arc<Service>>,
) -> (Arc<str>, Option<Arc<Service>>) {
    let service = Hostname::parse(host).ok().and_then(|host| find(&host));
    let alias = service.as_ref().filter(|service| service.resolution == Resolution::Alias);
    let Some(alias) = alias else { return (host.into(), service) };
    let seen = end(cx, &alias.hostname).and_then(|end| Some((end.text(), find(&end)?)));
    if let Some((host, target)) = seen {
        return (host, Some(target));
    }
    let name = alias.kubernetes.as_ref().and_then(|kubernetes| kubernetes.external_name.clone());
    (name.unwrap_or_else(|| host.into()), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluate, service, world};
    use pilotfish_model::{KubernetesAttributes, ServiceKey, Update};

    fn alias(name: &str, to: &str) -> Update {
        let to = format!("{to}.shop.svc.cluster.local");
        let service = service(name, "shop").with(|service| {
            service.resolution = Resolution::Alias;
            service.kubernetes = Some(Arc::new(KubernetesAttributes {
                external_name: Some(to.as_str().into()),
                ..KubernetesAttributes::default()
            }));
        });
        service.update()
    }

    fn names_of(world: &Arc<pilotfish_model::World>, host: &str) -> Vec<String> {
        let host = Hostname::of_kubernetes_service(host, "shop", "cluster.local").unwrap();
        let names = evaluate(world, &AliasesOf(host));
        names.iter().filter_map(|name| name.as_str().split('.').next().map(str::to_owned)).collect()
    }

    #[test]
    fn aliases_of_aliases_lead_to_the_service_and_loops_nowhere() {
        let world = world([
            service("web", "shop").update(),
            alias("a", "web"),
            alias("b", "a"),
            alias("c", "d"),
            alias("d", "c"),
            alias("e", "c"),
        ]);
        assert_eq!(names_of(&world, "web"), ["a", "b"]);
        assert!(names_of(&world, "c").is_empty());
        assert!(evaluate(&world, &RefusedAliases).is_empty());
    }

    #[test]
    fn destination_is_the_service_behind_all_aliases() {
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        struct Behind(&'static str);

        impl Query for Behind {
            type Output = (String, bool);

            fn compute(&self, cx: &Cx<'_>) -> Self::Output {
                let find = |host: &Hostname| {
                    let key = |namespace| ServiceKey { hostname: host.clone(), namespace };
                    let mut namespaces = cx.namespaces_of(host).into_iter();
                    namespaces.find_map(|namespace| cx.services_of(&key(namespace))?.first().cloned())
                };
                let (host, service) = behind(cx, &format!("{}.shop.svc.cluster.local", self.0), find);
                (host.split('.').next().unwrap().to_owned(), service.is_some())
            }
        }

        let world = world([
            service("web", "shop").update(),
            alias("a", "web"),
            alias("b", "a"),
            alias("c", "d"),
            alias("d", "c"),
            alias("out", "outside"),
        ]);
        for (host, end, is_seen) in [
            ("web", "web", true),
            ("a", "web", true),
            ("b", "web", true),
            ("c", "d", false),
            ("out", "outside", false),
            ("absent", "absent", false),
        ] {
            assert_eq!(*evaluate(&world, &Behind(host)), (end.to_owned(), is_seen), "{host}");
        }
    }

    #[test]
    fn a_chain_that_is_too_long_is_cut_and_named() {
        let chain = |length: usize, order: &dyn Fn(usize) -> usize| {
            let name = |n: usize| format!("a{:05}", order(n));
            let first = alias(&name(1), "web");
            let others = (2..=length).map(|n| alias(&name(n), &name(n - 1)));
            world(std::iter::once(service("web", "shop").update()).chain([first]).chain(others))
        };
        assert_eq!(names_of(&chain(MAX_ALIAS_CHAIN, &|n| n), "web").len(), MAX_ALIAS_CHAIN);
        // Whichever end of the chain comes first in the order of names.
        for order in [&(|n: usize| n) as &dyn Fn(usize) -> usize, &|n: usize| 99_999 - n] {
            let world = chain(5_000, order);
            assert_eq!(names_of(&world, "web").len(), MAX_ALIAS_CHAIN);
            let refused = evaluate(&world, &RefusedAliases);
            let expected = format!("Service shop/a{:05}", order(MAX_ALIAS_CHAIN + 1));
            assert_eq!(refused.iter().map(|it| it.object.to_string()).collect::<Vec<_>>(), [expected]);
        }
    }
}
