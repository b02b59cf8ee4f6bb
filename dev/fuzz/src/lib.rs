//! Targets of coverage-guided fuzzing: each is a function of bytes that panics on a violated property.
//!
//! ```text
//! bytes ── Input ── generate (by the schema of a kind) ──▶ target ── cost: what it may allocate
//!   ▲                                                        ▲
//!   └── libFuzzer (`cargo xtask fuzz`)                       └── tests/corpus.rs replays corpus/TARGET/*
//! ```
//!
//! A target with structured input derives its choices from the bytes one by one, so that a small change of
//! the bytes is a small change of the structure, and every input is meaningful. Targets are deterministic: a
//! failing input fails again.

// Panics report violated properties, for the fuzzer as well as for tests.
#![allow(clippy::missing_panics_doc, reason = "to panic is how a target reports what it found")]

mod cost;
mod generate;
mod input;
mod render;
mod schemas;
mod targets;

pub use cost::Budget;
pub use targets::{TARGETS, Target, find};
