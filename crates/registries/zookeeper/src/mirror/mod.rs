//! A mirror of the registration nodes: plans reads, applies responses and events, and collects changes. A
//! state machine without IO.
//!
//! ```text
//! start ─▶ watches below the roots ─▶ lists ─▶ children of interfaces and applications, data ─▶ is_complete
//!                                     watch events ─▶ paths in the events, or single reads ─▶ take_changed
//! ```
//!
//! A persistent recursive watch covers the whole tree below a root (ZooKeeper 3.6): an added or removed
//! provider is an event whose path holds its whole registration, so it costs no request. Older servers have
//! one-shot watches of single nodes; there each event costs one request, which sets the next watch.

mod content;
mod layout;
mod lists;
mod reads;
mod registrations;
mod stand_in;
mod troubles;

pub(crate) use layout::{Layout, Place};
pub(crate) use registrations::{Application, Changed, Interface, Registrations};

use crate::wire::{Body, Event, EventKind, Refusal, Request};
use reads::Reads;
use troubles::Troubles;

/// Maximum number of interfaces, applications, providers and instances together; more are ignored.
const MAX_NODES: usize = 1_500_000;

/// Fatal error of a session: a root cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} cannot be read: {reason}")]
pub(crate) struct Unreadable {
    pub(crate) path: String,
    pub(crate) reason: Refusal,
}

/// Kind of watches, by the server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watches {
    /// Persistent recursive watches, one for each root.
    Below,
    /// One-shot watches, one for each node that is read.
    Single,
}

/// The mirror of one session.
#[derive(Debug)]
pub(crate) struct Mirror {
    layout: Layout,
    watches: Watches,
    known: Registrations,
    /// Registrations of the previous session: they replace nodes that cannot be read any more.
    before: Registrations,
    reads: Reads,
    troubles: Troubles,
    changed: Changed,
    nodes: usize,
    /// True once all registrations were published in this session.
    is_told: bool,
}

impl Mirror {
    /// Starts to read everything.
    pub(crate) fn new(layout: Layout, watches: Watches, before: Registrations) -> Self {
        let mut mirror = Self {
            layout,
            watches,
            before,
            known: Registrations::default(),
            reads: Reads::default(),
            troubles: Troubles::default(),
            changed: Changed::default(),
            nodes: 0,
            is_told: false,
        };
        match watches {
            Watches::Below => {
                let roots = [Place::DubboRoot, Place::ServicesRoot];
                for path in roots.into_iter().filter_map(|root| mirror.layout.path(root)) {
                    mirror.reads.want(Request::WatchBelow { path });
                }
            }
            Watches::Single => mirror.list_roots(),
        }
        mirror
    }

