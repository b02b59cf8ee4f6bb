//! Objects from files: folders of YAML, single files, and the files of mesh config and networks.
//!
//! ```text
//! notify ─▶ Dirty (paths, bounded) ─▶ loop: what is due ─▶ read files ─▶ FileState (pure) ─▶ SourceBatch ─▶ channel
//!                                       ▲ rescan from time to time
//! ```

mod dirty;
mod look;
mod objects;
mod parallel;
mod scan;
mod source;
mod state;
mod validate;
mod watch;

pub use source::{FileSource, FileSourceSettings, OpenError, RunningFileSource, Timing};
pub use state::{FileChange, FileContent, FileRole, FileState};
pub use validate::{ValidateSummary, validate_paths};
