//! An honest session, truncated or corrupted at each of its bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use parking_lot::Mutex;
use pilotfish_bench::messages::{CDS, EDS};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::attacks::crowd;
use crate::dialer::{DELTA, Dialer, SOTW};
use crate::wire::{Node, delta, field, sotw, text};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "truncated-session",
        what: "A recorded session, sent again up to each of its bytes, its connection then closed or left \
            open",
        run: |target, deadline| replay(target, deadline, Fault::Cut, Way::Plain(Protocol::Delta)).boxed(),
    },
    Attack {
        name: "truncated-sotw-session",
        what: "The same of a session of state of the world",
        run: |target, deadline| replay(target, deadline, Fault::Cut, Way::Plain(Protocol::Sotw)).boxed(),
    },
    Attack {
        name: "garbage-in-session",
        what: "A recorded session, sent again with each of its bytes turned around, one bit changed, or \
            random bytes from there on",
        run: |target, deadline| {
            replay(target, deadline, Fault::Falsified, Way::Plain(Protocol::Delta)).boxed()
        },
    },
    Attack {
        name: "garbage-in-sotw-session",
        what: "The same of a session of state of the world",
        run: |target, deadline| {
            replay(target, deadline, Fault::Falsified, Way::Plain(Protocol::Sotw)).boxed()
        },
    },
    Attack {
        name: "garbage-behind-tls",
        what: "The same of a session over TLS, by a client that proves who it is",
        run: |target, deadline| replay(target, deadline, Fault::Falsified, Way::Tls).boxed(),
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Delta,
    Sotw,
}

/// Recorded session, and the port that it is sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain(Protocol),
    /// A delta session over TLS.
    Tls,
}

impl Way {
    fn protocol(self) -> Protocol {
        match self {
            Self::Plain(protocol) => protocol,
            Self::Tls => Protocol::Delta,
        }
    }

    fn dialer(self, target: &Target) -> Result<Dialer> {
        match self {
            Self::Plain(_) => Ok(Dialer::plaintext(target)),
            Self::Tls => Dialer::known(target),
        }
    }
}

