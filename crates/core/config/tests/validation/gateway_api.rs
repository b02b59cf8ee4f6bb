//! The Gateway API.

use super::{check, spec_of};

const API: &str = "gateway.networking.k8s.io/v1";

#[test]
fn gateways() {
    let of = |listener: &str| {
        spec_of(API, "Gateway")(&format!(
            "gatewayClassName: istio, listeners: [{{name: l, port: 80, {listener}}}]"
        ))
    };
    const GOOD: &str = "protocol: HTTP";
    check(
        of,
        &[
            (
                "protocol: HTTP, hostname: A.b",
                "spec.listeners[0].hostname: \"A.b\" is not a host name in lower case",
                "protocol: HTTP, hostname: \"*.b\"",
            ),
            (
                "protocol: HTTP, hostname: 1.2.3.4",
                "spec.listeners[0].hostname: \"1.2.3.4\" is an IP address, a host name is needed",
                GOOD,
            ),
            ("hostname: a.b", "spec.listeners[0].protocol: must be set", GOOD),
            (
                "protocol: TCP, hostname: a.b",
                "spec.listeners[0].hostname: must not be set for the protocols TCP and UDP",
                "protocol: TCP",
            ),
            (
                "protocol: HTTP, tls: {certificateRefs: [{name: a}]}",
                "spec.listeners[0].tls: must not be set for the protocol HTTP",
                "protocol: HTTPS, tls: {certificateRefs: [{name: a}]}",
            ),
            (
                "protocol: HTTPS, tls: {mode: Passthrough}",
                "spec.listeners[0].tls.mode: must be Terminate for the protocol HTTPS",
                "protocol: TLS, tls: {mode: Passthrough}",
            ),
            (
                "protocol: HTTPS, tls: {}",
                "spec.listeners[0].tls.certificateRefs: must be set for mode Terminate",
                "protocol: HTTPS, tls: {options: {a: b}}",
            ),
            (
                "protocol: HTTP, allowedRoutes: {namespaces: {from: Selector}}",
                "spec.listeners[0].allowedRoutes.namespaces.selector: must be set for from: Selector",
                "protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}}",
            ),
        ],
    );
    const LISTENER: &str = "{name: l, port: 80, protocol: HTTP}";
    check(
        spec_of(API, "Gateway"),
        &[
            (
                &format!("listeners: [{LISTENER}]"),
                "spec.gatewayClassName: must be set",
                &format!("gatewayClassName: istio, listeners: [{LISTENER}]"),
            ),
            (
                "gatewayClassName: istio",
                "spec.listeners: must be set",
                &format!("gatewayClassName: istio, listeners: [{LISTENER}]"),
            ),
            (
                &format!(
                    "gatewayClassName: istio, listeners: [{LISTENER}, {{name: l, port: 81, protocol: HTTP}}]"
                ),
                "spec.listeners[1].name: is the same as that of item 0, must be unique",
                &format!(
                    "gatewayClassName: istio, listeners: [{LISTENER}, {{name: m, port: 81, protocol: HTTP}}]"
                ),
            ),
            (
                &format!(
                    "gatewayClassName: istio, listeners: [{LISTENER}, {{name: m, port: 80, protocol: HTTP}}]"
                ),
                "spec.listeners[1]: is the same as that of item 0, must be unique",
                &format!(
                    "gatewayClassName: istio, listeners: [{LISTENER}, {{name: m, port: 80, protocol: HTTP, hostname: a}}]"
                ),
            ),
            (
                &format!("gatewayClassName: istio, listeners: [{LISTENER}], addresses: [{{value: a}}]"),
                "spec.addresses[0].value: \"a\" is not of type IPAddress",
                &format!(
                    "gatewayClassName: istio, listeners: [{LISTENER}], addresses: [{{type: Hostname, value: a}}]"
                ),
            ),
        ],
    );
    check(
        spec_of(API, "GatewayClass"),
        &[(
            "controllerName: istio",
            "spec.controllerName: \"istio\" is not the name of a controller, like istio.io/gateway-controller",
            "controllerName: istio.io/gateway-controller",
        )],
    );
}

