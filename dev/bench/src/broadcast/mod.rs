//! Servers that only broadcast: N clusters with M endpoints each, the same for all clients, encoded once.
//! Their costs are those of the protocol and the machine, as the reference for a real control plane.
//!
//! Both serve delta ADS with one stream for each connection. They listen on free ports, print the addresses
//! on stdout, and change one load assignment for each line of the control connection: the new address of its
//! first endpoint, and the minimum size of the load assignment in bytes.

mod direct;
mod hub;
mod tonic_server;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use self::hub::Hub;

/// Implementation of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// tonic, with shared frames as body.
    Tonic,
    /// The h2 crate alone, one task for each connection.
    H2,
}

/// Serves until the process is killed.
///
/// # Errors
/// If a port cannot be bound or the listener fails.
pub async fn serve(kind: Kind, clusters: usize, endpoints: usize) -> Result<()> {
    let hub = Arc::new(Hub::new(clusters, endpoints));
    let control = TcpListener::bind("127.0.0.1:0").await.context("cannot bind the control port")?;
    let socket = TcpSocket::new_v4().context("cannot make a socket")?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("cannot bind a port")?;
    // Large enough for a thousand simultaneous connections.
    let listener = socket.listen(4096).context("cannot listen")?;
    println!("xds {} control {}", listener.local_addr()?, control.local_addr()?);
    let commands = tokio::spawn(take_commands(control, Arc::clone(&hub)));
    let served = match kind {
        Kind::Tonic => tonic_server::serve(listener, hub).await,
        Kind::H2 => direct::serve(listener, hub).await,
    };
    commands.abort();
    served
}

async fn take_commands(listener: TcpListener, hub: Arc<Hub>) {
    while let Ok((connection, _)) = listener.accept().await {
        let hub = Arc::clone(&hub);
        tokio::spawn(async move {
            if let Err(error) = answer_commands(connection, &hub).await {
                eprintln!("control connection: {error:#}");
            }
        });
    }
}

async fn answer_commands(connection: TcpStream, hub: &Hub) -> Result<()> {
    connection.set_nodelay(true)?;
    let (reader, mut writer) = connection.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let mut words = line.split_whitespace();
        let address = words.next().unwrap_or_default();
        let bytes = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        hub.change(address, bytes);
        writer.write_all(b"ok\n").await?;
    }
    Ok(())
}
