//! The contents of a response, its encoded form and its nonce.

use crate::entries::{Entries, Map};
use crate::frame::{About, Chunk, Frame};
use crate::source::Resource;
use imbl::ordmap::DiffItem;
use pilotfish_proto::ResourceType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter for nonces. Streams share responses, so a nonce is unique among all streams of a fan-out.
#[derive(Debug)]
pub(crate) struct Nonces(AtomicU64);

impl Nonces {
    pub(crate) fn new(first: u64) -> Self {
        Self(AtomicU64::new(first))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Changes of a client's resources by a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// New and changed resources.
    pub(crate) upserts: Vec<Arc<Resource>>,
    /// Names of removed resources.
    pub(crate) removed: Vec<Arc<str>>,
}

impl Contents {
    /// Changes from `old` to `new`.
    pub(crate) fn difference(old: &Entries, new: &Entries) -> Self {
        if old.is_empty() {
            return Self { upserts: new.values().cloned().collect(), removed: Vec::new() };
        }
        if let (Some(old), Some(new)) = (old.as_map(), new.as_map()) {
            return Self::between(old, new);
        }
        let mut contents = Self::default();
        for name in old.differing(new) {
            match (old.get(&name), new.get(&name)) {
                (Some(_), None) => contents.removed.push(name),
                (before, Some(after)) if before != Some(after) => contents.upserts.push(Arc::clone(after)),
                _ => {}
            }
        }
        contents
    }

    /// Changes from `old` to `new`, for resources without layers.
    pub(crate) fn between(old: &Map, new: &Map) -> Self {
        let mut contents = Self::default();
        for item in old.diff(new) {
            match item {
                DiffItem::Add(_, resource) | DiffItem::Update { new: (_, resource), .. } => {
                    contents.upserts.push(Arc::clone(resource));
                }
                DiffItem::Remove(name, _) => contents.removed.push(Arc::clone(name)),
            }
        }
        contents
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.removed.is_empty()
    }

    /// Replaces stand-ins by removed names for which the predicate returns true.
    pub(crate) fn tell_absent(&mut self, told: impl Fn(&Resource) -> bool) {
        let is_told = |resource: &Arc<Resource>| resource.stands_in && told(resource);
        if self.upserts.iter().any(is_told) {
            let absent = self.upserts.extract_if(.., |resource| is_told(resource));
            self.removed.extend(absent.map(|resource| Arc::clone(&resource.name)));
            self.removed.sort_unstable();
            self.removed.dedup();
        }
    }

    /// Drops new content beyond `most` bytes, except for the first resource. Returns true if something was
    /// dropped.
    pub(crate) fn cut(&mut self, most: usize) -> bool {
        let mut bytes = 0_usize;
        let mut fits = |resource: &Arc<Resource>| {
            bytes += resource.body.len() + resource.name.len();
            bytes <= most
        };
        let fitting = self.upserts.iter().take_while(|resource| fits(resource)).count().max(1);
        let is_cut = fitting < self.upserts.len();
        self.upserts.truncate(fitting);
        is_cut
    }

    /// Applies the changes to a client's resources.
    pub(crate) fn apply(&self, entries: &mut Entries) {
        for resource in &self.upserts {
            entries.insert(Arc::clone(resource));
        }
        for name in &self.removed {
            entries.remove(name);
        }
    }
}

/// An encoded response that any number of streams can send.
#[derive(Debug)]
pub(crate) struct EncodedResponse {
    pub(crate) contents: Arc<Contents>,
    /// The nonce inside the frame.
    pub(crate) nonce: u64,
    pub(crate) frame: Frame,
    /// True if some of its resources are [stand-ins](Resource::stands_in).
    pub(crate) stands_in: bool,
}

impl EncodedResponse {
    pub(crate) fn delta(ty: ResourceType, version: u64, contents: Contents, nonce: u64) -> Self {
        Self::delta_over(ty, version, contents, nonce, Vec::new())
    }

    /// Creates a delta response whose last upserts are encoded already, in `shared`.
    pub(crate) fn delta_over(
        ty: ResourceType,
        version: u64,
        contents: Contents,
        nonce: u64,
        shared: Vec<Arc<Chunk>>,
    ) -> Self {
        let rest = contents.upserts.len() - shared.iter().map(|chunk| chunk.count).sum::<usize>();
        let own = contents.upserts.get(..rest).unwrap_or_default();
        let frame = Frame::delta(About::of(ty.type_url(), version), own, &contents.removed, nonce, shared);
        Self::new(contents, nonce, frame)
    }

    fn new(contents: Contents, nonce: u64, frame: Frame) -> Self {
        let stands_in = contents.upserts.iter().any(|resource| resource.stands_in);
        Self { contents: Arc::new(contents), nonce, frame, stands_in }
    }

    pub(crate) fn sotw(ty: ResourceType, version: u64, contents: Contents, nonce: u64) -> Self {
        let frame = Frame::sotw(About::of(ty.type_url(), version), &contents.upserts, nonce);
        Self::new(contents, nonce, frame)
    }
}
