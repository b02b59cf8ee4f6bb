//! The rules of one namespace, those for the same host merged.

use super::policy::over_made;
use crate::engine::{Cx, Query, reference};
use crate::routing::gateway_api::{MadeRule, MadeRulesIn};
use pilotfish_config::networking::{DestinationRule, Subset, TrafficPolicy};
use pilotfish_model::{ExportTo, Hostname, Namespace, Origin, Typed};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The objects that a rule of many objects is said to come from: the first ones.
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
    /// Where each of them is.
    places: HashMap<String, usize>,
    /// Labels of the proxies that it is for; `None` for all.
    pub selector: Option<BTreeMap<String, String>>,
    /// Who may see it.
    pub export_to: ExportTo,
    /// Whether the TLS settings of an object cannot be used: nothing is sent to the host.
    pub closed: bool,
    pub provenance: Vec<Origin>,
}

/// An object that rules are made of.
struct Source {
    host: Hostname,
    object: Typed<DestinationRule>,
    is_made: bool,
    provenance: Vec<Origin>,
}

impl Source {
    /// `None` for a host that is none.
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
            // A rule for some workloads never leaves its namespace.
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

    /// Takes up another object for the same host.
    fn merge(&mut self, source: &Source) {
        self.add_subsets(&source.object.subsets);
        let policy = if source.is_made { &mut self.made } else { &mut self.policy };
        if policy.is_none() {
            policy.clone_from(&source.object.traffic_policy);
        }
        self.closed |= source.object.closed;
        // Each cluster of the host names them: as many for each of as many clusters would be too much.
        let room = MAX_PROVENANCE.saturating_sub(self.provenance.len());
        self.provenance.extend(source.provenance.iter().take(room).cloned());
    }

    /// Puts the written policy over that of BackendTLSPolicies, once all objects are merged.
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

/// Rules by host.
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
    /// `defaultDestinationRuleExportTo`, as the namespace's rules without `exportTo` have it.
    default_export: ExportTo,
}

impl NamespaceDestinationRules {
    /// What clients of the namespace itself use.
    #[must_use]
    pub(crate) fn local(&self, host: &Hostname) -> Option<&[Arc<MergedDestinationRule>]> {
        most_specific(&self.local, host)
    }

    /// What clients of the root namespace use of the namespace's rules before those of the service: rules that
    /// were made for them alone, because the public ones there are defaults for all clients.
    #[must_use]
    pub(crate) fn root_private(&self, host: &Hostname) -> Option<&[Arc<MergedDestinationRule>]> {
        most_specific(&self.root_private, host)
    }

    /// Whether a rule for a host selects some of the clients of the namespace.
    #[must_use]
    pub(crate) fn any_selects_clients(&self, host: &Hostname) -> bool {
        let lists = [self.local(host), self.root_private(host)];
        lists.into_iter().flatten().flatten().any(|rule| rule.selector.is_some())
    }

    /// What clients of another namespace may use.
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
        // What is made of other kinds counts as older than what is written.
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

/// Merges an object into the rule for the same host, clients and workloads, or appends it. TLS of a BackendTLSPolicy
/// is for all clients of the host, so each rule for some of them has it below its own settings.
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
