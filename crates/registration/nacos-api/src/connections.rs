//! gRPC connections of clients: their subscriptions, and the instances that live as long as they do.

use crate::record::Given;
use crate::service::{ServiceId, Wanted};
use parking_lot::Mutex;
use pilotfish_registration::{InstanceKey, ServiceKey, ServicesChanged};
use pilotfish_registration_server::{AdapterClient, Failure, WaitPermit};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of subscriptions of a connection.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 10_000;
/// Maximum number of subscriptions of all connections.
pub(crate) const MAX_ALL_SUBSCRIPTIONS: usize = 200_000;
/// Maximum number of subscriptions of one identity.
pub(crate) const MAX_OWNER_SUBSCRIPTIONS: usize = MAX_ALL_SUBSCRIPTIONS / 4;
/// Time until a client has to prove its identity on a new connection.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(60);
/// Renewals within a lease.
const RENEWALS: u32 = 3;

/// Open connections, their instances and their subscriptions.
#[derive(Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
    /// Notified when instances of a connection are to be removed.
    pub(crate) wake: Notify,
    /// Notified when instances of a connection are to be registered again.
    pub(crate) wake_lost: Notify,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Connection>,
    subscribers: HashMap<ServiceKey, BTreeSet<(u64, Arc<ServiceId>)>>,
    subscriptions: usize,
    /// Number of subscriptions of each identity.
    owners: HashMap<Arc<str>, usize>,
    gone: Vec<Gone>,
    /// Instances that have no lease any more, by connection.
    lost: BTreeMap<(u64, InstanceKey), Due>,
}

/// A connection with a stream.
struct Connection {
    /// Name of the connection, unique among all servers on the store.
    id: Arc<str>,
    opened: Instant,
    /// The client that the last message authenticated.
    client: Option<AdapterClient>,
    /// Place among the streams of the first client.
    permit: Option<WaitPermit>,
    subscriptions: BTreeMap<Arc<ServiceId>, Subscription>,
    /// Services with a pending push.
    pending: BTreeSet<Arc<ServiceId>>,
    notify: Arc<Notify>,
    instances: BTreeMap<InstanceKey, Kept>,
}

struct Subscription {
    key: ServiceKey,
    wanted: Wanted,
    /// Identity that it counts for.
    owner: Arc<str>,
}

/// An instance that a connection keeps.
struct Kept {
    service: Arc<ServiceId>,
    given: Arc<Given>,
    renew_at: Instant,
}

/// A renewal that is due.
pub(crate) struct Due {
    pub(crate) number: u64,
    pub(crate) id: Arc<str>,
    pub(crate) client: AdapterClient,
    pub(crate) key: InstanceKey,
    pub(crate) service: Arc<ServiceId>,
    pub(crate) given: Arc<Given>,
}

/// An instance whose connection has ended.
pub(crate) struct Gone {
    pub(crate) id: Arc<str>,
    pub(crate) client: AdapterClient,
    pub(crate) key: InstanceKey,
}

/// A push that is due.
pub(crate) struct Push {
    pub(crate) client: AdapterClient,
    pub(crate) service: Arc<ServiceId>,
    pub(crate) key: ServiceKey,
    pub(crate) wanted: Wanted,
}

impl Connections {
    /// Adds a connection. Returns false if it is there already.
    pub(crate) fn open(&self, number: u64, id: Arc<str>) -> bool {
        let mut state = self.state.lock();
        if state.open.contains_key(&number) {
            return false;
        }
        let connection = Connection {
            id,
            opened: Instant::now(),
            client: None,
            permit: None,
            subscriptions: BTreeMap::new(),
            pending: BTreeSet::new(),
            notify: Arc::default(),
            instances: BTreeMap::new(),
        };
        state.open.insert(number, connection);
        true
    }

