//! Evaluation of the results of one check.

use pilotfish_registration::Check;
use std::sync::Arc;

/// The result of one probe: passed, or the failure in a few words.
pub type Outcome = Result<(), Arc<str>>;

/// Pass or fail state of one check of one instance, from its results so far.
///
/// Before the first results the state is unknown, and the instance counts as healthy. The first good result
/// makes it pass, as Envoy ignores `healthy_threshold` at the start; afterwards the state changes after as
/// many consecutive results as the threshold says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    passes: Option<bool>,
    /// Number of consecutive results that contradict `passes`.
    against: u32,
    reason: Option<Arc<str>>,
}

impl Machine {
    /// The current state; `None` before it is known.
    #[must_use]
    pub const fn passes(&self) -> Option<bool> {
        self.passes
    }

    /// Reason of the last failed probe, while the check fails.
    #[must_use]
    pub fn reason(&self) -> Option<&Arc<str>> {
        self.reason.as_ref().filter(|_| self.passes == Some(false))
    }

    /// Adds a result. Returns true if the state changed.
    pub fn take(&mut self, outcome: Outcome, check: &Check) -> bool {
        let good = outcome.is_ok();
        if self.passes == Some(good) || (self.passes.is_none() && good) {
            self.against = 0;
        } else {
            self.against = self.against.saturating_add(1);
        }
        let needed = if good { check.healthy_threshold } else { check.unhealthy_threshold };
        self.reason = outcome.err().or_else(|| self.reason.take());
        let turns = match self.passes {
            None => good || self.against >= needed,
            Some(before) => before != good && self.against >= needed,
        };
        if turns {
            self.passes = Some(good);
            self.against = 0;
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::CheckKind;
    use std::time::Duration;

    /// What is believed after each result: `+` passes, `-` does not, `?` not known.
    fn believed(results: &str, healthy_threshold: u32, unhealthy_threshold: u32) -> String {
        let second = Duration::from_secs(1);
        let check = Check {
            kind: CheckKind::Tcp,
            port: None,
            interval: second,
            timeout: second,
            healthy_threshold,
            unhealthy_threshold,
        };
        let mut machine = Machine::default();
        let mut after = |result| {
            let before = machine.passes();
            let changed = machine.take(if result == '+' { Ok(()) } else { Err("refused".into()) }, &check);
            assert_eq!(changed, before != machine.passes());
            assert_eq!(machine.reason().is_some(), machine.passes() == Some(false));
            machine.passes().map_or('?', |passes| if passes { '+' } else { '-' })
        };
        results.chars().map(&mut after).collect()
    }

    #[test]
    fn results_in_a_row_turn_what_is_believed() {
        for (results, healthy, unhealthy, wanted) in [
            ("+", 3, 3, "+"),
            ("-", 1, 1, "-"),
            ("---", 1, 3, "??-"),
            ("--+---", 1, 3, "??+++-"),
            ("+--+---", 1, 3, "++++++-"),
            ("-++++", 3, 1, "---++"),
            ("-++-+++", 3, 1, "------+"),
            ("-+-+-+", 1, 1, "-+-+-+"),
        ] {
            assert_eq!(believed(results, healthy, unhealthy), wanted, "{results} {healthy} {unhealthy}");
        }
    }
}
