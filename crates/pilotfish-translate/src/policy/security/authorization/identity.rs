//! Identities of clients: SPIFFE URIs of their certificates, matched by regular expressions.
//!
//! istiod puts the texts of policies into the expressions as they stand, so that `app.v1` stands for `app-v1` as well. Here they
//! mean what they say, and the expressions are istiod's wherever that is the same.

use super::condition::Untestable;
use super::matchers::{any_text, exact, prefix, regex};
use pilotfish_config::is_regex;
use pilotfish_proto::envoy::r#type::matcher::v3::StringMatcher;

/// What a match leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// More is let through.
    Admits,
    /// Less is.
    Excludes,
}

/// How certificates write identities.
const SCHEME: &str = "spiffe://";

/// What makes an expression of a text.
const SPECIAL: &[char] = &['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'];

/// Identities of a namespace; `*` stands for any text.
pub(super) fn namespace(written: &str, leads_to: Match) -> Result<StringMatcher, Untestable> {
    let name = written.split('*').map(|part| quoted(part, "", leads_to)).collect::<Vec<_>>().join(".*");
    whole(format!(".*/ns/{name}/.*"))
}

/// Identities of a service account, by its namespace and name.
pub(super) fn service_account(
    namespace: &str,
    name: &str,
    leads_to: Match,
) -> Result<StringMatcher, Untestable> {
    let (namespace, name) = (quoted(namespace, "", leads_to), quoted(name, ".", leads_to));
    whole(format!("{SCHEME}.+/ns/{namespace}/(.+/|)sa/{name}(/.+)?"))
}

/// An identity without its scheme, with a `*` at one end; `*` is any.
pub(super) fn principal(written: &str, leads_to: Match) -> Result<StringMatcher, Untestable> {
    match (written.strip_prefix('*'), written.strip_suffix('*')) {
        _ if written == "*" => Ok(any_text()),
        (Some(end), _) => whole(format!("{SCHEME}.*{}", quoted(end, ".", leads_to))),
        (_, Some(beginning)) => Ok(prefix(&format!("{SCHEME}{beginning}"))),
        _ => Ok(exact(format!("{SCHEME}{written}"))),
    }
}

/// A text as part of an expression. `plain` are the special characters that a name may have: with others there is nothing of that
/// name, so what is excluded may be what istiod excludes.
fn quoted(text: &str, plain: &str, leads_to: Match) -> String {
    let names_nothing = text.contains(|c: char| SPECIAL.contains(&c) && !plain.contains(c));
    if names_nothing && leads_to == Match::Excludes {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Envoy refuses a listener as a whole for a text that is no expression.
fn whole(expression: String) -> Result<StringMatcher, Untestable> {
    if is_regex(&expression) { Ok(regex(expression)) } else { Err(Untestable) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

    fn expression(matcher: Result<StringMatcher, Untestable>) -> String {
        match matcher.map(|matcher| matcher.match_pattern) {
            Ok(Some(MatchPattern::SafeRegex(regex))) => regex.regex,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn texts_that_admit_mean_what_they_say() {
        let table = [
            ("front", ".*/ns/front/.*", ".*/ns/front/.*"),
            ("team-*", ".*/ns/team-.*/.*", ".*/ns/team-.*/.*"),
            ("*", ".*/ns/.*/.*", ".*/ns/.*/.*"),
            // No namespace is called so: what is excluded may be as in istiod.
            ("eu.north", r".*/ns/eu\.north/.*", ".*/ns/eu.north/.*"),
            ("[ab]*", r".*/ns/\[ab\].*/.*", ".*/ns/[ab].*/.*"),
            // No expression: the condition as a whole cannot be tested.
            ("a(", r".*/ns/a\(/.*", "Err(Untestable)"),
        ];
        for (written, admits, excludes) in table {
            assert_eq!(expression(namespace(written, Match::Admits)), admits);
            assert_eq!(expression(namespace(written, Match::Excludes)), excludes);
        }
    }

    #[test]
    fn a_dot_is_a_dot() {
        for leads_to in [Match::Admits, Match::Excludes] {
            let account = service_account("prod", "app.v1", leads_to);
            assert_eq!(expression(account), r"spiffe://.+/ns/prod/(.+/|)sa/app\.v1(/.+)?");
            assert_eq!(expression(principal("*/sa/app.v1", leads_to)), r"spiffe://.*/sa/app\.v1");
        }
        let exactly = Some(MatchPattern::Exact("spiffe://td/ns/a/sa/b.c".to_owned()));
        assert_eq!(principal("td/ns/a/sa/b.c", Match::Admits).unwrap().match_pattern, exactly);
    }
}
