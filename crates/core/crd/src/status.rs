//! Schemas of `status`. It is written by controllers, this one and others, so it is described and never
//! narrow.

use pilotfish_model::Kind;
use serde_json::{Value, json};

/// The schema of a kind's `status`; `None` when it has none.
pub(super) fn status(kind: Kind) -> Option<Value> {
    let schema = match kind {
        Kind::ReferenceGrant => return None,
        Kind::GatewayClass => object(json!({
            "conditions": conditions(),
            "supportedFeatures": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": text()}, "required": ["name"]},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            },
        })),
        Kind::KubernetesGateway => gateway(),
        Kind::ListenerSet => object(json!({"conditions": conditions(), "listeners": listeners()})),
        Kind::HttpRoute | Kind::GrpcRoute | Kind::TcpRoute | Kind::TlsRoute => route(),
        Kind::BackendTlsPolicy => policy(),
        Kind::ServiceExport => object(json!({"conditions": conditions()})),
        Kind::ServiceImport => object(json!({
            "clusters": {
                "type": "array",
                "items": {"type": "object", "properties": {"cluster": text()}, "required": ["cluster"]},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["cluster"],
            },
            "conditions": conditions(),
        })),
        _ => istio(),
    };
    Some(schema)
}

/// Istio's controllers write more than is named here (analysis messages, allocated addresses), so all of it
/// is kept.
fn istio() -> Value {
    json!({
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "type": text(), "status": text(), "reason": text(), "message": text(),
                        "observedGeneration": generation(),
                        "lastProbeTime": time(), "lastTransitionTime": time(),
                    },
                    "x-kubernetes-preserve-unknown-fields": true,
                },
            },
            "observedGeneration": {"x-kubernetes-int-or-string": true},
        },
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn gateway() -> Value {
    let address = object(json!({"type": text(), "value": text()}));
    object(json!({
        "addresses": {"type": "array", "items": address},
        "attachedListenerSets": {"type": "integer", "format": "int32"},
        "conditions": conditions(),
        "listeners": listeners(),
    }))
}

/// The listeners of a Gateway or ListenerSet.
fn listeners() -> Value {
    let kind = json!({
        "type": "object", "properties": {"group": text(), "kind": text()}, "required": ["kind"],
    });
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": text(),
                "attachedRoutes": {"type": "integer", "format": "int32"},
                "conditions": conditions(),
                "supportedKinds": {"type": "array", "items": kind},
            },
            "required": ["name"],
        },
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    })
}

fn route() -> Value {
    object(json!({"parents": of_parents("parentRef")}))
}

fn policy() -> Value {
    object(json!({"ancestors": of_parents("ancestorRef")}))
}

/// The entries of controllers for each parent or ancestor, which is in `field`.
fn of_parents(field: &str) -> Value {
    let parent = object(json!({
        "group": text(), "kind": text(), "namespace": text(), "name": text(), "sectionName": text(),
        "port": {"type": "integer", "format": "int32"},
    }));
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {field: parent, "controllerName": text(), "conditions": conditions()},
            "required": ["controllerName", field],
        },
        "x-kubernetes-list-type": "atomic",
    })
}

/// Kubernetes' conditions: a list by type, so that several writers can each own theirs.
fn conditions() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "type": text(),
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": text(),
                "message": text(),
                "observedGeneration": generation(),
                "lastTransitionTime": time(),
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    })
}

#[allow(clippy::needless_pass_by_value, reason = "made for this call")]
fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn generation() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}
