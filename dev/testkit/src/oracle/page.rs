//! Generated parts of the documentation, from the score and the list of known differences.

use super::known::Entry;
use super::{Known, Scores, repository};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Areas in the order of the table; other ones follow.
const AREAS: [&str; 15] = [
    "k8s", "se", "we", "vs", "dr", "gw", "sc", "sec", "ef", "tel", "mesh", "grpc", "ingress", "net", "gwapi",
];
const PAGES: [&str; 2] = ["docs/differences.md", "README.md"];
const END: &str = "<!-- /oracle -->";

/// Outdated parts of the documentation; empty if there are none.
///
/// # Errors
/// When a page cannot be read, or refers to an unknown part.
pub fn check_pages(scores: &Scores, known: &Known) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (page, text, made) in pages(scores, known)? {
        let lines = made.lines().filter(|line| !text.lines().any(|it| it == *line));
        stale.extend(lines.map(|line| format!("{page} should have: {line}")));
        if made != text && stale.is_empty() {
            stale.push(format!("{page} has lines that should not be there"));
        }
    }
    Ok(stale)
}

/// Writes the generated parts of the documentation.
///
/// # Errors
/// When a page cannot be read or written, or refers to an unknown part.
pub fn write_pages(scores: &Scores, known: &Known) -> Result<()> {
    for (page, text, made) in pages(scores, known)? {
        if made != text {
            std::fs::write(repository().join(page), made).with_context(|| format!("writing {page}"))?;
        }
    }
    Ok(())
}

/// Each page with its current and its expected text.
fn pages(scores: &Scores, known: &Known) -> Result<Vec<(&'static str, String, String)>> {
    let parts = BTreeMap::from([
        ("share", share(scores)),
        ("areas", areas(scores)),
        ("known", differences(known)),
        ("refused", refused(known)),
    ]);
    let page = |page| {
        let file = repository().join(page);
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {page}"))?;
        let made = filled(&text, &parts).with_context(|| format!("in {page}"))?;
        Ok((page, text, made))
    };
    PAGES.into_iter().map(page).collect()
}

/// Replaces every part between `<!-- oracle: NAME -->` and `<!-- /oracle -->`.
fn filled(text: &str, parts: &BTreeMap<&str, String>) -> Result<String> {
    let mut pieces = text.split("<!-- oracle: ");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(" -->").context("a mark has no end")?;
        let (_, after) = rest.split_once(END).with_context(|| format!("{name} has no {END}"))?;
        let part = parts.get(name).with_context(|| format!("there is no part {name}"))?;
        let _ = write!(out, "<!-- oracle: {name} -->{part}{END}{after}");
    }
    Ok(out)
}

fn share(scores: &Scores) -> String {
    let (same, all) = scores.counts();
    let (all, cases, share) = (thousands(all), scores.0.len(), percent(same, all));
    format!("Of {all} resources in {cases} recorded cases of istiod 1.31.0, {share} % are equal")
}

fn areas(scores: &Scores) -> String {
    let mut areas: BTreeMap<(usize, &str), [usize; 4]> = BTreeMap::new();
    for case in &scores.0 {
        let at = AREAS.iter().position(|area| *area == case.area()).unwrap_or(AREAS.len());
        let (same, all) = case.counts();
        let row = areas.entry((at, case.area())).or_default();
        for (sum, more) in row.iter_mut().zip([same, all, usize::from(case.is_whole()), 1]) {
            *sum += more;
        }
    }
    let mut out = "\n\n| area | equal resources | share | whole cases |\n|---|---|---|---|\n".to_owned();
    for ((_, area), [same, all, whole, cases]) in areas {
        let _ = writeln!(out, "| {area} | {same}/{all} | {} % | {whole}/{cases} |", percent(same, all));
    }
    let (same, all) = scores.counts();
    let (share, whole, cases) = (percent(same, all), scores.whole(), scores.0.len());
    let _ = writeln!(out, "| all | {same}/{all} | {share} % | {whole}/{cases} |\n");
    out
}

fn differences(known: &Known) -> String {
    let mut out = "\n\n".to_owned();
    write_entries(&mut out, "On purpose:", &known.kept);
    write_entries(&mut out, "To be mended:", &known.open);
    out
}

fn write_entries(out: &mut String, title: &str, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    let _ = write!(out, "{title}\n\n| What, and why | Cases | Resources |\n|---|---|---|\n");
    for entry in entries {
        let (cases, resources) = entry.extent();
        let cases: Vec<String> = cases.iter().map(|case| format!("`{case}`")).collect();
        let reason: Vec<&str> = entry.reason.split_whitespace().collect();
        let _ = writeln!(out, "| {} | {} | {resources} |", reason.join(" "), cases.join(", "));
    }
    out.push('\n');
}

fn refused(known: &Known) -> String {
    if known.refused.is_empty() {
        return "\n\nNone.\n\n".into();
    }
    let mut out = "\n\n| Case | Object and field | Why |\n|---|---|---|\n".to_owned();
    for it in &known.refused {
        let reason: Vec<&str> = it.reason.split_whitespace().collect();
        let _ = writeln!(out, "| `{}` | {} | {} |", it.case, it.object, reason.join(" "));
    }
    out.push('\n');
    out
}

/// Percentage with two digits, rounded down: 100.00 means all.
fn percent(same: usize, all: usize) -> String {
    let hundredths = (same * 10_000).checked_div(all).unwrap_or(0);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_numbers_are_in_threes() {
        assert_eq!(
            [percent(9_999_999, 10_000_000), percent(3, 3), percent(0, 0)],
            ["99.99", "100.00", "0.00"]
        );
        assert_eq!([thousands(12), thousands(1_234), thousands(1_234_567)], ["12", "1,234", "1,234,567"]);
    }

    #[test]
    fn parts_between_marks_are_replaced_and_nothing_else() {
        let parts = BTreeMap::from([("a", "new".to_owned())]);
        let text = "x <!-- oracle: a -->old<!-- /oracle --> y";
        assert_eq!(filled(text, &parts).unwrap(), "x <!-- oracle: a -->new<!-- /oracle --> y");
        assert!(filled("<!-- oracle: b --><!-- /oracle -->", &parts).is_err());
        assert!(filled("<!-- oracle: a --> and no end", &parts).is_err());
    }
}
