//! The rules of one namespace, those for the same host merged.

use super::policy::over_made;
use crate::engine::{Cx, Query, reference};
use crate::routing::gateway_api::{MadeRule, MadeRulesIn};
use pilotfish_config::networking::{DestinationRule, Subset, TrafficPolicy};
use pilotfish_model::{ExportTo, Hostname, Namespace, Origin, Typed};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most objects in the provenance of a rule: the first ones.
const MAX_PROVENANCE: usize = 64;

/// One or several DestinationRules for one host, as one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MergedDestinationRule {
    /// The namespace of the objects.
    pub namespace: Namespace,
    /// The name of the first object, which stands for all in metadata.
    pub name: Arc<str>,
    /// The policy for the host: of the first object that has one, over that of BackendTLSPolicies.
    pub policy: Option<TrafficPolicy>,
    /// The policy of BackendTLSPolicies alone.
    pub(super) made: Option<TrafficPolicy>,
    /// The subsets of all objects, the first one of each name.
    pub subsets: Vec<Subset>,
    /// Indexes of the subsets by name.
    places: HashMap<String, usize>,
    /// Labels of the proxies that it is for; `None` for all.
    pub selector: Option<BTreeMap<String, String>>,
    pub export_to: ExportTo,
    /// True if an object's TLS settings are unusable: no traffic is sent to the host.
    pub closed: bool,
    pub provenance: Vec<Origin>,
}

/// An object from which rules are made.
struct Source {
    host: Hostname,
    object: Typed<DestinationRule>,
    is_made: bool,
    provenance: Vec<Origin>,
}

impl Source {
    /// Returns `None` for an invalid host.
    fn written(cx: &Cx<'_>, object: Typed<DestinationRule>) -> Option<Self> {
        let host = Hostname::parse(&cx.domain().qualify(&object.host, object.namespace())).ok()?;
        let provenance = vec![reference(&object)];
        Some(Self { host, object, is_made: false, provenance })
    }

    fn made(made: &MadeRule) -> Self {
        let MadeRule { host, rule, provenance } = made.clone();
        Self { host, object: rule, is_made: true, provenance }
    }
}

impl MergedDestinationRule {
    fn new(source: &Source) -> Self {
        let object = &source.object;
        let meta = object.meta();
        let selector = object.workload_selector.as_ref().map(|selector| selector.match_labels.clone());
        let policy = object.traffic_policy.clone();
        let (made, policy) = if source.is_made { (policy, None) } else { (None, policy) };
        let mut rule = Self {
            namespace: meta.key.namespace.clone(),
            name: meta.key.name.clone(),
            policy,
            made,
            subsets: Vec::new(),
            places: HashMap::new(),
            // A rule with a workload selector applies in its own namespace only.
            export_to: match selector {
                Some(_) => ExportTo::parse(["."], &meta.key.namespace),
                None => ExportTo::parse(object.export_to.iter().map(String::as_str), &meta.key.namespace),
            },
            selector,
            closed: object.closed,
            provenance: source.provenance.clone(),
        };
        rule.add_subsets(&object.subsets);
        rule
    }

    /// Merges another object for the same host.
    fn merge(&mut self, source: &Source) {
        self.add_subsets(&source.object.subsets);
        let policy = if source.is_made { &mut self.made } else { &mut self.policy };
        if policy.is_none() {
            policy.clone_from(&source.object.traffic_policy);
        }
        self.closed |= source.object.closed;
        // Every cluster of the host repeats the provenance, so it must be limited.
        let room = MAX_PROVENANCE.saturating_sub(self.provenance.len());
        self.provenance.extend(source.provenance.iter().take(room).cloned());
    }

    /// Merges the written policy over that of BackendTLSPolicies, after all objects are merged.
    fn finish(mut self) -> Self {
        if let Some(made) = &self.made {
            self.policy = Some(over_made(self.policy.take().unwrap_or_default(), made));
        }
        self
    }

    fn add_subsets(&mut self, subsets: &[Subset]) {
        for subset in subsets {
            if let Entry::Vacant(free) = self.places.entry(subset.name.clone()) {
                free.insert(self.subsets.len());
                self.subsets.push(subset.clone());
            }
        }
    }

    /// The subset of that name.
    #[must_use]
    pub(crate) fn subset(&self, name: &str) -> Option<&Subset> {
        self.subsets.get(*self.places.get(name)?)
    }
}

type ByHost = BTreeMap<Hostname, Vec<Arc<MergedDestinationRule>>>;

/// The rules of a namespace, by client namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DestinationRulesIn(pub Namespace);

/// The answer to [`DestinationRulesIn`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NamespaceDestinationRules {
    local: ByHost,
    exported: ByHost,
    root_private: ByHost,
    /// `defaultDestinationRuleExportTo`, for rules of the namespace without `exportTo`.
    default_export: ExportTo,
}

