//! Resource exhaustion before the end of a handshake.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use pilotfish_proto::ResourceType;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{REST, crowd};
use crate::dialer::{DELTA, Dialer, hello};
use crate::wire::{Node, delta};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "tls-handshakes",
        what: "Whole handshakes, and nothing after them, by 64 clients as fast as they can",
        run: |target, deadline| handshakes(target, deadline).boxed(),
    },
    Attack {
        name: "tls-records",
        what: "Handshakes in records of one byte, messages of 16 MiB that are said to come, and garbage",
        run: |target, deadline| records(target, deadline).boxed(),
    },
    Attack {
        name: "tls-identities",
        what: "Certificates of the right authority with two identities, or with one that is not written as \
            SPIFFE ids are",
        run: |target, deadline| identities(target, deadline).boxed(),
    },
];

async fn identities(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let first = delta(Some(&Node::numbered(0)), ResourceType::Cluster.type_url(), &[], &[]);
    let all = &target.unproven;
    for number in (0_usize..).take_while(|number| *number < all.len() || !deadline.passed()) {
        let (chain, key) = all.get(number % all.len()).context("there are some")?;
        let dialer = Dialer::with_certificate(target.tls_xds, &target.ca_certificate, chain, key)?;
        let mut client = dialer.connect().await?;
        let mut stream = client.open(DELTA, &[]).await?;
        // A refused stream accepts no data.
        let _ = stream.send(&first);
        counts.sent(first.len());
        let words = stream.end().await;
        ensure!(words.contains("proves no identity"), "{} is taken for a proof: {words}", chain.display());
        counts.refused(words);
        tokio::time::sleep(REST).await;
    }
    Ok(counts.tally())
}

async fn handshakes(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, dialers) = (Counts::new(), [Dialer::nameless(&target)?, Dialer::known(&target)?]);
    let shared = counts.clone();
    crowd(64, deadline, &counts, move |index| {
        let (counts, [nameless, known]) = (shared.clone(), dialers.clone());
        async move {
            let dialer = if index % 2 == 0 { nameless } else { known };
            counts.sent(0);
            drop(dialer.dial().await?);
            counts.answered();
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

/// Encodes a handshake record.
fn record(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[22, 3, 1], &length[..], content].concat()
}

async fn records(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (counts, address) = (Counts::new(), target.tls_xds);
    let hello = hello(&target, ServerName::from(address.ip()))?;
    // Skips the header of its only record.
    let hello = hello.get(5..).unwrap_or_default();
    let cut: Vec<u8> = hello.iter().take(hello.len() - 1).flat_map(|byte| record(&[*byte])).collect();
    let huge = [record(&[1, 0xff, 0xff, 0xff]), record(&[0; 16_000]).repeat(100)].concat();
    let garbage: Vec<u8> =
        (0..100_000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let all: [Arc<[u8]>; 3] = [cut.into(), huge.into(), garbage.into()];
    let shared = counts.clone();
    crowd(120, deadline, &counts, move |index| {
        let (counts, bytes) = (shared.clone(), all.get(index % all.len()).cloned());
        async move {
            let bytes = bytes.context("there are three")?;
            let mut socket = TcpStream::connect(address).await.context("cannot connect")?;
            counts.answered();
            // The server may close the connection before everything is sent.
            let sent = socket.write_all(&bytes).await;
            counts.sent(bytes.len());
            sent.map_err(|error| anyhow::anyhow!("closed: {}", error.kind()))?;
            let mut answer = [0; 1_024];
            while socket
                .read(&mut answer)
                .await
                .map_err(|error| anyhow::anyhow!("closed: {}", error.kind()))?
                > 0
            {}
            anyhow::bail!("closed")
        }
    })
    .await;
    Ok(counts.tally())
}
