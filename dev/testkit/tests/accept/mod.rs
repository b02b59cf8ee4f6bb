//! A stock Envoy on a stage: one process that is shown the resources of one proxy after another over ADS, and
//! reports of each whether it takes them.

pub(crate) mod bad_input;
mod envoy;
pub(crate) mod needs;
mod stage;
pub(crate) mod table;

use needs::Wanted;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Extension;
use pilotfish_testkit::real::eventually;
use pilotfish_translate::{Client, Proxy, Translator};
use pilotfish_xds::{ConnectionStatus, Fanout, Publication, StreamLimits, TypeStatus};
use serde_json::Value;
use stage::{CLIENT, Journal, Stage};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What one proxy is sent.
pub(crate) struct Play {
    pub(crate) translator: Arc<Translator>,
    pub(crate) client: Client,
    /// The same as JSON.
    pub(crate) dump: Value,
    /// Filters that are left out of what is shown.
    pub(crate) without: BTreeSet<String>,
}

impl Play {
    /// Everything that a proxy is sent. Its secrets are for it, as if its identity were proven.
    pub(crate) fn new(translator: &Arc<Translator>, mut proxy: Proxy) -> anyhow::Result<Self> {
        proxy.identity = Some(proxy.claimed_identity());
        let client = translator.connect(proxy);
        let dump = pilotfish_testkit::dump::dump(&translator.snapshot(), &client, None)?;
        Ok(Self { translator: translator.clone(), client, dump, without: BTreeSet::new() })
    }
}

/// One refused response.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) ty: ResourceType,
    /// Envoy's words.
    pub(crate) error: String,
}

/// The running Envoy and what it is served from.
pub(crate) struct Theatre {
    fanout: Arc<Fanout<Stage>>,
    journal: Arc<Journal>,
    envoy: envoy::Running,
    server: tokio::task::JoinHandle<()>,
    /// The extensions that Envoy lists.
    pub(crate) extensions: Vec<Extension>,
}

impl Theatre {
    /// Starts Envoy with nothing to load. `None` where the tools are missing and are not required.
    pub(crate) async fn open() -> Option<Self> {
        let journal = Arc::new(Journal::default());
        // After a refusal the ACKs that removals wait for never come: the next play is not to wait for them.
        let soon = Duration::from_millis(100);
        let limits = StreamLimits { draining: soon, ..StreamLimits::default() };
        let fanout = Fanout::new(Arc::new(Stage::default()), journal.clone(), limits);
        let server = pilotfish_xds::Server::new(fanout.clone(), pilotfish_xds::ServerConfig::default());
        let bound = server.bind(([127, 0, 0, 1], 0).into()).expect("loopback has a free port");
        let port = bound.local_addr().port();
        let server = tokio::spawn(bound.run(std::future::pending()));
        let envoy = envoy::start(port).await?;
        let mut this = Self { fanout, journal, envoy, server, extensions: Vec::new() };
        eventually("Envoy connects", || async {
            let status = this.status().ok_or_else(|| this.envoy.printed())?;
            let both = [ResourceType::Cluster, ResourceType::Listener];
            let done = both.iter().all(|ty| status.types.get(ty).is_some_and(TypeStatus::in_sync));
            if done { Ok(()) } else { Err(format!("{:?}", status.types)) }
        })
        .await;
        this.extensions = eventually("Envoy lists its extensions", || this.envoy.extensions()).await;
        Some(this)
    }

    fn status(&self) -> Option<ConnectionStatus> {
        self.fanout.connections().into_iter().next()
    }

    /// Shows Envoy a play, waits until it has loaded all of it, and returns what it refused. With `whole`,
    /// everything that the play refers to must be subscribed in the end.
    pub(crate) async fn show(&self, what: &str, play: &Arc<Play>, whole: bool) -> Vec<Refusal> {
        self.journal.begin();
        let wanted = if whole { needs::wanted(&play.dump) } else { Wanted::default() };
        let revision = self.fanout.source().put_on(play);
        self.fanout.publish(&Publication { revision, changes: Vec::new(), view_changed: vec![CLIENT] });
        eventually(what, || async { self.settled(revision, &wanted) }).await;
        self.journal.refusals()
    }

    /// Waits until Envoy serves these listeners and no others.
    pub(crate) async fn serves(&self, listeners: &BTreeSet<String>) {
        eventually("Envoy serves its listeners", || async {
            let active = self.envoy.listeners().await?;
            if active == *listeners { Ok(()) } else { Err(format!("{active:?} in place of {listeners:?}")) }
        })
        .await;
    }

    /// Whether Envoy has answered everything, and subscribed to all that it should. `Err` has what is open.
    fn settled(&self, revision: u64, wanted: &Wanted) -> Result<(), String> {
        // First this: the stream's status before it was updated is about the play before.
        if !self.fanout.source().is_seen(revision) {
            return Err("the stream has not been updated yet".into());
        }
        let printed = || self.envoy.printed();
        let status = self.status().ok_or_else(|| format!("Envoy is not connected: {}", printed()))?;
        let refusals = self.journal.refusals();
        for (ty, state) in &status.types {
            let refused = refusals.iter().any(|refusal| refusal.ty == *ty);
            let named = matches!(&state.names, pilotfish_xds::Names::Named(names) if names.is_empty());
            if !(state.in_sync() || named || refused && self.journal.answered(*ty)) {
                return Err(format!("{ty:?} is not in step: {state:?}"));
            }
        }
        wanted.check(&status, &refusals)
    }
}

impl Drop for Theatre {
    fn drop(&mut self) {
        self.server.abort();
    }
}
