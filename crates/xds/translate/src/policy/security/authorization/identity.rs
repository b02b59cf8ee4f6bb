//! Identities of clients: SPIFFE URIs of their certificates. Texts of policies mean themselves in
//! expressions: a dot is a dot.

use super::matchers::{any_text, exact, prefix, regex};
use pilotfish_proto::envoy::r#type::matcher::v3::StringMatcher;

/// Scheme of identities in certificates (SPIFFE).
const SCHEME: &str = "spiffe://";

/// Identities of a namespace; `*` stands for any text.
pub(super) fn namespace(written: &str) -> StringMatcher {
    let name = written.split('*').map(quoted).collect::<Vec<_>>().join(".*");
    regex(format!(".*/ns/{name}/.*"))
}

/// Identities of a service account, by its namespace and name.
pub(super) fn service_account(namespace: &str, name: &str) -> StringMatcher {
    let (namespace, name) = (quoted(namespace), quoted(name));
    regex(format!("{SCHEME}.+/ns/{namespace}/(.+/|)sa/{name}(/.+)?"))
}

/// An identity without its scheme, with a `*` at one end; `*` is any.
pub(super) fn principal(written: &str) -> StringMatcher {
    match (written.strip_prefix('*'), written.strip_suffix('*')) {
        _ if written == "*" => any_text(),
        (Some(end), _) => regex(format!("{SCHEME}.*{}", quoted(end))),
        (_, Some(beginning)) => prefix(&format!("{SCHEME}{beginning}")),
        _ => exact(format!("{SCHEME}{written}")),
    }
}

/// Identities of a trust domain, which may have a `*` at one end.
pub(super) fn trust_domain(written: &str) -> StringMatcher {
    match written {
        "*" => prefix(SCHEME),
        _ if written.contains('*') => {
            let domain = written.split('*').map(quoted).collect::<Vec<_>>().join("[^/]*");
            regex(format!("{SCHEME}{domain}/.*"))
        }
        _ => prefix(&format!("{SCHEME}{written}/")),
    }
}

/// A text as part of an expression. As istiod's Go does it, `-` and `/` stay as they are.
fn quoted(text: &str) -> String {
    const SPECIAL: &[char] = &['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'];
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

    fn text(matcher: StringMatcher) -> String {
        match matcher.match_pattern {
            Some(MatchPattern::SafeRegex(regex)) => regex.regex,
            Some(MatchPattern::Prefix(prefix)) => format!("prefix {prefix}"),
            Some(MatchPattern::Exact(exact)) => format!("exact {exact}"),
            other => format!("{other:?}"),
        }
    }

    /// Rule 14 of Istio 1.31.
    #[test]
    fn names_are_literal_but_for_their_stars() {
        for (written, expected) in [
            ("front", ".*/ns/front/.*"),
            ("team-*", ".*/ns/team-.*/.*"),
            ("*", ".*/ns/.*/.*"),
            ("eu.north", r".*/ns/eu\.north/.*"),
            ("[ab]*", r".*/ns/\[ab\].*/.*"),
            ("a(", r".*/ns/a\(/.*"),
        ] {
            assert_eq!(text(namespace(written)), expected);
        }
        assert_eq!(text(service_account("prod", "app.v1")), r"spiffe://.+/ns/prod/(.+/|)sa/app\.v1(/.+)?");
        assert_eq!(text(service_account("a+", "b*")), r"spiffe://.+/ns/a\+/(.+/|)sa/b\*(/.+)?");
        assert_eq!(text(principal("*/sa/app.v1")), r"spiffe://.*/sa/app\.v1");
        assert_eq!(text(principal("td/ns/a/sa/b.c")), "exact spiffe://td/ns/a/sa/b.c");
        assert_eq!(text(principal("td/ns/*")), "prefix spiffe://td/ns/");
    }

    /// Rule 30 of Istio 1.31.
    #[test]
    fn trust_domains_end_with_the_first_slash() {
        for (written, expected) in [
            ("*", "prefix spiffe://"),
            ("td.example", "prefix spiffe://td.example/"),
            ("*.example", r"spiffe://[^/]*\.example/.*"),
            ("td-*", "spiffe://td-[^/]*/.*"),
        ] {
            assert_eq!(text(trust_domain(written)), expected);
        }
    }
}
