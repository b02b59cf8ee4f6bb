//! `pilotfish history`.

use super::shown::{Shown, and_more};
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use crate::time::about;
use clap::Args;
use pilotfish_api::counted;
use pilotfish_api::v1::{Change, Changed, History as Answer, Outcome, Refusals};
use std::fmt::Write;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish history                                     what changed lately, by whom, and when it
                                                        was in force
  pilotfish history VirtualService/shop/catalog         the changes of one object
  pilotfish history web-0.shop                          the changes that concerned a connected
                                                        proxy, since it connected
  pilotfish history --revision 42                       one change, with diffs and those that have
                                                        not acknowledged it
  pilotfish history --endpoints --watch

Then: pilotfish config web-0.shop routes --at 41, pilotfish why web-0.shop --to catalog --at 41";

/// Shows what changed lately.
#[derive(Args, Clone, Debug)]
pub struct History {
    /// An object (KIND/NAMESPACE/NAME), or a connected proxy (NAME.NAMESPACE)
    what: Option<String>,
    /// One change, with diffs
    #[arg(long, conflicts_with_all = ["what", "watch"])]
    revision: Option<u64>,
    /// Also changes of nothing but endpoints
    #[arg(long)]
    endpoints: bool,
    /// Maximum number of changes to show
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    limit: usize,
    #[command(flatten)]
    shown: Shown,
}

impl History {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        if let Some(revision) = self.revision {
            return self.shown.one(&format!("history/{revision}"), &[], one_text).await;
        }
        let limit = self.limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        // Names of proxies have no slash, except for full node ids, which have a tilde.
        let is_object = |what: &&str| what.contains('/') && !what.contains('~');
        query.extend(
            self.what.as_deref().map(|what| (if is_object(&what) { "object" } else { "proxy" }, what)),
        );
        query.extend(self.endpoints.then_some(("endpoints", "true")));
        self.shown.one("history", &query, text).await
    }
}

fn text(answer: &Answer, screen: &Screen) -> String {
    let mut table = Table::new(["revision", "at", "what", "source", "proxies", "in force"]);
    for change in &answer.page.items {
        table.row([
            change.revision.to_string().into(),
            change.at.as_str().into(),
            change.summary.as_str().into(),
            sources(change).into(),
            change.proxies.to_string().into(),
            in_force(change),
        ]);
    }
    let kept = format!(
        "revision {} is in force{}; {} is the oldest that is kept\n",
        answer.current,
        on(&answer.page.replica),
        answer.oldest
    );
    if table.is_empty() {
        return format!("no change of that is kept; {kept}");
    }
    table.text(screen) + &and_more(answer.page.items.len(), answer.page.total) + &kept
}

