//! Replay of a record in a fresh control plane.

use super::lines::{Begin, End, FORMAT, Line, Publish, RecordedProxy};
use super::{Hashes, hashes};
use anyhow::{Context, Result, anyhow, bail};
use pilotfish_explain::{Subject, held};
use pilotfish_model::{ChangeSet, World, WorldWriter};
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_translate::{Proxy, TranslationSettings, Translator};
use prost::Message;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;

/// Size limit of a record, and of a line of it, in bytes.
const LARGEST: u64 = 256 << 20;

/// Result of a replay.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// Version of the program that wrote the record.
    pub version: String,
    /// First revision of the record.
    pub from: u64,
    /// Last revision of the record.
    pub to: u64,
    pub publications: usize,
    pub proxies: usize,
    /// True if all hashes equal those of the record.
    pub same: bool,
    /// Proxies and types with other resources in the replay.
    pub differ: Vec<Difference>,
    /// Proxies and types that got other resources from the recorded control plane, because of objects that
    /// the record leaves out.
    pub unlike_then: Vec<String>,
    /// Number of Secrets and closed objects that the record leaves out.
    pub left_out: usize,
}

/// Type of a proxy with other resources in the replay.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    pub proxy: String,
    pub resource_type: String,
    /// Hash in the record.
    pub recorded: String,
    /// Hash after replaying all publications.
    pub replayed: String,
    /// Hash of a translation of the last world alone.
    pub from_scratch: String,
}

/// Replays a record.
///
/// # Errors
/// When it cannot be read.
pub fn replay(record: impl BufRead) -> Result<Replayed> {
    let mut replay: Option<Replay> = None;
    for (number, line) in record.take(LARGEST).lines().enumerate() {
        let place = || format!("line {}", number + 1);
        let line = line.with_context(place)?;
        if line.is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&line).with_context(place).context("this is no record")?;
        match (line, &mut replay) {
            (Line::Begin(begin), None) => replay = Some(Replay::begin(begin)?),
            (Line::Proxy(proxy), Some(replay)) => replay.proxy(proxy).with_context(place)?,
            (Line::Publish(publish), Some(replay)) => replay.publish(publish).with_context(place)?,
            (Line::End(end), Some(replay)) => return replay.end(end),
            (Line::Begin(_), Some(_)) => bail!("{}: a record begins twice", place()),
            (_, None) => bail!("{}: a record begins with another line", place()),
        }
    }
    bail!("the record has no end: it is cut off")
}

struct Replay {
    version: String,
    translator: Translator,
    writer: WorldWriter,
    subjects: Vec<Subject>,
    from: Option<u64>,
    publications: usize,
}

impl Replay {
    fn begin(begin: Begin) -> Result<Self> {
        if begin.format != FORMAT {
            bail!(
                "the record has format {}, of version {}; this program reads {FORMAT}",
                begin.format,
                begin.version
            );
        }
        Ok(Self {
            version: begin.version,
            translator: Translator::with_settings(TranslationSettings {
                domain: begin.domain,
                switches: begin.switches,
            }),
            writer: WorldWriter::new(),
            subjects: Vec::new(),
            from: None,
            publications: 0,
        })
    }

    fn proxy(&mut self, recorded: RecordedProxy) -> Result<()> {
        let node = Node::decode(&*bytes(&recorded.node)?).context("the node")?;
        let proxy = Proxy::from_node(&node).map_err(|error| anyhow!("the node: {error}"))?;
        let proxy = proxy.with_identities(recorded.identities.iter().map(String::as_str));
        let proxy = proxy.map_err(|error| anyhow!("the identities: {error}"))?;
        let ty = |short: &str| ResourceType::ALL.into_iter().find(|ty| ty.short() == short);
        let names = recorded
            .names
            .into_iter()
            .filter_map(|(short, names)| Some((ty(&short)?, names.into_iter().collect())));
        self.subjects.push(Subject { name: recorded.name, proxy, names: names.collect() });
        Ok(())
    }

    fn publish(&mut self, publish: Publish) -> Result<()> {
        for update in publish.updates {
            self.writer.apply(update.into_update().map_err(|error| anyhow!(error))?);
        }
        self.publications += 1;
        if let Some((world, changes)) = self.writer.publish() {
            self.translator.publish(world, &changes);
        }
        if self.from.is_none() {
            self.from = Some(publish.revision);
        }
        // The resources of proxies are computed after each publication, so that the next one is an
        // incremental update.
        drop(held(&self.translator, &self.subjects));
        Ok(())
    }

    fn end(&self, end: End) -> Result<Replayed> {
        let replayed = self.hashes(&self.translator);
        let scratch = self.translator.scratch();
        scratch.publish(Arc::new(World::clone(self.writer.world())), &ChangeSet::default());
        let from_scratch = self.hashes(&scratch);
        let mut differ = Vec::new();
        let none = BTreeMap::new();
        for (proxy, types) in &end.hashes {
            let (step, all) =
                (replayed.get(proxy).unwrap_or(&none), from_scratch.get(proxy).unwrap_or(&none));
            for (ty, recorded) in types {
                let of = |hashes: &BTreeMap<String, String>| hashes.get(ty).cloned().unwrap_or_default();
                let (replayed, from_scratch) = (of(step), of(all));
                if replayed != *recorded || from_scratch != *recorded {
                    let (proxy, resource_type) = (proxy.clone(), ty.clone());
                    let recorded = recorded.clone();
                    differ.push(Difference { proxy, resource_type, recorded, replayed, from_scratch });
                }
            }
        }
        Ok(Replayed {
            version: self.version.clone(),
            from: self.from.unwrap_or(end.revision),
            to: end.revision,
            publications: self.publications,
            proxies: self.subjects.len(),
            same: differ.is_empty(),
            differ,
            unlike_then: end.differ,
            left_out: end.secrets + end.closed,
        })
    }

    fn hashes(&self, translator: &Translator) -> Hashes {
        let all = held(translator, &self.subjects);
        self.subjects.iter().zip(&all).map(|(subject, held)| (subject.name.clone(), hashes(held))).collect()
    }
}

/// Decodes an even number of hexadecimal digits.
fn bytes(digits: &str) -> Result<Vec<u8>> {
    let pair = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    if !digits.len().is_multiple_of(2) {
        bail!("an odd number of digits");
    }
    (0..digits.len()).step_by(2).map(|at| pair(at).ok_or_else(|| anyhow!("no hexadecimal digits"))).collect()
}
