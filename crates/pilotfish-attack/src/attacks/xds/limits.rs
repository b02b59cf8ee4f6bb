//! Each limit of docs/limits.md that a stream reaches, from both sides: what is at it is served, what is beyond it is refused by its name.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use pilotfish_bench::messages::{CDS, EDS, framed};

use crate::attacks::REST;
use crate::door::{DELTA, Door, Stream};
use crate::wire::{Node, delta, field, incomplete, nested, structure, text};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "limits",
    what: "Each limit of a client that a stream reaches, from both sides: at it, and one beyond it",
    run: |target, deadline| limits(target, deadline).boxed(),
}];

/// How long an answer at a limit may take: it is large, and the machine busy.
const PATIENCE: Duration = Duration::from_secs(20);

async fn limits(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let door = Door::plaintext(&target);
    // At least once, however little time there is.
    loop {
        for case in cases() {
            let (at, beyond) = (case.messages(case.allowed), case.messages(case.allowed + 1));
            served(&door, &at, &counts).await.with_context(|| format!("at the limit {}", case.limit))?;
            refused(&door, &beyond, case.limit, &counts).await?;
        }
        for case in [incomplete_bytes, calls, call_bytes] {
            case(door.clone(), counts.clone()).await?;
        }
        nameless(&target, &counts).await?;
        if deadline.passed() {
            return Ok(counts.tally());
        }
        tokio::time::sleep(REST).await;
    }
}

/// Requests that reach a limit, made of a number.
struct Case {
    limit: &'static str,
    allowed: usize,
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

/// An encoded node of that many bytes.
fn node_of(bytes: usize) -> Node {
    let node = Node::numbered(1);
    // A field that nobody reads: its key, and a length of three bytes.
    let padding = bytes.saturating_sub(node.encode().len() + 4);
    node.and([field(15, "x".repeat(padding))])
}

/// A request of that many bytes, with a node.
fn request_of(bytes: usize) -> Vec<u8> {
    let request = delta(Some(&Node::numbered(1)), CDS, &[], &[]);
    let padding = bytes.saturating_sub(request.len() + 5);
    [request, field(15, "x".repeat(padding))].concat()
}

fn cases() -> Vec<Case> {
    let case = |limit, allowed, build| Case { limit, allowed, build };
    vec![
        case("node-id-bytes", 1 << 10, |bytes| {
            let mut node = Node::numbered(1);
            let (head, tail) = ("sidecar~10.0.0.1~", ".bench~bench.svc.cluster.local");
            node.id = format!("{head}{}{tail}", "a".repeat(bytes - head.len() - tail.len()));
            first(&node)
        }),
        case("node-bytes", 512 << 10, |bytes| first(&node_of(bytes))),
        case("node-values", 4_096, |count| {
            let node = Node::numbered(1);
            let more = count - node.metadata.len();
            first(&(0..more).fold(node, |node, n| node.and_metadata(format!("k{n}"), text("v"))))
        }),
        // The metadata is the first level.
        case("node-depth", 16, |depth| first(&Node::numbered(1).with("DEEP", nested(depth - 1, false)))),
        case("node-depth", 16, |depth| first(&Node::numbered(1).with("DEEP", nested(depth - 1, true)))),
        case("node-addresses", 64, |count| {
            let all: Vec<String> = (0..count).map(|n| format!("10.9.{}.{}", n / 200, n % 200 + 1)).collect();
            first(&Node::numbered(1).with("INSTANCE_IPS", text(&all.join(","))))
        }),
        case("node-labels", 256, |count| {
            let labels = structure((0..count).map(|n| (format!("k{n}"), text("v"))));
            first(&Node::numbered(1).with("LABELS", field(5, labels)))
        }),
        case("request-bytes", 4 << 20, |bytes| vec![request_of(bytes)]),
        // The server looks when a frame of HTTP/2 comes, so a node that is late must be later than that.
        case("first-bytes", 1 << 20, |bytes| {
            let request = delta(Some(&Node::numbered(1)), CDS, &[], &[]);
            let late = if bytes > 1 << 20 { 64 << 10 } else { 0 };
            let padding = field(15, "x".repeat(bytes.saturating_sub(request.len() + 4) + late));
            vec![[padding, request].concat()]
        }),
        case("subscriptions", 100_000, |count| {
            let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
            vec![delta(Some(&Node::numbered(1)), EDS, &names, &[])]
        }),
        case("subscription-bytes", 16 << 20, |bytes| {
            let mut messages = vec![delta(Some(&Node::numbered(1)), EDS, &[], &[])];
            let long = |n: usize| format!("{n:08}").repeat(8_192);
            let whole = bytes >> 16;
            // Names of 64 KiB, 32 in a request; what is left over is one more name.
            let names: Vec<String> = (0..whole).map(long).collect();
            messages.extend(names.chunks(32).map(|names| delta(None, EDS, names, &[])));
            let rest = bytes & 0xffff;
            messages.extend((rest > 0).then(|| delta(None, EDS, &["r".repeat(rest)], &[])));
            messages
        }),
    ]
}

async fn open(door: &Door, messages: &[Bytes], counts: &Counts) -> Result<(crate::door::Client, Stream)> {
    let mut client = door.connect().await?;
    let mut stream = client.open(DELTA, &[]).await?;
    for message in messages {
        stream.send(message)?;
        counts.sent(message.len());
    }
    Ok((client, stream))
}

/// There is an answer, and the stream goes on after everything was read.
async fn served(door: &Door, messages: &[Bytes], counts: &Counts) -> Result<()> {
    let (_client, mut stream) = open(door, messages, counts).await?;
    // What is asked for at last, of a type that was not asked for yet, is answered after everything else was read.
    let (wanted, names) = match messages.iter().any(|message| holds(message, CDS)) {
        true => (EDS, vec!["outbound|80||svc-1.bench.svc.cluster.local".to_owned()]),
        false => (CDS, Vec::new()),
    };
    stream.send(&delta(None, wanted, &names, &[]))?;
    let until = async {
        let mut seen = Vec::new();
        loop {
            let chunk = stream.next().await.map_err(anyhow::Error::msg)?;
            counts.answered();
            seen.extend_from_slice(&chunk);
            if holds(&seen, wanted) {
                return Ok(());
            }
            // What was searched need not be kept, but for a part of the words at its end.
            seen.drain(..seen.len().saturating_sub(wanted.len()));
        }
    };
    tokio::time::timeout(PATIENCE, until).await.context("no answer in time")?
}

fn holds(message: &[u8], words: &str) -> bool {
    message.windows(words.len()).any(|part| part == words.as_bytes())
}

/// The stream is ended with an error that names the limit.
async fn refused(door: &Door, messages: &[Bytes], limit: &str, counts: &Counts) -> Result<()> {
    let (_client, mut stream) = open(door, messages, counts).await?;
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

fn incomplete_bytes(door: Door, counts: Arc<Counts>) -> BoxFuture<'static, Result<()>> {
    async move {
        let limit = "incomplete-bytes";
        let mut client = door.connect().await?;
        let mut streams = Vec::new();
        for number in 0..3 {
            let mut stream = client.open(DELTA, &[]).await?;
            stream.send(&delta(Some(&Node::numbered(number)), EDS, &["x".to_owned()], &[]))?;
            stream.next().await.map_err(anyhow::Error::msg)?;
            counts.answered();
            stream.send_raw(incomplete(4 << 20, (4 << 20) - 64))?;
            counts.sent(4 << 20);
            streams.push(stream);
        }
        // One of the three is one too many; the other two stay.
        let ends = streams.iter_mut().map(|stream| stream.end().boxed());
        let (words, _, others) = tokio::time::timeout(PATIENCE, futures::future::select_all(ends))
            .await
            .with_context(|| format!("more than the limit {limit} is not refused"))?;
        named(&words, limit, &counts)?;
        ensure!(
            futures::future::select_all(others).now_or_never().is_none(),
            "a stream within {limit} is refused"
        );
        Ok(())
    }
    .boxed()
}

fn calls(door: Door, counts: Arc<Counts>) -> BoxFuture<'static, Result<()>> {
    async move {
        let mut client = door.connect().await?;
        let mut watches = Vec::new();
        for _ in 0..16 {
            let mut watch = client.open("/grpc.health.v1.Health/Watch", &[]).await?;
            watch.send(&[])?;
            watch.finish()?;
            counts.sent(0);
            watch.next().await.map_err(anyhow::Error::msg).context("at the limit calls")?;
            counts.answered();
            watches.push(watch);
        }
        let mut beyond = client.open("/grpc.health.v1.Health/Check", &[]).await?;
        // It may be refused before.
        let _ = beyond.send(&[]);
        named(&beyond.end().await, "calls", &counts)
    }
    .boxed()
}

