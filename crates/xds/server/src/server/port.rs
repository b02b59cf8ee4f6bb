//! Limits and state that the clients of one listener share. Listeners do not share them, so that strangers on
//! one cannot exhaust those of another.

use super::throttle::PushThrottle;
use super::{FIRST_WINDOW, ServerConfig, WINDOW};
use crate::limits::{Limit, LimitExceeded, Quota, QuotaGuard};
use crate::source::PeerInfo;
use pilotfish_admission::{HalfOpen, Handshake, LogLimit, Quotas, network_of};
use pilotfish_identity::Proof;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Budgets of one listener.
pub(super) struct Port {
    connections: Quotas<IpAddr, Limit>,
    address_streams: Quotas<IpAddr, Limit>,
    identity_streams: Quotas<Arc<str>, Limit>,
    calls: Quotas<IpAddr, Limit>,
    /// Calls of methods by identified clients, so that strangers do not take their places.
    identity_calls: Quotas<Arc<str>, Limit>,
    /// Quota of bytes that connections may send before they are read.
    windows: Arc<Quota>,
    /// Budgets of incomplete requests, by client address.
    incomplete: Quotas<IpAddr, Limit>,
    half_open: Arc<HalfOpen>,
    pub(super) throttle: PushThrottle,
    /// Rate limit for log lines of streams that end with an error, and of failed accepts.
    pub(super) log: LogLimit,
    /// Rate limit for log lines of connections and streams that are refused or closed because of a limit.
    pub(super) limit_log: LogLimit,
}

/// Admission of an open connection.
pub(super) struct ConnectionPlace {
    _quota: QuotaGuard,
    /// Held until its client is known.
    pub(super) handshake: Handshake,
}

impl Port {
    pub(super) fn new(config: &ServerConfig) -> Arc<Self> {
        let streams = Quota::new(Limit::Streams, config.max_streams);
        let all_calls = || Quota::new(Limit::AllCalls, config.all_calls);
        let connections = Quota::new(Limit::Connections, config.max_connections);
        Arc::new(Self {
            connections: Quotas::new(connections, Limit::AddressConnections, config.address_connections),
            address_streams: Quotas::new(Arc::clone(&streams), Limit::AddressStreams, config.address_streams),
            identity_streams: Quotas::new(streams, Limit::IdentityStreams, config.identity_streams),
            calls: Quotas::new(all_calls(), Limit::AddressCalls, config.address_calls),
            identity_calls: Quotas::new(all_calls(), Limit::IdentityCalls, config.identity_calls),
            windows: Quota::new(Limit::AllIncompleteBytes, config.all_windows),
            incomplete: Quotas::new(
                Quota::new(Limit::AllIncompleteBytes, config.all_incomplete_bytes),
                Limit::AddressIncompleteBytes,
                config.address_incomplete_bytes,
            ),
            half_open: HalfOpen::new(config.max_handshakes),
            throttle: PushThrottle::new((config.max_handshakes / 4).max(1)),
            log: LogLimit::default(),
            limit_log: LogLimit::of_limits(),
        })
    }

    /// Admits a connection.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn connection(&self, peer: SocketAddr) -> Result<ConnectionPlace, LimitExceeded> {
        let quota = self.connections.of(network_of(peer.ip())).hold(1)?;
        Ok(ConnectionPlace { _quota: quota, handshake: self.half_open.begin(peer.ip()) })
    }

    /// Quota of a connection for incomplete requests.
    pub(super) fn incomplete(&self, address: IpAddr, allowed: usize) -> Arc<Quota> {
        self.incomplete.of(network_of(address)).share(Limit::IncompleteBytes, allowed)
    }

    /// Quota for a large window of a connection; `None` if the listener's budget is spent.
    pub(super) fn window(&self) -> Option<QuotaGuard> {
        self.windows.hold(usize::try_from(WINDOW - FIRST_WINDOW).ok()?).ok()
    }

    /// Admits a health or reflection call. Such calls are not authenticated.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn call(&self, address: IpAddr) -> Result<QuotaGuard, LimitExceeded> {
        Ok(self.calls.of(network_of(address)).hold(1)?)
    }

    /// Admits a call of a method by an identified client.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn identity_call(&self, proof: &Proof) -> Result<QuotaGuard, LimitExceeded> {
        let identity = proof.identities.first().map(String::as_str).unwrap_or_default();
        Ok(self.identity_calls.of(Arc::from(identity)).hold(1)?)
    }

    /// Admits a stream.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn stream(&self, address: IpAddr, peer: &PeerInfo) -> Result<QuotaGuard, LimitExceeded> {
        let quota = match peer.identities.first() {
            Some(identity) => self.identity_streams.of(Arc::from(identity.as_str())),
            None => self.address_streams.of(network_of(address)),
        };
        Ok(quota.hold(1)?)
    }
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
            all_calls: 3,
            address_calls: 2,
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
        assert_eq!(port.connections.whole().used(), 0);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_together() {
        let port = Port::new(&config());
        let peer = |text: &str| SocketAddr::new(text.parse().unwrap(), 1);
        let open = ["2001:db8::1", "2001:db8::ffff:1"].map(|text| port.connection(peer(text)).unwrap());
        assert_eq!(limit(port.connection(peer("2001:db8::2"))), Some(Limit::AddressConnections));
        assert_eq!(limit(port.connection(peer("2001:db8:0:1::1"))), None);
        drop(open);
    }

    #[test]
    fn incomplete_requests_of_an_address_leave_room_for_those_of_others() {
        let config = ServerConfig { all_incomplete_bytes: 10, address_incomplete_bytes: 6, ..config() };
        let port = Port::new(&config);
        let of = |last| port.incomplete(peer(last).ip(), 5);
        let (one, two, other) = (of(1), of(1), of(2));
        assert_eq!(one.take(6).map_err(|error| error.limit), Err(Limit::IncompleteBytes));
        one.take(5).unwrap();
        assert_eq!(two.take(2).map_err(|error| error.limit), Err(Limit::AddressIncompleteBytes));
        other.take(4).unwrap();
        two.take(1).unwrap();
        assert_eq!(other.take(1).map_err(|error| error.limit), Err(Limit::AllIncompleteBytes));
    }

    #[test]
    fn large_windows_are_for_few() {
        let port = Port::new(&ServerConfig { all_windows: 2 << 20, ..config() });
        let (one, two) = (port.window(), port.window());
        assert!(one.is_some() && two.is_some() && port.window().is_none());
        drop(one);
        assert!(port.window().is_some());
    }

    #[test]
    fn calls_are_limited_by_address_and_in_all() {
        let port = Port::new(&config());
        let call = |last| port.call(peer(last).ip());
        let (a, b) = (call(1).unwrap(), call(1).unwrap());
        assert_eq!(limit(call(1)), Some(Limit::AddressCalls));
        let c = call(2).unwrap();
        assert_eq!(limit(call(3)), Some(Limit::AllCalls));
        drop((a, b, c));
        assert_eq!((port.calls.whole().used(), limit(call(1))), (0, None));
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
        assert_eq!(port.address_streams.whole().used(), 0);
    }
}
