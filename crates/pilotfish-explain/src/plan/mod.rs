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
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of all diffs of an answer.
const DIFF_BYTES: usize = 4 << 20;
/// Encoded bytes of a resource, before and after, beyond which it is named without diff and dangers.
const SHOWN_BYTES: usize = 4 << 20;
/// Resources that are listed.
const LISTED: usize = 5_000;
/// Numbers of resources that all groups of proxies list together.
const PLACES: usize = 200_000;
/// Dangers that are listed.
const DANGERS: usize = 1_000;
/// Objects that are named for one resource.
const MADE_BY: usize = 100;
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
    plan_until(empty, planned, subjects, &|| false).unwrap_or_default()
}

/// The same as [`plan`]; `None` if `is_cancelled` meanwhile, which is asked for each resource.
#[must_use]
pub fn plan_until(
    empty: &Translator,
    planned: &Planned,
    subjects: &[Subject],
    is_cancelled: &dyn Fn() -> bool,
) -> Option<Plan> {
    let mut plan = Plan { objects: planned.objects, proxies: subjects.len(), ..Plan::default() };
    if planned.changes.is_empty() {
        return Some(plan);
    }
    let scene = Scene::open(empty, planned, subjects, is_cancelled)?;
    let mut found = Found { objects: changed_objects(planned), ..Found::default() };
    for (subject, (before, after)) in subjects.iter().zip(&scene.held) {
        found.compare(&subject.name, before, after, is_cancelled)?;
    }
    found.finish(&mut plan);
    Some(plan)
}

/// A resource before and after: equal keys are the same change for all who get it.
type ChangeKey = (Section, Arc<str>, u64, u64);

/// What differs, over all proxies.
#[derive(Default)]
struct Found {
    /// The place of each change in the lists.
    places: HashMap<ChangeKey, usize>,
    /// What was found for those who have the same, by where it is in memory.
    compared: HashMap<Vec<usize>, Compared>,
    /// The objects that are changed.
    objects: BTreeSet<String>,
    changes: Vec<(PlanChange, Vec<String>)>,
    /// The places of what a group of proxies gets, with their names.
    groups: BTreeMap<Rc<[usize]>, Vec<String>>,
    dangers: BTreeMap<String, Concerned>,
    /// Resources that differ and are not listed.
    unlisted: HashSet<ChangeKey>,
    proxies: usize,
    diff_bytes: usize,
    truncated: bool,
}

/// Differences between the resources of proxies before and after.
#[derive(Clone)]
struct Compared {
    /// The places of listed changes.
    places: Rc<[usize]>,
    /// True if others are not listed.
    has_more: bool,
    leading_nowhere: Rc<[String]>,
}

/// The proxies that a danger concerns.
#[derive(Default)]
struct Concerned {
    count: usize,
    last: String,
    examples: Vec<String>,
}

impl Concerned {
    /// Adds a proxy. Those of one proxy come one after the other.
    fn add(&mut self, proxy: &str) {
        if self.last == proxy {
            return;
        }
        self.count += 1;
        proxy.clone_into(&mut self.last);
        if self.examples.len() < EXAMPLES {
            self.examples.push(proxy.to_owned());
        }
    }
}

