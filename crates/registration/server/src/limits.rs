//! Limits of clients' requests and connections. docs/limits.md, "Of registration". The registrar has the
//! limits of registered instances.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A limit: its name is in errors, in the header `pilotfish-limit`, and in a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of one request ([`ServerLimits::request_bytes`]).
    RequestBytes,
    /// Bytes of the requests of one connection that are being read
    /// ([`ServerLimits::connection_request_bytes`]).
    ConnectionRequestBytes,
    /// Bytes of all requests that are being read ([`ServerLimits::all_request_bytes`]).
    AllRequestBytes,
    /// Requests of one client ([`ServerLimits::requests_per_second`]).
    RequestsPerSecond,
    /// HTTP/2 frames of a connection ([`ServerLimits::frames_per_second`]): more wait.
    FramesPerSecond,
    /// Refused credentials of one address ([`ServerLimits::refusals_per_second`]).
    RefusalsPerSecond,
    /// Total number of connections ([`ServerLimits::connections`]).
    Connections,
    /// Connections of one address ([`ServerLimits::address_connections`]).
    AddressConnections,
    /// Watches and heartbeat streams of one connection ([`ServerLimits::connection_streams`]).
    ConnectionStreams,
    /// Watches and heartbeat streams of one identity ([`ServerLimits::owner_streams`]).
    OwnerStreams,
}

impl Limit {
    pub const ALL: [Self; 10] = [
        Self::RequestBytes,
        Self::ConnectionRequestBytes,
        Self::AllRequestBytes,
        Self::RequestsPerSecond,
        Self::FramesPerSecond,
        Self::RefusalsPerSecond,
        Self::Connections,
        Self::AddressConnections,
        Self::ConnectionStreams,
        Self::OwnerStreams,
    ];

    /// Returns the name, as in `request-bytes`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestBytes => "request-bytes",
            Self::ConnectionRequestBytes => "connection-request-bytes",
            Self::AllRequestBytes => "all-request-bytes",
            Self::RequestsPerSecond => "requests-per-second",
            Self::FramesPerSecond => "frames-per-second",
            Self::RefusalsPerSecond => "refusals-per-second",
            Self::Connections => "connections",
            Self::AddressConnections => "address-connections",
            Self::ConnectionStreams => "connection-streams",
            Self::OwnerStreams => "owner-streams",
        }
    }
}

/// Limits and timeouts of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// `request-bytes`: of one request, or one message of a stream.
    pub request_bytes: usize,
    /// `connection-request-bytes`: of the requests of one connection that are being read.
    pub connection_request_bytes: usize,
    /// `all-request-bytes`: of all requests that are being read; of one address, a quarter of it.
    pub all_request_bytes: usize,
    /// `requests-per-second`: of one identity at one address; twice as many in a burst. Messages of streams
    /// count too.
    pub requests_per_second: u32,
    /// `frames-per-second`: of one connection with HTTP/2; ten times as many in a burst. A SETTINGS frame
    /// counts as 100.
    pub frames_per_second: u32,
    /// `refusals-per-second`: of one address; ten times as many in a burst. Beyond it, credentials are not
    /// looked at.
    pub refusals_per_second: u32,
    /// `connections`: maximum number of connections.
    pub connections: usize,
    /// `address-connections`: of one address.
    pub address_connections: usize,
    /// Maximum number of concurrent requests on one connection; HTTP/2 flow control enforces it.
    pub connection_requests: u32,
    /// `connection-streams`: watches and heartbeat streams of one connection.
    pub connection_streams: usize,
    /// `owner-streams`: watches and heartbeat streams of one identity.
    pub owner_streams: usize,
    /// Maximum size of the headers of one request in bytes.
    pub header_bytes: u32,
    /// Connections without a request so far. Above this limit the oldest one is closed.
    pub unused_connections: usize,
    /// Timeout of a TLS handshake, and then of the first request.
    pub first_request_timeout: Duration,
    /// Timeout for the arrival of a request or of one message of a stream, and then for its response.
    pub request_timeout: Duration,
    /// Maximum time without requests.
    pub idle_timeout: Duration,
    /// Maximum age of a stream. Its client reconnects and authenticates again.
    pub stream_age: Duration,
    /// Timeout of the authenticators for one client.
    pub authentication_timeout: Duration,
    /// Time for open requests after shutdown began.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            request_bytes: 4 << 20,
            connection_request_bytes: 16 << 20,
            all_request_bytes: 256 << 20,
            requests_per_second: 5_000,
            frames_per_second: 10_000,
            refusals_per_second: 10,
            connections: 20_000,
            address_connections: 2_000,
            connection_requests: 256,
            connection_streams: 32,
            owner_streams: 2_000,
            header_bytes: 16 << 10,
            unused_connections: 1_024,
            first_request_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            stream_age: Duration::from_secs(60 * 60),
            authentication_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// One address may use one `ADDRESS_PART`th of the bytes of all requests.
const ADDRESS_PART: usize = 4;

/// Bytes shared by requests.
pub(crate) type Quota = pilotfish_admission::Quota<Limit>;

/// Bytes of one request.
pub(crate) type QuotaGuard = pilotfish_admission::QuotaGuard<Limit>;

/// Quotas of addresses, as shares of the total quota.
pub(crate) type AddressQuotas = pilotfish_admission::Quotas<IpAddr, Limit>;

/// Returns the quota of a connection, as a share of its address's.
pub(crate) fn of_connection(address: &Arc<Quota>, limits: &ServerLimits) -> Arc<Quota> {
    address.share(Limit::ConnectionRequestBytes, limits.connection_request_bytes)
}

/// Returns the unused quotas of addresses.
pub(crate) fn of_addresses(limits: &ServerLimits) -> AddressQuotas {
    let all = Quota::new(Limit::AllRequestBytes, limits.all_request_bytes);
    AddressQuotas::new(all, Limit::AllRequestBytes, limits.all_request_bytes / ADDRESS_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_limits_are_different() {
        let names: std::collections::BTreeSet<_> = Limit::ALL.iter().map(|limit| limit.as_str()).collect();
        assert_eq!(names.len(), Limit::ALL.len());
    }

    #[test]
    fn requests_share_bytes_with_their_connection_their_address_and_all() {
        let limits =
            ServerLimits { connection_request_bytes: 6, all_request_bytes: 40, ..ServerLimits::default() };
        let budgets = of_addresses(&limits);
        let [one, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|address| budgets.of(address.into()));
        let (a, b) = (of_connection(&one, &limits), of_connection(&one, &limits));
        let add = |guard: &QuotaGuard, bytes| guard.add(bytes).map_err(|exceeded| exceeded.limit);
        let held = QuotaGuard::empty(&a);
        assert_eq!((add(&held, 4), add(&held, 2)), (Ok(()), Ok(())));
        assert_eq!(add(&QuotaGuard::empty(&a), 1), Err(Limit::ConnectionRequestBytes));
        let more = QuotaGuard::empty(&b);
        assert_eq!(add(&more, 5), Err(Limit::AllRequestBytes), "the address has 10");
        assert_eq!(add(&more, 4), Ok(()));
        assert_eq!(
            add(&QuotaGuard::empty(&of_connection(&other, &limits)), 6),
            Ok(()),
            "another address has its own"
        );
        held.reduce_to(0);
        assert_eq!(add(&more, 2), Ok(()));
        drop((held, more));
        assert_eq!(one.used(), 0);
    }
}
