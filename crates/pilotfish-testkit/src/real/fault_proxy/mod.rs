//! A TCP proxy before any server that misbehaves as told: refuses, closes, hangs, delays, truncates, garbles.
//!
//! It knows no protocol: an answer is what the server sends. Faults can be changed at any time and concern connections that are open as
//! well as new ones. For faults of a Kubernetes API server, which need HTTP, see [`ApiServerProxy`](super::ApiServerProxy).

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

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Connections are cut, and new ones refused: nothing listens.
    Refuse,
    /// Connections are cut, and new ones closed as soon as they are accepted.
    Close,
    /// Connections stay, new ones are accepted, and nothing is forwarded: as from a stopped process. What was held back is forwarded when the
    /// fault is over.
    Hang,
    /// Answers come so much later, whatever their size.
    Delay(Duration),
    /// Each connection is cut after so many more bytes of answers.
    Truncate(u64),
    /// Of the bytes of a connection's answers, every so many-th has all its bits turned. 0 is as 1.
    Garble(u64),
    /// This byte of answers becomes that one: answers in a text format stay readable as HTTP and become wrong in what they say.
    Replace(u8, u8),
}

/// What the tasks know: the fault and how often connections were cut.
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

/// See the module. Ends with its connections when dropped.
pub struct FaultProxy {
    port: u16,
    target: watch::Sender<SocketAddr>,
    state: watch::Sender<State>,
    /// What the accepting task has last seen of the fault.
    seen: watch::Receiver<Fault>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts one on a free port of loopback.
    pub async fn start(target: SocketAddr) -> Self {
        Self::start_on(free_port(), target).await
    }

    /// Starts one before a server on this port of loopback.
    pub async fn before(port: u16) -> Self {
        Self::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
    }

    /// Starts one on a certain port, for products that compute one port from another.
    ///
    /// # Panics
    /// When the port is taken.
    pub async fn start_on(port: u16, target: SocketAddr) -> Self {
        let listener = listen(port).await.expect("the port is free");
        let (target, targets) = watch::channel(target);
        let (state, states) = watch::channel(State { fault: Fault::None, cuts: 0 });
        let (saw, seen) = watch::channel(Fault::None);
        let counts = Arc::new(Counts::default());
        let door = Door { port, targets, states, saw, counts: counts.clone() };
        Self { port, target, state, seen, counts, task: tokio::spawn(door.run(listener)) }
    }

    /// From now on this is wrong: when it returns, new connections are treated so.
    ///
    /// # Panics
    /// When the port cannot be taken again after [`Fault::Refuse`].
    pub async fn set(&self, fault: Fault) {
        self.state.send_modify(|state| state.fault = fault);
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(LIMIT, seen.wait_for(|seen| *seen == fault)).await;
        waited.expect("the port can be taken again").expect("the proxy runs");
    }

    /// Cuts the connections that are open, once.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// New connections lead to this server.
    pub fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    /// The port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// The bytes that clients sent so far, and those that were forwarded to them.
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

/// The task that accepts.
struct Door {
    port: u16,
    targets: watch::Receiver<SocketAddr>,
    states: watch::Receiver<State>,
    saw: watch::Sender<Fault>,
    counts: Arc<Counts>,
}

impl Door {
    async fn run(mut self, mut listener: TcpListener) {
        // Its connections end with it.
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

    /// Listens again when that fault is over.
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
    /// Carries bytes until either side fails, both have ended, or the connection is cut.
    async fn run(self) {
        let cuts = self.states.borrow().cuts;
        let mut ends = self.states.clone();
        let cut =
            ends.wait_for(|state| state.cuts != cuts || matches!(state.fault, Fault::Refuse | Fault::Close));
        tokio::select! {
            // How it ended is seen by both ends.
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

/// Bytes and when they are due.
type Due = (Instant, Vec<u8>);

/// Reads answers and gives each its time, so that a delay does not add up over the pieces of a long answer.
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

/// Writes answers when they are due, damaged as the fault wants it then. Empty bytes are the end.
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

/// What was done to a connection's answers since its fault began.
#[derive(Default)]
struct Damage {
    fault: Option<Fault>,
    bytes: u64,
}

impl Damage {
    /// Damages the next bytes; whether the connection is cut after them.
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