impl Protocol {
    fn path(self) -> &'static str {
        match self {
            Self::Delta => DELTA,
            Self::Sotw => SOTW,
        }
    }

    fn ask(self, node: Option<&Node>, url: &str, names: &[String]) -> Vec<u8> {
        match self {
            Self::Delta => delta(node, url, names, &[]),
            Self::Sotw => sotw(node, url, names),
        }
    }

    /// An ACK of clusters.
    fn ack(self, nonce: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Delta => [field(2, CDS), field(6, nonce)].concat(),
            Self::Sotw => [field(4, CDS), field(5, nonce)].concat(),
        }
    }

    /// The last request: fewer endpoints.
    fn last(self, names: &[String]) -> Vec<u8> {
        match self {
            Self::Delta => delta(None, EDS, &[], &names[1..]),
            Self::Sotw => sotw(None, EDS, &names[..1]),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Cut,
    Falsified,
}

const CONNECTIONS: usize = 16;
/// Maximum wait for the response to a corrupted session: the server may rightly wait for more.
const PATIENCE: Duration = Duration::from_millis(20);
/// Odd, and no divisor of usual lengths, so that bytes of the whole session are covered early.
const STEP: usize = 331;

async fn replay(target: Arc<Target>, deadline: Deadline, fault: Fault, way: Way) -> Result<Tally> {
    let session: Arc<[u8]> = record(&target, way.protocol()).await?.into();
    let step = (STEP..).find(|step| gcd(*step, session.len()) == 1).unwrap_or(1);
    let (counts, next) = (Counts::new(), Arc::new(AtomicUsize::new(0)));
    let (shared, dialer) = (counts.clone(), way.dialer(&target)?);
    crowd(CONNECTIONS, deadline, &counts, move |_| {
        let (counts, session, next) = (shared.clone(), session.clone(), next.clone());
        let dialer = dialer.clone();
        async move {
            for _ in 0..64 {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let at = number.wrapping_mul(step) % session.len();
                let bytes = spoil(&session, at, number / session.len(), fault);
                let mut socket = dialer.dial().await?;
                // The server may close the connection before it has read everything.
                let _ = socket.write_all(&bytes).await;
                counts.sent(bytes.len());
                if fault == Fault::Cut && number % 2 == 0 {
                    let _ = socket.shutdown().await;
                }
                match tokio::time::timeout(PATIENCE, answer(&mut socket)).await {
                    Ok(true) => counts.refused("closed"),
                    Ok(false) => counts.refused("closed without an answer"),
                    Err(_) => counts.answered(),
                }
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

/// Reads until the end; returns true if there was any data.
async fn answer(socket: &mut (impl AsyncRead + Unpin)) -> bool {
    let (mut buffer, mut any) = ([0; 4_096], false);
    while let Ok(read @ 1..) = socket.read(&mut buffer).await {
        any |= read > 0;
    }
    any
}

/// The session with a fault at that byte, which differs in each round.
fn spoil(session: &[u8], at: usize, round: usize, fault: Fault) -> Vec<u8> {
    let mut bytes = session.to_vec();
    if fault == Fault::Cut {
        bytes.truncate(at);
        return bytes;
    }
    match round % 3 {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0xff),
        1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (at % 8)),
        _ => {
            // A linear congruence is sufficiently random, and deterministic.
            let mut state = at as u64 | 1;
            for byte in bytes.iter_mut().skip(at) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = u8::try_from(state >> 56).unwrap_or_default();
            }
        }
    }
    bytes
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Records the bytes of an honest client, from the HTTP/2 preface to its ACKs.
async fn record(target: &Target, protocol: Protocol) -> Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let between = listener.local_addr()?;
    let (recorded, server) = (Arc::<Mutex<Vec<u8>>>::default(), target.plaintext_xds);
    let record = recorded.clone();
    let carrier = tokio::spawn(async move {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(server).await?;
        let ((mut from, mut back), (mut answers, mut to)) = (client.into_split(), server.into_split());
        let there = async {
            let mut buffer = [0; 4_096];
            loop {
                let read = from.read(&mut buffer).await?;
                let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
                    return to.shutdown().await;
                };
                record.lock().extend_from_slice(chunk);
                to.write_all(chunk).await?;
            }
        };
        let (there, _) = tokio::join!(there, tokio::io::copy(&mut answers, &mut back));
        there
    });
    let dialer = Dialer::at(between);
    let names = ["outbound|80||svc-1.bench.svc.cluster.local".to_owned(), "nothing".to_owned()];
    let node =
        Node::numbered(1).with("LABELS", field(5, crate::wire::structure([("app".to_owned(), text("a"))])));
    let first = vec![protocol.ask(Some(&node), EDS, &names).into(), protocol.ask(None, CDS, &[]).into()];
    let mut stream = dialer.stream(protocol.path(), &[], first).await?;
    for _ in 0..2 {
        let answer = stream.next().await?.context("the session ended")?;
        let mut parts = pilotfish_bench::messages::fields(&answer);
        let nonce =
            parts.find(|(number, _)| *number == 5).map(|(_, nonce)| nonce.to_vec()).unwrap_or_default();
        stream.send(&protocol.ack(nonce))?;
    }
    stream.send(&protocol.last(&names))?;
    drop(stream);
    // Ends when the client has closed its connection, and the server's side is closed as well.
    let _ = tokio::time::timeout(Duration::from_secs(10), carrier).await;
    let recorded = recorded.lock().clone();
    ensure!(recorded.starts_with(b"PRI * HTTP/2.0") && recorded.len() > 400, "only {} bytes", recorded.len());
    Ok(recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_spoilt_in_its_turn() {
        let session: Vec<u8> = (0..200).collect();
        for at in 0..session.len() {
            assert_eq!(spoil(&session, at, 0, Fault::Cut), &session[..at]);
            for round in 0..3 {
                let spoilt = spoil(&session, at, round, Fault::Falsified);
                assert_eq!((spoilt.len(), &spoilt[..at]), (session.len(), &session[..at]));
                assert_ne!(spoilt, session, "{at} in round {round}");
            }
        }
    }
}
