//! Normalisation of resources: Pilotfish and Envoy write protobuf as JSON differently, and Envoy builds the
//! load assignments of its dump from its endpoints.

use serde_json::{Map, Value};

/// Default of `overprovisioning_factor` (`ClusterLoadAssignment.Policy`).
const OVERPROVISIONING: u64 = 140;

/// Fields with secret content, which Envoy and Pilotfish hide in different ways.
const SECRET: [&str; 4] = ["private_key", "password", "session_ticket_keys", "generic_secret"];

/// Normalises a resource, so that equivalent ones are equal.
#[must_use]
pub fn plain(kind: &str, resource: &Value) -> Value {
    let mut resource = resource.clone();
    if let Value::Object(fields) = &mut resource {
        fields.remove("@type");
        if kind == "endpoints" {
            load_assignment(fields);
        }
    }
    scalars(&mut resource);
    resource
}

/// Normalises durations without trailing zeros, and integers as numbers: protobuf JSON has 64-bit ones as
/// strings.
fn scalars(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if SECRET.contains(&name.as_str()) {
                    *value = Value::from("(hidden)");
                } else {
                    scalars(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scalars),
        Value::String(text) => {
            let seconds = text.strip_suffix('s').filter(|number| number.contains('.'));
            if let Some(number) = seconds.filter(|number| number.parse::<f64>().is_ok()) {
                *text = format!("{}s", number.trim_end_matches('0').trim_end_matches('.'));
            } else if let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == *text)
            {
                *value = Value::from(number);
            }
        }
        Value::Number(number) => {
            let whole = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e15);
            if let Some(whole) = whole.filter(|_| number.is_f64()) {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

/// Normalises a load assignment: without defaults that Envoy writes, without empty localities, and in a fixed
/// order, since Envoy keeps existing endpoints before new ones.
fn load_assignment(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(policy)) = fields.get_mut("policy") {
        if policy.get("overprovisioning_factor").and_then(Value::as_u64) == Some(OVERPROVISIONING) {
            policy.remove("overprovisioning_factor");
        }
        if policy.is_empty() {
            fields.remove("policy");
        }
    }
    let Some(Value::Array(localities)) = fields.get_mut("endpoints") else { return };
    for locality in localities.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(Value::Array(endpoints)) = locality.get_mut("lb_endpoints") {
            endpoints.iter_mut().filter_map(Value::as_object_mut).for_each(endpoint);
            endpoints.sort_by_cached_key(Value::to_string);
        }
        let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        if locality.get("locality").is_some_and(is_empty) {
            locality.remove("locality");
        }
        // Envoy writes 0 for a locality without a weight.
        if locality.get("load_balancing_weight").is_some_and(|weight| weight == 0) {
            locality.remove("load_balancing_weight");
        }
    }
    let has_endpoints = |locality: &Value| {
        locality.get("lb_endpoints").and_then(Value::as_array).is_some_and(|endpoints| !endpoints.is_empty())
    };
    localities.retain(has_endpoints);
    localities.sort_by_cached_key(Value::to_string);
    if localities.is_empty() {
        fields.remove("endpoints");
    }
}

fn endpoint(fields: &mut Map<String, Value>) {
    // Envoy treats an endpoint with unknown health as healthy.
    if matches!(fields.get("health_status").and_then(Value::as_str), Some("HEALTHY" | "UNKNOWN")) {
        fields.remove("health_status");
    }
    if let Some(Value::Object(endpoint)) = fields.get_mut("endpoint") {
        let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        if endpoint.get("health_check_config").is_some_and(is_empty) {
            endpoint.remove("health_check_config");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_same(kind: &str, sent: &Value, held: &Value) -> bool {
        plain(kind, sent) == plain(kind, held)
    }

    #[test]
    fn numbers_and_durations_are_compared_by_value() {
        for (sent, held, same) in [
            (json!({"attempts": 5}), json!({"attempts": "5"}), true),
            (json!({"attempts": 5}), json!({"attempts": "6"}), false),
            (json!({"timeout": "0.25s"}), json!({"timeout": "0.250s"}), true),
            (json!({"version": "05"}), json!({"version": "5"}), false),
            (json!({"@type": "x", "share": 1.0}), json!({"share": 1}), true),
        ] {
            assert_eq!(is_same("routes", &sent, &held), same, "{sent} {held}");
        }
    }

    #[test]
    fn an_assignment_that_envoy_made_anew_is_the_same() {
        let address =
            |address: &str| json!({"address": {"socket_address": {"address": address, "port_value": 80}}});
        let dumped = |text: &str| {
            let mut endpoint = address(text);
            endpoint["health_check_config"] = json!({});
            json!({"endpoint": endpoint, "health_status": "HEALTHY", "load_balancing_weight": 1})
        };
        let sent = |text: &str| json!({"endpoint": address(text), "load_balancing_weight": 1});
        let assignment = json!({"@type": "x", "cluster_name": "c", "endpoints": [
            {"locality": {}, "lb_endpoints": [sent("10.0.0.1"), sent("10.0.0.2")]},
            {"locality": {"region": "r"}, "priority": 1, "lb_endpoints": []},
        ]});
        let held = |endpoints: Value| {
            json!({"cluster_name": "c", "policy": {"overprovisioning_factor": 140}, "endpoints": [
                {"locality": {}, "lb_endpoints": endpoints, "load_balancing_weight": 0},
            ]})
        };
        let (one, two) = (dumped("10.0.0.1"), dumped("10.0.0.2"));
        assert!(is_same("endpoints", &assignment, &held(json!([two, one]))));
        let mut ejected = two.clone();
        ejected["health_status"] = "UNHEALTHY".into();
        for endpoints in [json!([one]), json!([one, ejected]), json!([one, dumped("10.0.0.3")])] {
            assert!(!is_same("endpoints", &assignment, &held(endpoints.clone())), "{endpoints}");
        }
        let nothing = json!({"cluster_name": "c"});
        assert!(is_same("endpoints", &nothing, &held(json!([]))));
    }
}
