//! The report in text.

use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use crate::terminal::one_line;
use pilotfish_api::causes;
use pilotfish_api::counted;
use pilotfish_compare::{Cause, ProxyResult, Report};
use serde_json::Value;
use std::fmt::Write;

/// Maximum number of characters of a value.
const VALUE: usize = 200;

pub(super) fn text(report: &Report, screen: &Screen) -> String {
    let mut table = Table::new(["proxy", "equal", "known", "unknown"]);
    for row in &report.proxies {
        let colour = |count, colour| if count == 0 { Colour::Good } else { colour };
        table.row([
            row.proxy.as_str().into(),
            row.equal.to_string().into(),
            Cell::coloured(row.known.to_string(), colour(row.known, Colour::Doubtful)),
            Cell::coloured(row.unknown.to_string(), colour(row.unknown, Colour::Bad)),
        ]);
    }
    let mut out = if table.is_empty() { String::new() } else { table.text(screen) };
    for cause in &report.causes {
        out.push('\n');
        write_cause(&mut out, cause, screen);
    }
    if !report.failed.is_empty() {
        let line = format!("{} not compared:", counted(report.failed.len(), "proxy"));
        out.push('\n');
        let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
    }
    for failed in &report.failed {
        let _ = writeln!(out, "  {}: {}", one_line(&failed.what), one_line(&failed.error));
    }
    if !report.proxies.is_empty() {
        out.push('\n');
        out.push_str(&verdict(report, screen));
    }
    out
}

fn write_cause(out: &mut String, cause: &Cause, screen: &Screen) {
    let (word, colour) = if cause.is_known { ("known", Colour::Doubtful) } else { ("unknown", Colour::Bad) };
    let what = cause.what.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(out, "{} {}", screen.paint(word, colour), one_line(&what));
    let differences = counted(cause.differences, "difference");
    let more = cause.proxies.saturating_sub(cause.names.len());
    let names = cause.names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
    let _ = writeln!(out, "  {differences} in {}: {}", counted(cause.proxies, "proxy"), one_line(&names));
    let place = &cause.example.place;
    let field = if place.field.is_empty() { String::new() } else { format!(": {}", place.field) };
    let line = format!("{} {} {}{field}", place.proxy, place.kind, place.resource);
    let _ = writeln!(out, "  such as {}", one_line(&line));
    let _ = writeln!(out, "    istiod     {}", value(cause.example.istiod.as_ref()));
    let _ = writeln!(out, "    Pilotfish  {}", value(cause.example.pilotfish.as_ref()));
    let made_by = causes(&cause.made_by, |first, others| format!("{first} (or {others})"));
    if !made_by.is_empty() {
        let _ = writeln!(out, "    made by    {}", one_line(&made_by));
    }
}

/// A value in one short line.
fn value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(absent)".to_owned() };
    let text = value.to_string();
    let mut short: String = text.chars().take(VALUE).collect();
    if short.len() < text.len() {
        short.push_str(" ...");
    }
    one_line(&short)
}

fn verdict(report: &Report, screen: &Screen) -> String {
    let count =
        |is_meant: fn(&ProxyResult) -> bool| report.proxies.iter().filter(|row| is_meant(row)).count();
    let (all, unknown) = (report.proxies.len(), count(|row| row.unknown > 0));
    let known = count(|row| row.unknown == 0 && row.known > 0);
    let (line, colour) = if unknown > 0 {
        let ways = counted(report.unknown(), "way");
        (
            format!(
                "{unknown} of {} would get other configuration, in {ways} not known",
                counted(all, "proxy")
            ),
            Colour::Bad,
        )
    } else if known > 0 {
        (
            format!("{known} of {} would get other configuration, in known ways only", counted(all, "proxy")),
            Colour::Doubtful,
        )
    } else {
        (
            format!(
                "{} would get what {} now",
                counted(all, "proxy"),
                if all == 1 { "it has" } else { "they have" }
            ),
            Colour::Good,
        )
    };
    screen.paint(&line, colour) + "\n"
}
