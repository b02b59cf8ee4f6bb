//! Generates objects by the schema of their kind, mostly with meaningful values.

use crate::input::Input;
use crate::schemas::Schema;
use serde_json::{Map, Value, json};

/// Maximum depth of values; the types have fewer levels.
const DEEPEST: usize = 24;
/// Maximum number of values in one object.
const MOST_VALUES: usize = 400;

const NAMES: &[&str] = &["web", "db", "edge", "a", "default", "mesh", "v1", "v2", "http", "tcp-db", "x.y"];
const NAMESPACES: &[&str] = &["shop", "edge", "istio-system", "", "*", ".", "default"];
const HOSTS: &[&str] = &[
    "web",
    "web.shop.svc.cluster.local",
    "db.shop.svc.cluster.local",
    "api.example.com",
    "*.example.com",
    "*",
    "web.shop",
    "shop/web.shop.svc.cluster.local",
    "./*",
    "*/*",
    "edge.edge.svc.cluster.local",
    "WEB.example.com",
    "10.0.0.1",
    "a..b",
    "*.*.com",
    "xn--nxasmq6b.example",
];
const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "10.1.0.0/16",
    "2001:db8::1",
    "::/0",
    "0.0.0.0",
    "unix:///run/a.sock",
    "api.example.com",
    "240.240.0.1",
    "127.0.0.1:80",
    "300.1.1.1",
];
const REGEXES: &[&str] = &[
    "^/v[0-9]+/.*$",
    "(?i)a|b",
    ".*",
    "[[:alpha:]]{2,3}",
    "(a{10}){100}",
    "a**",
    "(",
    "\\Qa\\E",
    "[z-a]",
    "{{{{",
];
const PATHS: &[&str] = &["/", "/api", "/api/*", "/v1/{*}/x", "*", "/a?b=c", "a", "/a//b/../c", "/{**}"];
const DURATIONS: &[&str] = &["5s", "0s", "1.5s", "100ms", "1h30m", "-1s", "315576000001s", "1ns", "5", ""];
const TEXTS: &[&str] = &[
    "",
    "a",
    "x-user",
    ":authority",
    "GET",
    "cluster.local/ns/shop/sa/web",
    "spiffe://cluster.local/ns/shop/sa/*",
    "request.auth.claims[a][b]",
    "source.principal",
    "destination.port",
    "https://example.com/keys",
    "%REQ(X-A)%",
    "region/zone/*",
    "5xx,reset,503",
    "istio-system/edge",
    "kubernetes://edge-cert",
    "sni_cluster",
    "istio.io/rev",
    "request.path == '/a' && has(x.y)",
    "Kubernetes",
    "true",
    "1.10",
    "\u{e9}\u{7f}\u{1f600}\n",
];
const LABELS: &[(&str, &str)] = &[
    ("app", "web"),
    ("app", "db"),
    ("version", "v1"),
    ("istio", "edge"),
    ("topology.istio.io/network", "n1"),
];
const ANNOTATIONS: &[(&str, &str)] = &[
    ("networking.istio.io/exportTo", "."),
    ("istio.io/dry-run", "true"),
    ("networking.istio.io/traffic-distribution", "PreferClose"),
    ("sidecar.istio.io/inject", "false"),
    ("traffic.sidecar.istio.io/includeInboundPorts", "80,x"),
    ("ingress.kubernetes.io/x", "y"),
];

/// Generates an object of a kind.
pub(crate) fn object(schema: &Schema, input: &mut Input<'_>) -> Value {
    let metadata = metadata(schema, input);
    let mut object = content(schema, input);
    if let Value::Object(fields) = &mut object {
        let version = schema.api_versions.get(input.below(schema.api_versions.len()));
        fields.insert("apiVersion".into(), json!(version.map_or("", String::as_str)));
        fields.insert("kind".into(), json!(schema.kind.name()));
        fields.insert("metadata".into(), metadata);
    }
    object
}

/// Generates an object's content without its metadata.
pub(crate) fn content(schema: &Schema, input: &mut Input<'_>) -> Value {
    let mut maker = Maker { left: MOST_VALUES };
    let made = maker.value(&schema.content, "", DEEPEST, input);
    if made.is_object() { made } else { json!({}) }
}

