//! Client commands: queries and operations for a running control plane, on the same machine or in a Pod of a
//! cluster.
//!
//! ```text
//! Commands ── clap ──▶ Client ── HTTP/1.1, JSON ──▶ /api/v1 of the admin address
//!     ▲                   │
//!     │                   └── Dial: TCP, or the API server of a cluster (connection made by the binary)
//!     └── text, JSON or YAML on stdout; errors with a hint on stderr
//! ```
//!
//! Commands print only the result on stdout, so that it can be piped. They end within `--timeout`, with
//! specific exit codes.

mod client;
mod commands;
mod dial;
mod error;
mod output;
mod table;
mod terminal;
mod time;
mod words;

pub use client::{Client, Connection};
pub use commands::compare::cluster::{ClusterAnswer, ProxyCluster, TOKEN_LIFETIME, open_proxy_clusters_by};
pub use commands::compare::istiod::{
    IstiodAnswer, IstiodCredential, IstiodQuestion, IstiodReading, read_istiod_by,
};
pub use commands::plan::{PlanArgs, show as show_plan};
pub use commands::why::Why;
pub use commands::{Commands, Shown, rotate_ca, show_ca_roots, show_ca_status, show_registries};
pub use dial::{Dial, Dialing, InCluster, Socket, TlsFiles, dial_tls_by, reach_clusters_by};
pub use error::CliError;
pub use output::{Format, Output, Screen};
pub use pilotfish_api::counted;
pub use terminal::{cleaned, one_line};
pub use time::parse_duration;
