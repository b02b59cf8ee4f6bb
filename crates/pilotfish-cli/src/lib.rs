//! Client commands: what an operator asks a running control plane, from its own machine or through `kubectl port-forward`.
//!
//! ```text
//! Commands ── clap ──▶ Client ── HTTP/1.1, JSON ──▶ /api/v1 of the admin address
//!     ▲                   │
//!     └── text, JSON or YAML on stdout; errors with a hint on stderr
//! ```
//!
//! A command prints nothing but what was asked for on stdout, so that it can be piped. It ends within `--timeout`, with an exit code of its own.

mod client;
mod commands;
mod error;
mod output;
mod table;
mod time;

pub use client::{Client, Connection};
pub use commands::plan::{PlanArgs, PlanFiles, show as show_plan};
pub use commands::why::Why;
pub use commands::{Commands, show_registries};
pub use error::CliError;
pub use output::{Format, Output, Screen, Watch};
