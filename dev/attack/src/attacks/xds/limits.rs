//! Tests of each limit in docs/limits.md that a stream can reach: at the limit a request is served, beyond it
//! the refusal names the limit.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::select_all;
use pilotfish_bench::messages::{CDS, EDS, framed};

use crate::attacks::REST;
use crate::dialer::{DELTA, Dialer, Stream};
use crate::wire::{Node, contains, delta, field, incomplete, nested, structure, text};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "node-limits",
        what: "Each limit of a node from both sides: at it is served, one beyond it is refused by its name",
        run: |target, deadline| both_sides(target, deadline, of_nodes).boxed(),
    },
    Attack {
        name: "name-limits",
        what: "The same for the limits of resource names",
        run: |target, deadline| both_sides(target, deadline, of_names).boxed(),
    },
    Attack {
        name: "request-limits",
        what: "The same for those of requests: their bytes, what comes before a node, and what is not \
            complete",
        run: |target, deadline| requests(target, deadline).boxed(),
    },
    Attack {
        name: "call-limits",
        what: "The same for calls of health and reflection, and streams on the TLS port that prove nothing",
        run: |target, deadline| calls_of_services(target, deadline).boxed(),
    },
    Attack {
        name: "claim-limits",
        what: "As many network views as strangers of one address may claim, one more, and one of a client \
            that proves who it is",
        run: |target, deadline| claims(target, deadline).boxed(),
    },
];

/// Table of the limits; a test of the settings compares it with the code.
const TABLE: &str = include_str!("../../../../../docs/limits.md");

/// Value of a client limit in that table.
fn allowed(limit: &str) -> Result<usize> {
    let row = TABLE.lines().find_map(|line| line.strip_prefix(&format!("| `{limit}` | ")));
    let cell = row.and_then(|row| row.split(" |").next()).with_context(|| format!("no row of {limit}"))?;
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let unit = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        other => bail!("{limit}: what is {other}?"),
    };
    Ok(number.parse::<usize>()? * unit)
}

/// Timeout of a response at a limit: it is large, and the machine is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tests each case at and beyond its limit, repeatedly until the deadline, and at least once.
async fn both_sides(target: Arc<Target>, deadline: Deadline, cases: fn() -> Vec<Case>) -> Result<Tally> {
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(&target));
    loop {
        for case in cases() {
            try_case(&dialer, &case, &counts).await?;
        }
        if deadline.passed() {
            return Ok(counts.tally());
        }
        tokio::time::sleep(REST).await;
    }
}

async fn try_case(dialer: &Dialer, case: &Case, counts: &Counts) -> Result<()> {
    let allowed = allowed(case.limit)?;
    served(dialer, case, allowed, counts).await.with_context(|| format!("at the limit {}", case.limit))?;
    refused(dialer, &case.messages(allowed + 1), case.limit, counts).await
}

async fn requests(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let mut tally = both_sides(target.clone(), deadline, of_requests).await?;
    let counts = Counts::new();
    incomplete_bytes(&Dialer::plaintext(&target), &counts).await?;
    tally.add(counts.tally());
    Ok(tally)
}

async fn calls_of_services(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialer) = (Counts::new(), Dialer::plaintext(&target));
    loop {
        calls(&dialer, &counts).await?;
        call_bytes(&dialer, &counts).await?;
        nameless(&target, &counts).await?;
        if deadline.passed() {
            return Ok(counts.tally());
        }
        tokio::time::sleep(REST).await;
    }
}