#[test]
fn listener_sets() {
    const LISTENER: &str = "{name: l, port: 80, protocol: HTTP}";
    let of = |listeners: &str| {
        spec_of(API, "ListenerSet")(&format!("parentRef: {{name: gw}}, listeners: [{listeners}]"))
    };
    check(
        of,
        &[
            ("", "spec.listeners: must be set", LISTENER),
            (
                "{name: l, protocol: TCP}",
                "spec.listeners[0].port: 0 is not a port, must be 1 to 65535",
                "{name: l, protocol: HTTP}, {name: m, protocol: HTTPS, port: 0, tls: {certificateRefs: [{name: a}]}}",
            ),
            (
                "{name: l, protocol: HTTP}, {name: m, port: 80, protocol: HTTP}",
                "spec.listeners[1]: is the same as that of item 0, must be unique",
                "{name: l, protocol: HTTP}, {name: m, port: 81, protocol: HTTP}",
            ),
        ],
    );
    check(
        spec_of(API, "ListenerSet"),
        &[
            (
                &format!("listeners: [{LISTENER}]"),
                "spec.parentRef.name: must be set",
                &format!("parentRef: {{name: gw}}, listeners: [{LISTENER}]"),
            ),
            (
                &format!("parentRef: {{name: gw, namespace: A}}, listeners: [{LISTENER}]"),
                "spec.parentRef.namespace: \"A\" is not a namespace",
                &format!("parentRef: {{name: gw, namespace: a}}, listeners: [{LISTENER}]"),
            ),
        ],
    );
    check(
        |allowed: &str| {
            spec_of(API, "Gateway")(&format!(
                "gatewayClassName: istio, listeners: [{LISTENER}], allowedListeners: {{namespaces: {{{allowed}}}}}"
            ))
        },
        &[(
            "from: Selector",
            "spec.allowedListeners.namespaces.selector: must be set for from: Selector",
            "from: Selector, selector: {matchLabels: {a: b}}",
        )],
    );
}

#[test]
fn tls_of_gateways() {
    let of = |tls: &str| {
        spec_of(API, "Gateway")(&format!(
            "gatewayClassName: istio, listeners: [{{name: l, port: 443, protocol: HTTPS{tls}}}]"
        ))
    };
    const GOOD: &str = ", tls: {certificateRefs: [{name: a}]}";
    let option = |option: &str| {
        format!(", tls: {{certificateRefs: [{{name: a}}], options: {{gateway.istio.io/{option}}}}}")
    };
    check(
        of,
        &[
            ("", "warning: spec.listeners[0].tls: is not set, so the listener is not served", GOOD),
            (
                &option("tls-terminate-mode: VERY_MUTUAL"),
                "warning: spec.listeners[0].tls.options[gateway.istio.io/tls-terminate-mode]: \"VERY_MUTUAL\" is none of SIMPLE, MUTUAL, OPTIONAL_MUTUAL, ISTIO_SIMPLE, ISTIO_MUTUAL, SIMPLE is taken",
                &option("tls-terminate-mode: OPTIONAL_MUTUAL"),
            ),
            (
                &option("tls-cipher-suites: 'AES128-SHA, ROT13'"),
                "warning: spec.listeners[0].tls.options[gateway.istio.io/tls-cipher-suites]: \"ROT13\" is not a cipher that Envoy knows, it is ignored",
                &option("tls-cipher-suites: 'AES128-SHA, AES256-SHA'"),
            ),
        ],
    );
    let of = |frontend: &str| {
        spec_of(API, "Gateway")(&format!(
            "gatewayClassName: istio, listeners: [{{name: l, port: 80, protocol: HTTP}}], tls: {{frontend: {{{frontend}}}}}"
        ))
    };
    const REF: &str = "{group: '', kind: ConfigMap, name: a}";
    let validation =
        |refs: &str, mode: &str| format!("{{validation: {{caCertificateRefs: [{refs}]{mode}}}}}");
    let (one, two) = (validation(REF, ""), validation(&format!("{REF}, {REF}"), ""));
    let fallback = validation(REF, ", mode: AllowInsecureFallback");
    check(
        of,
        &[
            (
                &format!("default: {two}"),
                "warning: spec.tls.frontend.default.validation.caCertificateRefs: has 2 items, listeners are served with one",
                &format!("default: {one}"),
            ),
            (
                &format!("default: {one}, perPort: [{{port: 443, tls: {two}}}]"),
                "warning: spec.tls.frontend.perPort[0].tls.validation.caCertificateRefs: has 2 items, listeners are served with one",
                &format!("default: {one}, perPort: [{{port: 443, tls: {{}}}}]"),
            ),
            (
                &format!("default: {fallback}"),
                "warning: spec.tls.frontend.default.validation.mode: AllowInsecureFallback has no effect, clients without a valid certificate are rejected",
                &format!("default: {one}"),
            ),
            (
                &format!("default: {one}, perPort: [{{port: 443, tls: {one}}}, {{port: 443, tls: {{}}}}]"),
                "spec.tls.frontend.perPort[1].port: is the same as that of item 0, must be unique",
                &format!("default: {one}, perPort: [{{port: 443, tls: {one}}}, {{port: 444, tls: {{}}}}]"),
            ),
        ],
    );
}

