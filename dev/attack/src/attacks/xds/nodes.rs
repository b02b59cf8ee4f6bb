//! Nodes of first requests: large, deep, or different for each stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::FutureExt;
use pilotfish_bench::messages::{CDS, LDS};

use crate::attacks::crowd;
use crate::dialer::{DELTA, Dialer};
use crate::wire::{Node, delta, field, nested, text};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "many-extensions",
        what: "Nodes with 2,000,000 empty extensions, and with as many as a node may have bytes, kept for \
            the streams' life",
        run: |target, deadline| many_extensions(target, deadline).boxed(),
    },
    Attack {
        name: "long-node-id",
        what: "Node ids of 4 MB, and of 1 KiB with thousands of refusals that each would be logged",
        run: |target, deadline| long_node_id(target, deadline).boxed(),
    },
    Attack {
        name: "many-addresses",
        what: "INSTANCE_IPS with 500,000 addresses, and with as many as are allowed, another set for each \
            stream",
        run: |target, deadline| many_addresses(target, deadline).boxed(),
    },
    Attack {
        name: "large-metadata",
        what: "Node metadata of megabytes: one long text, many values, many labels",
        run: |target, deadline| large_metadata(target, deadline).boxed(),
    },
    Attack {
        name: "large-nodes",
        what: "Connections with as many streams as they may have, each with a node of 500 KiB that stays: a \
            text that is read, and one that is not",
        run: |target, deadline| large_nodes(target, deadline).boxed(),
    },
    Attack {
        name: "deep-metadata",
        what: "Node metadata nested a hundred thousand levels deep, in objects and in lists",
        run: |target, deadline| deep_metadata(target, deadline).boxed(),
    },
    Attack {
        name: "new-nodes",
        what: "A connection for each node, and a node for each connection: never the same proxy twice",
        run: |target, deadline| new_nodes(target, deadline).boxed(),
    },
];

/// Time that an attacker keeps an accepted stream.
const HOLD: Duration = Duration::from_secs(2);

/// Opens streams that each begin with one of these requests, and keeps accepted ones for a while.
async fn begin(target: &Target, deadline: Deadline, size: usize, requests: Vec<Bytes>) -> Tally {
    let (counts, dialer, requests) = (Counts::new(), Dialer::plaintext(target), Arc::new(requests));
    let (shared, next) = (counts.clone(), Arc::new(AtomicUsize::new(0)));
    crowd(size, deadline, &counts, move |_| {
        let (counts, dialer, requests, next) =
            (shared.clone(), dialer.clone(), requests.clone(), next.clone());
        async move {
            let number = next.fetch_add(1, Ordering::Relaxed) % requests.len().max(1);
            let Some(request) = requests.get(number) else { return Ok(()) };
            let mut client = dialer.connect().await?;
            let mut stream = client.open(DELTA, &[]).await?;
            stream.send(request)?;
            counts.sent(request.len());
            let held = tokio::time::timeout(HOLD, async {
                loop {
                    match stream.next().await {
                        Ok(_) => counts.answered(),
                        Err(words) => return words,
                    }
                }
            });
            held.await.map_or(Ok(()), |words| Err(anyhow::Error::msg(words)))
        }
    })
    .await;
    counts.tally()
}

fn request(node: &Node) -> Bytes {
    delta(Some(node), CDS, &[], &[]).into()
}

async fn many_extensions(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let with = |count: usize| request(&Node::numbered(count).and([field(9, "").repeat(count)]));
    Ok(begin(&target, deadline, 8, vec![with(2_000_000), with(250_000)]).await)
}

async fn long_node_id(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let long = |length: usize| {
        let mut node = Node::numbered(length);
        node.id = format!("sidecar~10.0.0.1~{}.bench~bench.svc.cluster.local", "a".repeat(length));
        request(&node)
    };
    let (huge, allowed) =
        (begin(&target, deadline, 2, vec![long(4_000_000)]), refusals(&target, deadline, long(900)));
    let (huge, allowed) = tokio::join!(huge, allowed);
    let mut tally = huge;
    tally.add(allowed);
    Ok(tally)
}

