//! Deterministic text of the list of known differences.

use super::known::{Entry, Known, Resource, Sides, Way};
use serde_json::Value;
use std::fmt::Write;

const HEAD: &str = "\
# Where Pilotfish does not send what the recorded istiod sent. Whatever else differs fails the tests, and so does what is listed
# here and no longer differs.
#
# `kept`: on purpose. `open`: to be mended. `refused`: objects that istiod reads without its webhook and Pilotfish does not take.
# A resource is `missing`, or `extra` with a digest of what is sent, or has fields that differ, each with both values; a side that
# does not have the field is left out, and a long value is a digest. `only: [wire]` is for what shows one way (files, wire, live).
#
# `signs`: for `pilotfish compare`. In another mesh, a difference of the same kind and field is this one only if one of these texts is in the
# differing values of its resource or in the objects that made it, or if its values differ in capital letters only.
#
# `cargo run -p pilotfish-testkit --bin oracle -- --write-differences` writes what differs now and keeps the reasons.
";
const WIDTH: usize = 118;

impl Known {
    /// The list in the committed format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = HEAD.to_owned();
        for (title, entries) in [("kept", &self.kept), ("open", &self.open)] {
            if !entries.is_empty() {
                let _ = write!(out, "\n{title}:\n");
                entries.iter().for_each(|entry| write_entry(&mut out, entry));
            }
        }
        if !self.refused.is_empty() {
            out.push_str("\nrefused:\n");
        }
        for it in &self.refused {
            let _ = write!(out, "- case: {}\n  object: {}\n", plain(&it.case), plain(&it.object));
            write_reason(&mut out, "  ", &it.reason);
        }
        out
    }
}

fn write_entry(out: &mut String, entry: &Entry) {
    let from = out.len();
    write_reason(out, "  ", &entry.reason);
    out.replace_range(from..from + 1, "-");
    if !entry.only.is_empty() {
        let ways: Vec<&str> = entry.only.iter().map(|way| way.name()).collect();
        let _ = writeln!(out, "  only: [{}]", ways.join(", "));
    }
    if !entry.signs.is_empty() {
        let signs: Vec<String> = entry.signs.iter().map(|sign| plain(sign)).collect();
        let _ = writeln!(out, "  signs: [{}]", signs.join(", "));
    }
    out.push_str("  differs:\n");
    for (place, resources) in &entry.differs {
        let _ = writeln!(out, "    {}:", plain(place));
        for (resource, how) in resources {
            match how {
                Resource::Whole(text) => {
                    let _ = writeln!(out, "      {}: {text}", plain(resource));
                }
                Resource::Fields(fields) => {
                    let _ = writeln!(out, "      {}:", plain(resource));
                    for (field, sides) in fields {
                        let _ = writeln!(out, "        {}: {}", plain(field), flow(sides));
                    }
                }
            }
        }
    }
}

fn write_reason(out: &mut String, indent: &str, reason: &str) {
    let _ = writeln!(out, "{indent}reason: >-");
    let mut line = String::new();
    for word in reason.split_whitespace() {
        if !line.is_empty() && indent.len() + 2 + line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{indent}  {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{indent}  {line}");
}

fn flow(sides: &Sides) -> String {
    let side = |name: &str, value: &Option<Value>| value.as_ref().map(|value| format!("{name}: {value}"));
    let sides: Vec<String> =
        [side("istiod", &sides.istiod), side("pilotfish", &sides.pilotfish)].into_iter().flatten().collect();
    format!("{{{}}}", sides.join(", "))
}

/// YAML scalar, in quotes if necessary.
fn plain(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || " ._|/~*[]@+-".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_plain = starts && text.chars().all(safe) && text.trim() == text;
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Wire => "wire",
            Self::Live => "live",
        }
    }
}