fn call_bytes(door: Door, counts: Arc<Counts>) -> BoxFuture<'static, Result<()>> {
    async move {
        for (bytes, is_served) in [(64 << 10, true), ((64 << 10) + 1, false)] {
            let mut client = door.connect().await?;
            let mut check = client.open("/grpc.health.v1.Health/Check", &[]).await?;
            // With the five bytes of its frame, and four in front of the padding.
            let message = framed(&field(15, "x".repeat(bytes - 9)));
            counts.sent(message.len());
            check.send_raw(message)?;
            check.finish()?;
            let words = match tokio::time::timeout(PATIENCE, check.end()).await {
                Ok(words) => words,
                Err(_) => bail!("no answer to a call of {bytes} bytes"),
            };
            if is_served {
                ensure!(words == "ended well", "at the limit call-bytes: {words}");
                counts.answered();
            } else {
                named(&words, "call-bytes", &counts)?;
            }
        }
        Ok(())
    }
    .boxed()
}

/// A stream on the TLS port that proves nothing is refused, whatever it sends.
async fn nameless(target: &Target, counts: &Counts) -> Result<()> {
    let mut client = Door::nameless(target)?.connect().await?;
    let mut stream = client.open(DELTA, &[]).await?;
    counts.sent(0);
    let words = stream.end().await;
    ensure!(words.contains("grpc-status 16"), "without a certificate and a token: {words}");
    counts.refused("without an identity");
    Ok(())
}