/// Refuses responses as fast as they are read.
async fn refusals(target: &Target, deadline: Deadline, first: Bytes) -> Tally {
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(target));
    let shared = counts.clone();
    let refusal = [field(2, CDS), field(7, field(2, "x".repeat(2_000)))].concat();
    crowd(4, deadline, &counts, move |_| {
        let (counts, dialer, first, refusal) =
            (shared.clone(), dialer.clone(), first.clone(), refusal.clone());
        async move {
            let mut client = dialer.connect().await?;
            let mut stream = client.open(DELTA, &[]).await?;
            stream.send(&first)?;
            stream.next().await.map_err(anyhow::Error::msg)?;
            counts.answered();
            let refusal = pilotfish_bench::messages::framed(&refusal);
            loop {
                stream.send_raw_flowing(&refusal).await?;
                counts.sent(refusal.len());
            }
        }
    })
    .await;
    counts.tally()
}

async fn many_addresses(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let addresses = |first: usize, count: usize| {
        let each =
            (first..first + count).map(|n| format!("10.{}.{}.{}", n / 65_536 % 256, n / 256 % 256, n % 256));
        each.collect::<Vec<_>>().join(",")
    };
    let with = |first: usize, count: usize| {
        request(&Node::numbered(first).with("INSTANCE_IPS", text(&addresses(first, count))))
    };
    let mut requests: Vec<Bytes> = (0..64).map(|number| with(number * 64, 64)).collect();
    // 500,000 of them exceed the maximum size of a request, the other ones the maximum number.
    requests.extend([with(0, 500_000), with(0, 30_000), with(0, 65)]);
    Ok(begin(&target, deadline, 16, requests).await)
}

async fn large_metadata(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let node = Node::numbered;
    let values = |count: usize| (0..count).map(|n| (format!("k{n}"), text("v")));
    let labels = |count: usize| field(5, crate::wire::structure(values(count)));
    let spread =
        |count: usize| values(count).fold(node(1), |node, (key, value)| node.and_metadata(key, value));
    let nodes = [
        node(0).with("LONG", text(&"x".repeat(3 << 20))),
        node(0).with("LONG", text(&"x".repeat(500 << 10))),
        spread(200_000),
        spread(4_000),
        node(2).with("LABELS", labels(100_000)),
        node(2).with("LABELS", labels(256)),
    ];
    Ok(begin(&target, deadline, 16, nodes.iter().map(request).collect()).await)
}

/// Number of streams of one connection.
const STREAMS: usize = 1_000;

async fn large_nodes(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialers) = (Counts::new(), Dialer::of_each_kind(&target)?);
    let (shared, text) = (counts.clone(), text(&"x".repeat(500 << 10)));
    crowd(12, deadline, &counts, move |index| {
        let (counts, text) = (shared.clone(), text.clone());
        let dialer = dialers.get(index % dialers.len()).cloned();
        async move {
            let Some(dialer) = dialer else { return Ok(()) };
            let mut client = dialer.connect().await?;
            let mut streams = Vec::new();
            for number in 0..STREAMS {
                let key = if number % 2 == 0 { "IDLE_TIMEOUT" } else { "LONG" };
                let request = request(&Node::numbered(STREAMS * index + number).with(key, text.clone()));
                let mut stream = client.open(DELTA, &[]).await?;
                stream.send_flowing(&request).await?;
                counts.sent(request.len());
                match stream.next().await {
                    Ok(_) => counts.answered(),
                    Err(words) => counts.refused(words),
                }
                streams.push(stream);
            }
            deadline.reached().await;
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn deep_metadata(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let mut requests = Vec::new();
    for lists in [false, true] {
        for depth in [10, 101, 1_000, 3_000] {
            requests.push(request(&Node::numbered(depth).with("DEEP", nested(depth, lists))));
        }
    }
    // Deeper than is quick to encode correctly: each level has an invented length.
    requests.push(request(&Node::numbered(0).with("DEEP", [0x32, 0x7f, 0x0a, 0x7f].repeat(100_000))));
    Ok(begin(&target, deadline, 16, requests).await)
}

async fn new_nodes(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialers) = (Counts::new(), [Dialer::plaintext(&target), Dialer::known(&target)?]);
    let (shared, next) = (counts.clone(), Arc::new(AtomicUsize::new(0)));
    crowd(16, deadline, &counts, move |index| {
        let (counts, dialers, next) = (shared.clone(), dialers.clone(), next.clone());
        async move {
            let [plain, secret] = &dialers;
            let dialer = if index % 4 == 0 { secret } else { plain };
            let node = Node::numbered(next.fetch_add(1, Ordering::Relaxed));
            let requests = vec![delta(Some(&node), CDS, &[], &[]).into(), delta(None, LDS, &[], &[]).into()];
            counts.sent(0);
            let mut stream = dialer.stream(DELTA, &[], requests).await?;
            for _ in 0..2 {
                stream.next().await?;
                counts.answered();
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}
