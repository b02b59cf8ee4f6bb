//! Gateways whose Deployment and Service their controller makes.

use crate::Limits;
use crate::yaml::{Loaded, Mode, decode, load};
use pilotfish_model::ObjectKey;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label of a ConfigMap with the defaults of a GatewayClass, which it names.
pub const DEFAULTS_FOR_CLASS: &str = "gateway.istio.io/defaults-for-class";

/// Keys of a ConfigMap that change the objects of a gateway, each named after the kind that it changes.
pub const OVERLAY_KEYS: [&str; 5] =
    ["deployment", "horizontalPodAutoscaler", "podDisruptionBudget", "service", "serviceAccount"];

/// Maximum size of one overlay in bytes.
const LARGEST_OVERLAY: usize = 64 << 10;

/// Changes to the objects of a gateway: parts of these objects by their key in the ConfigMap.
pub type Overlays = BTreeMap<&'static str, Map<String, Value>>;

/// A Gateway whose Deployment and Service its controller makes, with everything that they depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedGateway {
    pub key: ObjectKey,
    /// `metadata.uid`; empty if the Gateway is not from an API server.
    pub uid: Arc<str>,
    pub class: String,
    /// Controller of the class.
    pub controller: &'static str,
    /// Name of the Deployment and the Service.
    pub name: String,
    /// Ports of the served listeners, in the order of the listeners, without duplicates.
    pub ports: Vec<ManagedPort>,
    /// Labels and annotations of all objects.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Type of the Service, if the Gateway asks for one.
    pub service_type: Option<String>,
    /// Name of the ServiceAccount, if the Gateway asks for one.
    pub service_account: Option<String>,
    /// Address that the load balancer should have.
    pub address: Option<String>,
    /// True if Pods with another proxy, which an istiod made, get the template's Envoy.
    pub replaces_proxy: bool,
    /// Changes to the objects: those of the class first. Or the reason why they cannot be used.
    pub overlays: Result<Vec<Overlays>, String>,
}

/// Port of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedPort {
    /// Name of the first listener of the port.
    pub listener: String,
    pub port: u16,
    /// Protocol of the listener, such as `HTTP`.
    pub protocol: String,
}

/// Reads the overlays in the data of a ConfigMap.
///
/// # Errors
/// If one of them is too large, or no YAML mapping; the message names its key.
pub fn read_overlays(data: &BTreeMap<String, String>) -> Result<Overlays, String> {
    let present = OVERLAY_KEYS.into_iter().filter_map(|key| Some((key, data.get(key)?)));
    present
        .map(|(key, text)| Ok((key, mapping(text).map_err(|why| format!("data[{key}]: {why}"))?)))
        .collect()
}

/// Reads one YAML document with a mapping; empty text is an empty mapping.
fn mapping(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > LARGEST_OVERLAY {
        return Err(format!("has {} bytes, at most {LARGEST_OVERLAY} are allowed", text.len()));
    }
    let mut documents = Vec::new();
    load(text, &Limits::default(), |loaded| documents.push(loaded));
    let mut documents = documents.into_iter();
    let root = match documents.next() {
        None => return Ok(Map::new()),
        Some(Loaded::Broken { line, message, .. }) => return Err(format!("line {line}: {message}")),
        Some(Loaded::Document { root, .. }) => root,
    };
    if documents.next().is_some() {
        return Err("has several documents".to_owned());
    }
    if !root.is_mapping() {
        return Err("is not a mapping of fields".to_owned());
    }
    let decoded = decode::<Map<String, Value>>(&root, Mode::Partial, &[]);
    let problem = decoded.problems.first().map(ToString::to_string);
    decoded.value.ok_or_else(|| problem.unwrap_or_else(|| "cannot be read".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(key: &str, text: &str) -> Result<Overlays, String> {
        read_overlays(&BTreeMap::from([(key.to_owned(), text.to_owned())]))
    }

    #[test]
    fn overlays_are_mappings_by_known_keys() {
        let found =
            read("deployment", "spec: {replicas: 3, paused: false, name: \"1\", none: null}\n").unwrap();
        let expected = json!({"spec": {"replicas": 3, "paused": false, "name": "1", "none": null}});
        assert_eq!(Value::Object(found["deployment"].clone()), expected);
        assert!(read("ca.crt", "x").unwrap().is_empty(), "other keys are not read");
        assert!(read("service", "").unwrap()["service"].is_empty());
    }

    #[test]
    fn overlays_that_cannot_be_read_name_their_key() {
        for (text, expected) in [
            ("[1]", "data[service]: is not a mapping"),
            ("a: {", "data[service]: line "),
            ("a: 1\n---\nb: 2\n", "data[service]: has several documents"),
            (&*format!("a: {}", "x".repeat(LARGEST_OVERLAY)), "data[service]: has "),
        ] {
            let found = read("service", text).unwrap_err();
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
