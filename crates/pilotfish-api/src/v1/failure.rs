//! Why a question has no answer.

use serde::{Deserialize, Serialize};

/// Why a question has no answer, with what helps to ask better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// In one line.
    pub error: String,
    /// What to do, in one line; empty where that is plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The names that are near to the one that is not known, or those that all have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Nothing has that name.
    NotFound,
    /// Several have that name.
    Ambiguous,
    /// The question itself is wrong.
    Invalid,
    /// It cannot be answered now: a second attempt may help.
    Unavailable,
    /// A kind of a newer server.
    #[serde(other)]
    Other,
}

/// Names that are offered for one that is not known.
const OFFERED: usize = 5;

/// The names that somebody may have meant: those that begin with it or contain it, then those that are written nearly so.
fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const NEAR: f64 = 0.85;
    let score = |name: &str| match name.find(wanted) {
        Some(0) if !wanted.is_empty() => 3.0,
        Some(_) if !wanted.is_empty() => 2.0,
        _ => {
            // `catalgo` is near to `catalog.shop.svc.cluster.local`, and so is `catalgo.shop`: as many parts are compared.
            let parts = wanted.matches('.').count();
            let end = name.match_indices('.').nth(parts).map_or(name.len(), |(end, _)| end);
            let first = name.get(..end).unwrap_or(name);
            // Short names are near by what was mistyped.
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
    /// A failure of a kind, in one line.
    #[must_use]
    pub fn new(kind: FailureKind, error: impl Into<String>) -> Self {
        Self { kind, error: error.into(), hint: String::new(), names: Vec::new() }
    }

    /// The same with what to do.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// Nothing has the name `wanted`: with those of `known` that are nearest to it.
    #[must_use]
    pub fn unknown<'a>(what: &str, wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let near = nearest(wanted, known);
        Self::new(FailureKind::NotFound, format!("no {what} is named {wanted:?}")).names(near)
    }

    /// The same with names to choose from.
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
