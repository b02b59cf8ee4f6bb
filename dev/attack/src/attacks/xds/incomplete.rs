//! Incomplete messages.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use pilotfish_proto::ResourceType;

use crate::attacks::crowd;
use crate::dialer::{DELTA, Dialer, SOTW};
use crate::wire::{Node, delta, incomplete, sotw};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "incomplete-calls",
        what: "400 streams a connection of health and reflection that each send 4 MiB but for the last byte, \
            on both ports",
        run: |target, deadline| calls(target, deadline).boxed(),
    },
    Attack {
        name: "incomplete-requests",
        what: "The same by ADS streams, before a node and after it, with a certificate and without",
        run: |target, deadline| requests(target, deadline).boxed(),
    },
    Attack {
        name: "single-bytes",
        what: "Three hundred connections, more than may wait for their turn, that each send the first \
            request of a stream byte by byte, and other streams without one",
        run: |target, deadline| single_bytes(target, deadline).boxed(),
    },
];

/// Number of streams that a connection opens at a time.
const STREAMS: usize = 400;
const SAID: u32 = 4 << 20;
const PATHS: [&str; 4] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Opens streams, sends the bytes of `first` and then the beginning of a message on each, and keeps them
/// until the server ends them.
async fn hold(
    dialer: &Dialer,
    path: &str,
    first: Option<Vec<u8>>,
    beginning: &Bytes,
    counts: &Arc<Counts>,
) -> Result<()> {
    let mut client = dialer.connect().await?;
    let mut ended = FuturesUnordered::new();
    for _ in 0..STREAMS {
        let mut stream = client.open(path, &[]).await?;
        if let Some(first) = &first {
            stream.send(first)?;
        }
        stream.send_raw(beginning.clone())?;
        counts.sent(beginning.len());
        let counts = counts.clone();
        ended.push(async move {
            loop {
                match stream.next().await {
                    Ok(_) => counts.answered(),
                    Err(words) => return counts.refused(words),
                }
            }
        });
    }
    while ended.next().await.is_some() {}
    Ok(())
}

async fn calls(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialers) = (Counts::new(), [Dialer::plaintext(&target), Dialer::nameless(&target)?]);
    let (shared, beginning) = (counts.clone(), incomplete(SAID, SAID as usize - 1));
    crowd(8, deadline, &counts, move |index| {
        let (counts, dialers, beginning) = (shared.clone(), dialers.clone(), beginning.clone());
        async move {
            let [plain, secret] = &dialers;
            let dialer = if index % 2 == 0 { plain } else { secret };
            let path = PATHS.get(index / 2 % PATHS.len()).copied().unwrap_or_default();
            hold(dialer, path, None, &beginning, &counts).await
        }
    })
    .await;
    Ok(counts.tally())
}

async fn requests(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let dialers = [Dialer::plaintext(&target), Dialer::known(&target)?, Dialer::nameless(&target)?];
    let (shared, beginning) = (counts.clone(), incomplete(SAID, SAID as usize - 1));
    crowd(12, deadline, &counts, move |index| {
        let (counts, dialers, beginning) = (shared.clone(), dialers.clone(), beginning.clone());
        async move {
            let Some(dialer) = dialers.get(index % 3) else { return Ok(()) };
            let (node, url) = (Node::numbered(index), ResourceType::Endpoint.type_url());
            let (path, first) = match index / 3 % 2 {
                0 => (DELTA, delta(Some(&node), url, &["x".to_owned()], &[])),
                _ => (SOTW, sotw(Some(&node), url, &["x".to_owned()])),
            };
            let first = (index >= 6).then_some(first);
            hold(dialer, path, first, &beginning, &counts).await
        }
    })
    .await;
    Ok(counts.tally())
}

async fn single_bytes(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    const CONNECTIONS: usize = 300;
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(&target).from(78));
    let shared = counts.clone();
    crowd(CONNECTIONS, deadline, &counts, move |index| {
        let (counts, dialer) = (shared.clone(), dialer.clone());
        async move {
            let mut client = dialer.connect().await?;
            let _silent = client.open(DELTA, &[]).await?;
            let mut stream = client.open(DELTA, &[]).await?;
            stream.headers().await.map_err(anyhow::Error::msg)?;
            counts.answered();
            let request = delta(Some(&Node::numbered(index)), "", &[], &[]);
            for byte in pilotfish_bench::messages::framed(&request) {
                stream.send_raw_flowing(&Bytes::from(vec![byte])).await?;
                counts.sent(1);
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
