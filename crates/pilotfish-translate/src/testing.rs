//! What unit tests of queries share: small worlds built by hand, and asking one question of them.

use crate::Query;
use crate::memo::Memo;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{
    ChangeSet, KindSpec, Labels, Namespace, Object, ObjectKey, ObjectMeta, Update, World, WorldWriter,
};
use std::sync::Arc;

/// Labels from pairs.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Arc::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

/// An object without labels, created at second 0.
pub(crate) fn object<T: KindSpec>(namespace: &str, name: &str, spec: T) -> Object {
    aged(namespace, name, 0, spec)
}

/// An object of some age.
pub(crate) fn aged<T: KindSpec>(namespace: &str, name: &str, created: i64, spec: T) -> Object {
    let meta = ObjectMeta { created, ..ObjectMeta::of(ObjectKey::new(T::KIND, namespace, name)) };
    Object::new(meta, spec)
}

/// The mesh-wide settings as an object.
pub(crate) fn mesh(config: MeshConfig) -> Object {
    object(Namespace::default().as_str(), "default", config)
}

/// A world of these updates.
pub(crate) fn world(updates: impl IntoIterator<Item = Update>) -> Arc<World> {
    let mut writer = WorldWriter::new();
    for update in updates {
        writer.apply(update);
    }
    writer.publish().map_or_else(Arc::default, |(world, _)| world)
}

/// A world of these objects.
pub(crate) fn world_of(objects: impl IntoIterator<Item = Object>) -> Arc<World> {
    world(objects.into_iter().map(Update::Object))
}

/// The answer to one query in a world.
pub(crate) fn ask<Q: Query>(world: &Arc<World>, query: &Q) -> Arc<Q::Output> {
    let memo = Memo::new();
    let (current, _) = memo.advance(world.clone(), &ChangeSet::default());
    memo.get(&current, query).0
}
