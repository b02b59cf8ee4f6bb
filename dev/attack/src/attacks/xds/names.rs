//! Names in subscriptions: very many, nonexistent, or repeated ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::FutureExt;
use pilotfish_bench::messages::{CDS, EDS};
use pilotfish_proto::ResourceType;

use crate::attacks::crowd;
use crate::dialer::{DELTA, Dialer, SOTW};
use crate::wire::{Node, delta, field, sotw};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "subscribe-and-unsubscribe",
        what: "A request of 4 MiB that subscribes to one name 650,000 times and unsubscribes from none a \
            million times",
        run: |target, deadline| subscribe_and_unsubscribe(target, deadline).boxed(),
    },
    Attack {
        name: "invented-names",
        what: "Streams that subscribe to 99,000 names that do not exist, unsubscribe, and invent others",
        run: |target, deadline| invented_names(target, deadline).boxed(),
    },
    Attack {
        name: "names-of-one-host",
        what: "Streams that subscribe to 99,000 subsets and ports that one host does not have, unsubscribe, \
            and invent others: a host that does not exist, and one that does",
        run: |target, deadline| names_of_one_host(target, deadline).boxed(),
    },
    Attack {
        name: "listed-resources",
        what: "Streams that list 40,000 resources as known (initial_resource_versions), of every type, and \
            read no answer",
        run: |target, deadline| listed_resources(target, deadline).boxed(),
    },
    Attack {
        name: "same-names",
        what: "Streams that ask for the same 99,000 names again and again and read no answer",
        run: |target, deadline| same_names(target, deadline).boxed(),
    },
];

/// Number of names in a request within the limits.
const MANY: u64 = 99_000;
/// Maximum time that an attacker waits for a response.
const PATIENCE: Duration = Duration::from_secs(1);

async fn subscribe_and_unsubscribe(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(&target));
    let names = [field(3, "a").repeat(650_000), field(4, "").repeat(1_000_000)].concat();
    let request: Bytes = [field(2, CDS), names].concat().into();
    let shared = counts.clone();
    crowd(2, deadline, &counts, move |index| {
        let (counts, dialer, request) = (shared.clone(), dialer.clone(), request.clone());
        async move {
            let first = delta(Some(&Node::numbered(index)), CDS, &[], &[]).into();
            let mut stream = dialer.stream(DELTA, &[], vec![first]).await?;
            stream.next().await?;
            counts.answered();
            stream.send(&request)?;
            counts.sent(request.len());
            while stream.next().await?.is_some() {
                counts.answered();
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

fn invent(next: &AtomicU64, count: u64) -> Vec<String> {
    let first = next.fetch_add(count, Ordering::Relaxed);
    // Scrambled order: the multiplier is odd, so none is repeated.
    (first..first + count)
        .map(|number| format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
        .collect()
}

async fn invented_names(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    subscribe_in_turns(&target, deadline, |_, name| name).await
}

async fn names_of_one_host(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    subscribe_in_turns(&target, deadline, |index, name| {
        let host = if index < 3 { "nohost.example.com" } else { "svc-0.bench.svc.cluster.local" };
        // Half of them have a port of the service.
        let invented =
            name.get(..4).and_then(|begin| u16::from_str_radix(begin, 16).ok()).unwrap_or_default();
        let port = if invented % 2 == 0 { 80 } else { invented };
        format!("outbound|{port}|{name}|{host}")
    })
    .await
}

/// Clients without identity at two addresses, and some with one, that subscribe to very many invented names,
/// and then to others.
async fn subscribe_in_turns(
    target: &Target,
    deadline: Deadline,
    name: fn(usize, String) -> String,
) -> Result<Tally> {
    let (counts, dialers) = (Counts::new(), Dialer::of_each_kind(target)?);
    let (shared, next) = (counts.clone(), Arc::new(AtomicU64::new(1)));
    crowd(6, deadline, &counts, move |index| {
        let (counts, next) = (shared.clone(), next.clone());
        let dialer = dialers.get(index % dialers.len()).cloned();
        async move {
            let Some(dialer) = dialer else { return Ok(()) };
            let first = delta(Some(&Node::numbered(index)), EDS, &["x".to_owned()], &[]).into();
            let mut stream = dialer.stream(DELTA, &[], vec![first]).await?;
            loop {
                let names = invent(&next, MANY).into_iter().map(|text| name(index, text)).collect::<Vec<_>>();
                for request in [delta(None, EDS, &names, &[]), delta(None, EDS, &[], &names)] {
                    stream.send(&request)?;
                    counts.sent(request.len());
                    if let Ok(answer) = tokio::time::timeout(PATIENCE, stream.next()).await {
                        anyhow::ensure!(answer?.is_some(), "ended well");
                        counts.answered();
                    }
                }
            }
        }
    })
    .await;
    Ok(counts.tally())
}

/// A request that begins with a node and lists resources as known.
fn listing(node: &Node, url: &str, names: &[String]) -> Vec<u8> {
    let listed =
        names.iter().flat_map(|name| field(5, [field(1, name), field(2, "0000000000000001")].concat()));
    [delta(Some(node), url, &[], &[]), listed.collect()].concat()
}

async fn listed_resources(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    const LISTED: u64 = 40_000;
    let (counts, dialers) = (Counts::new(), Dialer::of_each_kind(&target)?);
    let (shared, next) = (counts.clone(), Arc::new(AtomicU64::new(1)));
    crowd(6, deadline, &counts, move |index| {
        let (counts, next) = (shared.clone(), next.clone());
        let dialer = dialers.get(index % dialers.len()).cloned();
        async move {
            let Some(dialer) = dialer else { return Ok(()) };
            let mut client = dialer.connect_with_window(1).await?;
            let mut streams = Vec::new();
            loop {
                let mut stream = client.open(DELTA, &[]).await?;
                for ty in ResourceType::ALL {
                    let names = invent(&next, LISTED);
                    let request = Bytes::from(listing(&Node::numbered(index), ty.type_url(), &names));
                    // Sent as fast as the server reads.
                    stream.send_flowing(&request).await?;
                    counts.sent(request.len());
                    counts.answered();
                }
                streams.push(stream);
            }
        }
    })
    .await;
    Ok(counts.tally())
}

async fn same_names(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(&target));
    let names = invent(&AtomicU64::new(1), MANY);
    let requests = [(DELTA, delta(None, EDS, &names, &[])), (SOTW, sotw(None, EDS, &names))];
    let requests = Arc::new(requests.map(|(path, request)| (path, Bytes::from(request))));
    let shared = counts.clone();
    crowd(8, deadline, &counts, move |index| {
        let (counts, dialer, requests) = (shared.clone(), dialer.clone(), requests.clone());
        async move {
            let [delta_request, sotw_request] = &*requests;
            let (path, request) = if index % 2 == 0 { delta_request } else { sotw_request };
            let node = Node::numbered(index);
            let first =
                if index % 2 == 0 { delta(Some(&node), EDS, &[], &[]) } else { sotw(Some(&node), EDS, &[]) };
            let mut client = dialer.connect_with_window(1).await?;
            let mut stream = client.open(path, &[]).await?;
            stream.send(&first)?;
            // Headers are not a response that the client has to read.
            stream.headers().await.map_err(anyhow::Error::msg)?;
            counts.answered();
            loop {
                stream.send_flowing(request).await?;
                counts.sent(request.len());
            }
        }
    })
    .await;
    Ok(counts.tally())
}
