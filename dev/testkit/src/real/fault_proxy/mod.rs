//! TCP proxy for any server with injected faults: refuses, closes, hangs, delays, truncates, garbles.
//!
//! It is independent of protocols: all bytes from the server are responses. Faults can be changed at any time
//! and affect open as well as new connections. For faults of a Kubernetes API server, which need HTTP, see
//! [`ApiServerProxy`](super::ApiServerProxy).

use super::{LIMIT, free_port};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Closes connections and the listener, so that new ones are refused.
    Refuse,
    /// Closes connections, and new ones as soon as they are accepted.
    Close,
    /// Keeps and accepts connections without forwarding anything, like a stopped process. Held back bytes are
    /// forwarded when the fault ends.
    Hang,
    /// Delays responses, regardless of their size.
    Delay(Duration),
    /// Closes each connection after this number of further response bytes.
    Truncate(u64),
    /// Inverts every nth byte of a connection's responses. 0 means 1.
    Garble(u64),
    /// Replaces a byte value of responses by another one: text responses stay valid HTTP with wrong content.
    Replace(u8, u8),
}

/// State of the tasks: the fault, and the number of forced closes.
#[derive(Clone, Copy)]
struct State {
    fault: Fault,
    cuts: u64,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
    asked: AtomicU64,
    answered: AtomicU64,
}

/// A fault-injecting proxy. Ends with its connections on drop.
pub struct FaultProxy {
    port: u16,
    target: watch::Sender<SocketAddr>,
    state: watch::Sender<State>,
    /// Last fault that the accepting task has seen.
    seen: watch::Receiver<Fault>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy on a free port of loopback.
    pub async fn start(target: SocketAddr) -> Self {
        Self::start_on(free_port(), target).await
    }

    /// Starts a proxy for a server on this port of loopback.
    pub async fn before(port: u16) -> Self {
        Self::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
    }

    /// Starts a proxy on a given port, for products that derive one port from another.
    ///
    /// # Panics
    /// When the port is in use.
    pub async fn start_on(port: u16, target: SocketAddr) -> Self {
        let listener = listen(port).await.expect("the port is free");
        let (target, targets) = watch::channel(target);
        let (state, states) = watch::channel(State { fault: Fault::None, cuts: 0 });
        let (saw, seen) = watch::channel(Fault::None);
        let counts = Arc::new(Counts::default());
        let door = Door { port, targets, states, saw, counts: counts.clone() };
        Self { port, target, state, seen, counts, task: tokio::spawn(door.run(listener)) }
    }

    /// Injects a fault, which applies to new connections once this returns.
    ///
    /// # Panics
    /// When the port cannot be bound again after [`Fault::Refuse`].
    pub async fn set(&self, fault: Fault) {
        self.state.send_modify(|state| state.fault = fault);
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(LIMIT, seen.wait_for(|seen| *seen == fault)).await;
        waited.expect("the port can be taken again").expect("the proxy runs");
    }

    /// Closes the open connections, once.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Sets the server of new connections.
    pub fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Number of accepted connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Number of open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Number of bytes received from clients, and of bytes forwarded to them.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.counts.asked.load(Ordering::Relaxed), self.counts.answered.load(Ordering::Relaxed))
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

struct Door {
    port: u16,
    targets: watch::Receiver<SocketAddr>,
    states: watch::Receiver<State>,
    saw: watch::Sender<Fault>,
    counts: Arc<Counts>,
}

