use super::*;
use crate::why::{Request, Way};
use serde_json::json;

fn way() -> Way {
    let headers = ["x-user=tester".to_owned(), "x-forwarded-for=1.2.3.4".to_owned()];
    let request = Request::parse("web:8080", "/admin/users?x=1", "GET", &headers).unwrap();
    Way { request, port: 8_080, unsure: ["x-changed".to_owned()].into(), ..Way::default() }
}

fn arrival(way: &Way) -> Arrival<'_> {
    Arrival {
        request: Some(way),
        identity: Ok(Some("spiffe://cluster.local/ns/shop/sa/client".to_owned())),
        source: Ok("10.0.0.9".parse().unwrap()),
        remote: Err("the address of the client"),
        destination: Ok("10.0.0.1".parse().unwrap()),
        port: 8_080,
        server_name: Ok("outbound_.80_._.web".to_owned()),
        token: Token::Absent,
    }
}

/// `+` where it holds, `-` where it does not, and what it depends on.
fn of(rule: &Value, arrival: &Arrival<'_>) -> String {
    match eval(rule, arrival, false) {
        Truth::Yes => "+".to_owned(),
        truth @ Truth::No(_) => format!("- {}", truth.reason()),
        Truth::Depends(on) => format!("? {on}"),
    }
}

fn check(cases: &[(Value, &str)], arrival: &Arrival<'_>) {
    for (rule, want) in cases {
        assert_eq!(of(rule, arrival), *want, "{rule}");
        // The opposite holds where it does not, and depends on the same.
        let not = of(&json!({"not_rule": rule}), arrival);
        let sign = |text: &str| text.chars().next().unwrap();
        let opposite = match sign(want) {
            '+' => '-',
            '-' => '+',
            other => other,
        };
        assert_eq!(sign(&not), opposite, "not {rule}: {not}");
    }
}

#[test]
fn conditions_on_requests_hold_as_in_envoy() {
    let way = way();
    check(
        &[
            (json!({"any": true}), "+"),
            (json!({"header": {"name": ":method", "string_match": {"exact": "GET"}}}), "+"),
            (
                json!({"header": {"name": ":method", "string_match": {"exact": "POST"}}}),
                "- the method is \"GET\", and it wants exact \"POST\"",
            ),
            (
                json!({"header": {"name": ":authority", "string_match": {"exact": "WEB:8080", "ignore_case": true}}}),
                "+",
            ),
            (
                json!({"header": {"name": ":authority", "string_match": {"exact": "web"}}}),
                "- the host is \"web:8080\", and it wants exact \"web\"",
            ),
            (json!({"header": {"name": "X-User", "string_match": {"prefix": "te"}}}), "+"),
            (json!({"header": {"name": "x-user", "present_match": true}}), "+"),
            (
                json!({"header": {"name": "x-none", "present_match": true}}),
                "- header x-none is missing, and it wants anything",
            ),
            (
                json!({"header": {"name": "x-changed", "present_match": true}}),
                "? a header that the route changes",
            ),
            (
                json!({"header": {"name": "x-request-id", "present_match": true}}),
                "? a header that proxies set",
            ),
            (json!({"url_path": {"path": {"exact": "/admin/users"}}}), "+"),
            (json!({"url_path": {"path": {"prefix": "/admin"}}}), "+"),
            (
                json!({"url_path": {"path": {"exact": "/admin"}}}),
                "- the path is \"/admin/users\", and it wants exact \"/admin\"",
            ),
            (json!({"uri_template": {"typed_config": {"path_template": "/admin/*"}}}), "+"),
            (json!({"uri_template": {"typed_config": {"path_template": "/**/users"}}}), "+"),
            (
                json!({"uri_template": {"typed_config": {"path_template": "/*"}}}),
                "- the path is \"/admin/users\", and it wants /*",
            ),
        ],
        &arrival(&way),
    );
}

