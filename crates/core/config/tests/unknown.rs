//! Fields and values that this version does not know: one test for each row of the table, and properties of
//! all kinds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "unknown/access.rs"]
mod access;
#[path = "unknown/properties.rs"]
mod properties;

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
        unknown: "{jwtRules: [{issuer: a, audiences: [x], futurePresence: REQUIRED}, {issuer: b, audiences: [y]}]}",
        has: &[r#""issuer":"a""#, r#""issuer":"b""#, r#"["y"]"#], has_not: &[r#"["x"]"#] },
    Example { says: "tokens of the policy's issuers are refused", kind: "RequestAuthentication",
        unknown: "{futurePresence: REQUIRED, jwtRules: [{issuer: a, audiences: [x]}]}",
        has: &[r#""issuer":"a""#], has_not: &[r#"["x"]"#] },
    Example { says: "the server refuses connections", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: FUTURE, credentialName: c}}]}",
        has: &["a.example"], has_not: &["credentialName"] },
    Example { says: "TLS 1.3 is required", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_4}}]}",
        has: &[r#""minProtocolVersion":"TLSV1_3""#, "credentialName"], has_not: &[] },
    Example { says: "TLS 1.3 is required", kind: "Sidecar",
        unknown: "{ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: SIMPLE, serverCertificate: a, privateKey: b, minProtocolVersion: TLSV1_4}}]}",
        has: &[r#""minProtocolVersion":"TLSV1_3""#, r#""serverCertificate":"a""#], has_not: &[] },
    Example { says: "TLS 1.3 is required", kind: "MeshConfig",
        unknown: "{meshMTLS: {minProtocolVersion: TLSV1_4}}",
        has: &[r#""minProtocolVersion":"TLSV1_3""#], has_not: &["tlsDefaults"] },
    Example { says: "TLS 1.3 is required", kind: "MeshConfig",
        unknown: "{tlsDefaults: {minProtocolVersion: TLSV1_4}}",
        has: &[r#""minProtocolVersion":"TLSV1_3""#], has_not: &[] },
    Example { says: "a server that checks certificates of clients refuses connections", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: MUTUAL, credentialName: c, verifyFuture: 7}}, \
            {port: {number: 444, name: other, protocol: HTTPS}, hosts: [b.example], tls: {mode: SIMPLE, credentialName: d, future: 7}}]}",
        has: &["a.example", r#""credentialName":"d""#], has_not: &[r#""credentialName":"c""#] },
    Example { says: "of an unknown protocol, a server that checks certificates of clients refuses connections", kind: "Gateway",
        unknown: "{servers: [{port: {number: 443, name: https, protocol: FUTURE}, hosts: [a.example], tls: {mode: MUTUAL, credentialName: c}}, \
            {port: {number: 444, name: other, protocol: FUTURE}, hosts: [b.example], tls: {mode: SIMPLE, credentialName: d}}]}",
        has: &["a.example", r#""protocol":"TLS""#], has_not: &["credentialName", "b.example"] },
    Example { says: "the listener refuses connections", kind: "Sidecar",
        unknown: "{ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: FUTURE, serverCertificate: a, privateKey: b, caCertificates: c}}]}",
        has: &[r#""mode":"MUTUAL""#, "verifyCertificateHash"], has_not: &[] },
    Example { says: "the listener refuses connections", kind: "Sidecar",
        unknown: "{ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: FUTURE, serverCertificate: a, privateKey: b}}]}",
        has: &[r#""mode":"MUTUAL""#, "verifyCertificateHash", r#""caCertificates":"a""#], has_not: &[] },
    Example { says: "a listener that checks certificates of clients refuses connections", kind: "Sidecar",
        unknown: "{ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: OPTIONAL_MUTUAL, serverCertificate: a, privateKey: b, caCertificates: c, future: 7}}]}",
        has: &[r#""mode":"MUTUAL""#, "verifyCertificateHash"], has_not: &[] },
    Example { says: "nothing is sent to the host, port or subset", kind: "DestinationRule",
        unknown: "{host: a.example, subsets: [{name: v1, trafficPolicy: {tls: {mode: FUTURE}}}]}",
        has: &["a.example", "v1"], has_not: &["FUTURE"] },
    Example { says: "without a mode beside it, nothing is sent", kind: "DestinationRule",
        unknown: "{host: a.example, trafficPolicy: {tls: {profile: FUTURE}}}",
        has: &["a.example"], has_not: &["FUTURE"] },
    Example { says: "spelled nearly like a field that holds TLS settings", kind: "DestinationRule",
        unknown: "{host: a.example, trafficPolicy: {tlz: {mode: SIMPLE}, connectionPool: {tcp: {maxConnections: 7}}}}",
        has: &["a.example", "connectionPool"], has_not: &["SIMPLE"] },
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
    Example { says: "listeners that check clients by it are not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {perPort: [{port: 443, tls: {validation: {caCertificateRefs: [{kind: ConfigMap, name: c}], future: 7}}}]}}, \
            listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#], has_not: &[r#""name":"c""#] },
    Example { says: "listeners that check clients by it are not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, listeners: [{name: a, port: 443, protocol: HTTPS, \
            tls: {certificateRefs: [{name: t}], frontendValidation: {caCertificateRefs: [{kind: ConfigMap, name: c}], future: 7}}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#], has_not: &[r#""name":"c""#] },
    Example { says: "beside a validation of clients, listeners that it is for are not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {default: {requiredSpiffe: x, validation: {caCertificateRefs: [{kind: ConfigMap, name: c}]}}, \
            perPort: [{port: 444, tls: {validation: {caCertificateRefs: [{kind: ConfigMap, name: d}]}}}]}}, \
            listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#, r#""name":"d""#], has_not: &[r#""name":"c""#] },
    Example { says: "beside a validation of clients, listeners that it is for are not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: c}]}}, \
            perPort: [{port: 444, tls: {validaton: {caCertificateRefs: [{kind: ConfigMap, name: d}]}}}]}}, \
            listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#, r#""name":"c""#, r#""port":444"#], has_not: &[r#""name":"d""#] },
    Example { says: "it is ignored: it restricts no client", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {backend: {future: 7}, frontend: {default: {future: 7, validation: null}, \
            perPort: [{port: 444, tls: {future: {a: 1}}}]}}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"t""#], has_not: &["unknown"] },
    Example { says: "beside a validation of clients, listeners that terminate TLS are not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {perHost: [{validation: {}}], default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: c}]}}, \
            perPort: [{port: 444, tls: {}}]}}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#], has_not: &[r#""name":"c""#, "444"] },
    Example { says: "a listener that checks certificates of clients is not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, tls: {frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: c}]}}}}, \
            listeners: [{name: a, port: 443, protocol: HTTPS, tls: {clientPolicy: 7, certificateRefs: [{name: t}]}}, \
                {name: b, port: 443, protocol: TLS, tls: {mode: Passthrough, future: 7}}]}",
        has: &[r#""name":"unknown""#, r#""name":"c""#, r#""mode":"Passthrough""#], has_not: &[r#""name":"t""#] },
    Example { says: "a listener that checks certificates of clients is not served", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {future: 7, certificateRefs: [{name: t}], \
                options: {gateway.istio.io/tls-terminate-mode: MUTUAL}}}, \
            {name: b, port: 443, protocol: HTTPS, hostname: b.example, tls: {future: 7, certificateRefs: [{name: u}]}}]}",
        has: &[r#""name":"unknown""#, r#""name":"u""#], has_not: &[r#""name":"t""#] },
    Example { says: "the listener accepts no routes", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Future}}}]}",
        has: &[r#""from":"None""#], has_not: &[] },
    Example { says: "the Gateway accepts no ListenerSets", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, allowedListeners: {namespaces: {from: All}, kinds: [7]}, listeners: [{name: a, port: 80, protocol: HTTP}]}",
        has: &[r#""allowedListeners":{"namespaces":{"from":"None"}}"#], has_not: &["All"] },
    Example { says: "the listener is not served, and refuses connections", kind: "ListenerSet",
        unknown: "{parentRef: {name: gw}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {mode: Future, certificateRefs: [{name: c}]}}]}",
        has: &[r#""name":"unknown""#], has_not: &[r#""name":"c""#] },
    Example { says: "listeners that check clients by it are not served", kind: "ListenerSet",
        unknown: "{parentRef: {name: gw}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}], frontendValidation: {caCertificateRefs: [{kind: ConfigMap, name: c}], future: 7}}}]}",
        has: &[r#""name":"unknown""#, r#""name":"t""#], has_not: &[r#""name":"c""#] },
    Example { says: "a listener that checks certificates of clients is not served", kind: "ListenerSet",
        unknown: "{parentRef: {name: gw}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}], options: {gateway.istio.io/tls-terminate-mode: MUTUAL}, future: 7}}]}",
        has: &[r#""name":"unknown""#], has_not: &[r#""name":"c""#] },
    Example { says: "the listeners belong to no Gateway", kind: "ListenerSet",
        unknown: "{parentRef: {name: gw, sectionName: a}, listeners: [{name: a, port: 80, protocol: HTTP}]}",
        has: &[r#""kind":"Unknown""#], has_not: &["gw"] },
    Example { says: "the listener accepts no routes", kind: "ListenerSet",
        unknown: "{parentRef: {name: gw}, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Future}}}]}",
        has: &[r#""from":"None""#], has_not: &[] },
    Example { says: "the item grants nothing", kind: "ReferenceGrant",
        unknown: "{from: [{group: '', kind: A, namespace: n, labels: 7}, {group: '', kind: B, namespace: n}], to: [{group: '', kind: Secret}]}",
        has: &[r#""kind":"B""#], has_not: &[r#""kind":"A""#] },
    Example { says: "the listener accepts no routes", kind: "KubernetesGateway",
        unknown: "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {future: 7, namespaces: {from: All}}}]}",
        has: &[r#""from":"None""#], has_not: &["All"] },
    Example { says: "the item grants nothing", kind: "ReferenceGrant",
        unknown: "{from: [{group: '', kind: A, namespace: n}], to: [{group: '', kind: Secret, labels: 7}, {group: '', kind: Service}]}",
        has: &[r#""kind":"Service""#], has_not: &["Secret"] },
    Example { says: "requests of the rule, or for the backend, get 500", kind: "HTTPRoute",
        unknown: "{rules: [{backendRefs: [{name: b, port: 80, filters: [{type: Future, future: {}}]}]}]}",
        has: &[r#""type":"ExtensionRef""#], has_not: &[] },
    Example { says: "requests of the rule, or for the backend, get 500", kind: "GRPCRoute",
        unknown: "{rules: [{filters: [{type: Future}], backendRefs: [{name: b, port: 80, filters: [{type: Other}]}]}]}",
        has: &[r#""kind":"Future""#, r#""kind":"Other""#], has_not: &[] },
    Example { says: "the match is left out", kind: "GRPCRoute",
        unknown: "{rules: [{matches: [{method: {type: Glob, service: a}}, {method: {service: b}}], backendRefs: [{name: b, port: 80}]}]}",
        has: &[r#""service":"b""#], has_not: &[r#""service":"a""#] },
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
    Example { says: "nothing is sent to hosts without a service", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: FUTURE, sni: a.b}}}",
        has: &[r#""outboundTrafficPolicy":{"mode":"REGISTRY_ONLY"}"#], has_not: &[] },
    Example { says: "nothing is sent to hosts without a service", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: REGISTRY_ONLY, tls: {mode: FUTURE}}}",
        has: &[r#""outboundTrafficPolicy":{"mode":"REGISTRY_ONLY"}"#], has_not: &[] },
    Example { says: "nothing is sent to hosts without a service", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_ANY, tls: {mode: FUTURE}}}",
        has: &[r#""outboundTrafficPolicy":{"mode":"ALLOW_ANY"}"#], has_not: &[] },
    Example { says: "nothing is sent to hosts without a service", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {futureMode: SIMPLE}}}",
        has: &[r#""outboundTrafficPolicy":{"mode":"REGISTRY_ONLY"}"#], has_not: &[] },
    Example { says: "nothing is sent to hosts without a service", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tsl: {mode: SIMPLE}}}",
        has: &[r#""outboundTrafficPolicy":{"mode":"REGISTRY_ONLY"}"#], has_not: &[] },
    Example { says: "it is ignored", kind: "MeshConfig",
        unknown: "{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, future: 7}}}",
        has: &["ALLOW_ANY_DYNAMIC_DNS", "SIMPLE"], has_not: &[] },
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
    Example { says: "the port is left out", kind: "EndpointSlice",
        unknown: "addressType: IPv4\nendpoints: []\nports: [{name: a, port: 80, protocol: QUIC}, {name: b, port: 81}]",
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
        let told = |problem: &pilotfish_config::Problem| {
            problem.to_string().contains("unknown to this version: ")
                && problem.message.contains(says)
                && problem.line.is_some()
        };
        assert!(reported.clone().any(told), "{says}: {:?}", reported.collect::<Vec<_>>());
    }
}

/// Pattern of paths as a regular expression for the path of something unknown in the structure.
fn expression(pattern: &str) -> regex::Regex {
    let escaped = regex::escape(pattern).replace(r"\[\*\]", r"\[[^\]]*\]").replace(r"\.\*\*", r"(\..*)?");
    regex::Regex::new(&format!(r"^{escaped}($|[.\[])")).unwrap()
}

/// Each kind of each row has an example for each pattern, by what is reported of the example.
#[test]
fn each_row_has_an_example() {
    let mut missing: Vec<(usize, pilotfish_model::Kind, &str)> = Vec::new();
    for (row, rule) in UNKNOWN_RULES.iter().enumerate() {
        missing.extend(rule.kinds.iter().flat_map(|kind| rule.at.iter().map(move |at| (row, *kind, *at))));
    }
    let all = missing.len();
    for Example { kind, unknown, .. } in EXAMPLES {
        let file = read_one(kind, unknown);
        let of_objects = file.objects.iter().map(|read| (read.object.key().kind, &read.warnings));
        let of_rejected =
            file.rejected.iter().filter_map(|read| Some((read.key.as_ref()?.kind, &read.problems)));
        for (kind, problem) in
            of_objects.chain(of_rejected).flat_map(|(kind, all)| all.iter().map(move |one| (kind, one)))
        {
            missing.retain(|(row, of, at)| {
                let is_of = problem.message.ends_with(UNKNOWN_RULES[*row].says) && *of == kind;
                !(is_of && expression(at).is_match(&problem.path.to_string()))
            });
        }
    }
    let missing: Vec<String> = missing
        .iter()
        .map(|(row, kind, at)| format!("row {row}, {kind} {at}: {}", UNKNOWN_RULES[*row].says))
        .collect();
    assert!(all > UNKNOWN_RULES.len() && missing.is_empty(), "without an example:\n{}", missing.join("\n"));
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
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/validation.md");
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

/// Rule D1 of Istio 1.31.
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
    use pilotfish_files::{FileChange, FileContent, FileRole, FileState};
    let text = "apiVersion: extensions.istio.io/v1alpha1\nkind: Rhythm\nmetadata: {name: lua, namespace: shop}\n---\n\
                apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: UDPRoute\nmetadata: {name: dns, namespace: shop}\n---\n\
                apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XMesh\nmetadata: {name: more}\n---\n\
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
            format!("a.yaml:1: Rhythm shop/lua {says}"),
            format!("a.yaml:5: UDPRoute shop/dns {says}"),
            format!("a.yaml:9: XMesh more {says}"),
        ]
    );
    assert_eq!(problems.errors(), 0);
    assert_eq!(problems.ignored.values().sum::<usize>(), 4);
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
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut told = Vec::new();
    for folder in ["oracle/cases", "examples"] {
        unknown_in_files(&root.join(folder), &mut told);
    }
    assert!(told.is_empty(), "{told:#?}");
}
