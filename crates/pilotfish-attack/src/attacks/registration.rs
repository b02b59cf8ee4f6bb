//! Attacks on the registration API, by clients without a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::crowd;
use super::http1::{ask, post};
use crate::dialer::Dialer;
use crate::wire::{field, incomplete};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "registration-bodies",
        what: "Bodies of 4 MiB: deep ones, ones of many values, and ones whose last byte never comes",
        run: |target, deadline| bodies(target, deadline).boxed(),
    },
    Attack {
        name: "registration-bytes",
        what: "Instances of one client with 16 KB of metadata each, far beyond what it may keep",
        run: |target, deadline| flood(target, deadline).boxed(),
    },
    Attack {
        name: "registration-watches",
        what: "1,000 watches and heartbeat streams that nobody reads",
        run: |target, deadline| watches(target, deadline).boxed(),
    },
];

const NONE: &str = "there is no registration API";
const LARGEST: usize = 4 << 20;
const BATCH: &str = "/v1/instances:batchRegister";
const SERVICE: &str = "/pilotfish.registration.v1.RegistrationService/";

async fn bodies(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.registration else { return Ok(Tally::skipped(NONE)) };
    let counts = Counts::new();
    let of = |text: &str| [post(BATCH, LARGEST), text.as_bytes().repeat(LARGEST / text.len())].concat();
    let mut never = of("x");
    never.pop();
    let all: [Bytes; 4] = [of("[").into(), of("[0,").into(), of("{\"a\":").into(), never.into()];
    let shared = counts.clone();
    crowd(64, deadline, &counts, move |index| {
        let (counts, request) = (shared.clone(), all.get(index % all.len()).cloned());
        async move {
            let request = request.context("there are four")?;
            let socket = TcpStream::connect(address).await.context("cannot connect")?;
            counts.sent(request.len());
            counts.refused(ask(socket, &request).await?);
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

/// Batches of large instances under ever new names. The first ones are kept; the rest is refused, and takes nothing.
async fn flood(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    const INSTANCES: usize = 100;
    let Some(address) = target.registration else { return Ok(Tally::skipped(NONE)) };
    let counts = Counts::new();
    let (shared, number) = (counts.clone(), Arc::new(AtomicUsize::new(0)));
    let text = "x".repeat(16_000);
    crowd(16, deadline, &counts, move |_| {
        let (counts, batch, text) = (shared.clone(), number.fetch_add(1, Ordering::Relaxed), text.clone());
        async move {
            let instance = |n: usize| {
                let names =
                    format!(r#""namespace":"flood","service":"web-{}","id":"{batch}-{n}""#, batch % 50);
                let place = r#""addresses":["192.0.2.1"],"ports":[{"number":8080}],"ttl":"5s""#;
                format!(r#"{{"instance":{{{names},{place},"metadata":{{"text":"{text}"}}}}}}"#)
            };
            let requests: Vec<String> = (0..INSTANCES).map(instance).collect();
            let body = format!(r#"{{"requests":[{}]}}"#, requests.join(","));
            let request = [post(BATCH, body.len()), body.into_bytes()].concat();
            let socket = TcpStream::connect(address).await.context("cannot connect")?;
            counts.sent(request.len());
            match ask(socket, &request).await? {
                200 => counts.answered(),
                status => counts.refused(status),
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

async fn watches(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.registration else { return Ok(Tally::skipped(NONE)) };
    let (counts, dialer) = (Counts::new(), Dialer::at(address));
    let shared = counts.clone();
    let streams = crowd(20, deadline, &counts, move |_| {
        let (counts, dialer) = (shared.clone(), dialer.clone());
        async move {
            let mut client = dialer.connect_with_window(0).await?;
            let mut open = Vec::new();
            for number in 0..50 {
                let method = if number % 2 == 0 { "Watch" } else { "Heartbeat" };
                let mut stream = client.open(&format!("{SERVICE}{method}"), &[]).await?;
                let first =
                    if number % 2 == 0 { Vec::new() } else { field(1, field(1, field(1, "default"))) };
                stream.send(&first)?;
                stream.send_raw(incomplete(1 << 20, 60_000))?;
                counts.sent(first.len() + 60_000);
                match tokio::time::timeout(Duration::from_millis(200), stream.headers()).await {
                    Ok(Ok(())) | Err(_) => counts.answered(),
                    Ok(Err(words)) => counts.refused(words),
                }
                open.push(stream);
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(())
        }
    });
    let registering = crowd(4, deadline, &counts, move |index| async move {
        // What the watches have to be told.
        let mut socket = TcpStream::connect(address).await.context("cannot connect")?;
        let body = r#"{"addresses":["192.0.2.1"],"ports":[{"number":8080}],"ttl":"5s"}"#;
        let path = format!("/v1/namespaces/attack/services/web/instances/web-{index}");
        let head = format!("PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).await.context("cannot send")?;
        socket.read(&mut [0; 4_096]).await.context("no answer")?;
        Ok(())
    });
    tokio::join!(streams, registering);
    Ok(counts.tally())
}
