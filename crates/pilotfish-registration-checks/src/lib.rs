//! Active health checks that Pilotfish runs against registered instances: HTTP, TCP and gRPC.
//!
//! ```text
//! Directory ─ instances ─▶ CheckHandle ─▶ Schedule (pure) ─ probes that are due ─▶ the network
//!                                            │  ▲───────────── results ────────────────┘
//!                                            └─ Verdicts: unhealthy and why, healthy ─▶ liveness
//! ```
//!
//! [`Schedule`] knows what is checked, when, and what results mean: a state machine without IO or clock. [`CheckRunner`] is the rim:
//! it runs what is due, a bounded number at a time. What a check fails is marked and never removed. Every Pilotfish checks for itself.
//!
//! **Not a scanner.** A client that may register can name any address. So a check goes to the instance's own primary address and to
//! one of its own ports alone, never to a name; [`Networks`] says which addresses may be asked at all (by default not loopback,
//! link-local or the metadata services of clouds); one address gets a bounded number of checks; and of an answer nothing but a status
//! is told.

mod handle;
mod machine;
mod networks;
mod probe;
mod runner;
mod schedule;
mod settings;

pub use handle::{CheckHandle, CheckReport, Verdict, checks};
pub use machine::{Machine, Outcome};
pub use networks::Networks;
pub use runner::CheckRunner;
pub use schedule::{Probe, Refusal, Schedule, Ticket};
pub use settings::CheckSettings;
