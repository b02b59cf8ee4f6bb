//! Annotations of the Polaris controller: parsing and validation.

use crate::reconcile::{AliasKey, Metadata, ServiceKey, Text};
use std::collections::BTreeMap;

/// Prefix of all annotations.
const PREFIX: &str = "polarismesh.cn/";

/// Weight of an instance without an annotation, as in Polaris.
const WEIGHT: u32 = 100;
/// Maximum weight; larger values are an error.
const MOST_WEIGHT: u32 = 65_535;

/// `polarismesh.cn/sync` of a Service or Namespace; `None` if it is missing.
pub(super) fn sync(annotations: &BTreeMap<String, String>) -> Option<bool> {
    annotations.get(&format!("{PREFIX}sync")).map(|value| value == "true")
}

/// Options in the annotations of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Service name in the other registry.
    pub(super) target: ServiceKey,
    /// Additional name of the service.
    pub(super) alias: Option<AliasKey>,
    /// True if its Pods are registered by this sync; else they register themselves.
    pub(super) registers: bool,
    /// Metadata of every instance.
    pub(super) metadata: Metadata,
    weight: u32,
    /// Weights by `ORDINAL-PORT`, for StatefulSets.
    custom_weights: BTreeMap<String, u32>,
    /// TTL of the heartbeats that the application sends, in seconds.
    pub(super) ttl: Option<u8>,
}

/// Label of a Pod, or key of `metadata`, with the version of the instance.
const CUSTOM_VERSION: &str = "polarismesh.cn/customVersion";
/// Label or key with the version if there is no [`CUSTOM_VERSION`].
const VERSION: &str = "version";

/// Returns the version of an instance with this metadata; empty for none.
pub(super) fn version(metadata: &Metadata) -> Text {
    metadata.get(CUSTOM_VERSION).or_else(|| metadata.get(VERSION)).cloned().unwrap_or_default()
}

impl Options {
    /// Parses the annotations of a Service. An invalid annotation is ignored and reported.
    pub(super) fn read(
        namespace: &str,
        name: &str,
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Vec<String>) {
        let mut reader = Reader { annotations, problems: Vec::new() };
        let target = ServiceKey::new(
            reader.text("overideNamespace").unwrap_or(namespace),
            reader.text("overideService").unwrap_or(name),
        );
        let alias = reader.alias(&target);
        let this = Self {
            target,
            alias,
            registers: reader.text("enableRegister") != Some("false"),
            metadata: reader.metadata(),
            weight: reader.number("weight", 0, MOST_WEIGHT).unwrap_or(WEIGHT),
            custom_weights: reader.custom_weights(),
            ttl: reader.number("ttl", 1, 60).and_then(|ttl| u8::try_from(ttl).ok()),
        };
        (this, reader.problems)
    }

    /// Returns the weight of a Pod's port.
    pub(super) fn weight(&self, pod: Option<&str>, port: u16) -> u32 {
        let ordinal = pod.and_then(|name| name.rsplit_once('-')).map(|(_, ordinal)| ordinal);
        let custom = ordinal.and_then(|ordinal| self.custom_weights.get(&format!("{ordinal}-{port}")));
        custom.copied().unwrap_or(self.weight)
    }
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Returns the value of an annotation; `None` if it is missing or empty.
    fn text(&self, name: &str) -> Option<&'a str> {
        let value = self.annotations.get(&format!("{PREFIX}{name}"))?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    fn problem(&mut self, name: &str, what: &str) {
        self.problems.push(format!("annotation {PREFIX}{name}: {what}; it does not count"));
    }

