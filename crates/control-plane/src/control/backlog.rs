//! Queues of source events that wait to be applied: one queue for each namespace, and one slice of each in
//! turn. A namespace with many events delays another one by a slice, not by its whole queue.
//!
//! Only the newest event of an object is kept, at the position of the first. An object is never split. An
//! event on the source itself is applied after everything that the source sent before, and waits for nothing
//! sent later.

use pilotfish_config::SourceEvent;
use pilotfish_config::kubernetes::EndpointSlice;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Namespace, Object, ObjectKey};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Cost of the events of one namespace that are applied between those of others, as [`cost`] counts it.
const SLICE: usize = 250;
/// Cost of the events of all namespaces that are applied in one step: later arrivals wait for it.
const STEP: usize = 500;
/// Endpoints that cost as much as a service.
const ENDPOINTS_OF_A_SERVICE: usize = 10;

/// A source: its feed, and its name.
pub(super) type Source = (Arc<str>, Arc<str>);

type Place = (Source, ObjectKey);

/// See the module's description.
#[derive(Default)]
pub(super) struct Backlog {
    queues: BTreeMap<Namespace, Queue>,
    events: HashMap<Place, Waiting>,
    /// Sources of waiting events.
    sources: HashMap<Source, Statements>,
}

/// Events of a namespace in order.
#[derive(Default)]
struct Queue {
    places: VecDeque<Place>,
    cost: usize,
}

/// Newest event of an object.
struct Waiting {
    event: SourceEvent,
    /// Arrival of the first one.
    at: Instant,
    /// Statements that its source had made when the first one arrived.
    after: u64,
}

/// Statements of a source about itself that wait for events.
#[derive(Default)]
struct Statements {
    /// Statements that waited before these.
    taken: u64,
    waiting: VecDeque<Statement>,
    /// Waiting events that came after all of them.
    events: usize,
}

struct Statement {
    event: SourceEvent,
    /// Waiting events that came before it and after the statement before it.
    events: usize,
}

impl Statements {
    fn entered(&mut self) -> u64 {
        self.events += 1;
        self.taken + self.waiting.len() as u64
    }

    fn left(&mut self, after: u64) {
        let place = usize::try_from(after.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let events = self.waiting.get_mut(place).map_or(&mut self.events, |statement| &mut statement.events);
        *events = events.saturating_sub(1);
    }

    fn state(&mut self, event: SourceEvent) {
        self.waiting.push_back(Statement { event, events: std::mem::take(&mut self.events) });
    }

    fn take_due(&mut self) -> Option<SourceEvent> {
        let statement = self.waiting.pop_front_if(|statement| statement.events == 0)?;
        self.taken += 1;
        Some(statement.event)
    }

    fn is_empty(&self) -> bool {
        self.events == 0 && self.waiting.is_empty()
    }
}

impl Backlog {
    /// Adds an event. Returns it if it is about the source itself and nothing is before it.
    pub(super) fn push(&mut self, source: &Source, event: SourceEvent, now: Instant) -> Option<SourceEvent> {
        let key = match &event {
            SourceEvent::Apply(object) => object.key().clone(),
            SourceEvent::Delete(key) => key.clone(),
            _ => {
                let Some(statements) = self.sources.get_mut(source) else { return Some(event) };
                statements.state(event);
                return None;
            }
        };
        let queue = self.queues.entry(key.namespace.clone()).or_default();
        queue.cost += cost(&event);
        let place = (source.clone(), key);
        if let Some(waiting) = self.events.get_mut(&place) {
            queue.cost -= cost(&waiting.event);
            waiting.event = event;
        } else {
            let after = self.sources.entry(source.clone()).or_default().entered();
            self.events.insert(place.clone(), Waiting { event, at: now, after });
            queue.places.push_back(place);
        }
        None
    }

    /// Takes the next slices until the step is full: of the namespace that has waited longest, then of those
    /// with the fewest events. They are followed by the events on sources themselves that have nothing before
    /// them any more.
    pub(super) fn take_slice(&mut self) -> Vec<(Source, SourceEvent)> {
        let (mut slice, mut step) = (Vec::new(), 0);
        for namespace in self.in_turn() {
            if step >= STEP {
                break;
            }
            let Some(queue) = self.queues.get_mut(&namespace) else { continue };
            let mut spent = 0;
            while spent < SLICE
                && let Some(place) = queue.places.pop_front()
            {
                let Some(Waiting { event, after, .. }) = self.events.remove(&place) else { continue };
                spent += cost(&event);
                if let Some(statements) = self.sources.get_mut(&place.0) {
                    statements.left(after);
                }
                slice.push((place.0, event));
            }
            queue.cost -= spent;
            // An object that costs more takes nothing from other namespaces.
            step += spent.min(SLICE);
        }
        self.queues.retain(|_, queue| !queue.places.is_empty());
        for (source, statements) in &mut self.sources {
            slice.extend(std::iter::from_fn(|| statements.take_due()).map(|event| (source.clone(), event)));
        }
        self.sources.retain(|_, statements| !statements.is_empty());
        slice
    }

