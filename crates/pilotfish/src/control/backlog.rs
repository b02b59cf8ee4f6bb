//! Events of sources that wait for their turn: each namespace has a queue, and a slice of each is taken at
//! a time. So a namespace with much to compute delays another one by a slice, not by all that it has.
//!
//! Only the newest event of an object waits, in the place of the first. An object is never split.

use pilotfish_config::SourceEvent;
use pilotfish_config::kubernetes::EndpointSlice;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Namespace, Object, ObjectKey};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Cost of the events of one namespace that are applied between those of others, as [`cost`] counts it.
const SLICE: usize = 1_000;
/// Cost of the events of all namespaces that are applied in one step: what comes meanwhile waits for it.
const STEP: usize = 4_000;
/// Endpoints that cost as much as a service.
const ENDPOINTS_OF_A_SERVICE: usize = 10;

/// A source: its feed, and its name.
pub(super) type Source = (Arc<str>, Arc<str>);

type Place = (Source, ObjectKey);

/// See the module's description.
#[derive(Default)]
pub(super) struct Backlog {
    queues: BTreeMap<Namespace, VecDeque<Place>>,
    events: HashMap<Place, (SourceEvent, Instant)>,
    /// The first namespace of the next step.
    next: Namespace,
}

impl Backlog {
    /// Adds an event about an object. Gives back one that is about the source itself.
    pub(super) fn push(&mut self, source: &Source, event: SourceEvent, now: Instant) -> Option<SourceEvent> {
        let key = match &event {
            SourceEvent::Apply(object) => object.key().clone(),
            SourceEvent::Delete(key) => key.clone(),
            _ => return Some(event),
        };
        let namespace = key.namespace.clone();
        let place = (source.clone(), key);
        if let Some((waiting, _)) = self.events.get_mut(&place) {
            *waiting = event;
        } else {
            self.events.insert(place.clone(), (event, now));
            self.queues.entry(namespace).or_default().push_back(place);
        }
        None
    }

