//! Attacks on a running Pilotfish, and what must hold for everybody else meanwhile and afterwards.
//!
//! - [`Target`]: where the control plane under attack listens, and the files that it reads.
//! - [`Attack`]: one way to hurt it, with what it says it did ([`Tally`]); [`all`] of them.
//!
//! Nothing here is shared with what it attacks, and nothing here ships.

mod attack;
mod attacks;
mod target;

pub use attack::{Attack, Counts, Deadline, Tally};
pub use attacks::all;
pub use target::Target;
