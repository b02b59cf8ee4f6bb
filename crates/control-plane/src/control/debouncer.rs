//! Debounce: when changes go out. A lone change goes at once, a burst is gathered, and a busy namespace
//! delays no other.
//!
//! A bucket is a namespace and a class: endpoints are gathered for milliseconds, configuration for tens of
//! milliseconds, each with a ceiling. Due updates of a namespace go out in slices; updates that arrived
//! together stay together. Pure: time comes in.

use pilotfish_model::{Namespace, Update};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Class of a change: endpoints are urgent and cheap to apply, configuration is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Class {
    Endpoints,
    /// Services and configuration objects.
    Config,
}

/// Debounce times of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// A change within this time of the bucket's last one is delayed.
    pub quiet: Duration,
    /// Maximum delay of a change.
    pub ceiling: Duration,
}

/// Debounce times of each class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    pub endpoints: Window,
    /// Window for services and configuration objects.
    pub config: Window,
}

impl Default for Windows {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            endpoints: Window { quiet: ms(3), ceiling: ms(30) },
            config: Window { quiet: ms(20), ceiling: ms(200) },
        }
    }
}

/// Updates of one namespace after which the rest of it waits for the next publication.
const SLICE: usize = 500;
/// Updates of all namespaces after which the others wait for the next publication.
const STEP: usize = 1_000;

/// Changes of one bucket that arrived together.
#[derive(Debug)]
struct Group {
    number: u64,
    arrived: Instant,
    updates: Vec<Update>,
}

#[derive(Debug, Default)]
struct Bucket {
    groups: VecDeque<Group>,
    /// Arrival of the newest change, waiting or not.
    last: Option<Instant>,
    due: Option<Instant>,
}

/// Queue of changes until they are due.
#[derive(Debug)]
pub(super) struct Debouncer {
    windows: Windows,
    buckets: BTreeMap<Namespace, BTreeMap<Class, Bucket>>,
    /// Number of pushes so far.
    pushes: u64,
}

impl Debouncer {
    /// Debouncer with these windows.
    #[must_use]
    pub(super) fn new(windows: Windows) -> Self {
        Self { windows, buckets: BTreeMap::new(), pushes: 0 }
    }

    /// Adds changes that arrived together.
    pub(super) fn push(&mut self, updates: Vec<Update>, now: Instant) {
        self.pushes += 1;
        for update in updates {
            let (namespace, class) = bucket_of(&update);
            let window = match class {
                Class::Endpoints => self.windows.endpoints,
                Class::Config => self.windows.config,
            };
            let bucket = self.buckets.entry(namespace).or_default().entry(class).or_default();
            bucket.arrive(window, now);
            bucket.add(self.pushes, update, now);
        }
    }

