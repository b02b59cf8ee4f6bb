//! Comparison of Pilotfish's resources with istiod's in the recorded cases.
//!
//! ```text
//! cases ─▶ Dumps: from files, over the wire, live ─▶ score ─▶ Scores ─▶ Known: differences.yaml ─▶ Verdict
//!                                                               └─────▶ page: docs/differences.md
//! ```
//!
//! A difference that is not in `oracle/differences.yaml` is an error, as is an entry there that no longer
//! differs.

mod judge;
mod known;
mod page;
mod recordings;
mod score;
#[cfg(test)]
mod tests;
mod text;
mod update;

pub use judge::Verdict;
pub use known::{Known, Way};
pub use page::{check_pages, write_pages};
pub use recordings::{Recordings, shown};
pub use score::{CaseScore, Found, Scores, dumps, dumps_of_files, score};

use std::path::{Path, PathBuf};

/// Folder of the repository's recorded cases.
#[must_use]
pub fn cases_folder() -> PathBuf {
    repository().join("oracle/cases")
}

/// Path of the list of known differences.
#[must_use]
pub fn known_file() -> PathBuf {
    repository().join("oracle/differences.yaml")
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Number of cases to compare in parallel.
#[must_use]
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
