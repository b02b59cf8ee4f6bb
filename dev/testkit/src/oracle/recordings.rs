//! Comparison of two sets of recordings: what another version of istiod sends in the same cases.

use super::{CaseScore, Found, Scores, score, threads};
use crate::cases::Case;
use anyhow::Result;
use pilotfish_compare::by_form;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Differences between the recordings in two folders of cases.
pub struct Recordings {
    scores: Scores,
    /// Names of cases that only the older folder has.
    gone: Vec<String>,
    /// Names of cases that only the newer folder has.
    new: Vec<String>,
}

impl Recordings {
    /// Compares the recordings of all cases that are in both folders.
    ///
    /// # Errors
    /// When a folder or a `proxies.yaml` cannot be read.
    pub fn between(old: &Path, new: &Path) -> Result<Self> {
        let by_name = |folder: &Path| -> Result<BTreeMap<String, Case>> {
            Ok(Case::all(folder)?.into_iter().map(|case| (case.name.clone(), case)).collect())
        };
        let (mut old, new) = (by_name(old)?, by_name(new)?);
        let only_new = new.keys().filter(|name| !old.contains_key(*name)).cloned().collect();
        let gone: Vec<String> = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        old.retain(|name, _| new.contains_key(name));
        let cases: Vec<Case> = old.into_values().collect();
        let scores = score(&cases, threads(), |case| {
            let newer = new.get(&case.name).expect("only cases of both folders are compared");
            let dump = |proxy| newer.golden(proxy);
            let dumps = case.proxies.iter().map(|proxy| Ok((proxy.name.clone(), dump(proxy)?)));
            Ok(Found { dumps: dumps.collect::<Result<_>>()?, refused: Vec::new() })
        });
        Ok(Self { scores, gone, new: only_new })
    }
}

/// A value in at most 300 characters.
#[must_use]
pub fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), |value| value.to_string().chars().take(300).collect())
}

impl Recordings {
    /// A list of what differs, with at most `most` resources for each field.
    pub fn list(&self, most: usize) -> impl fmt::Display {
        fmt::from_fn(move |f| self.write(f, most))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, most: usize) -> fmt::Result {
        for (form, alike) in by_form(self.scores.differences()) {
            let cases: BTreeSet<&str> =
                alike.iter().filter_map(|(place, _)| place.split('/').next()).collect();
            writeln!(f, "{form}: {} in {} cases", alike.len(), cases.len())?;
            if let Some((_, first)) = alike.first() {
                writeln!(f, "  old {}\n  new {}", shown(first.want.as_ref()), shown(first.got.as_ref()))?;
            }
            for (place, difference) in alike.iter().take(most) {
                writeln!(f, "    {place} {}", difference.resource)?;
            }
            if alike.len() > most {
                writeln!(f, "    (and {} more)", alike.len() - most)?;
            }
        }
        for CaseScore { case, error, .. } in &self.scores.0 {
            error.iter().try_for_each(|error| writeln!(f, "{case}: {error}"))?;
        }
        for (what, names) in [("only in the older folder", &self.gone), ("new", &self.new)] {
            if !names.is_empty() {
                writeln!(f, "{what}: {}", names.join(", "))?;
            }
        }
        let (same, all) = self.scores.counts();
        let whole = self.scores.whole();
        writeln!(f, "equal: {same} of {all} resources, {whole} of {} cases", self.scores.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(root: &Path, case: &str, dump: &Value) {
        let folder = root.join(case);
        std::fs::create_dir_all(folder.join("golden")).unwrap();
        std::fs::write(folder.join("proxies.yaml"), "- name: client\n").unwrap();
        std::fs::write(folder.join("golden/client.json"), dump.to_string()).unwrap();
    }

    #[test]
    fn differences_are_grouped_by_field_with_their_resources() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        let cluster = |threshold: u32| json!({"clusters": {"a": {"limit": threshold}, "b": {}}});
        record(&old, "first", &cluster(1));
        record(&new, "first", &cluster(2));
        record(&old, "second", &cluster(1));
        record(&new, "second", &json!({"clusters": {"a": {"limit": 2}}}));
        record(&old, "dropped", &json!({}));
        record(&new, "added", &json!({}));
        let text = Recordings::between(&old, &new).unwrap().list(1).to_string();
        assert_eq!(
            text,
            "clusters: limit: 2 in 2 cases\n  old 1\n  new 2\n    first/client a\n    (and 1 more)\n\
             clusters: missing: 1 in 1 cases\n  old {}\n  new (absent)\n    second/client b\n\
             only in the older folder: dropped\nnew: added\nequal: 1 of 4 resources, 0 of 2 cases\n"
        );
    }

    #[test]
    fn a_recording_that_is_missing_is_an_error_of_its_case() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        record(&old, "first", &json!({}));
        record(&new, "first", &json!({}));
        std::fs::remove_file(new.join("first/golden/client.json")).unwrap();
        let text = Recordings::between(&old, &new).unwrap().list(1).to_string();
        assert!(text.starts_with("first: no recording\n"), "{text}");
    }
}
