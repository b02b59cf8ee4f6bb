//! Change of one publication: its items, their sources, and the clients that it concerns.

use super::{Began, Lacking, Outcome, Published, RefusedBy};
use parking_lot::Mutex;
use pilotfish_model::{
    ChangeSet, Endpoint, Fact, Object, ObjectKey, Origin, ServiceEndpoints, ServiceKey, World,
};
use pilotfish_registry::REGISTRATION;
use pilotfish_xds::{ClientId, Concerned, Types};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// Limit on the items that are kept of a publication; further ones are counted.
const ITEMS: usize = 100;
/// Limit on the origins, and on the addresses, that are named of an item.
const NAMES: usize = 5;

/// Change of a publication.
pub struct Change {
    /// Revision: the id of the change in logs, metrics and the API.
    pub revision: u64,
    /// Time of the publication.
    pub at: SystemTime,
    /// Times of the steps before the publication.
    pub before_that: Began,
    /// Changed items, configuration first.
    pub items: Vec<Item>,
    /// Number of further items.
    pub more: usize,
    /// True for the first change, which has everything that was read at the start.
    pub is_first: bool,
    /// Clients that the change concerns, in order.
    pub concerned: Arc<[ClientId]>,
    /// Types by which it concerns each client; a single entry counts for all of them.
    pub types: Box<[Types]>,
    /// Outcome; `None` while clients may still acknowledge the change.
    pub outcome: Mutex<Option<Outcome>>,
    /// Numbers of clients that lack the change: at first all that it concerns.
    pub lacking: Mutex<Lacking>,
    /// Clients that refused the change.
    pub refused_by: Mutex<RefusedBy>,
    /// True if the change was reported as late.
    pub was_late: AtomicBool,
}

/// Returns the sorted clients, and the types by which a change concerns them: a single set if all have the
/// same.
fn split(mut concerned: Vec<Concerned>) -> (Vec<ClientId>, Box<[Types]>) {
    concerned.sort_unstable_by_key(|one| one.client);
    concerned.dedup_by(|next, first| {
        let is_same = next.client == first.client;
        if is_same {
            first.types.extend(next.types);
        }
        is_same
    });
    let first = concerned.first().map(|one| one.types);
    let types = match first {
        Some(types) if concerned.iter().all(|one| one.types == types) => [types].into(),
        _ => concerned.iter().map(|one| one.types).collect(),
    };
    (concerned.into_iter().map(|one| one.client).collect(), types)
}

/// Kind of change to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Added,
    Changed,
    Removed,
}

impl Action {
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }

    /// Returns `None` for an item that neither existed nor exists.
    fn of(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(Self::Added),
            (true, false) => Some(Self::Removed),
            (true, true) => Some(Self::Changed),
        }
    }
}

/// Kind of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Object(ObjectKey),
    /// A service, gateways between networks, or an access right: made by registries and sources, and rarely
    /// changed.
    Made,
    /// Endpoints, which change often.
    Endpoints,
}

/// Object, service or endpoints that a publication changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Name: `VirtualService shop/catalog`, `service catalog.shop.svc.cluster.local`, `endpoints of ...`.
    pub what: Arc<str>,
    /// Kind of the item.
    pub kind: ItemKind,
    /// Kind of the change.
    pub action: Action,
    /// Source: file and line, cluster, or registry.
    pub source: Arc<str>,
    /// `metadata.generation`, if the source has one: the `observedGeneration` of the object's status.
    pub generation: i64,
    /// Objects or entries of registries that made the item, if it is not an object itself.
    pub made_by: Vec<Arc<str>>,
    /// Short description of the difference; empty for objects.
    pub detail: String,
}

impl Item {
    /// True for configuration: objects and services, but not endpoints.
    pub fn is_configuration(&self) -> bool {
        self.kind != ItemKind::Endpoints
    }

