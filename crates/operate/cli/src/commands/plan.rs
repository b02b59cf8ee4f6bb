//! `pilotfish plan`: its flags and output. The command itself is part of the binary, which reads files like
//! `serve`, and can also plan on directories alone.

use crate::client::Connection;
use crate::error::CliError;
use crate::output::{Colour, Output, Screen};
use crate::terminal::one_line;
use crate::words::is_or_are;
use clap::Args;
use pilotfish_api::counted;
use pilotfish_api::v1::{Plan, PlanFile, PlanRequest, Severity};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows what a change would do, before it is made.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Files and folders whose objects would be applied; `-` for standard input
    #[arg(value_name = "PATH", required_unless_present = "delete")]
    pub paths: Vec<PathBuf>,
    /// An object that would be deleted: KIND/NAMESPACE/NAME
    #[arg(long, value_name = "OBJECT")]
    pub delete: Vec<String>,
    /// Compares with this folder instead of a running control plane, for a sidecar of each workload in it and
    /// for those that are gateways
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
    /// With --base: PATH is all that there will be, so what is not in it goes; else it is added to the base
    #[arg(long, requires = "base")]
    pub replace: bool,
    /// With --base: Istio's MeshConfig of both
    #[arg(long, value_name = "FILE", requires = "base")]
    pub mesh_config: Option<PathBuf>,
    /// With --base: Istio's MeshNetworks of both
    #[arg(long, value_name = "FILE", requires = "base")]
    pub mesh_networks: Option<PathBuf>,
    /// Lines of each diff at most
    #[arg(long, default_value_t = 60, value_name = "LINES")]
    pub lines: usize,
    /// Ends with 3 where something changes, and nothing dangerous
    #[arg(long)]
    pub exit_code: bool,
    #[command(flatten)]
    pub output: Output,
    /// Address flags, for plans without `--base`.
    #[command(flatten)]
    pub connection: Connection,
}

impl PlanArgs {
    /// Asks the running control plane for the plan of these files.
    ///
    /// # Errors
    /// If the request fails.
    pub async fn ask(&self, files: Vec<PlanFile>) -> Result<Plan, CliError> {
        self.connection.client().post("plan", &PlanRequest { files, delete: self.delete.clone() }).await
    }

    /// Exit code for a plan.
    #[must_use]
    pub fn code(&self, plan: &Plan) -> ExitCode {
        ExitCode::from(code(plan.severity, self.exit_code))
    }
}

fn code(severity: Severity, of_changes: bool) -> u8 {
    match severity {
        Severity::Changes if of_changes => 3,
        Severity::Nothing | Severity::Changes => 0,
        Severity::Invalid => 1,
        Severity::Dangerous => 4,
    }
}

/// Prints a plan with at most `lines` lines of each diff.
///
/// # Errors
/// If it cannot be written.
pub fn show(plan: &Plan, output: Output, lines: usize) -> Result<(), CliError> {
    output.write(plan, |screen| text(plan, lines, screen))
}

fn text(plan: &Plan, lines: usize, screen: &Screen) -> String {
    let mut out = String::new();
    if plan.severity == Severity::Invalid {
        let line =
            format!("the files have {}, and nothing is planned:", counted(plan.problems.len(), "error"));
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
        for problem in &plan.problems {
            let line = format!("{}: {} {}: {}", problem.place, problem.object, problem.path, problem.message);
            let _ = writeln!(out, "  {}", one_line(&line));
            if !problem.hint.is_empty() {
                let _ = writeln!(out, "    hint: {}", one_line(&problem.hint));
            }
        }
        return out;
    }
    let (line, colour) = blast_radius(plan);
    let _ = writeln!(out, "{}", screen.paint(&line, colour));
    for danger in &plan.dangers {
        let examples = examples(&danger.examples, danger.proxies);
        let _ = writeln!(out, "{} {} ({examples})", screen.paint("DANGER", Colour::Bad), danger.what);
    }
    for impact in &plan.impact {
        let sections: std::collections::BTreeSet<&str> = impact
            .changes
            .iter()
            .filter_map(|at| plan.changes.get(*at))
            .map(|change| change.section.as_str())
            .collect();
        let sections = sections.into_iter().collect::<Vec<_>>().join(", ");
        let who = examples(&impact.names, impact.proxies);
        let _ = writeln!(out, "{who}: {} ({sections})", counted(impact.changes.len(), "resource"));
    }
    for change in &plan.changes {
        let head = format!("{} {} {}", change.what, change.section, change.name);
        let by = examples(&change.made_by, change.made_by.len());
        let _ = writeln!(out, "\n{head}, for {}, by {by}", counted(change.proxies, "proxy"));
        diff(&change.diff, lines, screen, &mut out);
    }
    if plan.truncated {
        out.push_str("\nmore resources change than are shown\n");
    }
    out
}

