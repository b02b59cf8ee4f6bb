//! Helpers for tests: recorded cases of a real istiod and their comparison, in one process and without a network.

pub mod cases;
pub mod compare;
pub mod dump;