#[test]
fn http_routes() {
    let of =
        |rule: &str| spec_of(API, "HTTPRoute")(&format!("parentRefs: [{{name: g}}], rules: [{{{rule}}}]"));
    const TO: &str = "backendRefs: [{name: b, port: 80}]";
    check(
        of,
        &[
            (
                "matches: [{path: {value: a}}]",
                "spec.rules[0].matches[0].path.value: \"a\" must begin with '/'",
                "matches: [{path: {value: /a}}]",
            ),
            (
                "matches: [{path: {value: /a/../b}}]",
                "spec.rules[0].matches[0].path.value: \"/a/../b\" must not contain \"/../\"",
                "matches: [{path: {value: /a/.../b}}]",
            ),
            (
                "matches: [{path: {type: RegularExpression, value: \"(\"}}]",
                "spec.rules[0].matches[0].path.value: \"(\" is not a regular expression of RE2: missing closing )",
                "matches: [{path: {type: RegularExpression, value: \"a\"}}]",
            ),
            (
                "matches: [{headers: [{name: x, value: a}, {name: X, value: b}]}]",
                "spec.rules[0].matches[0].headers[1].name: is the same as that of item 0, must be unique",
                "matches: [{headers: [{name: x, value: a}]}]",
            ),
            (
                "matches: [{headers: [{name: \"a b\", value: a}]}]",
                "spec.rules[0].matches[0].headers[0].name: \"a b\" is not the name of a header",
                "matches: [{headers: [{name: a.b, value: a}]}]",
            ),
            (
                "matches: [{queryParams: [{value: a}]}]",
                "spec.rules[0].matches[0].queryParams[0].name: must be set",
                "matches: [{queryParams: [{name: q, value: a}]}]",
            ),
            (
                "matches: [{method: get}]",
                "spec.rules[0].matches[0].method: \"get\" is not a method of HTTP, GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, \
             TRACE, PATCH",
                "matches: [{method: GET}]",
            ),
            (
                "backendRefs: [{name: b}]",
                "warning: spec.rules[0].backendRefs[0].port: is not set, a Service needs it",
                "backendRefs: [{name: b, group: x, kind: Y}]",
            ),
            ("backendRefs: [{port: 80}]", "spec.rules[0].backendRefs[0].name: must be set", TO),
            (
                "backendRefs: [{name: b, port: 80, weight: 1000001}]",
                "spec.rules[0].backendRefs[0].weight: 1000001 is above 1000000",
                "backendRefs: [{name: b, port: 80, weight: 0}]",
            ),
            (
                &format!("filters: [{{type: RequestRedirect, requestRedirect: {{}}}}], {TO}"),
                "spec.rules[0].backendRefs: must not be set beside a RequestRedirect filter",
                "filters: [{type: RequestRedirect, requestRedirect: {}}]",
            ),
            (
                "timeouts: {request: 1s, backendRequest: 2s}",
                "spec.rules[0].timeouts.backendRequest: must not be longer than request",
                "timeouts: {request: 0s, backendRequest: 2s}",
            ),
            (
                "retry: {codes: [200]}",
                "spec.rules[0].retry.codes[0]: 200 is not the status of an error, 400 to 599",
                "retry: {codes: [503], attempts: 2}",
            ),
        ],
    );
    check(
        spec_of(API, "HTTPRoute"),
        &[
            (
                "parentRefs: [{namespace: x}]",
                "spec.parentRefs[0].name: must be set",
                "parentRefs: [{name: g}]",
            ),
            (
                "parentRefs: [{name: g}, {name: g}]",
                "spec.parentRefs[1]: is the same as that of item 0, must be unique",
                "parentRefs: [{name: g}, {name: g, sectionName: s}]",
            ),
            (
                "parentRefs: [{name: g, namespace: a_b}]",
                "spec.parentRefs[0].namespace: \"a_b\" is not a namespace",
                "parentRefs: [{name: g, port: 80}]",
            ),
            (
                "hostnames: [\"a.*.b\"]",
                "spec.hostnames[0]: \"a.*.b\" is not a host name in lower case",
                "hostnames: [\"*.b\"]",
            ),
        ],
    );
}