    /// Time at which the next change is due; `None` if none waits.
    #[must_use]
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.all().filter_map(|bucket| bucket.due).min()
    }

    /// Arrival of the oldest waiting change; `None` if none waits.
    #[must_use]
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.all().filter_map(Bucket::first).min()
    }

    fn all(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.values().flat_map(BTreeMap::values)
    }

    /// Removes slices of due changes until the publication is full. Returns them with the arrival of the
    /// oldest.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Vec<Update>, Instant)> {
        let (mut updates, mut step) = (Vec::new(), 0);
        let mut oldest: Option<Instant> = None;
        for namespace in self.in_turn(now) {
            if step >= STEP {
                break;
            }
            let Some(buckets) = self.buckets.get_mut(&namespace) else { continue };
            let mut due: Vec<&mut Bucket> =
                buckets.values_mut().filter(|bucket| bucket.is_due(now)).collect();
            let already = updates.len();
            // Updates that arrived together are of both classes and go together.
            while updates.len() - already < SLICE
                && let Some(number) =
                    due.iter().filter_map(|bucket| Some(bucket.groups.front()?.number)).min()
            {
                for bucket in &mut due {
                    if let Some(group) = bucket.groups.pop_front_if(|group| group.number == number) {
                        oldest = Some(oldest.map_or(group.arrived, |oldest| oldest.min(group.arrived)));
                        updates.extend(group.updates);
                    }
                }
            }
            for bucket in due.iter_mut().filter(|bucket| bucket.groups.is_empty()) {
                bucket.due = None;
            }
            // A group that is larger takes nothing from other namespaces.
            step += (updates.len() - already).min(SLICE);
        }
        self.forget_quiet(now);
        oldest.map(|oldest| (updates, oldest))
    }

    /// The namespaces of what is due: the one that has waited longest, then the others by the number of
    /// updates.
    fn in_turn(&self, now: Instant) -> Vec<Namespace> {
        let due = |(namespace, buckets): (&Namespace, &BTreeMap<Class, Bucket>)| {
            let due = || buckets.values().filter(|bucket| bucket.is_due(now));
            let since = due().filter_map(Bucket::first).min()?;
            let groups = due().flat_map(|bucket| &bucket.groups);
            Some((namespace.clone(), since, groups.map(|group| group.updates.len()).sum::<usize>()))
        };
        let mut all: Vec<(Namespace, Instant, usize)> = self.buckets.iter().filter_map(due).collect();
        let first = all.iter().min_by_key(|(_, since, _)| *since).map(|(namespace, ..)| namespace.clone());
        all.sort_by_key(|(namespace, _, updates)| (Some(namespace) != first.as_ref(), *updates));
        all.into_iter().map(|(namespace, ..)| namespace).collect()
    }

    /// Removes everything, due or not: at the end of the first lists, and at the end of the process.
    pub(crate) fn take_all(&mut self) -> Vec<Update> {
        let buckets = std::mem::take(&mut self.buckets).into_values().flat_map(BTreeMap::into_values);
        buckets.flat_map(|bucket| bucket.groups).flat_map(|group| group.updates).collect()
    }

    /// Drops buckets that have been quiet for long enough to be equal to new ones.
    fn forget_quiet(&mut self, now: Instant) {
        let windows = self.windows;
        let long = windows.config.quiet.max(windows.endpoints.quiet);
        let is_new = |bucket: &Bucket| {
            bucket.due.is_some()
                || bucket.last.is_some_and(|last| now.saturating_duration_since(last) <= long)
        };
        self.buckets.retain(|_, buckets| {
            buckets.retain(|_, bucket| is_new(bucket));
            !buckets.is_empty()
        });
    }
}

impl Bucket {
    /// Notes that a change came: due at once in a quiet bucket, else when the burst pauses, at the latest at
    /// the ceiling.
    fn arrive(&mut self, window: Window, now: Instant) {
        let together = self.last == Some(now) && self.due == Some(now);
        let busy =
            !together && self.last.is_some_and(|last| now.saturating_duration_since(last) < window.quiet);
        let first = self.first().unwrap_or(now);
        self.due = Some(if busy { (now + window.quiet).min(first + window.ceiling) } else { now });
        self.last = Some(now);
    }

    fn add(&mut self, number: u64, update: Update, arrived: Instant) {
        match self.groups.back_mut().filter(|group| group.number == number) {
            Some(group) => group.updates.push(update),
            None => self.groups.push_back(Group { number, arrived, updates: vec![update] }),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Arrival of the oldest waiting change.
    fn first(&self) -> Option<Instant> {
        self.groups.front().map(|group| group.arrived)
    }
}

/// Returns the bucket of a change. Gateways between networks concern all namespaces and have one bucket
/// without a namespace.
fn bucket_of(update: &Update) -> (Namespace, Class) {
    match update {
        Update::Endpoints(key, ..) | Update::RemoveShard(key, _) => (key.namespace.clone(), Class::Endpoints),
        Update::Workload(workload) => (workload.key.namespace.clone(), Class::Endpoints),
        Update::RemoveWorkload(key) => (key.namespace.clone(), Class::Endpoints),
        Update::Services(key, _) => (key.namespace.clone(), Class::Config),
        Update::Object(object) => (object.key().namespace.clone(), Class::Config),
        Update::RemoveObject(key) => (key.namespace.clone(), Class::Config),
        Update::NetworkGateways(_) => (Namespace::default(), Class::Config),
        Update::SecretAccess(reader, _) => (reader.namespace.clone(), Class::Config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Kind, ObjectKey, WorkloadKey, WorkloadKind};

    fn config(namespace: &str) -> Vec<Update> {
        vec![Update::RemoveObject(ObjectKey::new(Kind::VirtualService, namespace, "a"))]
    }

    fn endpoint(namespace: &str) -> Vec<Update> {
        let key = WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: namespace.into(),
            name: "a".into(),
            cluster: "c".into(),
        };
        vec![Update::RemoveWorkload(key)]
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_lone_change_goes_at_once() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        assert!(debouncer.take_due(start).is_none());
        debouncer.push(config("a"), start);
        assert_eq!(debouncer.take_due(start).unwrap().0.len(), 1);
        assert_eq!(debouncer.next_due(), None);
        debouncer.push(config("a"), start + ms(500));
        assert!(debouncer.take_due(start + ms(500)).is_some());
    }

    #[test]
    fn a_burst_is_gathered_until_it_pauses() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        debouncer.push(config("a"), start);
        debouncer.take_due(start);
        for n in 1..=3 {
            debouncer.push(config("a"), start + ms(n * 5));
            assert!(debouncer.take_due(start + ms(n * 5)).is_none());
        }
        assert_eq!((debouncer.next_due(), debouncer.oldest()), (Some(start + ms(35)), Some(start + ms(5))));
        let (updates, oldest) = debouncer.take_due(start + ms(35)).unwrap();
        assert_eq!((updates.len(), oldest), (3, start + ms(5)));
        assert_eq!(debouncer.oldest(), None);
    }

    #[test]
    fn a_burst_without_end_goes_out_at_the_ceiling() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        debouncer.push(config("a"), start);
        debouncer.take_due(start);
        let mut sent = None;
        for n in 1..=60 {
            let now = start + ms(n * 5);
            debouncer.push(config("a"), now);
            if debouncer.take_due(now).is_some() {
                sent = Some(n * 5);
                break;
            }
        }
        assert_eq!(sent, Some(205));
    }

