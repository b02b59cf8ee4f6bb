//! Distinct resources that the proxies of this process were sent.
//!
//! Equal bytes are one entry of a table, with the name, the version and the references of the resource. So
//! the table has the number of distinct resources, which a server that shares by content would store.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message;

use crate::messages::{Cluster, HCM, Hcm, Listener, fields};
use crate::names::{Name, intern};
use crate::session::{CLUSTERS, LISTENERS, Session};

/// Index of an entry in the table.
pub(crate) type Entry = u32;

#[derive(Default)]
struct Table {
    by_hash: HashMap<u64, Entry>,
    entries: Vec<Known>,
}

#[derive(Clone)]
struct Known {
    name: Name,
    ty: usize,
    bytes: usize,
    version: Arc<str>,
    /// Load assignment of a cluster, or route configurations of a listener.
    refers: Arc<[Name]>,
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(Default::default);

/// References of an entry.
pub(crate) fn refers(entry: Entry) -> Option<Arc<[Name]>> {
    TABLE.read().entries.get(entry as usize).map(|known| Arc::clone(&known.refers))
}

/// References of all these entries.
pub(crate) fn references(entries: impl Iterator<Item = Entry>) -> BTreeSet<Name> {
    let table = TABLE.read();
    let known = entries.filter_map(|entry| table.entries.get(entry as usize));
    known.flat_map(|known| known.refers.iter().copied()).collect()
}

/// Version of an entry, as sent by the server.
pub(crate) fn version(entry: Entry) -> Option<Arc<str>> {
    TABLE.read().entries.get(entry as usize).map(|known| Arc::clone(&known.version))
}

/// Name and entry of a received resource.
pub(crate) fn entry_of(ty: usize, message: &Bytes, resource: &[u8]) -> Result<(Name, Entry), String> {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(resource, ty as u64);
    {
        let table = TABLE.read();
        if let Some(entry) = table.by_hash.get(&hash)
            && let Some(known) = table.entries.get(*entry as usize)
        {
            return Ok((known.name, *entry));
        }
    }
    let known = read(ty, message, resource)?;
    let name = known.name;
    let mut table = TABLE.write();
    let next = Entry::try_from(table.entries.len()).map_err(|_| "too many different resources".to_owned())?;
    let entry = *table.by_hash.entry(hash).or_insert(next);
    if entry == next {
        table.entries.push(known);
    }
    Ok((name, entry))
}

/// Decodes a resource without an entry.
fn read(ty: usize, message: &Bytes, resource: &[u8]) -> Result<Known, String> {
    let (mut name, mut version, mut any) = (&b""[..], &b""[..], &b""[..]);
    for (number, field) in fields(resource) {
        match number {
            1 => version = field,
            2 => any = field,
            3 => name = field,
            _ => {}
        }
    }
    let name = intern(std::str::from_utf8(name).map_err(|_| "a name that is not text".to_owned())?);
    let body = fields(any).find_map(|(number, field)| (number == 2).then_some(field)).unwrap_or_default();
    let refers = match ty {
        CLUSTERS => load_of(name, &message.slice_ref(body)),
        LISTENERS => routes_of(&message.slice_ref(body)),
        _ => Ok(Vec::new()),
    };
    Ok(Known {
        name,
        ty,
        bytes: resource.len(),
        version: String::from_utf8_lossy(version).into(),
        refers: refers.map_err(|error| format!("undecodable resource: {error}"))?.into(),
    })
}

fn load_of(name: Name, body: &Bytes) -> Result<Vec<Name>, prost::DecodeError> {
    let cluster = Cluster::decode(body.clone())?;
    if cluster.discovery != Cluster::EDS {
        return Ok(Vec::new());
    }
    let service = cluster.eds.map(|eds| eds.service_name).filter(|service| !service.is_empty());
    Ok(vec![service.map_or(name, |service| intern(&service))])
}

fn routes_of(body: &Bytes) -> Result<Vec<Name>, prost::DecodeError> {
    let listener = Listener::decode(body.clone())?;
    let chains = listener.chains.into_iter().chain(listener.default_chain);
    let configs = chains.flat_map(|chain| chain.filters).filter_map(|filter| filter.config);
    let mut names = Vec::new();
    for config in configs.filter(|config| config.type_url == HCM) {
        if let Some(rds) = Hcm::decode(config.value)?.rds {
            names.push(intern(&rds.name));
        }
    }
    Ok(names)
}

/// Content of each type: the resources of all proxies, and the distinct ones among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Number of resources, counted for each proxy that has them.
    pub held: u64,
    /// Bytes of these resources.
    pub held_bytes: u64,
    /// Number of distinct resources.
    pub distinct: u64,
    /// Bytes of the distinct resources.
    pub distinct_bytes: u64,
    /// Number of distinct resources that only one proxy has.
    pub single: u64,
    /// Bytes of the resources that only one proxy has.
    pub single_bytes: u64,
}

/// Number of holders of each entry.
#[derive(Default)]
pub struct Holders(Vec<u32>);

impl Holders {
    /// Counts the resources of a proxy.
    pub fn add(&mut self, session: &Session) {
        for entry in session.entries() {
            let at = entry as usize;
            if self.0.len() <= at {
                self.0.resize(at + 1, 0);
            }
            if let Some(count) = self.0.get_mut(at) {
                *count += 1;
            }
        }
    }

    /// Sums for each type.
    #[must_use]
    pub fn content(&self) -> [Content; 4] {
        let table = TABLE.read();
        let mut content = [Content::default(); 4];
        for (known, count) in table.entries.iter().zip(&self.0).filter(|(_, count)| **count > 0) {
            let Some(sum) = content.get_mut(known.ty) else { continue };
            let (count, bytes) = (u64::from(*count), known.bytes as u64);
            sum.held += count;
            sum.held_bytes += count * bytes;
            sum.distinct += 1;
            sum.distinct_bytes += bytes;
            if count == 1 {
                sum.single += 1;
                sum.single_bytes += bytes;
            }
        }
        content
    }
}
