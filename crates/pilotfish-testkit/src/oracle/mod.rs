//! How much of what Pilotfish sends is what istiod sends: the recorded cases, compared.
//!
//! ```text
//! cases ─▶ Dumps: from files, over the wire, live ─▶ score ─▶ Scores ─▶ Known: differences.yaml ─▶ Verdict
//!                                                               └─────▶ page: docs/differences.md
//! ```
//!
//! Whatever differs and is not in `oracle/differences.yaml` is an error, and so is what is there and no longer differs.

mod judge;
mod known;
mod page;
mod score;
#[cfg(test)]
mod tests;
mod text;
mod update;

pub use judge::Verdict;
pub use known::{Known, Way};
pub use page::{check_pages, write_pages};
pub use score::{CaseScore, Found, Scores, dumps, dumps_of_files, score};

use std::path::{Path, PathBuf};

/// The folder of the repository's recorded cases.
#[must_use]
pub fn cases_folder() -> PathBuf {
    repository().join("oracle/cases")
}

/// The list of known differences.
#[must_use]
pub fn known_file() -> PathBuf {
    repository().join("oracle/differences.yaml")
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// How many cases to compare side by side.
#[must_use]
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
