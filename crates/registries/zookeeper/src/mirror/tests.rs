//! Sequences: a server that answers from a tree of nodes, and events in every order.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PROVIDER: &str = "dubbo%3A%2F%2F10.0.0.1%3A20880%2Fa.B";
const OTHER: &str = "dubbo%3A%2F%2F10.0.0.2%3A20880%2Fa.B";
const INSTANCE: &str = r#"{"address":"10.0.0.1","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[]",
    "dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"remote"}}}"#;
const METADATA: &str = r#"{"services":{"a.B:dubbo":{"name":"a.B","protocol":"dubbo","port":20880}}}"#;

fn layout() -> Layout {
    Layout { dubbo: Some("/dubbo".into()), services: Some("/services".into()) }
}

/// Nodes by path, with what a server would answer and tell of them.
#[derive(Clone, Debug, Default)]
struct Tree {
    nodes: BTreeMap<String, String>,
    forbidden: BTreeSet<String>,
    /// Single watches that are set.
    watched: BTreeSet<String>,
    reads: usize,
}

impl Tree {
    fn of(nodes: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, data) in nodes {
            tree.put(path, data);
        }
        tree
    }

    /// Makes or changes a node, with those above it. Returns the events that a watch below the roots tells.
    fn put(&mut self, path: &str, data: &str) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, _) in path.match_indices('/').skip(1) {
            if !self.nodes.contains_key(&path[..at]) {
                self.nodes.insert(path[..at].to_owned(), String::new());
                events.push(Event { kind: EventKind::Created, path: path[..at].to_owned() });
            }
        }
        let before = self.nodes.insert(path.to_owned(), data.to_owned());
        let kind = if before.is_some() { EventKind::DataChanged } else { EventKind::Created };
        events.push(Event { kind, path: path.to_owned() });
        events
    }

    /// Removes a node with all below it, the deepest first.
    fn remove(&mut self, path: &str) -> Vec<Event> {
        let below = format!("{path}/");
        let gone: Vec<String> =
            self.nodes.keys().filter(|known| *known == path || known.starts_with(&below)).cloned().collect();
        let gone = gone.into_iter().rev();
        gone.map(|path| {
            self.nodes.remove(&path);
            Event { kind: EventKind::Deleted, path }
        })
        .collect()
    }

    /// The events of watches of single nodes.
    fn single(&mut self, events: Vec<Event>) -> Vec<Event> {
        let mut told = Vec::new();
        for event in events {
            let parent = event.path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
            if self.watched.remove(&event.path) {
                told.push(event.clone());
            }
            if event.kind != EventKind::DataChanged && self.watched.remove(&parent) {
                told.push(Event { kind: EventKind::ChildrenChanged, path: parent });
            }
        }
        told
    }

    fn answer(&mut self, request: &Request, knows_recursive: bool) -> Result<Body, Refusal> {
        self.reads += 1;
        let path = request.path();
        let is_there = self.nodes.contains_key(path);
        if self.forbidden.contains(path) {
            return Err(Refusal::NotPermitted);
        }
        match request {
            Request::WatchBelow { .. } if knows_recursive => Ok(Body::Done),
            Request::WatchBelow { .. } => Err(Refusal::Unimplemented),
            Request::Exists { .. } => {
                self.watched.insert(path.to_owned());
                if is_there { Ok(Body::Done) } else { Err(Refusal::NoNode) }
            }
            _ if !is_there => Err(Refusal::NoNode),
            Request::Data { watch, .. } => {
                if *watch {
                    self.watched.insert(path.to_owned());
                }
                Ok(Body::Data(self.nodes.get(path).cloned().unwrap_or_default().into_bytes()))
            }
            Request::Children { watch, .. } => {
                if *watch {
                    self.watched.insert(path.to_owned());
                }
                let below = format!("{path}/");
                let names = self.nodes.keys().filter_map(|known| known.strip_prefix(&below));
                Ok(Body::Children(names.filter(|name| !name.contains('/')).map(str::to_owned).collect()))
            }
        }
    }
}

fn settle(mirror: &mut Mirror, tree: &mut Tree, knows_recursive: bool) {
    while let Some(request) = mirror.next_request() {
        let answer = tree.answer(&request, knows_recursive);
        mirror.answer(&request, answer).unwrap();
    }
    assert!(mirror.is_complete());
}

fn read(tree: &mut Tree, before: Registrations, knows_recursive: bool) -> Mirror {
    let mut mirror = Mirror::new(layout(), Watches::Below, before);
    settle(&mut mirror, tree, knows_recursive);
    mirror
}

fn full() -> Tree {
    Tree::of(&[
        (&format!("/dubbo/a.B/providers/{PROVIDER}"), ""),
        ("/dubbo/a.B/consumers/consumer%3A%2F%2F10.0.0.9%2Fa.B", ""),
        ("/dubbo/a.B/configurators/override%3A%2F%2F0.0.0.0%2Fa.B%3Fweight%3D7", ""),
        ("/dubbo/mapping/a.B", "app"),
        ("/dubbo/metadata/app/r1", METADATA),
        ("/dubbo/config/dubbo", ""),
        ("/services/app/10.0.0.1:20880", INSTANCE),
    ])
}

