mod admin;
mod certificates;
mod cluster;
mod config;
mod files;
mod frames;
mod full_disk;
mod http1;
mod http2;
mod kubeconfigs;
mod log;
mod registration;
mod rights;
mod slow;
mod tls;
mod webhook;
mod xds;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::{Attack, Counts, Deadline};

/// All attacks in the order in which they run.
#[must_use]
pub fn all() -> Vec<Attack> {
    let of_ports = [
        http2::ATTACKS,
        tls::ATTACKS,
        certificates::ATTACKS,
        slow::ATTACKS,
        admin::ATTACKS,
        registration::ATTACKS,
        webhook::ATTACKS,
    ];
    let of_clusters = [cluster::ATTACKS, kubeconfigs::ATTACKS].concat();
    let of_own = [log::ATTACKS, rights::ATTACKS, full_disk::ATTACKS].concat();
    let of_files = [config::ATTACKS, files::ATTACKS].concat();
    [xds::all(), of_files, of_ports.concat(), of_clusters, of_own].concat()
}

/// Pause of an attacker after an attempt: the attack tests the cost of an attempt for the server, not the
/// rate on a machine that both share.
pub(crate) const REST: Duration = Duration::from_millis(10);

/// Connects from another address than those of honest clients. Each address has its own limits, and all of
/// 127.0.0.0/8 is this machine.
pub(crate) async fn from_elsewhere(address: SocketAddr) -> Result<TcpStream> {
    from_address(66, address).await
}

/// Source ports of connections from other addresses: below the ephemeral ports of the system, so that no
/// other process uses them.
const PORTS: std::ops::Range<u16> = 1_024..32_768;
/// Maximum number of ports to try: one may be used by a connection to the same port, or one that has just
/// ended.
const PORTS_TRIED: usize = 256;

/// Connects from the loopback address with that last byte.
///
/// The port is the next one in turn. If half of an address's ports belong to connections that ended in the
/// last minute, the system needs milliseconds to find a free one: 60 attackers would spend all of their time
/// on that.
pub(crate) async fn from_address(last: u8, address: SocketAddr) -> Result<TcpStream> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    from_next_port(&NEXT, last, address).await
}

async fn from_next_port(next: &AtomicUsize, last: u8, address: SocketAddr) -> Result<TcpStream> {
    for _ in 0..PORTS_TRIED {
        let turn = next.fetch_add(1, Ordering::Relaxed) % PORTS.len();
        let port = PORTS.clone().nth(turn).context("no ports")?;
        match from_port(SocketAddr::from(([127, 0, 0, last], port)), address).await {
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {}
            connected => return connected.context("cannot connect"),
        }
    }
    bail!("cannot connect: {PORTS_TRIED} ports are taken")
}

async fn from_port(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // Connections to other ports of the server may use the same source port.
    socket.set_reuseaddr(true)?;
    socket.bind(from)?;
    socket.connect(to).await
}

/// Runs that many concurrent attackers until the deadline. Each repeats its attempt; a failed one counts as
/// refused.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_port_that_is_taken_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let next = AtomicUsize::new(PORTS.len() - 1);
        let last = from_next_port(&next, 66, to).await.unwrap();
        assert_eq!(last.local_addr().unwrap().port(), PORTS.end - 1);
        next.fetch_sub(1, Ordering::Relaxed);
        let first = from_next_port(&next, 66, to).await.unwrap();
        assert_eq!(first.local_addr().unwrap().port(), PORTS.start);
    }
}
