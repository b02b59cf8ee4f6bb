//! Cost of a broadcast of the same bytes to the same number of streams: the lower bound of a change's cost.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use pilotfish_load::connection::Way;
use pilotfish_load::mesh::fleet::Fleet;
use pilotfish_load::mesh::results::{Floor, Results};

use crate::broadcast::Kind;
use crate::server::Server;
use crate::stats::percentile;
use crate::world::{NAMESPACE, address};

const LIMIT: Duration = Duration::from_secs(60);
/// Interval of changes: acknowledgements belong to the change before.
const QUIET: Duration = Duration::from_millis(60);
const ROUNDS: usize = 7;

/// Measures a broadcast for each row, and for the cold start of that number of proxies.
///
/// # Errors
/// If a broadcast server cannot be started or ends a stream.
pub async fn fill(results: &mut Results, proxies: usize, broadcaster: &Path) -> Result<()> {
    let mut floors = Broadcaster::new(broadcaster);
    for row in &mut results.rows {
        let streams = row.samples.iter().map(|sample| sample.reached.concerned).max().unwrap_or_default();
        if streams > 0 {
            row.floor = Some(floors.change(streams, row.bytes_each()).await?);
        }
    }
    let bytes = results.cold.sent.all_bytes() / proxies.max(1) as u64;
    results.cold_floor = Some(floors.sync(proxies, bytes).await?);
    Ok(())
}

/// Executable of this crate, which runs as broadcast server.
pub struct Broadcaster {
    executable: PathBuf,
    /// Earlier measurements, by streams and bytes.
    known: Vec<((usize, u64), Floor)>,
}

impl Broadcaster {
    /// Uses the executable of this crate.
    #[must_use]
    pub fn new(executable: &Path) -> Self {
        Self { executable: executable.to_owned(), known: Vec::new() }
    }

    /// Measures a change of that many bytes to each of that many streams.
    ///
    /// # Errors
    /// If the server cannot be started or ends a stream.
    pub async fn change(&mut self, streams: usize, bytes: u64) -> Result<Floor> {
        // Rows of similar sizes share a measurement.
        let bytes = bytes.next_multiple_of((bytes / 8).next_power_of_two().max(256));
        if let Some((_, floor)) = self.known.iter().find(|(key, _)| *key == (streams, bytes)) {
            return Ok(*floor);
        }
        let mut server = self.start().await?;
        let fleet = connect(&server, streams).await?;
        let (mut last, mut cpu) = (Vec::new(), Duration::ZERO);
        for number in 0..=ROUNDS {
            let before = server.cpu()?;
            let round = fleet.round(streams);
            server.change_padded(&address(number), bytes).await?;
            let reached = round.reached(LIMIT, QUIET).await?;
            if number > 0 {
                last.push(reached.last);
                cpu += server.cpu()?.since(&before);
            }
        }
        let (memory, _) = server.memory()?;
        let count = u32::try_from(ROUNDS).unwrap_or(1);
        let floor = Floor { last: percentile(&last, 0.5), cpu: cpu / count, memory };
        self.known.push(((streams, bytes), floor));
        server.stop().await?;
        Ok(floor)
    }

    /// Measures that many simultaneous streams, to each of which that many bytes are sent.
    ///
    /// # Errors
    /// If the server cannot be started or ends a stream.
    pub async fn sync(&self, streams: usize, bytes: u64) -> Result<Floor> {
        let mut server = self.start().await?;
        server.change_padded(&address(0), bytes).await?;
        let before = server.cpu()?;
        let fleet = Fleet::start(&Way::plain(server.xds), nodes(streams));
        let last = fleet.synced(LIMIT).await?;
        let cpu = server.cpu()?.since(&before);
        let (memory, _) = server.memory()?;
        server.stop().await?;
        Ok(Floor { last, cpu, memory })
    }

    async fn start(&self) -> Result<Server> {
        Server::broadcast(&self.executable, Kind::H2, 1, 1).await.context("cannot measure a broadcast")
    }
}

async fn connect(server: &Server, streams: usize) -> Result<Fleet> {
    let fleet = Fleet::start(&Way::plain(server.xds), nodes(streams));
    fleet.synced(LIMIT).await?;
    Ok(fleet)
}

fn nodes(streams: usize) -> Vec<crate::messages::Node> {
    (0..streams).map(|index| crate::fleet::node(index, NAMESPACE)).collect()
}