#[test]
fn all_that_is_registered_is_read_once() {
    let mut tree = full();
    let mirror = read(&mut tree, Registrations::default(), true);
    let known = mirror.registrations();
    assert_eq!(known.interfaces.keys().collect::<Vec<_>>(), ["a.B"]);
    let interface = &known.interfaces["a.B"];
    assert_eq!((interface.providers.len(), interface.overrides.len()), (1, 1));
    let (_, application) = known.applications_of("a.B").next().unwrap();
    assert_eq!(application.metadata["r1"].services.len(), 1);
    assert_eq!(known.interfaces_of("app").collect::<Vec<_>>(), ["a.B"]);
    assert_eq!(mirror.trouble(), None);
    // Two watches, three roots, two lists of the interface, its mapping, the application, the instance, its
    // revision.
    assert_eq!(tree.reads, 11);
}

#[test]
fn a_provider_that_comes_or_goes_costs_no_request() {
    let mut tree = full();
    let mut mirror = read(&mut tree, Registrations::default(), true);
    let _ = mirror.take_changed();
    let path = format!("/dubbo/a.B/providers/{OTHER}");
    tree.put(&path, "").iter().for_each(|event| mirror.event(event));
    assert_eq!(mirror.registrations().interfaces["a.B"].providers.len(), 2);
    assert!(mirror.take_changed().interfaces.contains("a.B"));
    let new = "/dubbo/c.D/providers/tri%3A%2F%2F10.0.0.1%3A50051%2Fc.D";
    tree.put(new, "").iter().for_each(|event| mirror.event(event));
    assert_eq!(mirror.registrations().interfaces["c.D"].providers.len(), 1);
    tree.remove(&path).iter().for_each(|event| mirror.event(event));
    tree.put("/dubbo/a.B/consumers/another", "").iter().for_each(|event| mirror.event(event));
    assert_eq!(mirror.registrations().interfaces["a.B"].providers.len(), 1);
    assert_eq!(mirror.next_request(), None);
    tree.remove("/dubbo").iter().for_each(|event| mirror.event(event));
    assert!(mirror.registrations().interfaces.is_empty());
    assert_eq!(mirror.registrations().mapping_of("a.B"), None);
}

#[test]
fn an_event_while_a_list_is_on_its_way_has_it_read_again() {
    let mut tree = full();
    let mut mirror = Mirror::new(layout(), Watches::Below, Registrations::default());
    let list = loop {
        let request = mirror.next_request().unwrap();
        if request.path() == "/dubbo/a.B/providers" {
            break request;
        }
        let answer = tree.answer(&request, true);
        mirror.answer(&request, answer).unwrap();
    };
    let old = tree.answer(&list, true);
    let events = tree.remove(&format!("/dubbo/a.B/providers/{PROVIDER}"));
    events.iter().for_each(|event| mirror.event(event));
    mirror.answer(&list, old).unwrap();
    assert!(!mirror.is_complete(), "the answer may be older than the event");
    settle(&mut mirror, &mut tree, true);
    assert!(mirror.registrations().interfaces["a.B"].providers.is_empty());
}

#[test]
fn what_cannot_be_read_any_more_stays_as_it_was() {
    let mut tree = full();
    let mut mirror = read(&mut tree, Registrations::default(), true);
    mirror.set_told();
    let before = mirror.into_registrations();
    tree.forbidden = ["/dubbo/a.B/providers", "/services/app", "/dubbo/mapping"].map(str::to_owned).into();
    let mut again = read(&mut tree, before.clone(), true);
    assert_eq!(again.registrations(), &{
        let mut same = before;
        same.applications
            .get_mut("app")
            .unwrap()
            .metadata
            .clone_from(&again.registrations().applications["app"].metadata);
        same
    });
    assert!(again.trouble().unwrap().ends_with("reading it is not permitted (and 2 more nodes)"));
    tree.forbidden.clear();
    again.set_told();
    let healed = read(&mut tree, again.into_registrations(), true);
    assert_eq!(healed.trouble(), None);

    tree.forbidden.insert("/dubbo".into());
    let mut refused = Mirror::new(layout(), Watches::Below, Registrations::default());
    let mut end = Ok(());
    while let (Ok(()), Some(request)) = (&end, refused.next_request()) {
        let answer = tree.answer(&request, true);
        end = refused.answer(&request, answer);
    }
    assert_eq!(end.unwrap_err().to_string(), "/dubbo cannot be read: reading it is not permitted");
}

