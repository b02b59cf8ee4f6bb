//! JSON of objects in force for debug pages, with defaults applied and empty fields left out.

use super::content::with_type;
use crate::{extensions, gateway_api, kubernetes, mesh, networking, security, telemetry};
use pilotfish_model::{Kind, KindSpec, Object, ObjectMeta};
use serde::Serialize;
use serde_json::Value;

/// Content of an object as JSON; null for a Secret.
#[must_use]
pub fn spec_json(object: &Object) -> Value {
    match object.key().kind {
        Kind::Secret => Value::Null,
        kind => with_type!(kind, T => json::<T>(object)),
    }
}

/// Content of an object of Istio's kinds as JSON, for other programs. Only absent fields are left out, since
/// an empty object can have a meaning (a header that must be present). A match without condition is an empty
/// string. `None` if JSON cannot express the content: closed objects.
#[must_use]
pub fn whole_spec_json(object: &Object) -> Option<Value> {
    if is_closed(object) {
        return None;
    }
    let mut value =
        with_type!(object.key().kind, T => object.typed::<T>().map(|typed| serde_json::to_value(&*typed)))?;
    if let Ok(value) = &mut value {
        drop_absent(value, free_fields(object.key().kind));
    }
    value.ok()
}

/// Object with content that [`whole_spec_json`] returned.
///
/// # Errors
/// If it is not valid content of the kind.
pub fn object_of(meta: ObjectMeta, content: Value) -> Result<Object, serde_json::Error> {
    with_type!(meta.key.kind, T => {
        let spec: T = serde_json::from_value(content)?;
        Ok(Object::new(meta, spec))
    })
}

fn is_closed(object: &Object) -> bool {
    let gateway = object.typed::<networking::Gateway>();
    let rule = object.typed::<networking::DestinationRule>();
    let peers = object.typed::<security::PeerAuthentication>();
    let requests = object.typed::<security::RequestAuthentication>();
    gateway.is_some_and(|gateway| gateway.servers.iter().any(|server| server.closed))
        || rule.is_some_and(|rule| rule.closes_anything())
        || peers.is_some_and(|peers| peers.closed)
        || requests
            .is_some_and(|requests| requests.closed || requests.jwt_rules.iter().any(|rule| rule.closed))
}

/// Drops fields without a value, and variants for absent fields.
fn drop_absent(value: &mut Value, free: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !value.is_null() && !name.is_empty());
            let typed = fields.iter_mut().filter(|(name, _)| !free.contains(&name.as_str()));
            typed.for_each(|(_, value)| drop_absent(value, free));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_absent(item, free)),
        _ => {}
    }
}

/// Fields of a kind with arbitrary JSON, in which `null` is a value.
fn free_fields(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::EnvoyFilter => &["value"],
        Kind::WasmPlugin | Kind::TrafficExtension => &["pluginConfig"],
        Kind::MeshConfig => &["labels"],
        _ => &[],
    }
}

fn json<T: KindSpec + Serialize>(object: &Object) -> Value {
    let value = object.typed::<T>().map(|typed| serde_json::to_value(&*typed));
    let mut value = value.and_then(Result::ok).unwrap_or_default();
    prune(&mut value);
    value
}

/// Drops absent and empty fields.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Limits, read, spec_json};

    #[test]
    fn an_object_is_shown_as_it_is_in_force() {
        let text = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: n}\n\
                    spec: {host: a, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1500ms}}}}\n";
        let file = read("a.yaml", text.as_bytes(), &Limits::default());
        let json = spec_json(&file.objects[0].object);

        assert_eq!(json["host"], "a");
        assert_eq!(json["trafficPolicy"]["connectionPool"]["tcp"]["connectTimeout"], "1.5s");
        assert!(json.get("subsets").is_none());
    }
}