fn blast_radius(plan: &Plan) -> (String, Colour) {
    let Plan { proxies, proxies_changed, resources, objects, .. } = plan;
    let gets = if *proxies_changed == 1 { "gets" } else { "get" };
    let (all, by) = (counted(*proxies, "proxy"), counted(*objects, "object"));
    let what =
        format!("{proxies_changed} of {all} {gets} {} from {by}", counted(*resources, "changed resource"));
    match plan.severity {
        Severity::Nothing if *objects == 0 => {
            ("nothing changes: the objects are in force as they are".to_owned(), Colour::Good)
        }
        Severity::Nothing => {
            let change = if *objects == 1 { "changes" } else { "change" };
            (format!("{by} {change}, and no resource of {all}"), Colour::Good)
        }
        Severity::Dangerous => (
            format!(
                "{what}; {} {} dangerous",
                counted(plan.dangers.len(), "change"),
                is_or_are(plan.dangers.len())
            ),
            Colour::Bad,
        ),
        _ => (format!("{what}; nothing is dangerous"), Colour::Doubtful),
    }
}

/// Shortened list of names: `a, b, c and 4 more`.
fn examples(names: &[String], all: usize) -> String {
    const FEW: usize = 3;
    let shown: Vec<&str> = names.iter().take(FEW).map(String::as_str).collect();
    let more = all.saturating_sub(shown.len());
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

fn diff(diff: &str, most: usize, screen: &Screen, out: &mut String) {
    let count = diff.lines().count();
    for line in diff.lines().take(most) {
        let painted = match line.as_bytes().first() {
            Some(b'+') => screen.paint(line, Colour::Good),
            Some(b'-') => screen.paint(line, Colour::Bad),
            Some(b'@') => screen.paint(line, Colour::Faint),
            _ => line.to_owned(),
        };
        let _ = writeln!(out, "{painted}");
    }
    if count > most {
        let _ = writeln!(out, "... {} more lines; --lines shows them", count - most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::{Danger, Impact, PlanChange, Section};

    #[test]
    fn file_names_with_line_breaks_make_no_lines_of_their_own() {
        let problem = pilotfish_api::Problem { place: "a\nerror: b:1".into(), ..Default::default() };
        let plan = Plan { severity: Severity::Invalid, problems: vec![problem], ..Plan::default() };
        let text = text(&plan, 10, &Screen::plain());
        assert_eq!(text, "the files have 1 error, and nothing is planned:\n  a error: b:1:  : \n");
    }

    fn plan() -> Plan {
        let change = PlanChange {
            section: Section::Routes,
            name: "80".into(),
            what: "changed".into(),
            before: "1".into(),
            after: "2".into(),
            proxies: 4,
            made_by: vec!["VirtualService shop/web".into()],
            diff: "@@ -1 +1 @@\n-a: 1\n+a: 2\n".into(),
        };
        let names: Vec<String> = (0..4).map(|n| format!("web-{n}.shop")).collect();
        Plan {
            severity: Severity::Dangerous,
            objects: 1,
            proxies_changed: 4,
            proxies: 9,
            resources: 1,
            dangers: vec![Danger {
                what: "the route of web goes".into(),
                proxies: 4,
                examples: names.clone(),
            }],
            impact: vec![Impact { proxies: 4, names, changes: vec![0] }],
            changes: vec![change],
            ..Plan::default()
        }
    }

    #[test]
    fn the_blast_radius_is_first_then_dangers_then_diffs() {
        assert_eq!(
            text(&plan(), 2, &Screen::plain()),
            "4 of 9 proxies get 1 changed resource from 1 object; 1 change is dangerous\n\
             DANGER the route of web goes (web-0.shop, web-1.shop, web-2.shop and 1 more)\n\
             web-0.shop, web-1.shop, web-2.shop and 1 more: 1 resource (routes)\n\n\
             changed routes 80, for 4 proxies, by VirtualService shop/web\n@@ -1 +1 @@\n-a: 1\n... 1 more lines; --lines shows them\n"
        );
    }

    #[test]
    fn the_exit_code_tells_how_grave_it_is() {
        let codes = |of_changes| {
            [Severity::Nothing, Severity::Changes, Severity::Dangerous, Severity::Invalid]
                .map(|s| code(s, of_changes))
        };
        assert_eq!((codes(false), codes(true)), ([0, 0, 4, 1], [0, 3, 4, 1]));
    }
}