#[test]
fn garbled_data_cost_their_node_alone_and_the_last_good_ones_stay() {
    let mut tree = full();
    tree.put("/services/app/10.0.0.2:20880", "{garbled");
    tree.put("/dubbo/a.B/providers/no-url", "");
    let mut mirror = read(&mut tree, Registrations::default(), true);
    assert_eq!(mirror.registrations().applications["app"].instances.len(), 1);
    assert_eq!(mirror.registrations().interfaces["a.B"].providers.len(), 1);
    assert!(
        mirror.trouble().unwrap().contains("it has no protocol (and 1 more nodes)"),
        "{:?}",
        mirror.trouble()
    );
    let events = tree.put("/services/app/10.0.0.1:20880", "");
    events.iter().for_each(|event| mirror.event(event));
    settle(&mut mirror, &mut tree, true);
    assert_eq!(mirror.registrations().applications["app"].instances.len(), 1, "the last good one");
    for path in
        ["/services/app/10.0.0.1:20880", "/services/app/10.0.0.2:20880", "/dubbo/a.B/providers/no-url"]
    {
        tree.remove(path).iter().for_each(|event| mirror.event(event));
    }
    assert_eq!(mirror.trouble(), None);
    assert!(mirror.registrations().applications["app"].instances.is_empty());
}

#[test]
fn revisions_that_no_instance_has_are_forgotten() {
    let mut tree = full();
    let mut mirror = read(&mut tree, Registrations::default(), true);
    let path = "/services/app/10.0.0.1:20880";
    tree.put("/dubbo/metadata/app/r2", METADATA).iter().for_each(|event| mirror.event(event));
    tree.put(path, &INSTANCE.replace("r1", "r2")).iter().for_each(|event| mirror.event(event));
    settle(&mut mirror, &mut tree, true);
    let metadata = &mirror.registrations().applications["app"].metadata;
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["r2"]);
}

/// One thing that happens to the tree.
#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Remove(usize),
    /// The mirror sends so many requests and gets the answers.
    Answer(usize),
}

fn paths() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for interface in ["a.B", "c.D"] {
        for node in [PROVIDER, OTHER] {
            paths.push((format!("/dubbo/{interface}/providers/{node}"), String::new()));
        }
        paths.push((format!("/dubbo/{interface}/configurators/override%3A%2F%2F0.0.0.0%2Fx"), String::new()));
        paths.push((format!("/dubbo/mapping/{interface}"), "app,other".to_owned()));
        paths.push((format!("/dubbo/{interface}"), String::new()));
    }
    for application in ["app", "other"] {
        paths.push((format!("/services/{application}/1"), INSTANCE.to_owned()));
        paths.push((format!("/services/{application}/2"), INSTANCE.replace("r1", "r2")));
        paths.push((format!("/services/{application}"), String::new()));
        paths.push((format!("/dubbo/metadata/{application}/r1"), METADATA.to_owned()));
    }
    paths.extend(["/dubbo", "/services"].map(|root| (root.to_owned(), String::new())));
    paths
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let count = paths().len();
    let step = prop_oneof![
        4 => (0..count).prop_map(Step::Put),
        2 => (0..count).prop_map(Step::Remove),
        3 => (1usize..6).prop_map(Step::Answer),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// However changes fall between requests and answers, in the end the mirror knows what a mirror knows
    /// that begins now.
    #[test]
    fn following_changes_ends_where_reading_everything_does(steps in steps(), knows_recursive: bool) {
        let paths = paths();
        let mut tree = Tree::default();
        let mut mirror = Mirror::new(layout(), Watches::Below, Registrations::default());
        let mut watching = false;
        for step in steps {
            let events = match step {
                Step::Put(at) => tree.put(&paths[at].0, &paths[at].1),
                Step::Remove(at) => tree.remove(&paths[at].0),
                Step::Answer(count) => {
                    for _ in 0..count {
                        let Some(request) = mirror.next_request() else { break };
                        watching |= request.path() == "/services";
                        let answer = tree.answer(&request, knows_recursive);
                        mirror.answer(&request, answer).unwrap();
                    }
                    Vec::new()
                }
            };
            let told = if knows_recursive { events } else { tree.single(events) };
            if watching || !knows_recursive {
                told.iter().for_each(|event| mirror.event(event));
            }
            if !watching {
                // Nothing is watched before the first two requests were answered.
                for _ in 0..2 {
                    let Some(request) = mirror.next_request() else { break };
                    let answer = tree.answer(&request, knows_recursive);
                    mirror.answer(&request, answer).unwrap();
                }
                watching = true;
            }
        }
        settle(&mut mirror, &mut tree, knows_recursive);
        let fresh = read(&mut tree.clone(), Registrations::default(), true);
        // Metadata of instances that are there stay when their node is removed; whatever can be read is
        // there.
        let (mut known, mut now) = (mirror.registrations().clone(), fresh.registrations().clone());
        for (name, application) in &now.applications {
            let kept = &known.applications[name].metadata;
            prop_assert!(application.metadata.iter().all(|(revision, metadata)| kept.get(revision) == Some(metadata)));
        }
        known.applications.values_mut().chain(now.applications.values_mut()).for_each(|it| it.metadata.clear());
        prop_assert_eq!(known, now);
        prop_assert_eq!(mirror.nodes, fresh.nodes);
    }
}
