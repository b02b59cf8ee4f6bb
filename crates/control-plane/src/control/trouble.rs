//! Causes of the health verdict from sources, registries and the store of registrations.

use pilotfish_api as api;
use pilotfish_api::v1::{Cause, CauseKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of unusable entries of a registry that are listed one by one.
const LISTED_ENTRIES: usize = 100;

/// A source, or the control loop, that has been silent for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    pub source: String,
    pub silent_for: Duration,
}

impl Silence {
    pub fn cause(&self) -> Cause {
        let seconds = self.silent_for.as_secs();
        let message = format!(
            "has given no sign of life for {seconds} s: it hangs, as on a file system that does not answer; \
             its last good state stays in force"
        );
        Cause::new(CauseKind::SilentSource, &self.source, message)
    }
}

/// Causes from registries. A failure is one cause, named after the source that fails: registries that read
/// the objects of one source fail together, and share a cause.
pub(super) fn of_registries(registries: &[api::Registry]) -> Vec<Cause> {
    let reason = |registry: &api::Registry| Some((registry.failure.clone()?, registry.failing_since.clone()));
    let objects =
        |registry: &&api::Registry| registry.source.as_ref().is_some_and(|source| source.objects.is_some());
    let of_sources: BTreeSet<_> = registries.iter().filter(objects).filter_map(reason).collect();
    let mut causes = Vec::new();
    // Readers of one source have the same failure and cluster.
    let mut readers: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for registry in registries {
        let name = &registry.name;
        match (&registry.source, failure(registry)) {
            (Some(source), failure) => {
                causes.extend(failure.map(|text| Cause::new(CauseKind::Registry, name, text)));
                causes.extend(of_source(name, source));
            }
            (None, Some(text)) if !reason(registry).is_some_and(|reason| of_sources.contains(&reason)) => {
                let cluster = name.split_once('/').map_or("", |(_, cluster)| cluster);
                readers.entry((cluster, text)).or_default().push(name);
            }
            (None, _) => {}
        }
    }
    let of_readers =
        |((_, text), names): (_, Vec<&str>)| Cause::new(CauseKind::Registry, names.join(", "), text);
    causes.extend(readers.into_iter().map(of_readers));
    causes
}

/// Causes from the last reads of a source.
fn of_source(name: &str, source: &api::RegistrySource) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(held) = &source.held {
        causes.push(Cause::new(CauseKind::Registry, name, held.to_string()));
    }
    if source.problem_count > 0 {
        let first = source.problems.first().map(|first| format!(", such as {first}")).unwrap_or_default();
        let entries = if source.problem_count == 1 { "entry" } else { "entries" };
        let text = format!("{} {entries} cannot be used{first}", source.problem_count);
        let cause = Cause::new(CauseKind::UnusableEntries, name, text);
        causes.push(Cause { count: source.problem_count, ..cause });
    }
    causes
}

fn failure(registry: &api::Registry) -> Option<String> {
    let since = registry.failing_since.as_deref().unwrap_or_default();
    match (&registry.failure, registry.synced) {
        (Some(reason), true) => {
            Some(format!("cannot be read since {since} ({reason}); its last good state stays in force"))
        }
        (Some(reason), false) => Some(format!("cannot be read since {since} ({reason})")),
        (None, _) if registry.given_up => Some("not in sync yet; readiness no longer waits for it".into()),
        (None, _) => None,
    }
}

/// The unusable entries of a registry, one problem each.
pub fn unusable_entries(registry: &api::Registry) -> Vec<api::Problem> {
    let Some(source) = &registry.source else { return Vec::new() };
    let entry = |message: String| problem("warning", &registry.name, message);
    let listed = source.problems.iter().take(LISTED_ENTRIES);
    let mut problems: Vec<_> = listed.map(|text| entry(format!("an entry cannot be used: {text}"))).collect();
    let more = source.problem_count.saturating_sub(problems.len());
    if more > 0 {
        problems.push(entry(format!("{more} more entries cannot be used")));
    }
    problems
}

