//! Secrets in, what happens to clusters out.

use super::clusters::{Action, ClusterGeneration, RemoteClusters};
use super::folder::File;
use super::kubeconfig::InsecureOptions;
use pilotfish_config::kubernetes::Secret;
use pilotfish_config::read_live;
use pilotfish_model::{Kind, ObjectKey, Typed};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn clusters() -> RemoteClusters {
    RemoteClusters::new("own".into(), InsecureOptions::default())
}

/// A kubeconfig with that token; an empty one makes it refused.
fn kubeconfig(token: &str) -> String {
    let user = if token.is_empty() { "exec: {command: x}".to_owned() } else { format!("token: {token}") };
    format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
         clusters: [{{name: k, cluster: {{server: 'https://c'}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
    )
}

fn secret(name: &str, created: u8, clusters: &[(&str, &str)]) -> Typed<Secret> {
    let data: serde_json::Map<String, serde_json::Value> =
        clusters.iter().map(|(id, token)| ((*id).to_owned(), kubeconfig(token).into())).collect();
    let json = serde_json::json!({
        "metadata": {
            "name": name, "namespace": "istio-system", "creationTimestamp": format!("2024-01-01T00:00:{created:02}Z"),
        },
        "stringData": data,
    });
    let read = read_live(Kind::Secret, &"cluster own".into(), json.to_string().as_bytes()).unwrap();
    read.object.typed().unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Secret, "istio-system", name)
}

fn words(actions: impl IntoIterator<Item = Action>) -> Vec<String> {
    let list = |generations: &[ClusterGeneration]| {
        generations.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    actions
        .into_iter()
        .map(|action| match action {
            Action::Open(generation, _) => format!("open {generation}"),
            Action::Close(generation) => format!("close {generation}"),
            Action::Remove(cluster, generations) => format!("remove {cluster}: {}", list(&generations)),
        })
        .collect()
}

fn apply(clusters: &mut RemoteClusters, name: &str, created: u8, data: &[(&str, &str)]) -> Vec<String> {
    clusters.apply(&secret(name, created, data));
    words(clusters.settle())
}

fn delete(clusters: &mut RemoteClusters, name: &str) -> Vec<String> {
    clusters.delete(&key(name));
    words(clusters.settle())
}

fn problems(clusters: &RemoteClusters) -> Vec<String> {
    clusters.problems(&"cluster own".into()).iter().map(ToString::to_string).collect()
}

fn generation(cluster: &str, number: u64) -> ClusterGeneration {
    ClusterGeneration { cluster: cluster.into(), number }
}

const NOTHING: [&str; 0] = [];

#[test]
fn secrets_bring_clusters_and_take_them_away() {
    let mut all = clusters();
    assert_eq!(apply(&mut all, "s", 1, &[("a", "1"), ("b", "1"), ("own", "1")]), ["open a#1", "open b#2"]);
    assert_eq!(apply(&mut all, "s", 1, &[("a", "1"), ("b", "1")]), NOTHING, "nothing differs");
    assert_eq!(apply(&mut all, "s", 1, &[("b", "1"), ("c", "1")]), ["remove a: a#1", "open c#3"]);
    assert_eq!(delete(&mut all, "s"), ["remove b: b#2", "remove c: c#3"]);
    assert_eq!(delete(&mut all, "s"), NOTHING);
    assert_eq!(apply(&mut all, "s", 1, &[("a", "1")]), ["open a#4"], "it may return");
}

#[test]
fn a_new_kubeconfig_is_read_beside_the_old_one_until_it_is_complete() {
    let mut all = clusters();
    apply(&mut all, "s", 1, &[("a", "1")]);
    assert!(all.listed(&generation("a", 1)).is_none());
    assert_eq!(apply(&mut all, "s", 1, &[("a", "2")]), ["open a#2"]);
    assert_eq!(apply(&mut all, "s", 1, &[("a", "3")]), ["open a#3", "close a#2"], "one never in force goes");
    assert!(all.listed(&generation("a", 2)).is_none(), "too late");
    assert_eq!(words(all.listed(&generation("a", 3))), ["close a#1"]);
    assert_eq!(apply(&mut all, "s", 1, &[("a", "4")]), ["open a#4"]);
    assert_eq!(delete(&mut all, "s"), ["remove a: a#3 a#4"], "both go");
    assert!(all.listed(&generation("a", 4)).is_none());
}

#[test]
fn files_bring_clusters_as_secrets_do() {
    let mut all = clusters();
    let set = |all: &mut RemoteClusters, files: &[(&str, &str, Option<&str>)]| {
        let file = |cluster: &str, token: &Option<&str>| File {
            cluster: cluster.into(),
            content: token.map(|token| kubeconfig(token).into_bytes()).ok_or_else(|| "denied".to_owned()),
        };
        let files = files.iter().map(|(path, cluster, token)| ((*path).into(), file(cluster, token)));
        all.set_files(&files.collect());
        words(all.settle())
    };
    assert_eq!(
        set(&mut all, &[("/f/own.yaml", "own", Some("1")), ("/f/a.yaml", "a", Some("1"))]),
        ["open a#1"]
    );
    assert_eq!(set(&mut all, &[("/f/a.yaml", "a", Some("1")), ("/f/a.yml", "a", Some("2"))]), NOTHING);
    assert_eq!(
        problems(&all),
        ["/f/a.yml: the cluster belongs to /f/a.yaml already; this kubeconfig is ignored"]
    );
    assert_eq!(set(&mut all, &[("/f/a.yaml", "a", None)]), NOTHING, "what cannot be read changes nothing");
    assert_eq!(
        problems(&all),
        ["/f/a.yaml: the kubeconfig cannot be read: denied; the last good version stays in force"]
    );
    assert_eq!(set(&mut all, &[("/f/a.yaml", "a", Some("2"))]), ["open a#2"]);
    assert_eq!(problems(&all), NOTHING);
    assert_eq!(set(&mut all, &[]), ["remove a: a#1 a#2"]);
}

#[test]
fn only_readings_that_are_wanted_may_take_over() {
    let mut all = clusters();
    apply(&mut all, "s", 1, &[("a", "1")]);
    apply(&mut all, "s", 1, &[("a", "2")]);
    assert!(all.is_current(&generation("a", 1)) && all.is_current(&generation("a", 2)));
    apply(&mut all, "s", 1, &[("a", "3")]);
    assert!(!all.is_current(&generation("a", 2)), "another came before it was complete");
    all.listed(&generation("a", 3));
    assert!(!all.is_current(&generation("a", 1)) && all.is_current(&generation("a", 3)));
    delete(&mut all, "s");
    assert!(!all.is_current(&generation("a", 3)));
}

#[test]
fn a_cluster_stays_with_its_secret_and_goes_to_the_next_one() {
    let mut all = clusters();
    apply(&mut all, "mine", 5, &[("a", "1")]);
    assert_eq!(apply(&mut all, "older", 1, &[("a", "2")]), NOTHING, "who has it keeps it");
    assert_eq!(apply(&mut all, "same", 3, &[("a", "1")]), NOTHING);
    assert_eq!(
        problems(&all),
        ["older", "same"].map(|name| format!(
            "cluster own: Secret istio-system/{name}: data[a]: the cluster belongs to Secret istio-system/mine already; \
             this kubeconfig is ignored"
        ))
    );
    assert_eq!(
        delete(&mut all, "mine"),
        ["open a#2"],
        "the oldest of the others follows, beside what there was"
    );
    assert_eq!(words(all.listed(&generation("a", 2))), ["close a#1"]);
    assert_eq!(delete(&mut all, "same"), NOTHING);
    assert_eq!(delete(&mut all, "older"), ["remove a: a#2"]);
    assert!(problems(&all).is_empty());
}

#[test]
fn the_same_kubeconfig_in_another_secret_goes_on() {
    let mut all = clusters();
    apply(&mut all, "s", 1, &[("a", "1")]);
    all.delete(&key("s"));
    all.apply(&secret("t", 2, &[("a", "1")]));
    assert_eq!(words(all.settle()), NOTHING);
    assert_eq!(delete(&mut all, "t"), ["remove a: a#1"]);
}

#[test]
fn the_oldest_of_a_first_list_wins_whatever_the_order() {
    let secrets =
        [secret("x", 3, &[("a", "1")]), secret("y", 2, &[("a", "2")]), secret("z", 2, &[("a", "3")])];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut all = clusters();
        for at in order {
            all.apply(&secrets[at]);
        }
        assert_eq!(words(all.settle()), ["open a#1"]);
        let reports = problems(&all);
        assert_eq!(reports.len(), 2);
        assert!(
            reports.iter().all(|report| report.contains("belongs to Secret istio-system/y already")),
            "{reports:?}"
        );
    }
}

#[test]
fn what_is_refused_changes_nothing_and_is_reported() {
    let mut all = clusters();
    assert_eq!(apply(&mut all, "s", 1, &[("a", "")]), NOTHING);
    let reports = problems(&all);
    assert!(
        reports[0]
            .contains("data[a]: exec of user \"u\" is not allowed in the kubeconfig of a remote cluster"),
        "{reports:?}"
    );
    assert!(reports[0].contains("--insecure-kubeconfig-options exec"), "{reports:?}");
    assert_eq!(apply(&mut all, "t", 2, &[("a", "1")]), ["open a#1"], "it owns nothing");
    assert_eq!(apply(&mut all, "t", 2, &[("a", "")]), NOTHING, "the last good one stays");
    assert_eq!(apply(&mut all, "t", 2, &[("a", "1")]), NOTHING);
    assert_eq!(delete(&mut all, "t"), ["remove a: a#1"], "what is left is refused");
}

#[test]
fn a_generation_that_broke_down_is_replaced() {
    let mut all = clusters();
    apply(&mut all, "s", 1, &[("a", "1")]);
    assert_eq!(words(all.broke(&generation("a", 1))), ["open a#2"]);
    assert_eq!(words(all.broke(&generation("a", 1))), NOTHING, "there is a newer one");
    assert_eq!(words(all.broke(&generation("a", 2))), ["open a#3", "close a#2"]);
    assert_eq!(words(all.listed(&generation("a", 3))), ["close a#1"]);
    assert_eq!(words(all.broke(&generation("gone", 9))), NOTHING);
}

/// One of: a Secret with tokens for clusters `a` and `b` (none, refused, or one of two), its deletion, or
/// that the newest generation of a cluster is complete.
type Event = (u8, Option<[Option<u8>; 2]>, bool);

fn event() -> impl Strategy<Value = Event> {
    let token = proptest::option::of(0u8..3);
    (0u8..3, proptest::option::of([token.clone(), token]), any::<bool>())
}

proptest! {
    /// Whatever happens: what is opened is closed once, a cluster that some Secret claims well is read, by
    /// one generation or by two while it changes, and one that none claims is not.
    #[test]
    fn readings_are_balanced(events in proptest::collection::vec(event(), 1..40)) {
        let mut all = clusters();
        let mut open: BTreeSet<ClusterGeneration> = BTreeSet::new();
        let mut good: [BTreeSet<u8>; 2] = Default::default();
        for (name, data, complete) in events {
            let text = format!("s{name}");
            match data {
                Some(tokens) => {
                    let data: Vec<(&str, String)> = ["a", "b"].into_iter().zip(tokens)
                        .filter_map(|(id, token)| Some((id, match token? { 0 => String::new(), n => n.to_string() })))
                        .collect();
                    let data: Vec<(&str, &str)> = data.iter().map(|(id, token)| (*id, token.as_str())).collect();
                    all.apply(&secret(&text, name, &data));
                }
                None => all.delete(&key(&text)),
            }
            for (at, good) in good.iter_mut().enumerate() {
                match data.and_then(|tokens| tokens[at]) {
                    Some(1..) => good.insert(name),
                    _ => good.remove(&name),
                };
            }
            let mut actions = all.settle();
            if complete {
                let newest: Vec<ClusterGeneration> = actions.iter().filter_map(|action| match action {
                    Action::Open(generation, _) => Some(generation.clone()),
                    _ => None,
                }).collect();
                actions.extend(newest.iter().filter_map(|generation| all.listed(generation)));
            }
            for action in actions {
                match action {
                    Action::Open(generation, _) => prop_assert!(open.insert(generation)),
                    Action::Close(generation) => prop_assert!(open.remove(&generation)),
                    Action::Remove(cluster, generations) => {
                        prop_assert!(generations.iter().all(|generation| open.remove(generation)));
                        prop_assert!(!open.iter().any(|generation| generation.cluster == cluster));
                    }
                }
            }
            for (id, good) in ["a", "b"].into_iter().zip(&good) {
                let id: Arc<str> = id.into();
                let count = open.iter().filter(|generation| generation.cluster == id).count();
                prop_assert!(count <= 2);
                prop_assert!(good.is_empty() || count > 0);
            }
        }
    }
}
