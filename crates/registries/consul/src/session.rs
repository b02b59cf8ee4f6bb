//! A session with Consul: sends scheduled questions, handles answers, and publishes changes. One task.

use crate::answer::About;
use crate::client::{Answer, AskError, Asked, Client};
use crate::index::Moved;
use crate::known::{Doubt, Known};
use crate::schedule::{Ask, Key, Limits, Question, Schedule};
use crate::settings::Settings;
use crate::triggers::{CheckState, Touched, Trigger};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use pilotfish_registry::{LiveSettings, LiveSource, OptionsError};
use pilotfish_runtime::Jitter;
use pilotfish_session::{CatalogWriter, Product, SessionError, live};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum age of the token in memory when a question is sent.
const TOKEN_AGE: Duration = Duration::from_secs(1);
/// Maximum number of services in all data centres; more are ignored.
const MAX_SERVICES: usize = pilotfish_registry::MAX_SERVICES;

/// Validates the settings; nothing is connected yet.
pub(crate) fn open(settings: LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError> {
    let shard = settings.shard.clone();
    let (settings, options) = Settings::take(settings)?;
    let known = Known::new(settings.mapping.clone(), &settings.datacenters);
    Ok(live(Consul { settings: Arc::new(settings), known, sessions: 0 }, shard, options))
}

/// State of a Consul registry across its sessions.
struct Consul {
    settings: Arc<Settings>,
    /// State kept across sessions: services that the next session cannot read stay as they were.
    known: Known,
    sessions: usize,
}

impl Product for Consul {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let servers = &self.settings.target.servers;
        // Each session uses another server.
        let server = servers.get(self.sessions % servers.len().max(1)).cloned();
        let server = server.ok_or_else(|| SessionError::new("the address names no server"))?;
        self.sessions = self.sessions.wrapping_add(1);
        let settings = self.settings.clone();
        let mut client = Client::new(settings.clone(), server, catalog.report().clone());
        loop {
            let mut run = Run::new(&settings, &mut self.known, catalog);
            // The first answer determines the version of HTTP, and with it the limit of open questions.
            run.begin(&mut client).await?;
            let TokenChanged = run.follow(&client).await?;
        }
    }
}

/// Another token may see something else under the same indexes, so everything is read again.
struct TokenChanged;

type Done = (Question, Result<Asked, AskError>);

/// State of one session.
struct Run<'a> {
    settings: &'a Settings,
    known: &'a mut Known,
    catalog: &'a mut CatalogWriter,
    schedule: Schedule,
    triggers: BTreeMap<(usize, CheckState), Trigger>,
    /// Current errors, by question.
    troubles: BTreeMap<Ask, SessionError>,
    has_told_trouble: bool,
    /// Services with unpublished changes.
    changed: BTreeSet<Arc<str>>,
    has_replaced: bool,
    token: Option<(Arc<str>, Instant)>,
}

impl<'a> Run<'a> {
    fn new(settings: &'a Settings, known: &'a mut Known, catalog: &'a mut CatalogWriter) -> Self {
        let limits = Limits {
            open: settings.connections,
            datacenters: settings.datacenters.len(),
            wait: settings.wait,
        };
        let now = Instant::now();
        Self {
            settings,
            known,
            catalog,
            schedule: Schedule::new(limits, Jitter::default(), now),
            triggers: BTreeMap::new(),
            troubles: BTreeMap::new(),
            has_told_trouble: false,
            changed: BTreeSet::new(),
            has_replaced: false,
            token: None,
        }
    }

    async fn begin(&mut self, client: &mut Client) -> Result<(), SessionError> {
        let now = Instant::now();
        let token = self.token(now).await?;
        while self.schedule.has_no_names() {
            let Some(question) = self.schedule.next(now) else { break };
            let (question, result) = ask(client, question, token.clone()).await;
            if let Ok(asked) = &result {
                self.schedule.set_open(client.speak(asked.version));
            }
            self.take(&question, result)?;
        }
        Ok(())
    }

    async fn follow(&mut self, client: &Client) -> Result<TokenChanged, SessionError> {
        let mut open: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        let first = self.token(Instant::now()).await?;
        // Without services, the list of names alone completes the initial load.
        self.tell();
        loop {
            let now = Instant::now();
            let token = self.token(now).await?;
            if token != first {
                return Ok(TokenChanged);
            }
            while let Some(question) = self.schedule.next(now) {
                open.push(ask(client, question, token.clone()).boxed());
            }
            let wake = self.schedule.wake(now);
            let mut next = tokio::select! {
                done = open.next(), if !open.is_empty() => done,
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => None,
                else => return Err(SessionError::new("there is nothing to ask")),
            };
            let has_answers = next.is_some();
            // Answers that arrived together are published together.
            while let Some((question, result)) = next {
                self.take(&question, result)?;
                next = open.next().now_or_never().flatten();
            }
            if has_answers {
                self.tell();
            }
        }
    }

    /// Returns the current token. Files are read at most once a second, by this task alone.
    async fn token(&mut self, now: Instant) -> Result<Option<Arc<str>>, SessionError> {
        match &self.token {
            _ if !self.settings.token.is_set() => Ok(None),
            Some((token, at)) if now < *at + TOKEN_AGE => Ok(Some(token.clone())),
            _ => {
                let token = self.settings.token.read().await?;
                self.token = token.clone().map(|token| (token, now));
                Ok(token)
            }
        }
    }

