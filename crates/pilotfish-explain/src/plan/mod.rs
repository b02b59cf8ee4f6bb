//! What a change would do: the resources of some proxies in two worlds.
//!
//! A translator of its own makes them, so that streams go on undisturbed; it is the same translation that streams are served from, and
//! what differs between the worlds is found by hash. Only what differs is decoded.

mod danger;
mod diff;
mod references;
mod scene;

use crate::resource::{json, section};
use crate::subject::Subject;
pub use diff::unified;
pub use scene::{Held, held};

use danger::Dangers;
use pilotfish_api::v1::{Danger, Impact, Plan, PlanChange, Section, Severity};
use pilotfish_model::{ChangeSet, Fact, World};
use pilotfish_proto::ResourceType;
use pilotfish_translate::{EncodedResource, Translator};
use scene::Scene;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Bytes of all diffs of an answer.
const DIFF_BYTES: usize = 4 << 20;
/// Names of proxies that are listed for one group, and examples of those that a danger concerns.
const NAMES: usize = 100;
const EXAMPLES: usize = 10;

/// The change that is looked at.
pub struct Planned {
    /// The world as it is.
    pub before: Arc<World>,
    /// The world as it would be.
    pub after: Arc<World>,
    /// What differs between them.
    pub changes: ChangeSet,
    /// How many objects differ.
    pub objects: usize,
}

/// What would change for some proxies. `empty` is a translator without a world, with the settings of the one that serves.
#[must_use]
pub fn plan(empty: &Translator, planned: &Planned, subjects: &[Subject]) -> Plan {
    let mut plan = Plan { objects: planned.objects, proxies: subjects.len(), ..Plan::default() };
    if planned.changes.is_empty() {
        return plan;
    }
    let scene = Scene::open(empty, planned, subjects);
    let mut found = Found { objects: changed_objects(planned), ..Found::default() };
    for (subject, (before, after)) in subjects.iter().zip(&scene.held) {
        found.compare(&subject.name, before, after);
    }
    found.finish(&mut plan);
    plan
}

/// A resource before and after: equal keys are the same change for all who get it.
type ChangeKey = (Section, Arc<str>, u64, u64);

/// What differs, over all proxies.
#[derive(Default)]
struct Found {
    /// The place of each change in the lists.
    places: HashMap<ChangeKey, usize>,
    /// What was found for those who have the same, by where it is in memory.
    compared: HashMap<Vec<usize>, (Vec<usize>, Vec<String>)>,
    /// The objects that are changed.
    objects: BTreeSet<String>,
    changes: Vec<(PlanChange, Vec<String>)>,
    /// The places of what a group of proxies gets, with their names.
    groups: BTreeMap<Vec<usize>, Vec<String>>,
    dangers: BTreeMap<String, Vec<String>>,
    proxies: usize,
    diff_bytes: usize,
    truncated: bool,
}

impl Found {
    /// Notes what differs for a proxy.
    fn compare(&mut self, proxy: &str, before: &Held, after: &Held) {
        // Proxies with the same views and subscriptions share what they have: it is compared once.
        let key: Vec<usize> = [before, after].into_iter().flat_map(Held::addresses).collect();
        let known = self.compared.get(&key).cloned();
        let (places, leading_nowhere) = known.unwrap_or_else(|| {
            let compared = (self.differences(before, after), Dangers::of_references(before, after));
            self.compared.insert(key, compared.clone());
            compared
        });
        if places.is_empty() {
            return;
        }
        self.proxies += 1;
        for place in &places {
            if let Some((change, dangers)) = self.changes.get_mut(*place) {
                change.proxies += 1;
                for danger in dangers {
                    self.dangers.entry(danger.clone()).or_default().push(proxy.to_owned());
                }
            }
        }
        for danger in leading_nowhere {
            self.dangers.entry(danger).or_default().push(proxy.to_owned());
        }
        self.groups.entry(places).or_default().push(proxy.to_owned());
    }

    /// The places of all that differs.
    fn differences(&mut self, before: &Held, after: &Held) -> Vec<usize> {
        let mut places = Vec::new();
        for ty in ResourceType::ALL {
            let none = Arc::default();
            let (old, new) = (before.of.get(&ty).unwrap_or(&none), after.of.get(&ty).unwrap_or(&none));
            let names: BTreeSet<&Arc<str>> = old.keys().chain(new.keys()).collect();
            for name in names {
                let (old, new) = (old.get(name), new.get(name));
                let version =
                    |resource: Option<&EncodedResource>| resource.map_or(0, |resource| resource.version);
                if version(old) != version(new) {
                    places.push(self.change(section(ty), name, old, new));
                }
            }
        }
        places
    }

