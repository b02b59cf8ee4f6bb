use super::*;
use serde_json::json;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const HOST: &str = "envoy.config.route.v3.VirtualHost";
const ROUTE: &str = "envoy.config.route.v3.Route";
const LISTENER: &str = "envoy.config.listener.v3.Listener";

fn message(name: &str, json: serde_json::Value) -> DynamicMessage {
    DynamicMessage::deserialize(crate::pool().get_message_by_name(name).unwrap(), json).unwrap()
}

fn fault(name: &str, json: serde_json::Value, extent: Extent) -> String {
    check(&message(name, json), extent, &|_| None).err().map(|fault| fault.to_string()).unwrap_or_default()
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn what_breaks_a_rule_is_named_with_its_field() {
    let tcp = |config: serde_json::Value| {
        let mut config = config;
        config["@type"] = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy".into();
        json!({"filter_chains": [{"filters": [{"name": "a", "typed_config": config}]}]})
    };
    for (name, json, whole, part) in [
        (CLUSTER, json!({"name": "a"}), "", ""),
        (CLUSTER, json!({"type": "STATIC"}), "name must have at least 1 characters", ""),
        (
            CLUSTER,
            json!({"name": "a", "connect_timeout": "0s"}),
            "connect_timeout must be greater than 0s",
            SAME,
        ),
        (
            CLUSTER,
            json!({"name": "a", "connect_timeout": "-1s"}),
            "connect_timeout must not be below zero",
            SAME,
        ),
        (CLUSTER, json!({"name": "a", "lb_policy": 99}), "lb_policy has a value that is not allowed", SAME),
        (
            CLUSTER,
            json!({"name": "a", "ring_hash_lb_config": {"minimum_ring_size": 9_000_000}}),
            "ring_hash_lb_config.minimum_ring_size must be at most 8388608",
            SAME,
        ),
        (
            CLUSTER,
            json!({"name": "a", "load_assignment": {"endpoints": []}}),
            "load_assignment.cluster_name must have at least 1 characters",
            "",
        ),
        (HOST, json!({"name": "a", "domains": ["*"]}), "", ""),
        (HOST, json!({"name": "a"}), "domains must have at least 1 elements", ""),
        (HOST, json!({"domains": ["*"]}), "name must have at least 1 characters", ""),
        (
            HOST,
            json!({"name": "a", "domains": ["*"], "request_headers_to_remove": ["a\nb"]}),
            "request_headers_to_remove[0] has characters that no header may have",
            SAME,
        ),
        (ROUTE, json!({"match": {"prefix": "/"}, "direct_response": {"status": 200}}), "", ""),
        (
            ROUTE,
            json!({"match": {"prefix": "/"}}),
            "must have one of route, redirect, direct_response, filter_action, non_forwarding_action",
            "",
        ),
        (ROUTE, json!({"direct_response": {"status": 200}}), "match must be set", ""),
        (
            ROUTE,
            json!({"match": {"prefix": "/"}, "direct_response": {"status": 999}}),
            "direct_response.status must be less than 600",
            SAME,
        ),
        // What is packed is checked as well.
        (LISTENER, tcp(json!({"stat_prefix": "a", "cluster": "b"})), "", ""),
        (
            LISTENER,
            tcp(json!({"cluster": "b"})),
            "filter_chains[0].filters[0].typed_config.stat_prefix must have at least 1 characters",
            "",
        ),
        (
            LISTENER,
            tcp(json!({"stat_prefix": "a", "cluster": "b", "max_connect_attempts": 0})),
            "filter_chains[0].filters[0].typed_config.max_connect_attempts must be at least 1",
            SAME,
        ),
    ] {
        assert_eq!(fault(name, json.clone(), Extent::Whole), whole, "{json}");
        let part = if part == SAME { whole } else { part };
        assert_eq!(fault(name, json.clone(), Extent::Part), part, "a part: {json}");
    }
}

/// A part breaks the same rule.
const SAME: &str = "same";

#[test]
fn every_message_is_shown_to_the_other_check() {
    let listener = json!({"name": "a", "filter_chains": [{"name": "b"}, {"name": "c"}]});
    let also = |message: &DynamicMessage| {
        let name = message.get_field_by_name("name")?.as_str()?.to_owned();
        (name == "c").then(|| format!("is called {name}"))
    };
    let fault = check(&message(LISTENER, listener), Extent::Whole, &also).unwrap_err();
    assert_eq!(fault, Fault { path: "filter_chains[1]".into(), message: "is called c".into() });
}

#[test]
fn messages_in_messages_have_an_end() {
    let mut any = DynamicMessage::new(crate::pool().get_message_by_name("google.protobuf.Any").unwrap());
    for _ in 0..1_000 {
        let bytes = prost::Message::encode_to_vec(&any);
        any.set_field_by_name("type_url", Value::String("x/google.protobuf.Any".into()));
        any.set_field_by_name("value", Value::Bytes(bytes.into()));
    }
    assert!(check(&any, Extent::Whole, &|_| None).is_err());
}
