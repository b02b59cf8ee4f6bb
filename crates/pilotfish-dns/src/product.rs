//! Sessions: asking all names, then each one again when its time is over.

use crate::client::{AskError, Client};
use crate::entry::Entry;
use crate::mapping::{Mapping, by_host};
use crate::name::{Name, Question, Records};
use crate::plan::{FoundByEntry, Plan, PlanOptions};
use crate::settings::Settings;
use pilotfish_registry::CatalogService;
use pilotfish_registry_client::{CatalogWriter, Product, SessionError};
use pilotfish_source::error_chain;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How many questions wait for answers at a time.
const MAX_ASKED: usize = 64;

/// DNS, for [`pilotfish_registry_client::live`].
pub(crate) struct Dns {
    client: Arc<Client>,
    entries: Arc<[Entry]>,
    hosts: BTreeMap<Name, Arc<[usize]>>,
    options: PlanOptions,
    mapping: Mapping,
    /// What was found and is in force: where a later session cannot find out, it stays. What the guard holds back is not in it, so
    /// that a failure is no second answer.
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

    /// Asks what is due, up to the limit.
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

    /// Tells everything, once there is an answer or a failure for all of it.
    fn tell_all(&mut self, plan: &Plan, catalog: &mut CatalogWriter) -> Result<(), SessionError> {
        if !plan.has_answers() {
            return Err(SessionError::new(plan.failure().unwrap_or_default()));
        }
        catalog.replace(self.services(plan));
        self.confirm(plan, catalog);
        Ok(())
    }

    /// Tells what changed.
    fn tell(&mut self, changed: &BTreeSet<usize>, plan: &Plan, catalog: &mut CatalogWriter) {
        if changed.is_empty() {
            return;
        }
        if is_held(catalog) {
            // Only everything can tell what becomes of what is held back.
            catalog.replace(self.services(plan));
        } else {
            let hosts = changed.iter().filter_map(|index| Some(&self.entries.get(*index)?.host));
            let hosts: BTreeSet<&Name> = hosts.collect();
            let set = hosts.into_iter().map(|host| self.service(host, plan.found())).collect();
            catalog.apply(set, Vec::new());
        }
        self.confirm(plan, catalog);
    }

    /// What was told is in force, unless the guard holds it back.
    fn confirm(&mut self, plan: &Plan, catalog: &CatalogWriter) {
        if !is_held(catalog) {
            // Cheap: what did not change is shared.
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

/// Takes an answer or a failure; returns the entries for which something else is found.
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
            // Above the limit of questions at a time, one that is due waits for an answer to another one.
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