#[test]
fn filters() {
    let of = |filters: &str| spec_of(API, "HTTPRoute")(&format!("rules: [{{filters: [{filters}]}}]"));
    const AT: &str = "spec.rules[0].filters";
    let at = |rest: &str| format!("{AT}{rest}");
    const GOOD: &str = "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}";
    let rewrite = |path: &str| format!("{{type: URLRewrite, urlRewrite: {{path: {{{path}}}}}}}");
    let redirect = |fields: &str| format!("{{type: RequestRedirect, requestRedirect: {{{fields}}}}}");
    let mirror = |fields: &str| {
        format!("{{type: RequestMirror, requestMirror: {{backendRef: {{name: b, port: 80}}, {fields}}}}}")
    };
    check(
        of,
        &[
            ("{requestHeaderModifier: {}}", &at("[0].type: must be set"), GOOD),
            ("{type: URLRewrite}", &at("[0].urlRewrite: must be set for this type"), GOOD),
            (
                "{type: URLRewrite, urlRewrite: {}, requestRedirect: {}}",
                &at("[0].requestRedirect: must not be set for this type"),
                GOOD,
            ),
            (
                &format!("{GOOD}, {GOOD}"),
                &at(": has two filters of type RequestHeaderModifier, which may be there once"),
                GOOD,
            ),
            (
                &format!("{}, {{type: URLRewrite, urlRewrite: {{}}}}", redirect("port: 80")),
                &at(": RequestRedirect and URLRewrite exclude each other"),
                &redirect("port: 80"),
            ),
            (
                "{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: a}, {name: A}]}}",
                &at("[0].requestHeaderModifier.add[1].name: is the same as that of item 0, must be unique"),
                GOOD,
            ),
            (
                "{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [\"a b\"]}}",
                &at("[0].responseHeaderModifier.remove[0]: \"a b\" is not the name of a header"),
                "{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [a]}}",
            ),
            (
                &rewrite("type: ReplaceFullPath"),
                &at("[0].urlRewrite.path.replaceFullPath: must be set for this type"),
                &rewrite("type: ReplaceFullPath, replaceFullPath: /a"),
            ),
            (
                &rewrite("type: ReplacePrefixMatch, replacePrefixMatch: /, replaceFullPath: /"),
                &at("[0].urlRewrite.path.replaceFullPath: must not be set for this type"),
                &rewrite("type: ReplacePrefixMatch, replacePrefixMatch: /"),
            ),
            (
                &redirect("scheme: ftp"),
                &at("[0].requestRedirect.scheme: \"ftp\" is not http or https"),
                &redirect("scheme: https"),
            ),
            (
                &redirect("statusCode: 300"),
                &at(
                    "[0].requestRedirect.statusCode: 300 is not the status of a redirect, 301, 302, 303, 307 or 308",
                ),
                &redirect("statusCode: 301"),
            ),
            (
                &redirect("hostname: \"*.a\""),
                &at("[0].requestRedirect.hostname: \"*.a\" is not a host name in lower case"),
                &redirect("hostname: a.b"),
            ),
            (
                &mirror("percent: 1, fraction: {numerator: 1}"),
                &at("[0].requestMirror: only one of percent, fraction may be set"),
                &mirror("percent: 1"),
            ),
            (
                &mirror("percent: 101"),
                &at("[0].requestMirror.percent: 101 is not a percentage, must be 0 to 100"),
                &mirror("percent: 100"),
            ),
            (
                &mirror("fraction: {numerator: 3, denominator: 2}"),
                &at("[0].requestMirror.fraction.numerator: must be 0 to denominator"),
                &mirror("fraction: {numerator: 1, denominator: 2}"),
            ),
        ],
    );
    let exact = "matches: [{path: {type: Exact, value: /a}}], filters: ";
    let prefix = "matches: [{path: {value: /a}}], filters: ";
    let filter = rewrite("type: ReplacePrefixMatch, replacePrefixMatch: /");
    check(
        spec_of(API, "HTTPRoute"),
        &[(
            &format!("rules: [{{{exact}[{filter}]}}]"),
            "spec.rules[0].filters[0].urlRewrite.path: a prefix can be replaced only beside exactly one match, by PathPrefix",
            &format!("rules: [{{{prefix}[{filter}]}}]"),
        )],
    );
}

