//! DNS: a real BIND with one zone, changed by dynamic updates. There is no push: both clients ask once a
//! second, the TTL.

use super::{Options, Product, Seen, address, service};
use anyhow::{Context, Result};
use pilotfish_testkit::real::NameServer;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

const MISSING: &str = "BIND is missing: run `cargo xtask tools bind`";
const INTERVAL: Duration = Duration::from_secs(1);
/// TTL of the names that do not change, in seconds.
const TTL: u32 = 60;

pub(super) struct Dns {
    server: NameServer,
    /// File with the names that Pilotfish resolves.
    names: NamedTempFile,
}

impl Dns {
    pub(super) async fn start(options: &Options) -> Result<Self> {
        let (mut zone, mut list) = (String::new(), String::new());
        for number in 0..options.services {
            let (name, ttl) = (service(number), if number == 0 { 1 } else { TTL });
            writeln!(list, "{name}.example.com:8080")?;
            for index in 0..options.instances {
                writeln!(zone, "{name} {ttl} A {}", address(options, number, index))?;
            }
        }
        let names = NamedTempFile::new()?;
        std::fs::write(names.path(), list)?;
        Ok(Self { server: NameServer::start(&zone).await.context(MISSING)?, names })
    }
}

/// A question for the addresses of service 0 (RFC 1035 4.1).
fn question() -> Vec<u8> {
    let mut message = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in format!("{}.example.com", service(0)).split('.') {
        message.extend(u8::try_from(label.len()).ok());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Every four bytes behind a length of four: the addresses of an answer are among them.
fn addresses(message: &[u8]) -> String {
    let found = message.windows(6).filter_map(|window| match window {
        [0, 4, a, b, c, d] => Some(format!("{a}.{b}.{c}.{d} ")),
        _ => None,
    });
    found.collect()
}

impl Product for Dns {
    fn registry(&self) -> String {
        let names = self.names.path().display();
        format!("dns={}?namesFile={names}&family=ipv4&minTtl={INTERVAL:?}", self.server.address())
    }

    /// All are in the zone from the start.
    async fn fill(&self, _: &Options) -> Result<()> {
        Ok(())
    }

    async fn register(&self, number: usize, _: usize, address: &str) -> Result<()> {
        self.server.update(&[&format!("add {}.example.com 1 A {address}", service(number))]).await;
        Ok(())
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.connect(self.server.address()).await?;
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            loop {
                // An error ends the thread, and with it the measurement.
                let Ok(_) = socket.send(&question()).await else { return };
                let Ok(size) = socket.recv(&mut buffer).await else { return };
                if say.send((addresses(buffer.get(..size).unwrap_or_default()), Instant::now())).is_err() {
                    return;
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Ok(seen)
    }
}
