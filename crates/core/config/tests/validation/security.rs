//! `security.istio.io`, and what policies are attached to.

use super::{check, spec_of};

const API: &str = "security.istio.io/v1";

#[test]
fn targets_of_policies() {
    const SERVICE: &str = "{kind: Service, name: a}";
    let many = vec![SERVICE; 17].join(", ");
    check(
        spec_of(API, "RequestAuthentication"),
        &[
            (
                &format!("selector: {{matchLabels: {{a: b}}}}, targetRef: {SERVICE}"),
                "spec: only one of selector, targetRef and targetRefs may be set",
                "selector: {matchLabels: {a: b}}",
            ),
            (
                "targetRef: {kind: Service}",
                "spec.targetRef.name: must be set",
                &format!("targetRef: {SERVICE}"),
            ),
            (
                "targetRef: {kind: Service, name: a, namespace: b}",
                "spec.targetRef.namespace: must not be set, a policy is for objects of its own namespace",
                &format!("targetRefs: [{SERVICE}]"),
            ),
            (
                "targetRefs: [{kind: Pod, name: a}]",
                "spec.targetRefs[0].kind: a policy cannot be attached to \"/Pod\" (Service, networking.istio.io/ServiceEntry, \
             gateway.networking.k8s.io/Gateway or GatewayClass)",
                "targetRefs: [{group: networking.istio.io, kind: ServiceEntry, name: a}]",
            ),
            (
                &format!("targetRefs: [{many}]"),
                "spec.targetRefs: has 17 items, at most 16 are allowed",
                &format!("targetRefs: [{SERVICE}, {SERVICE}]"),
            ),
            (
                &format!("selector: {{matchLabels: {{a: {}}}}}", "b".repeat(64)),
                "spec.selector.matchLabels[a]: the value of a label has at most 63 characters",
                &format!("selector: {{matchLabels: {{a: {}}}}}", "b".repeat(63)),
            ),
        ],
    );
}

#[test]
fn request_authentication() {
    let of = |rule: &str| spec_of(API, "RequestAuthentication")(&format!("jwtRules: [{{{rule}}}]"));
    check(
        of,
        &[
            ("jwksUri: \"https://a/b\"", "spec.jwtRules[0].issuer: must be set", "issuer: a"),
            (
                "issuer: a, jwksUri: \"https://a/b\", jwks: '{\"kty\": \"oct\", \"k\": \"YQ\"}'",
                "spec.jwtRules[0]: only one of jwks, jwksUri may be set",
                "issuer: a, jwks: '{\"keys\": [{\"kty\": \"RSA\", \"n\": \"YQ\", \"e\": \"AQAB\"}]}'",
            ),
            (
                "issuer: a, jwksUri: \"ftp://a/b\"",
                "spec.jwtRules[0].jwksUri: \"ftp://a/b\" is not a URL with http or https",
                "issuer: a, jwksUri: \"http://a/b\"",
            ),
            (
                "issuer: a, jwks: \"{}\"",
                "spec.jwtRules[0].jwks: is not a set of JSON web keys",
                "issuer: a, jwks: '{\"kty\": \"RSA\", \"n\": \"YQ\", \"e\": \"AQAB\"}'",
            ),
            (
                "issuer: a, jwks: '{\"keys\": [{}]}'",
                "spec.jwtRules[0].jwks: is not a set of JSON web keys",
                "issuer: a, jwks: '{\"keys\": []}'",
            ),
            (
                "issuer: a, audiences: [\"\"]",
                "spec.jwtRules[0].audiences[0]: must not be empty",
                "issuer: a, audiences: [b]",
            ),
            (
                "issuer: a, fromParams: [\"\"]",
                "spec.jwtRules[0].fromParams[0]: must not be empty",
                "issuer: a, fromParams: [b]",
            ),
            (
                "issuer: a, fromCookies: [\"\"]",
                "spec.jwtRules[0].fromCookies[0]: must not be empty",
                "issuer: a, fromCookies: [b]",
            ),
            (
                "issuer: a, spaceDelimitedClaims: [\"\"]",
                "spec.jwtRules[0].spaceDelimitedClaims[0]: must not be empty",
                "issuer: a, spaceDelimitedClaims: [b]",
            ),
            (
                "issuer: a, fromHeaders: [{prefix: b}]",
                "spec.jwtRules[0].fromHeaders[0].name: must be set",
                "issuer: a, fromHeaders: [{name: b}]",
            ),
            (
                "issuer: a, outputClaimToHeaders: [{header: x}]",
                "spec.jwtRules[0].outputClaimToHeaders[0].claim: must be set",
                "issuer: a, outputClaimToHeaders: [{header: x, claim: y}]",
            ),
            (
                "issuer: a, outputClaimToHeaders: [{header: \":authority\", claim: y}]",
                "spec.jwtRules[0].outputClaimToHeaders[0].header: \":authority\" is not the name of a header",
                "issuer: a, outputClaimToHeaders: [{header: x_y-z, claim: y}]",
            ),
            (
                "issuer: a, timeout: 1us",
                "spec.jwtRules[0].timeout: must be at least 1ms",
                "issuer: a, timeout: 1s",
            ),
        ],
    );
}