    /// The next slices, one of each namespace in turn, until the step is full.
    pub(super) fn take_slice(&mut self) -> Vec<(Source, SourceEvent)> {
        let (mut slice, mut step) = (Vec::new(), 0);
        let (before, after): (Vec<Namespace>, _) =
            self.queues.keys().cloned().partition(|namespace| *namespace < self.next);
        for namespace in after.into_iter().chain(before) {
            if step >= STEP {
                self.next = namespace;
                break;
            }
            let Some(queue) = self.queues.get_mut(&namespace) else { continue };
            let mut spent = 0;
            while spent < SLICE
                && let Some(place) = queue.pop_front()
            {
                if let Some((event, _)) = self.events.remove(&place) {
                    spent += cost(&event);
                    slice.push((place.0, event));
                }
            }
            step += spent;
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        slice
    }

    /// Everything of a source, in order.
    pub(super) fn take_source(&mut self, source: &Source) -> Vec<SourceEvent> {
        let mut taken = Vec::new();
        for queue in self.queues.values_mut() {
            queue.retain(|place| {
                let is_other = place.0 != *source;
                if !is_other {
                    taken.extend(self.events.remove(place).map(|(event, _)| event));
                }
                is_other
            });
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        taken
    }

    /// Drops what waits of a feed that is gone.
    pub(super) fn forget_feed(&mut self, feed: &str) {
        self.events.retain(|((of, _), _), _| &**of != feed);
        for queue in self.queues.values_mut() {
            queue.retain(|((of, _), _)| &**of != feed);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Arrival of the event that has waited longest.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.events.values().map(|(_, at)| *at).min()
    }
}

/// Estimated work of an event, in services that are made of its object.
fn cost(event: &SourceEvent) -> usize {
    match event {
        SourceEvent::Apply(object) => cost_of(object),
        _ => 1,
    }
}

fn cost_of(object: &Object) -> usize {
    if let Some(slice) = object.typed::<EndpointSlice>() {
        return 1 + slice.endpoints.len().saturating_mul(slice.ports.len()) / ENDPOINTS_OF_A_SERVICE;
    }
    let Some(entry) = object.typed::<ServiceEntry>() else { return 1 };
    let services = entry.hosts.len().saturating_mul(entry.addresses.len().max(1));
    let endpoints = entry.ports.len().saturating_mul(entry.endpoints.len()) / ENDPOINTS_OF_A_SERVICE;
    1_usize.saturating_add(services).saturating_add(endpoints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{KindSpec, ObjectMeta};

    fn entry(namespace: &str, name: &str, hosts: usize) -> SourceEvent {
        let key = ObjectKey::new(ServiceEntry::KIND, namespace, name);
        let hosts = (0..hosts).map(|n| format!("h{n}.{name}.example.com")).collect();
        SourceEvent::Apply(Object::new(
            ObjectMeta::of(key),
            ServiceEntry { hosts, ..ServiceEntry::default() },
        ))
    }

    fn files() -> Source {
        ("feed".into(), "files".into())
    }

    fn names(events: impl IntoIterator<Item = SourceEvent>) -> Vec<String> {
        let name = |event: SourceEvent| match event {
            SourceEvent::Apply(object) => format!("{}/{}", object.key().namespace, object.key().name),
            SourceEvent::Delete(key) => format!("-{}/{}", key.namespace, key.name),
            other => format!("{other:?}"),
        };
        events.into_iter().map(name).collect()
    }

    fn slice(backlog: &mut Backlog) -> Vec<String> {
        names(backlog.take_slice().into_iter().map(|(_, event)| event))
    }

    #[test]
    fn costly_namespace_is_taken_in_slices_beside_those_of_others() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for name in ["1", "2", "3", "4", "5"] {
            assert!(backlog.push(&files(), entry("a", name, 600), now).is_none());
        }
        assert_eq!(slice(&mut backlog), ["a/1", "a/2"]);
        backlog.push(&files(), entry("z", "web", 1), now);
        assert_eq!(slice(&mut backlog), ["a/3", "a/4", "z/web"]);
        assert_eq!((slice(&mut backlog), backlog.is_empty()), (vec!["a/5".to_owned()], true));
    }

    #[test]
    fn step_is_limited_over_all_namespaces_which_take_turns() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let spaces: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
        for space in &spaces {
            for name in ["1", "2"] {
                assert!(backlog.push(&files(), entry(space, name, 999), now).is_none());
            }
        }
        let of =
            |spaces: &[usize], name: &str| spaces.iter().map(|n| format!("n{n}/{name}")).collect::<Vec<_>>();
        assert_eq!(slice(&mut backlog), of(&[0, 1, 2, 3], "1"));
        assert_eq!(slice(&mut backlog), of(&[4, 5, 6, 7], "1"));
        assert_eq!(slice(&mut backlog), [of(&[8, 9], "1"), of(&[0, 1], "2")].concat());
        assert_eq!(slice(&mut backlog), of(&[2, 3, 4, 5], "2"));
        assert_eq!((slice(&mut backlog), backlog.is_empty()), (of(&[6, 7, 8, 9], "2"), true));
    }

    #[test]
    fn newest_event_of_an_object_waits_in_the_place_of_the_first() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        backlog.push(&files(), entry("a", "1", 1), now);
        backlog.push(&files(), entry("a", "2", 1), now);
        let later = now + std::time::Duration::from_secs(1);
        backlog.push(&files(), SourceEvent::Delete(ObjectKey::new(ServiceEntry::KIND, "a", "1")), later);
        assert_eq!(backlog.oldest(), Some(now));
        assert_eq!(slice(&mut backlog), ["-a/1", "a/2"]);
        assert_eq!(backlog.oldest(), None);
    }

    #[test]
    fn what_a_source_says_of_itself_comes_after_its_objects() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let other: Source = ("feed".into(), "cluster".into());
        backlog.push(&files(), entry("a", "1", 1), now);
        backlog.push(&other, entry("a", "2", 1), now);
        backlog.push(&files(), entry("b", "3", 1), now);
        assert_eq!(backlog.push(&files(), SourceEvent::Recovered, now), Some(SourceEvent::Recovered));
        assert_eq!(names(backlog.take_source(&files())), ["a/1", "b/3"]);
        assert_eq!(slice(&mut backlog), ["a/2"]);
        backlog.push(&other, entry("a", "2", 1), now);
        backlog.forget_feed("feed");
        assert!(backlog.is_empty() && slice(&mut backlog).is_empty());
    }
}
