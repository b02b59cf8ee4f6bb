//! Failure of a query.

use serde::{Deserialize, Serialize};

/// Failure of a query, with help for a better one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub kind: FailureKind,
    /// Message in one line.
    pub error: String,
    /// Suggested action in one line; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Names similar to the unknown one, or all matches of an ambiguous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Nothing has that name.
    NotFound,
    /// Several have that name.
    Ambiguous,
    /// The query is malformed.
    Invalid,
    /// The query cannot be answered now; a retry may help.
    Unavailable,
    /// A kind of a newer server.
    #[serde(other)]
    Other,
}

/// Maximum number of similar names for an unknown one.
const OFFERED: usize = 5;

/// Similar names: those that begin with `wanted` or contain it, then those with a small edit distance.
fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const NEAR: f64 = 0.85;
    let score = |name: &str| match name.find(wanted) {
        Some(0) if !wanted.is_empty() => 3.0,
        Some(_) if !wanted.is_empty() => 2.0,
        _ => {
            // Compares as many labels as `wanted` has, so that both `catalgo` and `catalgo.shop` match
            // `catalog.shop.svc.cluster.local`.
            let parts = wanted.matches('.').count();
            let end = name.match_indices('.').nth(parts).map_or(name.len(), |(end, _)| end);
            let first = name.get(..end).unwrap_or(name);
            // Limits the edit distance for short names.
            let typed = strsim::osa_distance(wanted, first) <= (wanted.len() / 4).max(1);
            let alike = strsim::jaro_winkler(wanted, name).max(strsim::jaro_winkler(wanted, first));
            if typed { alike.max(NEAR) } else { alike }
        }
    };
    let mut near: Vec<(f64, &str)> = known.into_iter().map(|name| (score(name), name)).collect();
    near.retain(|(score, _)| *score >= NEAR);
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.dedup_by(|a, b| a.1 == b.1);
    near.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

impl Failure {
    /// Creates a failure with a message in one line.
    #[must_use]
    pub fn new(kind: FailureKind, error: impl Into<String>) -> Self {
        Self { kind, error: error.into(), hint: String::new(), names: Vec::new() }
    }

    /// Adds a suggested action.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// Creates a failure for the unknown name `wanted`, with the most similar names of `known`.
    #[must_use]
    pub fn unknown<'a>(what: &str, wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let near = nearest(wanted, known);
        Self::new(FailureKind::NotFound, format!("no {what} is named {wanted:?}")).names(near)
    }

    /// Adds names to choose from.
    #[must_use]
    pub fn names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered() {
        let known = ["catalog.shop.svc.cluster.local", "cart.shop.svc.cluster.local", "payment.example.com"];
        let offered = |wanted| Failure::unknown("host", wanted, known).names;
        assert_eq!(offered("catalog"), [known[0]]);
        assert_eq!(offered("catalgo"), [known[0]]);
        assert_eq!(offered("crat"), [known[1]]);
        assert_eq!(offered("crat.shop"), [known[1]]);
        assert_eq!(offered("example"), [known[2]]);
        assert_eq!(offered("zzz"), Vec::<String>::new());
    }
}
