//! Estimated bytes that are kept because of a change: of values that the newest world no longer has.

use super::Change;
use super::change::only_in_shard;
use pilotfish_model::{Endpoint, EndpointAttributes, Object, Service, Update, Workload, World};
use std::io;

/// Estimated bytes of a key, name or allocation.
const SMALL: usize = 128;
/// Estimated bytes of the texts, labels and counters of an endpoint, a workload or a service beside the
/// struct. Most of an endpoint's are shared.
const ENDPOINT: usize = 256;
const WORKLOAD: usize = 1_024;
const SERVICE: usize = 2_048;
/// Factor between typed content and its JSON, for absent fields, maps and counters.
const OF_JSON: usize = 4;
const OBJECT: usize = 2_048;

/// Returns the bytes of a change without the values to undo it.
pub(super) fn of_change(change: &Change) -> usize {
    let item = |item: &super::Item| {
        let names: usize = item.made_by.iter().map(|name| name.len() + SMALL).sum();
        size_of::<super::Item>() + item.what.len() + item.source.len() + item.detail.len() + names
    };
    // A list of clients that the next change shares counts twice, which is acceptable for an estimate.
    size_of::<Change>() + SMALL + change.items.iter().map(item).sum::<usize>() + change.bytes_of_clients()
}

/// Returns the bytes of a value that a change removed or replaced in `after`.
pub(super) fn of(update: &Update, after: &World) -> usize {
    SMALL
        + match update {
            Update::Services(_, services) => services.len() * (size_of::<Service>() + SERVICE),
            Update::Endpoints(key, shard, endpoints) => {
                let kept = after.endpoints_of(key).and_then(|all| all.shards.get(shard));
                let each = size_of::<Endpoint>() + size_of::<EndpointAttributes>() + ENDPOINT;
                8 * endpoints.len() + only_in_shard(endpoints, kept).len() * each
            }
            Update::Workload(_) => size_of::<Workload>() + WORKLOAD,
            Update::Object(object) => of_object(object),
            Update::NetworkGateways(gateways) => gateways.len() * 4 * SMALL,
            Update::RemoveShard(..)
            | Update::RemoveWorkload(_)
            | Update::RemoveObject(_)
            | Update::SecretAccess(..) => SMALL,
        }
}

/// Estimates the bytes of an object by its JSON.
fn of_object(object: &Object) -> usize {
    let mut counted = Counted(0);
    // Writing to a counter cannot fail.
    let _ = serde_json::to_writer(&mut counted, &pilotfish_config::spec_json(object));
    let annotations: usize = object.meta.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    OBJECT + OF_JSON * counted.0 + annotations
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
