//! `proxyVersion` of EnvoyFilters: a regular expression from untrusted authors, compiled once for each patch.

use regex::bytes::{Regex, RegexBuilder};

/// Maximum length of the expression, as in Istio from 1.29.7 on (ISTIO-SECURITY-2026-006).
const LONGEST: usize = 1024;
/// Maximum size of the compiled expression in bytes: repetitions expand a short text.
const LARGEST: usize = 64 << 10;

/// Pattern of Istio versions, matched against the version in the proxy's node metadata.
#[derive(Clone, Debug)]
pub(super) struct Versions(Regex);

impl Versions {
    /// Compiles the expression. Character classes are ASCII, as in RE2.
    ///
    /// # Errors
    /// If it is invalid, or too large.
    pub(super) fn compile(expression: &str) -> Result<Self, String> {
        if expression.len() > LONGEST {
            return Err(format!("has {} bytes, more than {LONGEST}", expression.len()));
        }
        let regex = RegexBuilder::new(expression).unicode(false).size_limit(LARGEST).build();
        regex.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "repeats too much: it is too large when compiled".to_owned(),
            error => {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                format!("is no regular expression: {reason}")
            }
        })
    }

    /// Returns true if the version matches. A proxy without a version never matches.
    pub(super) fn has(&self, version: &str) -> bool {
        !version.is_empty() && self.0.is_match(version.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_match_as_in_re2() {
        for (expression, version, has) in [
            ("^1\\.29", "1.29.1", true),
            ("^1\\.29", "1.30.0", false),
            ("^1\\.(28|29)\\.\\d+$", "1.29.12", true),
            (".*", "", false),
            ("", "1.29.1", true),
        ] {
            assert_eq!(Versions::compile(expression).unwrap().has(version), has, "{expression} {version}");
        }
    }

    #[test]
    fn expressions_that_cost_much_are_refused() {
        for (expression, why) in [
            ("(".to_owned(), "is no regular expression"),
            ("a".repeat(LONGEST + 1), "has 1025 bytes, more than 1024"),
            ("(\\w{100}){100}".to_owned(), "repeats too much"),
        ] {
            let error = Versions::compile(&expression).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(Versions::compile(&"a".repeat(LONGEST)).is_ok());
    }
}
