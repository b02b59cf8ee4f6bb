//! Objects from files: folders of YAML, single files, and the files of mesh config and networks.
//!
//! ```text
//! notify ─▶ ChangeQueue (paths) ─▶ Scanner: reads files ─▶ FileState (pure) ─▶ SourceBatch ─▶ channel
//!                                   ▲ periodic full scan
//! ```

mod change_queue;
mod objects;
mod once;
mod parallel;
mod path;
mod rescan;
mod scanner;
mod source;
mod state;
mod validate;
mod walk;
mod watch;
mod writes;

pub use once::{OnceError, ReadText, read_once};
pub use path::FilePath;
pub use source::{FileHeartbeats, FileSource, FileSourceSettings, OpenError, RunningFileSource, Timing};
pub use state::{FileChange, FileContent, FileRole, FileState};
pub use validate::{STANDARD_INPUT, ValidateSummary, validate_paths, validate_with_input};
