//! Effects of a change: differences between the resources of proxies in two worlds.
//!
//! A separate translator builds the resources, so that streams are not disturbed; the translation is the one
//! that streams are served from. Differences between the worlds are found by hash, and only those are
//! decoded.

mod danger;
mod diff;
mod references;
mod scene;

use crate::resource::{json, section};
use crate::subject::Subject;
pub use diff::unified;
pub use scene::{Held, held, held_until};

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

/// Maximum bytes of all diffs in a response.
const DIFF_BYTES: usize = 4 << 20;
/// Maximum encoded size of a resource, before and after; larger ones are named without diff and dangers.
const SHOWN_BYTES: usize = 4 << 20;
/// Maximum number of listed resources.
const LISTED: usize = 5_000;
/// Maximum number of references from groups of proxies to listed changes.
const PLACES: usize = 200_000;
/// Maximum number of listed dangers.
const DANGERS: usize = 1_000;
/// Maximum number of objects named for one resource.
const MADE_BY: usize = 100;
/// Maximum number of proxies named for one group or danger.
const NAMES: usize = 100;
const EXAMPLES: usize = 10;

/// A change to plan.
pub struct Planned {
    /// The world before the change.
    pub before: Arc<World>,
    /// The world after the change.
    pub after: Arc<World>,
    /// The difference between both worlds.
    pub changes: ChangeSet,
    /// Number of objects that differ.
    pub objects: usize,
}

/// Plans a change for some proxies. `empty` is a translator without a world, with the settings of the serving
/// one.
#[must_use]
pub fn plan(empty: &Translator, planned: &Planned, subjects: &[Subject]) -> Plan {
    plan_until(empty, planned, subjects, &|| false).unwrap_or_default()
}

/// Variant of [`plan`] that returns `None` once `is_cancelled` returns true, which is checked for each
/// resource.
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

/// A resource before and after: equal keys are the same change for all proxies.
type ChangeKey = (Section, Arc<str>, u64, u64);

/// Differences of all proxies.
#[derive(Default)]
struct Found {
    /// Index of each change in the list.
    places: HashMap<ChangeKey, usize>,
    /// Results for proxies with shared resources, by the addresses of those in memory.
    compared: HashMap<Vec<usize>, Compared>,
    /// Keys of the changed objects.
    objects: BTreeSet<String>,
    changes: Vec<(PlanChange, Vec<String>)>,
    /// Indexes of the changes of a group of proxies, with their names.
    groups: BTreeMap<Rc<[usize]>, Vec<String>>,
    dangers: BTreeMap<String, Concerned>,
    /// Changed resources beyond the maximum.
    unlisted: HashSet<ChangeKey>,
    proxies: usize,
    diff_bytes: usize,
    truncated: bool,
}

/// Differences between the resources of proxies before and after.
#[derive(Clone)]
struct Compared {
    /// Indexes of listed changes.
    places: Rc<[usize]>,
    /// True if others are not listed.
    has_more: bool,
    leading_nowhere: Rc<[String]>,
}

/// Proxies that a danger concerns.
#[derive(Default)]
struct Concerned {
    count: usize,
    last: String,
    examples: Vec<String>,
}

impl Concerned {
    /// Adds a proxy. All calls for one proxy have to be consecutive.
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
    /// Records the differences of a proxy; `None` if cancelled.
    fn compare(
        &mut self,
        proxy: &str,
        before: &Held,
        after: &Held,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<()> {
        // Proxies with equal views and subscriptions share their resources: these are compared once.
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

    /// All differences; `None` if cancelled.
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

    /// Index of a change, which is examined at its first occurrence; `None` if it is not listed.
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
        // Changed objects are named first: the routes of a port are made by all of its services.
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

/// Objects whose facts changed. For facts of registries, the objects that created them.
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

/// Records that a danger concerns a proxy. One danger more than listed is kept, to mark the plan as
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
