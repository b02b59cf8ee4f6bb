//! Labels and locality from parameters and metadata.

use pilotfish_model::Locality;
use std::collections::BTreeMap;

/// Parameters that configure Dubbo, or differ with each start of a provider. The others describe the provider
/// and become labels.
const TECHNICAL: &[&str] = &[
    "anyhost",
    "background",
    "bind.ip",
    "bind.port",
    "category",
    "check",
    "deprecated",
    "disabled",
    "dubbo",
    "dynamic",
    "enabled",
    "executor-management-mode",
    "ext.protocol",
    "file-cache",
    "generic",
    "interface",
    "ipv6",
    "meta-v",
    "metadata-type",
    "methods",
    "pid",
    "prefer.serialization",
    "qos.enable",
    "qos.port",
    "register-mode",
    "serialization",
    "service-name-mapping",
    "side",
    "timestamp",
    "weight",
    "REGISTRY_CLUSTER",
    "instance_status",
    "warmup",
    "timeout",
    "retries",
    "threads",
    "threadpool",
];

/// Prefix of metadata for Dubbo's own use.
const DUBBO: &str = "dubbo.";
/// Exception to the prefix, set by operators: the tag of Dubbo's routing.
const TAG: &str = "dubbo.tag";

/// Returns the labels from these parameters.
pub(super) fn labels(parameters: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let technical = |key: &str| {
        let own = key.starts_with(DUBBO) && key != TAG;
        own || TECHNICAL.contains(&key) || key.ends_with(".timeout")
    };
    let kept = parameters.iter().filter(|(key, value)| !technical(key) && !value.is_empty());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the locality from the parameters `region` and `zone`, as Dubbo and Spring Cloud name them. A zone
/// without a region is ignored.
pub(super) fn locality(parameters: &BTreeMap<String, String>) -> Locality {
    let value = |key: &str| parameters.get(key).map_or("", String::as_str);
    match value("region") {
        "" => Locality::default(),
        region => Locality { region: region.into(), zone: value("zone").into(), sub_zone: "".into() },
    }
}

/// Parses a registered weight. `None` if it is missing or invalid, `Some(0)` for a provider without traffic.
pub(super) fn weight(text: Option<&str>) -> Option<u32> {
    let number: i64 = text?.trim().parse().ok()?;
    Some(u32::try_from(number.clamp(0, 65_535)).unwrap_or_default())
}
