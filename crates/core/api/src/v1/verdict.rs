//! Verdict on a control plane: derived in one place, shown by the overview, `pilotfish status`, `/ready` and
//! `problems`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of causes in a verdict; further ones are counted.
const CAUSES: usize = 20;

/// Summary without causes. It says nothing of the health of services, which is no fault of the control plane.
const WELL: &str = "ready: no refusals, no failing sources, no invalid objects";

/// State of the control plane, and its top causes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaneVerdict {
    pub level: PlaneLevel,
    /// State, and number of causes of each kind, in one line: contains no names from the configuration.
    pub summary: String,
    /// First 20 causes, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Number of causes that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlaneLevel {
    /// Proxies are served, without a known problem.
    #[default]
    Well,
    /// Proxies are served, with problems.
    Degraded,
    /// Proxies are not served.
    NotReady,
}

/// A problem in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Kind; kinds are ordered by severity.
    pub kind: CauseKind,
    /// Name of the source, registry, proxy or object; may be empty.
    pub subject: String,
    /// Fault and its effect.
    pub message: String,
    /// Number of problems that the cause stands for.
    pub count: usize,
    /// Object that it is about, such as `VirtualService shop/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// Kinds of causes, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CauseKind {
    /// Readiness waits for it.
    NotReady,
    /// A source or the control loop gives no sign of life.
    SilentSource,
    /// A proxy refuses what it was sent.
    Refusal,
    /// A registry or the store of registrations cannot be read or written, or its response is held back.
    Registry,
    /// An object's newest version is not in force.
    Object,
    /// Services of registries conflict, or names of gateways cannot be resolved.
    Conflict,
    /// A registry has entries that cannot be used.
    UnusableEntries,
}

impl CauseKind {
    /// Kind with a number, such as `3 objects are not in force`.
    fn in_words(self, count: usize) -> String {
        let (one, many) = match self {
            Self::NotReady => ("thing is waited for", "things are waited for"),
            Self::SilentSource => ("source is silent", "sources are silent"),
            Self::Refusal => ("proxy refuses something", "proxies refuse something"),
            Self::Registry => ("registry is in trouble", "registries are in trouble"),
            Self::Object => ("object is not in force", "objects are not in force"),
            Self::Conflict => ("conflict of registries or gateways", "conflicts of registries or gateways"),
            Self::UnusableEntries => ("registry entry cannot be used", "registry entries cannot be used"),
        };
        format!("{count} {}", if count == 1 { one } else { many })
    }
}

impl Cause {
    /// A cause for a single problem.
    #[must_use]
    pub fn new(kind: CauseKind, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), message: message.into(), count: 1, object: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.subject.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.subject, self.message)
    }
}

impl PlaneVerdict {
    /// Derives the verdict from readiness and the known problems.
    #[must_use]
    pub fn new(ready: bool, mut causes: Vec<Cause>) -> Self {
        causes.sort_by_key(|cause| cause.kind);
        let level = match (ready, causes.is_empty()) {
            (false, _) => PlaneLevel::NotReady,
            (true, false) => PlaneLevel::Degraded,
            (true, true) => PlaneLevel::Well,
        };
        let state = match level {
            PlaneLevel::NotReady => "not ready",
            PlaneLevel::Degraded => "ready, and not all is well",
            PlaneLevel::Well => WELL,
        };
        let kinds = causes.chunk_by(|a, b| a.kind == b.kind).filter_map(|same| {
            let count = same.iter().map(|cause| cause.count).sum();
            Some(same.first()?.kind.in_words(count))
        });
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let summary = if kinds.is_empty() { state.to_owned() } else { format!("{state}: {kinds}") };
        let more = causes.len().saturating_sub(CAUSES);
        causes.truncate(CAUSES);
        Self { level, summary, causes, more }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(kind: CauseKind, count: usize) -> Cause {
        Cause { count, ..Cause::new(kind, "a", "b") }
    }

    #[test]
    fn a_verdict_is_well_only_without_any_cause() {
        use CauseKind::{Object, Refusal, Registry, SilentSource, UnusableEntries};
        let cases = [
            (true, vec![], PlaneLevel::Well, WELL),
            (false, vec![], PlaneLevel::NotReady, "not ready"),
            (
                true,
                vec![cause(UnusableEntries, 2)],
                PlaneLevel::Degraded,
                "ready, and not all is well: 2 registry entries cannot be used",
            ),
            (
                true,
                vec![cause(Object, 1), cause(Registry, 1), cause(Object, 1), cause(Refusal, 1)],
                PlaneLevel::Degraded,
                "ready, and not all is well: 1 proxy refuses something, 1 registry is in trouble, 2 objects are not in force",
            ),
            (false, vec![cause(SilentSource, 1)], PlaneLevel::NotReady, "not ready: 1 source is silent"),
        ];
        for (ready, causes, level, summary) in cases {
            let verdict = PlaneVerdict::new(ready, causes);
            assert_eq!((verdict.level, verdict.summary.as_str()), (level, summary));
        }
    }

    #[test]
    fn the_worst_causes_are_listed_and_the_rest_is_counted() {
        let mut causes = vec![cause(CauseKind::Object, 1); CAUSES + 3];
        causes.push(cause(CauseKind::SilentSource, 1));
        let verdict = PlaneVerdict::new(true, causes);
        assert_eq!((verdict.causes.len(), verdict.more), (CAUSES, 4));
        assert_eq!(verdict.causes[0].kind, CauseKind::SilentSource);
        assert_eq!(verdict.causes[0].to_string(), "a: b");
    }
}