fn sources(change: &Change) -> String {
    let mut sources: Vec<&str> = change
        .changes
        .iter()
        .map(|changed| changed.source.as_str())
        .filter(|source| !source.is_empty())
        .collect();
    sources.sort_unstable();
    sources.dedup();
    match sources.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

/// Outcome of a change in a table.
pub(super) fn in_force(change: &Change) -> Cell {
    match (change.outcome, change.in_force_seconds) {
        (Outcome::InForce, _) if change.refusals.refused > 0 => {
            Cell::coloured(format!("refused by {} first", change.refusals.refused), Colour::Doubtful)
        }
        (Outcome::InForce, Some(seconds)) if seconds < 1.0 => {
            Cell::coloured(format!("after {:.0} ms", seconds * 1_000.0), Colour::Good)
        }
        (Outcome::InForce, Some(seconds)) => {
            Cell::coloured(format!("after {}", about(seconds)), Colour::Good)
        }
        (Outcome::InForce, None) => "yes".into(),
        (Outcome::Late, _) => Cell::coloured(format!("not at {}", change.missing), Colour::Bad),
        (Outcome::Refused, _) => {
            Cell::coloured(format!("refused by {}", change.refusals.refused), Colour::Bad)
        }
        (other, _) => Cell::coloured(other.as_str(), Colour::Doubtful),
    }
}

/// Suffix with the replica that counts these revisions.
fn on(replica: &str) -> String {
    if replica.is_empty() { String::new() } else { format!(" on {replica}") }
}

fn one_text(change: &Change, screen: &Screen) -> String {
    let mut out =
        format!("revision {} at {}: {}", change.revision, change.at, counted(change.proxies, "proxy"));
    let _ = match (change.outcome, change.in_force_seconds) {
        (Outcome::InForce, _) if change.refusals.refused > 0 => {
            writeln!(out, ", in force; refused at first by {}", refused_by(&change.refusals))
        }
        (Outcome::InForce, Some(seconds)) => writeln!(out, ", in force after {:.3} s", seconds),
        (Outcome::InForce, None) => writeln!(out, ", in force"),
        (Outcome::Late, _) => writeln!(out, ", {} have not acknowledged it", change.missing),
        (Outcome::Refused, _) => writeln!(out, ", refused by {}", refused_by(&change.refusals)),
        (other, _) => writeln!(out, ", {}", other.as_str()),
    };
    for missing in &change.missing_proxies {
        let reason = if missing.reason.is_empty() { String::new() } else { format!(": {}", missing.reason) };
        let line = format!("{} {} {}{reason}", missing.proxy, missing.resource_type, missing.state);
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    }
    for changed in &change.changes {
        changed_text(changed, screen, &mut out);
    }
    if change.changes.is_empty() {
        let _ = writeln!(out, "\n{}", change.summary);
    }
    if change.more > 0 {
        let _ = writeln!(out, "\nand {} more", change.more);
    }
    out
}

/// Refusing proxies of a change, and what became of it there.
pub(super) fn refused_by(refusals: &Refusals) -> String {
    let mut text = refusals.refused_by.join(", ");
    let more = refusals.refused.saturating_sub(refusals.refused_by.len());
    if refusals.refused_by.is_empty() {
        text = counted(refusals.refused, "proxy");
    } else if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    match (refusals.superseded_by, refusals.accepted_with) {
        (Some(revision), _) => text + &format!("; superseded there by revision {revision}"),
        (None, Some(revision)) => text + &format!("; accepted there with revision {revision}"),
        (None, None) if refusals.gone => text + "; gone since",
        (None, None) => text,
    }
}

fn changed_text(changed: &Changed, screen: &Screen, out: &mut String) {
    let _ = write!(out, "\n{} {}", changed.what, changed.action);
    if let Some(generation) = changed.generation {
        let _ = write!(out, ", generation {generation}");
    }
    if !changed.source.is_empty() {
        let _ = write!(out, ", from {}", changed.source);
    }
    if !changed.detail.is_empty() {
        let _ = write!(out, ": {}", changed.detail);
    }
    out.push('\n');
    for made_by in &changed.made_by {
        let _ = writeln!(out, "{}", screen.paint(&format!("by {made_by}"), Colour::Faint));
    }
    for line in changed.diff.lines() {
        let colour = match line.as_bytes().first() {
            Some(b'+') => Some(Colour::Good),
            Some(b'-') => Some(Colour::Bad),
            Some(b'@') => Some(Colour::Faint),
            _ => None,
        };
        let line = colour.map_or_else(|| line.to_owned(), |colour| screen.paint(line, colour));
        let _ = writeln!(out, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::Page;

    fn change() -> Change {
        Change {
            revision: 42,
            at: "2026-11-23T13:00:00Z".into(),
            summary: "VirtualService shop/catalog changed".into(),
            changes: vec![Changed {
                what: "VirtualService shop/catalog".into(),
                action: "changed".into(),
                source: "routes.yaml:1".into(),
                generation: Some(3),
                diff: "@@ -1 +1 @@\n-timeout: 1s\n+timeout: 2s\n".into(),
                ..Changed::default()
            }],
            proxies: 2,
            outcome: Outcome::InForce,
            in_force_seconds: Some(0.0351),
            ..Change::default()
        }
    }

    #[test]
    fn a_list_tells_what_changed_where_and_when_it_was_in_force() {
        let page = Page { items: vec![change()], total: 1, ..Page::default() };
        let text = text(&Answer { page, current: 43, oldest: 7, ..Answer::default() }, &Screen::plain());
        let row = "42        2026-11-23T13:00:00Z  VirtualService shop/catalog changed  routes.yaml:1  2        after 35 ms\n";
        assert!(text.contains(row), "{text}");
        assert!(text.ends_with("revision 43 is in force; 7 is the oldest that is kept\n"), "{text}");
    }

    #[test]
    fn a_refused_change_tells_who_refused_it_and_what_superseded_it() {
        let refused = Change {
            outcome: Outcome::Refused,
            in_force_seconds: None,
            refusals: Refusals {
                refused: 2,
                refused_by: vec!["web-0.shop (lds)".into()],
                superseded_by: Some(45),
                ..Refusals::default()
            },
            ..change()
        };
        let text = one_text(&refused, &Screen::plain());
        let line = "2 proxies, refused by web-0.shop (lds) and 1 more; superseded there by revision 45\n";
        assert!(text.contains(line) && !text.contains("in force"), "{text}");
        let page = Page { items: vec![refused], total: 1, ..Page::default() };
        let text = super::text(&Answer { page, current: 45, ..Answer::default() }, &Screen::plain());
        assert!(text.contains("  2        refused by 2\n"), "{text}");
    }

    #[test]
    fn change_that_was_accepted_after_a_refusal_is_in_force_and_tells_both() {
        let refusals = |accepted_with, gone| Refusals {
            refused: 1,
            refused_by: vec!["web-0.shop (lds)".into()],
            accepted_with,
            gone,
            ..Refusals::default()
        };
        for (refusals, expected) in [
            (refusals(Some(45), false), "web-0.shop (lds); accepted there with revision 45"),
            (refusals(None, false), "web-0.shop (lds)"),
            (refusals(None, true), "web-0.shop (lds); gone since"),
        ] {
            let change = Change { in_force_seconds: None, refusals, ..change() };
            let text = one_text(&change, &Screen::plain());
            assert!(
                text.contains(&format!(": 2 proxies, in force; refused at first by {expected}\n")),
                "{text}"
            );
        }
    }

    #[test]
    fn one_change_has_its_diff() {
        assert_eq!(
            one_text(&change(), &Screen::plain()),
            "revision 42 at 2026-11-23T13:00:00Z: 2 proxies, in force after 0.035 s\n\n\
             VirtualService shop/catalog changed, generation 3, from routes.yaml:1\n@@ -1 +1 @@\n-timeout: 1s\n+timeout: 2s\n"
        );
    }
}
