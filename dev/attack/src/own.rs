//! A separate Pilotfish for one attack: with special settings, and free to be starved and stopped.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use pilotfish_bench::connection::Connection;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pilotfish_testkit::real::Pilotfish;
use prost::Message;
use tokio::time::{sleep, timeout};

use crate::Target;
use crate::dialer::{DELTA, Dialer};
use crate::extra::Extra;
use crate::mesh::loopback;
use crate::wire::{Node, delta};

/// Timeout of waits in attacks; less than their grace period after the deadline.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Polls until the result is `Ok`.
pub(crate) async fn until<F>(what: &str, mut ask: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let mut last = anyhow!("never answered");
    let asked = async {
        while let Err(error) = ask().await {
            last = error;
            sleep(ASK_AGAIN).await;
        }
    };
    match timeout(LIMIT, asked).await {
        Ok(()) => Ok(()),
        Err(_) => Err(last.context(format!("{what}: not within {LIMIT:?}"))),
    }
}

/// A separate Pilotfish, which is killed on drop.
pub(crate) struct Own {
    pilotfish: Pilotfish,
    file: Extra,
}

impl Own {
    /// Starts it on a file with that text, by a shell that runs these commands first, and waits until it is
    /// ready.
    pub(crate) async fn start(
        target: &Target,
        folder: &Path,
        commands: &str,
        arguments: &[&str],
        text: &str,
    ) -> Result<Self> {
        let config = folder.join("config");
        fs::create_dir(&config)?;
        let file = Extra::new(&config, "own.yaml");
        file.write(text)?;
        let config = config.to_string_lossy();
        let binary = target.pilotfish.to_str().context("the path of the executable is no text")?;
        let pilotfish = Pilotfish::launch_by_shell(binary, commands, &[&[&*config], arguments].concat());
        let own = Self { pilotfish, file };
        let ready = until("it is ready", || async { own.page("/ready").await.map(drop) }).await;
        ready.with_context(|| format!("pilotfish printed:\n{}", own.pilotfish.printed()))?;
        Ok(own)
    }

    /// Address of its plaintext xDS port.
    pub(crate) fn xds(&self) -> SocketAddr {
        loopback(self.pilotfish.xds_port())
    }

    /// Replaces the text of its file.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        self.file.write(text)
    }

    /// Loads a page of its admin address.
    pub(crate) async fn page(&self, path: &str) -> Result<String> {
        self.pilotfish.page(path).await.map_err(|error| anyhow!("{path}: {error}"))
    }

    /// Stops it like an operator.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let program = self.pilotfish.program();
        program.terminate().await;
        let Ok(code) = timeout(LIMIT, program.ended()).await else {
            bail!("SIGTERM has not ended it within {LIMIT:?}")
        };
        ensure!(code == Some(0), "it ended with {code:?} after SIGTERM");
        Ok(())
    }
}

/// A client of endpoints, which acknowledges every response.
pub(crate) struct Subscriber(Connection);

const ENDPOINTS: ResourceType = ResourceType::Endpoint;

impl Subscriber {
    /// Connects and subscribes to these load assignments.
    pub(crate) async fn connect(dialer: &Dialer, names: &[String]) -> Result<Self> {
        let first = delta(Some(&Node::numbered(0)), ENDPOINTS.type_url(), names, &[]);
        Ok(Self(dialer.stream(DELTA, &[], vec![first.into()]).await?))
    }

    /// Reads a response and acknowledges it.
    pub(crate) async fn next(&mut self) -> Result<Bytes> {
        let message = self.0.next().await?.context("the stream was ended")?;
        let response_nonce = DeltaDiscoveryResponse::decode(message.clone())?.nonce;
        let type_url = ENDPOINTS.type_url().to_owned();
        let acknowledgement = DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() };
        self.0.send(&acknowledgement.encode_to_vec())?;
        Ok(message)
    }

    /// Reads responses until one matches.
    pub(crate) async fn until(&mut self, what: &str, is: impl Fn(&[u8]) -> bool) -> Result<()> {
        let read = async {
            while !is(&self.next().await?) {}
            Ok(())
        };
        timeout(LIMIT, read).await.map_err(|_| anyhow!("{what}: no such response within {LIMIT:?}"))?
    }
}
