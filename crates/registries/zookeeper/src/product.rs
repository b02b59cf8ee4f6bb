//! Sessions: connect a mirror to a server, and publish its services.

use crate::client::{ClientError, Incoming, Opening, Session};
use crate::mapping::Mapper;
use crate::mirror::{Mirror, Registrations};
use crate::options::Options;
use crate::wire::Connect;
use pilotfish_connect::Connection;
use pilotfish_registry::{CatalogOptions, LiveSettings, LiveSource, OptionsError};
use pilotfish_session::{CatalogWriter, Product, SessionError, live};
use std::convert::Infallible;

/// Maximum number of requests in flight: a full read is a stream of small requests, not a burst.
const MAX_UNANSWERED: usize = 32;
/// Number of consecutive refused sessions per server until the cluster counts as having lost its state.
const REFUSALS: usize = 2;
/// Maximum number of pending changes that are published together.
const MAX_AT_ONCE: usize = 1_000;

/// Checks the settings; nothing is connected yet.
pub(crate) fn open(settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let shard = settings.shard.clone();
    let options = Options::take(settings)?;
    let catalog: CatalogOptions = options.catalog.clone();
    Ok(live(ZooKeeper::new(options), shard, catalog))
}

/// The ZooKeeper product with its registrations.
struct ZooKeeper {
    mapper: Mapper,
    options: Options,
    /// Index of the next server.
    turn: usize,
    /// The newest transaction id seen: servers that are behind it refuse the session.
    last_zxid: i64,
    refusals: usize,
    /// The mirror of the current or previous session.
    mirror: Option<Mirror>,
}

impl ZooKeeper {
    fn new(options: Options) -> Self {
        Self {
            mapper: Mapper::new(options.catalog.namespace.clone(), &options.domain),
            // Spreads processes that start at once over the servers.
            turn: usize::try_from(std::process::id()).unwrap_or_default(),
            options,
            last_zxid: 0,
            refusals: 0,
            mirror: None,
        }
    }

    /// Opens a session with the next server.
    async fn connect(&mut self) -> Result<Session<Connection>, SessionError> {
        let servers = &self.options.target.servers;
        let server =
            servers.get(self.turn % servers.len().max(1)).ok_or_else(|| SessionError::new("no server"))?;
        self.turn = self.turn.wrapping_add(1);
        let digest = self.options.digest.read().await?;
        let stream = self.options.connector.connect(server).await?;
        let connect = Connect { last_zxid: self.last_zxid, session_timeout: self.options.session_timeout };
        let opening = Opening { connect, digest: digest.as_deref().map(str::as_bytes) };
        let opened = Session::open(stream, opening).await;
        match &opened {
            Ok(_) => self.refusals = 0,
            Err(ClientError::Refused) => {
                self.refusals += 1;
                if self.refusals >= REFUSALS * servers.len() && self.last_zxid > 0 {
                    tracing::info!(
                        "no ZooKeeper server has the state that was read before; the next session reads \
                         everything again"
                    );
                    (self.refusals, self.last_zxid) = (0, 0);
                }
            }
            Err(_) => {}
        }
        opened.map_err(|error| SessionError::from(error).context(server))
    }

    /// Creates the mirror of a new session.
    fn new_mirror(&mut self) -> &mut Mirror {
        let before = self.mirror.take().map_or_else(Registrations::default, Mirror::into_registrations);
        self.mirror.insert(Mirror::new(self.options.layout.clone(), self.options.watches, before))
    }
}

impl Product for ZooKeeper {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let mut session = self.connect().await?;
        self.new_mirror();
        let Self { mirror: Some(mirror), mapper, last_zxid, .. } = self else {
            return Err(SessionError::new("there is no mirror"));
        };
        loop {
            while session.unanswered() < MAX_UNANSWERED
                && let Some(request) = mirror.next_request()
            {
                catalog.requested();
                session.send(request);
            }
            if mirror.is_complete() {
                tell(mirror, mapper, catalog);
            }
            take(mirror, session.next().await?)?;
            for _ in 1..MAX_AT_ONCE {
                let Some(more) = session.received()? else { break };
                take(mirror, more)?;
            }
            *last_zxid = session.last_zxid().max(*last_zxid);
        }
    }
}

/// Publishes the registrations of a complete mirror: all of them the first time, then changes.
fn tell(mirror: &mut Mirror, mapper: &mut Mapper, catalog: &mut CatalogWriter) {
    let changed = mirror.take_changed();
    if mirror.is_told() {
        if !changed.is_empty() {
            let difference = mapper.changed(mirror.registrations(), &changed);
            catalog.apply(difference.set, difference.removed);
        }
    } else {
        catalog.replace(mapper.all(mirror.registrations()));
        mirror.set_told();
    }
    match mirror.trouble() {
        Some(reason) => catalog.failing(SessionError::new(reason)),
        None => catalog.recovered(),
    }
}

fn take(mirror: &mut Mirror, incoming: Incoming) -> Result<(), SessionError> {
    match incoming {
        Incoming::Event(event) => mirror.event(&event),
        Incoming::Answer(request, answer) => mirror.answer(&request, answer)?,
    }
    Ok(())
}
