//! Secrets that only the stream's own client is sent, beside those of its view.
//!
//! They are put over a snapshot of the client's group, so the group and its shared responses never have them.

use super::Stream;
use crate::fanout::group::GroupView;
use crate::resources::set_version;
use crate::source::{PrivateSecret, Resource, ResourceSource, SecretsChanged};
use pilotfish_proto::ResourceType;
use std::sync::Arc;

/// Private Secrets that the client subscribes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Private {
    resources: Vec<Arc<Resource>>,
    /// True while one is being made.
    waits: bool,
}

impl Private {
    /// True if responses of the type may have resources that no other stream may share.
    pub(super) fn is_in(&self, ty: ResourceType) -> bool {
        ty == ResourceType::Secret && !self.resources.is_empty()
    }

    /// True if responses of the type wait for a resource that is being made.
    pub(super) fn holds(&self, ty: ResourceType) -> bool {
        ty == ResourceType::Secret && self.waits
    }

    /// Adds the resources to a snapshot of the client's group.
    pub(super) fn put_over(&self, view: &mut GroupView) {
        self.resources.iter().for_each(|resource| view.entries.insert(Arc::clone(resource)));
        view.version = set_version(view.entries.values());
    }
}

impl<S: ResourceSource> Stream<S> {
    /// True if all of these names are private Secrets. The client then needs no view of the type, for which
    /// its access would have to be decided.
    pub(super) fn is_private<'a>(&self, ty: ResourceType, names: impl IntoIterator<Item = &'a str>) -> bool {
        let private = self.fanout.source.private_secrets();
        let mut names = names.into_iter().peekable();
        ty == ResourceType::Secret
            && !private.is_empty()
            && names.peek().is_some()
            && names.all(|name| private.contains(&name))
    }

    /// Follows a change of the names of a subscription: those that are not private need a view.
    pub(super) fn follow_names(&mut self, ty: ResourceType) {
        if ty == ResourceType::Secret && !self.fanout.source.private_secrets().is_empty() {
            self.follow_views();
        }
    }

    /// Reads the private Secrets that the client subscribes to.
    pub(super) fn read_private(&mut self) {
        let source = &self.fanout.source;
        let names = source.private_secrets();
        let (Some(connected), Some(watch)) = (&self.connected, &mut self.watches[ResourceType::Secret])
        else {
            return;
        };
        if names.is_empty() {
            return;
        }
        let subscribed = watch.membership.group.lock().names.clone();
        let (mark, clock) = (Arc::clone(&self.mark), Arc::clone(&self.fanout.clock));
        let started = self.fanout.started;
        let changed = SecretsChanged::new(move || {
            if mark.set_private(clock.now().saturating_duration_since(started)) {
                mark.wake();
            }
        });
        let mut private = Private::default();
        for name in names.iter().copied().filter(|name| subscribed.contains(*name)) {
            match source.private_secret(&connected.client, name, &changed) {
                PrivateSecret::NotYet => private.waits = true,
                PrivateSecret::Absent => {}
                PrivateSecret::Is(resource) => private.resources.push(resource),
            }
        }
        if private != self.private {
            watch.in_step = None;
            self.private = private;
        }
    }
}
