//! Polaris's limits, and the ownership of instances.

use crate::reconcile::{Capabilities, DesiredService, Instance, Metadata, Place, ServiceKey, Target, Text};

/// Maximum number of elements in a batch or page.
pub(crate) const BATCH: usize = 100;
const MAX_SERVICE: usize = 128;
const MAX_NAMESPACE: usize = 64;
const MAX_HOST: usize = 128;
const MAX_PROTOCOL: usize = 32;
const MAX_VERSION: usize = 32;
const MAX_METADATA: usize = 64;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 4096;

/// Owner of an instance: the name of the original controller, whose instances are taken over.
pub(crate) const CONTROLLER: &str = "polaris-controller";
pub(crate) const SOURCE: &str = "source";
/// Key that early versions of the controller used instead of `source`.
pub(crate) const PLATFORM: &str = "platform";
pub(crate) const CLUSTER: &str = "clusterName";
/// Mark of instances that we isolated, which distinguishes manual isolation.
const ISOLATED: &str = "pilotfish.io/isolated";
const NOT_READY: &str = "not-ready";
/// Values of [`ISOLATED`] on instances that are deleted next. There are two, so that a second attempt is a
/// change, too: the server's boltdb store reports the deletion of an instance only if the instance was
/// changed within the last seconds.
const RETIRED: [&str; 2] = ["deleted", "deleted-again"];
/// Metadata that Polaris derives from instance fields, and does not return.
pub(crate) const HIDDEN: [&str; 5] = ["version", "protocol", "region", "zone", "campus"];
/// Prefix of keys that Polaris adds to the metadata of an instance, such as the time of its last heartbeat.
const INTERNAL: &str = "internal-";
/// Set by Polaris when an instance misses its heartbeats, and removed when they resume.
const LAST_HEARTBEAT: &str = "internal-lastheartbeat";
/// Number of metadata entries reserved for these keys.
const RESERVED: usize = 3;

/// Error of a cluster name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolarisTargetError {
    /// Without a name the instances of clusters cannot be distinguished.
    #[error("the name of the cluster is empty")]
    EmptyCluster,
    /// Queries of the server end values at commas.
    #[error("the name of the cluster {0:?} has a comma, or is longer than 4096 bytes")]
    BadCluster(String),
}

/// Polaris as the sync target of one cluster.
#[derive(Clone, Debug)]
pub struct PolarisTarget {
    cluster: Text,
    take_over_isolation: bool,
}

impl PolarisTarget {
    /// Creates the target of this cluster, which owns its instances.
    ///
    /// # Errors
    /// When the name is invalid.
    pub fn new(cluster: &str) -> Result<Self, PolarisTargetError> {
        if cluster.is_empty() {
            return Err(PolarisTargetError::EmptyCluster);
        }
        if cluster.contains(',') || cluster.len() > MAX_VALUE {
            return Err(PolarisTargetError::BadCluster(cluster.to_owned()));
        }
        Ok(Self { cluster: cluster.into(), take_over_isolation: false })
    }

    /// With true, all isolation of our instances counts as ours: for the take-over from the original
    /// controller, which sets no mark.
    #[must_use]
    pub fn with_taken_isolation(self, take_over_isolation: bool) -> Self {
        Self { take_over_isolation, ..self }
    }

    /// The name of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Text {
        &self.cluster
    }

    /// Comment of our aliases: the only mark of their owner.
    pub(crate) fn alias_comment(&self) -> String {
        format!("{CLUSTER}={}", self.cluster)
    }
}

/// True for letters, digits and `- . / : _`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./:_".contains(&byte))
}

fn check_name(what: &str, text: &str, most: usize) -> Result<(), String> {
    if !is_name(text) {
        return Err(format!(
            "{text:?} cannot be a {what} of Polaris, which has letters, digits and - . / : _"
        ));
    }
    if text.len() > most {
        return Err(format!("{text:?} is longer than the {most} bytes that a {what} of Polaris may have"));
    }
    Ok(())
}

/// Truncates a text at a character boundary.
fn cut(text: &Text, most: usize) -> Text {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().into()
}

fn shorten(what: &str, text: &mut Text, most: usize, problems: &mut Vec<String>) {
    if text.len() > most {
        let short = cut(text, most);
        problems.push(format!("the {what} {text:?} is longer than {most} bytes, {short:?} is registered"));
        *text = short;
    }
}

