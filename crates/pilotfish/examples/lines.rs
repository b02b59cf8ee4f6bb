//! A custom registry: lines of `NAME HOST:PORT`, read from a TCP server.
//!
//! docs/design/registries.md explains the code.
//!
//! ```console
//! $ printf 'web.lines 127.0.0.1:8080\n.\n' | nc -l 7000 &
//! $ cargo run --example lines -- serve --registry lines=127.0.0.1:7000
//! ```
//!
//! A line `.` ends a complete list; the server may send further lists on the same connection.

use clap::Parser;
use pilotfish_connect::{Connector, Scheme, Target};
use pilotfish_registry::{
    CATALOG_OPTIONS, CatalogDefaults, CatalogInstance, CatalogOptions, CatalogService, Input, LiveSettings,
    LiveSource, OptionsError, RegistryType,
};
use pilotfish_session::{CatalogWriter, Product, SessionError, live};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// Registry type for the table of registries.
pub static LINES: RegistryType = RegistryType {
    name: "lines",
    provider: "lines",
    about: "lines of NAME HOST:PORT from a TCP server",
    address: "HOST:PORT",
    options: &[CATALOG_OPTIONS],
    input: Input::Live(open),
};

const SCHEMES: &[Scheme] = &[Scheme { name: "tcp", port: 7000, is_tls: false }];
/// Size limit of a list in bytes.
const MAX_LIST_BYTES: u64 = 4 << 20;

/// Checks the settings; nothing is connected yet.
fn open(mut settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let target = Target::parse(&settings.address, SCHEMES).map_err(|mistake| OptionsError(vec![mistake]))?;
    let options = CatalogOptions::take(&mut settings, CatalogDefaults::default())?;
    let (shard, namespace) = (settings.shard.clone(), options.namespace.as_str().to_owned());
    settings.finish(&LINES)?;
    Ok(live(Lines { target, namespace }, shard, options))
}

struct Lines {
    target: Target,
    namespace: String,
}

impl Product for Lines {
    /// Reads lists until the connection ends, which always counts as a failure: only a complete list removes
    /// services.
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let server = self.target.servers.first().ok_or_else(|| SessionError::new("no server"))?;
        let mut connection = BufReader::new(Connector::default().connect(server).await?);
        loop {
            let mut list = (&mut connection).take(MAX_LIST_BYTES).lines();
            let mut text = Vec::new();
            loop {
                match list.next_line().await? {
                    Some(line) if line == "." => break,
                    Some(line) => text.push(line),
                    None => return Err(SessionError::new("the list ended without a line `.`")),
                }
            }
            catalog.replace(self.services(&text)?);
        }
    }
}

impl Lines {
    /// Parses a list to services with their instances, without IO.
    fn services(&self, list: &[String]) -> Result<Vec<CatalogService>, SessionError> {
        let mut services = BTreeMap::new();
        for line in list {
            let (name, address) = line.split_once(' ').unwrap_or_default();
            let address: SocketAddr =
                address.parse().map_err(|_| SessionError::new(format!("not NAME HOST:PORT: {line:?}")))?;
            let new = || CatalogService::new(name, name, self.namespace.as_str());
            let instance = CatalogInstance::new(address.to_string(), address.ip().to_string());
            let instance = instance.with_port(address.port().into(), Some("http"));
            services.entry(name).or_insert_with(new).instances.push(instance);
        }
        Ok(services.into_values().collect())
    }
}

fn main() -> ExitCode {
    pilotfish::cli::Cli::parse().run_to_end(&[&LINES])
}
