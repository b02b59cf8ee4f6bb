//! Very many certificate requests, and ones that hold their place.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use pilotfish_bench::messages::framed;

use super::{FIRST_ADDRESS, Sender, judge, requests, stranger};
use crate::attacks::crowd;
use crate::certificate::{CREATE, answer, ask, csr, request};
use crate::dialer::Dialer;
use crate::mesh::many;
use crate::{Counts, Deadline, Tally, Target};

/// Rate and burst of requests of one identity, and of one address.
const PER_SECOND: u64 = 200;
const BURST: u64 = 2_000;
/// Refusal of a validity that is too long: it follows the limits, and costs no signature.
const COUNTED: &str = "longer than the maximum";

/// Clients with different identities.
fn senders(target: &Target) -> Result<Vec<Sender>> {
    let with = |(number, (chain, key)): (usize, &(PathBuf, PathBuf))| {
        let dialer = Dialer::with_certificate(target.tls_xds, &target.ca_certificate, chain, key)?;
        Ok(Sender { dialer, account: many(number), refusal: None })
    };
    target.many.iter().enumerate().map(with).collect()
}

pub(super) async fn of_identity(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let sender = stranger(&target)?;
    let senders = (0..16).map(|index| at(&sender, FIRST_ADDRESS + index)).collect();
    counted(senders, deadline).await
}

pub(super) async fn of_address(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    counted(senders(&target)?.iter().map(|sender| at(sender, FIRST_ADDRESS - 1)).collect(), deadline).await
}

fn at(sender: &Sender, address: u8) -> Sender {
    Sender { dialer: sender.dialer.clone().from(address), ..sender.clone() }
}

/// Sends requests without a pause, and checks how many were admitted.
async fn counted(senders: Vec<Sender>, deadline: Deadline) -> Result<Tally> {
    let began = Instant::now();
    let body = framed(&request(&csr()?, i64::MAX, &[]));
    let tally = flood(senders, deadline, &body, Some(COUNTED)).await?;
    let admitted = tally.refusals.iter().filter(|(words, _)| words.contains(COUNTED));
    let admitted: u64 = admitted.map(|(_, count)| count).sum();
    let allowed = BURST + PER_SECOND * (began.elapsed().as_secs() + 1);
    ensure!(admitted <= allowed, "{admitted} requests were admitted, and {allowed} are allowed");
    Ok(tally)
}

pub(super) async fn storm(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let all = senders(&target)?;
    let all = all.iter().zip(FIRST_ADDRESS..).map(|(sender, address)| at(sender, address)).collect();
    let costly = requests::costly()?;
    let body = &costly.first().context("there is a request")?.body;
    flood(all, deadline, body, None).await
}

/// Sends a request on 16 streams of a connection of each client at a time, and checks each response.
async fn flood(
    senders: Vec<Sender>,
    deadline: Deadline,
    body: &Bytes,
    refusal: Option<&'static str>,
) -> Result<Tally> {
    let counts = Counts::new();
    let shared = (counts.clone(), Arc::new(senders), body.clone());
    let wrong = Arc::new(parking_lot::Mutex::new(None));
    let first_wrong = wrong.clone();
    crowd(shared.1.len(), deadline, &counts, move |index| {
        let ((counts, senders, body), wrong) = (shared.clone(), wrong.clone());
        async move {
            let sender = senders.get(index).context("there is a client")?;
            let mut client = sender.dialer.connect().await?;
            for _ in 0..50 {
                counts.sent(body.len());
                let answer = ask(&mut client, CREATE, &[], &body).await;
                if let Err(error) = judge(&answer, refusal, &sender.account) {
                    wrong.lock().get_or_insert(error);
                }
                match answer {
                    Ok(_) => counts.answered(),
                    Err(words) => counts.refused(words.replace(|c: char| c.is_ascii_digit(), "N")),
                }
            }
            Ok(())
        }
    })
    .await;
    let wrong: Option<anyhow::Error> = first_wrong.lock().take();
    wrong.map_or_else(|| Ok(counts.tally()), Err)
}

/// Connections, and calls of each: a quarter more than a port admits of all.
const CONNECTIONS: usize = 100;
const CALLS: usize = 16;
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Pace of the bytes of a held call.
#[derive(Clone, Copy)]
enum Bytewise {
    /// One byte in 100 ms.
    Slowly,
    /// All bytes in one write.
    AtOnce,
}

/// Calls that keep their places.
struct Hold {
    dialer: Dialer,
    path: &'static str,
    body: Bytes,
    pace: Bytewise,
    /// True if the request ends.
    ends: bool,
    /// Receive window of a stream.
    window: u32,
}

const OPEN: u32 = 1 << 20;

pub(super) async fn slow(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let body = framed(&request(&csr()?, 3600, &[]));
    let dialer = Dialer::known(&target)?;
    let hold = Hold { dialer, path: CREATE, body, pace: Bytewise::Slowly, ends: false, window: OPEN };
    held(hold, deadline).await
}

pub(super) async fn half_open(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let body = framed(&request(&csr()?, 3600, &[]));
    let body = body.slice(..body.len() / 2);
    let dialer = Dialer::known(&target)?;
    let hold = Hold { dialer, path: CREATE, body, pace: Bytewise::AtOnce, ends: false, window: OPEN };
    held(hold, deadline).await
}

pub(super) async fn unread(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let body = framed(&request(&csr()?, 3600, &[]));
    let dialer = Dialer::known(&target)?;
    let hold = Hold { dialer, path: CREATE, body, pace: Bytewise::AtOnce, ends: true, window: 0 };
    held(hold, deadline).await
}

pub(super) async fn watches(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (dialer, body) = (Dialer::nameless(&target)?, framed(&[]));
    let hold = Hold { dialer, path: WATCH, body, pace: Bytewise::AtOnce, ends: true, window: OPEN };
    held(hold, deadline).await
}

/// Opens the calls from ten addresses, and keeps them until the server ends them or the attack is over.
async fn held(hold: Hold, deadline: Deadline) -> Result<Tally> {
    let (counts, hold) = (Counts::new(), Arc::new(hold));
    let shared = counts.clone();
    crowd(CONNECTIONS, deadline, &counts, move |index| {
        let (counts, hold) = (shared.clone(), hold.clone());
        async move {
            let dialer = hold.dialer.clone().from(FIRST_ADDRESS + u8::try_from(index % 10)?);
            let mut client = dialer.connect_with_window(hold.window).await?;
            counts.answered();
            let mut ended = FuturesUnordered::new();
            for _ in 0..CALLS {
                let mut stream = client.open(hold.path, &[]).await?;
                counts.sent(hold.body.len());
                let (hold, counts) = (hold.clone(), counts.clone());
                ended.push(async move {
                    let pieces = match hold.pace {
                        Bytewise::Slowly => hold.body.chunks(1),
                        Bytewise::AtOnce => hold.body.chunks(hold.body.len()),
                    };
                    for piece in pieces {
                        // A refused stream accepts no data.
                        let _ = stream.send_raw(Bytes::copy_from_slice(piece));
                        if matches!(hold.pace, Bytewise::Slowly) {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                    if hold.ends {
                        let _ = stream.finish();
                    }
                    match answer(&mut stream).await {
                        Ok(_) => counts.answered(),
                        Err(words) => counts.refused(words),
                    }
                });
            }
            while ended.next().await.is_some() {}
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