/// One address may use half of the total.
async fn claims(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let limit = "node-claims";
    let (counts, most) = (Counts::new(), allowed(limit)? / 2);
    let stranger = Dialer::plaintext(&target).from(66);
    let node = |number: usize| {
        let view = format!("attack-{number}");
        vec![Bytes::from(delta(
            Some(&Node::numbered(number).with("REQUESTED_NETWORK_VIEW", text(&view))),
            CDS,
            &[],
            &[],
        ))]
    };
    loop {
        let mut held = Vec::new();
        for number in 0..most {
            let (client, mut stream) = open(&stranger, &node(number), &counts).await?;
            let answer = tokio::time::timeout(PATIENCE, stream.next()).await;
            answer
                .context("no answer in time")?
                .map_err(anyhow::Error::msg)
                .context("at the limit node-claims")?;
            counts.answered();
            held.push((client, stream));
        }
        refused(&stranger, &node(most), limit, &counts).await?;
        let (_client, mut known) = open(&Dialer::known(&target)?, &node(most), &counts).await?;
        let answer = tokio::time::timeout(PATIENCE, known.next()).await.context("no answer in time")?;
        answer.map_err(anyhow::Error::msg).context("one that proves who it is has places of its own")?;
        counts.answered();
        drop(held);
        if deadline.passed() {
            return Ok(counts.tally());
        }
        tokio::time::sleep(REST).await;
    }
}

/// Requests that reach a limit, built from a number.
struct Case {
    limit: &'static str,
    asks: &'static str,
    build: fn(usize) -> Vec<Vec<u8>>,
}

impl Case {
    fn messages(&self, number: usize) -> Vec<Bytes> {
        (self.build)(number).into_iter().map(Bytes::from).collect()
    }
}

fn first(node: &Node) -> Vec<Vec<u8>> {
    vec![delta(Some(node), CDS, &[], &[])]
}

/// An unknown field of exactly that size, including its key and length.
fn padding(bytes: usize) -> Vec<u8> {
    let of = |length: usize| field(15, "x".repeat(bytes.saturating_sub(1 + length)));
    (1..=5).map(of).find(|padding| padding.len() == bytes).unwrap_or_default()
}

/// An encoded node of that size.
fn node_of(bytes: usize) -> Node {
    let node = Node::numbered(1);
    let missing = bytes.saturating_sub(node.encode().len());
    node.and([padding(missing)])
}

/// A request of that size, with a node.
fn request_of(bytes: usize) -> Vec<u8> {
    let request = delta(Some(&Node::numbered(1)), CDS, &[], &[]);
    let padding = padding(bytes.saturating_sub(request.len()));
    [request, padding].concat()
}

fn case(limit: &'static str, build: fn(usize) -> Vec<Vec<u8>>) -> Case {
    Case { limit, asks: CDS, build }
}

fn of_nodes() -> Vec<Case> {
    vec![
        case("node-id-bytes", |bytes| {
            let mut node = Node::numbered(1);
            let (head, tail) = ("sidecar~10.0.0.1~", ".bench~bench.svc.cluster.local");
            node.id = format!("{head}{}{tail}", "a".repeat(bytes - head.len() - tail.len()));
            first(&node)
        }),
        case("node-bytes", |bytes| first(&node_of(bytes))),
        case("node-values", |count| {
            let node = Node::numbered(1);
            let more = count - node.metadata.len();
            first(&(0..more).fold(node, |node, n| node.and_metadata(format!("k{n}"), text("v"))))
        }),
        // The metadata itself is the first level.
        case("node-depth", |depth| first(&Node::numbered(1).with("DEEP", nested(depth - 1, false)))),
        case("node-depth", |depth| first(&Node::numbered(1).with("DEEP", nested(depth - 1, true)))),
        case("node-addresses", |count| {
            let all: Vec<String> = (0..count).map(|n| format!("10.9.{}.{}", n / 200, n % 200 + 1)).collect();
            first(&Node::numbered(1).with("INSTANCE_IPS", text(&all.join(","))))
        }),
        case("node-labels", |count| {
            let labels = structure((0..count).map(|n| (format!("k{n}"), text("v"))));
            first(&Node::numbered(1).with("LABELS", field(5, labels)))
        }),
    ]
}