#[test]
fn other_routes_and_grants() {
    let grpc = |method: &str| {
        spec_of(API, "GRPCRoute")(&format!("rules: [{{matches: [{{method: {{{method}}}}}]}}]"))
    };
    check(
        grpc,
        &[
            (
                "type: Exact",
                "spec.rules[0].matches[0].method: one of service and method must be set",
                "service: a.B",
            ),
            (
                "service: a/b",
                "spec.rules[0].matches[0].method.service: \"a/b\" is not the name of a service of gRPC",
                "service: a_b.C, method: D",
            ),
            (
                "method: a.b",
                "spec.rules[0].matches[0].method.method: \"a.b\" is not the name of a method of gRPC",
                "type: RegularExpression, method: a.b",
            ),
        ],
    );
    let alpha = "gateway.networking.k8s.io/v1alpha2";
    check(
        spec_of(alpha, "TCPRoute"),
        &[
            (
                "parentRefs: [{name: g}]",
                "spec.rules: must be set",
                "rules: [{backendRefs: [{name: b, port: 80}]}]",
            ),
            (
                "rules: [{backendRefs: [{name: b}]}]",
                "warning: spec.rules[0].backendRefs[0].port: is not set, a Service needs it",
                "rules: [{backendRefs: [{name: b, port: 80}]}]",
            ),
        ],
    );
    check(
        spec_of(alpha, "TLSRoute"),
        &[(
            "hostnames: [1.2.3.4], rules: [{}]",
            "spec.hostnames[0]: \"1.2.3.4\" is an IP address, a host name is needed",
            "hostnames: [a.b], rules: [{}]",
        )],
    );
    check(
        spec_of("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"),
        &[
            (
                "from: [{group: g, kind: k, namespace: n}]",
                "spec.to: must be set",
                "from: [{group: g, kind: k, namespace: n}], to: [{kind: Service}]",
            ),
            (
                "from: [{kind: k}], to: [{kind: Service}]",
                "spec.from[0].namespace: \"\" is not a namespace",
                "from: [{kind: k, namespace: n}], to: [{kind: Service, name: s}]",
            ),
        ],
    );
}

