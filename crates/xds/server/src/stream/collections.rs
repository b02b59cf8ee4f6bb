//! Collections: types that the source knows by their URL only, always served completely (configuration for
//! other control planes).
//!
//! Every requested type gets a response, if need be an empty one: clients wait for one of each, also of types
//! that are not served. A type has at most one outstanding response; later changes are sent together when
//! that one is answered. The response to a question is sent once and not kept.

use super::{Response, Stream};
use crate::error::StreamError;
use crate::fanout::names::{Account, listed_bytes};
use crate::limits::{Limit, LimitExceeded, QuotaGuard};
use crate::protocol::Protocol;
use crate::protocol::nack::shown;
use crate::protocol::wire::{Request, error_text, unhex};
use crate::resources::{About, Contents, Frame, set_version};
use crate::source::{Collection, CollectionState, Held, Resource, ResourceSource};
use bytes::Bytes;
use pilotfish_proto::ResourceType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of types of one stream. istiod asks for 15.
const MOST_TYPES: usize = 128;
/// Maximum length of the URL of a type that is not an xDS type.
const LONGEST_URL: usize = 256;

/// Virtual hosts on demand (VHDS), which are not served. Requests wait at Envoy for removed names; a resource
/// without a body answers them with 404. A route configuration waits until some name below its own is
/// answered.
const VIRTUAL_HOSTS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

/// All collections of a stream.
#[derive(Debug, Default)]
pub(super) struct Collections {
    watches: BTreeMap<Box<str>, Watch>,
    /// True if there may be something to send.
    dirty: bool,
}

/// One type of one stream.
#[derive(Debug, Default)]
struct Watch {
    /// Content sent last, even if it was refused: equal content is not sent again.
    sent: Collection,
    /// True if a response is due even without a difference.
    requested: bool,
    /// Nonce of the last response.
    nonce: Option<u64>,
    /// True while the response is neither acknowledged nor refused.
    outstanding: bool,
    /// Delta: names that the client asked for; those that do not exist are sent as removed.
    asked: BTreeSet<Arc<str>>,
    /// Quota of these names, and of the resources that the client lists, until the next response.
    counted: Vec<QuotaGuard>,
    /// True if the response to a question was sent.
    is_done: bool,
    /// True if the source does not serve the type to the client: it stays empty for the life of the stream.
    is_unknown: bool,
}

/// Bytes with a guard that lives as long as they do.
struct Holding {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Holding {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn holding(bytes: Bytes, held: &Held) -> Bytes {
    Bytes::from_owner(Holding { bytes, _held: Arc::clone(held) })
}

impl Watch {
    /// True if a request repeats a question that was answered. Its nonce may be any but that of the answer.
    fn is_asked_again(&self, request: &Request<'_>) -> bool {
        self.is_done && (self.nonce.is_none() || unhex(request.nonce) != self.nonce)
    }
}

impl Collections {
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Marks all collections as possibly changed.
    pub(super) fn changed(&mut self) {
        self.dirty |= !self.watches.is_empty();
    }
}

impl<S: ResourceSource> Stream<S> {
    /// Handles a request for a type that is not an xDS type.
    pub(super) fn on_collection(&mut self, request: &Request<'_>) -> Result<(), StreamError> {
        let url = request.type_url;
        let Some(connected) = &self.connected else { return Ok(()) };
        if self.collections.watches.get(url).is_some_and(|watch| watch.is_asked_again(request)) {
            self.collections.watches.remove(url);
        }
        if !self.collections.watches.contains_key(url) {
            Limit::Subscriptions.check(request.names.len(), self.fanout.limits.subscriptions)?;
            let names = request.names.read()?;
            let is_unknown = !self.fanout.source.serves_collection(&connected.client, url, &names)?;
            if is_unknown {
                self.fanout.recorder.unknown_type(url);
                tracing::debug!(connection = self.shown_id(), type_url = shown(url), "type is not served");
                // Limits the types per stream: a client with too many waits for the responses to the others.
                if url.is_empty() || url.len() > LONGEST_URL || self.collections.watches.len() >= MOST_TYPES {
                    return Ok(());
                }
            }
            if url.len() > LONGEST_URL {
                return Err(StreamError::InvalidArgument("the type URL is too long".into()));
            }
            let asked = self.collections.watches.len() + 1;
            if asked > MOST_TYPES {
                let error = LimitExceeded { limit: Limit::Subscriptions, asked, allowed: MOST_TYPES };
                return Err(error.into());
            }
            if self.collections.watches.is_empty() {
                self.fanout.collect(&self.mark);
            }
            // A nonce is allowed here: istiod's first requests have one.
            let watch = Watch { is_unknown, ..self.first_collection(request)? };
            self.collections.watches.insert(url.into(), watch);
            self.collections.dirty = true;
            return Ok(());
        }
        self.answered_collection(request);
        if let Some(mut watch) = self.collections.watches.remove(url) {
            let done = self.ask_by_name(&mut watch, request);
            self.collections.watches.insert(url.into(), watch);
            done?;
        }
        Ok(())
    }

