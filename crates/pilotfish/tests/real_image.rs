//! The image of `cargo xtask image`, as a node of Kubernetes runs it: nothing in it but the binary and texts,
//! a root that cannot be written, no capabilities, and a user that the image has never heard of.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use pilotfish_testkit::real::{Container, Envoy, EnvoyOptions, Pilotfish, eventually, get};
use support::{CART, Shop};

/// Nobody's on the machine, and not the image's own.
const ANYBODY: u32 = 1_234_567;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anybody_runs_it_without_capabilities_on_a_root_that_cannot_be_written() {
    let Some(container) = Container::of_image() else { return };
    let shop = Shop::start().await;
    let (services, slice) = (shop.services(), shop.cart_slice());
    let files = [("services.yaml", services.as_str()), ("cart.yaml", slice.as_str())];
    let pilotfish = Pilotfish::start_in(container, ANYBODY, env!("CARGO_BIN_EXE_pilotfish"), &files).await;
    let container = pilotfish.container().unwrap();

    let status = container.proc("status");
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(value("Uid:"), ["1234567"; 4]);
    assert_eq!(value("Gid:"), ["1234567"; 4]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(value("NoNewPrivs:"), ["1"]);
    let mounts = container.proc("mountinfo");
    let root =
        mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|mount| mount[4] == "/").unwrap();
    assert!(root[5].split(',').any(|option| option == "ro"), "the root can be written: {root:?}");

    // It is ready by now; an Envoy gets its configuration and reaches a backend by it.
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the cart is reached", || async {
        get(shop.port, CART, &[]).await.map_err(|error| format!("{error}\n{}", pilotfish.printed()))
    })
    .await;
    assert!(pilotfish.metric("pilot_total_xds_rejects").await < 1.0, "{}", pilotfish.printed());
}

#[test]
fn it_holds_the_binary_and_texts_and_nothing_that_could_be_run_instead() {
    let Some(container) = Container::of_image() else { return };
    let expected = [
        "etc/ssl/certs/ca-certificates.crt",
        "usr/local/bin/pilotfish",
        "usr/share/doc/pilotfish/LICENSE",
        "usr/share/doc/pilotfish/THIRD-PARTY-LICENSES",
        "usr/share/doc/pilotfish/musl-copyright",
        "usr/share/doc/pilotfish/pilotfish.cdx.json",
        "usr/share/doc/pilotfish/rust-standard-library.html",
    ];
    assert_eq!(container.files(), expected);
    let process = container.process();
    assert_eq!(process["user"]["uid"], 65532, "by itself it does not run as root: {process}");
    assert_eq!(
        process["args"],
        serde_json::json!(["/usr/local/bin/pilotfish"]),
        "where the manifests start it"
    );
}
