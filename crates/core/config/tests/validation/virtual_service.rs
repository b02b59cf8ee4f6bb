//! VirtualService.

use super::{Rule, check, spec_of};

pub(super) const API: &str = "networking.istio.io/v1";

/// A spec of one HTTP route with these fields beside its destination.
fn route(fields: &str) -> String {
    let route = "route: [{destination: {host: b}}]";
    let comma = if fields.is_empty() { "" } else { ", " };
    format!("hosts: [a], http: [{{{route}{comma}{fields}}}]")
}

fn check_routes(rules: &[Rule<'_>]) {
    check(|fields| spec_of(API, "VirtualService")(&route(fields)), rules);
}

pub(super) fn check_specs(rules: &[Rule<'_>]) {
    check(spec_of(API, "VirtualService"), rules);
}

/// An object with mistakes of all sorts.
#[test]
fn all_mistakes_of_an_object_are_told_at_once() {
    let text = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [web]
  http:
  - tmeout: 3s
    match: [{uri: {prefix: /a, exact: /b}}]
    route: [{destination: {host: web}, weight: -5}]
  - timeout: soon
    match: [{port: many}]
    route: [{destination: {host: web}}]
  - fault: {abort: {percentage: {value: 200}, httpStatus: 503}}
    route: [{destination: {host: web}}]
";
    let file = pilotfish_config::read("a.yaml", text.as_bytes(), &pilotfish_config::Limits::default());
    let found: Vec<_> = file
        .rejected
        .iter()
        .flat_map(|rejected| &rejected.problems)
        .map(|problem| format!("{} {}", problem.line.unwrap_or_default(), problem.path))
        .collect();
    assert_eq!(
        found,
        [
            "8 spec.http[0].match[0].uri",
            "10 spec.http[1].timeout",
            "11 spec.http[1].match[0].port",
            "9 spec.http[0].route[0].weight",
            "13 spec.http[2].fault.abort.percentage.value",
            "7 spec.http[0].tmeout",
        ]
    );
}

#[test]
fn conditions_are_limited() {
    let with = |count: usize| "{uri: {exact: /a}}, ".repeat(count);
    let spec = |count: usize| {
        format!("hosts: [a], http: [{{match: [{}], route: [{{destination: {{host: b}}}}]}}]", with(count))
    };
    let (many, few) = (spec(16_385), spec(1));
    check_specs(&[(
        &many,
        "spec.http: too many conditions: 16385, and at most 16384 are allowed (limit virtual-service-conditions)",
        &few,
    )]);
}

#[test]
fn hosts_and_gateways() {
    const HTTP: &str = "http: [{route: [{destination: {host: b}}]}]";
    let with = |fields: &str| format!("{fields}, {HTTP}");
    let rules = [
        (
            "hosts: [a_b]",
            "spec.hosts[0]: \"a_b\" is not a host name: \"a_b\" is not a DNS label or a wildcard",
            "hosts: [a-b]",
        ),
        (
            "hosts: [\"a.*.com\"]",
            "spec.hosts[0]: \"a.*.com\" is not a host name: \"*\" is not a DNS label",
            "hosts: [\"*.a.com\"]",
        ),
        ("hosts: [\"\"]", "spec.hosts[0]: \"\" is not a host name: it is empty", "hosts: [10.0.0.1]"),
        (
            "hosts: [\"*\"]",
            "warning: spec.hosts[0]: \"*\" is meant for gateways only, sidecars need the hosts",
            "hosts: [\"*\"], gateways: [gw]",
        ),
        ("hosts: [a, a]", "warning: spec.hosts[1]: \"a\" is there twice", "hosts: [a, b]"),
        (
            "hosts: [x.a.com, \"*.a.com\"]",
            "warning: spec.hosts[0]: \"x.a.com\" is covered by \"*.a.com\"",
            "hosts: [x.b.com, \"*.a.com\"]",
        ),
        (
            "gateways: [gw]",
            "spec.gateways: must not be set in a delegate, which a VirtualService without hosts is (or set hosts)",
            "exportTo: [\".\"]",
        ),
        (
            "hosts: [a], gateways: [shop/]",
            "spec.gateways[0]: \"\" is not the name of a gateway",
            "hosts: [a], gateways: [shop/gw]",
        ),
        (
            "hosts: [a], gateways: [x_y/gw]",
            "spec.gateways[0]: \"x_y\" is not the namespace of a gateway",
            "hosts: [a], gateways: [mesh]",
        ),
        (
            "hosts: [a], gateways: [gw.shop.svc.cluster.local]",
            "warning: spec.gateways[0]: is an old form of name, write \"shop/gw\"",
            "hosts: [a], gateways: [shop/gw]",
        ),
        (
            "hosts: [a], exportTo: [\"*\", team]",
            "warning: spec.exportTo[0]: \"*\" is meant to be alone",
            "hosts: [a], exportTo: [\"*\"]",
        ),
        (
            "hosts: [a], exportTo: [\".\", shop]",
            "warning: spec.exportTo[1]: \"shop\" is there twice",
            "hosts: [a], exportTo: [\".\", team]",
        ),
        (
            "hosts: [a], exportTo: [a_b]",
            "spec.exportTo[0]: \"a_b\" is not a namespace, \".\" or \"*\"",
            "hosts: [a], exportTo: [a-b]",
        ),
        (
            "hosts: [a], exportTo: [\"~\"]",
            "warning: spec.exportTo[0]: \"~\" is meant for ServiceEntries only",
            "hosts: [a], exportTo: []",
        ),
    ];
    check(|fields| spec_of(API, "VirtualService")(&with(fields)), &rules);
    check_specs(&[("hosts: [a]", "spec: one of http, tls and tcp must be set", &with("hosts: [a]"))]);
}

#[test]
fn actions() {
    const B: &str = "route: [{destination: {host: b}}]";
    let of = |fields: &str| spec_of(API, "VirtualService")(&format!("hosts: [a], http: [{{{fields}}}]"));
    let good = B;
    check(
        of,
        &[
            (
                "name: x",
                "spec.http[0]: one of route, redirect, directResponse and delegate must be set",
                good,
            ),
            ("route: [{weight: 1}]", "spec.http[0].route[0].destination: must be set", good),
            ("route: [{destination: {}}]", "spec.http[0].route[0].destination.host: must be set", good),
            (
                "route: [{destination: {host: \"*\"}}]",
                "spec.http[0].route[0].destination.host: \"*\" cannot be the destination of a route",
                good,
            ),
            (
                "route: [{destination: {host: b, subset: v_1}}]",
                "spec.http[0].route[0].destination.subset: \"v_1\" is not a subset name: 1 to 63 letters, digits and '-', \
             not '-' at the ends",
                "route: [{destination: {host: b, subset: v-1}}]",
            ),
            (
                "route: [{destination: {host: b, port: {number: 0}}}]",
                "spec.http[0].route[0].destination.port.number: 0 is not a port, must be 1 to 65535",
                "route: [{destination: {host: b, port: {number: 65535}}}]",
            ),
            (
                "route: [{destination: {host: b}, weight: -1}]",
                "spec.http[0].route[0].weight: -1 is negative",
                "route: [{destination: {host: b}, weight: 0}]",
            ),
            (
                "route: [{destination: {host: b}}, {destination: {host: c}}]",
                "spec.http[0].route: the weights of several destinations add up to 0",
                "route: [{destination: {host: b}, weight: 1}, {destination: {host: c}}]",
            ),
            (
                "redirect: {uri: /}, route: [{destination: {host: b}}]",
                "warning: spec.http[0].route: has no effect beside redirect",
                "redirect: {uri: /}",
            ),
            (
                "directResponse: {status: 200}, rewrite: {uri: /}",
                "warning: spec.http[0].rewrite: has no effect beside directResponse",
                "directResponse: {status: 200}",
            ),
            (
                "delegate: {name: d}, directResponse: {status: 200}",
                "warning: spec.http[0].directResponse: has no effect beside delegate",
                "delegate: {name: d}",
            ),
            ("delegate: {namespace: team}", "spec.http[0].delegate.name: must be set", "delegate: {name: d}"),
            (
                "delegate: {name: d, namespace: a_b}",
                "spec.http[0].delegate.namespace: \"a_b\" is not a namespace",
                "delegate: {name: d, namespace: a-b}",
            ),
        ],
    );
    check_specs(&[(
        "http: [{delegate: {name: x}, route: [{destination: {host: b}}]}]",
        "warning: spec.http[0].delegate: has no effect, a delegate cannot delegate further",
        "http: [{route: [{destination: {host: b}}]}]",
    )]);
}

#[test]
fn matches() {
    check_routes(&[
        (
            "match: [{uri: {regex: \"a(b\"}}]",
            "spec.http[0].match[0].uri.regex: \"a(b\" is not a regular expression of RE2: missing closing )",
            "match: [{uri: {regex: \"a(b)\"}}]",
        ),
        (
            "match: [{method: {regex: \"(?!GET)\"}}]",
            "spec.http[0].match[0].method.regex: \"(?!GET)\" is not a regular expression of RE2: (?!G is not supported",
            "match: [{method: {regex: \"GET|PUT\"}}]",
        ),
        (
            "match: [{authority: {regex: \"\"}}]",
            "spec.http[0].match[0].authority.regex: a regular expression must not be empty",
            "match: [{authority: {exact: \"\"}}]",
        ),
        (
            "match: [{scheme: {prefix: \"\"}}]",
            "spec.http[0].match[0].scheme.prefix: a prefix must not be empty",
            "match: [{scheme: {prefix: http}}]",
        ),
        (
            "match: [{headers: {x-a: {regex: \"[\"}}}]",
            "spec.http[0].match[0].headers[x-a].regex: \"[\" is not a regular expression of RE2: missing closing ]",
            "match: [{headers: {x-a: {regex: \"*\"}, x-b: {}}}]",
        ),
        (
            "match: [{headers: {\"x a\": {exact: b}}}]",
            "spec.http[0].match[0].headers[x a]: \"x a\" is not the name of a header",
            "match: [{headers: {x-a: {exact: b}}}]",
        ),
        (
            "match: [{headers: {\":status\": {exact: b}}}]",
            "spec.http[0].match[0].headers[:status]: \":status\" is not the name of a header",
            "match: [{authority: {exact: b}}]",
        ),
        (
            "match: [{withoutHeaders: {x-a: {regex: \"+\"}}}]",
            "spec.http[0].match[0].withoutHeaders[x-a].regex: \"+\" is not a regular expression of RE2: nothing is before \
             the repetition +",
            "match: [{withoutHeaders: {x-a: {}}}]",
        ),
        (
            "match: [{queryParams: {q: {regex: \"a{2,1}\"}}}]",
            "spec.http[0].match[0].queryParams[q].regex: \"a{2,1}\" is not a regular expression of RE2: a repetition must be \
             {least,most} with at most 1000",
            "match: [{queryParams: {q: {regex: \"a{1,2}\"}}}]",
        ),
        (
            "match: [{headers: {\"@request.auth.claims.sub\": {exact: b}}}]",
            "spec.http[0].match[0].headers[@request.auth.claims.sub]: a route by the claims of a token is for gateways only",
            "match: [{headers: {sub: {exact: b}}}]",
        ),
        (
            "match: [{port: 65536}]",
            "spec.http[0].match[0].port: 65536 is not a port, must be 1 to 65535",
            "match: [{port: 80}]",
        ),
        (
            "match: [{sourceNamespace: a_b}]",
            "spec.http[0].match[0].sourceNamespace: \"a_b\" is not a namespace",
            "match: [{sourceNamespace: a-b}]",
        ),
        (
            "match: [{sourceLabels: {\"a b\": c}}]",
            "spec.http[0].match[0].sourceLabels[a b]: \"a b\" is not the key of a label",
            "match: [{sourceLabels: {example.com/a: c.d}}]",
        ),
        (
            "match: [{sourceLabels: {a: \"b c\"}}]",
            "spec.http[0].match[0].sourceLabels[a]: \"b c\" is not the value of a label",
            "match: [{sourceLabels: {a: \"\"}}]",
        ),
        (
            "match: [{gateways: [/gw]}]",
            "spec.http[0].match[0].gateways[0]: \"\" is not the namespace of a gateway",
            "match: [{gateways: [mesh, shop/gw]}]",
        ),
    ]);
    let long = "a".repeat(1_025);
    check_routes(&[(
        &format!("match: [{{uri: {{regex: {long}}}}}]"),
        "spec.http[0].match[0].uri.regex: a regular expression has at most 1024 characters",
        &format!("match: [{{uri: {{regex: {}}}}}]", &long[1..]),
    )]);
    check_specs(&[(
        "hosts: [a], gateways: [gw, mesh], http: [{match: [{headers: {\"@request.auth.claims[sub]\": {exact: b}}}], \
         route: [{destination: {host: b}}]}]",
        "spec.http[0].match[0].headers[@request.auth.claims[sub]]: a route by the claims of a token is for gateways only",
        "hosts: [a], gateways: [gw], http: [{match: [{headers: {\"@request.auth.claims[sub]\": {exact: b}}}], route: \
         [{destination: {host: b}}]}]",
    )]);
}

#[test]
fn headers() {
    check_routes(&[
        (
            "headers: {request: {set: {\"\": b}}}",
            "spec.http[0].headers.request.set[]: the name of a header is empty",
            "headers: {request: {set: {x: b}}}",
        ),
        (
            "headers: {request: {add: {x: \"50%\"}}}",
            "spec.http[0].headers.request.add[x]: \"50%\" is not a header value: write %% for a percent sign",
            "headers: {request: {add: {x: \"50%%\"}}}",
        ),
        (
            "headers: {response: {set: {x: \"%REQ(a\"}}}",
            "spec.http[0].headers.response.set[x]: \"%REQ(a\" is not a header value: a %VARIABLE(...)% is not closed",
            "headers: {response: {set: {x: \"%REQ(a)%\"}}}",
        ),
        (
            "headers: {response: {set: {x: \"a\\x01\"}}}",
            "spec.http[0].headers.response.set[x]: a header value has no control characters",
            "headers: {response: {set: {x: \"a\\tb\"}}}",
        ),
        (
            "headers: {response: {set: {Host: b}}}",
            "warning: spec.http[0].headers.response.set[Host]: has no effect, the host can only be set, and on requests only",
            "headers: {request: {set: {Host: b}}}",
        ),
        (
            "headers: {request: {remove: [\":path\"]}}",
            "warning: spec.http[0].headers.request.remove[0]: has no effect, \":path\" is a pseudo header",
            "headers: {request: {remove: [x-path]}}",
        ),
        (
            "rewrite: {authority: x}, headers: {request: {set: {\":authority\": y}}}",
            "warning: spec.http[0]: the host is changed more than once, by rewrite.authority or by headers",
            "headers: {request: {set: {\":authority\": y}}}",
        ),
    ]);
    check(
        |fields| {
            let route = format!("hosts: [a], http: [{{route: [{{destination: {{host: b}}, {fields}}}]}}]");
            spec_of(API, "VirtualService")(&route)
        },
        &[(
            "headers: {request: {set: {x: \"%\"}}}",
            "spec.http[0].route[0].headers.request.set[x]: \"%\" is not a header value: write %% for a percent sign",
            "headers: {request: {set: {x: \"%%\"}}}",
        )],
    );
}

#[test]
fn redirects_rewrites_and_direct_responses() {
    let of = |fields: &str| spec_of(API, "VirtualService")(&format!("hosts: [a], http: [{{{fields}}}]"));
    check(
        of,
        &[
            (
                "redirect: {redirectCode: 302}",
                "warning: spec.http[0].redirect: changes nothing, set one of uri, prefixRewrite, authority, scheme, port and derivePort",
                "redirect: {redirectCode: 302, derivePort: FROM_REQUEST_PORT}",
            ),
            (
                "redirect: {uri: /, redirectCode: 200}",
                "spec.http[0].redirect.redirectCode: 200 is not the status of a redirect, 300 to 399",
                "redirect: {uri: /, redirectCode: 308}",
            ),
            (
                "redirect: {scheme: ftp}",
                "spec.http[0].redirect.scheme: \"ftp\" is not http or https",
                "redirect: {scheme: https}",
            ),
            (
                "redirect: {port: 70000}",
                "spec.http[0].redirect.port: 70000 is not a port, must be 1 to 65535",
                "redirect: {port: 8080}",
            ),
            (
                "redirect: {port: 80, derivePort: FROM_REQUEST_PORT}",
                "spec.http[0].redirect: only one of port, derivePort may be set",
                "redirect: {port: 80}",
            ),
            (
                "directResponse: {status: 600}",
                "spec.http[0].directResponse.status: 600 is not the status of an answer, 200 to 599",
                "directResponse: {status: 599}",
            ),
            (
                "directResponse: {status: 200, body: {string: a, bytes: YQ==}}",
                "spec.http[0].directResponse.body: only one of string, bytes may be set",
                "directResponse: {status: 200, body: {bytes: YQ==}}",
            ),
        ],
    );
    let body =
        |size: usize| format!("directResponse: {{status: 200, body: {{string: {}}}}}", "a".repeat(size));
    check(
        of,
        &[
            (
                &body((1 << 20) + 1),
                "spec.http[0].directResponse.body: has 1024 KB, at most 1024 are allowed",
                &body(100 << 10),
            ),
            (
                &body(200 << 10),
                "warning: spec.http[0].directResponse.body: has 200 KB, which every proxy with this route holds",
                &body(1),
            ),
        ],
    );
    check_routes(&[
        (
            "rewrite: {uri: /, uriRegexRewrite: {match: a, rewrite: b}}",
            "warning: spec.http[0].rewrite.uri: has no effect beside uriRegexRewrite",
            "rewrite: {uriRegexRewrite: {match: a, rewrite: b}}",
        ),
        (
            "rewrite: {}",
            "warning: spec.http[0].rewrite: changes nothing, set one of uri, authority and uriRegexRewrite",
            "rewrite: {authority: x}",
        ),
        (
            "rewrite: {uriRegexRewrite: {match: \"(\", rewrite: b}}",
            "spec.http[0].rewrite.uriRegexRewrite.match: \"(\" is not a regular expression of RE2: missing closing )",
            "rewrite: {uriRegexRewrite: {match: \"()\", rewrite: b}}",
        ),
        (
            "rewrite: {uriRegexRewrite: {match: a}}",
            "warning: spec.http[0].rewrite.uriRegexRewrite.rewrite: is not set, so what matches is removed",
            "rewrite: {uriRegexRewrite: {match: a, rewrite: b}}",
        ),
    ]);
}

#[test]
fn times_retries_mirrors_and_cors() {
    check_routes(&[
        ("timeout: 0s", "spec.http[0].timeout: must be at least 1ms", "timeout: 1ms"),
        (
            "timeout: 1.0005s",
            "warning: spec.http[0].timeout: has parts of a millisecond, finer than Istio supports",
            "timeout: 1.5s",
        ),
        (
            "retries: {attempts: -1}",
            "spec.http[0].retries.attempts: -1 is negative",
            "retries: {attempts: 0}",
        ),
        (
            "retries: {attempts: 0, retryOn: 5xx}",
            "warning: spec.http[0].retries.attempts: is 0, so nothing is retried and other settings have no effect",
            "retries: {attempts: 2, retryOn: \"5xx, reset,503\"}",
        ),
        (
            "retries: {attempts: 1, retryOn: \"5xx,conect-failure\"}",
            "warning: spec.http[0].retries.retryOn: \"conect-failure\" is not a condition that Envoy retries on (did you \
             mean \"connect-failure\"?)",
            "retries: {attempts: 1, retryOn: \"5xx,connect-failure\"}",
        ),
        (
            "retries: {attempts: 1, perTryTimeout: 0s}",
            "spec.http[0].retries.perTryTimeout: must be at least 1ms",
            "retries: {attempts: 1, perTryTimeout: 1s}",
        ),
        (
            "retries: {attempts: 1, backoff: 0s}",
            "spec.http[0].retries.backoff: must be at least 1ms",
            "retries: {attempts: 1, backoff: 25ms}",
        ),
        (
            "mirror: {host: c}, mirrors: [{destination: {host: d}}]",
            "warning: spec.http[0].mirror: has no effect beside mirrors",
            "mirrors: [{destination: {host: d}}]",
        ),
        ("mirrors: [{}]", "spec.http[0].mirrors[0].destination: must be set", "mirror: {host: c}"),
        (
            "mirrors: [{destination: {host: d}, percentage: {value: 101}}]",
            "spec.http[0].mirrors[0].percentage.value: 101 is not a percentage, must be 0 to 100",
            "mirrors: [{destination: {host: d}, percentage: {value: 100}}]",
        ),
        (
            "mirror: {host: c}, mirrorPercentage: {value: -1}",
            "spec.http[0].mirrorPercentage.value: -1 is not a percentage, must be 0 to 100",
            "mirror: {host: c}, mirrorPercentage: {value: 1}",
        ),
        (
            "mirror: {host: c}, mirrorPercent: 5",
            "warning: spec.http[0].mirrorPercent: is deprecated, use mirrorPercentage",
            "mirror: {host: c}, mirrorPercentage: {value: 5}",
        ),
        (
            "corsPolicy: {allowOrigins: [{}]}",
            "spec.http[0].corsPolicy.allowOrigins[0]: one of exact, prefix and regex must be set",
            "corsPolicy: {allowOrigins: [{exact: a}]}",
        ),
        (
            "corsPolicy: {allowOrigins: [{exact: \"\"}]}",
            "spec.http[0].corsPolicy.allowOrigins[0]: an origin must not be empty",
            "corsPolicy: {allowOrigins: [{prefix: a}]}",
        ),
        (
            "corsPolicy: {allowOrigins: [{regex: \"*\"}]}",
            "spec.http[0].corsPolicy.allowOrigins[0].regex: \"*\" is not a regular expression of RE2: nothing is before the \
             repetition *",
            "corsPolicy: {allowOrigins: [{regex: \".*\"}]}",
        ),
        (
            "corsPolicy: {allowMethods: [get]}",
            "warning: spec.http[0].corsPolicy.allowMethods[0]: \"get\" is not a method of HTTP, GET, HEAD, POST, PUT, PATCH, \
             DELETE, CONNECT, OPTIONS, TRACE",
            "corsPolicy: {allowMethods: [GET, \"*\"]}",
        ),
        (
            "corsPolicy: {exposeHeaders: [\"a b\"]}",
            "spec.http[0].corsPolicy.exposeHeaders[0]: \"a b\" is not the name of a header",
            "corsPolicy: {exposeHeaders: [\"*\", a-b]}",
        ),
        (
            "corsPolicy: {maxAge: 1.5s}",
            "warning: spec.http[0].corsPolicy.maxAge: has parts of a second, browsers count whole seconds",
            "corsPolicy: {maxAge: 2s}",
        ),
    ]);
}

#[test]
fn faults() {
    check_routes(&[
        (
            "fault: {}",
            "warning: spec.http[0].fault: is empty, set one of abort and delay",
            "fault: {delay: {fixedDelay: 1s}}",
        ),
        (
            "fault: {delay: {fixedDelay: 0s}}",
            "spec.http[0].fault.delay.fixedDelay: must be at least 1ms",
            "fault: {delay: {fixedDelay: 1ms}}",
        ),
        (
            "fault: {delay: {exponentialDelay: 1s}}",
            "warning: spec.http[0].fault.delay.exponentialDelay: is not supported, it has no effect",
            "fault: {delay: {fixedDelay: 1s}}",
        ),
        (
            "fault: {delay: {fixedDelay: 1s, percentage: {value: 0.00001}}}",
            "spec.http[0].fault.delay.percentage.value: 0.00001 is not 0 and below 0.0001, the smallest percentage",
            "fault: {delay: {fixedDelay: 1s, percentage: {value: 0.0001}}}",
        ),
        (
            "fault: {delay: {fixedDelay: 1s, percent: 101}}",
            "spec.http[0].fault.delay.percent: 101 is not a percentage, must be 0 to 100",
            "fault: {delay: {fixedDelay: 1s, percent: 100}}",
        ),
        (
            "fault: {abort: {percentage: {value: 1}}}",
            "warning: spec.http[0].fault.abort: has neither httpStatus nor grpcStatus, so nothing is aborted",
            "fault: {abort: {httpStatus: 500}}",
        ),
        (
            "fault: {abort: {httpStatus: 100}}",
            "spec.http[0].fault.abort.httpStatus: 100 is not the status of an answer, 200 to 599",
            "fault: {abort: {httpStatus: 200}}",
        ),
        (
            "fault: {abort: {grpcStatus: UNAVAILABEL}}",
            "spec.http[0].fault.abort.grpcStatus: \"UNAVAILABEL\" is not a status of gRPC (did you mean \"UNAVAILABLE\"?)",
            "fault: {abort: {grpcStatus: UNAVAILABLE}}",
        ),
        (
            "fault: {abort: {httpStatus: 500, grpcStatus: OK}}",
            "spec.http[0].fault.abort: only one of httpStatus, grpcStatus may be set",
            "fault: {abort: {grpcStatus: OK}}",
        ),
        (
            "fault: {abort: {http2Error: x}}",
            "warning: spec.http[0].fault.abort.http2Error: is not supported, it has no effect",
            "fault: {abort: {httpStatus: 500}}",
        ),
    ]);
}
