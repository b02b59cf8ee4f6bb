//! The contents of a response.

use super::map::Map;
use crate::source::Resource;
use imbl::ordmap::DiffItem;
use std::sync::Arc;

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
}
