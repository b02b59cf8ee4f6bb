//! `pilotfish status`.

use super::shown::Shown;
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use clap::Args;
use pilotfish_api::causes;
use pilotfish_api::v1;
use std::fmt::Write;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish status                    is it ready, what do proxies refuse, which sources fail, which
                                      objects are not in force?
  pilotfish status --watch
  pilotfish status -o json | jq '.refused[].madeBy[0]'

The exit code is 1 when it is not ready, or something is refused, unreadable or not in force, and
else 0.";

/// Shows what does not work.
#[derive(Args, Clone, Debug)]
pub struct Status {
    #[command(flatten)]
    shown: Shown,
}

impl Status {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        self.shown.judged("status", &[], text, code).await
    }
}

fn code(status: &v1::Status) -> ExitCode {
    if status.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(status: &v1::Status, screen: &Screen) -> String {
    let v1::Status { replica, version, revision, proxies, pending, rejected, .. } = status;
    let (word, colour) = match (status.ready, status.is_well()) {
        (false, _) => ("not ready", Colour::Bad),
        (true, false) => ("ready, and not all is well", Colour::Doubtful),
        (true, true) => ("ready", Colour::Good),
    };
    // Older servers send no verdict.
    let summary = Some(status.verdict.summary.as_str()).filter(|summary| !summary.is_empty());
    let mut out = format!("{replica}  {}\n", screen.paint(summary.unwrap_or(word), colour));
    let _ = writeln!(out, "  version   {version}");
    let _ = writeln!(out, "  revision  {revision}");
    if !status.control_plane_revision.is_empty() {
        let left = match status.left_to_other_revisions {
            0 => String::new(),
            1 => "; 1 object is left to other revisions".to_owned(),
            many => format!("; {many} objects are left to other revisions"),
        };
        let _ = writeln!(out, "  reads     objects of revision {}{left}", status.control_plane_revision);
    }
    let _ = writeln!(out, "  proxies   {proxies} connected, {pending} pending, {rejected} rejected");
    refused(status, screen, &mut out);
    for (title, lines) in [
        ("waits for", &status.waiting_for),
        ("sources", &status.sources),
        ("objects that are not in force", &status.objects),
        ("kinds that are not served", &status.unserved),
        ("analysis", &status.findings),
    ] {
        if lines.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{title}");
        for line in lines {
            let _ = writeln!(out, "  {}", line.replace(char::is_control, " "));
        }
    }
    out
}

fn refused(status: &v1::Status, screen: &Screen, out: &mut String) {
    if status.refused.is_empty() {
        return;
    }
    let mut table = Table::new(["proxy", "refuses", "since", "made by", "reason"]);
    for refusal in &status.refused {
        let made_by = causes(&refusal.made_by, |first, others| format!("{first} (or {others})"));
        table.row([
            refusal.proxy.as_str().into(),
            Cell::coloured(refusal.resource_type.as_str(), Colour::Bad),
            refusal.since.as_str().into(),
            made_by.into(),
            refusal.reason.as_str().into(),
        ]);
    }
    let _ = write!(out, "\n{}", table.text(screen));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::Refusal;

    fn well() -> v1::Status {
        v1::Status {
            replica: "pilotfish-0".into(),
            version: "1.2.3".into(),
            revision: 43,
            ready: true,
            proxies: 12,
            ..v1::Status::default()
        }
    }

    #[test]
    fn what_is_well_is_said_in_four_lines() {
        assert_eq!(
            text(&well(), &Screen::plain()),
            "pilotfish-0  ready\n  version   1.2.3\n  revision  43\n  proxies   12 connected, 0 pending, 0 rejected\n"
        );
        assert_eq!(code(&well()), ExitCode::SUCCESS);
    }

    #[test]
    fn objects_of_other_revisions_are_counted_and_no_problem() {
        let line = |left| {
            let status = v1::Status {
                control_plane_revision: "canary".into(),
                left_to_other_revisions: left,
                ..well()
            };
            assert_eq!(code(&status), ExitCode::SUCCESS);
            text(&status, &Screen::plain()).lines().nth(3).unwrap_or_default().to_owned()
        };
        assert_eq!(line(0), "  reads     objects of revision canary");
        assert_eq!(line(1), "  reads     objects of revision canary; 1 object is left to other revisions");
        assert_eq!(line(7), "  reads     objects of revision canary; 7 objects are left to other revisions");
    }

    #[test]
    fn what_is_refused_or_fails_is_said_with_the_object_and_fails() {
        let refusal = |made_by: &[&str]| Refusal {
            proxy: "web-0.shop".into(),
            resource_type: "listeners".into(),
            since: "2026-01-01T00:00:00Z".into(),
            reason: "no such filter".into(),
            made_by: made_by.iter().map(ToString::to_string).collect(),
        };
        let status = v1::Status {
            rejected: 1,
            refused: vec![refusal(&["EnvoyFilter shop/bad", "Service shop/a"]), refusal(&[])],
            sources: vec!["Consul/east: cannot be read".into()],
            ..well()
        };
        let text = text(&status, &Screen::plain());
        assert!(text.starts_with("pilotfish-0  ready, and not all is well\n"), "{text}");
        let line = "web-0.shop  listeners  2026-01-01T00:00:00Z  EnvoyFilter shop/bad (or 1 other)  no such filter\n";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("\nsources\n  Consul/east: cannot be read\n"), "{text}");
        for bad in [
            v1::Status { ready: false, ..well() },
            v1::Status { rejected: 1, ..well() },
            v1::Status { sources: vec!["a".into()], ..well() },
            v1::Status { objects: vec!["a".into()], ..well() },
        ] {
            assert_eq!(code(&bad), ExitCode::FAILURE, "{bad:?}");
        }
        let cause = v1::Cause::new(v1::CauseKind::UnusableEntries, "Etcd/east", "/a: no JSON");
        let verdict = v1::PlaneVerdict::new(true, vec![cause]);
        let unusable = v1::Status { verdict, ..well() };
        assert_eq!(code(&unusable), ExitCode::FAILURE);
        let text = super::text(&unusable, &Screen::plain());
        assert!(
            text.starts_with("pilotfish-0  ready, and not all is well: 1 registry entry cannot be used\n"),
            "{text}"
        );
        let unserved = v1::Status { unserved: vec!["a/v1 B: 3 objects have no effect".into()], ..well() };
        assert_eq!(code(&unserved), ExitCode::SUCCESS, "a newer kind is no failure");
        let text = super::text(&unserved, &Screen::plain());
        assert!(
            text.ends_with("\nkinds that are not served\n  a/v1 B: 3 objects have no effect\n"),
            "{text}"
        );
        let doubtful = v1::Status { findings: vec!["2 warnings".into()], pending: 1, ..well() };
        assert_eq!(code(&doubtful), ExitCode::SUCCESS, "doubts and what is on its way are no failure");
    }
}
