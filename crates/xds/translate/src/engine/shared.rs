//! Interning: equal contents of different results share one allocation.

use super::by_content::{ByContent, HASHER};
use crate::engine::{EncodedResource, ResourceBatch};
use bytes::Bytes;
use parking_lot::Mutex;
use pilotfish_model::Origin;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};
use xxhash_rust::xxh3::xxh3_64;

/// Interned values of results: bodies of resources, lists of objects, routes, views. An entry here does not
/// keep a value alive.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    bodies: Mutex<Bodies>,
    origins: Mutex<Interned<[Origin]>>,
    /// Lists of routes, encoded.
    routes: Mutex<Bodies>,
    /// Values of any types.
    values: Mutex<Interned<dyn Any + Send + Sync>>,
}

/// Values by their hashes.
#[derive(Debug)]
struct Interned<T: ?Sized> {
    by_hash: HashMap<u64, Weak<T>>,
    /// Number of values after the last clean-up.
    kept: usize,
}

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self { by_hash: HashMap::new(), kept: 0 }
    }
}

impl<T: ?Sized> Interned<T> {
    /// Number of values below which there is no clean-up.
    const FEW: usize = 1_024;

    /// Returns the interned value if it is equal, or else interns this one.
    fn one_of(&mut self, hash: u64, value: Arc<T>, is_equal: impl Fn(&T, &T) -> bool) -> Arc<T> {
        match self.by_hash.get(&hash).and_then(Weak::upgrade) {
            Some(known) if is_equal(&known, &value) => known,
            _ => {
                self.by_hash.insert(hash, Arc::downgrade(&value));
                if self.by_hash.len() > Self::FEW.max(2 * self.kept) {
                    self.tidy();
                }
                value
            }
        }
    }

    fn tidy(&mut self) {
        self.by_hash.retain(|_, value| value.strong_count() > 0);
        self.by_hash.shrink_to_fit();
        self.kept = self.by_hash.len();
    }
}

fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    HASHER.hash_one(value)
}

/// Bodies of resources by their hashes.
#[derive(Debug, Default)]
struct Bodies {
    by_hash: HashMap<u64, Bytes>,
    /// Bytes after the last clean-up.
    kept: usize,
    /// Bytes added since the last clean-up.
    come: usize,
}

impl Bodies {
    /// Returns true if the added bytes since the last clean-up justify the cost of another one.
    fn is_due(&self) -> bool {
        const LITTLE: usize = 1 << 20;
        self.come > LITTLE.max(self.kept / 8)
    }

    /// Returns the interned bytes if they are equal, or else interns these.
    fn one_of(&mut self, hash: u64, body: Bytes) -> Bytes {
        match self.by_hash.get(&hash) {
            Some(known) if known.as_ptr() == body.as_ptr() || *known == body => known.clone(),
            _ => {
                self.come += body.len();
                self.by_hash.insert(hash, body.clone());
                body
            }
        }
    }

    fn tidy_if_due(&mut self) {
        if self.is_due() {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        self.by_hash.retain(|_, body| !body.is_unique());
        self.by_hash.shrink_to_fit();
        self.kept = self.by_hash.values().map(Bytes::len).sum();
        self.come = 0;
    }
}

/// Minimum length of lists of origins that are interned.
const FEW: usize = 4;

impl Shared {
    /// The resources, with equal parts shared.
    pub(crate) fn batch(&self, mut batch: ResourceBatch) -> ResourceBatch {
        batch.resources = batch.resources.into_iter().map(|resource| self.resource(resource)).collect();
        batch
    }

    /// The resource, with equal parts shared.
    pub(crate) fn resource(&self, resource: EncodedResource) -> EncodedResource {
        let body = self.body(resource.version, resource.body);
        let provenance = self.origins(resource.provenance);
        EncodedResource { body, provenance, ..resource }
    }

    fn body(&self, hash: u64, body: Bytes) -> Bytes {
        self.bodies.lock().one_of(hash, body)
    }

    fn origins(&self, origins: Arc<[Origin]>) -> Arc<[Origin]> {
        if origins.len() < FEW {
            return origins;
        }
        self.origins.lock().one_of(hash_of(&origins), origins, PartialEq::eq)
    }

    /// The value as one allocation with all that are equal.
    pub(crate) fn value<T: Eq + Hash + Send + Sync + 'static>(&self, value: Arc<T>) -> Arc<T> {
        self.value_by(hash_of(&(TypeId::of::<T>(), &value)), value)
    }

