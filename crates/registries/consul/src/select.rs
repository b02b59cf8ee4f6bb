//! Selection of services.

use std::collections::BTreeSet;

/// Name patterns with `*` for any text, as in `api-*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Globs(Vec<String>);

impl Globs {
    /// Parses a comma-separated list.
    pub(crate) fn parse(text: &str) -> Self {
        Self(list(text))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|glob| matches(glob, name))
    }
}

/// Splits a comma-separated list; drops empty items.
pub(crate) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Matches a pattern. Each `*` takes as little as possible, which suffices because a later `*` can take the
/// rest.
fn matches(glob: &str, name: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Selection of services by name and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// If not empty, only these names.
    pub(crate) only: Globs,
    /// Names that are left out, even if `only` has them.
    pub(crate) except: Globs,
    /// Only instances with all of these tags.
    pub(crate) tags: Vec<String>,
}

impl Selection {
    /// True if the service may have a selected instance; `tags` are the tags of all its instances.
    pub(crate) fn wants(&self, name: &str, tags: Option<&BTreeSet<String>>) -> bool {
        (self.only.is_empty() || self.only.has(name))
            && !self.except.has(name)
            && self.tags.iter().all(|tag| tags.is_some_and(|tags| tags.contains(tag)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (glob, name, want) in [
            ("web", "web", true),
            ("web", "web2", false),
            ("web*", "web2", true),
            ("*web", "my-web", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(glob, name), want, "{glob} {name}");
        }
    }

    #[test]
    fn names_and_tags_choose() {
        let tags = |text: &str| list(text).into_iter().collect::<BTreeSet<_>>();
        let selection = Selection {
            only: Globs::parse("api-*, web"),
            except: Globs::parse("api-old"),
            tags: list("a,b"),
        };
        for (name, own, want) in [
            ("web", "a,b,c", true),
            ("web", "a", false),
            ("api-1", "b,a", true),
            ("api-old", "a,b", false),
            ("db", "a,b", false),
        ] {
            assert_eq!(selection.wants(name, Some(&tags(own))), want, "{name} {own}");
        }
        assert!(Selection::default().wants("db", None) && !selection.wants("web", None));
    }
}