fn metadata(schema: &Schema, input: &mut Input<'_>) -> Value {
    let mut metadata = json!({"name": name(input)});
    if schema.is_namespaced {
        let namespace = match input.below(8) {
            0..=5 => "shop",
            6 => "edge",
            _ => "istio-system",
        };
        metadata["namespace"] = namespace.into();
    }
    let (labels, annotations) = (pairs(LABELS, input), pairs(ANNOTATIONS, input));
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    if input.once_in(8) {
        metadata["creationTimestamp"] = "2024-05-01T14:00:00Z".into();
    }
    metadata
}

fn name(input: &mut Input<'_>) -> String {
    match input.below(16) {
        0 => input.text(12),
        at => NAMES.get(at % 5).copied().unwrap_or_default().to_owned(),
    }
}

fn pairs(of: &[(&str, &str)], input: &mut Input<'_>) -> Map<String, Value> {
    let chosen = (0..input.below(4)).filter_map(|_| of.get(input.below(of.len())));
    chosen.map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

struct Maker {
    /// Remaining number of values.
    left: usize,
}

impl Maker {
    /// Generates a value for a field of that name.
    fn value(&mut self, schema: &Value, field: &str, depth: usize, input: &mut Input<'_>) -> Value {
        if depth == 0 || self.left == 0 {
            return Value::Null;
        }
        self.left -= 1;
        // Occasionally a value of a wrong type.
        if depth < DEEPEST && input.once_in(96) {
            return self.any(depth.min(3), input);
        }
        let names = schema["enum"].as_array().filter(|_| !input.once_in(32));
        if let Some(names) = names {
            return names.get(input.below(names.len())).cloned().unwrap_or_default();
        }
        match schema["type"].as_str() {
            Some("boolean") => input.flag().into(),
            Some("integer") => integer(schema, input),
            Some("number") => json!(f64::from(i16::from_be_bytes([input.byte(), input.byte()])) / 4.0),
            Some("string") => text(schema, field, input).into(),
            Some("array") => self.list(schema, field, depth, input),
            Some("object") => self.fields(schema, field, depth, input),
            _ if schema["x-kubernetes-int-or-string"] == true => match input.flag() {
                true => integer(schema, input),
                false => text(schema, field, input).into(),
            },
            _ => self.any(depth.min(4), input),
        }
    }

    fn list(&mut self, schema: &Value, field: &str, depth: usize, input: &mut Input<'_>) -> Value {
        let count = match input.below(16) {
            0 => 0,
            at @ 1..=13 => 1 + at / 6,
            _ => input.below(12),
        };
        (0..count).map(|_| self.value(&schema["items"], field, depth - 1, input)).collect()
    }

    fn fields(&mut self, schema: &Value, field: &str, depth: usize, input: &mut Input<'_>) -> Value {
        let mut made = Map::new();
        let Some(properties) = schema["properties"].as_object() else {
            let values = &schema["additionalProperties"];
            for _ in 0..input.below(4) {
                let key = match input.flag() {
                    true => LABELS.get(input.below(LABELS.len())).map_or("app", |(key, _)| key).to_owned(),
                    false => text(&Value::Null, field, input),
                };
                made.insert(key, self.value(values, field, depth - 1, input));
            }
            return made.into();
        };
        // Required fields are mostly present.
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in required {
            if let Some(inner) = properties.get(name).filter(|_| !input.once_in(32)) {
                made.insert(name.to_owned(), self.value(inner, name, depth - 1, input));
            }
        }
        if depth == DEEPEST
            && let Some(spec) = properties.get("spec").filter(|_| !made.contains_key("spec"))
        {
            made.insert("spec".into(), self.value(spec, "spec", depth - 1, input));
        }
        let one = schema["maxProperties"] == 1;
        let count = if one { input.below(8).min(1) } else { input.below(properties.len().min(6) + 1) };
        for _ in 0..count {
            let chosen = properties.iter().nth(input.below(properties.len()));
            let Some((name, inner)) = chosen.filter(|(name, _)| !made.contains_key(*name)) else { continue };
            if name == "metadata" && depth == DEEPEST {
                continue;
            }
            made.insert(name.clone(), self.value(inner, name, depth - 1, input));
        }
        if input.once_in(128) {
            made.insert(input.text(8), self.any(2, input));
        }
        made.into()
    }

    /// Generates a value of any JSON type.
    fn any(&mut self, depth: usize, input: &mut Input<'_>) -> Value {
        self.left = self.left.saturating_sub(1);
        match input.below(if depth == 0 || self.left == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => input.flag().into(),
            2 => integer(&Value::Null, input),
            3 => input.text(24).into(),
            4 | 5 => text(&Value::Null, "", input).into(),
            6 => (0..input.below(4)).map(|_| self.any(depth - 1, input)).collect(),
            _ => {
                let fields =
                    (0..input.below(4)).map(|_| (text(&Value::Null, "", input), self.any(depth - 1, input)));
                Value::Object(fields.collect())
            }
        }
    }
}

fn integer(schema: &Value, input: &mut Input<'_>) -> Value {
    const PORTS: &[i64] = &[80, 8080, 443, 9080, 15_006, 53];
    let (least, most) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
    match input.below(16) {
        0 => least.unwrap_or(i64::MIN).into(),
        1 => most.unwrap_or(i64::MAX).into(),
        2 => least.unwrap_or(0).saturating_sub(1).into(),
        3 => most.unwrap_or(i64::from(i32::MAX)).saturating_add(1).into(),
        4 => input.number().into(),
        5..=10 => PORTS.get(input.below(PORTS.len())).copied().unwrap_or_default().into(),
        _ => i64::from(input.byte() % 101).into(),
    }
}

/// Generates a text that is likely in a field of that name.
fn text(schema: &Value, field: &str, input: &mut Input<'_>) -> String {
    let of = |of: &[&str], input: &mut Input<'_>| input.pick(of).unwrap_or_default().to_owned();
    if input.once_in(24) {
        return input.text(40);
    }
    if schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("(ns|us")) {
        return of(DURATIONS, input);
    }
    let lower = field.to_ascii_lowercase();
    let is = |part: &str| lower.contains(part);
    let words: &[&str] = match () {
        () if is("controllername") => &["istio.io/gateway-controller", "example.com/other"],
        () if is("host") || is("domain") || is("egress") || is("sni") => HOSTS,
        () if is("namespace") || is("exportto") => NAMESPACES,
        () if is("regex") || is("match") => REGEXES,
        () if is("address") || is("ip") || is("cidr") || is("endpoint") || is("subnet") => ADDRESSES,
        () if is("path") || is("prefix") || is("uri") => PATHS,
        () if is("time") || is("interval") || is("duration") => DURATIONS,
        () if is("protocol") || is("apptype") => {
            &["HTTP", "TCP", "TLS", "HTTPS", "GRPC", "http2", "UDP", "MONGO", "x"]
        }
        () if is("name") || is("subset") || is("app") || is("gateways") || is("label") => NAMES,
        () if is("kind") => {
            &["Service", "Gateway", "Secret", "ServiceEntry", "Hostname", "HTTPRoute", "ConfigMap"]
        }
        () if is("group") => &["", "gateway.networking.k8s.io", "networking.istio.io", "core", "x.io"],
        () if is("type") => &[
            "ClusterIP",
            "kubernetes.io/tls",
            "Exact",
            "RegularExpression",
            "IPAddress",
            "ExternalName",
            "x",
        ],
        () => TEXTS,
    };
    of(words, input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use pilotfish_config::{Limits, read};
    use std::collections::BTreeSet;

    /// Bytes without a pattern, the same each time.
    fn bytes(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[2]
        };
        std::iter::repeat_with(next).take(300).collect()
    }

    #[test]
    fn of_every_kind_there_are_objects_that_are_taken() {
        let mut never = BTreeSet::new();
        for schema in schemas::all().iter().filter(|schema| !schema.api_versions.is_empty()) {
            let taken = (0..400).filter(|seed| {
                let object = object(schema, &mut Input::new(&bytes(*seed)));
                let file = read("a.yaml", crate::render::json(&object).as_bytes(), &Limits::default());
                assert_eq!(file.objects.len() + file.rejected.len(), 1, "{object}");
                !file.objects.is_empty()
            });
            if taken.count() == 0 {
                never.insert(schema.kind);
            }
        }
        assert_eq!(never, BTreeSet::new());
    }

    #[test]
    fn what_is_made_ends_whatever_the_bytes_are() {
        for schema in schemas::all() {
            for byte in 0..=255 {
                let made = content(schema, &mut Input::new(&[byte; 4_000]));
                assert!(made.to_string().len() < 200_000, "{}", schema.kind);
            }
        }
    }
}
