//! Slow and blocked readers, which must not delay others.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use super::{Bar, NAMESPACE, Options, SETTLE, Setup, Target, WARM_UP, bar, megabytes};
use crate::connection::Connection;
use crate::fleet::node;
use crate::messages::DELTA_PATH;
use crate::session::Session;

const SERVICES: usize = 500;
const PROXIES: usize = 190;
/// Number of proxies that read 10 KB per second. [`DEAF`] further ones stop reading after the first
/// bytes.
const SLOW: usize = 5;
const DEAF: usize = 5;
/// Bytes that a slow reader reads at once, before it waits.
const PIECE: usize = 1_000;
const WAIT: Duration = Duration::from_millis(100);
/// Maximum ratio that counts as no difference to the others: times are noisy.
const SAME: f64 = 1.5;

pub(super) async fn run(options: &Options) -> Result<Vec<Bar>> {
    let setup = Setup::start(options, SERVICES, 10).await?;
    let fleet = setup.fleet(std::iter::repeat_n(NAMESPACE, PROXIES), 0).await?;
    tokio::time::sleep(SETTLE).await;
    let alone = setup.rounds(&fleet, Target::All, PROXIES, 0..WARM_UP + options.rounds).await?;
    let before = setup.server.memory()?.0;

    let mut readers = JoinSet::new();
    for index in 0..SLOW + DEAF {
        let wait = (index < SLOW).then_some(WAIT);
        readers.spawn(read(setup.server.xds, PROXIES + index, wait));
    }
    tokio::time::sleep(SETTLE).await;
    let numbers = 1_000..1_000 + WARM_UP + options.rounds;
    let beside = setup.rounds(&fleet, Target::All, PROXIES, numbers).await?;
    if let Some(Ok(Err(error))) = readers.try_join_next() {
        return Err(error.context("a slow reader"));
    }
    let after = setup.server.memory()?.0;
    eprintln!("bench:   alone: median {:.1} ms, p99 {:.1} ms", alone.at(0.5), alone.at(0.99));
    eprintln!(
        "bench:   beside {} that hardly read: median {:.1} ms, p99 {:.1} ms, {:.1} MB more",
        SLOW + DEAF,
        beside.at(0.5),
        beside.at(0.99),
        megabytes(after.saturating_sub(before))
    );
    let of = "a change to the others beside 5 % of readers at 10 KB/s or stopped";
    Ok(vec![
        bar(format!("{of}, median"), beside.at(0.5) / alone.at(0.5), SAME, "x"),
        bar(format!("{of}, p99"), beside.at(0.99) / alone.at(0.99), 2.0 * SAME, "x"),
    ])
}

/// A proxy on a socket that returns little at once, or nothing after the first pieces.
async fn read(target: SocketAddr, index: usize, wait: Option<Duration>) -> Result<()> {
    let socket = TcpStream::connect(target).await.context("cannot connect")?;
    let socket = Throttled { socket, wait, left: PIECE, pause: None };
    let mut session = Session::new(node(index, NAMESPACE));
    let first = session.start();
    let mut connection = Connection::over(socket, &target.to_string(), DELTA_PATH, &[], first).await?;
    let mut out = Vec::new();
    while let Some(message) = connection.next().await? {
        session.response(&message, &mut out).map_err(anyhow::Error::msg)?;
        for request in out.drain(..) {
            connection.send(&request)?;
        }
    }
    Ok(())
}

/// Returns [`PIECE`] bytes, waits, and repeats; without a wait, nothing after the first piece.
struct Throttled {
    socket: TcpStream,
    wait: Option<Duration>,
    left: usize,
    pause: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Throttled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.left == 0 {
            // Never woken again: the connection stays open without a reader.
            let Some(wait) = self.wait else { return Poll::Pending };
            let pause =
                self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + wait)));
            std::task::ready!(pause.as_mut().poll(context));
            (self.pause, self.left) = (None, PIECE);
        }
        let mut bytes = [0; PIECE];
        let most = self.left.min(buffer.remaining());
        let mut piece = ReadBuf::new(bytes.get_mut(..most).unwrap_or_default());
        std::task::ready!(Pin::new(&mut self.socket).poll_read(context, &mut piece))?;
        buffer.put_slice(piece.filled());
        self.left -= piece.filled().len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Throttled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