    #[test]
    fn a_busy_namespace_delays_no_other_and_configuration_no_endpoints() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        debouncer.push(config("busy"), start);
        debouncer.take_due(start);
        debouncer.push(config("busy"), start + ms(1));
        debouncer.push(config("calm"), start + ms(1));
        debouncer.push(endpoint("busy"), start + ms(1));
        assert_eq!(debouncer.take_due(start + ms(1)).unwrap().0.len(), 2);
        assert_eq!(debouncer.take_all().len(), 1);
    }

    #[test]
    fn much_of_a_namespace_goes_in_slices_that_keep_together_what_arrived_together() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        for _ in 0..5 {
            let group: Vec<Update> =
                (0..600).flat_map(|_| [config("busy"), endpoint("busy")].concat()).collect();
            debouncer.push(group, start);
        }
        let mut slices = Vec::new();
        let mut now = start;
        while let Some(due) = debouncer.next_due() {
            now = now.max(due);
            debouncer.push(config("calm"), now);
            let (updates, _) = debouncer.take_due(now).unwrap();
            let busy = |update: &&Update| bucket_of(update).0 == "busy";
            slices.push(updates.iter().filter(busy).count());
            if slices.len() == 1 {
                assert_eq!(updates.len(), 1_201, "the other one does not wait");
            }
            if slices.iter().sum::<usize>() == 6_000 {
                break;
            }
        }
        assert_eq!(slices, [1_200; 5]);
    }

    #[test]
    fn publication_is_limited_over_all_namespaces_and_small_ones_do_not_wait() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        for n in 0..10 {
            let group: Vec<Update> = (0..SLICE).flat_map(|_| config(&format!("busy-{n}"))).collect();
            debouncer.push(group, start + ms(n));
        }
        let now = start + ms(50);
        let mut slices = Vec::new();
        for _ in 0..10 {
            debouncer.push(config("calm"), now);
            let (updates, _) = debouncer.take_due(now + ms(30)).unwrap();
            let mut namespaces: Vec<Namespace> = updates.iter().map(|update| bucket_of(update).0).collect();
            namespaces.dedup();
            assert!(namespaces.iter().any(|namespace| *namespace == "calm"), "{namespaces:?}");
            slices.push(namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>().join(" "));
            if debouncer.next_due().is_none() {
                break;
            }
        }
        assert_eq!(slices[0], "busy-0 calm busy-1");
        assert_eq!((slices[1].as_str(), slices.len()), ("busy-2 calm busy-3", 5));
    }

    #[test]
    fn what_arrives_together_goes_together() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(Windows::default());
        debouncer.push([config("a"), config("a"), config("a")].concat(), start);
        assert_eq!(debouncer.take_due(start).unwrap().0.len(), 3);
    }
}
