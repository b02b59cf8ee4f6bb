//! `pilotfish problems`.

use super::shown::{Listed, and_more};
use crate::error::CliError;
use crate::output::{Colour, Screen};
use clap::Args;
use pilotfish_api::Problem;
use pilotfish_api::v1::Page;
use std::fmt::Write;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish problems                         everything that is wrong, with file and line
  pilotfish problems --errors                what is not in force
  pilotfish problems -n shop -o json

The exit code is 1 when there are errors.";

/// Shows what is wrong with objects.
#[derive(Args, Clone, Debug)]
pub struct Problems {
    /// Only objects of a namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only errors: objects whose newest version is not in force
    #[arg(long)]
    errors: bool,
    #[command(flatten)]
    list: Listed,
}

impl Problems {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        let mut query = Vec::new();
        query.extend(self.namespace.as_deref().map(|namespace| ("namespace", namespace)));
        query.extend(self.errors.then_some(("severity", "error")));
        self.list.run("problems", &query, text, code).await
    }
}

fn code(problems: &[Problem]) -> ExitCode {
    let bad = problems.iter().any(|problem| problem.severity == "error");
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn text(page: &Page<Problem>, screen: &Screen) -> String {
    if page.items.is_empty() {
        return "no problems\n".to_owned();
    }
    let mut out = String::new();
    for problem in &page.items {
        let colour = if problem.severity == "error" { Colour::Bad } else { Colour::Doubtful };
        let place =
            [&problem.place, &problem.object, &problem.path].into_iter().filter(|part| !part.is_empty());
        let place = place.map(String::as_str).collect::<Vec<_>>().join(": ");
        let _ = writeln!(
            out,
            "{} {place}: {}{}",
            screen.paint(&format!("{}:", problem.severity), colour),
            problem.message,
            if problem.code.is_empty() { String::new() } else { format!(" [{}]", problem.code) },
        );
        let in_force = match problem.in_force.as_str() {
            "last-good" => "its last good version stays in force",
            "dropped" => "nothing of it is in force",
            "closed" => "a closed form of it is in force",
            _ => "",
        };
        for (what, text) in [("hint", problem.hint.as_str()), ("in force", in_force)] {
            if !text.is_empty() {
                let _ = writeln!(out, "  {what}: {text}");
            }
        }
    }
    out + &and_more(page.items.len(), page.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_its_place_and_a_hint() {
        let problem = Problem {
            severity: "error".into(),
            code: String::new(),
            place: "shop.yaml:3".into(),
            object: "VirtualService shop/web".into(),
            path: "spec.hosts".into(),
            message: "must not be empty".into(),
            hint: "name a host".into(),
            in_force: "last-good".into(),
        };
        let page = Page { items: vec![problem], total: 1, ..Page::default() };
        assert_eq!(
            text(&page, &Screen::plain()),
            "error: shop.yaml:3: VirtualService shop/web: spec.hosts: must not be empty\n  hint: name a host\n  \
             in force: its last good version stays in force\n"
        );
    }
}