/// Removes entries that are too long, and then the last keys in order if there are too many.
fn fit_metadata(metadata: &mut Metadata, most: usize, problems: &mut Vec<String>) {
    metadata.retain(|key, value| {
        let problem = if key.is_empty() {
            "has no name".to_owned()
        } else if key.len() > MAX_KEY {
            format!("has a name of {} bytes where {MAX_KEY} are allowed", key.len())
        } else if value.len() > MAX_VALUE {
            format!("has {} bytes where {MAX_VALUE} are allowed", value.len())
        } else {
            return true;
        };
        problems.push(format!("metadata {:?} {problem}; it is left out", cut(key, 40)));
        false
    });
    let over = metadata.len().saturating_sub(most);
    if over > 0 {
        let dropped: Vec<Text> = metadata.keys().skip(most).cloned().collect();
        let first = dropped.first().map(|key| cut(key, 40)).unwrap_or_default();
        for key in &dropped {
            metadata.remove(key);
        }
        problems.push(format!(
            "metadata has {over} entries more than fit ({MAX_METADATA} with ours); {first:?} and those after \
             it are left out"
        ));
    }
}

impl Target for PolarisTarget {
    fn capabilities(&self) -> Capabilities {
        Capabilities { namespaces: true, services: true, aliases: true, batch: BATCH }
    }

    fn check_service(&self, key: &ServiceKey) -> Result<(), String> {
        check_name("namespace", &key.namespace, MAX_NAMESPACE)?;
        check_name("service", &key.name, MAX_SERVICE)
    }

    fn fit_service(&self, service: &mut DesiredService) -> Vec<String> {
        let mut problems = Vec::new();
        fit_metadata(&mut service.metadata, MAX_METADATA, &mut problems);
        problems
    }

    fn fit_instance(&self, place: &Place, instance: &mut Instance) -> Result<Vec<String>, String> {
        if place.host.is_empty() || place.host.len() > MAX_HOST {
            return Err(format!("a host has from 1 to {MAX_HOST} bytes"));
        }
        let mut problems = Vec::new();
        shorten("protocol", &mut instance.protocol, MAX_PROTOCOL, &mut problems);
        shorten("version", &mut instance.version, MAX_VERSION, &mut problems);
        for key in [SOURCE, PLATFORM, CLUSTER, ISOLATED, LAST_HEARTBEAT] {
            let is_ours = matches!(key, SOURCE | CLUSTER | ISOLATED | LAST_HEARTBEAT);
            if instance.metadata.remove(key).is_some() && is_ours {
                problems.push(format!(
                    "metadata {key:?} is reserved; the Pod's label or annotation of that name is ignored"
                ));
            }
        }
        fit_metadata(&mut instance.metadata, MAX_METADATA - RESERVED, &mut problems);
        instance.metadata.insert(SOURCE.into(), CONTROLLER.into());
        instance.metadata.insert(CLUSTER.into(), self.cluster.clone());
        Ok(problems)
    }

    fn same_metadata(&self, wanted: &Metadata, known: &Metadata) -> bool {
        let is_shown = |key: &str| !HIDDEN.contains(&key) || known.contains_key(key);
        wanted.iter().all(|(key, value)| !is_shown(key) || known.get(key) == Some(value))
            && known.keys().all(|key| wanted.contains_key(key) || key.starts_with(INTERNAL))
    }

    fn owns(&self, metadata: &Metadata) -> bool {
        let is = |key: &str, value: &str| metadata.get(key).is_some_and(|known| **known == *value);
        is(CLUSTER, &self.cluster) && (is(SOURCE, CONTROLLER) || is(PLATFORM, CONTROLLER))
    }

    fn isolated_by_us(&self, metadata: &Metadata) -> bool {
        self.take_over_isolation || metadata.contains_key(ISOLATED)
    }

    fn mark_isolated(&self, metadata: &mut Metadata, isolated: bool) {
        if isolated {
            metadata.insert(ISOLATED.into(), NOT_READY.into());
        } else {
            metadata.remove(ISOLATED);
        }
    }