    /// Namespaces in order: the one that has waited longest, then the others by the cost of their queues.
    fn in_turn(&self) -> Vec<Namespace> {
        let since = |queue: &Queue| Some(self.events.get(queue.places.front()?)?.at);
        let first = self.queues.iter().min_by_key(|(_, queue)| since(queue)).map(|(namespace, _)| namespace);
        let mut others: Vec<(&Namespace, &Queue)> =
            self.queues.iter().filter(|(namespace, _)| Some(*namespace) != first).collect();
        others.sort_by_key(|(_, queue)| queue.cost);
        first.into_iter().chain(others.into_iter().map(|(namespace, _)| namespace)).cloned().collect()
    }

    /// Removes and returns everything of a source: events in the order of each namespace, then its
    /// statements.
    pub(super) fn take_source(&mut self, source: &Source) -> Vec<SourceEvent> {
        let mut taken = Vec::new();
        for queue in self.queues.values_mut() {
            let Queue { places, cost: waiting } = queue;
            places.retain(|place| {
                let is_other = place.0 != *source;
                if !is_other && let Some(Waiting { event, .. }) = self.events.remove(place) {
                    *waiting -= cost(&event);
                    taken.push(event);
                }
                is_other
            });
        }
        self.queues.retain(|_, queue| !queue.places.is_empty());
        let statements = self.sources.remove(source).unwrap_or_default().waiting;
        taken.extend(statements.into_iter().map(|statement| statement.event));
        taken
    }

    /// Drops the events of a feed that is gone.
    pub(super) fn forget_feed(&mut self, feed: &str) {
        let sources: Vec<Source> = self.sources.keys().filter(|(of, _)| &**of == feed).cloned().collect();
        for source in sources {
            self.take_source(&source);
        }
    }

    /// True if no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Arrival of the event that has waited longest.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.events.values().map(|waiting| waiting.at).min()
    }
}

/// Estimated work of an event, in units of services.
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
            assert!(backlog.push(&files(), entry("a", name, 150), now).is_none());
        }
        assert_eq!(slice(&mut backlog), ["a/1", "a/2"]);
        backlog.push(&files(), entry("z", "web", 1), now);
        assert_eq!(slice(&mut backlog), ["a/3", "a/4", "z/web"]);
        assert_eq!((slice(&mut backlog), backlog.is_empty()), (vec!["a/5".to_owned()], true));
    }

    #[test]
    fn step_takes_the_longest_waiting_namespace_then_those_with_least() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let ms = std::time::Duration::from_millis;
        for (n, space) in ["a", "b", "c", "d"].into_iter().enumerate() {
            for name in ["1", "2"] {
                let at = now + ms(n as u64);
                assert!(backlog.push(&files(), entry(space, name, 249), at).is_none());
            }
        }
        backlog.push(&files(), entry("z", "web", 1), now + ms(10));
        assert_eq!(slice(&mut backlog), ["a/1", "z/web", "b/1"], "what is small goes beside what is old");
        backlog.push(&files(), entry("z", "web", 1), now + ms(11));
        assert_eq!(slice(&mut backlog), ["a/2", "z/web", "b/2"]);
        // However much is small, the oldest goes.
        for n in 0..300 {
            backlog.push(&files(), entry(&format!("s{n}"), "web", 1), now + ms(12));
        }
        assert_eq!(slice(&mut backlog).first().map(String::as_str), Some("c/1"));
        assert_eq!(slice(&mut backlog).first().map(String::as_str), Some("c/2"));
        assert_eq!(slice(&mut backlog).first().map(String::as_str), Some("d/1"));
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
    fn statement_of_a_source_waits_for_what_it_sent_before_and_holds_back_nothing() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let other: Source = ("feed".into(), "cluster".into());
        for name in ["1", "2", "3"] {
            backlog.push(&files(), entry("a", name, 250), now);
        }
        assert_eq!(backlog.push(&files(), SourceEvent::Listed, now), None);
        // An object that changes later stays in its place, before the statement.
        backlog.push(&files(), entry("a", "3", 251), now);
        backlog.push(&files(), entry("b", "4", 1), now);
        assert_eq!(backlog.push(&files(), SourceEvent::Recovered, now), None);
        assert_eq!(
            backlog.push(&other, SourceEvent::Listed, now),
            Some(SourceEvent::Listed),
            "it waits for nothing"
        );
        assert_eq!(slice(&mut backlog), ["a/1", "b/4"], "what came later does not wait");
        assert_eq!(slice(&mut backlog), ["a/2"]);
        assert_eq!(
            slice(&mut backlog),
            ["a/3", "Listed", "Recovered"],
            "in order, behind all that came before"
        );
        assert!(backlog.is_empty() && backlog.sources.is_empty() && backlog.queues.is_empty());
        assert_eq!(backlog.push(&files(), SourceEvent::Listed, now), Some(SourceEvent::Listed));
    }

    #[test]
    fn source_is_taken_with_its_statements_and_forgotten_with_its_feed() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let other: Source = ("feed".into(), "cluster".into());
        for source in [&files(), &other] {
            backlog.push(source, entry("a", "1", 1), now);
            backlog.push(source, SourceEvent::Recovered, now);
        }
        backlog.push(&files(), entry("b", "2", 1), now);
        assert_eq!(names(backlog.take_source(&files())), ["a/1", "b/2", "Recovered"]);
        assert_eq!(slice(&mut backlog), ["a/1", "Recovered"]);
        backlog.push(&other, entry("a", "2", 1), now);
        backlog.push(&other, SourceEvent::Listed, now);
        backlog.forget_feed("feed");
        assert!(backlog.is_empty() && backlog.sources.is_empty() && slice(&mut backlog).is_empty());
    }
}
