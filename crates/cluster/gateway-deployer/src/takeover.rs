//! Objects that an istiod made: its fields move to Pilotfish's field manager.
//!
//! Fields that move and are not applied afterwards are removed by the API server, so nothing of istiod's is
//! left behind. The Pods of a Deployment keep istiod's template, unless the Gateway asks for another proxy,
//! and the number of replicas stays where Pilotfish applies none.

use crate::object::{FIELD_MANAGER, ManagedKind, Manifest};
use pilotfish_config::status::CONTROLLERS;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Field manager of an istiod.
pub(crate) const ISTIOD: &str = CONTROLLERS[0];

/// True if an istiod applies fields of the object.
pub(crate) fn is_applied_by_istiod(object: &Value) -> bool {
    managed_fields(object).iter().any(|entry| is_applied_by(entry, ISTIOD))
}

/// True if an istiod applies the Pod template of the object.
pub(crate) fn has_pods_of_istiod(object: &Value) -> bool {
    let of_istiod = managed_fields(object).iter().filter(|entry| is_applied_by(entry, ISTIOD));
    of_istiod.into_iter().any(|entry| entry.pointer("/fieldsV1/f:spec/f:template").is_some())
}

/// Returns `metadata.managedFields` with the fields of an istiod moved to Pilotfish, those of the Pod
/// template only if it is not kept. Kept replicas have no owner then: their value stays without one. `None`
/// if nothing moves.
pub(crate) fn moved(object: &Value, keeps_pods: bool, keeps_replicas: bool) -> Option<Vec<Value>> {
    let (of_istiod, mut entries): (Vec<Value>, Vec<Value>) =
        managed_fields(object).iter().cloned().partition(|entry| is_applied_by(entry, ISTIOD));
    let mut has_moved = false;
    for mut entry in of_istiod {
        let mut fields = entry.get("fieldsV1").and_then(Value::as_object).cloned().unwrap_or_default();
        let template = if keeps_pods { take(&mut fields, "f:template") } else { None };
        has_moved |= !fields.is_empty() || template.is_none();
        if keeps_replicas {
            take(&mut fields, "f:replicas");
        }
        if let Some(template) = template {
            let mut kept = entry.clone();
            kept["fieldsV1"] = json!({"f:spec": {"f:template": template}});
            entries.push(kept);
        }
        let own = entries.iter_mut().find(|own| {
            is_applied_by(own, FIELD_MANAGER) && own.get("apiVersion") == entry.get("apiVersion")
        });
        match own.and_then(|own| own.get_mut("fieldsV1")).and_then(Value::as_object_mut) {
            Some(own) => unite(own, fields),
            None if fields.is_empty() => {}
            None => {
                entry["manager"] = json!(FIELD_MANAGER);
                entry["fieldsV1"] = Value::Object(fields);
                entries.push(entry);
            }
        }
    }
    has_moved.then_some(entries)
}

/// Removes a field of `spec`, and `spec` if nothing else is in it.
fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let spec = fields.get_mut("f:spec")?.as_object_mut()?;
    let taken = spec.remove(name);
    if spec.is_empty() {
        fields.remove("f:spec");
    }
    taken
}

/// Adds fields to those of another entry.
fn unite(own: &mut Map<String, Value>, fields: Map<String, Value>) {
    for (name, value) in fields {
        match (own.get_mut(&name), value) {
            (Some(Value::Object(own)), Value::Object(fields)) => unite(own, fields),
            (Some(_), _) => {}
            (None, value) => drop(own.insert(name, value)),
        }
    }
}

/// Manifest of a Deployment with the selector of the stored one, which cannot be changed: its Pods get the
/// labels that it selects.
pub(crate) fn with_selector<'a>(manifest: &'a Manifest, stored: &Value) -> Cow<'a, Manifest> {
    const SELECTOR: &str = "/spec/selector";
    let selector = stored.pointer(SELECTOR).filter(|_| manifest.id.kind == ManagedKind::Deployment);
    let Some(selector) = selector.filter(|selector| Some(*selector) != manifest.body.pointer(SELECTOR))
    else {
        return Cow::Borrowed(manifest);
    };
    let mut manifest = manifest.clone();
    let selected = selector.get("matchLabels").and_then(Value::as_object).cloned().unwrap_or_default();
    let labels = manifest.body.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.extend(selected);
    }
    if let Some(own) = manifest.body.pointer_mut(SELECTOR) {
        own.clone_from(selector);
    }
    Cow::Owned(manifest)
}

/// Removes the Pod template of a Deployment.
pub(crate) fn without_pods(mut manifest: Manifest) -> Manifest {
    if let Some(spec) = manifest.body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("template");
    }
    manifest
}

/// True for the entry of a manager that applies the object itself.
fn is_applied_by(entry: &Value, manager: &str) -> bool {
    let is_status = entry.get("subresource").is_some_and(|subresource| subresource != "");
    entry["manager"] == manager && entry["operation"] == "Apply" && !is_status
}