impl Found {
    /// Notes what differs for a proxy; `None` if cancelled.
    fn compare(
        &mut self,
        proxy: &str,
        before: &Held,
        after: &Held,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<()> {
        // Proxies with the same views and subscriptions share what they have: it is compared once.
        let key: Vec<usize> = [before, after].into_iter().flat_map(Held::addresses).collect();
        let compared = match self.compared.get(&key) {
            Some(known) => known.clone(),
            None => {
                let compared = self.differences(before, after, is_cancelled)?;
                self.compared.insert(key, compared.clone());
                compared
            }
        };
        if compared.places.is_empty() && !compared.has_more {
            return Some(());
        }
        self.proxies += 1;
        for place in compared.places.iter() {
            if let Some((change, dangers)) = self.changes.get_mut(*place) {
                change.proxies += 1;
                for danger in dangers {
                    concern(&mut self.dangers, danger, proxy);
                }
            }
        }
        for danger in compared.leading_nowhere.iter() {
            concern(&mut self.dangers, danger, proxy);
        }
        self.groups.entry(compared.places).or_default().push(proxy.to_owned());
        Some(())
    }

    /// All that differs; `None` if cancelled.
    fn differences(
        &mut self,
        before: &Held,
        after: &Held,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Compared> {
        let (mut places, mut has_more) = (Vec::new(), false);
        for ty in ResourceType::ALL {
            let none = Arc::default();
            let (old, new) = (before.of.get(&ty).unwrap_or(&none), after.of.get(&ty).unwrap_or(&none));
            let names: BTreeSet<&Arc<str>> = old.keys().chain(new.keys()).collect();
            for name in names {
                let (old, new) = (old.get(name), new.get(name));
                let version =
                    |resource: Option<&EncodedResource>| resource.map_or(0, |resource| resource.version);
                if is_cancelled() {
                    return None;
                }
                if version(old) != version(new) {
                    match self.change(section(ty), name, old, new) {
                        Some(place) => places.push(place),
                        None => has_more = true,
                    }
                }
            }
        }
        let leading_nowhere = Dangers::of_references(before, after).into_iter().take(DANGERS).collect();
        Some(Compared { places: places.into(), has_more, leading_nowhere })
    }

    /// The place of a change, which is looked at once; `None` if it is not listed.
    fn change(
        &mut self,
        section: Section,
        name: &Arc<str>,
        old: Option<&EncodedResource>,
        new: Option<&EncodedResource>,
    ) -> Option<usize> {
        let version = |resource: Option<&EncodedResource>| resource.map_or(0, |resource| resource.version);
        let key = (section, name.clone(), version(old), version(new));
        if let Some(place) = self.places.get(&key) {
            return Some(*place);
        }
        if self.changes.len() >= LISTED {
            self.unlisted.insert(key);
            return None;
        }
        let show = |resource: Option<&EncodedResource>| {
            resource.map_or(Value::Null, |resource| json(&resource.body))
        };
        let bytes: usize = [old, new].into_iter().flatten().map(|resource| resource.body.len()).sum();
        let is_shown = bytes <= SHOWN_BYTES;
        let (before, after) = if is_shown { (show(old), show(new)) } else { (Value::Null, Value::Null) };
        let dangers = Dangers::of_change(section, name, &before, &after);
        let mut diff = String::new();
        if is_shown && self.diff_bytes < DIFF_BYTES {
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
            made_by: changed.into_iter().chain(others).take(MADE_BY).collect(),
            diff,
        };
        let place = self.changes.len();
        self.changes.push((change, dangers));
        self.places.insert(key, place);
        Some(place)
    }

    fn finish(self, plan: &mut Plan) {
        plan.proxies_changed = self.proxies;
        plan.resources = self.changes.len() + self.unlisted.len();
        plan.truncated = self.truncated || !self.unlisted.is_empty() || self.dangers.len() > DANGERS;
        plan.changes = self.changes.into_iter().map(|(change, _)| change).collect();
        plan.dangers = self.dangers.into_iter().map(|(what, proxies)| danger(what, proxies)).collect();
        plan.dangers.sort_by(|a, b| b.proxies.cmp(&a.proxies).then_with(|| a.what.cmp(&b.what)));
        plan.dangers.truncate(DANGERS);
        let mut groups: Vec<(Rc<[usize]>, Vec<String>)> = self.groups.into_iter().collect();
        groups.sort_by(|(_, a), (_, b)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let mut left = PLACES;
        for (places, names) in groups {
            let shown = places.get(..places.len().min(left)).unwrap_or_default();
            plan.truncated |= shown.len() < places.len();
            left -= shown.len();
            plan.impact.push(impact(shown.to_vec(), names));
        }
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

fn danger(what: String, concerned: Concerned) -> Danger {
    Danger { what, proxies: concerned.count, examples: concerned.examples }
}

/// Notes that a danger concerns a proxy. One danger more than listed is kept, so that the plan is marked as
/// truncated.
fn concern(dangers: &mut BTreeMap<String, Concerned>, danger: &str, proxy: &str) {
    if let Some(concerned) = dangers.get_mut(danger) {
        concerned.add(proxy);
    } else if dangers.len() <= DANGERS {
        dangers.entry(danger.to_owned()).or_default().add(proxy);
    }
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