    /// Handles one answer. An error of a list of names ends the session; an error of one service is recorded
    /// for that service.
    fn take(&mut self, question: &Question, result: Result<Asked, AskError>) -> Result<(), SessionError> {
        let now = Instant::now();
        let ask = &question.ask;
        if !self.schedule.is_current(question) {
            self.schedule.failed(question, now);
            return Ok(());
        }
        let is_names = matches!(ask, Ask::Names(_));
        let trouble = match result {
            Err(error) if is_names => return Err(SessionError::from(error).context(self.place(ask))),
            Err(error) => SessionError::from(error),
            Ok(asked) if self.shows_more(ask, &asked) => {
                self.schedule.failed(question, now);
                return Ok(());
            }
            Ok(asked) => match self.believe(ask, asked.answer, asked.about, now) {
                // There is no earlier state to keep.
                Err(doubt) if is_names && !self.has_replaced => {
                    return Err(SessionError::from(doubt).context(self.place(ask)));
                }
                Err(doubt) => SessionError::from(doubt),
                Ok(()) => {
                    self.troubles.remove(ask);
                    self.answered(question, asked.about.index, now);
                    return Ok(());
                }
            },
        };
        self.schedule.failed(question, now);
        self.troubles.insert(ask.clone(), trouble);
        Ok(())
    }

    /// True if the token sees everything now and did not before, in an answer without changes. The question
    /// is repeated.
    fn shows_more(&self, ask: &Ask, asked: &Asked) -> bool {
        let name = match ask {
            Ask::Names(_) => None,
            Ask::Watch(key) => Some(&key.name),
            _ => return false,
        };
        let is_nothing = matches!(asked.answer, Answer::Nothing) && !asked.about.incomplete;
        is_nothing && self.known.is_partial(ask.datacenter(), name)
    }

    fn answered(&mut self, question: &Question, index: u64, now: Instant) {
        let moved = self.schedule.answered(question, index, now);
        if let (Ask::Names(datacenter), Moved::On | Moved::Back) = (&question.ask, moved) {
            // The list returns at every change of an instance, but shows only names and tags.
            if question.index > 0 && self.schedule.takes_turns() {
                self.schedule.sweep(*datacenter);
            }
        }
    }

    /// Applies an answer, unless it removes something and may be wrong.
    fn believe(&mut self, ask: &Ask, answer: Answer, about: About, now: Instant) -> Result<(), Doubt> {
        match (ask, answer) {
            (Ask::Names(datacenter), Answer::Names(names)) => {
                let selection = &self.settings.selection;
                let wanted = names.into_iter().filter(|(name, tags)| selection.wants(name, tags.as_ref()));
                let wanted: BTreeSet<Arc<str>> = wanted.map(|(name, _)| name).take(MAX_SERVICES).collect();
                let gone = self.known.set_names(*datacenter, wanted.clone(), about)?;
                self.schedule.list(*datacenter, &wanted, now);
                self.troubles.retain(|ask, _| {
                    ask.service()
                        .is_none_or(|key| key.datacenter != *datacenter || wanted.contains(&key.name))
                });
                self.changed.extend(gone);
            }
            (Ask::Checks(datacenter, state), Answer::Checks(checks)) => {
                let touched = self.triggers.entry((*datacenter, *state)).or_default().answered(checks);
                self.touch(*datacenter, touched.unwrap_or_default(), now);
            }
            (Ask::Watch(key) | Ask::Fetch(key), Answer::Entries(entries)) => {
                let differs = self.known.set(key.datacenter, &key.name, entries, about)?;
                let news = differs.then(|| self.changed.insert(key.name.clone()));
                if news.is_some() && self.has_replaced {
                    self.schedule.changed(key, now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn touch(&mut self, datacenter: usize, touched: Touched, now: Instant) {
        let mut names = touched.services;
        for node in &touched.nodes {
            names.extend(self.known.on_node(datacenter, node));
        }
        for name in names {
            self.schedule.touch(&Key { datacenter, name }, now);
        }
    }

    /// Publishes changes and errors.
    fn tell(&mut self) {
        if !self.has_replaced {
            if self.schedule.is_loaded() {
                self.has_replaced = true;
                self.changed.clear();
                self.catalog.replace(self.known.tell_all());
            }
        } else if self.changed.is_empty() {
            self.catalog.answered();
        } else {
            let (mut set, mut removed) = (Vec::new(), Vec::new());
            for name in std::mem::take(&mut self.changed) {
                let told = self.known.tell(&name);
                set.extend(told.set);
                removed.extend(told.removed);
            }
            self.catalog.apply(set, removed);
        }
        match self.troubles.first_key_value() {
            Some((ask, trouble)) => {
                let more = self.troubles.len() - 1;
                let more = if more > 0 { format!("; {more} more questions fail") } else { String::new() };
                self.catalog.failing(SessionError::new(format!("{}: {trouble}{more}", self.place(ask))));
                self.has_told_trouble = true;
            }
            None if self.has_told_trouble => {
                self.has_told_trouble = false;
                self.catalog.recovered();
            }
            None => {}
        }
    }

    /// Describes a question for messages.
    fn place(&self, ask: &Ask) -> String {
        let of = match self.settings.datacenters.get(ask.datacenter()) {
            Some(Some(name)) => format!(" of {name}"),
            _ => String::new(),
        };
        match ask {
            Ask::Names(_) => format!("catalog/services{of}"),
            Ask::Checks(_, state) => format!("health/state/{}{of}", state.name()),
            Ask::Watch(key) | Ask::Fetch(key) | Ask::Probe(key) => format!("health/service/{}{of}", key.name),
        }
    }
}

async fn ask(client: &Client, question: Question, token: Option<Arc<str>>) -> Done {
    let result = client.ask(&question, token.as_deref()).await;
    (question, result)
}
