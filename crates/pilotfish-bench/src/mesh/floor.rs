//! What a broadcast of as many bytes to as many streams costs: the least that a change could.

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
/// Between two changes: their acknowledgements belong to the one before.
const QUIET: Duration = Duration::from_millis(60);
const ROUNDS: usize = 7;

/// Puts a broadcast beside each row, and beside the cold start of so many proxies.
///
/// # Errors
/// When a broadcast server cannot be started or loses a stream.
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

/// Where the executable of this crate is, which serves as broadcast server.
pub struct Broadcaster {
    executable: PathBuf,
    /// What was measured already, by streams and bytes.
    known: Vec<((usize, u64), Floor)>,
}

impl Broadcaster {
    /// With the executable of this crate.
    #[must_use]
    pub fn new(executable: &Path) -> Self {
        Self { executable: executable.to_owned(), known: Vec::new() }
    }

    /// A change of so many bytes to each of so many streams.
    ///
    /// # Errors
    /// When the server cannot be started or loses a stream.
    pub async fn change(&mut self, streams: usize, bytes: u64) -> Result<Floor> {
        // Rows of about the same size share a measurement.
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

    /// So many streams that connect at once and are each sent so many bytes.
    ///
    /// # Errors
    /// When the server cannot be started or loses a stream.
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