#[test]
fn conditions_on_connections_hold_as_in_envoy() {
    let way = way();
    check(
        &[
            (json!({"destination_port": 8080}), "+"),
            (json!({"destination_port": 80}), "- the port is 8080, and it wants 80"),
            (json!({"destination_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}), "+"),
            (json!({"direct_remote_ip": {"address_prefix": "10.0.0.9", "prefix_len": 32}}), "+"),
            (
                json!({"direct_remote_ip": {"address_prefix": "10.1.0.0", "prefix_len": 16}}),
                "- the connection's client is 10.0.0.9, and it wants 10.1.0.0/16",
            ),
            (
                json!({"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}),
                "? the address of the client",
            ),
            (json!({"authenticated": {}}), "+"),
            (json!({"authenticated": {"principal_name": {"safe_regex": {"regex": ".*/ns/shop/.*"}}}}), "+"),
            (
                json!({"authenticated": {"principal_name": {"exact": "spiffe://cluster.local/ns/a/sa/b"}}}),
                "- the client is spiffe://cluster.local/ns/shop/sa/client, and it wants identity exact \"spiffe://cluster.local/ns/a/sa/b\"",
            ),
            (json!({"requested_server_name": {"prefix": "outbound_"}}), "+"),
            (
                json!({"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": [{"key": "payload"}, {"key": "iss"}]}}),
                "- the request has no token, and it wants the claim iss",
            ),
            (
                json!({"metadata": {"filter": "envoy.filters.http.wasm"}}),
                "? what Envoy finds out while it handles the request",
            ),
            (json!({"filter_state": {}}), "? what Envoy finds out while it handles the request"),
        ],
        &arrival(&way),
    );
    let plain = Arrival { identity: Ok(None), token: Token::Perhaps, ..arrival(&way) };
    check(
        &[
            (
                json!({"authenticated": {}}),
                "- the connection has no identity (it is not mutual TLS), and it wants any identity",
            ),
            (json!({"metadata": {"filter": "envoy.filters.http.jwt_authn"}}), "? the token of the request"),
        ],
        &plain,
    );
    // A stream of bytes has no path.
    let stream = Arrival { request: None, ..arrival(&way) };
    check(
        &[(
            json!({"url_path": {"path": {"prefix": "/"}}}),
            "- it is no HTTP, and it wants the path prefix \"/\"",
        )],
        &stream,
    );
}

#[test]
fn paths_that_proxies_normalise_or_routes_rewrite_are_not_judged() {
    for (path, is_judged) in [
        ("/a", true),
        ("/a.b/..c", true),
        ("/a//b", false),
        ("/a/../b", false),
        ("/a%2fb", false),
        ("/a\\b", false),
    ] {
        let request = Request::parse("web", path, "GET", &[]).unwrap();
        let way = Way { request, ..Way::default() };
        let rule = json!({"url_path": {"path": {"prefix": "/"}}});
        assert_eq!(eval(&rule, &arrival(&way), false) == Truth::Yes, is_judged, "{path}");
    }
    let rewritten = Way { unsure: [":path".to_owned()].into(), ..way() };
    let rule = json!({"url_path": {"path": {"prefix": "/"}}});
    assert_eq!(of(&rule, &arrival(&rewritten)), "? the path, which the route rewrites");
}

#[test]
fn what_is_certain_decides_and_the_rest_depends() {
    let way = way();
    let (yes, no, perhaps) =
        (json!({"any": true}), json!({"destination_port": 1}), json!({"filter_state": {}}));
    let and = |a: &Value, b: &Value| json!({"and_rules": {"rules": [a, b]}});
    let or = |a: &Value, b: &Value| json!({"or_ids": {"ids": [a, b]}});
    let sign = |rule: Value| of(&rule, &arrival(&way)).chars().next().unwrap();
    for (a, b, both, one) in [
        (&yes, &yes, '+', '+'),
        (&yes, &no, '-', '+'),
        (&no, &no, '-', '-'),
        (&yes, &perhaps, '?', '+'),
        (&perhaps, &no, '-', '?'),
        (&perhaps, &perhaps, '?', '?'),
    ] {
        assert_eq!((sign(and(a, b)), sign(or(a, b))), (both, one), "{a} {b}");
        let not = |rule: Value| sign(json!({"not_id": rule}));
        let opposite = |sign: char| match sign {
            '+' => '-',
            '-' => '+',
            other => other,
        };
        assert_eq!((not(and(a, b)), not(or(a, b))), (opposite(both), opposite(one)), "not {a} {b}");
    }
    // Nothing of nothing is all, and none of it is one.
    assert_eq!(sign(json!({"and_rules": {}})), '+');
    assert_eq!(sign(json!({"or_rules": {}})), '-');
}

#[test]
fn alternatives_about_one_fact_are_told_together() {
    let way = way();
    let path = |path: &str| json!({"url_path": {"path": {"exact": path}}});
    let rule = json!({"or_rules": {"rules": [path("/a"), path("/b"), {"destination_port": 1}]}});
    assert_eq!(
        of(&rule, &arrival(&way)),
        "- the path is \"/admin/users\", and it wants exact \"/a\" or exact \"/b\"; the port is 8080, and it wants 1"
    );
    let all = json!({"permissions": [{"any": true}], "principals": [{"any": true}], "condition": {}});
    assert_eq!(policy(&all, &arrival(&way)), Truth::Depends("its expression".to_owned()));
    let never =
        json!({"permissions": [{"not_rule": {"any": true}}], "principals": [{"not_id": {"any": true}}]});
    assert_eq!(policy(&never, &arrival(&way)).reason(), "it has no rules");
}
