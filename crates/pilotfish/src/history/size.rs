//! About how many bytes are kept because of a change: of what the newest world does not have any more.

use super::Change;
use super::change::only_in_shard;
use pilotfish_model::{Endpoint, EndpointAttributes, Object, Service, Update, Workload, World};
use std::io;

/// Of one key, name or allocation.
const SMALL: usize = 128;
/// Texts, labels and counters of an endpoint, a workload or a service, beside the struct. Most of an endpoint's are shared.
const ENDPOINT: usize = 256;
const WORKLOAD: usize = 1_024;
const SERVICE: usize = 2_048;
/// Typed content takes more than its JSON: absent fields, maps, counters.
const OF_JSON: usize = 4;
const OBJECT: usize = 2_048;

/// Bytes of a change without the way back.
pub(super) fn of_change(change: &Change) -> usize {
    let item = |item: &super::Item| {
        let names: usize = item.made_by.iter().map(|name| name.len() + SMALL).sum();
        size_of::<super::Item>() + item.what.len() + item.source.len() + item.detail.len() + names
    };
    // A list of clients that the next change has, too, counts twice: they are few where it is not the same again.
    size_of::<Change>() + SMALL + change.items.iter().map(item).sum::<usize>() + change.bytes_of_clients()
}

/// Bytes of a value that a change took away from `after`.
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

/// Bytes of an object, by its JSON.
fn of_object(object: &Object) -> usize {
    let mut counted = Counted(0);
    // A counter takes everything.
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
