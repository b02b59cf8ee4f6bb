//! One publication: what changed by whom, and whom it concerns.

use super::{Began, Lacking, Outcome, Published, RefusedBy};
use crate::registries::REGISTRATION;
use parking_lot::Mutex;
use pilotfish_model::{
    ChangeSet, Endpoint, Fact, Object, ObjectKey, Origin, ServiceEndpoints, ServiceKey, World,
};
use pilotfish_xds::{ClientId, Concerned, Types};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// Items that are kept of one publication; of more, how many.
const ITEMS: usize = 100;
/// Origins that are named of one item, and addresses.
const NAMES: usize = 5;

/// What a publication changed.
pub(crate) struct Change {
    /// Its revision: the id of the change in logs, metrics and the API.
    pub(crate) revision: u64,
    /// When it was published.
    pub(crate) at: SystemTime,
    /// What was before that.
    pub(crate) before_that: Began,
    /// What changed, configuration first.
    pub(crate) items: Vec<Item>,
    /// Further items.
    pub(crate) more: usize,
    /// Whether it is the first one, with all that there was at the start.
    pub(crate) is_first: bool,
    /// The clients that it concerns, in order.
    pub(crate) concerned: Arc<[ClientId]>,
    /// By which types: of each of them, or only one for all.
    pub(crate) types: Box<[Types]>,
    /// What became of it; `None` while some may still acknowledge it.
    pub(crate) outcome: Mutex<Option<Outcome>>,
    /// Who lacks it: at first all that it concerns.
    pub(crate) lacking: Mutex<Lacking>,
    /// Clients that refused it.
    pub(crate) refused_by: Mutex<RefusedBy>,
    /// Whether it was late.
    pub(crate) was_late: AtomicBool,
}

/// Clients in order, and by which types something concerns them: one set where all have the same.
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

/// What happened to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Added,
    Changed,
    Removed,
}

impl Action {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }

    /// `None` where nothing was and nothing is.
    fn of(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(Self::Added),
            (true, false) => Some(Self::Removed),
            (true, true) => Some(Self::Changed),
        }
    }
}

/// What kind of thing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    /// An object.
    Object(ObjectKey),
    /// A service, gateways between networks, a right: what registries and sources make, and changes seldom.
    Made,
    /// Endpoints, which come and go.
    Endpoints,
}

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// `VirtualService shop/catalog`, `service catalog.shop.svc.cluster.local`, `endpoints of ...`.
    pub(crate) what: Arc<str>,
    /// What kind of thing it is.
    pub(crate) kind: ItemKind,
    /// What happened to it.
    pub(crate) action: Action,
    /// The source: a file and line, a cluster, a registry.
    pub(crate) source: Arc<str>,
    /// `metadata.generation`, where the source has one: the `observedGeneration` of the object's status.
    pub(crate) generation: i64,
    /// The objects or entries of registries that made it, where it is none itself.
    pub(crate) made_by: Vec<Arc<str>>,
    /// What differs, in a few words; empty for objects.
    pub(crate) detail: String,
}

impl Item {
    /// Whether it is configuration: an object or a service, and not endpoints that come and go.
    pub(crate) fn is_configuration(&self) -> bool {
        self.kind != ItemKind::Endpoints
    }

    /// Whether only some of the objects that made it are named.
    pub(crate) fn names_few(&self) -> bool {
        self.made_by.len() >= NAMES
    }

    /// Whether an object is meant by a text such as `VirtualService shop/catalog`.
    pub(crate) fn concerns(&self, object: &str) -> bool {
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
    /// Reads what a publication changed. `last`: whom the one before concerned, which are often the same.
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

    /// Whether some of it is configuration.
    pub(crate) fn is_configuration(&self) -> bool {
        self.items.iter().any(Item::is_configuration)
    }

    /// True if all of it comes from clients that register themselves.
    pub(crate) fn is_registration(&self) -> bool {
        let of_clients = |item: &Item| {
            let mut sources = item.source.split(", ").map(|source| source.split('/').next());
            sources.all(|name| name == Some(REGISTRATION.provider))
        };
        self.more == 0 && !self.items.is_empty() && self.items.iter().all(of_clients)
    }

    /// The clients that it concerns, each with the types by which it does.
    pub(crate) fn concerned(&self) -> impl Iterator<Item = (ClientId, Types)> {
        self.concerned.iter().enumerate().map(|(place, client)| (*client, self.types_at(place)))
    }

    /// The types by which it concerns a client: none where it does not.
    pub(crate) fn types_of(&self, client: ClientId) -> Types {
        self.concerned.binary_search(&client).map_or_else(|_| Types::default(), |place| self.types_at(place))
    }

    /// Bytes of the list of those that it concerns.
    pub(super) fn bytes_of_clients(&self) -> usize {
        size_of_val(&*self.concerned) + size_of_val(&*self.types)
    }

    fn types_at(&self, place: usize) -> Types {
        match &*self.types {
            [all] => *all,
            each => each.get(place).copied().unwrap_or_default(),
        }
    }

    /// What somebody changed, so many at most, and how many besides: the objects, or, where there are none, what registries and
    /// sources made.
    pub(crate) fn named(&self, most: usize) -> (Vec<&str>, usize) {
        let objects = || self.items.iter().filter(|item| matches!(item.kind, ItemKind::Object(_)));
        let (named, all): (Vec<&Item>, usize) = match objects().count() {
            0 => (self.items.iter().take(most).collect(), self.items.len()),
            all => (objects().take(most).collect(), all),
        };
        let more = all - named.len() + self.more;
        (named.into_iter().map(|item| &*item.what).collect(), more)
    }

    /// What changed, in one line.
    pub(crate) fn summary(&self) -> String {
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

    /// The sources of it, in one line.
    pub(crate) fn sources(&self) -> String {
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

/// Facts that are items. Workloads are not: what follows from them is.
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

/// The endpoints of the one that the other has not. Shards that stay are one allocation, and are not looked into.
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

/// The endpoints of a shard that another state of it has not. Those that stay keep their pointers.
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

/// An object as people name it, without its cluster.
fn name(origin: &Origin) -> String {
    origin.as_object().map_or_else(|| origin.to_string(), |from| from.object.to_string())
}

/// Which clusters or registries things come from.
fn sources<'a>(origins: impl Iterator<Item = &'a Origin>) -> Arc<str> {
    let source = |origin: &Origin| match origin {
        Origin::Object(from) => from.cluster.to_string(),
        Origin::Registered(from) => from.shard.to_string(),
    };
    let distinct: BTreeSet<&Origin> = origins.take(1_000).collect();
    let distinct: BTreeSet<String> = distinct.into_iter().map(source).collect();
    distinct.into_iter().take(NAMES).collect::<Vec<_>>().join(", ").into()
}
