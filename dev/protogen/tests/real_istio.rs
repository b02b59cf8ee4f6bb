//! The committed descriptors of Istio's API against the module that they come from. Needs Go.
#![allow(clippy::unwrap_used)]

use std::io::Read;

#[test]
fn the_committed_set_is_current() {
    let unzip = |bytes: &[u8]| {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    };
    let committed = std::fs::read(pilotfish_protogen::istio::target()).unwrap();
    let fresh = pilotfish_protogen::istio::generate().unwrap();
    assert!(unzip(&committed) == unzip(&fresh), "run `cargo run -p pilotfish-protogen istio`");
}