fn of_requests() -> Vec<Case> {
    vec![
        case("request-bytes", |bytes| vec![request_of(bytes)]),
        // The server checks at each HTTP/2 frame, so the node has to be more than one frame late.
        case("first-bytes", |bytes| {
            let request = delta(Some(&Node::numbered(1)), CDS, &[], &[]);
            let most = allowed("first-bytes").unwrap_or_default();
            let late = if bytes > most { 64 << 10 } else { 0 };
            let padding = padding(bytes.saturating_sub(request.len()) + late);
            vec![[padding, request].concat()]
        }),
    ]
}

fn of_names() -> Vec<Case> {
    let case = |limit, build| Case { limit, asks: EDS, build };
    vec![
        case("subscriptions", |count| {
            let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
            vec![delta(Some(&Node::numbered(1)), EDS, &names, &[])]
        }),
        case("subscription-bytes", |bytes| {
            let mut messages = vec![delta(Some(&Node::numbered(1)), EDS, &[], &[])];
            let long = |n: usize| format!("{n:08}").repeat(8_192);
            let whole = bytes >> 16;
            // Names of 64 KiB, 32 in a request; the remainder is one more name.
            let names: Vec<String> = (0..whole).map(long).collect();
            messages.extend(names.chunks(32).map(|names| delta(None, EDS, names, &[])));
            let rest = bytes & 0xffff;
            messages.extend((rest > 0).then(|| delta(None, EDS, &["r".repeat(rest)], &[])));
            messages
        }),
    ]
}

async fn open(
    dialer: &Dialer,
    messages: &[Bytes],
    counts: &Counts,
) -> Result<(crate::dialer::Client, Stream)> {
    let mut client = dialer.connect().await?;
    let mut stream = client.open(DELTA, &[]).await?;
    for message in messages {
        stream.send(message)?;
        counts.sent(message.len());
    }
    Ok((client, stream))
}

/// Checks that such a request is answered, and that the stream continues after everything was read.
async fn served(dialer: &Dialer, case: &Case, number: usize, counts: &Counts) -> Result<()> {
    let (_client, mut stream) = open(dialer, &case.messages(number), counts).await?;
    // The last request, for a new type, is answered after everything else was read.
    let (wanted, names) = match case.asks {
        CDS => (EDS, vec!["outbound|80||svc-1.bench.svc.cluster.local".to_owned()]),
        _ => (CDS, Vec::new()),
    };
    stream.send(&delta(None, wanted, &names, &[]))?;
    let until = async {
        let mut seen = Vec::new();
        loop {
            let chunk = stream.next().await.map_err(anyhow::Error::msg)?;
            counts.answered();
            seen.extend_from_slice(&chunk);
            if contains(&seen, wanted.as_bytes()) {
                return Ok(());
            }
            // Searched bytes are dropped, except for a possible prefix of the text at their end.
            seen.drain(..seen.len().saturating_sub(wanted.len()));
        }
    };
    tokio::time::timeout(PATIENCE, until).await.context("no answer in time")?
}

/// Checks that the stream ends with an error that names the limit.
async fn refused(dialer: &Dialer, messages: &[Bytes], limit: &str, counts: &Counts) -> Result<()> {
    let (_client, mut stream) = open(dialer, messages, counts).await?;
    let Ok(words) = tokio::time::timeout(PATIENCE, stream.end()).await else {
        bail!("one more than the limit {limit} is not refused");
    };
    named(&words, limit, counts)
}

fn named(words: &str, limit: &str, counts: &Counts) -> Result<()> {
    ensure!(
        words.contains("grpc-status 8") && words.contains(&format!("limit {limit}")),
        "limit {limit}: {words}"
    );
    counts.refused(format!("limit {limit}"));
    Ok(())
}