#[test]
fn peer_authentication() {
    check(
        spec_of(API, "PeerAuthentication"),
        &[
            (
                "portLevelMtls: {80: {mode: STRICT}}",
                "spec.portLevelMtls: needs a selector with matchLabels",
                "selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT}}",
            ),
            (
                "selector: {matchLabels: {a: b}}, portLevelMtls: {0: {mode: STRICT}}",
                "spec.portLevelMtls[0]: 0 is not a port, must be 1 to 65535",
                "selector: {matchLabels: {a: b}}, portLevelMtls: {1: {mode: STRICT}}",
            ),
            (
                "selector: {}",
                "warning: spec.selector: has no labels, so it selects every workload of the namespace",
                "mtls: {mode: STRICT}",
            ),
        ],
    );
}

#[test]
fn authorization_policies() {
    check(
        spec_of(API, "AuthorizationPolicy"),
        &[
            (
                "action: DENY",
                "spec.rules: must be set, without rules the policy matches nothing ([{}] matches every request)",
                "action: DENY, rules: [{}]",
            ),
            (
                "action: CUSTOM, rules: [{}]",
                "spec.provider: must be set for action CUSTOM",
                "action: CUSTOM, provider: {name: a}, rules: [{}]",
            ),
            (
                "action: CUSTOM, provider: {}, rules: [{}]",
                "spec.provider.name: must be set",
                "action: CUSTOM, provider: {name: a}, rules: [{}]",
            ),
            (
                "provider: {name: a}",
                "warning: spec.provider: has an effect for action CUSTOM only",
                "rules: [{}]",
            ),
            (
                "action: CUSTOM, provider: {name: a}, rules: [{from: [{source: {principals: [a]}}]}]",
                "warning: spec.rules[0].from[0].source.principals: is not supported for action CUSTOM",
                "action: CUSTOM, provider: {name: a}, rules: [{from: [{source: {ipBlocks: [1.2.3.4]}}]}]",
            ),
            (
                "action: CUSTOM, provider: {name: a}, rules: [{when: [{key: request.auth.principal, values: [a]}]}]",
                "warning: spec.rules[0].when[0].key: \"request.auth.principal\" is not supported for action CUSTOM",
                "action: CUSTOM, provider: {name: a}, rules: [{when: [{key: connection.sni, values: [a]}]}]",
            ),
        ],
    );
    let of = |rule: &str| spec_of(API, "AuthorizationPolicy")(&format!("rules: [{{{rule}}}]"));
    check(
        of,
        &[
            (
                "from: [{}]",
                "spec.rules[0].from[0].source: must be set",
                "from: [{source: {namespaces: [a]}}]",
            ),
            (
                "from: [{source: {}}]",
                "spec.rules[0].from[0].source: is empty, at least one field must be set",
                "from: [{source: {notNamespaces: [a]}}]",
            ),
            (
                "from: [{source: {principals: [\"\"]}}]",
                "spec.rules[0].from[0].source.principals[0]: must not be empty",
                "from: [{source: {principals: [\"*\"]}}]",
            ),
            (
                "from: [{source: {remoteIpBlocks: [1.2.3]}}]",
                "spec.rules[0].from[0].source.remoteIpBlocks[0]: \"1.2.3\" is not an IP address or a CIDR block",
                "from: [{source: {remoteIpBlocks: [1.2.3.0/24]}}]",
            ),
            (
                "from: [{source: {serviceAccounts: [b/sa], namespaces: [b]}}]",
                "spec.rules[0].from[0].source.serviceAccounts: must not be set beside principals or namespaces",
                "from: [{source: {serviceAccounts: [b/sa, sa]}}]",
            ),
            (
                "from: [{source: {serviceAccounts: [a/b/c]}}]",
                "spec.rules[0].from[0].source.serviceAccounts[0]: \"a/b/c\" is not a service account, name or namespace/name",
                "from: [{source: {notServiceAccounts: [b/c]}}]",
            ),
            ("to: [{}]", "spec.rules[0].to[0].operation: must be set", "to: [{operation: {paths: [/]}}]"),
            (
                "to: [{operation: {}}]",
                "spec.rules[0].to[0].operation: is empty, at least one field must be set",
                "to: [{operation: {notMethods: [GET]}}]",
            ),
            (
                "to: [{operation: {ports: [http]}}]",
                "spec.rules[0].to[0].operation.ports[0]: \"http\" is not a port, must be 1 to 65535",
                "to: [{operation: {ports: [\"80\"]}}]",
            ),
            (
                "to: [{operation: {hosts: [\"\"]}}]",
                "spec.rules[0].to[0].operation.hosts[0]: must not be empty",
                "to: [{operation: {hosts: [a]}}]",
            ),
            (
                "to: [{operation: {paths: [\"/{**}/a\", \"/a/{*}b\"]}}]",
                "spec.rules[0].to[0].operation.paths[1]: \"/a/{*}b\" is not a path: {*} and {**} must be whole parts",
                "to: [{operation: {paths: [\"/a/{*}/b/{**}\", \"/a*\"]}}]",
            ),
            (
                "to: [{operation: {notPaths: [\"/{**}/{*}\"]}}]",
                "spec.rules[0].to[0].operation.notPaths[0]: \"/{**}/{*}\" is not a path: nothing with braces may follow {**}",
                "to: [{operation: {notPaths: [\"/{*}/{**}\"]}}]",
            ),
            (
                "when: [{values: [a]}]",
                "spec.rules[0].when[0].key: must be set",
                "when: [{key: source.ip, values: [1.2.3.4]}]",
            ),
            (
                "when: [{key: source.ip}]",
                "spec.rules[0].when[0]: one of values and notValues must be set",
                "when: [{key: source.ip, notValues: [1.2.3.4]}]",
            ),
            (
                "when: [{key: source.ips, values: [a]}]",
                "warning: spec.rules[0].when[0].key: \"source.ips\" is unknown to this version: the rule matches nothing (did you mean \"source.ip\"?)",
                "when: [{key: source.namespace, values: [a]}]",
            ),
            (
                "when: [{key: request.headers, values: [a]}]",
                "spec.rules[0].when[0].key: \"request.headers\" must have the form name[key]",
                "when: [{key: \"request.headers[x-a]\", values: [a]}]",
            ),
            (
                "when: [{key: destination.ip, values: [a]}]",
                "spec.rules[0].when[0].values[0]: \"a\" is not an IP address or a CIDR block",
                "when: [{key: destination.ip, values: [10.0.0.0/8]}]",
            ),
            (
                "when: [{key: destination.port, notValues: [\"99999\"]}]",
                "spec.rules[0].when[0].notValues[0]: \"99999\" is not a port, must be 1 to 65535",
                "when: [{key: destination.port, notValues: [\"99\"]}]",
            ),
        ],
    );
}