    /// Creates a watch. A delta client that lists its resources is sent the difference.
    fn first_collection(&self, request: &Request<'_>) -> Result<Watch, StreamError> {
        let mut watch = Watch { requested: true, ..Watch::default() };
        if self.protocol == Protocol::Sotw {
            return Ok(watch);
        }
        Limit::Subscriptions.check(request.initial.len(), self.fanout.limits.subscriptions)?;
        let known = request.initial.read()?;
        let bytes = known.iter().map(|(name, _)| name.len()).sum();
        Limit::SubscriptionBytes.check(bytes, self.fanout.limits.subscription_bytes)?;
        self.count_listed(&mut watch, known.len(), bytes)?;
        let listed = known.into_iter().map(|(name, version)| {
            let name: Arc<str> = Arc::from(name);
            let version = unhex(version).unwrap_or(0);
            let resource = Resource {
                name: Arc::clone(&name),
                version,
                body: Bytes::new(),
                changed_at: 0,
                stands_in: false,
            };
            (name, Arc::new(resource))
        });
        watch.sent = listed.collect();
        self.ask_by_name(&mut watch, request)?;
        Ok(watch)
    }

    /// Delta: sends requested names again, or as removed if there is no such resource. Also sends all others.
    fn ask_by_name(&self, watch: &mut Watch, request: &Request<'_>) -> Result<(), StreamError> {
        if self.protocol == Protocol::Sotw || request.names.is_empty() {
            return Ok(());
        }
        let asked = watch.asked.len().saturating_add(request.names.len());
        Limit::Subscriptions.check(asked, self.fanout.limits.subscriptions)?;
        let mut names = request.names.read()?;
        names.retain(|name| *name != "*" && !watch.asked.contains(*name));
        self.count_listed(watch, names.len(), names.iter().map(|name| name.len()).sum())?;
        for name in names {
            watch.sent.remove(name);
            watch.asked.insert(name.into());
            watch.requested = true;
        }
        Ok(())
    }

    /// Charges names that are kept for this stream until the next response.
    fn count_listed(&self, watch: &mut Watch, names: usize, bytes: usize) -> Result<(), LimitExceeded> {
        let Some(connected) = self.connected.as_ref().filter(|_| names > 0) else { return Ok(()) };
        let is_few = names <= self.fanout.limits.few_subscriptions;
        let account = Account::for_few(Arc::clone(&connected.names), is_few);
        watch.counted.push(account.hold(listed_bytes(names, bytes))?);
        Ok(())
    }

    /// Handles ACK, NACK, a stale nonce, or a repeated first request.
    fn answered_collection(&mut self, request: &Request<'_>) {
        let Some(watch) = self.collections.watches.get_mut(request.type_url) else { return };
        let answers_last = unhex(request.nonce).is_some_and(|nonce| watch.nonce == Some(nonce));
        if let Some(error) = request.error {
            let error = error_text(error);
            let connection = self.connected.as_ref().map_or("", |connected| &connected.id);
            self.fanout.recorder.collection_rejected(shown(connection), request.type_url, shown(&error));
        } else if request.nonce.is_empty() && self.protocol == Protocol::Sotw {
            // The client asks again after losing its resources.
            watch.sent = Collection::new();
            (watch.requested, watch.outstanding) = (true, false);
        }
        if answers_last {
            watch.outstanding = false;
        }
        self.collections.dirty = true;
    }

