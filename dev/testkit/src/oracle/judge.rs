//! Comparison of the results with the list of known differences.

use super::known::{Key, Known, State, UNEXPLAINED, Way, at, case_of, key};
use super::{CaseScore, Scores};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Deviations from the list; empty if there are none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict(pub Vec<String>);

impl Verdict {
    /// True without deviations.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Known {
    /// Compares the results with the list. `all` is true if the scores have all cases, so that each entry
    /// must match one of them.
    #[must_use]
    pub fn judge(&self, scores: &Scores, way: Way, all: bool) -> Verdict {
        let cases: BTreeSet<&str> = scores.0.iter().map(|case| &*case.case).collect();
        let concerns = |case: &str| all || cases.contains(case);
        let mut listed: BTreeMap<Key, State> =
            self.listed(way).into_iter().filter(|(key, _)| concerns(case_of(&key.0))).collect();
        let mut wrong = Vec::new();
        for score in &scores.0 {
            wrong.extend(score.error.iter().map(|error| format!("{}: {error}", score.case)));
        }
        for (place, difference) in scores.differences() {
            let (key, state) = (key(place, difference), State::of(difference));
            match listed.remove(&key) {
                Some(known) if known == state => {}
                Some(known) => wrong.push(format!("{}: listed as {known}, is {state}", at(&key))),
                None => wrong.push(format!("{}: differs and is not listed: {state}", at(&key))),
            }
        }
        wrong.extend(
            listed.iter().map(|(key, state)| {
                format!("{}: no longer differs and must leave the list: {state}", at(key))
            }),
        );
        if way == Way::Files {
            wrong.extend(self.judge_refused(&scores.0, concerns));
        }
        let mut reasons = self.entries().map(|it| &it.reason).chain(self.refused.iter().map(|it| &it.reason));
        if reasons.any(|reason| reason.trim().is_empty() || reason == UNEXPLAINED) {
            wrong.push(format!("an entry of the list has no reason, or {UNEXPLAINED:?}"));
        }
        Verdict(wrong)
    }

    fn judge_refused(&self, scores: &[CaseScore], concerns: impl Fn(&str) -> bool) -> Vec<String> {
        let listed: BTreeSet<_> = self.refused.iter().map(|it| (&*it.case, &*it.object)).collect();
        let found: BTreeSet<_> =
            scores.iter().flat_map(|score| score.refused.iter().map(|it| (&*score.case, &**it))).collect();
        let new = found.difference(&listed).map(|it| (it, "is refused and is not listed"));
        let gone = listed.difference(&found).filter(|it| concerns(it.0));
        let gone = gone.map(|it| (it, "is not refused any more and must leave the list"));
        new.chain(gone).map(|((case, object), what)| format!("{case}: {object} {what}")).collect()
    }
}