impl Door {
    async fn run(mut self, mut listener: TcpListener) {
        // The connections end with this task.
        let mut connections = JoinSet::new();
        loop {
            let fault = self.states.borrow_and_update().fault;
            if fault == Fault::Refuse {
                listener = self.refuse(listener).await;
                continue;
            }
            self.saw.send_replace(fault);
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((client, _)) = accepted {
                        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(self.connection(client).run());
                    }
                }
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                changed = self.states.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Listens again when that fault ends.
    async fn refuse(&mut self, listener: TcpListener) -> TcpListener {
        drop(listener);
        self.saw.send_replace(Fault::Refuse);
        // An error means that the proxy is being dropped, and this task with it.
        let _ = self.states.wait_for(|state| state.fault != Fault::Refuse).await;
        loop {
            match listen(self.port).await {
                Ok(listener) => return listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn connection(&self, client: TcpStream) -> Connection {
        let open = Open::new(self.counts.clone());
        Connection { client, target: *self.targets.borrow(), states: self.states.clone(), open }
    }
}

/// Counts a connection while it is open.
struct Open(Arc<Counts>);

impl Open {
    fn new(counts: Arc<Counts>) -> Self {
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection {
    client: TcpStream,
    target: SocketAddr,
    states: watch::Receiver<State>,
    open: Open,
}

impl Connection {
    /// Forwards bytes until either side fails, both have ended, or the connection is closed by a fault.
    async fn run(self) {
        let cuts = self.states.borrow().cuts;
        let mut ends = self.states.clone();
        let cut =
            ends.wait_for(|state| state.cuts != cuts || matches!(state.fault, Fault::Refuse | Fault::Close));
        tokio::select! {
            // Both ends see the result.
            _ = carry(self.client, self.target, self.states, &self.open.0) => {}
            _ = cut => {}
        }
    }
}

async fn carry(
    client: TcpStream,
    target: SocketAddr,
    mut states: watch::Receiver<State>,
    counts: &Counts,
) -> io::Result<()> {
    unless_hanging(&mut states).await?;
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (later, due) = mpsc::channel(256);
    tokio::try_join!(
        questions(from_client, to_server, states.clone(), counts),
        answers(from_server, states.clone(), later),
        deliver(due, to_client, states, counts),
    )?;
    Ok(())
}

/// Waits while nothing is forwarded.
async fn unless_hanging(states: &mut watch::Receiver<State>) -> io::Result<Fault> {
    let state = states.wait_for(|state| state.fault != Fault::Hang).await;
    state.map(|state| state.fault).map_err(io::Error::other)
}

async fn questions(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut states: watch::Receiver<State>,
    counts: &Counts,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut bytes).await?;
        unless_hanging(&mut states).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        counts.asked.fetch_add(read as u64, Ordering::Relaxed);
        to.write_all(&bytes[..read]).await?;
    }
}

/// Bytes with their due time.
type Due = (Instant, Vec<u8>);

/// Reads responses with their due times, so that a delay does not add up over the pieces of a long response.
async fn answers(
    mut from: OwnedReadHalf,
    states: watch::Receiver<State>,
    later: mpsc::Sender<Due>,
) -> io::Result<()> {
    loop {
        let mut bytes = vec![0; 16 << 10];
        let read = from.read(&mut bytes).await?;
        bytes.truncate(read);
        let delay = match states.borrow().fault {
            Fault::Delay(delay) => delay,
            _ => Duration::ZERO,
        };
        if later.send((Instant::now() + delay, bytes)).await.is_err() || read == 0 {
            return Ok(());
        }
    }
}

/// Writes responses when they are due, damaged by the current fault. Empty bytes mark the end.
async fn deliver(
    mut due: mpsc::Receiver<Due>,
    mut to: OwnedWriteHalf,
    mut states: watch::Receiver<State>,
    counts: &Counts,
) -> io::Result<()> {
    let mut damage = Damage::default();
    while let Some((time, mut bytes)) = due.recv().await {
        tokio::time::sleep_until(time).await;
        let fault = unless_hanging(&mut states).await?;
        if bytes.is_empty() {
            break;
        }
        let cut = damage.apply(fault, &mut bytes);
        counts.answered.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        to.write_all(&bytes).await?;
        if cut {
            return Err(io::Error::other("truncated"));
        }
    }
    to.shutdown().await
}

/// Damage to a connection's responses since its fault began.
#[derive(Default)]
struct Damage {
    fault: Option<Fault>,
    bytes: u64,
}

impl Damage {
    /// Damages the next bytes; returns true if the connection has to be closed after them.
    fn apply(&mut self, fault: Fault, bytes: &mut Vec<u8>) -> bool {
        if self.fault != Some(fault) {
            *self = Self { fault: Some(fault), bytes: 0 };
        }
        let before = self.bytes;
        self.bytes += bytes.len() as u64;
        match fault {
            Fault::Truncate(limit) if self.bytes >= limit => {
                bytes.truncate(usize::try_from(limit - before.min(limit)).unwrap_or(usize::MAX));
                return true;
            }
            Fault::Garble(every) => {
                let every = every.max(1);
                for (place, byte) in (before + 1..).zip(bytes) {
                    if place.is_multiple_of(every) {
                        *byte = !*byte;
                    }
                }
            }
            Fault::Replace(this, that) => {
                bytes.iter_mut().filter(|byte| **byte == this).for_each(|byte| *byte = that);
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests;