    /// True if `made_by` may lack some of the objects that made the item.
    pub fn names_few(&self) -> bool {
        self.made_by.len() >= NAMES
    }

    /// True if the item is the object, such as `VirtualService shop/catalog`, or was made by it.
    pub fn concerns(&self, object: &str) -> bool {
        &*self.what == object || self.made_by.iter().any(|made_by| &**made_by == object)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.action.word())?;
        if self.generation > 0 {
            write!(f, " (generation {})", self.generation)?;
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

impl Change {
    /// Computes the change of a publication. `last` are the clients that the previous change concerned; an
    /// equal list is shared.
    pub(super) fn new(published: Published, last: Option<Arc<[ClientId]>>, is_first: bool) -> Self {
        let Published { revision, at, before_that, before, world, changes, concerned } = published;
        let (concerned, types) = split(concerned);
        let concerned = last.filter(|last| **last == *concerned).unwrap_or_else(|| concerned.into());
        let (items, more) = if is_first { (Vec::new(), 0) } else { items(&before, &world, &changes) };
        let lacking = Mutex::new(Lacking { missing: concerned.len(), refusing: 0 });
        Self {
            revision,
            at,
            before_that,
            items,
            more,
            is_first,
            concerned,
            types,
            outcome: Mutex::new(None),
            lacking,
            refused_by: Mutex::default(),
            was_late: AtomicBool::new(false),
        }
    }

    /// True if an item is configuration.
    pub fn is_configuration(&self) -> bool {
        self.items.iter().any(Item::is_configuration)
    }

    /// True if all items come from clients that register themselves.
    pub(crate) fn is_registration(&self) -> bool {
        let of_clients = |item: &Item| {
            let mut sources = item.source.split(", ").map(|source| source.split('/').next());
            sources.all(|name| name == Some(REGISTRATION.provider))
        };
        self.more == 0 && !self.items.is_empty() && self.items.iter().all(of_clients)
    }

    /// Returns the clients that the change concerns, with the types.
    pub fn concerned(&self) -> impl Iterator<Item = (ClientId, Types)> {
        self.concerned.iter().enumerate().map(|(place, client)| (*client, self.types_at(place)))
    }

    /// Returns the types by which the change concerns a client; none if it does not.
    pub fn types_of(&self, client: ClientId) -> Types {
        self.concerned.binary_search(&client).map_or_else(|_| Types::default(), |place| self.types_at(place))
    }

    /// Returns the bytes of the list of clients.
    pub(super) fn bytes_of_clients(&self) -> usize {
        size_of_val(&*self.concerned) + size_of_val(&*self.types)
    }

    fn types_at(&self, place: usize) -> Types {
        match &*self.types {
            [all] => *all,
            each => each.get(place).copied().unwrap_or_default(),
        }
    }

    /// True if this later change may have replaced something of `change`. Endpoints count only where nothing
    /// else changed.
    pub fn may_replace(&self, change: &Self) -> bool {
        let counts = |item: &&Item| item.is_configuration() || !change.is_configuration();
        // Configuration is listed first, so endpoints in a list show that no configuration was cut off.
        let is_cut = |one: &Self| one.more > 0 && one.items.iter().all(Item::is_configuration);
        let is_same = |item: &Item| self.items.iter().any(|later| later.what == item.what);
        let may_be_cut =
            (is_cut(self) && change.is_configuration()) || (is_cut(change) && self.is_configuration());
        may_be_cut || change.items.iter().filter(counts).any(is_same)
    }

    /// Returns at most `most` names of changed objects, and the number of further ones. A change without
    /// objects returns the items made by registries and sources.
    pub fn named(&self, most: usize) -> (Vec<&str>, usize) {
        let objects = || self.items.iter().filter(|item| matches!(item.kind, ItemKind::Object(_)));
        let (named, all): (Vec<&Item>, usize) = match objects().count() {
            0 => (self.items.iter().take(most).collect(), self.items.len()),
            all => (objects().take(most).collect(), all),
        };
        let more = all - named.len() + self.more;
        (named.into_iter().map(|item| &*item.what).collect(), more)
    }

    /// Summarizes the change in one line.
    pub fn summary(&self) -> String {
        const FEW: usize = 3;
        if self.is_first {
            return "everything that there was at the start".to_owned();
        }
        let mut text = self.items.iter().take(FEW).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let more = self.items.len().saturating_sub(FEW) + self.more;
        match (text.is_empty(), more) {
            (true, _) => "workloads".to_owned(),
            (false, 0) => text,
            (false, more) => {
                text.push_str(&format!(" and {more} more"));
                text
            }
        }
    }

    /// Returns the sources of the change in one line.
    pub fn sources(&self) -> String {
        const FEW: usize = 3;
        let sources: BTreeSet<&str> =
            self.items.iter().map(|item| &*item.source).filter(|source| !source.is_empty()).collect();
        let mut text = sources.iter().take(FEW).copied().collect::<Vec<_>>().join(", ");
        if sources.len() > FEW {
            text.push_str(&format!(" and {} more", sources.len() - FEW));
        }
        text
    }
}

fn items(before: &World, world: &World, changes: &ChangeSet) -> (Vec<Item>, usize) {
    let all = || changes.facts.iter().filter(|fact| is_shown(fact));
    let is_configuration = |fact: &&Fact| !matches!(fact, Fact::Endpoints(_));
    let facts = all().filter(is_configuration).chain(all().filter(|fact| !is_configuration(fact)));
    let items: Vec<Item> = facts.take(ITEMS).filter_map(|fact| item(before, world, fact)).collect();
    (items, all().count().saturating_sub(ITEMS))
}

/// True for facts that are items. Workloads are not, but their endpoints are.
fn is_shown(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Object(_)
            | Fact::Service(_)
            | Fact::Endpoints(_)
            | Fact::NetworkGateways
            | Fact::SecretAccess(_)
    )
}

fn item(before: &World, world: &World, fact: &Fact) -> Option<Item> {
    match fact {
        Fact::Object(key) => object(key, before.object(key), world.object(key)),
        Fact::Service(key) => service(key, before, world),
        Fact::Endpoints(key) => endpoints(key, before, world),
        Fact::NetworkGateways => {
            let (was, is) = (before.network_gateways().len(), world.network_gateways().len());
            Some(settings("gateways between networks", Action::of(was > 0, is > 0)?))
        }
        Fact::SecretAccess(reader) => {
            let action =
                Action::of(before.secret_access(reader).is_some(), world.secret_access(reader).is_some())?;
            Some(settings(&format!("right of {reader} to read Secrets"), action))
        }
        _ => None,
    }
}

fn settings(what: &str, action: Action) -> Item {
    Item {
        what: what.into(),
        kind: ItemKind::Made,
        action,
        source: Arc::default(),
        generation: 0,
        made_by: Vec::new(),
        detail: String::new(),
    }
}

fn object(key: &ObjectKey, before: Option<&Object>, after: Option<&Object>) -> Option<Item> {
    let action = Action::of(before.is_some(), after.is_some())?;
    let meta = &after.or(before)?.meta;
    Some(Item {
        what: key.to_string().into(),
        kind: ItemKind::Object(key.clone()),
        action,
        source: meta.origin.clone(),
        generation: meta.generation,
        made_by: Vec::new(),
        detail: String::new(),
    })
}

fn service(key: &ServiceKey, before: &World, world: &World) -> Option<Item> {
    let (was, is) = (before.services_of(key), world.services_of(key));
    let newest = || is.or(was).into_iter().flat_map(|services| services.iter());
    let origins = || newest().map(|service| &service.provenance);
    Some(Item {
        what: format!("service {}", key.hostname).into(),
        kind: ItemKind::Made,
        action: Action::of(was.is_some(), is.is_some())?,
        source: sources(origins()),
        generation: 0,
        made_by: names(origins()),
        detail: String::new(),
    })
}

fn endpoints(key: &ServiceKey, before: &World, world: &World) -> Option<Item> {
    let (was, is) = (before.endpoints_of(key), world.endpoints_of(key));
    let action = Action::of(was.is_some(), is.is_some())?;
    let (gone, come) = (only_in(was, is), only_in(is, was));
    let count = |all: Option<&Arc<ServiceEndpoints>>| -> usize {
        all.into_iter().flat_map(|all| all.shards.values()).map(|shard| shard.len()).sum()
    };
    let mut detail = format!("{} -> {}", count(was), count(is));
    let addresses = |list: &[&Endpoint]| -> BTreeSet<String> {
        list.iter()
            .map(|endpoint| format!("{}:{} {}", endpoint.address(), endpoint.port, endpoint.health.as_str()))
            .collect()
    };
    for (sign, list) in [('+', addresses(&come)), ('-', addresses(&gone))] {
        list.iter().take(NAMES).for_each(|address| detail.push_str(&format!(", {sign}{address}")));
        if list.len() > NAMES {
            detail.push_str(&format!(", {sign}{} more", list.len() - NAMES));
        }
    }
    let origins = || come.iter().chain(&gone).map(|endpoint| &endpoint.attributes.provenance);
    Some(Item {
        what: format!("endpoints of {}", key.hostname).into(),
        kind: ItemKind::Endpoints,
        action,
        source: sources(origins()),
        generation: 0,
        made_by: names(origins()),
        detail,
    })
}

/// Returns the endpoints of `one` that `other` lacks. Shards that share their allocation are skipped.
fn only_in<'a>(
    one: Option<&'a Arc<ServiceEndpoints>>,
    other: Option<&'a Arc<ServiceEndpoints>>,
) -> Vec<&'a Endpoint> {
    let shards = one.into_iter().flat_map(|one| &one.shards);
    let only = shards.flat_map(|(shard, endpoints)| {
        only_in_shard(endpoints, other.and_then(|other| other.shards.get(shard)))
    });
    only.collect()
}

