use super::*;

/// Both tables are what Envoy 1.40 says to the filter of an access log.
#[test]
fn what_envoy_takes_is_taken() {
    for expression in [
        "response.code >= 400 && request.method == 'GET'",
        "has(request.auth)",
        "type(1) == int",
        "bytes(\"a\") == b\"a\"",
        "timestamp(\"2020-01-01T00:00:00Z\") < request.time",
        "duration(\"1s\") < request.duration",
        "\"a\" + \"b\" == \"ab\"",
        "size(\"a\") == 1",
        "\"a\".size() == 1",
        "request.path.contains(\"a\")",
        "contains(request.path, \"a\")",
        "matches(request.path, \"a\")",
        "foo.bar == 1",
        "request.time.getHours(\"UTC\") > 1",
        "int(\"1\") == 1",
        "uint(1) == 1u",
        "double(1) > 0.5",
        "bool(\"true\")",
        "dyn(1) == 1",
        "a ? b : c",
        "{\"a\": 1}.a == 1",
        "[1,2,]",
        "request.headers[\"a\"]",
        "!-1",
        "- -1 == 1",
        "r\"\\q\"",
        "'''a\nb'''",
        "1 in [1,2]",
        "1",
        "0x1F",
        "1.5e3",
        ".5 < 1",
        "1 // c",
        "google.protobuf.Int64Value{value: 1}",
        "(\"a\")",
        "a.`b`",
        "a == b == c",
        "!!true",
        "re.extract(a,b,c)",
        "null",
    ] {
        assert_eq!(refusal(expression), None, "{expression}");
    }
}

#[test]
fn what_envoy_refuses_is_refused() {
    let nested = format!("{}1{}", "(".repeat(34), ")".repeat(34));
    for (expression, part) in [
        ("response.code >", "missing at the end"),
        ("no_such_thing(1)", "no function no_such_thing() of 1"),
        ("string(response.code) == \"200\"", "no function string()"),
        ("[1].all(x, x > 0)", "does not allow"),
        ("x.exists(y, y == 1)", "does not allow"),
        ("[1].map(x, x)", "does not allow"),
        ("request.path.matches(\"(\")", "no regular expression"),
        ("request.path.startsWith(\"a\", \"b\")", "of 3 arguments"),
        ("request.path.matches(\"a\", \"b\")", "of 3 arguments"),
        ("request.time.getFullYear(1,2)", "of 3 arguments"),
        ("\"\\q\"", "escape"),
        ("x.lowerAscii() == \"a\"", "lowerAscii"),
        ("cel.bind(a, 1, a)", "bind"),
        ("a.b.c(1)", "no function c()"),
        ("math.least(1,2)", "least"),
        ("size(1,2)", "size"),
        ("has(a)", "has()"),
        ("", "missing"),
        ("// c", "missing"),
        ("true && ", "missing"),
        ("while", "reserved"),
        ("as", "reserved"),
        ("99999999999999999999", "too large"),
        ("a[?0]", "expected a value"),
        ("a.?b", "expected a name"),
        ("a.in", "a name is missing"),
        ("foo.Bar{}", "no message"),
        ("&&", "expected a value"),
        ("a b", "not expected"),
        ("\"a\" \"b\"", "not expected"),
        ("`a`", "expected a value"),
        ("x ? y", "expected \":\""),
        ("\"a", "not closed"),
        ("a # b", "'#'"),
        (nested.as_str(), "32"),
    ] {
        let why = refusal(expression).unwrap_or_default();
        assert!(why.contains(part), "{expression}: {why:?}");
    }
}

#[test]
fn no_text_makes_it_panic() {
    for text in
        ["'\\", "'\\x", "\"\"\"", "r'", "0x", "1e", "1.", "\u{1F600}", "'\\u12'", "a.", "((", "{", "[", "`"]
    {
        refusal(text);
    }
    assert!(refusal(&"-".repeat(100_000)).is_some());
    assert!(refusal(&"(".repeat(100_000)).is_some());
}
