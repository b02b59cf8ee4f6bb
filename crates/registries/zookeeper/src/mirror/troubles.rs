//! Problems of single nodes, summarized in one line: the first one and their number.

use std::collections::BTreeMap;
use std::fmt::Display;

/// Maximum number of problems kept.
const MAX: usize = 1_000;
/// Maximum number of characters shown of a path: provider nodes have long names.
const SHOWN: usize = 120;

#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<String, String>);

impl Troubles {
    pub(super) fn note(&mut self, path: &str, reason: &impl Display) {
        if self.0.len() < MAX || self.0.contains_key(path) {
            self.0.insert(path.to_owned(), reason.to_string());
        }
    }

    pub(super) fn clear(&mut self, path: &str) {
        self.0.remove(path);
    }

    pub(super) fn summary(&self) -> Option<String> {
        let (path, reason) = self.0.first_key_value()?;
        let shown: String = path.chars().take(SHOWN).collect();
        Some(match self.0.len() {
            1 => format!("{shown}: {reason}"),
            MAX.. => format!("{shown}: {reason} (and {MAX} more nodes or more)"),
            count => format!("{shown}: {reason} (and {} more nodes)", count - 1),
        })
    }
}