    /// Removes a connection, and its instances unless their leases shall decide.
    pub(crate) fn close(&self, number: u64, removes_instances: bool) {
        let mut state = self.state.lock();
        let Some(connection) = state.open.remove(&number) else { return };
        for (service, subscription) in connection.subscriptions {
            state.unsubscribe(&subscription, &(number, service));
        }
        if let (Some(client), true) = (connection.client, removes_instances) {
            let gone = |key| Gone { id: Arc::clone(&connection.id), client: client.clone(), key };
            state.gone.extend(connection.instances.into_keys().map(gone));
            self.wake.notify_one();
        }
    }

    /// Returns the name of a connection that this client uses from now on.
    ///
    /// # Errors
    /// When the connection is unknown, or the client has too many.
    pub(crate) fn used_by(&self, number: u64, client: &AdapterClient) -> Result<Arc<str>, Failure> {
        let mut state = self.state.lock();
        let connection = state.open.get_mut(&number);
        let connection = connection.ok_or_else(|| Failure::gone("Connection is unregistered."))?;
        if connection.permit.is_none() {
            connection.permit = Some(client.wait_permit()?);
        }
        connection.client = Some(client.clone());
        Ok(Arc::clone(&connection.id))
    }

    /// Returns the client of a connection.
    pub(crate) fn client(&self, number: u64) -> Option<AdapterClient> {
        self.state.lock().open.get(&number)?.client.clone()
    }

    /// True if no client has proved its identity on a connection in time.
    pub(crate) fn is_unproved(&self, number: u64, now: Instant) -> bool {
        let is_late = |connection: &Connection| {
            connection.client.is_none()
                && now.saturating_duration_since(connection.opened) >= IDENTITY_TIMEOUT
        };
        self.state.lock().open.get(&number).is_some_and(is_late)
    }