    fn retired(&self, known: &Metadata) -> Metadata {
        let kept = known.iter().filter(|(key, _)| [SOURCE, PLATFORM, CLUSTER].contains(&&***key));
        let mut metadata: Metadata = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let [first, second] = RETIRED;
        let is_repeated = known.get(ISOLATED).is_some_and(|mark| **mark == *first);
        metadata.insert(ISOLATED.into(), if is_repeated { second } else { first }.into());
        metadata
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn target() -> PolarisTarget {
        PolarisTarget::new("east").unwrap()
    }

    fn fit(pairs: &[(&str, &str)]) -> (Metadata, Vec<String>) {
        let metadata = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let mut instance = Instance { metadata, ..Instance::default() };
        let problems = target().fit_instance(&Place::new("10.0.0.1", 80), &mut instance).unwrap();
        (instance.metadata, problems)
    }

    #[test]
    fn a_cluster_needs_a_name_that_queries_can_hold() {
        assert_eq!(PolarisTarget::new("").unwrap_err(), PolarisTargetError::EmptyCluster);
        assert_eq!(PolarisTarget::new("a,b").unwrap_err(), PolarisTargetError::BadCluster("a,b".to_owned()));
    }

    #[test]
    fn whose_it_is_is_written_last() {
        let (metadata, problems) = fit(&[("clusterName", "evil"), ("source", "me"), ("app", "web")]);
        assert!(target().owns(&metadata), "{metadata:?}");
        assert_eq!((metadata.len(), problems.len()), (3, 2));
        assert_eq!(metadata.get("clusterName").map(|name| &**name), Some("east"));
    }

    #[test]
    fn instances_of_the_controller_are_ours_in_its_cluster_alone() {
        let of = |pairs: &[(&str, &str)]| {
            target().owns(&pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
        };
        assert!(of(&[("clusterName", "east"), ("source", "polaris-controller")]));
        assert!(of(&[("clusterName", "east"), ("platform", "polaris-controller")]));
        assert!(!of(&[("clusterName", "west"), ("source", "polaris-controller")]));
        assert!(!of(&[("clusterName", "east"), ("source", "sdk")]));
        assert!(!of(&[("clusterName", "east")]) && !of(&[]));
    }

    #[test]
    fn odd_metadata_costs_itself_alone() {
        let many: Vec<(String, String)> =
            (0..70).map(|n| (format!("label-{n:02}"), "x".to_owned())).collect();
        let mut pairs: Vec<(&str, &str)> = many.iter().map(|(key, value)| (&**key, &**value)).collect();
        let (long_key, long_value) = ("k".repeat(200), "v".repeat(4097));
        pairs.extend([(long_key.as_str(), "x"), ("big", long_value.as_str())]);
        let (metadata, problems) = fit(&pairs);
        assert_eq!(metadata.len(), 63, "the 64th is for the mark of isolation");
        assert!(metadata.contains_key("label-60") && !metadata.contains_key("label-61"));
        assert!(target().owns(&metadata));
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.len() < 200), "{problems:?}");
    }

    /// Keys that Polaris hides count only where they are known from a write.
    #[test]
    fn hidden_and_internal_metadata_is_not_compared() {
        let map = |pairs: &[(&str, &str)]| -> Metadata {
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        for hidden in HIDDEN {
            let wanted = map(&[("app", "web"), (hidden, "v2")]);
            assert!(target().same_metadata(&wanted, &map(&[("app", "web")])), "{hidden}");
            assert!(target().same_metadata(&wanted, &wanted), "{hidden}");
            assert!(!target().same_metadata(&wanted, &map(&[("app", "web"), (hidden, "v1")])), "{hidden}");
            assert!(!target().same_metadata(&map(&[("app", "web")]), &wanted), "{hidden}");
        }
        let plain = map(&[("app", "web")]);
        assert!(target().same_metadata(&plain, &map(&[("app", "web"), ("internal-lastheartbeat", "0")])));
        assert!(!target().same_metadata(&plain, &map(&[("app", "api")])));
        assert!(!target().same_metadata(&plain, &map(&[])));
        assert!(!target().same_metadata(&plain, &map(&[("app", "web"), ("more", "1")])));
        let own = map(&[("internal-trace_sampling", "5")]);
        assert!(!target().same_metadata(&own, &map(&[("internal-trace_sampling", "6")])));
        assert!(!target().same_metadata(&own, &map(&[])));
    }

    #[test]
    fn retired_metadata_stays_ours_and_differs_each_time() {
        let (known, _) = fit(&[("app", "web"), ("version", "v1")]);
        let first = target().retired(&known);
        let second = target().retired(&first);
        assert!(target().owns(&first) && target().owns(&second), "{first:?}, {second:?}");
        assert!(target().isolated_by_us(&first) && target().isolated_by_us(&second));
        assert!(first != known && first != second && second != target().retired(&second));
        let mut not_ready = known;
        target().mark_isolated(&mut not_ready, true);
        assert_ne!(target().retired(&not_ready), not_ready);
    }

    #[test]
    fn long_texts_are_cut_and_names_are_checked() {
        let version = "ü".repeat(20).into();
        let mut instance = Instance { version, protocol: "x".repeat(33).into(), ..Instance::default() };
        let problems = target().fit_instance(&Place::new("10.0.0.1", 80), &mut instance).unwrap();
        assert_eq!((instance.version.len(), instance.protocol.len(), problems.len()), (32, 32, 2));
        assert!(target().fit_instance(&Place::new("x".repeat(129), 80), &mut instance).is_err());
        for (namespace, name) in [("", "a"), ("a", ""), ("a b", "a"), ("a", "ü")] {
            assert!(target().check_service(&ServiceKey::new(namespace, name)).is_err(), "{namespace} {name}");
        }
        assert!(target().check_service(&ServiceKey::new("a".repeat(64), "b".repeat(128))).is_ok());
        assert!(target().check_service(&ServiceKey::new("a".repeat(65), "b")).is_err());
        assert!(target().check_service(&ServiceKey::new("a", "b".repeat(129))).is_err());
    }
}
