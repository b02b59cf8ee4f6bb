//! All attacks.

mod admin;
mod config;
mod frames;
mod http1;
mod http2;
mod registration;
mod slow;
mod tls;
mod webhook;
mod xds;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::{Attack, Counts, Deadline};

/// All attacks, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Attack> {
    let of_ports = [
        http2::ATTACKS,
        tls::ATTACKS,
        slow::ATTACKS,
        admin::ATTACKS,
        registration::ATTACKS,
        webhook::ATTACKS,
    ];
    [xds::all(), config::ATTACKS.to_vec(), of_ports.concat()].concat()
}

/// How long an attacker rests after an attempt: the point is what an attempt costs the server, not how many fit into a second of a machine
/// on which both run.
pub(crate) const REST: Duration = Duration::from_millis(10);

/// A connection from another address than those of honest clients. Each address has places of its own, and all of 127.0.0.0/8 is this machine.
pub(crate) async fn from_elsewhere(address: SocketAddr) -> Result<TcpStream> {
    from_address(66, address).await
}

/// A connection from the loopback address that ends so.
pub(crate) async fn from_address(last: u8, address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
    socket.connect(address).await.context("cannot connect")
}

/// So many attackers at a time, until the deadline. Each attempts again when its attempt is over; one that failed was refused.
pub(crate) async fn crowd<W, F>(size: usize, deadline: Deadline, counts: &Arc<Counts>, attempt: W)
where
    W: Fn(usize) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut attackers = JoinSet::new();
    for index in 0..size {
        let (attempt, counts) = (attempt.clone(), counts.clone());
        let again = async move {
            loop {
                if let Err(error) = attempt(index).await {
                    counts.refused(format!("{error:#}"));
                }
                tokio::time::sleep(REST).await;
            }
        };
        attackers.spawn(async move { deadline.cut(again).await.unwrap_or(()) });
    }
    while attackers.join_next().await.is_some() {}
}