    /// True if the connection has a stream.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.state.lock().open.contains_key(&number)
    }

    /// Keeps an instance as long as the connection. One whose connection has ended meanwhile is removed.
    pub(crate) fn keep(
        &self,
        number: u64,
        client: &AdapterClient,
        key: InstanceKey,
        service: Arc<ServiceId>,
        given: Given,
    ) {
        let Some(id) = given.connection.clone() else { return };
        let mut state = self.state.lock();
        match state.open.get_mut(&number) {
            Some(connection) => {
                let renew_at = Instant::now() + renewal(&given);
                connection.instances.insert(key, Kept { service, given: Arc::new(given), renew_at });
            }
            None => {
                state.gone.push(Gone { id, client: client.clone(), key });
                self.wake.notify_one();
            }
        }
    }

    /// Forgets an instance of a service that was deregistered, or that another connection keeps now.
    pub(crate) fn forget(&self, number: u64, key: &InstanceKey, service: &ServiceId) {
        if let Some(connection) = self.state.lock().open.get_mut(&number)
            && connection.instances.get(key).is_some_and(|kept| *kept.service == *service)
        {
            connection.instances.remove(key);
        }
    }

    /// True if the connection keeps this instance.
    pub(crate) fn is_kept(&self, number: u64, key: &InstanceKey) -> bool {
        let state = self.state.lock();
        state.open.get(&number).is_some_and(|connection| connection.instances.contains_key(key))
    }

    /// Returns the instances of a service that the connection keeps.
    pub(crate) fn kept(&self, number: u64, service: &ServiceId) -> Vec<(InstanceKey, Arc<Given>)> {
        let state = self.state.lock();
        let Some(connection) = state.open.get(&number) else { return Vec::new() };
        let own = connection.instances.iter().filter(|(_, kept)| *kept.service == *service);
        own.map(|(key, kept)| (key.clone(), Arc::clone(&kept.given))).collect()
    }

    /// Adds or changes a subscription.
    ///
    /// # Errors
    /// Beyond the limits.
    pub(crate) fn subscribe(
        &self,
        number: u64,
        owner: &Arc<str>,
        service: &Arc<ServiceId>,
        key: ServiceKey,
        wanted: Wanted,
    ) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let State { open, subscribers, subscriptions, owners, .. } = &mut *state;
        let Some(connection) = open.get_mut(&number) else { return Ok(()) };
        let known = connection.subscriptions.get(service).map(|known| Arc::clone(&known.owner));
        if known.is_none() {
            let here = connection.subscriptions.len();
            let own = owners.get(owner).copied().unwrap_or_default();
            for (limit, who, count, most) in [
                ("connection-subscriptions", "a connection", here, MAX_SUBSCRIPTIONS),
                ("owner-subscriptions", "an identity", own, MAX_OWNER_SUBSCRIPTIONS),
                ("subscriptions", "all connections", *subscriptions, MAX_ALL_SUBSCRIPTIONS),
            ] {
                if count >= most {
                    return Err(Failure::beyond(limit, format!("at most {most} subscriptions of {who}")));
                }
            }
            *subscriptions += 1;
            *owners.entry(Arc::clone(owner)).or_default() += 1;
        }
        let owner = known.unwrap_or_else(|| Arc::clone(owner));
        let subscription = Subscription { key: key.clone(), wanted, owner };
        connection.subscriptions.insert(Arc::clone(service), subscription);
        subscribers.entry(key).or_default().insert((number, Arc::clone(service)));
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, number: u64, service: &Arc<ServiceId>) {
        let mut state = self.state.lock();
        let Some(connection) = state.open.get_mut(&number) else { return };
        connection.pending.remove(service);
        let Some(subscription) = connection.subscriptions.remove(service) else { return };
        state.unsubscribe(&subscription, &(number, Arc::clone(service)));
    }

    /// Marks the subscriptions of changed services.
    pub(crate) fn mark(&self, changed: &ServicesChanged) {
        let mut state = self.state.lock();
        let State { open, subscribers, .. } = &mut *state;
        match changed {
            ServicesChanged::All => open.values_mut().for_each(|connection| {
                connection.pending.extend(connection.subscriptions.keys().cloned());
                connection.notify.notify_one();
            }),
            ServicesChanged::Some(keys) => {
                for (number, service) in keys.iter().filter_map(|key| subscribers.get(key)).flatten() {
                    if let Some(connection) = open.get_mut(number) {
                        connection.pending.insert(Arc::clone(service));
                        connection.notify.notify_one();
                    }
                }
            }
        }
    }

    /// Waits for the next push of a connection and takes it. Cancel-safe.
    pub(crate) async fn push(&self, number: u64) -> Push {
        loop {
            let notify = {
                let mut state = self.state.lock();
                let connection = state.open.get_mut(&number);
                if let Some(push) = connection.and_then(Connection::next_push) {
                    return push;
                }
                state.open.get(&number).map(|connection| Arc::clone(&connection.notify))
            };
            match notify {
                Some(notify) => notify.notified().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the renewals that are due, and schedules the next ones.
    pub(crate) fn due(&self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        for (number, connection) in &mut self.state.lock().open {
            let Some(client) = &connection.client else { continue };
            for (key, kept) in connection.instances.iter_mut().filter(|(_, kept)| kept.renew_at <= now) {
                kept.renew_at = now + renewal(&kept.given);
                due.push(Due {
                    number: *number,
                    id: Arc::clone(&connection.id),
                    client: client.clone(),
                    key: key.clone(),
                    service: Arc::clone(&kept.service),
                    given: Arc::clone(&kept.given),
                });
            }
        }
        due
    }

    /// Takes the instances whose connections have ended.
    pub(crate) fn take_gone(&self) -> Vec<Gone> {
        std::mem::take(&mut self.state.lock().gone)
    }

    /// Notes that an instance has no lease any more.
    pub(crate) fn lose(&self, due: Due) {
        self.state.lock().lost.insert((due.number, due.key.clone()), due);
        self.wake_lost.notify_one();
    }

    /// Takes the instances that have no lease any more.
    pub(crate) fn take_lost(&self) -> Vec<Due> {
        std::mem::take(&mut self.state.lock().lost).into_values().collect()
    }
}

impl State {
    fn unsubscribe(&mut self, subscription: &Subscription, subscriber: &(u64, Arc<ServiceId>)) {
        let Subscription { key, owner, .. } = subscription;
        if let Some(subscribers) = self.subscribers.get_mut(key) {
            subscribers.remove(subscriber);
            if subscribers.is_empty() {
                self.subscribers.remove(key);
            }
        }
        self.subscriptions -= 1;
        if let Some(count) = self.owners.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(owner);
            }
        }
    }
}

