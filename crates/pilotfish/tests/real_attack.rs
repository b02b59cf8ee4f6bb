//! The short form of `cargo xtask attack`: every attack for a moment, with honest proxies and an Envoy beside
//! it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use pilotfish_attack::{Bounds, Options, all, head, run};

/// How long each attack lasts: long enough to reach the server with most of what it has.
const TIME: Duration = Duration::from_secs(2);

#[test]
fn no_attack_harms_anybody_else() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let options = Options {
        pilotfish: env!("CARGO_BIN_EXE_pilotfish").into(),
        attacks: all(),
        time: TIME,
        bounds: Bounds::SHORT,
    };
    let report = runtime.block_on(run(&options, |_| {})).unwrap();
    // Only what missed: the whole table is so long that what prints this may cut the one row that matters.
    let missed: Vec<String> = report.missed().map(ToString::to_string).collect();
    assert!(missed.is_empty(), "\n{}\n{}", head(), missed.join("\n"));
    // Those that need an API server are not tried where it is not installed, as other tests with real
    // clients.
    let skipped = report.skipped();
    assert!(
        skipped.is_empty() || std::env::var_os("CI").is_none(),
        "attacks were not tried: {}; `cargo xtask tools` brings what is missing",
        skipped.join("; ")
    );
}
