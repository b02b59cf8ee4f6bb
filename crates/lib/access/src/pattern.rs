//! Name patterns with `*` for any number of characters.

/// A pattern of a rule for identities or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// True if it contains a dot, as patterns of host names do.
    #[must_use]
    pub fn is_of_hosts(&self) -> bool {
        self.0.contains('.')
    }

    /// True if the whole name matches. Time is at most the product of both lengths.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("web", "web", true),
            ("web", "web1", false),
            ("web", "", false),
            ("*", "", true),
            ("*", "anything", true),
            ("web*", "web", true),
            ("web*", "web-1", true),
            ("web*", "aweb", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("a**b", "ab", true),
            ("spiffe://cluster.local/ns/shop/*", "spiffe://cluster.local/ns/shop/sa/web", true),
            ("spiffe://cluster.local/ns/shop/*", "spiffe://cluster.local/ns/shop2/sa/web", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }
}
