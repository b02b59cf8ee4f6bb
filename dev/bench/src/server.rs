//! Server processes: Pilotfish, or a broadcast server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use pilotfish_load::server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;

pub use pilotfish_load::server::{CpuTimes, MachineTimes};

use crate::broadcast::Kind;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills the process.
pub struct Server {
    process: server::Server,
    control: Option<Control>,
}

struct Control {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Deref for Server {
    type Target = server::Server;

    fn deref(&self) -> &Self::Target {
        &self.process
    }
}

impl Server {
    /// Starts Pilotfish on a directory and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, ends, or is not ready in time; the message has the end of its log.
    pub async fn pilotfish(executable: &Path, folder: &Path, log: PathBuf) -> Result<Self> {
        Self::pilotfish_with(executable, folder, &[], log).await
    }

    /// Starts Pilotfish with additional arguments and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, ends, or is not ready in time; the message has the end of its log.
    pub async fn pilotfish_with(
        executable: &Path,
        folder: &Path,
        more: &[OsString],
        log: PathBuf,
    ) -> Result<Self> {
        let process = server::Server::pilotfish(executable, folder, more, log).await?;
        Ok(Self { process, control: None })
    }

    /// Starts a broadcast server: `bench` is the executable of this crate.
    ///
    /// # Errors
    /// If it cannot be started or does not print its addresses.
    pub async fn broadcast(bench: &Path, kind: Kind, clusters: usize, endpoints: usize) -> Result<Self> {
        let kind = match kind {
            Kind::Tonic => "tonic",
            Kind::H2 => "h2",
        };
        let began = Instant::now();
        let mut child = Command::new(bench)
            .args(["broadcast", "--kind", kind])
            .args(["--clusters", &clusters.to_string(), "--endpoints", &endpoints.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the broadcast server")?;
        let stdout = child.stdout.take().context("its output was not captured")?;
        let line = tokio::time::timeout(START_LIMIT, BufReader::new(stdout).lines().next_line())
            .await
            .map_err(|_| anyhow!("the broadcast server printed nothing"))??
            .context("the broadcast server ended")?;
        let mut words = line.split(' ').filter_map(|word| word.parse::<SocketAddr>().ok());
        let (Some(xds), Some(control)) = (words.next(), words.next()) else { bail!("unexpected: {line}") };
        let connection = TcpStream::connect(control).await.context("cannot reach the control port")?;
        connection.set_nodelay(true)?;
        let (reader, writer) = connection.into_split();
        let control = Some(Control { lines: BufReader::new(reader).lines(), writer });
        Ok(Self { process: server::Server::started(child, xds, began.elapsed())?, control })
    }

    /// Makes a broadcast server change the address of its endpoint.
    ///
    /// # Errors
    /// If the server does not respond.
    pub async fn change(&mut self, address: &str) -> Result<()> {
        self.change_padded(address, 0).await
    }

    /// Makes a broadcast server change the address of its endpoint, and pad the load assignment to that size.
    ///
    /// # Errors
    /// If the server does not respond.
    pub async fn change_padded(&mut self, address: &str, bytes: u64) -> Result<()> {
        let control = self.control.as_mut().context("not a broadcast server")?;
        control.writer.write_all(format!("{address} {bytes}\n").as_bytes()).await?;
        control.lines.next_line().await?.context("the control connection ended")?;
        Ok(())
    }

    /// Kills the process.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn stop(self) -> Result<()> {
        self.process.stop().await
    }
}