#[test]
fn deny_rules_on_http_alone() {
    const WARNING: &str = "warning: spec.rules[0]: has attributes of HTTP alone, so it denies all traffic to TCP ports, set \
                           ports as well";
    let of = |rule: &str| spec_of(API, "AuthorizationPolicy")(&format!("action: DENY, rules: [{{{rule}}}]"));
    check(
        of,
        &[
            (
                "to: [{operation: {paths: [/a]}}]",
                WARNING,
                "to: [{operation: {paths: [/a], ports: [\"80\"]}}]",
            ),
            (
                "from: [{source: {requestPrincipals: [a]}}]",
                WARNING,
                "from: [{source: {requestPrincipals: [a], namespaces: [b]}}]",
            ),
        ],
    );
}

#[test]
fn dry_run() {
    let of = |annotation: &str| {
        let (value, action) = annotation.split_once(' ').unwrap();
        format!(
            "apiVersion: {API}\nkind: AuthorizationPolicy\nmetadata: {{name: a, annotations: {{istio.io/dry-run: \"{value}\"}}}}\n\
             spec: {{action: {action}, rules: [{{}}]}}\n"
        )
    };
    check(
        of,
        &[
            (
                "yes ALLOW",
                "metadata.annotations[istio.io/dry-run]: \"yes\" is not true or false",
                "true DENY",
            ),
            (
                "true AUDIT",
                "warning: metadata.annotations[istio.io/dry-run]: has an effect for the actions ALLOW and DENY only",
                "false ALLOW",
            ),
        ],
    );
}
