//! A registry of one's own: lines of `NAME HOST:PORT`, read from a TCP server. ARCHITECTURE.md walks through it.
//!
//! ```console
//! $ printf 'web.lines 127.0.0.1:8080\n.\n' | nc -l 7000 &
//! $ cargo run --example lines -- serve --registry lines=127.0.0.1:7000
//! ```
//!
//! A line `.` ends a complete list; the server may send further lists on the same connection.

use clap::Parser;
use pilotfish_model::{Hostname, Namespace, Origin, Port, Protocol, Service, ServiceKey, ShardKey, Workload};
use pilotfish_registry::{
    Input, LiveSettings, LiveSettingsError, LiveSource, RegistryBatch, RegistrySender, RegistryType,
};
use pilotfish_source::{Backoff, BackoffPolicy, Jitter};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

/// The line in the table of registries.
pub static LINES: RegistryType = RegistryType {
    name: "lines",
    provider: "lines",
    about: "lines of NAME HOST:PORT from a TCP server",
    input: Input::Live(Lines::open),
};

/// What the server may make us keep, and how long a line may be.
const MAX_LIST_BYTES: u64 = 4 << 20;
const RECONNECT: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(10));

struct Lines {
    shard: ShardKey,
    server: String,
    namespace: Namespace,
}

impl Lines {
    /// Checks the settings; nothing is connected yet.
    fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, LiveSettingsError> {
        let namespace = settings.take("namespace").unwrap_or_else(|| "default".into()).into();
        let (shard, server) = (settings.shard.clone(), settings.address.clone());
        settings.finish(&["namespace"])?;
        Ok(Box::new(Self { shard, server, namespace }))
    }

    /// Reads lists until the connection ends. Whatever ends it is a failure: only a complete list takes something away.
    async fn read(&self, sender: &RegistrySender, backoff: &mut Backoff) -> io::Result<()> {
        let mut server = BufReader::new(TcpStream::connect(&self.server).await?);
        loop {
            let mut list = (&mut server).take(MAX_LIST_BYTES).lines();
            let mut by_host: BTreeMap<Hostname, BTreeSet<SocketAddr>> = BTreeMap::new();
            loop {
                let line = list.next_line().await?;
                let line = line.ok_or_else(|| io::Error::other("the list ended without a line `.`"))?;
                if line == "." {
                    break;
                }
                let (name, address) = line.split_once(' ').unwrap_or_default();
                match (Hostname::parse(name), address.parse()) {
                    (Ok(name), Ok(address)) => by_host.entry(name).or_default().insert(address),
                    _ => return Err(io::Error::other(format!("not NAME HOST:PORT: {line:?}"))),
                };
            }
            sender.send(self.batch(by_host));
            backoff.reset();
        }
    }

    /// The pure part: a list as services, workloads and endpoints of the model.
    fn batch(&self, list: BTreeMap<Hostname, BTreeSet<SocketAddr>>) -> RegistryBatch {
        let mut batch = RegistryBatch::complete();
        let (shard, namespace) = (&self.shard, &self.namespace);
        let port = Port { number: 80, name: "http".into(), protocol: Protocol::Http, target_port: None };
        for (hostname, addresses) in list {
            let name = hostname.text();
            let mut endpoints = Vec::new();
            for address in addresses {
                let (id, ip): (_, Arc<str>) = (format!("{name}@{address}"), address.ip().to_string().into());
                let workload = Workload::registered(shard, namespace.clone(), id, vec![ip]);
                endpoints.push(Arc::new(workload.endpoint(&port, address.port().into())));
                batch.set_workload(workload);
            }
            let key = ServiceKey { hostname: hostname.clone(), namespace: namespace.clone() };
            batch.set_endpoints(key, endpoints);
            let (ports, origin) = (vec![port.clone()], Origin::registered(shard.clone(), name));
            let service = Service::registered(shard.provider, hostname, namespace.clone(), ports, origin);
            batch.set_service(service);
        }
        batch
    }
}

impl LiveSource for Lines {
    fn run(self: Box<Self>, sender: RegistrySender) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut backoff = Backoff::new(RECONNECT, Jitter::default());
            loop {
                if let Err(error) = self.read(&sender, &mut backoff).await {
                    sender.failed(error.to_string());
                }
                tokio::time::sleep(backoff.wait()).await;
            }
        })
    }
}

fn main() -> ExitCode {
    pilotfish::cli::Cli::parse().run_to_end(&[&LINES])
}
