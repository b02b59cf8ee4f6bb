//! What stands in for objects that guard something and cannot be used in full.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_config::networking::{DestinationRule, Gateway};
use pilotfish_config::security::{AuthorizationPolicy, PeerAuthentication, RequestAuthentication};
use pilotfish_config::{Limits, read};
use pilotfish_model::{KindSpec, Typed};

/// The closed form of an object of which this is the spec, and perhaps more at its end.
fn closed<T: KindSpec>(kind: &str, spec: &str) -> Typed<T> {
    let text = format!("metadata: {{name: a, namespace: shop}}\nspec: {spec}\n");
    closed_object(&format!("apiVersion: {kind}\n{text}")).expect("it guards something")
}

fn closed_object<T: KindSpec>(text: &str) -> Option<Typed<T>> {
    let mut file = read("a.yaml", text.as_bytes(), &Limits::default());
    // Of an object that is refused its closed form, and of one with something unknown what holds in its
    // place.
    let unknown = file.objects.pop();
    assert!(
        unknown.as_ref().is_none_or(|read| !read.warnings.is_empty()),
        "nothing is wrong with it: {text}"
    );
    unknown.map_or_else(|| file.rejected.remove(0).closed, |read| Some(read.object))?.typed()
}

fn policy(spec: &str) -> String {
    let policy: Typed<AuthorizationPolicy> = closed("security.istio.io/v1\nkind: AuthorizationPolicy", spec);
    let selects = if policy.selector.is_some() || policy.target_ref.is_some() { "some" } else { "all" };
    let rules = serde_json::to_value(&policy.rules).unwrap();
    format!("{selects} {:?} {}", policy.action, written(&rules))
}