fn managed_fields(object: &Value) -> &[Value] {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectId;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields})
    }

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"managedFields": entries}})
    }

    #[test]
    fn fields_of_an_istiod_move_and_kept_pods_stay_its_own() {
        let all = json!({"f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {"f:selector": {}, "f:template": {"f:spec": {}}}});
        let rest = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:selector": {}}});
        let pods = json!({"f:spec": {"f:template": {"f:spec": {}}}});
        let more = json!({"f:metadata": {"f:labels": {"f:b": {}}}});
        let united =
            json!({"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}}, "f:spec": {"f:selector": {}}});
        let istiod = |fields: &Value| entry(ISTIOD, "Apply", fields);
        let own = |fields: &Value| entry(FIELD_MANAGER, "Apply", fields);
        let others = [entry("kubectl", "Update", &json!({})), entry("argocd", "Apply", &json!({}))];
        for (before, keeps_pods, after) in [
            (vec![istiod(&all)], false, Some(vec![own(&all)])),
            (vec![istiod(&all)], true, Some(vec![istiod(&pods), own(&rest)])),
            (vec![istiod(&pods), own(&rest)], true, None),
            (vec![istiod(&pods), own(&rest)], false, Some(vec![own(&all)])),
            (vec![istiod(&all), own(&more)], true, Some(vec![own(&united), istiod(&pods)])),
            (vec![own(&all)], false, None),
            (others.to_vec(), false, None),
        ] {
            assert_eq!(moved(&object(&before), keeps_pods, true), after, "{before:?}");
        }
        let found = moved(&object(&[others.as_slice(), &[istiod(&all)]].concat()), false, true).unwrap();
        assert_eq!(found[..2], others, "other managers keep theirs");
    }

    #[test]
    fn kept_replicas_have_no_owner() {
        let labels = json!({"f:labels": {"f:a": {}}});
        let fields = |spec: Value| json!({"f:metadata": labels, "f:spec": spec});
        let istiod = |fields: &Value| entry(ISTIOD, "Apply", fields);
        let own = |fields: &Value| entry(FIELD_MANAGER, "Apply", fields);
        let all = fields(json!({"f:replicas": {}, "f:selector": {}, "f:template": {}}));
        let scaled = fields(json!({"f:replicas": {}, "f:selector": {}}));
        let rest = fields(json!({"f:selector": {}}));
        let pods = json!({"f:spec": {"f:template": {}}});
        let only = json!({"f:spec": {"f:replicas": {}, "f:template": {}}});
        for (before, keeps_pods, keeps_replicas, after) in [
            (vec![istiod(&scaled)], false, false, vec![own(&scaled)]),
            (vec![istiod(&scaled)], false, true, vec![own(&rest)]),
            (vec![istiod(&all)], true, false, vec![istiod(&pods), own(&scaled)]),
            (vec![istiod(&all)], true, true, vec![istiod(&pods), own(&rest)]),
            (vec![istiod(&only), own(&rest)], true, true, vec![own(&rest), istiod(&pods)]),
        ] {
            assert_eq!(moved(&object(&before), keeps_pods, keeps_replicas), Some(after), "{before:?}");
        }
    }

    #[test]
    fn managers_are_told_apart() {
        let status = json!({"manager": ISTIOD, "operation": "Apply", "subresource": "status"});
        for (entries, expected) in [
            (vec![entry(ISTIOD, "Apply", &json!({"f:spec": {"f:template": {}}}))], (true, true)),
            (vec![entry(ISTIOD, "Apply", &json!({"f:spec": {}}))], (true, false)),
            (vec![entry(ISTIOD, "Update", &json!({"f:spec": {"f:template": {}}}))], (false, false)),
            (vec![entry("argocd", "Apply", &json!({})), status], (false, false)),
        ] {
            let object = object(&entries);
            assert_eq!((is_applied_by_istiod(&object), has_pods_of_istiod(&object)), expected, "{object}");
        }
    }

    #[test]
    fn the_stored_selector_stays() {
        let manifest = |labels: Value, selector: Value| Manifest {
            id: ObjectId { kind: ManagedKind::Deployment, namespace: "a".into(), name: "b".into() },
            body: json!({"spec": {"selector": {"matchLabels": selector},
                         "template": {"metadata": {"labels": labels}}}}),
        };
        let own = manifest(json!({"new": "x"}), json!({"new": "x"}));
        let old = manifest(json!({}), json!({"old": "x"}));
        let expected = manifest(json!({"new": "x", "old": "x"}), json!({"old": "x"}));
        assert_eq!(*with_selector(&own, &old.body), expected);
        assert!(matches!(with_selector(&own, &own.body), Cow::Borrowed(_)));
        assert_eq!(without_pods(own).body, json!({"spec": {"selector": {"matchLabels": {"new": "x"}}}}));
    }
}
