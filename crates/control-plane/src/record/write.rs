//! Writer of records.

use super::lines::{Begin, End, FORMAT, LeftOut, Line, Publish, RecordedProxy, RecordedUpdate, redacted};
use super::{Hashes, hashes};
use crate::control::time;
use crate::history::{History, Steps};
use pilotfish_api::v1::{Failure, FailureKind};
use pilotfish_explain::{Subject, held};
use pilotfish_model::{ChangeSet, Update, World, WorldWriter};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::Translator;
use prost::Message;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

/// Size limit of a record in bytes.
pub(crate) const LARGEST: usize = 48 << 20;

/// Connected proxy with the data for a record.
pub struct Recordable {
    pub subject: Subject,
    pub node: Arc<Node>,
    pub identities: Vec<String>,
}

/// Writes the world of a kept revision and the changes since. `empty` is a translator with the settings of
/// the one that serves.
///
/// # Errors
/// When the revision is not kept, or the record would be too large.
pub fn write(
    history: &History,
    empty: &Translator,
    mut proxies: Vec<Recordable>,
    from: Option<u64>,
) -> Result<Vec<u8>, Failure> {
    for proxy in &mut proxies {
        proxy.subject.names.retain(|ty, _| *ty == ResourceType::ExtensionConfig);
    }
    let Steps { base, revision, updates } = history.steps(from)?;
    let mut record = Record::default();
    record.line(&Line::Begin(Begin {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at: time(SystemTime::now()),
        domain: empty.domain().clone(),
        switches: empty.settings().switches,
    }))?;
    for proxy in &proxies {
        record.line(&Line::Proxy(recorded(proxy)))?;
    }
    let all = World::default().updates_to(&base, &base.facts());
    let began = updates.first().map_or_else(SystemTime::now, |(change, _)| change.at);
    record.publish(revision, began, all)?;
    let mut last = revision;
    for (change, updates) in updates {
        last = change.revision;
        record.publish(last, change.at, updates)?;
    }
    let subjects: Vec<Subject> = proxies.into_iter().map(|proxy| proxy.subject).collect();
    record.end(last, empty, history, &subjects)
}

fn recorded(proxy: &Recordable) -> RecordedProxy {
    let names = &proxy.subject.names;
    RecordedProxy {
        name: proxy.subject.name.clone(),
        node: proxy.node.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect(),
        identities: proxy.identities.clone(),
        names: names
            .iter()
            .map(|(ty, names)| (ty.short().to_owned(), names.iter().cloned().collect()))
            .collect(),
    }
}

/// Record in progress, and its world so far.
#[derive(Default)]
struct Record {
    out: Limited,
    writer: WorldWriter,
    /// Objects that are left out.
    secrets: BTreeSet<String>,
    closed: BTreeSet<String>,
}

impl Record {
    fn line(&mut self, line: &Line) -> Result<(), Failure> {
        let written = serde_json::to_writer(&mut self.out, line).map_err(io::Error::from);
        written.and_then(|()| self.out.write_all(b"\n")).map_err(|error| {
            let failure =
                Failure::new(FailureKind::Unavailable, format!("the record cannot be written: {error}"));
            failure.hint("--from a newer revision makes it smaller; pilotfish history lists them")
        })
    }

    fn publish(&mut self, revision: u64, at: SystemTime, updates: Vec<Update>) -> Result<(), Failure> {
        let mut recorded = Vec::with_capacity(updates.len());
        for update in updates.into_iter().map(redacted) {
            let object = match &update {
                Update::Object(object) => object.key().to_string(),
                _ => String::new(),
            };
            match RecordedUpdate::of(update.clone()) {
                Ok(update_of) => {
                    self.writer.apply(update);
                    recorded.push(update_of);
                }
                Err(LeftOut::Secret) => drop(self.secrets.insert(object)),
                Err(LeftOut::Closed) => drop(self.closed.insert(object)),
            }
        }
        self.line(&Line::Publish(Publish { revision, at: time(at), updates: recorded }))
    }

    fn end(
        mut self,
        revision: u64,
        empty: &Translator,
        history: &History,
        subjects: &[Subject],
    ) -> Result<Vec<u8>, Failure> {
        let of = |world: Arc<World>| -> Hashes {
            let translator = empty.scratch();
            translator.publish(world, &ChangeSet::default());
            let all = held(&translator, subjects);
            subjects.iter().zip(&all).map(|(subject, held)| (subject.name.clone(), hashes(held))).collect()
        };
        let sent = of(history.world_at(revision)?);
        let hashes = of(Arc::new(self.writer.world().clone()));
        let differ = sent.iter().flat_map(|(proxy, types)| {
            let other = hashes.get(proxy);
            types
                .iter()
                .filter(move |(ty, hash)| other.and_then(|other| other.get(*ty)) != Some(hash))
                .map(move |(ty, _)| format!("{proxy} {ty}"))
        });
        let differ = differ.collect();
        let (secrets, closed) = (self.secrets.len(), self.closed.len());
        self.line(&Line::End(End { revision, hashes, secrets, closed, differ }))?;
        Ok(self.out.0)
    }
}

/// Buffer with a size limit.
#[derive(Default)]
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGEST {
            return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST >> 20)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