    /// Interns a value as part of queries: equal values share one allocation and are hashed once.
    pub(crate) fn by_content<T: Eq + Hash + Send + Sync + 'static>(&self, value: T) -> ByContent<T> {
        let hash = hash_of(&(TypeId::of::<T>(), &value));
        ByContent::hashed(self.value_by(hash, Arc::new(value)), hash)
    }

    fn value_by<T: Eq + Send + Sync + 'static>(&self, hash: u64, value: Arc<T>) -> Arc<T> {
        let any: Arc<dyn Any + Send + Sync> = value.clone();
        let is_equal = |one: &(dyn Any + Send + Sync), other: &(dyn Any + Send + Sync)| {
            one.downcast_ref::<T>().is_some_and(|one| other.downcast_ref() == Some(one))
        };
        let one = self.values.lock().one_of(hash, any, is_equal);
        one.downcast().unwrap_or(value)
    }

    /// Returns the shared copy of encoded routes.
    pub(crate) fn routes(&self, routes: Bytes) -> Bytes {
        if routes.is_empty() {
            return routes;
        }
        self.routes.lock().one_of(xxh3_64(&routes), routes)
    }

    /// Number of different encoded resources, and their total size in bytes.
    pub(crate) fn bodies(&self) -> (usize, usize) {
        let bodies = self.bodies.lock();
        (bodies.by_hash.len(), bodies.by_hash.values().map(Bytes::len).sum())
    }

    /// Drops bodies that nothing else references, once they may be an eighth of all.
    pub(crate) fn tidy_if_due(&self) {
        self.bodies.lock().tidy_if_due();
        self.routes.lock().tidy_if_due();
    }

    /// Drops all values that nothing else references.
    pub(crate) fn tidy(&self) {
        self.bodies.lock().tidy();
        self.origins.lock().tidy();
        self.routes.lock().tidy();
        self.values.lock().tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{ClusterId, Kind, Namespace, ObjectKey};
    use pilotfish_proto::envoy::config::cluster::v3::Cluster;

    fn resource(name: &str) -> EncodedResource {
        let origin = |n: usize| {
            let key = ObjectKey::new(Kind::Sidecar, Namespace::from("shop"), format!("o{n}"));
            Origin::object(key, ClusterId::default())
        };
        let cluster = Cluster { name: "same".into(), ..Cluster::default() };
        EncodedResource::new(name, &cluster, (0..FEW).map(origin).collect())
    }

    #[test]
    fn equal_contents_are_one_allocation_as_long_as_something_has_them() {
        let shared = Shared::default();
        let [a, b] = ["a", "b"].map(|name| shared.resource(resource(name)));
        assert_eq!(a.body.as_ptr(), b.body.as_ptr());
        assert!(Arc::ptr_eq(&a.provenance, &b.provenance));
        let [one, again, other] = ["r", "r", "s"].map(|name| shared.routes(Bytes::from(name.to_owned())));
        assert!(one.as_ptr() == again.as_ptr() && one.as_ptr() != other.as_ptr());
        drop(a);
        shared.tidy();
        assert_eq!(shared.bodies().0, 1, "b has it");
        drop(b);
        shared.tidy();
        assert_eq!((shared.bodies().0, shared.origins.lock().by_hash.len()), (0, 0));
    }

    #[test]
    fn equal_values_of_a_type_are_one_allocation_as_long_as_something_has_them() {
        let shared = Shared::default();
        let (text, again) = (shared.value(Arc::new("v".to_owned())), shared.value(Arc::new("v".to_owned())));
        assert!(Arc::ptr_eq(&text, &again));
        let part = shared.by_content("v".to_owned());
        assert!(Arc::ptr_eq(&text, part.get()) && part == shared.by_content("v".to_owned()));
        drop(part);
        let others: Vec<_> = (0..2_000_u32).map(|n| shared.value(Arc::new(n))).collect();
        assert!(Arc::ptr_eq(&others[0], &shared.value(Arc::new(0_u32))));
        drop(others);
        for n in 0..10_000_u64 {
            shared.value(Arc::new(n));
        }
        assert!(shared.values.lock().by_hash.len() < 5_000, "those that are gone are forgotten");
        shared.tidy();
        assert_eq!(shared.values.lock().by_hash.len(), 1, "the text is in use");
    }

    #[test]
    fn bodies_that_nothing_has_are_forgotten_by_their_bytes() {
        let shared = Shared::default();
        let kept: Vec<Bytes> =
            (0..20).map(|n| shared.body(n, Bytes::from(vec![u8::try_from(n).unwrap(); 1 << 20]))).collect();
        shared.tidy_if_due();
        assert_eq!(shared.bodies().0, kept.len(), "all of them are in use");
        for n in 100..103 {
            drop(shared.body(n, Bytes::from(vec![0; 1 << 20])));
            shared.tidy_if_due();
            let few = if n < 102 { n - 99 } else { 0 };
            assert_eq!(shared.bodies().0 as u64, kept.len() as u64 + few, "after {n}");
        }
    }
}
