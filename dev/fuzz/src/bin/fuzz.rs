//! Fuzzer of one target, selected by `PILOTFISH_FUZZ_TARGET`. `cargo xtask fuzz` builds and runs it.

// libFuzzer is C++ and finds its entry points by name.
#![allow(unsafe_code, reason = "the macro gives functions names that C++ finds")]
#![no_main]

use libfuzzer_sys::fuzz_target;
use pilotfish_fuzz::{Target, find};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("PILOTFISH_FUZZ_TARGET").unwrap_or_default();
    find(&name).expect("PILOTFISH_FUZZ_TARGET names no target")
});

fuzz_target!(|bytes: &[u8]| {
    TARGET.run(bytes);
});
