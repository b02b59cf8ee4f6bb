//! What is fuzzed with coverage: each target is a function of bytes that panics where something does not hold.
//!
//! ```text
//! bytes ── Input ── generate (by the schema of a kind) ──▶ target ── cost: what it may allocate
//!   ▲                                                        ▲
//!   └── libFuzzer (`cargo xtask fuzz`)                       └── tests/corpus.rs replays corpus/TARGET/*
//! ```
//!
//! Bytes choose: a target that wants structure takes its choices from them one by one, so that a small change of the bytes is a small
//! change of what is made, and there is no input that means nothing. Nothing depends on time or chance: an input that fails does so
//! again.

// A target tells what does not hold by a panic, which the fuzzer and the tests both understand.
#![allow(clippy::missing_panics_doc, reason = "to panic is how a target reports what it found")]

mod cost;
mod generate;
mod input;
mod render;
mod schemas;
mod targets;

pub use cost::Budget;
pub use targets::{TARGETS, Target, find};