#[test]
fn backend_tls_policies() {
    const GOOD: &str = "targetRefs: [{group: \"\", kind: Service, name: a}], validation: {hostname: a.b, wellKnownCACertificates: System}";
    const MAP: &str = "caCertificateRefs: [{group: \"\", kind: ConfigMap, name: m}]";
    let validation = |rest: &str| {
        spec_of(API, "BackendTLSPolicy")(&format!(
            "targetRefs: [{{kind: Service, name: a}}], validation: {{{rest}}}"
        ))
    };
    let targets = |list: &str| {
        spec_of(API, "BackendTLSPolicy")(&format!(
            "targetRefs: [{list}], validation: {{hostname: a.b, wellKnownCACertificates: System}}"
        ))
    };
    check(
        spec_of(API, "BackendTLSPolicy"),
        &[
            (
                "validation: {hostname: a.b, wellKnownCACertificates: System}",
                "spec.targetRefs: must be set",
                GOOD,
            ),
            (
                "targetRefs: [{kind: Service, name: a}], validation: {wellKnownCACertificates: System}",
                "spec.validation.hostname: must be set",
                GOOD,
            ),
        ],
    );
    const SERVICE: &str = "{kind: Service, name: a}";
    check(
        targets,
        &[
            ("{name: a}", "spec.targetRefs[0].kind: must be set", SERVICE),
            ("{kind: Service}", "spec.targetRefs[0].name: must be set", SERVICE),
            (
                "{kind: Service, name: a, sectionName: A}",
                "spec.targetRefs[0].sectionName: \"A\" is not a name, up to 253 of a-z, 0-9, '-' and '.'",
                "{kind: Service, name: a, sectionName: http}",
            ),
            (
                "{kind: Service, name: a}, {kind: Service, name: a, sectionName: ''}",
                "spec.targetRefs[1]: is the same as that of item 0, must be unique",
                "{kind: Service, name: a}, {kind: Service, name: a, sectionName: http}",
            ),
        ],
    );
    const SYSTEM: &str = "hostname: a.b, wellKnownCACertificates: System";
    check(
        validation,
        &[
            (
                "hostname: '*.b', wellKnownCACertificates: System",
                "spec.validation.hostname: \"*.b\" has a wildcard, a precise host name is needed",
                SYSTEM,
            ),
            (
                "hostname: 1.2.3.4, wellKnownCACertificates: System",
                "spec.validation.hostname: \"1.2.3.4\" is an IP address, a host name is needed",
                SYSTEM,
            ),
            (
                "hostname: a.b",
                "spec.validation: one of caCertificateRefs and wellKnownCACertificates must be set",
                &format!("hostname: a.b, {MAP}"),
            ),
            (
                &format!("{SYSTEM}, {MAP}"),
                "spec.validation: only one of caCertificateRefs and wellKnownCACertificates may be set",
                SYSTEM,
            ),
            (
                "hostname: a.b, caCertificateRefs: [{kind: ConfigMap}]",
                "spec.validation.caCertificateRefs[0].name: must be set",
                &format!("hostname: a.b, {MAP}"),
            ),
            (
                &format!("{SYSTEM}, subjectAltNames: [{{type: Mail, hostname: a}}]"),
                "spec.validation.subjectAltNames[0].type: \"Mail\" is none of Hostname and URI",
                &format!("{SYSTEM}, subjectAltNames: [{{type: Hostname, hostname: '*.a'}}]"),
            ),
            (
                &format!("{SYSTEM}, subjectAltNames: [{{type: URI, hostname: a, uri: 'spiffe://a/b'}}]"),
                "spec.validation.subjectAltNames[0].hostname: must not be set for type URI",
                &format!("{SYSTEM}, subjectAltNames: [{{type: URI, uri: 'spiffe://a/b'}}]"),
            ),
            (
                &format!("{SYSTEM}, subjectAltNames: [{{type: URI, uri: a}}]"),
                "spec.validation.subjectAltNames[0].uri: \"a\" is not a URI with a scheme and an authority",
                &format!("{SYSTEM}, subjectAltNames: [{{type: URI, uri: 'urn://a'}}]"),
            ),
        ],
    );
}
