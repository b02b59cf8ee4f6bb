//! Sessions: query all names, then each one again when its TTL expires.

use crate::client::{AskError, Client};
use crate::entry::Entry;
use crate::mapping::{Mapping, by_host};
use crate::name::{Name, Question, Records};
use crate::plan::{FoundByEntry, Plan, PlanOptions};
use crate::settings::Settings;
use pilotfish_registry::CatalogService;
use pilotfish_runtime::error_chain;
use pilotfish_session::{CatalogWriter, Product, SessionError};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Maximum number of questions in flight.
const MAX_ASKED: usize = 64;

/// The DNS product, for [`pilotfish_session::live`].
pub(crate) struct Dns {
    client: Arc<Client>,
    entries: Arc<[Entry]>,
    hosts: BTreeMap<Name, Arc<[usize]>>,
    options: PlanOptions,
    mapping: Mapping,
    /// Results in force: they stay when a later session cannot resolve a name. Results that the guard holds
    /// back are excluded, so that a failure does not count as the second answer.
    confirmed: FoundByEntry,
}

type Asked = (Question, Result<(Records, Duration), AskError>);

impl Dns {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            client: Arc::new(Client::new(settings.servers)),
            hosts: by_host(&settings.entries),
            entries: settings.entries.into(),
            options: settings.plan,
            mapping: settings.mapping,
            confirmed: Vec::new(),
        }
    }

    /// Sends due questions, up to the limit.
    fn ask(&self, plan: &mut Plan, asked: &mut JoinSet<Asked>, catalog: &CatalogWriter) {
        while asked.len() < MAX_ASKED {
            let Some(question) = plan.pop_due(Instant::now()) else { return };
            catalog.requested();
            let client = self.client.clone();
            asked.spawn(async move {
                let answer = client.ask(&question).await;
                (question, answer)
            });
        }
    }

    /// Publishes everything, once each question has an answer or a failure.
    fn tell_all(&mut self, plan: &Plan, catalog: &mut CatalogWriter) -> Result<(), SessionError> {
        if !plan.has_answers() {
            return Err(SessionError::new(plan.failure().unwrap_or_default()));
        }
        catalog.replace(self.services(plan));
        self.confirm(plan, catalog);
        Ok(())
    }

    /// Publishes the services of changed entries.
    fn tell(&mut self, changed: &BTreeSet<usize>, plan: &Plan, catalog: &mut CatalogWriter) {
        if changed.is_empty() {
            return;
        }
        if is_held(catalog) {
            // Only a full answer can confirm or discard what is held back.
            catalog.replace(self.services(plan));
        } else {
            let hosts = changed.iter().filter_map(|index| Some(&self.entries.get(*index)?.host));
            let hosts: BTreeSet<&Name> = hosts.collect();
            let set = hosts.into_iter().map(|host| self.service(host, plan.found())).collect();
            catalog.apply(set, Vec::new());
        }
        self.confirm(plan, catalog);
    }

    /// Remembers the published results, unless the guard holds them back.
    fn confirm(&mut self, plan: &Plan, catalog: &CatalogWriter) {
        if !is_held(catalog) {
            // Cheap: unchanged results are shared.
            self.confirmed.clone_from(plan.found());
        }
    }

    fn services(&self, plan: &Plan) -> Vec<CatalogService> {
        self.hosts.keys().map(|host| self.service(host, plan.found())).collect()
    }

    fn service(&self, host: &Name, found: &FoundByEntry) -> CatalogService {
        let indexes = self.hosts.get(host).map(|indexes| &indexes[..]).unwrap_or_default();
        let entries = indexes.iter().filter_map(|index| {
            let found = found.get(*index)?.as_deref().unwrap_or_default();
            Some((self.entries.get(*index)?, found))
        });
        self.mapping.service(host, entries)
    }
}

fn is_held(catalog: &CatalogWriter) -> bool {
    catalog.report().state().held.is_some()
}

/// Handles an answer or a failure; returns the entries whose result changed.
fn take(plan: &mut Plan, (question, answer): Asked) -> BTreeSet<usize> {
    match answer {
        Ok((records, ttl)) => plan.answered(&question, records, ttl, Instant::now()),
        Err(error) => {
            let reason = error_chain(&error);
            tracing::debug!(%question, %reason, "no answer");
            plan.failed(&question, &reason, Instant::now())
        }
    }
}

impl Product for Dns {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let mut plan = Plan::new(&self.entries, self.options, self.confirmed.clone(), Instant::now());
        let mut asked: JoinSet<Asked> = JoinSet::new();
        let mut has_told = false;
        loop {
            self.ask(&mut plan, &mut asked, catalog);
            // At the limit of questions in flight, due questions wait for an answer.
            let next = plan.next_due().filter(|_| asked.len() < MAX_ASKED);
            let answer = tokio::select! {
                Some(answer) = asked.join_next() => answer?,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => continue,
                else => return Err(SessionError::new("there is nothing to ask for")),
            };
            if answer.1.is_ok() {
                catalog.answered();
            }
            let changed = take(&mut plan, answer);
            if has_told {
                self.tell(&changed, &plan, catalog);
            } else if plan.is_settled() {
                self.tell_all(&plan, catalog)?;
                has_told = true;
            }
            if has_told {
                match plan.failure() {
                    Some(reason) => catalog.failing(SessionError::new(reason)),
                    None => catalog.recovered(),
                }
            }
        }
    }
}
