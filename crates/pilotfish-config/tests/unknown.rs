//! Fields and values that this version does not know: one test for each row of the table, and properties of
//! all kinds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use pilotfish_config::{
    Limits, MeshFile, ReadFile, UNKNOWN_RULES, UnknownRule, read, read_mesh_file, spec_json,
};
use serde_json::Value;

/// An object of the kind with this content: the `spec`, or the whole document for mesh config.
fn read_one(kind: &str, content: &str) -> ReadFile {
    if kind == "MeshConfig" {
        return read_mesh_file(MeshFile::Config, "mesh.yaml", content.as_bytes(), &Limits::default());
    }
    let api = match kind {
        "AuthorizationPolicy" | "PeerAuthentication" | "RequestAuthentication" => "security.istio.io/v1",
        "Telemetry" => "telemetry.istio.io/v1",
        "Gateway" | "Sidecar" | "DestinationRule" | "VirtualService" | "ServiceEntry" | "EnvoyFilter" => {
            "networking.istio.io/v1"
        }
        "Service" => "v1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        _ => "gateway.networking.k8s.io/v1",
    };
    let name = kind.strip_prefix("Kubernetes").unwrap_or(kind);
    let place = if kind == "EndpointSlice" { "" } else { "spec: " };
    let text = format!(
        "apiVersion: {api}\nkind: {name}\nmetadata: {{name: a, namespace: shop, labels: {{kubernetes.io/service-name: a}}}}\n{place}{content}\n"
    );
    read("a.yaml", text.as_bytes(), &Limits::default())
}

/// What is in force: the object as JSON, `refused` and its closed form, or nothing.
fn in_force(kind: &str, content: &str) -> String {
    let mut file = read_one(kind, content);
    if let Some(object) = file.objects.pop() {
        let mut value = spec_json(&object.object);
        if kind == "KubernetesGateway" || kind.ends_with("Route") {
            value = value.get("spec").cloned().unwrap_or_default();
        }
        return value.to_string();
    }
    let closed = file.rejected.remove(0).closed;
    format!("refused {}", closed.map(|object| spec_json(&object).to_string()).unwrap_or_default())
}

fn warnings(file: &ReadFile) -> Vec<String> {
    file.objects.iter().flat_map(|object| &object.warnings).map(ToString::to_string).collect()
}

/// A row by its consequence: an object with something unknown, and a part of what is in force.
struct Example {
    says: &'static str,
    kind: &'static str,
    unknown: &'static str,
    /// What is in force has all of these.
    has: &'static [&'static str],
    /// And none of these.
    has_not: &'static [&'static str],
}

