//! gRPC clients: routing by header and weight, and endpoints that change under load.

use crate::mesh::{self, TARGET};
use crate::peer::{Credentials::Plain, Library, Peer};
use pilotfish_testkit::real::{Pilotfish, Tally, eventually};

/// Pilotfish without files, a peer, and the ports of the two versions that the peer serves.
async fn start(library: Library) -> Option<(Pilotfish, Peer, [(&'static str, u16); 2])> {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[]).await;
    let peer = Peer::start(library, &pilotfish, "client", &[]).await?;
    let mut endpoints = [("127.0.0.11", 0), ("127.0.0.12", 0)];
    for (index, (address, port)) in endpoints.iter_mut().enumerate() {
        *port = peer.serve(&format!("{address}:0"), &format!("v{}", index + 1), Plain).await;
    }
    Some((pilotfish, peer, endpoints))
}

/// Requests by header all reach one subset, others by weight, and a change of the weights is followed.
async fn routes_by_header_and_weight(library: Library) {
    let Some((pilotfish, peer, endpoints)) = start(library).await else { return };
    pilotfish.write("routes.yaml", &mesh::subsets((80, 20)));
    pilotfish.write("echo.yaml", &mesh::service(&endpoints));
    mesh::is_known(&pilotfish, "echo.shop").await;
    let tally = peer.ask(TARGET, Plain, 500, &[]).await;
    assert_eq!(tally.values().sum::<usize>(), 500);
    assert_eq!(tally.keys().collect::<Vec<_>>(), ["v1", "v2"], "{tally:?}");
    // 100 of 500 are expected; 60 and 140 are more than four standard deviations away.
    assert!((60..=140).contains(&tally["v2"]), "{tally:?}");
    for target in [TARGET, "xds:///echo:9000", "xds:///echo.shop:9000"] {
        let tally = peer.ask(target, Plain, 20, &[("x-user", "tester")]).await;
        assert_eq!(tally, Tally::from([("v2".into(), 20)]), "{target}");
    }
    pilotfish.write("routes.yaml", &mesh::subsets((100, 0)));
    eventually("the client follows", || async {
        let tally = peer.ask(TARGET, Plain, 20, &[]).await;
        if tally == Tally::from([("v1".into(), 20)]) { Ok(()) } else { Err(tally) }
    })
    .await;
    mesh::nothing_was_refused(&pilotfish).await;
}

/// An endpoint goes and comes back while requests are sent: the client follows, and none is lost.
async fn follows_endpoints_under_load(library: Library) {
    let Some((pilotfish, peer, endpoints)) = start(library).await else { return };
    pilotfish.write("echo.yaml", &mesh::service(&endpoints));
    mesh::is_known(&pilotfish, "echo.shop").await;
    peer.load(TARGET, Plain).await;
    peer.answers(100).await;
    for served in [&endpoints[..1], &endpoints[..], &endpoints[..1]] {
        pilotfish.write("echo.yaml", &mesh::service(served));
        let expected: Vec<_> = ["v1", "v2"].into_iter().take(served.len()).collect();
        eventually("the client follows", || async {
            let tally = peer.ask(TARGET, Plain, 20, &[]).await;
            if tally.keys().eq(&expected) { Ok(()) } else { Err(tally) }
        })
        .await;
        peer.answers(100).await;
    }
    let tally = peer.stop().await;
    assert_eq!(tally.keys().collect::<Vec<_>>(), ["v1", "v2"], "{tally:?}");
    mesh::nothing_was_refused(&pilotfish).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_client_routes_by_header_and_weight() {
    routes_by_header_and_weight(Library::Python).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_client_routes_by_header_and_weight() {
    routes_by_header_and_weight(Library::Node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_client_follows_endpoints_under_load() {
    follows_endpoints_under_load(Library::Python).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_client_follows_endpoints_under_load() {
    follows_endpoints_under_load(Library::Node).await;
}