/// Without what is left out.
fn written(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    };
    match value {
        Value::Array(items) => items.iter().map(written).collect(),
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !is_empty(value));
            set.map(|(name, value)| (name.clone(), written(value))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn a_policy_that_allows_loses_the_rules_that_cannot_be_used() {
    let good = "{to: [{operation: {methods: [GET]}}]}";
    let bad = "{from: [{source: {ipBlocks: [nowhere]}}]}";
    for (spec, want) in [
        (
            format!("{{selector: {{matchLabels: {{a: b}}}}, rules: [{good}, {bad}]}}"),
            r#"some Allow [{"to":[{"operation":{"methods":["GET"]}}]}]"#,
        ),
        (format!("{{rules: [{bad}]}}"), "all Allow []"),
        (format!("{{rules: {good}}}"), "all Allow []"),
        // Which workloads it is for is not known, so it allows nothing to any.
        (format!("{{selector: {{matchLabels: 7}}, rules: [{good}]}}"), "all Allow []"),
        (format!("{{targetRef: {{kind: Shop, name: a}}, rules: [{good}]}}"), "all Allow []"),
        (format!("{{rules: [{good}], unless: [GET]}}"), "all Allow []"),
        (format!("{{rules: [{good}], action: ALOW}}"), "all Deny [{}]"),
        ("[]".to_owned(), "all Allow []"),
    ] {
        assert_eq!(policy(&spec), want, "{spec}");
    }
}

#[test]
fn a_policy_that_denies_loses_the_conditions_that_cannot_be_used() {
    let good = "to: [{operation: {methods: [GET]}}]";
    let kept = r#"{"to":[{"operation":{"methods":["GET"]}}]}"#;
    for (rules, want) in [
        (format!("[{{{good}, from: [{{source: {{ipBlocks: [nowhere]}}}}]}}]"), format!("[{kept}]")),
        (format!("[{{{good}, from: [{{source: {{namespaces: [a]}}}}, 7]}}]"), format!("[{kept}]")),
        (format!("[{{{good}, when: [{{key: no.such, values: [a]}}]}}]"), format!("[{kept}]")),
        (format!("[{{{good}, whenn: []}}]"), format!("[{kept}]")),
        (format!("[{{{good}}}, 7]"), format!("[{kept},{{}}]")),
        ("7".to_owned(), "[{}]".to_owned()),
        ("[]".to_owned(), "[{}]".to_owned()),
    ] {
        let spec = format!("{{action: DENY, rules: {rules}}}");
        assert_eq!(policy(&spec), format!("all Deny {want}"), "{spec}");
    }
}

#[test]
fn a_version_or_metadata_that_cannot_be_read_close_the_object_as_a_whole() {
    let object = |version: &str, metadata: &str| {
        format!(
            "apiVersion: security.istio.io/{version}\nkind: AuthorizationPolicy\n\
             metadata: {{name: a, namespace: shop{metadata}}}\nspec: {{rules: [{{}}]}}\n"
        )
    };
    for (version, metadata) in
        [("v7", ""), ("v1", ", creationTimestamp: soon"), ("v1", ", annotations: {istio.io/dry-run: maybe}")]
    {
        let policy: Typed<AuthorizationPolicy> = closed_object(&object(version, metadata)).unwrap();
        assert!(policy.rules.is_empty(), "{version} {metadata}");
    }
}

#[test]
fn mutual_tls_is_required_where_a_mode_cannot_be_read() {
    for (spec, want) in [
        ("{mtls: {mode: STRCT}}", "Some(Strict) [] false"),
        ("{mtls: PERMISSIVE}", "Some(Strict) [] false"),
        (
            "{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {mode: STRCT}, 81: {mode: DISABLE}}}",
            "Some(Permissive) [(80, Strict), (81, Disable)] false",
        ),
        (
            "{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {http: {mode: STRICT}, 81: {mode: DISABLE}}}",
            "Some(Strict) [(81, Disable)] false",
        ),
        // Which workloads are meant is not known.
        ("{selector: {matchLabels: {a: '*'}}, mtls: {mode: PERMISSIVE}}", "None [] true"),
        ("{portLevelMtls: {80: {mode: PERMISSIVE}}}", "None [] true"),
        ("{mtls: {mode: PERMISSIVE}, mtlz: 7}", "Some(Strict) [] false"),
    ] {
        let policy: Typed<PeerAuthentication> =
            closed("security.istio.io/v1\nkind: PeerAuthentication", spec);
        let ports: Vec<_> = policy.port_level_mtls.iter().map(|(port, mtls)| (*port, mtls.mode)).collect();
        let got = format!("{:?} {ports:?} {}", policy.mtls.map(|mtls| mtls.mode), policy.closed);
        assert_eq!(got, want, "{spec}");
    }
}

#[test]
fn tokens_of_a_rule_that_cannot_be_used_are_refused() {
    for (spec, want) in [
        ("{jwtRules: [{issuer: a, jwks: none}, {issuer: b}]}", "[(\"a\", true), (\"b\", false)] false"),
        ("{jwtRules: [{issuer: a, timeout: soon, fromParams: [t]}]}", "[(\"a\", true)] false"),
        // Other workloads must not accept tokens that were not for them.
        ("{selector: 7, jwtRules: [{issuer: a}]}", "[(\"a\", true)] false"),
        // Whose tokens they are, or where they are, is not known.
        ("{jwtRules: [{issuer: '', jwks: none}]}", "[] true"),
        ("{jwtRules: [{issuer: a, fromHeaders: [{prefix: x}]}]}", "[] true"),
        ("{jwtRules: 7}", "[] true"),
        ("{jwtRules: [{issuer: a}], jwtRulez: []}", "[(\"a\", true)] false"),
    ] {
        let policy: Typed<RequestAuthentication> =
            closed("security.istio.io/v1\nkind: RequestAuthentication", spec);
        let rules: Vec<_> = policy.jwt_rules.iter().map(|rule| (rule.issuer.as_str(), rule.closed)).collect();
        assert_eq!(format!("{rules:?} {}", policy.closed), want, "{spec}");
    }
}

#[test]
fn servers_of_a_gateway_that_cannot_be_used_refuse_connections() {
    let server = |tls: &str| {
        format!("{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [a.example], tls: {tls}}}")
    };
    let plain = |more: &str| {
        format!("{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [a.example]{more}}}")
    };
    let (good, bad) = (server("{mode: SIMPLE, credentialName: a}"), server("{mode: MUTAL}"));
    for (servers, want) in [
        (format!("[{good}, {bad}]"), vec![(443, false), (443, true)]),
        (format!("[{}]", server("{mode: MUTUAL, serverCertificate: a, privateKey: b}")), vec![(443, true)]),
        // Which connections come to it is not known, or nothing else gets them.
        (format!("[{good}, {}]", bad.replace("[a.example]", "[]")), vec![(443, false)]),
        (format!("[{}, {}]", plain(""), plain(", defaultEndpoint: []")), vec![(80, false)]),
        ("{}".to_owned(), vec![]),
    ] {
        let gateway: Typed<Gateway> = closed(
            "networking.istio.io/v1\nkind: Gateway",
            &format!("{{selector: {{a: b}}, servers: {servers}}}"),
        );
        let port = |server: &pilotfish_config::networking::Server| server.port.as_ref().unwrap().number;
        let got: Vec<_> = gateway.servers.iter().map(|server| (port(server), server.closed)).collect();
        assert_eq!(got, want, "{servers}");
        assert_eq!(gateway.selector.len(), 1);
    }
    let gateway: Typed<Gateway> =
        closed("networking.istio.io/v1\nkind: Gateway", &format!("{{selector: a, servers: [{good}]}}"));
    assert!(gateway.selector.is_empty() && gateway.servers[0].closed, "it may be for any router");
}

#[test]
fn only_destination_rules_with_tls_close_their_host() {
    let kind = "networking.istio.io/v1\nkind: DestinationRule";
    let rule: Typed<DestinationRule> =
        closed(kind, "{host: a.example, exportTo: ['.'], trafficPolicy: {tls: {mode: SIMPEL}}, subsets: 7}");
    assert!(rule.closed && rule.traffic_policy.is_none());
    assert_eq!((rule.host.as_str(), rule.export_to.as_slice()), ("a.example", &[".".to_owned()][..]));
    let spec = "{host: a.example, trafficPolicy: 7}";
    assert!(closed::<DestinationRule>(kind, spec).closed, "{spec} may have had TLS settings");
    for spec in
        ["{host: a.example, trafficPolicy: {loadBalancer: 7}}", "{trafficPolicy: {tls: {mode: SIMPLE}}}"]
    {
        let text = format!("apiVersion: {kind}\nmetadata: {{name: a, namespace: shop}}\nspec: {spec}\n");
        assert!(closed_object::<DestinationRule>(&text).is_none(), "{spec}");
    }
}

#[test]
fn unknown_tls_settings_close_the_policy_that_has_them() {
    let mode = "tls: {mode: FUTURE}";
    let port = |number: u32, settings: &str| format!("{{port: {{number: {number}}}, {settings}}}");
    let good = "{name: v2, trafficPolicy: {tls: {mode: SIMPLE}}}";
    for (spec, wanted) in [
        (format!("trafficPolicy: {{{mode}}}"), "host"),
        (
            format!("trafficPolicy: {{{mode}, portLevelSettings: [{}]}}", port(80, "tls: {mode: SIMPLE}")),
            "host",
        ),
        (
            format!(
                "trafficPolicy: {{portLevelSettings: [{}, {}]}}",
                port(80, "connectionPool: {}"),
                port(81, mode)
            ),
            "host:81",
        ),
        (format!("subsets: [{good}, {{name: v1, trafficPolicy: {{{mode}}}}}]"), "v1"),
        (
            format!(
                "subsets: [{{name: v1, trafficPolicy: {{portLevelSettings: [{}]}}}}, {good}]",
                port(80, mode)
            ),
            "v1:80",
        ),
        (format!("trafficPolicy: {{{mode}}}, subsets: [{{name: v1, trafficPolicy: {{{mode}}}}}]"), "host v1"),
        ("subsets: [{name: v1, trafficPolicy: {tls: {profile: FUTURE}}}]".to_owned(), "v1"),
        (format!("subsets: [{{name: v1, trafficPolicy: {{tlss: {{mode: SIMPLE}}}}}}, {good}]"), "v1"),
        (format!("subsets: [{{name: v1, traficPolicy: {{tls: {{mode: SIMPLE}}}}}}, {good}]"), "v1"),
        (format!("subset: [{{name: v1, trafficPolicy: {{{mode}}}}}]"), "all"),
    ] {
        let kind = "networking.istio.io/v1\nkind: DestinationRule";
        let rule: Typed<DestinationRule> = closed(kind, &format!("{{host: a.example, {spec}}}"));
        assert!(rule.closes_anything(), "{spec}");
        assert_eq!(closed_parts(&rule).join(" "), wanted, "{spec}");
    }
}

/// Names of the parts of a rule that are closed: `host:81`, `v1`.
fn closed_parts(rule: &DestinationRule) -> Vec<String> {
    let subsets = rule.subsets.iter().map(|subset| (subset.name.as_str(), subset.traffic_policy.as_ref()));
    let policies = std::iter::once(("host", rule.traffic_policy.as_ref())).chain(subsets);
    let mut out: Vec<String> = rule.closed.then(|| "all".to_owned()).into_iter().collect();
    for (name, policy) in policies {
        let Some(policy) = policy else { continue };
        out.extend(policy.tls.as_ref().is_some_and(|tls| tls.closed).then(|| name.to_owned()));
        let ports =
            policy.port_level_settings.iter().filter(|port| port.tls.as_ref().is_some_and(|tls| tls.closed));
        out.extend(ports.map(|port| format!("{name}:{}", port.port.as_ref().map_or(0, |port| port.number))));
    }
    out
}
