//! Attacks on the registration API by clients without a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http1::{ask, json, post};
use super::{REST, crowd};
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
    Attack {
        name: "registration-names",
        what: "Names that proxies and resolvers take for a Kubernetes Service of another namespace, and \
            addresses that are no machine's",
        run: |target, deadline| names(target, deadline).boxed(),
    },
];

/// Names by which clients reach `echo` in the namespace `shop`, or which are not valid hosts.
const NAMES: [&str; 14] = [
    "echo.shop",
    "echo.shop.svc",
    "echo.shop.svc.cluster",
    "echo.shop.svc.cluster.local",
    "echo.shop.svc.clusterset.local",
    "echo.shop.svc.example.com",
    "echo.cluster.local",
    "echo.default",
    "echo.shop.",
    "ECHO.shop",
    "*.shop",
    "127.0.1.1",
    "127.1",
    "echo.attack",
];
/// Addresses that mean a different machine for each client.
const ADDRESSES: [&str; 8] = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "fd00:ec2::254",
    "fe80::1",
    "0.0.0.0",
    "255.255.255.255",
    "ff02::1",
];

/// A registration in the namespace of attackers.
fn registration(service: &str, address: &str) -> Vec<u8> {
    let path = format!("/v1/namespaces/attack/services/{service}/instances/a");
    let body = format!(r#"{{"addresses":["{address}"],"ports":[{{"number":8080}}],"ttl":"5s"}}"#);
    json("PUT", &path, &body)
}

async fn names(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.registration else { return Ok(Tally::skipped(NONE)) };
    let counts = Counts::new();
    let names = NAMES.map(|name| (name, "192.0.2.1"));
    let all: Vec<_> = names.into_iter().chain(ADDRESSES.map(|address| ("web", address))).collect();
    let send = async |service: &str, at: &str| {
        let request = registration(service, at);
        counts.sent(request.len());
        ask(TcpStream::connect(address).await.context("cannot connect")?, &request).await
    };
    for number in (0_usize..).take_while(|number| *number < all.len() || !deadline.passed()) {
        let (service, at) = all.get(number % all.len()).copied().context("there are some")?;
        let status = send(service, at).await?;
        ensure!(status == 400, "{service} at {at} is registered: {status}");
        counts.refused(status);
        ensure!(send("honest", "192.0.2.1").await? == 200, "an honest registration is refused");
        counts.answered();
        tokio::time::sleep(REST).await;
    }
    Ok(counts.tally())
}

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

/// Batches of large instances with new names. The first ones are stored; the others are refused and cost
/// nothing.
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
        // Changes for the watches.
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