impl Connection {
    fn next_push(&mut self) -> Option<Push> {
        let client = self.client.clone()?;
        loop {
            let service = self.pending.pop_first()?;
            if let Some(Subscription { key, wanted, .. }) = self.subscriptions.get(&service) {
                return Some(Push { client, key: key.clone(), wanted: wanted.clone(), service });
            }
        }
    }
}

/// Returns the name of a connection: unique among the servers on a store, by the epoch of each.
pub(crate) fn name(epoch: u64, number: u64) -> Arc<str> {
    format!("{epoch:x}-{number}").into()
}

/// Returns the time between renewals.
fn renewal(given: &Given) -> Duration {
    given.ttl().unwrap_or(Duration::from_secs(60)) / RENEWALS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_in_the_page_of_limits() {
        let page = include_str!("../../../../docs/limits.md");
        for (name, value) in [
            ("connection-subscriptions", MAX_SUBSCRIPTIONS),
            ("owner-subscriptions", MAX_OWNER_SUBSCRIPTIONS),
            ("subscriptions", MAX_ALL_SUBSCRIPTIONS),
        ] {
            let row = format!("| `{name}` | {value} |");
            assert!(page.contains(&row), "no row {row:?}");
        }
    }

    #[test]
    fn subscriptions_are_limited_and_given_back() {
        let connections = Connections::default();
        assert!(connections.open(1, "a-1".into()) && !connections.open(1, "a-1".into()));
        let subscribe_as = |owner: &str, number: u64, name: &str| {
            let service = Arc::new(ServiceId::read("", "", name).unwrap());
            let key = ServiceKey::new("n", name);
            connections.subscribe(number, &owner.into(), &service, key, Wanted::default())
        };
        let subscribe = |number: u64, name: &str| subscribe_as("o", number, name);
        for number in 0..MAX_SUBSCRIPTIONS {
            subscribe(1, &format!("s{number}")).unwrap();
        }
        assert!(subscribe(1, "s0").is_ok(), "it is there already");
        let error = subscribe(1, "more").unwrap_err();
        assert_eq!((error.http_status(), connections.state.lock().subscriptions), (429, MAX_SUBSCRIPTIONS));
        connections.unsubscribe(1, &Arc::new(ServiceId::read("", "", "s0").unwrap()));
        assert!(subscribe(1, "more").is_ok());

        assert!(connections.open(2, "a-2".into()));
        let set = |count| connections.state.lock().owners.insert("p".into(), count);
        set(MAX_OWNER_SUBSCRIPTIONS);
        let error = subscribe_as("p", 2, "more").unwrap_err();
        assert!(error.http_status() == 429 && error.message().ends_with("an identity"), "{error:?}");
        assert!(subscribe(2, "more").is_ok(), "another identity has its own");
        assert!(subscribe_as("p", 2, "more").is_ok(), "it counts for the other one");
        set(0);
        assert!(subscribe_as("p", 2, "most").is_ok());
        connections.close(1, true);
        connections.close(2, true);
        let state = connections.state.lock();
        assert!(state.subscriptions == 0 && state.subscribers.is_empty() && state.open.is_empty());
        assert!(state.owners.is_empty(), "{:?}", state.owners);
    }

    #[test]
    fn a_connection_needs_an_identity_in_time() {
        let connections = Connections::default();
        assert!(connections.open(1, "a-1".into()));
        let opened = connections.state.lock().open[&1].opened;
        for (number, seconds, expected) in [(1, 59, false), (1, 60, true), (2, 60, false)] {
            let now = opened + Duration::from_secs(seconds);
            assert_eq!(connections.is_unproved(number, now), expected, "{number} after {seconds} s");
        }
    }
}