    fn number(&mut self, name: &str, least: u32, most: u32) -> Option<u32> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.problem(name, &format!("{text:?} is not a number from {least} to {most}"));
        }
        number
    }

    /// An alias needs both namespace and name, as in the original controller.
    fn alias(&mut self, target: &ServiceKey) -> Option<AliasKey> {
        let (namespace, name) = match (self.text("aliasNamespace"), self.text("aliasService")) {
            (Some(namespace), Some(name)) => (namespace, name),
            (None, None) => return None,
            (Some(_), None) => {
                self.problem("aliasNamespace", &format!("{PREFIX}aliasService is missing"));
                return None;
            }
            (None, Some(_)) => {
                self.problem("aliasService", &format!("{PREFIX}aliasNamespace is missing"));
                return None;
            }
        };
        let alias = ServiceKey::new(namespace, name);
        if alias == *target {
            self.problem("aliasService", "the alias has the name of the service");
            return None;
        }
        Some(AliasKey(alias))
    }

    fn json(&mut self, name: &str) -> serde_json::Map<String, serde_json::Value> {
        let Some(text) = self.text(name) else { return serde_json::Map::new() };
        match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => {
                self.problem(name, &format!("not a JSON object: {error}"));
                serde_json::Map::new()
            }
        }
    }

    fn metadata(&mut self) -> Metadata {
        let mut metadata = Metadata::new();
        for (key, value) in self.json("metadata") {
            match value {
                serde_json::Value::String(value) => drop(metadata.insert(key.into(), value.into())),
                _ => self.problem("metadata", &format!("the value of {key:?} is not text")),
            }
        }
        metadata
    }

    fn custom_weights(&mut self) -> BTreeMap<String, u32> {
        let kind = self.text("workloadKind").unwrap_or_default();
        if !["statefulset", "statefulsetplus"].contains(&kind) {
            if self.text("customWeight").is_some() {
                self.problem("customWeight", "needs workloadKind statefulset or statefulsetplus");
            }
            return BTreeMap::new();
        }
        let mut weights = BTreeMap::new();
        for (key, value) in self.json("customWeight") {
            let parts = key.split_once('-');
            let is_key = parts
                .is_some_and(|(ordinal, port)| ordinal.parse::<u32>().is_ok() && port.parse::<u16>().is_ok());
            let weight = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            let weight = weight.and_then(|weight| u32::try_from(weight).ok());
            match weight.filter(|weight| is_key && *weight <= MOST_WEIGHT) {
                Some(weight) => drop(weights.insert(key, weight)),
                None => self.problem(
                    "customWeight",
                    &format!("{key:?}: {value} is not ORDINAL-PORT with a weight from 0 to {MOST_WEIGHT}"),
                ),
            }
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Options, Vec<String>) {
        let all = pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect();
        Options::read("shop", "web", &all)
    }

    #[test]
    fn without_annotations_a_service_is_what_it_is() {
        let (options, problems) = read(&[]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(options.target, ServiceKey::new("shop", "web"));
        assert_eq!((options.alias.clone(), options.registers, options.ttl), (None, true, None));
        assert_eq!(options.weight(Some("web-0"), 80), 100);
    }

    #[test]
    fn each_annotation_counts() {
        let (options, problems) = read(&[
            ("overideNamespace", "Production"),
            ("overideService", "web.v2"),
            ("aliasNamespace", "old"),
            ("aliasService", "www"),
            ("enableRegister", "false"),
            ("metadata", r#"{"tier": "gold"}"#),
            ("weight", "50"),
            ("workloadKind", "statefulset"),
            ("customWeight", r#"{"0-80": 10, "1-80": "65535"}"#),
            ("ttl", "7"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(options.target, ServiceKey::new("Production", "web.v2"));
        assert_eq!(options.alias, Some(AliasKey(ServiceKey::new("old", "www"))));
        assert!(!options.registers);
        assert_eq!(options.metadata, [("tier".into(), "gold".into())].into());
        let weights = [("web-0", 80), ("web-1", 80), ("web-0", 81), ("web-2", 80), ("web", 80)];
        assert_eq!(weights.map(|(pod, port)| options.weight(Some(pod), port)), [10, 65_535, 50, 50, 50]);
        assert_eq!(options.ttl, Some(7));
    }

    #[test]
    fn alias_needs_namespace_and_name() {
        let of = |pairs| read(pairs).0.alias.map(|alias| alias.to_string());
        assert_eq!(of(&[("aliasNamespace", "old"), ("aliasService", "www")]).as_deref(), Some("old/www"));
        assert_eq!(of(&[("aliasNamespace", "shop"), ("aliasService", "www")]).as_deref(), Some("shop/www"));
        assert_eq!(of(&[("aliasService", "www")]), None);
        assert_eq!(of(&[("aliasNamespace", "old")]), None);
    }

    #[test]
    fn version_is_the_custom_one_before_the_label() {
        let of = |pairs: &[(&str, &str)]| {
            version(&pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()).to_string()
        };
        assert_eq!(of(&[("polarismesh.cn/customVersion", "v2"), ("version", "v1")]), "v2");
        assert_eq!(of(&[("version", "v1")]), "v1");
        assert_eq!(of(&[("app", "web")]), "");
    }

    #[test]
    fn what_is_wrong_is_told_and_costs_no_more() {
        for (key, value, part) in [
            ("weight", "heavy", "not a number from 0 to 65535"),
            ("weight", "65536", "not a number from 0 to 65535"),
            ("ttl", "0", "not a number from 1 to 60"),
            ("ttl", "61", "not a number from 1 to 60"),
            ("metadata", "{", "not a JSON object"),
            ("metadata", "[]", "not a JSON object"),
            ("metadata", r#"{"a": 1}"#, "the value of \"a\" is not text"),
            ("customWeight", r#"{"0-80": 1}"#, "needs workloadKind"),
            ("aliasService", "www", "polarismesh.cn/aliasNamespace is missing"),
            ("aliasNamespace", "old", "polarismesh.cn/aliasService is missing"),
        ] {
            let (options, problems) = read(&[(key, value)]);
            assert_eq!(options, read(&[]).0, "{key}={value}");
            assert!(problems.len() == 1 && problems[0].contains(part), "{key}={value}: {problems:?}");
        }
        let own = [("aliasNamespace", "shop"), ("aliasService", "web")];
        assert!(read(&own).1[0].contains("has the name of the service"), "{:?}", read(&own));
        for value in
            [r#"{"x-80": 1}"#, r#"{"0-80": 65536}"#, r#"{"0-80": -1}"#, r#"{"0": 1}"#, r#"{"0-80": null}"#]
        {
            let (_, problems) = read(&[("workloadKind", "statefulset"), ("customWeight", value)]);
            assert!(problems.len() == 1 && problems[0].contains("ORDINAL-PORT"), "{value}: {problems:?}");
        }
    }
}
