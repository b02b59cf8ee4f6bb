//! Objects as JSON, for debug pages: what is in force, with defaults applied and empty fields left out.

use super::content::with_type;
use crate::{extensions, gateway_api, kubernetes, mesh, networking, security, telemetry};
use pilotfish_model::{Kind, KindSpec, Object};
use serde::Serialize;
use serde_json::Value;

/// The content of an object as JSON. Of a Secret, nothing is shown.
#[must_use]
pub fn spec_json(object: &Object) -> Value {
    match object.key().kind {
        Kind::Secret => Value::Null,
        kind => with_type!(kind, T => json::<T>(object)),
    }
}

fn json<T: KindSpec + Serialize>(object: &Object) -> Value {
    let value = object.typed::<T>().map(|typed| serde_json::to_value(&*typed));
    let mut value = value.and_then(Result::ok).unwrap_or_default();
    prune(&mut value);
    value
}

/// Drops fields that are absent or empty.
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
