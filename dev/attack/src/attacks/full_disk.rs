//! A registration store on a full disk.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use futures::FutureExt;
use pilotfish_testkit::real::free_port;
use tokio::net::TcpStream;

use super::http1::{answer, json};
use crate::dialer::Dialer;
use crate::mesh::{in_memory, loopback};
use crate::own::{Own, Subscriber};
use crate::wire::contains;
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "registration-full-disk",
    what: "A client that fills the disk of the registration store, so that others could not deregister",
    run: |target, deadline| full_disk(target, deadline).boxed(),
}];

/// Size of the disk, in blocks of 512 bytes for `ulimit`.
const BLOCKS: u32 = 4 << 10;
/// Number of instances that exist before.
const VICTIMS: usize = 60;
/// Metadata sizes in bytes of instances that fill the disk: first large ones, then smaller ones for the gaps.
const SIZES: [usize; 3] = [16_000, 1_000, 0];

/// Registration API of the attack's own Pilotfish.
struct Store {
    address: SocketAddr,
    counts: Arc<Counts>,
}

impl Store {
    async fn send(&self, method: &str, service: &str, number: usize, body: &str) -> Result<(u16, String)> {
        let path = format!("/v1/namespaces/bench/services/{service}/instances/i{number}");
        let request = json(method, &path, body);
        self.counts.sent(request.len());
        let socket = TcpStream::connect(self.address).await.context("cannot connect")?;
        let (status, text) = answer(socket, &request).await?;
        self.counts.status(status);
        Ok((status, text))
    }

    /// Registers an instance with that many bytes of metadata. Returns false if the store is full.
    async fn fits(&self, service: &str, number: usize, bytes: usize) -> Result<bool> {
        let text = "x".repeat(bytes);
        let place = format!(r#""addresses":["{}"],"ports":[{{"number":8080}}]"#, address(number));
        let body = format!(r#"{{{place},"metadata":{{"text":"{text}"}}}}"#);
        match self.send("PUT", service, number, &body).await? {
            (200, _) => Ok(true),
            (429, text) if text.contains("pilotfish-limit: store") => Ok(false),
            (status, text) => bail!("a registration: {status}: {text}"),
        }
    }

    /// Registers instances until the store is full.
    async fn fill(&self) -> Result<()> {
        let mut number = 0;
        for bytes in SIZES {
            while self.fits("filler", number, bytes).await? {
                number += 1;
                ensure!(number < 10_000, "the disk is never full");
            }
        }
        Ok(())
    }
}

/// Address of an instance; none is a prefix of another.
fn address(number: usize) -> String {
    format!("10.{}.{}.1", 100 + number / 100, 100 + number % 100)
}

async fn full_disk(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let (folder, at) = (in_memory()?, loopback(free_port()));
    let data = folder.path().join("data");
    // Without the trap, the signal would end the process before the write fails.
    let commands = format!("trap '' XFSZ; ulimit -S -f {BLOCKS}");
    let arguments = ["--registration-address", &at.to_string(), "--data-dir", &data.to_string_lossy()];
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: bench}}";
    let own = Own::start(&target, folder.path(), &commands, &arguments, namespace).await?;
    let store = Store { address: at, counts: Counts::new() };
    for victim in 0..VICTIMS {
        ensure!(store.fits("victim", victim, 0).await?, "the disk is full from the beginning");
    }
    let mut client = Subscriber::connect(
        &Dialer::at(own.xds()),
        &["outbound|8080||victim.bench.svc.cluster.local".to_owned()],
    )
    .await?;
    let last = address(VICTIMS - 1);
    let has = |message: &[u8], address: &str| contains(message, address.as_bytes());
    client.until("all instances", |message| has(message, &last)).await?;
    store.fill().await?;
    for victim in 0..VICTIMS - 1 {
        let (status, text) = store.send("DELETE", "victim", victim, "").await?;
        ensure!(status == 200, "an instance is not deregistered: {status}: {text}");
        let gone = address(victim);
        client
            .until("a removal", |message| has(message, &last) && !has(message, &gone))
            .await
            .context("an instance that is deregistered keeps its traffic")?;
        ensure!(!store.fits("filler", 9_999, 16_000).await?, "the disk has room again");
        if deadline.passed() {
            break;
        }
    }
    Ok(store.counts.tally())
}
