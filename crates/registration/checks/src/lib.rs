//! Active health checks that Pilotfish runs against registered instances: HTTP, TCP and gRPC.
//!
//! ```text
//! Directory ─ instances ─▶ CheckHandle ─▶ Schedule (pure) ─ probes that are due ─▶ the network
//!                                            │  ▲───────────── results ────────────────┘
//!                                            └─ Verdicts: unhealthy and why, healthy ─▶ liveness
//! ```
//!
//! [`Schedule`] is a state machine without IO or clock: it holds the checks, their due times and the health
//! of instances. [`CheckRunner`] runs due probes, a bounded number at a time. A failing instance is marked
//! unhealthy and never removed. Every Pilotfish process runs its own checks.
//!
//! **Not a scanner.** A client that may register can name any address. So a check goes only to the instance's
//! own primary address and one of its own ports, never to a name; [`Networks`] restricts the addresses (by
//! default not loopback, link-local or the metadata services of clouds); one address gets a bounded number of
//! checks; and only the status of a response is published.

mod feed;
mod handle;
mod machine;
mod networks;
mod probe;
mod runner;
mod schedule;
mod settings;

pub use feed::{CheckFeed, report_checks};
pub use handle::{CheckHandle, CheckReport, Verdict, checks};
pub use machine::{Machine, Outcome};
pub use networks::Networks;
pub use runner::CheckRunner;
pub use schedule::{Probe, Refusal, Schedule, Ticket};
pub use settings::CheckSettings;
