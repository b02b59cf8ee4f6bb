//! The store on a real etcd: the conformance suite, and every fault that can be had.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a program that is killed tells what it did")]
#![allow(clippy::print_stderr, reason = "figures")]

mod conformance;
mod faults;
mod killed;
mod registrars;
mod security;
mod shared;
mod speed;
mod support;