    /// Returns the next request to send.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        self.reads.next()
    }

    /// True if everything has been read.
    pub(crate) fn is_complete(&self) -> bool {
        self.reads.is_idle()
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn registrations(&self) -> &Registrations {
        &self.known
    }

    /// True if all registrations were published in this session.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Marks all registrations as published. From now on this session has its own last good state.
    pub(crate) fn set_told(&mut self) {
        self.is_told = true;
        self.before = Registrations::default();
    }

    /// Ends the session: its registrations replace nodes that the next session cannot read.
    pub(crate) fn into_registrations(self) -> Registrations {
        if self.is_told { self.known } else { self.before }
    }

    /// Summarizes the problems of single nodes in one line.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.troubles.summary()
    }

    /// Applies the response to a request of the mirror.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        answer: Result<Body, Refusal>,
    ) -> Result<(), Unreadable> {
        let path = request.path();
        let again = self.reads.answered(path);
        if let Request::WatchBelow { .. } = request {
            return self.watched(path, answer.err());
        }
        let Some(place) = self.layout.place(path) else { return Ok(()) };
        match answer {
            Ok(Body::Children(names)) => {
                self.troubles.clear(path);
                self.listed(place, names);
            }
            Ok(Body::Data(data)) => self.read(place, path, &data),
            // The node exists by now.
            Ok(Body::Done) => self.want(place),
            Err(Refusal::NoNode) => {
                self.troubles.clear(path);
                self.missing(place, path, request);
            }
            Err(Refusal::NotPermitted) if !matches!(place, Place::DubboRoot | Place::ServicesRoot) => {
                self.troubles.note(path, &Refusal::NotPermitted);
                self.stand_in(place);
            }
            Err(reason) => return Err(Unreadable { path: path.to_owned(), reason }),
        }
        if again {
            self.want(place);
        }
        Ok(())
    }

    /// Handles a watch event.
    pub(crate) fn event(&mut self, event: &Event) {
        let path = event.path.as_str();
        let Some(place) = self.layout.place(path) else { return };
        self.reads.happened(path);
        if let Some((parent, _)) = path.rsplit_once('/')
            && matches!(event.kind, EventKind::Created | EventKind::Deleted)
        {
            self.reads.happened(parent);
        }
        match (event.kind, self.watches) {
            (EventKind::Created, Watches::Below) => self.created(place),
            (EventKind::Deleted, Watches::Below) => self.gone(place),
            (EventKind::Deleted, Watches::Single) => {
                self.gone(place);
                // Only a new watch reports its return.
                if self.is_wanted(place) {
                    self.want(place);
                }
            }
            // Children have their own events under recursive watches.
            (EventKind::DataChanged, Watches::Below) if !place.has_data() => {}
            (EventKind::Created | EventKind::DataChanged | EventKind::ChildrenChanged, _) => {
                if self.is_wanted(place) {
                    self.want(place);
                }
            }
            (EventKind::Other, _) => {}
        }
    }

    /// Handles the response to a recursive watch; old servers refuse it.
    fn watched(&mut self, path: &str, refusal: Option<Refusal>) -> Result<(), Unreadable> {
        match refusal {
            Some(Refusal::Unimplemented) => self.watches = Watches::Single,
            Some(reason) => return Err(Unreadable { path: path.to_owned(), reason }),
            None => {}
        }
        if self.reads.is_idle() {
            self.list_roots();
        }
        Ok(())
    }

    fn list_roots(&mut self) {
        for root in [Place::DubboRoot, Place::MappingRoot, Place::ServicesRoot] {
            self.want(root);
        }
    }

    /// Queues the read of a node: its children or its data.
    fn want(&mut self, place: Place<'_>) {
        let Some(path) = self.layout.path(place) else { return };
        let watch = self.watches == Watches::Single;
        match place {
            place if place.has_data() => self.reads.want(Request::Data { path, watch }),
            Place::Interface(_) | Place::Provider(..) | Place::Configurator(..) => {}
            _ => self.reads.want(Request::Children { path, watch }),
        }
    }

    /// True if the node is to be read.
    fn is_wanted(&self, place: Place<'_>) -> bool {
        match place {
            Place::DubboRoot | Place::MappingRoot | Place::ServicesRoot | Place::Mapping(_) => true,
            Place::Providers(interface) | Place::Configurators(interface) => {
                self.known.interfaces.contains_key(interface)
            }
            Place::Application(application) | Place::Instance(application, _) => {
                self.known.applications.contains_key(application)
            }
            Place::Revision(application, revision) => self.is_revision_wanted(application, revision),
            Place::Interface(_) | Place::Provider(..) | Place::Configurator(..) => false,
        }
    }

    fn is_revision_wanted(&self, application: &str, revision: &str) -> bool {
        let application = self.known.applications.get(application);
        let mut instances = application.into_iter().flat_map(|application| application.instances.values());
        instances.any(|instance| instance.stored_revision() == Some(revision))
    }

    /// Handles a node that does not exist.
    fn missing(&mut self, place: Place<'_>, path: &str, request: &Request) {
        self.gone(place);
        let by_itself = !matches!(place, Place::Instance(..) | Place::Mapping(_) | Place::Application(_));
        let is_asked = matches!(request, Request::Exists { .. });
        if self.watches == Watches::Single && by_itself && !is_asked && self.is_wanted(place) {
            self.reads.want(Request::Exists { path: path.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests;
