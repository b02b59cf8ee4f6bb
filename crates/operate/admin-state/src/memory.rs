//! Memory by kind of content, as far as it is accounted for.

use super::AdminState;
use pilotfish_api::v1::MemoryKind;

/// Returns number and bytes of each kind of content.
pub(super) fn kinds(state: &AdminState) -> Vec<MemoryKind> {
    let kind = |kind: &str, count, bytes| MemoryKind { kind: kind.to_owned(), count, bytes };
    let world = state.shared.world();
    let (resources, resource_bytes) = state.translator.encoded();
    let (history_bytes, _) = state.shared.history().bytes();
    let changes = state.shared.history().changes().len();
    let shards = world.endpoints().flat_map(|(_, endpoints)| endpoints.shards.values());
    vec![
        kind("encoded resources", resources, Some(resource_bytes)),
        kind("results of translation", state.translator.results(), None),
        kind("changes that are kept", changes, Some(history_bytes)),
        kind("services", world.service_count(), None),
        kind("endpoints", shards.map(|shard| shard.len()).sum(), None),
        kind("workloads", world.workloads().count(), None),
        kind("objects", world.all_objects().count(), None),
        kind("streams", state.fanout.stream_count(), None),
        kind("different subscriptions", state.fanout.group_count(), Some(state.fanout.subscription_bytes())),
        kind("parts of views", state.fanout.part_count(), None),
    ]
}