impl NamespaceDestinationRules {
    /// Returns the rules for clients of the namespace itself.
    #[must_use]
    pub(crate) fn local(&self, host: &Hostname) -> Option<&[Arc<MergedDestinationRule>]> {
        most_specific(&self.local, host)
    }

    /// Returns the rules that clients of the root namespace prefer to those of the service's namespace: rules
    /// that are exported to the root namespace alone, because its public rules are defaults for all clients.
    #[must_use]
    pub(crate) fn root_private(&self, host: &Hostname) -> Option<&[Arc<MergedDestinationRule>]> {
        most_specific(&self.root_private, host)
    }

    /// Returns true if a rule for the host has a workload selector for clients of the namespace.
    #[must_use]
    pub(crate) fn any_selects_clients(&self, host: &Hostname) -> bool {
        let lists = [self.local(host), self.root_private(host)];
        lists.into_iter().flatten().flatten().any(|rule| rule.selector.is_some())
    }

    /// Returns the rules that are visible to clients of another namespace.
    #[must_use]
    pub(crate) fn exported(&self, host: &Hostname, client: &Namespace) -> Vec<Arc<MergedDestinationRule>> {
        let rules = most_specific(&self.exported, host).unwrap_or_default();
        let visible = rules.iter().filter(|rule| rule.export_to.visible_to(client, &self.default_export));
        visible.cloned().collect()
    }
}

impl Query for DestinationRulesIn {
    type Output = NamespaceDestinationRules;

    fn compute(&self, cx: &Cx<'_>) -> NamespaceDestinationRules {
        let mesh = cx.mesh();
        let default = mesh.default_destination_rule_export_to.iter().map(String::as_str);
        let default_export = ExportTo::parse(default, &self.0);
        let mut objects = cx.objects_in::<DestinationRule>(&self.0);
        objects.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        let (mut local, mut exported, mut root_private) = <(Lists, Lists, Lists)>::default();
        // Rules that are generated from other kinds take precedence over DestinationRule objects, as if they
        // were older.
        let made = cx.get(&MadeRulesIn(self.0.clone()));
        let written = objects.into_iter().filter_map(|object| Source::written(cx, object));
        for source in made.iter().map(Source::made).chain(written) {
            let rule = MergedDestinationRule::new(&source);
            let export_to = if rule.export_to == ExportTo::Unset { &default_export } else { &rule.export_to };
            let private = match export_to {
                ExportTo::Namespaces(namespaces) => namespaces.len() == 1 && namespaces.contains(&self.0),
                ExportTo::Unset | ExportTo::Public | ExportTo::Nobody => false,
            };
            if export_to.visible_to(&self.0, &ExportTo::Unset) {
                add(&mut local, &rule, &source);
            }
            add(if private { &mut root_private } else { &mut exported }, &rule, &source);
        }
        let (local, exported, root_private) = (shared(local), shared(exported), shared(root_private));
        NamespaceDestinationRules { local, exported, root_private, default_export }
    }
}

/// Rules by host while they are merged.
type Lists = BTreeMap<Hostname, Vec<MergedDestinationRule>>;

/// Merges an object into the rule for the same host, clients and workloads, or appends it. TLS settings of a
/// BackendTLSPolicy apply to all clients of the host, so rules with a workload selector inherit them.
fn add(lists: &mut Lists, rule: &MergedDestinationRule, source: &Source) {
    let list = lists.entry(source.host.clone()).or_default();
    let same = |held: &&mut MergedDestinationRule| {
        held.export_to == rule.export_to && held.selector == rule.selector
    };
    match list.iter_mut().find(same) {
        Some(held) => held.merge(source),
        None => {
            let made = list.first().filter(|first| first.made.is_some() && !source.is_made);
            let merged = made.map(|first| {
                let (export_to, selector) = (rule.export_to.clone(), rule.selector.clone());
                let mut merged = MergedDestinationRule { export_to, selector, policy: None, ..first.clone() };
                merged.merge(source);
                merged
            });
            list.push(merged.unwrap_or_else(|| rule.clone()));
        }
    }
}

fn shared(lists: Lists) -> ByHost {
    lists
        .into_iter()
        .map(|(host, rules)| (host, rules.into_iter().map(|rule| Arc::new(rule.finish())).collect()))
        .collect()
}

/// The rules of the host itself, else those of the longest wildcard that covers it.
fn most_specific<'a>(rules: &'a ByHost, host: &Hostname) -> Option<&'a [Arc<MergedDestinationRule>]> {
    if let Some(exact) = rules.get(host) {
        return Some(exact);
    }
    let text = host.as_str();
    let dots = text.char_indices().filter(|(_, c)| *c == '.').map(|(at, _)| at);
    let wildcards = dots.filter_map(|at| Some(format!("*{}", text.get(at..)?)));
    let mut candidates = wildcards.chain(std::iter::once("*".to_owned()));
    candidates.find_map(|wildcard| rules.get(wildcard.as_str())).map(Vec::as_slice)
}