    /// The place of a change, which is looked at once.
    fn change(
        &mut self,
        section: Section,
        name: &Arc<str>,
        old: Option<&EncodedResource>,
        new: Option<&EncodedResource>,
    ) -> usize {
        let version = |resource: Option<&EncodedResource>| resource.map_or(0, |resource| resource.version);
        let key = (section, name.clone(), version(old), version(new));
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let show = |resource: Option<&EncodedResource>| {
            resource.map_or(Value::Null, |resource| json(&resource.body))
        };
        let (before, after) = (show(old), show(new));
        let dangers = Dangers::of_change(section, name, &before, &after);
        let mut diff = String::new();
        if self.diff_bytes < DIFF_BYTES {
            diff = diff::unified(&before, &after);
            self.diff_bytes += diff.len();
        } else {
            self.truncated = true;
        }
        let hash = |resource: Option<&EncodedResource>| {
            resource.map_or_else(String::new, |resource| format!("{:016x}", resource.version))
        };
        let made_by: BTreeSet<String> = [old, new]
            .into_iter()
            .flatten()
            .flat_map(|resource| resource.provenance.iter().map(ToString::to_string))
            .collect();
        // What changed is named first: the routes of a port are made by all of its services.
        let (changed, others): (Vec<String>, Vec<String>) =
            made_by.into_iter().partition(|object| self.objects.contains(object));
        let what = match (old, new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        let change = PlanChange {
            section,
            name: name.to_string(),
            what: what.to_owned(),
            before: hash(old),
            after: hash(new),
            proxies: 0,
            made_by: changed.into_iter().chain(others).collect(),
            diff,
        };
        let place = self.changes.len();
        self.changes.push((change, dangers));
        self.places.insert(key, place);
        place
    }

    fn finish(self, plan: &mut Plan) {
        plan.proxies_changed = self.proxies;
        plan.resources = self.changes.len();
        plan.truncated = self.truncated;
        plan.changes = self.changes.into_iter().map(|(change, _)| change).collect();
        plan.dangers = self.dangers.into_iter().map(|(what, proxies)| danger(what, proxies)).collect();
        plan.dangers.sort_by(|a, b| b.proxies.cmp(&a.proxies).then_with(|| a.what.cmp(&b.what)));
        plan.impact = self.groups.into_iter().map(|(changes, names)| impact(changes, names)).collect();
        plan.impact.sort_by(|a, b| b.proxies.cmp(&a.proxies).then_with(|| a.names.cmp(&b.names)));
        plan.severity = match (plan.dangers.is_empty(), plan.changes.is_empty()) {
            (false, _) => Severity::Dangerous,
            (true, false) => Severity::Changes,
            (true, true) => Severity::Nothing,
        };
    }
}

/// The objects of which facts changed. Of what registries make, those are the objects that made it.
fn changed_objects(planned: &Planned) -> BTreeSet<String> {
    let Planned { before, after, changes, .. } = planned;
    let of = |fact: &Fact| match fact {
        Fact::Object(key) => vec![key.to_string()],
        Fact::Service(key) => [before, after]
            .into_iter()
            .filter_map(|world| world.services_of(key))
            .flat_map(|services| services.iter().map(|service| service.provenance.to_string()))
            .collect(),
        Fact::Endpoints(key) => [before, after]
            .into_iter()
            .filter_map(|world| world.endpoints_of(key))
            .flat_map(|all| all.iter().map(|endpoint| endpoint.attributes.provenance.to_string()))
            .collect(),
        _ => Vec::new(),
    };
    changes.facts.iter().flat_map(of).collect()
}

fn danger(what: String, mut proxies: Vec<String>) -> Danger {
    proxies.dedup();
    let count = proxies.len();
    proxies.truncate(EXAMPLES);
    Danger { what, proxies: count, examples: proxies }
}

fn impact(changes: Vec<usize>, mut names: Vec<String>) -> Impact {
    let proxies = names.len();
    names.truncate(NAMES);
    Impact { proxies, names, changes }
}

#[cfg(test)]
mod gateway_tests;
#[cfg(test)]
mod tests;
