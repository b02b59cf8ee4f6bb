//! Facts for the verdict on this control plane: its current problems, from all parts of the process.

use super::{AdminState, refusals};
use pilotfish_admin::ControlPlane;
use pilotfish_api as api;
use pilotfish_api::v1::{Cause, CauseKind, PlaneVerdict, Refusal};
use pilotfish_config::{ProblemReport, Severity};
use pilotfish_control_plane::control;
use refusals::Refused;
use std::collections::BTreeSet;
use std::time::Instant;

/// Returns the current verdict. It takes locks that computations hold.
pub(super) fn verdict(state: &AdminState) -> PlaneVerdict {
    let readiness = state.readiness();
    let mut causes = waited_for(&readiness);
    causes.extend(state.shared.source_causes(Instant::now()));
    causes.extend(refused(&refusals::refused(state)));
    let sources = state.shared.source_problems();
    causes.extend(not_in_force(sources.iter().flat_map(|source| &source.reports)));
    PlaneVerdict::new(readiness.ready, causes)
}

/// Returns the problems of proxies, sources and registries, without those of objects.
pub(super) fn problems(state: &AdminState) -> Vec<api::Problem> {
    let mut problems: Vec<_> = refusals::refused(state).list.iter().map(refusal_problem).collect();
    for cause in state.shared.source_causes(Instant::now()) {
        // Entries are listed one by one.
        if cause.kind != CauseKind::UnusableEntries {
            problems.push(control::problem("error", &cause.subject, cause.message));
        }
    }
    problems.extend(state.shared.registries().iter().flat_map(control::unusable_entries));
    problems
}

fn waited_for(readiness: &api::Readiness) -> Vec<Cause> {
    let cause = |what: &String| Cause::new(CauseKind::NotReady, "", format!("waits for {what}"));
    if readiness.ready { Vec::new() } else { readiness.waiting_for.iter().map(cause).collect() }
}

/// Returns a cause for each proxy, with its first refusal.
fn refused(refused: &Refused) -> Vec<Cause> {
    let mut proxies = BTreeSet::new();
    let first = refused.list.iter().filter(|refusal| proxies.insert(&refusal.proxy));
    let mut causes: Vec<_> = first
        .map(|refusal| Cause::new(CauseKind::Refusal, &refusal.proxy, refusals::in_words(refusal)))
        .collect();
    if refused.more > 0 {
        let more = Cause::new(CauseKind::Refusal, "", refused.of_more());
        causes.push(Cause { count: refused.more, ..more });
    }
    causes
}

fn refusal_problem(refusal: &Refusal) -> api::Problem {
    api::Problem {
        object: refusal.made_by.first().cloned().unwrap_or_default(),
        path: String::new(),
        in_force: "last-good".to_owned(),
        ..control::problem("error", &refusal.proxy, refusals::in_words(refusal))
    }
}

/// Returns a cause for each object, or part of a file, whose newest version is not in force, with its first
/// error.
fn not_in_force<'a>(reports: impl Iterator<Item = &'a ProblemReport>) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let errors = reports.filter(|report| report.severity == Severity::Error);
    let first = errors.filter(|report| seen.insert((&report.file, report.document, &report.object)));
    let cause = |report: &ProblemReport| Cause {
        object: report.object.as_ref().map(ToString::to_string),
        ..Cause::new(CauseKind::Object, "", report.to_string())
    };
    first.map(cause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_config::Effective;

    fn report(document: u32, message: &str, severity: Severity) -> ProblemReport {
        ProblemReport {
            severity,
            file: "a.yaml".into(),
            document,
            line: 3,
            object: None,
            revision: None,
            path: String::new(),
            message: message.into(),
            count: None,
            hint: None,
            effective: Effective::LastGood,
        }
    }

    #[test]
    fn each_object_that_is_not_in_force_is_one_cause() {
        let reports = [
            report(1, "first", Severity::Error),
            report(1, "second", Severity::Error),
            report(2, "doubt", Severity::Warning),
            report(3, "third", Severity::Error),
        ];
        let causes: Vec<_> = not_in_force(reports.iter()).iter().map(ToString::to_string).collect();
        assert_eq!(
            causes,
            [
                "a.yaml:3: first; the last good version stays in force",
                "a.yaml:3: third; the last good version stays in force"
            ]
        );
    }

    #[test]
    fn each_proxy_that_refuses_something_is_one_cause() {
        let refusal = |proxy: &str, ty: &str| Refusal {
            proxy: proxy.into(),
            resource_type: ty.into(),
            reason: "odd".into(),
            ..Refusal::default()
        };
        let list = vec![refusal("a", "clusters"), refusal("a", "listeners"), refusal("b", "routes")];
        let verdict = PlaneVerdict::new(true, super::refused(&Refused { list, more: 7 }));
        assert_eq!(verdict.summary, "ready, and not all is well: 9 proxies refuse something");
        assert_eq!(verdict.causes[0].to_string(), "a: refuses clusters: odd");
        assert_eq!(verdict.causes[2].to_string(), "7 more proxies refuse something");
    }

    #[test]
    fn what_is_waited_for_is_a_cause_only_while_not_ready() {
        let waiting =
            |ready| api::Readiness { ready, waiting_for: vec!["Consul/east".into()], ..Default::default() };
        assert_eq!(waited_for(&waiting(false))[0].to_string(), "waits for Consul/east");
        assert_eq!(waited_for(&waiting(true)), []);
    }
}