    /// Next response of a collection.
    pub(super) fn poll_collection(&mut self) -> Option<Response> {
        if !self.collections.dirty {
            return None;
        }
        let connected = self.connected.as_ref()?;
        for (url, watch) in &mut self.collections.watches {
            if watch.outstanding || watch.is_done {
                continue;
            }
            let state = match watch.is_unknown {
                true => CollectionState::Is(Collection::new()),
                false => self.fanout.source.collection(&connected.client, url),
            };
            let (collection, held) = match state {
                CollectionState::NotYet => continue,
                CollectionState::Is(collection) => (collection, None),
                CollectionState::Once(collection, held) => (collection, Some(held)),
            };
            let mut contents = Contents::between(&watch.sent, &collection);
            for name in std::mem::take(&mut watch.asked) {
                // It was never sent, so it is not among the removed yet.
                if !collection.contains_key(&name) {
                    contents.removed.push(name);
                }
            }
            if contents.is_empty() && !watch.requested {
                continue;
            }
            let nonce = self.fanout.nonces.next();
            let control_plane = self.fanout.source.control_plane(url);
            let is_virtual_hosts =
                watch.is_unknown && self.protocol == Protocol::Delta && **url == *VIRTUAL_HOSTS;
            let frame = if is_virtual_hosts {
                let about = About { type_url: url, version: 0, control_plane };
                no_virtual_hosts(
                    about,
                    &contents.removed,
                    self.watches[ResourceType::Route].as_deref(),
                    nonce,
                )
            } else {
                encode(self.protocol, (url, control_plane), &contents, &collection, nonce)
            };
            watch.is_done = held.is_some();
            watch.sent = if watch.is_done { Collection::new() } else { collection };
            watch.counted = Vec::new();
            (watch.nonce, watch.outstanding, watch.requested) = (Some(nonce), !watch.is_done, false);
            return Some(response(&frame, held.as_ref()));
        }
        self.collections.dirty = false;
        None
    }
}

fn response(frame: &Frame, held: Option<&Held>) -> Response {
    let (head, tail) = frame.whole();
    let Some(held) = held else { return Response { ty: None, head, tail } };
    let tail = tail.into_iter().map(|bytes| holding(bytes, held)).collect();
    Response { ty: None, head: holding(head, held), tail }
}

/// Sends names as nonexistent virtual hosts; without names, a nonexistent one for each route configuration.
fn no_virtual_hosts(
    about: About<'_>,
    names: &[Arc<str>],
    routes: Option<&super::watch::Watch>,
    nonce: u64,
) -> Frame {
    if !names.is_empty() {
        return Frame::without_bodies(about, names, nonce);
    }
    let routes = routes.map(|routes| routes.membership.group.lock().names.clone()).unwrap_or_default();
    let none: Vec<Arc<str>> = routes.iter().map(|route| format!("{route}/none").into()).collect();
    Frame::delta(about, &[], &none, nonce, Vec::new())
}

fn encode(
    protocol: Protocol,
    (type_url, control_plane): (&str, Option<&str>),
    contents: &Contents,
    all: &Collection,
    nonce: u64,
) -> Frame {
    let about = About { type_url, version: set_version(all.values()), control_plane };
    match protocol {
        Protocol::Delta => Frame::delta(about, &contents.upserts, &contents.removed, nonce, Vec::new()),
        Protocol::Sotw => {
            let all: Vec<Arc<Resource>> = all.values().cloned().collect();
            Frame::sotw(about, &all, nonce)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_limits_has_those_of_collections() {
        let row = format!("a type's URL | {MOST_TYPES}; {LONGEST_URL} bytes |");
        assert!(include_str!("../../../../../docs/limits.md").contains(&row), "no row {row:?}");
    }
}
