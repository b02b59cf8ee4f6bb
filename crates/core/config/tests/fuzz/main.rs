//! Every parser on input that is nearly right: recorded configurations with random damage, and random bytes.
//!
//! The inputs follow from a fixed seed, so that a failure is one again on the next run. Each target is a
//! function of bytes that panics when something is wrong, so it can be handed to a coverage-guided fuzzer as
//! it is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod mutate;
mod targets;

use mutate::{Mutator, corpus, mesh_corpus};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a target on inputs made from a corpus; names the input that it fails on.
fn run(seed: u64, rounds: usize, corpus: &[Vec<u8>], target: impl Fn(&[u8])) {
    let mut mutator = Mutator::new(seed);
    for round in 0..rounds {
        let input = mutator.input(corpus);
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            panic!("round {round} fails on {:?}", String::from_utf8_lossy(&input));
        }
    }
}

#[test]
fn objects() {
    run(1, 3_000, &corpus(), targets::objects);
}

#[test]
fn mesh_config() {
    run(2, 1_500, &mesh_corpus(), targets::mesh_config);
}

#[test]
fn mesh_networks() {
    run(3, 1_500, &mesh_corpus(), targets::mesh_networks);
}

#[test]
fn file_state() {
    run(4, 800, &corpus(), targets::file_state);
}

#[test]
fn durations() {
    let corpus = ["5s", "1.5s", "100ms", "1h30m", "1us2ns", "+0.5m", "315576000000s"];
    run(5, 20_000, &corpus.map(|text| text.as_bytes().to_vec()), targets::duration);
}

#[test]
fn values() {
    let corpus = [
        "(?i)^/v[0-9]{1,3}/(a|b)*$",
        "[[:alpha:]\\d-z]+?",
        "\\Qa\\E\\x{1F600}",
        "%REQ(X-A)% %M([\"a\", \"b\"])%",
        "*.example.com",
        "10.0.0.0/8",
        "2001:db8::1",
        "unix:///run/a.sock",
        "2024-05-01T14:00:00.5+02:00",
        "[::1]:80",
        "a/b/{*}/{**}",
        "@request.auth.claims[a]",
        "5xx,reset, 503",
        "https://example.com/keys",
        "region/zone/*",
        "namespace/name",
    ];
    run(6, 4_000, &corpus.map(|text| text.as_bytes().to_vec()), targets::values);
}

#[test]
fn truncated_at_every_byte() {
    let text = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: \"ä\", labels: &l {a: b}}\nspec:\n  \
                hosts: [a, 'b', \"\\x41\\u00e9\"]\n  http:\n  - match: [{uri: {regex: \"[a-z]+\"}, sourceLabels: *l}]\n    route:\n    \
                - destination: {host: b}\n      weight: 0x10\n    timeout: !!str 5s # done\n--- |\n  text\n...\n";
    for end in 0..=text.len() {
        targets::objects(&text.as_bytes()[..end]);
        targets::mesh_config(&text.as_bytes()[end..]);
    }
}
