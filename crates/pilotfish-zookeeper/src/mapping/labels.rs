//! Labels and locality out of parameters and metadata.

use pilotfish_model::Locality;
use std::collections::BTreeMap;

/// Parameters that say how Dubbo works, or differ with each start of a provider. What is left describes the provider.
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

/// Metadata of applications that Dubbo needs itself.
const DUBBO: &str = "dubbo.";
/// The one with this start that operators write: the tag of Dubbo's routing.
const TAG: &str = "dubbo.tag";

/// Labels of what is described by these parameters.
pub(super) fn labels(parameters: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let technical = |key: &str| {
        let own = key.starts_with(DUBBO) && key != TAG;
        own || TECHNICAL.contains(&key) || key.ends_with(".timeout")
    };
    let kept = parameters.iter().filter(|(key, value)| !technical(key) && !value.is_empty());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The locality that parameters give: `region` and `zone`, as Dubbo and Spring Cloud name them. A zone alone says nothing.
pub(super) fn locality(parameters: &BTreeMap<String, String>) -> Locality {
    let value = |key: &str| parameters.get(key).map_or("", String::as_str);
    match value("region") {
        "" => Locality::default(),
        region => Locality { region: region.into(), zone: value("zone").into(), sub_zone: "".into() },
    }
}

/// A weight as registered. `None` for no weight, `Some(0)` for one that takes no traffic.
pub(super) fn weight(text: Option<&str>) -> Option<u32> {
    let number: i64 = text?.trim().parse().ok()?;
    Some(u32::try_from(number.clamp(0, 65_535)).unwrap_or_default())
}
