//! A mirror of the nodes that matter: what to read, what answers and events mean, and what differs. A state machine without IO.
//!
//! ```text
//! start ─▶ watches below the roots ─▶ lists ─▶ lists of interfaces and applications, data of instances ─▶ is_complete
//!                                        events of the watches ─▶ the names that they carry, or single reads ─▶ take_changed
//! ```
//!
//! A watch below a root stays and covers the whole tree (ZooKeeper 3.6): a provider that comes or goes is an event whose path holds all
//! of its registration, so it costs no request. Servers before 3.6 have watches of single nodes that tell once; there each event costs one
//! request, which sets the next watch.

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

/// Interfaces, applications, providers and instances that are kept, all together; those beyond are left out.
const MAX_NODES: usize = 1_500_000;

/// What ends the session: the registry as a whole cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} cannot be read: {reason}")]
pub(crate) struct Unreadable {
    pub(crate) path: String,
    pub(crate) reason: Refusal,
}

/// How changes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watches {
    /// One for each root, for the whole tree.
    Below,
    /// One for each node that is read.
    Single,
}

/// The mirror of one session.
#[derive(Debug)]
pub(crate) struct Mirror {
    layout: Layout,
    watches: Watches,
    known: Registrations,
    /// What was known when the session before ended: it stands in for nodes that cannot be read any more.
    before: Registrations,
    reads: Reads,
    troubles: Troubles,
    changed: Changed,
    nodes: usize,
    /// Whether all of it was told once.
    is_told: bool,
}

impl Mirror {
    /// Begins to read everything.
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

    /// The next request to be sent.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        self.reads.next()
    }

    /// Whether everything has been read.
    pub(crate) fn is_complete(&self) -> bool {
        self.reads.is_idle()
    }

    /// What differs since this was last called.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// What is registered.
    pub(crate) fn registrations(&self) -> &Registrations {
        &self.known
    }

    /// Whether what is registered was told as a whole.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// What is registered was told as a whole. From here on this session has its own last good state.
    pub(crate) fn set_told(&mut self) {
        self.is_told = true;
        self.before = Registrations::default();
    }

    /// Ends the session: what is known stands in for what the next one cannot read.
    pub(crate) fn into_registrations(self) -> Registrations {
        if self.is_told { self.known } else { self.before }
    }

    /// What is wrong with single nodes, in one line.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.troubles.summary()
    }

    /// Takes an answer.
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
            // It exists by now.
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

    /// Takes an event.
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
                // Nothing else would tell of its return.
                if self.is_wanted(place) {
                    self.want(place);
                }
            }
            // Of a list, the events of the children tell.
            (EventKind::DataChanged, Watches::Below) if !place.has_data() => {}
            (EventKind::Created | EventKind::DataChanged | EventKind::ChildrenChanged, _) => {
                if self.is_wanted(place) {
                    self.want(place);
                }
            }
            (EventKind::Other, _) => {}
        }
    }

    /// A root is watched, or the server is too old for that.
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

    /// Has a node read, in the way that its place needs.
    fn want(&mut self, place: Place<'_>) {
        let Some(path) = self.layout.path(place) else { return };
        let watch = self.watches == Watches::Single;
        match place {
            place if place.has_data() => self.reads.want(Request::Data { path, watch }),
            Place::Interface(_) | Place::Provider(..) | Place::Configurator(..) => {}
            _ => self.reads.want(Request::Children { path, watch }),
        }
    }

    /// Whether a node is one to be read.
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

    /// There is no such node.
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
