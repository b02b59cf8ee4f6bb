//! gRPC connections of clients: their subscriptions, and the instances that live as long as they do.

use crate::record::Given;
use crate::service::{ServiceId, Wanted};
use parking_lot::Mutex;
use pilotfish_registration::{InstanceKey, ServiceKey, ServicesChanged};
use pilotfish_registration_server::{AdapterClient, Failure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of subscriptions of a connection.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 10_000;
/// Maximum number of subscriptions of all connections.
pub(crate) const MAX_ALL_SUBSCRIPTIONS: usize = 200_000;
/// Renewals within a lease.
const RENEWALS: u32 = 3;

/// All connections.
#[derive(Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
    /// Notified when instances of a connection are to be removed.
    pub(crate) wake: Notify,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Connection>,
    subscribers: HashMap<ServiceKey, BTreeSet<(u64, Arc<ServiceId>)>>,
    /// Number of subscriptions.
    subscriptions: usize,
    gone: Vec<Gone>,
}

/// A connection with a stream.
struct Connection {
    /// Name of the connection, unique among all servers on the store.
    id: Arc<str>,
    /// The client that the last message authenticated.
    client: Option<AdapterClient>,
    subscriptions: BTreeMap<Arc<ServiceId>, Subscription>,
    /// Services with a pending push.
    pending: BTreeSet<Arc<ServiceId>>,
    notify: Arc<Notify>,
    instances: BTreeMap<InstanceKey, Kept>,
}

struct Subscription {
    key: ServiceKey,
    wanted: Wanted,
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
            client: None,
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
        state.subscriptions -= connection.subscriptions.len();
        for (service, Subscription { key, .. }) in connection.subscriptions {
            state.unsubscribe(&key, &(number, service));
        }
        if let (Some(client), true) = (connection.client, removes_instances) {
            let gone = |key| Gone { id: Arc::clone(&connection.id), client: client.clone(), key };
            state.gone.extend(connection.instances.into_keys().map(gone));
            self.wake.notify_one();
        }
    }

    /// Returns the name of a connection that a client of this name uses from now on; `None` if it is unknown.
    pub(crate) fn used_by(&self, number: u64, client: &AdapterClient) -> Option<Arc<str>> {
        let mut state = self.state.lock();
        let connection = state.open.get_mut(&number)?;
        connection.client = Some(client.clone());
        Some(Arc::clone(&connection.id))
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

    /// Forgets an instance that was deregistered, or that another connection keeps now.
    pub(crate) fn forget(&self, number: u64, key: &InstanceKey) {
        if let Some(connection) = self.state.lock().open.get_mut(&number) {
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
        service: &Arc<ServiceId>,
        key: ServiceKey,
        wanted: Wanted,
    ) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let all = state.subscriptions;
        let Some(connection) = state.open.get_mut(&number) else { return Ok(()) };
        let is_new = !connection.subscriptions.contains_key(service);
        if is_new && connection.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let message = format!("a connection has at most {MAX_SUBSCRIPTIONS} subscriptions");
            return Err(Failure::beyond("connection-subscriptions", message));
        }
        if is_new && all >= MAX_ALL_SUBSCRIPTIONS {
            let message = format!("all connections have at most {MAX_ALL_SUBSCRIPTIONS} subscriptions");
            return Err(Failure::beyond("subscriptions", message));
        }
        connection.subscriptions.insert(Arc::clone(service), Subscription { key: key.clone(), wanted });
        state.subscriptions += usize::from(is_new);
        state.subscribers.entry(key).or_default().insert((number, Arc::clone(service)));
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, number: u64, service: &Arc<ServiceId>) {
        let mut state = self.state.lock();
        let Some(connection) = state.open.get_mut(&number) else { return };
        connection.pending.remove(service);
        let Some(Subscription { key, .. }) = connection.subscriptions.remove(service) else { return };
        state.subscriptions -= 1;
        state.unsubscribe(&key, &(number, Arc::clone(service)));
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
}

impl State {
    fn unsubscribe(&mut self, key: &ServiceKey, subscriber: &(u64, Arc<ServiceId>)) {
        if let Some(subscribers) = self.subscribers.get_mut(key) {
            subscribers.remove(subscriber);
            if subscribers.is_empty() {
                self.subscribers.remove(key);
            }
        }
    }
}

impl Connection {
    fn next_push(&mut self) -> Option<Push> {
        let client = self.client.clone()?;
        loop {
            let service = self.pending.pop_first()?;
            if let Some(Subscription { key, wanted }) = self.subscriptions.get(&service) {
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
        for (name, value) in
            [("connection-subscriptions", MAX_SUBSCRIPTIONS), ("subscriptions", MAX_ALL_SUBSCRIPTIONS)]
        {
            let row = format!("| `{name}` | {value} |");
            assert!(page.contains(&row), "no row {row:?}");
        }
    }

    #[test]
    fn subscriptions_are_limited_and_given_back() {
        let connections = Connections::default();
        assert!(connections.open(1, "a-1".into()) && !connections.open(1, "a-1".into()));
        let subscribe = |number: u64, name: &str| {
            let service = Arc::new(ServiceId::read("", "", name).unwrap());
            connections.subscribe(number, &service, ServiceKey::new("n", name), Wanted::default())
        };
        for number in 0..MAX_SUBSCRIPTIONS {
            subscribe(1, &format!("s{number}")).unwrap();
        }
        assert!(subscribe(1, "s0").is_ok(), "it is there already");
        let error = subscribe(1, "more").unwrap_err();
        assert_eq!((error.http_status(), connections.state.lock().subscriptions), (429, MAX_SUBSCRIPTIONS));
        connections.unsubscribe(1, &Arc::new(ServiceId::read("", "", "s0").unwrap()));
        assert!(subscribe(1, "more").is_ok());
        connections.close(1, true);
        let state = connections.state.lock();
        assert!(state.subscriptions == 0 && state.subscribers.is_empty() && state.open.is_empty());
    }
}
