//! The page of the documentation that lists what a stock Envoy does not take.

use super::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

/// Writes the page instead of comparing it, when set.
const WRITE: &str = "PILOTFISH_WRITE_DOCS";
/// What stands before the generated part of the page.
const MARK: &str = "<!-- What follows is written by the test. -->\n";

/// What was found over all cases.
#[derive(Default)]
pub(crate) struct Findings {
    /// Proxies that are no Envoys: case and name.
    pub(crate) no_envoys: Vec<(String, String)>,
    /// Extension's type to the names that it goes by.
    pub(crate) extensions: BTreeMap<String, BTreeSet<String>>,
    /// Case to the types that are lacking to the proxies.
    pub(crate) lacking: BTreeMap<String, BTreeMap<Vec<String>, Vec<String>>>,
    /// Refused although nothing is lacking: case and proxy to Envoy's words.
    pub(crate) refused: BTreeMap<String, BTreeSet<String>>,
}

impl Findings {
    /// Notes what a proxy as recorded needs and Envoy lacks.
    pub(crate) fn lacks(&mut self, case: &str, proxy: &str, lacking: &BTreeMap<String, BTreeSet<String>>) {
        for (ty, names) in lacking {
            self.extensions.entry(ty.clone()).or_default().extend(names.iter().cloned());
        }
        let of_case = self.lacking.entry(case.to_owned()).or_default();
        of_case.entry(lacking.keys().cloned().collect()).or_default().push(proxy.to_owned());
    }

    /// Records Envoy's rejections of resources in which nothing is lacking.
    pub(crate) fn refuses(&mut self, place: &str, refusals: &[Refusal]) {
        for refusal in refusals {
            let text = refusal.error.trim_end().to_owned();
            self.refused.entry(place.to_owned()).or_default().insert(text);
        }
    }

    fn page(&self) -> String {
        let mut out = String::new();
        let ids: BTreeMap<&String, String> =
            self.extensions.keys().zip(1..).map(|(ty, at)| (ty, format!("E{at}"))).collect();
        out.push_str("\n## Rejected for another reason\n\n");
        out.push_str("The recorded istiod sends the same.\n");
        write_refusals(&mut out, &self.refused);
        out.push_str(
            "\n## What a stock Envoy lacks\n\n| | type of the extension | sent as |\n|---|---|---|\n",
        );
        for (ty, names) in &self.extensions {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(out, "| {} | `{ty}` | {} |", ids[ty], names.join(", "));
        }
        out.push_str("\n## Recorded proxies that need Istio's Envoy\n\n");
        out.push_str("| case | proxies | lacks |\n|---|---|---|\n");
        for (case, groups) in &self.lacking {
            for (types, proxies) in groups {
                let types: Vec<&str> = types.iter().map(|ty| ids[ty].as_str()).collect();
                let _ = writeln!(out, "| {case} | {} | {} |", proxies.join(", "), types.join(", "));
            }
        }
        out.push_str("\n## Recorded proxies that are gRPC programs\n\n");
        for (case, proxy) in &self.no_envoys {
            let _ = writeln!(out, "- {case}: {proxy} (gRPC)");
        }
        out
    }

    /// Compares with the page in the documentation.
    pub(crate) fn check(&self) {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/accepted.md");
        let text = std::fs::read_to_string(&file).expect("the page is there");
        let (head, written) = text.split_once(MARK).expect("the page has its mark");
        let page = self.page();
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&file, format!("{head}{MARK}{page}")).expect("the page can be written");
            return;
        }
        let new: Vec<&str> = page.lines().filter(|line| !written.contains(line)).collect();
        let old: Vec<&str> = written.lines().filter(|line| !page.contains(line)).collect();
        assert!(
            written == page,
            "docs/accepted.md is out of date (to rewrite it: {WRITE}=1)\nonly in the page: {old:#?}\nnow: {new:#?}"
        );
    }
}

fn write_refusals(out: &mut String, refused: &BTreeMap<String, BTreeSet<String>>) {
    for (place, errors) in refused {
        let errors: Vec<&str> = errors.iter().map(String::as_str).collect();
        let _ = write!(out, "\n`{place}`:\n\n```text\n{}\n```\n", errors.join("\n"));
    }
}