/// Returns the endpoints of a shard that another state of it lacks. Unchanged endpoints have equal pointers.
pub(super) fn only_in_shard<'a>(
    one: &'a Arc<[Arc<Endpoint>]>,
    other: Option<&Arc<[Arc<Endpoint>]>>,
) -> Vec<&'a Endpoint> {
    if other.is_some_and(|other| Arc::ptr_eq(one, other)) {
        return Vec::new();
    }
    let known: HashSet<*const Endpoint> =
        other.into_iter().flat_map(|other| other.iter()).map(Arc::as_ptr).collect();
    one.iter()
        .filter(|endpoint| !known.contains(&Arc::as_ptr(endpoint)))
        .map(|endpoint| &**endpoint)
        .collect()
}

fn names<'a>(origins: impl Iterator<Item = &'a Origin>) -> Vec<Arc<str>> {
    let distinct: BTreeSet<&Origin> = origins.collect();
    distinct.into_iter().take(NAMES).map(|origin| name(origin).into()).collect()
}

/// Returns the name of an object for people, without its cluster.
fn name(origin: &Origin) -> String {
    origin.as_object().map_or_else(|| origin.to_string(), |from| from.object.to_string())
}

/// Returns the clusters or registries of origins, in one line.
fn sources<'a>(origins: impl Iterator<Item = &'a Origin>) -> Arc<str> {
    let source = |origin: &Origin| match origin {
        Origin::Object(from) => from.cluster.to_string(),
        Origin::Registered(from) => from.shard.to_string(),
    };
    let distinct: BTreeSet<&Origin> = origins.take(1_000).collect();
    let distinct: BTreeSet<String> = distinct.into_iter().map(source).collect();
    distinct.into_iter().take(NAMES).collect::<Vec<_>>().join(", ").into()
}