/// A problem of an item that is no object.
pub fn problem(severity: &str, place: &str, message: String) -> api::Problem {
    api::Problem {
        severity: severity.to_owned(),
        place: place.to_owned(),
        message,
        ..api::Problem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(source: api::RegistrySource) -> api::Registry {
        api::Registry {
            name: "Etcd/east".into(),
            synced: true,
            source: Some(source),
            ..api::Registry::default()
        }
    }

    #[test]
    fn each_kind_of_trouble_of_a_registry_is_a_cause_with_its_name() {
        let well = registry(api::RegistrySource::default());
        assert_eq!(of_registries(std::slice::from_ref(&well)), []);
        let failing = |synced| api::Registry {
            synced,
            failure: Some("refused".into()),
            failing_since: Some("noon".into()),
            ..well.clone()
        };
        let held = api::HeldAnswer {
            of: "endpoints".into(),
            endpoints: 9,
            would_leave: 1,
            until: "one".into(),
            ..Default::default()
        };
        let source = |source| registry(source);
        let cases = [
            (
                failing(true),
                "Etcd/east: cannot be read since noon (refused); its last good state stays in force",
            ),
            (failing(false), "Etcd/east: cannot be read since noon (refused)"),
            (
                api::Registry { given_up: true, ..well.clone() },
                "Etcd/east: not in sync yet; readiness no longer waits for it",
            ),
            (
                source(api::RegistrySource { held: Some(held), ..Default::default() }),
                "Etcd/east: a read that leaves 1 of 9 endpoints is held back until a second one after one confirms it",
            ),
            (
                source(api::RegistrySource {
                    problem_count: 2,
                    problems: vec!["/a: no JSON".into(), "/b: no port".into()],
                    ..Default::default()
                }),
                "Etcd/east: 2 entries cannot be used, such as /a: no JSON",
            ),
        ];
        for (registry, expected) in cases {
            let causes: Vec<_> = of_registries(&[registry]).iter().map(ToString::to_string).collect();
            assert_eq!(causes, [expected]);
        }
    }

    #[test]
    fn dead_source_of_objects_is_one_cause_however_many_registries_read_it() {
        let failing = |name: &str, reason: &str, source: Option<api::RegistrySource>| api::Registry {
            name: name.into(),
            failure: Some(reason.into()),
            failing_since: Some("noon".into()),
            source,
            ..registry(api::RegistrySource::default())
        };
        let mcp = || {
            failing(
                "mcp/east",
                "refused",
                Some(api::RegistrySource { objects: Some(7), ..Default::default() }),
            )
        };
        let readers = |cluster: &str, reason| {
            ["Kubernetes", "ServiceEntry"].map(|kind| failing(&format!("{kind}/{cluster}"), reason, None))
        };
        let live = |name| failing(name, "refused", Some(api::RegistrySource::default()));
        let told = |registries: Vec<api::Registry>| -> Vec<String> {
            of_registries(&registries).into_iter().map(|cause| cause.subject).collect()
        };
        assert_eq!(told([&readers("Kubernetes", "refused")[..], &[mcp()]].concat()), ["mcp/east"]);
        assert_eq!(told(readers("west", "refused").into()), ["Kubernetes/west, ServiceEntry/west"]);
        // Of two sources that fail, the readers show one.
        assert_eq!(
            told([&[mcp()][..], &readers("west", "timeout")].concat()),
            ["mcp/east", "Kubernetes/west, ServiceEntry/west"]
        );
        // Other clusters and other products have failures of their own.
        assert_eq!(
            told([readers("west", "refused"), readers("east", "refused")].concat()),
            ["Kubernetes/east, ServiceEntry/east", "Kubernetes/west, ServiceEntry/west"]
        );
        assert_eq!(told(vec![live("Consul/east"), live("Etcd/east")]), ["Consul/east", "Etcd/east"]);
    }

    #[test]
    fn unusable_entries_are_listed_one_by_one_and_the_rest_is_counted() {
        let source = api::RegistrySource {
            problem_count: 5,
            problems: vec!["/a: no JSON".into(), "/b: no port".into()],
            ..Default::default()
        };
        let problems = unusable_entries(&registry(source));
        let texts: Vec<_> = problems.iter().map(|one| (one.place.as_str(), one.message.as_str())).collect();
        assert_eq!(
            texts,
            [
                ("Etcd/east", "an entry cannot be used: /a: no JSON"),
                ("Etcd/east", "an entry cannot be used: /b: no port"),
                ("Etcd/east", "3 more entries cannot be used"),
            ]
        );
    }
}