async fn incomplete_bytes(dialer: &Dialer, counts: &Counts) -> Result<()> {
    let limit = "incomplete-bytes";
    let (all, each) = (allowed(limit)?, allowed("request-bytes")?);
    let mut client = dialer.connect().await?;
    let mut streams = Vec::new();
    for number in 0..=all / each {
        let mut stream = client.open(DELTA, &[]).await?;
        stream.send(&delta(Some(&Node::numbered(number)), EDS, &["x".to_owned()], &[]))?;
        stream.next().await.map_err(anyhow::Error::msg)?;
        counts.answered();
        stream.send_raw(incomplete(u32::try_from(each)?, each - 64))?;
        counts.sent(each);
        streams.push(stream);
    }
    // One of the streams exceeds the limit; the others stay.
    let ends = streams.iter_mut().map(|stream| stream.end().boxed());
    let (words, _, others) = tokio::time::timeout(PATIENCE, select_all(ends))
        .await
        .with_context(|| format!("more than the limit {limit} is not refused"))?;
    named(&words, limit, counts)?;
    ensure!(select_all(others).now_or_never().is_none(), "a stream within {limit} is refused");
    Ok(())
}

async fn calls(dialer: &Dialer, counts: &Counts) -> Result<()> {
    let mut client = dialer.connect().await?;
    let mut watches = Vec::new();
    for _ in 0..allowed("calls")? {
        let mut watch = client.open("/grpc.health.v1.Health/Watch", &[]).await?;
        watch.send(&[])?;
        watch.finish()?;
        counts.sent(0);
        watch.next().await.map_err(anyhow::Error::msg).context("at the limit calls")?;
        counts.answered();
        watches.push(watch);
    }
    let mut beyond = client.open("/grpc.health.v1.Health/Check", &[]).await?;
    // It may already be refused.
    let _ = beyond.send(&[]);
    named(&beyond.end().await, "calls", counts)
}

async fn call_bytes(dialer: &Dialer, counts: &Counts) -> Result<()> {
    let limit = "call-bytes";
    let most = allowed(limit)?;
    for bytes in [most, most + 1] {
        let mut client = dialer.connect().await?;
        let mut check = client.open("/grpc.health.v1.Health/Check", &[]).await?;
        // Includes the prefix of five bytes.
        let message = framed(&padding(bytes - 5));
        ensure!(message.len() == bytes, "{limit}: a message of {} bytes", message.len());
        counts.sent(message.len());
        check.send_raw(message)?;
        check.finish()?;
        let words = tokio::time::timeout(PATIENCE, check.end()).await;
        let words = words.with_context(|| format!("no answer to a call of {bytes} bytes"))?;
        if bytes == most {
            ensure!(words == "ended well", "at the limit {limit}: {words}");
            counts.answered();
        } else {
            named(&words, limit, counts)?;
        }
    }
    Ok(())
}

/// Checks that a stream on the TLS port without authentication is refused, whatever it sends.
async fn nameless(target: &Target, counts: &Counts) -> Result<()> {
    let mut client = Dialer::nameless(target)?.connect().await?;
    let mut stream = client.open(DELTA, &[]).await?;
    counts.sent(0);
    let words = stream.end().await;
    ensure!(words.contains("grpc-status 16"), "without a certificate and a token: {words}");
    counts.refused("without an identity");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_that_is_tried_is_in_the_table() {
        let tried = of_nodes().into_iter().chain(of_names()).chain(of_requests()).map(|case| case.limit);
        for limit in tried.chain(["incomplete-bytes", "calls", "call-bytes", "node-claims"]) {
            assert!(allowed(limit).is_ok_and(|allowed| allowed > 0), "{limit}");
        }
        assert!(allowed("nothing").is_err());
    }

    #[test]
    fn what_is_built_is_as_large_as_is_said() {
        for bytes in [1_000, 16 << 10, (16 << 10) + 1, 512 << 10, 4 << 20] {
            assert_eq!((padding(bytes).len(), request_of(bytes).len()), (bytes, bytes));
            assert_eq!(node_of(bytes).encode().len(), bytes);
        }
    }
}
