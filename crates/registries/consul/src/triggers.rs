//! Services affected by a response of `health/state`.

use crate::answer::Check;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The watched states of checks. Each change of health enters or leaves one of these two states, and the
/// lists are short if most checks pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CheckState {
    Warning,
    Critical,
}

impl CheckState {
    pub(crate) const ALL: [Self; 2] = [Self::Warning, Self::Critical];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Changes since the previous response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Services with a changed check.
    pub(crate) services: BTreeSet<Arc<str>>,
    /// Nodes with a changed node check: it applies to every instance there.
    pub(crate) nodes: BTreeSet<Arc<str>>,
}

/// The checks in one state, from the last response.
#[derive(Debug, Default)]
pub(crate) struct Trigger(Option<BTreeSet<Check>>);

impl Trigger {
    /// Handles a response. Returns `None` for the first one, which has nothing to compare with.
    pub(crate) fn answered(&mut self, checks: Vec<Check>) -> Option<Touched> {
        let now: BTreeSet<Check> = checks.into_iter().collect();
        let before = self.0.replace(now);
        let (before, now) = (before?, self.0.as_ref()?);
        let mut touched = Touched::default();
        for check in before.symmetric_difference(now) {
            if check.service_name.is_empty() {
                touched.nodes.insert(check.node.as_str().into());
            } else {
                touched.services.insert(check.service_name.as_str().into());
            }
        }
        Some(touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node: &str, id: &str, service: &str) -> Check {
        Check {
            node: node.into(),
            check_id: id.into(),
            status: "critical".into(),
            service_name: service.into(),
        }
    }

    #[test]
    fn what_enters_or_leaves_a_state_is_told() {
        let mut trigger = Trigger::default();
        assert_eq!(
            trigger.answered(vec![check("n1", "a", "web"), check("n1", "b", "api")]),
            None,
            "nothing before"
        );
        let same = trigger.answered(vec![check("n1", "b", "api"), check("n1", "a", "web")]);
        assert_eq!(same, Some(Touched::default()), "the order is nothing");
        let next = vec![check("n1", "b", "api"), check("n2", "c", "db"), check("n3", "serfHealth", "")];
        let touched = trigger.answered(next).unwrap();
        assert_eq!(touched.services, ["db".into(), "web".into()].into());
        assert_eq!(touched.nodes, ["n3".into()].into());
    }
}
