//! Attacks on a running Pilotfish, with checks of honest clients during and after them.
//!
//! - [`Target`]: addresses of the attacked control plane, and its files.
//! - [`Attack`]: one kind of attack, with its counters ([`Tally`]); [`all`] of them.
//! - [`run`]: starts the control plane with honest proxies, an Envoy and a simulated operator who reads the
//!   dashboard and edits YAML, attacks it, and compares their measurements with [`Bounds`].
//!
//! Shares no code with the attacked server, and is not shipped.

mod attack;
mod attacks;
mod bounds;
mod certificate;
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

/// Header of the table that a run prints.
#[must_use]
pub fn head() -> &'static str {
    report::HEAD
}
