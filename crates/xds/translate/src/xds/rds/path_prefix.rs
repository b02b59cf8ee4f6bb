//! Replacing the matched prefix of a path, as routes of the Gateway API do (`ReplacePrefixMatch`): joining
//! the new prefix with the rest of the path neither loses nor doubles a slash.

use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};

/// Fields of a route action that replace a prefix.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathReplacement {
    /// Value of `prefix_rewrite`, which replaces the matched prefix.
    Prefix(String),
    /// Value of `regex_rewrite`, for joins that a plain prefix cannot express.
    Regex(RegexMatchAndSubstitute),
}

impl PathReplacement {
    /// Replaces the prefix that `matched` names by `replacement`. Slashes at the end of the replacement are
    /// ignored, so an empty one removes the prefix.
    pub(super) fn new(matched: Option<&PathSpecifier>, replacement: &str) -> Self {
        let matched = match matched {
            Some(PathSpecifier::PathSeparatedPrefix(prefix)) => prefix.as_str(),
            _ => "",
        };
        match replacement.trim_end_matches('/') {
            // Without the prefix, the path must neither be empty nor begin with two slashes.
            "" => Self::Regex(regex(format!("^{}(/?)(.*)", quote(matched)), "/\\2".to_owned())),
            // Envoy replaces the slash of `/`, and the rest of the path has no other.
            new if matched.is_empty() => Self::Prefix(format!("{new}/")),
            new => Self::Prefix(new.to_owned()),
        }
    }
}

/// A rewrite by regular expression.
pub(super) fn regex(regex: String, substitution: String) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute { pattern: Some(RegexMatcher { regex, ..Default::default() }), substitution }
}

/// The text as a regular expression that matches it alone.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path that Envoy makes of `path`, if the route matches it.
    fn rewritten(matched: &str, replacement: &str, path: &str) -> Option<String> {
        let specifier = match matched {
            "/" => PathSpecifier::Prefix("/".to_owned()),
            prefix => PathSpecifier::PathSeparatedPrefix(prefix.to_owned()),
        };
        let rest = path.strip_prefix(matched)?;
        if matched != "/" && !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        match PathReplacement::new(Some(&specifier), replacement) {
            PathReplacement::Prefix(prefix) => Some(format!("{prefix}{rest}")),
            PathReplacement::Regex(rewrite) => {
                let pattern = regex::Regex::new(&rewrite.pattern.unwrap().regex).unwrap();
                let substitution = rewrite.substitution.replace('\\', "$");
                Some(pattern.replace_all(path, substitution).into_owned())
            }
        }
    }

    #[test]
    fn joining_a_prefix_neither_loses_nor_doubles_a_slash() {
        for (matched, replacement, path, want) in [
            ("/", "/public", "/product", "/public/product"),
            ("/", "/public/", "/product", "/public/product"),
            ("/", "/public", "/", "/public/"),
            ("/", "/", "/product", "/product"),
            ("/", "", "/product", "/product"),
            ("/old", "/new", "/old/x", "/new/x"),
            ("/old", "/new/", "/old/x", "/new/x"),
            ("/old", "/new//", "/old/x", "/new/x"),
            ("/old", "/new", "/old", "/new"),
            ("/old", "/new/", "/old/", "/new/"),
            ("/old", "/", "/old/x", "/x"),
            ("/old", "", "/old/x", "/x"),
            ("/old", "", "/old", "/"),
            ("/old", "/", "/old/", "/"),
            ("/a.b", "/", "/a.b/c", "/c"),
        ] {
            let path = rewritten(matched, replacement, path);
            assert_eq!(path.as_deref(), Some(want), "{matched} by {replacement:?}");
        }
    }
}
