//! Attacks on a running Pilotfish, and what must hold for everybody else meanwhile and afterwards.
//!
//! - [`Target`]: where the control plane under attack listens, and the files that it reads.
//! - [`Attack`]: one way to hurt it, with what it says it did ([`Tally`]); [`all`] of them.
//! - [`run`]: starts the control plane with honest proxies, an Envoy and somebody who reads the dashboard and edits YAML, attacks it, and
//!   holds what they saw against [`Bounds`].
//!
//! Nothing here is shared with what it attacks, and nothing here ships.

mod attack;
mod attacks;
mod bounds;
mod dialer;
mod extra;
mod honest;
mod mesh;
mod operator;
mod own;
mod report;
mod run;
mod target;
mod watch;
mod wire;

pub use attack::{Attack, Counts, Deadline, Tally};
pub use attacks::all;
pub use bounds::Bounds;
pub use report::{Figures, Report, Row};
pub use run::{Options, run};
pub use target::{Cluster, Target};

/// The head of the table whose rows a run prints.
#[must_use]
pub fn head() -> &'static str {
    report::HEAD
}
