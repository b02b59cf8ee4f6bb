//! Many idle streams: memory, time to connect, and time of a change to all of them.

use anyhow::{Context, Result};

use super::{Bar, NAMESPACE, Options, SETTLE, SYNC_LIMIT, Setup, Target, WARM_UP, bar, megabytes};
use crate::broadcast::Kind;
use crate::fleet::{Fleet, node};
use crate::server::Server;
use crate::stats::{milliseconds, percentile};
use crate::world::address;

const SERVICES: usize = 100;
const ENDPOINTS: usize = 10;
/// Limits: resident memory in MB, seconds to connect all, and ratio to the broadcast's time.
const MEMORY_MB: f64 = 400.0;
const CONNECT_SECONDS: f64 = 20.0;
const BROADCAST_RATIO: f64 = 2.0;
/// Number of rounds; each sends to all streams.
const ROUNDS: usize = 10;

pub(super) async fn run(options: &Options) -> Result<Vec<Bar>> {
    let streams = options.streams;
    let floor = broadcast(options).await.context("broadcast")?;
    // All clients have addresses of this machine.
    let arguments = ["--max-connections", "100000", "--max-streams", "200000"].map(Into::into);
    let setup = Setup::start_with(options, SERVICES, ENDPOINTS, &arguments, |_| Ok(())).await?;
    let fleet = Fleet::start(setup.server.xds, (0..streams).map(|index| node(index, NAMESPACE)).collect());
    let synced = fleet.synced(SYNC_LIMIT).await?;
    tokio::time::sleep(SETTLE).await;
    let memory = megabytes(setup.server.memory()?.0);
    let rounds = setup.rounds(&fleet, Target::All, streams, 0..WARM_UP + ROUNDS).await?;
    eprintln!("bench:   a change: {:.0} ms, a broadcast: {floor:.0} ms", rounds.at(0.5));
    Ok(vec![
        bar(format!("{streams} idle streams: resident memory"), memory, MEMORY_MB, "MB"),
        bar(
            format!("{streams} streams connected and in sync"),
            synced.wall.as_secs_f64(),
            CONNECT_SECONDS,
            "s",
        ),
        bar(
            format!("an endpoint change to the last of {streams}, median, to the broadcast's"),
            rounds.at(0.5) / floor,
            BROADCAST_RATIO,
            "x",
        ),
    ])
}

/// Median time of a broadcast server, in milliseconds.
async fn broadcast(options: &Options) -> Result<f64> {
    let bench = std::env::current_exe().context("cannot find the running executable")?;
    let mut server = Server::broadcast(&bench, Kind::Tonic, SERVICES, ENDPOINTS).await?;
    let nodes = (0..options.streams).map(|index| node(index, NAMESPACE)).collect();
    let fleet = Fleet::start(server.xds, nodes);
    fleet.synced(SYNC_LIMIT).await?;
    tokio::time::sleep(SETTLE).await;
    let mut last = Vec::new();
    for number in 0..ROUNDS {
        let address = address(number);
        let trigger = server.change(&address);
        last.push(fleet.round(number, &address, options.streams, trigger, super::ROUND_LIMIT).await?.last);
        tokio::time::sleep(super::BETWEEN_ROUNDS).await;
    }
    Ok(milliseconds(percentile(&last, 0.5)))
}
