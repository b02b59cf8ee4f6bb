//! The load client against the broadcast servers, each as a process of its own, as in the bench.

use std::path::Path;
use std::time::Duration;

use pilotfish_bench::broadcast::Kind;
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_bench::mesh::floor::Broadcaster;
use pilotfish_bench::server::Server;
use pilotfish_bench::world::{NAMESPACE, address};

const LIMIT: Duration = Duration::from_secs(30);
const STREAMS: usize = 20;

async fn every_stream_syncs_and_sees_each_change(kind: Kind) {
    let bench = Path::new(env!("CARGO_BIN_EXE_pilotfish-bench"));
    let mut server = Server::broadcast(bench, kind, 50, 3).await.expect("a broadcast server");
    let before = server.cpu().expect("its CPU time");
    let fleet = Fleet::start(server.xds, (0..STREAMS).map(|index| node(index, NAMESPACE)).collect());
    let synced = fleet.synced(LIMIT).await.expect("all streams in sync");
    assert!(synced.bytes > 0);
    for round in 0..3 {
        let new = address(round);
        let reached = fleet.round(round, &new, STREAMS, server.change(&new), LIMIT).await.expect("a change");
        assert_eq!(reached.all.len(), STREAMS, "each stream sees it once");
        assert!(reached.bytes > 0);
    }
    assert!(!server.cpu().expect("its CPU time").since(&before).is_zero());
    server.stop().await.expect("stopped");
}

#[tokio::test]
async fn on_tonic() {
    every_stream_syncs_and_sees_each_change(Kind::Tonic).await;
}

#[tokio::test]
async fn on_h2() {
    every_stream_syncs_and_sees_each_change(Kind::H2).await;
}

#[tokio::test]
async fn a_floor_is_a_broadcast_of_as_many_bytes() {
    let mut floors = Broadcaster::new(Path::new(env!("CARGO_BIN_EXE_pilotfish-bench")));
    let floor = floors.change(STREAMS, 20_000).await.expect("a change");
    assert!(!floor.last.is_zero() && !floor.cpu.is_zero() && floor.memory > 0);
    let cold = floors.sync(STREAMS, 20_000).await.expect("a cold start");
    assert!(!cold.last.is_zero() && cold.memory > 0);

    let bench = Path::new(env!("CARGO_BIN_EXE_pilotfish-bench"));
    let mut server = Server::broadcast(bench, Kind::H2, 1, 1).await.expect("a broadcast server");
    let fleet = Fleet::start(server.xds, vec![node(0, NAMESPACE)]);
    fleet.synced(LIMIT).await.expect("in sync");
    let new = address(1);
    let reached = fleet.round(1, &new, 1, server.change_padded(&new, 20_000), LIMIT).await.expect("a change");
    assert!((20_000..20_500).contains(&reached.bytes), "{} bytes", reached.bytes);
}

#[tokio::test]
async fn a_server_that_ends_is_an_error_and_not_a_wait() {
    let bench = Path::new(env!("CARGO_BIN_EXE_pilotfish-bench"));
    let server = Server::broadcast(bench, Kind::H2, 5, 1).await.expect("a broadcast server");
    let fleet = Fleet::start(server.xds, vec![node(0, NAMESPACE)]);
    fleet.synced(LIMIT).await.expect("in sync");
    let round = fleet.round(0, "never", 1, server.stop(), LIMIT).await;
    let error = round.expect_err("the stream ended").to_string();
    assert!(error.contains("streams ended"), "{error}");
}