#[rustfmt::skip]
const EXAMPLES: &[Example] = &[
    Example { says: "the policy is invalid", kind: "AuthorizationPolicy",
        unknown: "{action: DENNY, rules: [{to: [{operation: {methods: [GET]}}]}]}",
        has: &["refused", r#""action":"DENY""#, r#""rules":[{}]"#], has_not: &["GET"] },
    Example { says: "the rule matches nothing", kind: "AuthorizationPolicy",
        unknown: "{rules: [{from: [{source: {principals: [a], futureDomains: [b]}}]}, {to: [{operation: {methods: [GET]}}]}]}",
        has: &[r#""action":"ALLOW""#, "GET"], has_not: &["principals", r#"{}"#] },
    Example { says: "the rule keeps its known restrictions and denies more", kind: "AuthorizationPolicy",
        unknown: "{action: DENY, rules: [{from: [{source: {principals: [a], futureDomains: [b]}}], unless: 7}, {from: [{source: {futureDomains: [b]}}]}]}",
        has: &[r#""principals":["a"]"#, r#"},{}]"#], has_not: &["futureDomains"] },
    Example { says: "the rule keeps its known restrictions and asks about more", kind: "AuthorizationPolicy",
        unknown: "{action: CUSTOM, provider: {name: p}, rules: [{to: [{operation: {paths: [/a], queries: [b]}}]}, {when: [{key: source.future, values: [b]}]}]}",
        has: &[r#""paths":["/a"]"#, r#"},{}]"#, r#""provider":{"name":"p"}"#], has_not: &["queries", "future"] },
    Example { says: "the rule keeps its known restrictions and audits more", kind: "AuthorizationPolicy",
        unknown: "{action: AUDIT, rules: [{to: [{operation: {paths: [/a], queries: [b]}}]}, {when: [{key: source.future, values: [b]}]}]}",
        has: &[r#""paths":["/a"]"#], has_not: &["{}", "future"] },
    Example { says: "the policy allows nothing", kind: "AuthorizationPolicy",
        unknown: "{selector: {matchLabels: {a: b}, matchExpressions: []}, rules: [{}]}",
        has: &[r#""action":"ALLOW""#, r#""matchLabels":{"a":"b"}"#], has_not: &["rules"] },
    Example { says: "the policy applies as far as it is known", kind: "AuthorizationPolicy",
        unknown: "{action: DENY, future: 7, rules: [{to: [{operation: {methods: [GET]}}]}]}",
        has: &[r#""action":"DENY""#, "GET"], has_not: &["{}"] },
    Example { says: "mutual TLS is required", kind: "PeerAuthentication",
        unknown: "{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {mode: FUTURE}, 81: {mode: DISABLE}}}",
        has: &[r#""mtls":{"mode":"PERMISSIVE"}"#, r#""80":{"mode":"STRICT"}"#, r#""81":{"mode":"DISABLE"}"#], has_not: &[] },
    Example { says: "tokens of its issuer are refused", kind: "RequestAuthentication",
        unknown: "{jwtRules: [{issuer: a, audiences: [x], presence: REQUIRED}, {issuer: b, audiences: [y]}]}",
        has: &[r#""issuer":"a""#, r#""issuer":"b""#, r#"["y"]"#], has_not: &[r#"["x"]"#] },
    Example { says: "tokens of the policy's issuers are refused", kind: "RequestAuthentication",
        unknown: "{presence: REQUIRED, jwtRules: [{issuer: a, audiences: [x]}]}",
        has: &[r#""issuer":"a""#], has_not: &[r#"["x"]"#] },
    Example { says: "it is ignored: it restricts no client", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: MUTUAL, credentialName: c, ecdhCurves: [P-256], alpnProtocols: [h2]}}]}",
        has: &[r#""credentialName":"c""#], has_not: &[] },
    Example { says: "the server refuses connections", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: FUTURE, credentialName: c}}]}",
        has: &["a.example"], has_not: &["credentialName"] },
    Example { says: "TLS 1.3 is required", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_4}}]}",
        has: &[r#""minProtocolVersion":"TLSV1_3""#, "credentialName"], has_not: &[] },
    Example { says: "TLS 1.3 is required by the mesh", kind: "MeshConfig",
        unknown: "{tlsDefaults: {minProtocolVersion: TLSV1_4}}",
        has: &[r#""minProtocolVersion":"TLSV1_3""#], has_not: &[] },
    Example { says: "a server that checks certificates of clients refuses connections", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: MUTUAL, credentialName: c, verifyFuture: 7}}, \
            {port: {number: 444, name: other, protocol: HTTPS}, hosts: [b.example], tls: {mode: SIMPLE, credentialName: d, future: 7}}]}",
        has: &["a.example", r#""credentialName":"d""#], has_not: &[r#""credentialName":"c""#] },
    Example { says: "the listener refuses connections", kind: "Sidecar",
        unknown: "{ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: FUTURE, serverCertificate: a, privateKey: b, caCertificates: c}}]}",
        has: &[r#""mode":"MUTUAL""#, "verifyCertificateHash"], has_not: &[] },
    Example { says: "a listener that checks certificates of clients refuses connections", kind: "Sidecar",
        unknown: "{ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: OPTIONAL_MUTUAL, serverCertificate: a, privateKey: b, caCertificates: c, future: 7}}]}",
        has: &[r#""mode":"MUTUAL""#, "verifyCertificateHash"], has_not: &[] },
    Example { says: "nothing is sent to the host", kind: "DestinationRule",
        unknown: "{host: a.example, subsets: [{name: v1, trafficPolicy: {tls: {mode: FUTURE}}}]}",
        has: &["a.example"], has_not: &["v1"] },
    Example { says: "without a mode beside it, nothing is sent", kind: "DestinationRule",
        unknown: "{host: a.example, trafficPolicy: {tls: {profile: FUTURE}}}",
        has: &["a.example"], has_not: &["tls"] },
    Example { says: "spelled nearly like a field that holds TLS settings", kind: "DestinationRule",
        unknown: "{host: a.example, trafficPolicy: {tlz: {mode: SIMPLE}, connectionPool: {tcp: {maxConnections: 7}}}}",
        has: &["a.example"], has_not: &["connectionPool"] },
    Example { says: "connections to the policy's targets fail", kind: "BackendTLSPolicy",
        unknown: "{targetRefs: [{group: '', kind: Service, name: web}], validation: {hostname: a.example, wellKnownCACertificates: System, future: 7}}",
        has: &["web"], has_not: &["System"] },
    Example { says: "the listener is not served, and refuses connections", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {mode: Future, certificateRefs: [{name: c}]}}]}",
        has: &[r#""name":"unknown""#], has_not: &[r#""name":"c""#] },
    Example { says: "listeners that check clients by it are not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: c}], future: 7}}}}, \
            listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#], has_not: &[r#""name":"c""#] },
    Example { says: "listeners that check clients by it are not served by port", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {perPort: [{port: 443, tls: {validation: {caCertificateRefs: [{kind: ConfigMap, name: c}], future: 7}}}]}}, \
            listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#], has_not: &[r#""name":"c""#] },
    Example { says: "the listener accepts no routes", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Future}}}]}",
        has: &[r#""from":"None""#], has_not: &[] },
    Example { says: "the item grants nothing", kind: "ReferenceGrant",
        unknown: "{from: [{group: '', kind: A, namespace: n, labels: 7}, {group: '', kind: B, namespace: n}], to: [{group: '', kind: Secret}]}",
        has: &[r#""kind":"B""#], has_not: &[r#""kind":"A""#] },
    Example { says: "requests of the rule, or for the backend, get 500", kind: "HTTPRoute",
        unknown: "{rules: [{filters: [{type: Future, future: {}}], backendRefs: [{name: b, port: 80}]}]}",
        has: &[r#""type":"ExtensionRef""#], has_not: &[] },
    Example { says: "the match is left out", kind: "HTTPRoute",
        unknown: "{rules: [{matches: [{path: {type: Glob, value: /a}}], backendRefs: [{name: a, port: 80}]}, \
            {matches: [{path: {type: Glob, value: /b}}, {path: {value: /c}}], backendRefs: [{name: b, port: 80}]}]}",
        has: &["/c"], has_not: &["/a", "/b", r#""name":"a""#] },
    Example { says: "the match never holds", kind: "VirtualService",
        unknown: "{hosts: [a], http: [{match: [{headers: {x: {glob: y}}}], route: [{destination: {host: canary}}]}, {route: [{destination: {host: web}}]}]}",
        has: &[r#""exact":"unknown""#, "canary", "web"], has_not: &["headers\":{\"x"] },
    Example { says: "a redirect without any known part answers with 500", kind: "VirtualService",
        unknown: "{hosts: [a], http: [{match: [{uri: {prefix: /x}}], redirect: {suffixRewrite: /y, redirectCode: 302}}, {route: [{destination: {host: web}}]}]}",
        has: &[r#""status":500"#, "/x", "web"], has_not: &["302"] },
    Example { says: "the mesh's default is in force", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_FUTURE}}",
        has: &[r#""outboundTrafficPolicy":{"mode":"ALLOW_ANY"}"#], has_not: &[] },
    Example { says: "the strictest one is in force", kind: "MeshConfig",
        unknown: "{pathNormalization: {normalization: FUTURE}}",
        has: &[r#""normalization":"DECODE_AND_MERGE_SLASHES""#], has_not: &[] },
    Example { says: "the policy of the mesh is in force", kind: "Sidecar",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}, egress: [{hosts: ['*/*']}]}",
        has: &["egress"], has_not: &["outboundTrafficPolicy"] },
    Example { says: "the expression is left out", kind: "MeshConfig",
        unknown: "{discoverySelectors: [{matchLabels: {a: b}, matchExpressions: [{key: k, operator: Gt, values: ['7']}]}]}",
        has: &[r#""discoverySelectors":[{"matchLabels":{"a":"b"}}]"#], has_not: &[] },
    Example { says: "the item is left out", kind: "MeshConfig",
        unknown: "{serviceScopeConfigs: [{scope: FUTURE}]}", has: &[], has_not: &["serviceScopeConfigs"] },
    Example { says: "its endpoints decide", kind: "ServiceEntry",
        unknown: "{hosts: [a.example], resolution: FUTURE, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}",
        has: &[r#""resolution":"STATIC""#, "10.0.0.1"], has_not: &[] },
    Example { says: "the override is left out", kind: "Telemetry",
        unknown: "{metrics: [{overrides: [{match: {metric: FUTURE}, disabled: true}, {match: {metric: REQUEST_COUNT}, disabled: true}]}]}",
        has: &["REQUEST_COUNT"], has_not: &["ALL_METRICS"] },
    Example { says: "the patch is left out", kind: "EnvoyFilter",
        unknown: "{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE_FUTURE, value: {a: 1}}}, {applyTo: CLUSTER, patch: {operation: MERGE, value: {b: 1}}}]}",
        has: &[r#"{"b":1}"#], has_not: &[r#"{"a":1}"#] },
    Example { says: "the port is left out", kind: "Service",
        unknown: "{ports: [{name: a, port: 80, protocol: QUIC}, {name: b, port: 81}]}",
        has: &[r#""name":"b""#], has_not: &[r#""name":"a""#] },
    Example { says: "the slice is invalid", kind: "EndpointSlice",
        unknown: "addressType: IPv8\nendpoints: []", has: &["refused"], has_not: &["endpoints"] },
];

#[test]
fn each_row_has_its_consequence() {
    for Example { says, kind, unknown, has, has_not } in EXAMPLES {
        let now = in_force(kind, unknown);
        for text in *has {
            assert!(now.contains(text), "{says}: {text} is missing in {now}");
        }
        for text in *has_not {
            assert!(!now.contains(text), "{says}: {text} is in {now}");
        }
        let file = read_one(kind, unknown);
        let reported = file.objects.iter().flat_map(|object| &object.warnings);
        let reported = reported.chain(file.rejected.iter().flat_map(|rejected| &rejected.problems));
        let says = says.trim_end_matches(" by the mesh").trim_end_matches(" by port");
        let told = |problem: &pilotfish_config::Problem| {
            problem.to_string().contains("unknown to this version: ")
                && problem.message.contains(says)
                && problem.line.is_some()
        };
        assert!(reported.clone().any(told), "{says}: {:?}", reported.collect::<Vec<_>>());
    }
}

#[test]
fn each_row_has_an_example() {
    for (index, rule) in UNKNOWN_RULES.iter().enumerate() {
        let has_example = EXAMPLES.iter().any(|example| {
            rule.says.starts_with(
                example
                    .says
                    .trim_end_matches(" by the mesh")
                    .trim_end_matches(" by port")
                    .trim_end_matches(" by port"),
            )
        });
        assert!(has_example, "row {index} has no example: {}", rule.says);
    }
}

/// The rows as `docs/validation.md` has them.
fn documented(rule: &UnknownRule) -> String {
    let kinds: Vec<&str> = rule.kinds.iter().map(|kind| kind.name()).collect();
    let at: Vec<String> = rule.at.iter().map(|at| format!("`{at}`")).collect();
    let actions = rule.actions();
    let of = if actions.is_empty() { String::new() } else { format!(" of {}", actions.join(", ")) };
    format!("| {}{of} | {} | {} | {} |", kinds.join(", "), at.join(", "), rule.about.as_str(), rule.says)
}

#[test]
fn the_documentation_has_every_row() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/validation.md");
    let page = std::fs::read_to_string(path).unwrap();
    let begin = page.find("| Kind | Structure | Unknown there |").expect("the table");
    let table = &page[begin..];
    let table = &table[..table.find("\n\n").unwrap_or(table.len())];
    let found: Vec<&str> = table.lines().skip(2).collect();
    let rows: Vec<String> = UNKNOWN_RULES.iter().map(documented).collect();
    assert_eq!(found, rows, "\n{}\n", rows.join("\n"));
}

/// Kinds, contents with something of a newer version, and what of them must be in force.
const NEWER: &[(&str, &str, &str)] = &[
    (
        "DestinationRule",
        "{host: a, trafficPolicy: {connectionPool: {http: {http3KeepAlive: {interval: 1s}, maxRetries: 7}}}}",
        "\"maxRetries\":7",
    ),
    (
        "DestinationRule",
        "{host: a, trafficPolicy: {loadBalancer: {futureLbSetting: {enabled: true}}, tls: {mode: SIMPLE}}}",
        "SIMPLE",
    ),
    (
        "DestinationRule",
        "{host: a, trafficPolicy: {loadBalancer: {simple: FUTURE, warmup: {duration: 1s}}}}",
        "warmup",
    ),
    (
        "DestinationRule",
        "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {futureKey: {}}}}}",
        "host",
    ),
    (
        "Sidecar",
        "{egress: [{hosts: ['*/*', '~ns/*', '~./a.example', '~*/b.example', '~/c.example', '!ns/x.example']}]}",
        "egress",
    ),
    (
        "VirtualService",
        "{hosts: [a], http: [{rewrite: {future: {}}, route: [{destination: {host: b}}]}]}",
        "destination",
    ),
    (
        "VirtualService",
        "{hosts: [a], http: [{corsPolicy: {allowOrigins: [{glob: x}, {exact: y}]}, route: [{destination: {host: b}}]}]}",
        "\"exact\":\"y\"",
    ),
    (
        "VirtualService",
        "{hosts: [a], http: [{futureAction: {}}, {route: [{destination: {host: b}}]}]}",
        "\"status\":500",
    ),
    ("EnvoyFilter", "{configPatches: [{applyTo: CLUSTER, patch: {operation: FUTURE, value: {}}}]}", ""),
    (
        "Telemetry",
        "{tracing: [{disableFuture: true, randomSamplingPercentage: 10}]}",
        "randomSamplingPercentage",
    ),
    ("ServiceEntry", "{hosts: [a.example], ports: [{number: 80, name: a, protocol: FUTURE}]}", "80"),
    (
        "Gateway",
        "{selector: {a: b}, servers: [{port: {number: 80, name: a, protocol: FUTURE}, hosts: ['*']}, {port: {number: 81, name: b, protocol: HTTP}, hosts: ['*']}]}",
        "81",
    ),
    (
        "MeshConfig",
        "{accessLogEncoding: FUTURE, futureField: {a: 1}, rootNamespace: r}",
        "\"rootNamespace\":\"r\"",
    ),
    (
        "HTTPRoute",
        "{rules: [{matches: [{method: QUERY}, {path: {value: /a}}], backendRefs: [{name: b, port: 80}]}]}",
        "/a",
    ),
];

#[test]
fn what_newer_versions_have_costs_nothing_else() {
    for (kind, content, kept) in NEWER.iter().copied() {
        let file = read_one(kind, content);
        assert!(file.rejected.is_empty(), "{content}: {:?}", file.rejected);
        let told = warnings(&file);
        assert!(
            told.iter().any(|text| text.contains("unknown to this version")) || content.contains("~ns"),
            "{content}: {told:?}"
        );
        let now = in_force(kind, content);
        assert!(now.contains(kept), "{content}: {now}");
    }
}

/// A server whose clients must show certificates stays closed for its hosts, whatever else of it is unknown.
#[test]
fn a_server_with_several_unknown_fields_refuses_connections_to_its_hosts() {
    let gateway = |port: &str, tls: &str, server: &str| {
        format!(
            "{{selector: {{a: b}}, servers: [{{port: {{number: 443, name: https, protocol: HTTPS{port}}}, hosts: [a.example.com], \
             tls: {{mode: MUTUAL, credentialName: c{tls}}}{server}}}, {{port: {{number: 443, name: wide, protocol: HTTPS}}, \
             hosts: ['*.example.com'], tls: {{mode: SIMPLE, credentialName: c}}}}]}}"
        )
    };
    const FIELD: &str = ", qqqFuture: {x: 1}";
    for (port, tls, server) in [
        ("", FIELD, ""),
        (FIELD, FIELD, ""),
        ("", FIELD, FIELD),
        (FIELD, FIELD, FIELD),
        (", protocl: X", FIELD, ""),
    ] {
        let now = in_force("Gateway", &gateway(port, tls, server));
        let servers: Value = serde_json::from_str(&now).unwrap();
        let first = &servers["servers"][0];
        // A passthrough server without a route refuses.
        assert_eq!(
            (&first["hosts"][0], &first["tls"]["mode"]),
            (&"a.example.com".into(), &"PASSTHROUGH".into()),
            "{now}"
        );
    }
}

#[test]
fn an_error_names_the_mistyped_field_that_caused_it() {
    let two = |first: &str| {
        format!(
            "{{hosts: [web], http: [{{route: [{{destination: {{host: a}}, {first}}}, {{destination: {{host: b}}}}]}}]}}"
        )
    };
    for (kind, content, hint) in [
        (
            "VirtualService",
            two("wieght: 50"),
            Some("\"wieght\" in line 4 is unknown: did you mean \"weight\"?"),
        ),
        ("VirtualService", two("headers: {requst: {}}"), Some("\"requst\" in line 4")),
        ("VirtualService", two("somethingElse: 50"), None),
        (
            "ServiceEntry",
            "{host: [a.example], ports: [{number: 80, name: a}]}".into(),
            Some("did you mean \"hosts\"?"),
        ),
    ] {
        let file = read_one(kind, &content);
        let error = file.rejected[0].problems.iter().find(|problem| problem.is_error()).unwrap();
        assert_eq!(error.hint.is_some(), hint.is_some(), "{error}");
        assert!(error.to_string().contains(hint.unwrap_or_default()), "{error}");
    }
}

/// The problems of an object that is written below its metadata with these lines, those of good objects
/// included.
fn told(api: &str, kind: &str, lines: &str) -> (ReadFile, String) {
    let text = format!(
        "apiVersion: {api}\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\n{}\n",
        lines.replace("; ", "\n")
    );
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    let found = file.objects.iter().flat_map(|object| &object.warnings);
    let all = found.chain(file.rejected.iter().flat_map(|rejected| &rejected.problems));
    let all = all.map(|problem| format!("{}: {problem}\n", problem.line.unwrap_or_default())).collect();
    (file, all)
}

const NETWORKING: &str = "networking.istio.io/v1";

/// Objects with fields beside `spec`: group and version, kind, lines, true for those that are in force, and
/// parts of what is told.
const BESIDE_SPEC: &[(&str, &str, &str, bool, &[&str])] = &[
    (
        NETWORKING,
        "VirtualService",
        "spec: {hosts: [a]}; http: [{route: [{destination: {host: b}}]}]",
        false,
        &[
            "spec: one of http, tls and tcp must be set (\"http\" in line 5 is outside of spec)\n",
            "5: http: is outside of spec: it is ignored (move \"http\" into spec)\n",
        ],
    ),
    (
        NETWORKING,
        "VirtualService",
        "hosts: [a]; http: [{route: [{destination: {host: b}}]}]",
        false,
        &["(\"http\" in line 5 is outside of spec)", "4: hosts: is outside", "5: http: is outside"],
    ),
    (
        NETWORKING,
        "ServiceEntry",
        "spec: {ports: [{number: 80, name: http}], resolution: DNS}; hosts: [a.example]",
        false,
        &["(\"hosts\" in line 5 is outside of spec)", "5: hosts: is outside of spec"],
    ),
    (
        NETWORKING,
        "VirtualService",
        "exportTo: [.]; spec: {hosts: [a], tcp: [{route: [{destination: {host: b}}]}]}",
        true,
        &["4: exportTo: is outside of spec: it is ignored (move \"exportTo\" into spec)\n"],
    ),
    // A field that stands in both places is no reason for an error in the spec.
    (
        NETWORKING,
        "VirtualService",
        "spec: {hosts: [a], http: [{timeout: 1s}]}; http: []",
        false,
        &["spec.http[0]: one of route, redirect, directResponse", "5: http: is outside of spec"],
    ),
    (
        NETWORKING,
        "DestinationRule",
        "spec: {host: a}; sepc: {}; more: 1",
        true,
        &[
            "5: sepc: unknown to this version: it is ignored (did you mean \"spec\"?)\n",
            "6: more: unknown to this version: it is ignored\n",
        ],
    ),
    (
        NETWORKING,
        "DestinationRule",
        "spec: {host: a}; trafficPolicy: {connectionPool: {}}",
        true,
        &["5: trafficPolicy: is outside of spec: it is ignored (move \"trafficPolicy\" into spec)\n"],
    ),
    (
        "v1",
        "Service",
        "spec: {clusterIP: 10.0.0.1}; ports: [{port: 80}]",
        false,
        &["spec.ports: must be set (\"ports\" in line 5 is outside of spec)", "5: ports: is outside of spec"],
    ),
    (
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        "spec: {parentRefs: [{name: g}]}; rules: []",
        true,
        &["5: rules: is outside of spec: it is ignored"],
    ),
];

#[test]
fn fields_beside_spec_are_named_with_their_lines_and_in_errors_that_follow() {
    for (api, kind, lines, taken, expected) in BESIDE_SPEC {
        let (file, told) = told(api, kind, lines);
        assert_eq!(file.objects.len(), usize::from(*taken), "{lines}:\n{told}");
        for part in *expected {
            assert!(told.contains(part), "{lines}: {part:?} in\n{told}");
        }
        let hinted = told.lines().filter(|line| line.contains("in line ")).count();
        assert!(!lines.contains("timeout") || hinted == 0, "{told}");
    }
}

#[test]
fn objects_without_fields_beside_spec_and_unread_ones_are_not_warned_of() {
    for (api, kind, lines) in [
        ("v1", "Service", "spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}; status: {x: 1}"),
        ("v1", "Pod", "spec: {containers: [{name: a, image: b, more: 1}], more: 1}; status: {}"),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", "spec: {rules: []}; status: {parents: [{x: 1}]}"),
        ("v1", "ConfigMap", "data: {spec: a}; binaryData: {}; immutable: true"),
        ("v1", "Secret", "type: Opaque; stringData: {}; data: {}"),
        ("networking.istio.io/v1", "DestinationRule", "spec: {host: a}; status: {x: 1}"),
    ] {
        let (file, told) = told(api, kind, lines);
        assert_eq!((file.objects.len(), told.as_str()), (1, ""), "{kind}");
    }
}

/// Fields that this version does not know, and all that it knows but does not read.
const OF_KUBERNETES: &[(&str, &str, &str, &str)] = &[
    (
        "v1",
        "Service",
        "spec: {selecter: {app: a}, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 7}}, \
         loadBalancerIP: 10.0.0.1, loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: a/b, healthCheckNodePort: 7, \
         allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}",
        "4: spec.selecter: unknown to this version: it is ignored (did you mean \"selector\"?)",
    ),
    (
        "v1",
        "Service",
        "spec: {ports: [{port: 80, nodeport: 7}]}",
        "4: spec.ports[0].nodeport: unknown to this version",
    ),
    (
        "v1",
        "Service",
        "spec: {ports: [{port: 80}]}; more: 1",
        "5: more: unknown to this version: it is ignored",
    ),
    (
        "v1",
        "Service",
        "spec: {ports: [{port: 80}]}; sepc: {}",
        "5: sepc: unknown to this version: it is ignored (did you mean \"spec\"?)",
    ),
    (
        "v1",
        "Service",
        "spec: {ports: [{port: 80}]}; selector: {a: b}",
        "5: selector: is outside of spec: it is ignored",
    ),
    (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "addressType: IPv4; endpoints: [{addresses: [10.0.0.1], condition: {ready: true}, hostname: a, nodeName: b, zone: c, \
         hints: {forZones: [{name: c}]}, deprecatedTopology: {a: b}, targetRef: {kind: Pod, name: a, namespace: b, uid: c, \
         apiVersion: v1, resourceVersion: '7', fieldPath: d}}]",
        "5: endpoints[0].condition: unknown to this version: it is ignored (did you mean \"conditions\"?)",
    ),
    (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "addressType: IPv4; endpoints: []; port: []",
        "6: port: unknown to this version: it is ignored (did you mean \"ports\"?)",
    ),
    (
        "networking.k8s.io/v1",
        "Ingress",
        "spec: {rules: [{host: a.example, http: {paths: [{path: /, pathtype: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}",
        "4: spec.rules[0].http.paths[0].pathtype: unknown to this version",
    ),
    (
        "networking.k8s.io/v1",
        "IngressClass",
        "spec: {controler: a, controller: b, parameters: {kind: C, name: d}}",
        "4: spec.controler: unknown to this version",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        "spec: {parentRefs: [{name: a}], rules: [{timeout: {request: 1s}, backendRefs: [{name: a, port: 80}]}]}",
        "4: spec.rules[0].timeout: unknown to this version: it is ignored (did you mean \"timeouts\"?)",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "GRPCRoute",
        "spec: {hostname: [a], rules: []}",
        "4: spec.hostname: unknown to this version: it is ignored (did you mean \"hostnames\"?)",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "TLSRoute",
        "spec: {rules: [{future: 1}]}",
        "4: spec.rules[0].future: unknown to this version",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "TCPRoute",
        "spec: {rules: [{future: 1}]}",
        "4: spec.rules[0].future: unknown to this version",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "GatewayClass",
        "spec: {controllerName: a.example/b, description: text, future: {}}",
        "4: spec.future: unknown to this version: it is ignored",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "Gateway",
        "spec: {gatewayClassName: a, listeners: [{name: a, port: 80, protocol: HTTP, hostName: b}]}",
        "4: spec.listeners[0].hostName: unknown to this version: it is ignored (did you mean \"hostname\"?)",
    ),
    (
        "gateway.networking.k8s.io/v1",
        "BackendTLSPolicy",
        "spec: {targetRefs: [{group: '', kind: Service, name: a, sectionname: b}], validation: {hostname: a, wellKnownCACertificates: System}}",
        "4: spec.targetRefs[0].sectionname: unknown to this version",
    ),
];

#[test]
fn unknown_fields_of_kubernetes_kinds_in_files_are_ignored_with_one_warning() {
    for (api, kind, lines, expected) in OF_KUBERNETES {
        let (file, told) = told(api, kind, lines);
        assert_eq!(file.objects.len(), 1, "{lines}:\n{told}");
        assert!(told.starts_with(expected) && told.lines().count() == 1, "{lines}: {expected:?} in\n{told}");
    }
}

/// An API server stores known fields alone: others of its own kinds are of a newer version of Kubernetes,
/// which may set them in each object.
#[test]
fn unknown_fields_of_an_api_server_are_told_where_definitions_are_installed_apart() {
    use pilotfish_model::Kind;
    let read = |kind, spec: &str| {
        let json = format!(r#"{{"metadata": {{"name": "a", "namespace": "shop"}}, {spec}}}"#);
        let read = pilotfish_config::read_live(kind, &"cluster a".into(), json.as_bytes()).unwrap();
        read.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (kind, spec) in [
        (Kind::Service, r#""spec": {"future": 1, "ports": [{"port": 80, "future": 1}]}"#),
        (
            Kind::EndpointSlice,
            r#""addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "future": 1}], "future": 1"#,
        ),
        (
            Kind::Ingress,
            r#""spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}, "future": 1}"#,
        ),
        (Kind::HttpRoute, r#""spec": {"rules": []}, "status": {"parents": [], "future": 1}"#),
    ] {
        assert_eq!(read(kind, spec), [""; 0], "{kind}");
    }
    let told = read(Kind::HttpRoute, r#""spec": {"rules": [{"future": 1}]}"#);
    assert_eq!(told, ["spec.rules[0].future: unknown to this version: it is ignored"]);
}

#[test]
fn restrictions_beside_spec_do_not_widen_access() {
    let security = "security.istio.io/v1";
    for (api, kind, lines, says, part) in [
        (
            security,
            "PeerAuthentication",
            "spec: {}; mtls: {mode: STRICT}",
            "mtls: is outside of spec: mutual TLS is required",
            "STRICT",
        ),
        (
            security,
            "AuthorizationPolicy",
            "spec: {rules: [{from: [{source: {namespaces: [bad]}}]}]}; action: DENY",
            "action: is outside of spec: the policy allows nothing",
            "{\"action\":\"ALLOW\"}",
        ),
        (
            "networking.istio.io/v1",
            "DestinationRule",
            "spec: {host: a}; trafficPolicy: {tls: {mode: MUTUAL}}",
            "trafficPolicy: is outside of spec: spelled nearly",
            "",
        ),
    ] {
        let (file, told) = told(api, kind, lines);
        assert!(told.contains(says), "{says:?} in {told}");
        let object = &file.objects.first().unwrap_or_else(|| panic!("{kind}: {told}")).object;
        match object.typed::<pilotfish_config::networking::DestinationRule>() {
            Some(rule) => assert!(rule.closed, "{told}"),
            None => assert!(spec_json(object).to_string().contains(part), "{}", spec_json(object)),
        }
    }
}

#[test]
fn objects_of_kinds_that_are_not_served_are_named() {
    use pilotfish_config::file::{FileChange, FileContent, FileRole, FileState};
    let text = "apiVersion: extensions.istio.io/v1alpha1\nkind: TrafficExtension\nmetadata: {name: lua, namespace: shop}\n---\n\
                apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: UDPRoute\nmetadata: {name: dns, namespace: shop}\n---\n\
                apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: more}\n---\n\
                apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    let mut state = FileState::new(Limits::default());
    let content = FileContent::Bytes(text.as_bytes().to_vec());
    let path = std::path::Path::new("a.yaml").into();
    state.apply(vec![FileChange { path, name: "a.yaml".into(), role: FileRole::Objects, content }]);
    let problems = state.problems();
    let told: Vec<String> = problems.reports.iter().map(ToString::to_string).collect();
    let says = "has no effect: this version does not serve its kind";
    assert_eq!(
        told,
        [
            format!("a.yaml:1: TrafficExtension shop/lua {says}"),
            format!("a.yaml:5: UDPRoute shop/dns {says}"),
            format!("a.yaml:9: ListenerSet more {says}"),
        ]
    );
    assert_eq!(problems.errors(), 0);
    assert_eq!(problems.ignored.values().sum::<usize>(), 4);
}

#[path = "../../pilotfish-crd/tests/support/schema.rs"]
#[allow(dead_code, reason = "shared with the tests of definitions")]
mod schema;

/// The objects of the recorded cases.
fn recorded() -> Vec<Value> {
    let cases = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/cases");
    let mut cases: Vec<_> = std::fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
        .iter()
        .flat_map(|case| schema::documents(&std::fs::read_to_string(case.join("config.yaml")).unwrap()))
        .collect()
}

/// What is told of unknown parts in the YAML files of a folder, by file.
fn unknown_in_files(folder: &std::path::Path, out: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in entries {
        if path.is_dir() {
            unknown_in_files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let file = read("a.yaml", &std::fs::read(&path).unwrap(), &Limits::default());
            let told = warnings(&file).into_iter().filter(|text| text.contains("unknown to this version"));
            out.extend(told.map(|text| format!("{}: {text}", path.display())));
        }
    }
}

#[test]
fn recorded_cases_and_examples_have_nothing_unknown() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut told = Vec::new();
    for folder in ["oracle/cases", "examples"] {
        unknown_in_files(&root.join(folder), &mut told);
    }
    assert!(told.is_empty(), "{told:#?}");
}

/// The places of objects with fields.
fn places(value: &Value, pointer: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            out.push(pointer.to_owned());
            for (name, inner) in fields {
                places(inner, &format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                places(inner, &format!("{pointer}/{index}"), out);
            }
        }
        _ => {}
    }
}

/// Numbers that look like chance, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }
}

fn read_value(object: &Value) -> ReadFile {
    read("a.json", object.to_string().as_bytes(), &Limits::default())
}

/// A name that no version has, far from every name that one has.
const FIELD: &str = "qqqUnknownToEveryVersionQqq";

/// True for kinds of the Gateway API and Kubernetes of which every field is known.
fn is_complete(kind: pilotfish_model::Kind) -> bool {
    use pilotfish_model::Kind;
    matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Ingress | Kind::IngressClass)
        || kind.group() == "gateway.networking.k8s.io"
}

/// True for a place in a field that is known and not read.
fn is_unread(place: &str) -> bool {
    ["/spec/allowedListeners", "/spec/sessionAffinityConfig"].iter().any(|field| place.starts_with(field))
}

#[test]
fn unknown_fields_at_random_places_change_nothing_outside_of_the_table() {
    let mut dice = Dice(7);
    let (mut ignored, mut restricted, mut of_kubernetes) = (0, 0, 0);
    for object in recorded() {
        let before = read_value(&object);
        let Some(whole) = before.objects.first().filter(|_| before.rejected.is_empty()) else { continue };
        let mut found = Vec::new();
        places(&object["spec"], "/spec", &mut found);
        if found.is_empty() {
            continue;
        }
        for _ in 0..6 {
            let place = &found[dice.roll(found.len())];
            let mut changed = object.clone();
            let Some(Value::Object(fields)) = changed.pointer_mut(place) else { continue };
            let values = [serde_json::json!(7), serde_json::json!({"a": ["b"]}), serde_json::json!("c")];
            fields.insert(FIELD.to_owned(), values[dice.roll(values.len())].clone());
            let after = read_value(&changed);
            // In a map with free keys, or in a value of any form, it is known.
            let told: Vec<String> = warnings(&after)
                .into_iter()
                .filter(|text| text.contains("unknown to this version"))
                .collect();
            let is_invalid = !after.rejected.is_empty();
            let is_map = told.is_empty()
                && (is_invalid || spec_json(&after.objects[0].object) != spec_json(&whole.object));
            if is_map {
                continue;
            }
            let kind = whole.object.key().kind;
            if is_complete(kind) && !is_unread(place) {
                assert!(!told.is_empty(), "{kind}: {place} is not told\n{changed}");
                of_kubernetes += 1;
            }
            assert!(!is_invalid, "{place}: {:?}\n{changed}", after.rejected);
            if told.iter().all(|text| text.ends_with("unknown to this version: it is ignored")) {
                ignored += 1;
                assert_eq!(
                    spec_json(&after.objects[0].object),
                    spec_json(&whole.object),
                    "{place}\n{changed}"
                );
            } else {
                restricted += 1;
            }
        }
    }
    assert!(ignored > 1_000 && restricted > 50, "{ignored} ignored, {restricted} in the table");
    assert!(of_kubernetes > 500, "{of_kubernetes} of the Gateway API and Kubernetes");
}

#[test]
fn a_start_with_the_last_version_equals_its_whole_history() {
    use pilotfish_config::file::{FileChange, FileContent, FileRole, FileState};
    let change = |object: &Value| FileChange {
        path: std::path::Path::new("a.yaml").into(),
        name: "a.yaml".into(),
        role: FileRole::Objects,
        content: FileContent::Bytes(object.to_string().into_bytes()),
    };
    let mut dice = Dice(11);
    let mut tried = 0;
    for object in recorded() {
        if read_value(&object).objects.is_empty() {
            continue;
        }
        let mut found = Vec::new();
        places(&object["spec"], "/spec", &mut found);
        if found.is_empty() {
            continue;
        }
        let mut running = FileState::new(Limits::default());
        let mut last = object.clone();
        running.apply(vec![change(&last)]);
        for _ in 0..4 {
            last = object.clone();
            for _ in 0..=dice.roll(3) {
                let place = &found[dice.roll(found.len())];
                if let Some(Value::Object(fields)) = last.pointer_mut(place) {
                    fields.insert(FIELD.to_owned(), serde_json::json!({"a": 7}));
                }
            }
            // What is invalid as a whole keeps its last good version.
            if read_value(&last).rejected.is_empty() {
                running.apply(vec![change(&last)]);
                let mut fresh = FileState::new(Limits::default());
                fresh.apply(vec![change(&last)]);
                assert_eq!(running.objects(), fresh.objects(), "{last}");
                tried += 1;
            }
        }
    }
    assert!(tried > 2_000, "only {tried} versions were tried");
}
