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

mod layout;
mod reads;
mod registrations;
mod troubles;

pub(crate) use layout::{Layout, Place};
pub(crate) use registrations::{Application, Changed, Interface, Registrations};

use crate::dubbo::{DubboUrl, Instance, Metadata, Override, mapped_applications};
use crate::wire::{Body, Event, EventKind, Refusal, Request};
use reads::Reads;
use std::collections::BTreeSet;
use std::sync::Arc;
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
            return self.watched(path, answer);
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

    fn watched(&mut self, path: &str, answer: Result<Body, Refusal>) -> Result<(), Unreadable> {
        match answer {
            Err(Refusal::Unimplemented) => self.watches = Watches::Single,
            Err(reason) => return Err(Unreadable { path: path.to_owned(), reason }),
            Ok(_) => {}
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

    /// Takes a list of children.
    fn listed(&mut self, place: Place<'_>, names: Vec<String>) {
        let names: BTreeSet<String> = names.into_iter().collect();
        match place {
            Place::DubboRoot => self.list_interfaces(&names),
            Place::ServicesRoot => self.list_applications(&names),
            Place::MappingRoot => {
                let gone: Vec<String> = self
                    .known
                    .mapped_interfaces()
                    .filter(|name| !names.contains(*name))
                    .map(str::to_owned)
                    .collect();
                gone.iter().for_each(|name| self.gone(Place::Mapping(name)));
                names.iter().for_each(|name| self.want(Place::Mapping(name)));
            }
            Place::Providers(interface) => {
                let known =
                    self.known.interfaces.get(interface).into_iter().flat_map(|it| it.providers.keys());
                let gone: Vec<String> = known.filter(|node| !names.contains(*node)).cloned().collect();
                gone.iter().for_each(|node| self.gone(Place::Provider(interface, node)));
                names.iter().for_each(|node| self.created(Place::Provider(interface, node)));
            }
            Place::Configurators(interface) => {
                let known =
                    self.known.interfaces.get(interface).into_iter().flat_map(|it| it.overrides.keys());
                let gone: Vec<String> = known.filter(|node| !names.contains(*node)).cloned().collect();
                gone.iter().for_each(|node| self.gone(Place::Configurator(interface, node)));
                names.iter().for_each(|node| self.created(Place::Configurator(interface, node)));
            }
            Place::Application(application) => {
                let known =
                    self.known.applications.get(application).into_iter().flat_map(|it| it.instances.keys());
                let gone: Vec<String> = known.filter(|node| !names.contains(*node)).cloned().collect();
                gone.iter().for_each(|node| self.gone(Place::Instance(application, node)));
                names.iter().for_each(|node| self.want(Place::Instance(application, node)));
            }
            _ => {}
        }
    }

    fn list_interfaces(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> =
            self.known.interfaces.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.gone(Place::Interface(name)));
        for name in names.iter().filter(|name| Layout::is_interface(name)) {
            if !self.known.interfaces.contains_key(name) {
                self.created(Place::Interface(name));
                self.want(Place::Providers(name));
                self.want(Place::Configurators(name));
            }
        }
    }

    fn list_applications(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<String> =
            self.known.applications.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.gone(Place::Application(name)));
        for name in names {
            if !self.known.applications.contains_key(name) {
                self.created(Place::Application(name));
                self.want(Place::Application(name));
            }
        }
    }

    /// A node is there. What is below it is told by events of its own, or read by who asked for the list.
    fn created(&mut self, place: Place<'_>) {
        let Some(path) = self.layout.path(place) else { return };
        match place {
            Place::Interface(name) => {
                if !self.known.interfaces.contains_key(name) && self.has_room(&path) {
                    self.known.interfaces.insert(name.to_owned(), Interface::default());
                    self.changed.interfaces.insert(name.to_owned());
                }
            }
            Place::Application(name) => {
                if !self.known.applications.contains_key(name) && self.has_room(&path) {
                    self.known.applications.insert(name.to_owned(), Application::default());
                    self.changed.applications.insert(name.to_owned());
                }
            }
            Place::Provider(interface, node) => self.provider(interface, node, &path),
            Place::Configurator(interface, node) => self.configurator(interface, node, &path),
            place if place.has_data() && self.is_wanted(place) => self.want(place),
            _ => {}
        }
    }

    fn provider(&mut self, interface: &str, node: &str, path: &str) {
        let Some(known) = self.known.interfaces.get(interface) else { return };
        if known.providers.contains_key(node) || !self.has_room(path) {
            return;
        }
        match DubboUrl::parse_node(node) {
            Ok(url) => {
                if let Some(known) = self.known.interfaces.get_mut(interface) {
                    known.providers.insert(node.to_owned(), Arc::new(url));
                    self.changed.interfaces.insert(interface.to_owned());
                }
            }
            Err(error) => {
                self.nodes -= 1;
                self.troubles.note(path, &error);
            }
        }
    }

    fn configurator(&mut self, interface: &str, node: &str, path: &str) {
        let Some(known) = self.known.interfaces.get(interface) else { return };
        if known.overrides.contains_key(node) || !self.has_room(path) {
            return;
        }
        let parsed = DubboUrl::parse_node(node).map(Override::of);
        match (parsed, self.known.interfaces.get_mut(interface)) {
            (Ok(Some(given)), Some(known)) => {
                known.overrides.insert(node.to_owned(), given);
                self.changed.interfaces.insert(interface.to_owned());
            }
            (parsed, _) => {
                self.nodes -= 1;
                if let Err(error) = parsed {
                    self.troubles.note(path, &error);
                }
            }
        }
    }

    /// A node is gone, with all that was below it.
    fn gone(&mut self, place: Place<'_>) {
        if let Some(path) = self.layout.path(place) {
            self.troubles.clear(&path);
        }
        match place {
            Place::Interface(name) => {
                if let Some(interface) = self.known.interfaces.remove(name) {
                    self.nodes -= 1 + interface.providers.len() + interface.overrides.len();
                    self.changed.interfaces.insert(name.to_owned());
                }
            }
            Place::Provider(interface, node) => {
                let known = self.known.interfaces.get_mut(interface);
                if known.is_some_and(|known| known.providers.remove(node).is_some()) {
                    self.nodes -= 1;
                    self.changed.interfaces.insert(interface.to_owned());
                }
            }
            Place::Configurator(interface, node) => {
                let known = self.known.interfaces.get_mut(interface);
                if known.is_some_and(|known| known.overrides.remove(node).is_some()) {
                    self.nodes -= 1;
                    self.changed.interfaces.insert(interface.to_owned());
                }
            }
            Place::Mapping(interface) => self.map(interface, BTreeSet::new()),
            Place::Application(name) => {
                if let Some(application) = self.known.applications.remove(name) {
                    self.nodes -= 1 + application.instances.len();
                    self.changed.applications.insert(name.to_owned());
                }
            }
            Place::Instance(application, node) => {
                let known = self.known.applications.get_mut(application);
                if known.is_some_and(|known| known.instances.remove(node).is_some()) {
                    self.nodes -= 1;
                    self.changed.applications.insert(application.to_owned());
                    self.forget_revisions(application);
                }
            }
            // Their children are told of one by one, or were counted with the answer.
            Place::Providers(_)
            | Place::Configurators(_)
            | Place::DubboRoot
            | Place::ServicesRoot
            | Place::MappingRoot => {
                self.listed(place, Vec::new());
            }
            // The revision that instances have stays what it was.
            Place::Revision(..) => {}
        }
    }

    /// Takes what a node holds.
    fn read(&mut self, place: Place<'_>, path: &str, data: &[u8]) {
        match place {
            Place::Mapping(interface) => self.map(interface, mapped_applications(data)),
            Place::Instance(application, node) => match Instance::parse(data) {
                Ok(instance) => {
                    self.troubles.clear(path);
                    self.instance(application, node, Arc::new(instance));
                }
                Err(error) => {
                    self.troubles.note(path, &error);
                    self.stand_in(place);
                }
            },
            Place::Revision(application, revision) => match Metadata::parse(data) {
                Ok(metadata) => {
                    self.troubles.clear(path);
                    self.revision(application, revision, Arc::new(metadata));
                }
                Err(error) => {
                    self.troubles.note(path, &error);
                    self.stand_in(place);
                }
            },
            _ => {}
        }
    }

    fn map(&mut self, interface: &str, applications: BTreeSet<String>) {
        let is_known = self.known.mapping_of(interface).is_some();
        match (is_known, applications.is_empty()) {
            (false, false) if !self.has_room(interface) => return,
            (true, true) => self.nodes -= 1,
            _ => {}
        }
        if self.known.map(interface, applications) {
            self.changed.interfaces.insert(interface.to_owned());
        }
    }

    fn instance(&mut self, application: &str, node: &str, instance: Arc<Instance>) {
        let Some(known) = self.known.applications.get(application) else { return };
        let is_new = !known.instances.contains_key(node);
        if known.instances.get(node) == Some(&instance) {
            return;
        }
        let path = self.layout.path(Place::Instance(application, node)).unwrap_or_default();
        if is_new && !self.has_room(&path) {
            return;
        }
        let revision = instance.stored_revision().map(str::to_owned);
        if let Some(known) = self.known.applications.get_mut(application) {
            known.instances.insert(node.to_owned(), instance);
            self.changed.applications.insert(application.to_owned());
            if let Some(revision) = revision
                && !known.metadata.contains_key(&revision)
            {
                self.want(Place::Revision(application, &revision));
            }
        }
        self.forget_revisions(application);
    }

    fn revision(&mut self, application: &str, revision: &str, metadata: Arc<Metadata>) {
        if !self.is_revision_wanted(application, revision) {
            return;
        }
        if let Some(known) = self.known.applications.get_mut(application)
            && known.metadata.get(revision) != Some(&metadata)
        {
            known.metadata.insert(revision.to_owned(), metadata);
            self.changed.applications.insert(application.to_owned());
        }
    }

    /// Leaves only revisions that instances have.
    fn forget_revisions(&mut self, application: &str) {
        let Some(known) = self.known.applications.get_mut(application) else { return };
        let Application { instances, metadata } = known;
        if !metadata.is_empty() {
            let used: BTreeSet<&str> =
                instances.values().filter_map(|instance| instance.stored_revision()).collect();
            metadata.retain(|revision, _| used.contains(revision.as_str()));
        }
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

    /// Puts in for a node that cannot be read what it was when it could be, in this session or the one before.
    fn stand_in(&mut self, place: Place<'_>) {
        match place {
            Place::Providers(interface) => {
                let before = self.before.interfaces.get(interface).map(|known| known.providers.clone());
                let nodes = before.unwrap_or_default().into_keys();
                nodes.for_each(|node| self.created(Place::Provider(interface, &node)));
            }
            Place::Configurators(interface) => {
                let before = self.before.interfaces.get(interface).map(|known| known.overrides.clone());
                let nodes = before.unwrap_or_default().into_keys();
                nodes.for_each(|node| self.created(Place::Configurator(interface, &node)));
            }
            Place::Application(application) => {
                let before = self.before.applications.get(application).map(|known| known.instances.clone());
                before.unwrap_or_default().into_iter().for_each(|(node, instance)| {
                    self.instance(application, &node, instance);
                });
            }
            Place::Instance(application, node) => {
                let known =
                    |of: &Registrations| of.applications.get(application)?.instances.get(node).cloned();
                if known(&self.known).is_none()
                    && let Some(instance) = known(&self.before)
                {
                    self.instance(application, node, instance);
                }
            }
            Place::Revision(application, revision) => {
                let known =
                    |of: &Registrations| of.applications.get(application)?.metadata.get(revision).cloned();
                if known(&self.known).is_none()
                    && let Some(metadata) = known(&self.before)
                {
                    self.revision(application, revision, metadata);
                }
            }
            Place::MappingRoot => {
                let before: Vec<String> = self.before.mapped_interfaces().map(str::to_owned).collect();
                before.iter().for_each(|interface| self.stand_in(Place::Mapping(interface)));
            }
            Place::Mapping(interface) => {
                if self.known.mapping_of(interface).is_none()
                    && let Some(applications) = self.before.mapping_of(interface).cloned()
                {
                    self.map(interface, applications);
                }
            }
            _ => {}
        }
    }

    /// Counts one node more, unless there are too many.
    fn has_room(&mut self, path: &str) -> bool {
        if self.nodes >= MAX_NODES {
            self.troubles.note(path, &format_args!("left out: {MAX_NODES} nodes are kept at most"));
            return false;
        }
        self.nodes += 1;
        true
    }
}

#[cfg(test)]
mod tests;
