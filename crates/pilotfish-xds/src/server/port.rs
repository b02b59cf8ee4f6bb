//! What the clients of one listener share. Each listener has all of it for itself, so that strangers on one cost nobody on another.

use super::ServerConfig;
use crate::limits::{Budget, Limit, LimitExceeded};
use crate::source::PeerInfo;
use pilotfish_identity::{HalfOpen, Handshake, LogLimit, Slot, Slots};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The budgets of one listener.
pub(super) struct Port {
    connections: Arc<Budget>,
    address_connections: Arc<Slots<IpAddr>>,
    streams: Arc<Budget>,
    address_streams: Arc<Slots<IpAddr>>,
    identity_streams: Arc<Slots<Arc<str>>>,
    /// For requests that are not complete, of all connections.
    pub(super) incomplete: Arc<Budget>,
    half_open: Arc<HalfOpen>,
    /// Of connections and streams that are refused, and of streams that end with an error.
    pub(super) log: LogLimit,
}

/// One of a budget; given back when it is dropped.
struct Place(Arc<Budget>);

impl Place {
    fn of(budget: &Arc<Budget>) -> Result<Self, LimitExceeded> {
        budget.take(1)?;
        Ok(Self(Arc::clone(budget)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.give(1);
    }
}

/// The place of an open connection.
pub(super) struct ConnectionPlace {
    _all: Place,
    _address: Slot<IpAddr>,
    /// Until its client is known.
    pub(super) handshake: Handshake,
}

/// The place of an open stream.
pub(super) struct StreamPlace {
    _all: Place,
    _address: Option<Slot<IpAddr>>,
    _identity: Option<Slot<Arc<str>>>,
}

impl Port {
    pub(super) fn new(config: &ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            connections: Budget::new(Limit::Connections, config.max_connections),
            address_connections: Slots::new(config.address_connections),
            streams: Budget::new(Limit::Streams, config.max_streams),
            address_streams: Slots::new(config.address_streams),
            identity_streams: Slots::new(config.identity_streams),
            incomplete: Budget::new(Limit::AllIncompleteBytes, config.all_incomplete_bytes),
            half_open: HalfOpen::new(config.max_handshakes),
            log: LogLimit::default(),
        })
    }

    /// Takes a connection in.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn connection(&self, peer: SocketAddr) -> Result<ConnectionPlace, LimitExceeded> {
        let all = Place::of(&self.connections)?;
        let address = slot(&self.address_connections, peer.ip(), Limit::AddressConnections)?;
        Ok(ConnectionPlace { _all: all, _address: address, handshake: self.half_open.begin(peer.ip()) })
    }

    /// Takes a stream in.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn stream(&self, address: IpAddr, peer: &PeerInfo) -> Result<StreamPlace, LimitExceeded> {
        let all = Place::of(&self.streams)?;
        let identity = peer.identities.first().map(|identity| Arc::from(identity.as_str()));
        let (address, identity) = match identity {
            Some(identity) => (None, Some(slot(&self.identity_streams, identity, Limit::IdentityStreams)?)),
            None => (Some(slot(&self.address_streams, address, Limit::AddressStreams)?), None),
        };
        Ok(StreamPlace { _all: all, _address: address, _identity: identity })
    }
}

fn slot<K: Eq + std::hash::Hash + Clone>(
    slots: &Arc<Slots<K>>,
    key: K,
    limit: Limit,
) -> Result<Slot<K>, LimitExceeded> {
    let allowed = slots.allowed();
    slots.take(key).ok_or(LimitExceeded { limit, asked: allowed.saturating_add(1), allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ServerConfig {
        ServerConfig {
            max_connections: 3,
            address_connections: 2,
            max_streams: 4,
            address_streams: 2,
            identity_streams: 3,
            ..ServerConfig::default()
        }
    }

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    fn limit<T>(result: Result<T, LimitExceeded>) -> Option<Limit> {
        result.err().map(|error| error.limit)
    }

    #[test]
    fn connections_are_limited_by_address_and_in_all() {
        let port = Port::new(&config());
        let (a, b) = (port.connection(peer(1)).unwrap(), port.connection(peer(1)).unwrap());
        assert_eq!(limit(port.connection(peer(1))), Some(Limit::AddressConnections));
        let c = port.connection(peer(2)).unwrap();
        assert_eq!(limit(port.connection(peer(3))), Some(Limit::Connections));
        drop((a, b));
        assert_eq!(limit(port.connection(peer(1))), None);
        drop(c);
        assert_eq!(port.connections.used(), 0);
    }

    #[test]
    fn streams_count_for_the_identity_and_where_there_is_none_for_the_address() {
        let port = Port::new(&config());
        let known = PeerInfo { identities: vec!["spiffe://a/ns/b/sa/c".into()], ..PeerInfo::default() };
        let stranger = PeerInfo::default();
        let address = peer(1).ip();
        let open = [port.stream(address, &stranger), port.stream(address, &stranger)];
        assert_eq!(limit(port.stream(address, &stranger)), Some(Limit::AddressStreams));
        let one = port.stream(address, &known).unwrap();
        let two = port.stream(address, &known).unwrap();
        assert_eq!(limit(port.stream(address, &known)), Some(Limit::Streams));
        drop(open);
        let three = port.stream(address, &known).unwrap();
        assert_eq!(limit(port.stream(address, &known)), Some(Limit::IdentityStreams));
        drop((one, two, three));
        assert_eq!(port.streams.used(), 0);
    }
}
