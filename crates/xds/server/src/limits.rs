//! Limits on memory and work per client. Each limit is checked before the work that it limits, and an error
//! names it.

use pilotfish_admission::Exceeded;
use std::fmt;
use std::time::Duration;

/// A limit by its name, in errors and as the label `limit` of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of one request ([`ServerConfig::max_message`](crate::ServerConfig::max_message)).
    RequestBytes,
    /// Names of one stream ([`StreamLimits::subscriptions`]), and of each list of a request.
    Subscriptions,
    /// Bytes of these names ([`StreamLimits::subscription_bytes`]).
    SubscriptionBytes,
    /// Memory for the names of all streams ([`StreamLimits::all_subscription_bytes`]).
    AllSubscriptionBytes,
    /// Memory for the names of all clients without an identity
    /// ([`StreamLimits::unidentified_subscription_bytes`]).
    UnidentifiedSubscriptionBytes,
    /// Memory for the names of clients without an identity at one address
    /// ([`StreamLimits::address_subscription_bytes`]).
    AddressSubscriptionBytes,
    /// Memory for the names of one identity ([`StreamLimits::identity_subscription_bytes`]).
    IdentitySubscriptionBytes,
    /// Bytes of a node ([`NodeLimits::bytes`]).
    NodeBytes,
    /// Memory for the nodes of all streams ([`StreamLimits::all_node_bytes`]).
    AllNodeBytes,
    /// Memory for the nodes of all clients without an identity ([`StreamLimits::unidentified_node_bytes`]).
    UnidentifiedNodeBytes,
    /// Memory for the nodes of clients without an identity at one address
    /// ([`StreamLimits::address_node_bytes`]).
    AddressNodeBytes,
    /// Memory for the nodes of one identity ([`StreamLimits::identity_node_bytes`]).
    IdentityNodeBytes,
    /// Bytes of a node's id ([`NodeLimits::id_bytes`]).
    NodeIdBytes,
    /// Values in a node's metadata ([`NodeLimits::values`]).
    NodeValues,
    /// Nesting depth of a node's metadata ([`NodeLimits::depth`]).
    NodeDepth,
    /// Addresses in a node's metadata; the source of the resources limits them.
    NodeAddresses,
    /// Labels in a node's metadata; the source of the resources limits them.
    NodeLabels,
    /// Distinct values of unverified claims in nodes; the source of the resources limits them.
    NodeClaims,
    /// Bytes of incomplete requests of one connection
    /// ([`ServerConfig::incomplete_bytes`](crate::ServerConfig::incomplete_bytes)).
    IncompleteBytes,
    /// Bytes of incomplete requests of all connections
    /// ([`ServerConfig::all_incomplete_bytes`](crate::ServerConfig::all_incomplete_bytes)).
    AllIncompleteBytes,
    /// Bytes of incomplete requests of all connections from one address
    /// ([`ServerConfig::address_incomplete_bytes`](crate::ServerConfig::address_incomplete_bytes)).
    AddressIncompleteBytes,
    /// Bytes before a client's node ([`ServerConfig::first_bytes`](crate::ServerConfig::first_bytes)).
    FirstBytes,
    /// Streams of a connection whose clients are not identified
    /// ([`ServerConfig::max_unidentified`](crate::ServerConfig::max_unidentified)).
    Unidentified,
    /// Bytes of the headers of these streams
    /// ([`ServerConfig::unidentified_bytes`](crate::ServerConfig::unidentified_bytes)).
    UnidentifiedBytes,
    /// Tokens of one address that are under review; the authenticator limits them.
    AddressReviews,
    /// Certificate requests of one identity in a second; the method limits them.
    IdentityCertificates,
    /// Certificate requests of one address in a second; the method limits them.
    AddressCertificates,
    /// Certificates that an external signer is asked for; the method limits them.
    SigningRequests,
    /// Calls of health and reflection on a connection
    /// ([`ServerConfig::max_calls`](crate::ServerConfig::max_calls)).
    Calls,
    /// Calls of health and reflection on a listener
    /// ([`ServerConfig::all_calls`](crate::ServerConfig::all_calls)).
    AllCalls,
    /// Calls of health and reflection from one address
    /// ([`ServerConfig::address_calls`](crate::ServerConfig::address_calls)).
    AddressCalls,
    /// Calls of methods by clients with one identity
    /// ([`ServerConfig::identity_calls`](crate::ServerConfig::identity_calls)).
    IdentityCalls,
    /// Bytes that such a call sends ([`ServerConfig::call_bytes`](crate::ServerConfig::call_bytes)).
    CallBytes,
    /// Requests of a stream in a second
    /// ([`ServerConfig::requests_per_second`](crate::ServerConfig::requests_per_second)): more wait.
    RequestsPerSecond,
    /// Frames of a connection in a second
    /// ([`ServerConfig::frames_per_second`](crate::ServerConfig::frames_per_second)): more wait.
    FramesPerSecond,
    /// Open connections of a listener
    /// ([`ServerConfig::max_connections`](crate::ServerConfig::max_connections)).
    Connections,
    /// Open connections of an address
    /// ([`ServerConfig::address_connections`](crate::ServerConfig::address_connections)).
    AddressConnections,
    /// Open streams of a listener ([`ServerConfig::max_streams`](crate::ServerConfig::max_streams)).
    Streams,
    /// Open streams of an address ([`ServerConfig::address_streams`](crate::ServerConfig::address_streams)).
    AddressStreams,
    /// Open streams of an identity
    /// ([`ServerConfig::identity_streams`](crate::ServerConfig::identity_streams)).
    IdentityStreams,
}

impl Limit {
    pub const ALL: [Self; 40] = [
        Self::RequestBytes,
        Self::Subscriptions,
        Self::SubscriptionBytes,
        Self::AllSubscriptionBytes,
        Self::UnidentifiedSubscriptionBytes,
        Self::AddressSubscriptionBytes,
        Self::IdentitySubscriptionBytes,
        Self::NodeBytes,
        Self::AllNodeBytes,
        Self::UnidentifiedNodeBytes,
        Self::AddressNodeBytes,
        Self::IdentityNodeBytes,
        Self::NodeIdBytes,
        Self::NodeValues,
        Self::NodeDepth,
        Self::NodeAddresses,
        Self::NodeLabels,
        Self::NodeClaims,
        Self::IncompleteBytes,
        Self::AllIncompleteBytes,
        Self::AddressIncompleteBytes,
        Self::FirstBytes,
        Self::Unidentified,
        Self::UnidentifiedBytes,
        Self::AddressReviews,
        Self::IdentityCertificates,
        Self::AddressCertificates,
        Self::SigningRequests,
        Self::Calls,
        Self::AllCalls,
        Self::AddressCalls,
        Self::IdentityCalls,
        Self::CallBytes,
        Self::RequestsPerSecond,
        Self::FramesPerSecond,
        Self::Connections,
        Self::AddressConnections,
        Self::Streams,
        Self::AddressStreams,
        Self::IdentityStreams,
    ];

    /// Value of the metric label `limit`, for example `subscriptions`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestBytes => "request-bytes",
            Self::Subscriptions => "subscriptions",
            Self::SubscriptionBytes => "subscription-bytes",
            Self::AllSubscriptionBytes => "all-subscription-bytes",
            Self::UnidentifiedSubscriptionBytes => "unidentified-subscription-bytes",
            Self::AddressSubscriptionBytes => "address-subscription-bytes",
            Self::IdentitySubscriptionBytes => "identity-subscription-bytes",
            Self::NodeBytes => "node-bytes",
            Self::AllNodeBytes => "all-node-bytes",
            Self::UnidentifiedNodeBytes => "unidentified-node-bytes",
            Self::AddressNodeBytes => "address-node-bytes",
            Self::IdentityNodeBytes => "identity-node-bytes",
            Self::NodeIdBytes => "node-id-bytes",
            Self::NodeValues => "node-values",
            Self::NodeDepth => "node-depth",
            Self::NodeAddresses => "node-addresses",
            Self::NodeLabels => "node-labels",
            Self::NodeClaims => "node-claims",
            Self::IncompleteBytes => "incomplete-bytes",
            Self::AllIncompleteBytes => "all-incomplete-bytes",
            Self::AddressIncompleteBytes => "address-incomplete-bytes",
            Self::FirstBytes => "first-bytes",
            Self::Unidentified => "unidentified-streams",
            Self::UnidentifiedBytes => "unidentified-bytes",
            Self::AddressReviews => "address-reviews",
            Self::IdentityCertificates => "identity-certificates",
            Self::AddressCertificates => "address-certificates",
            Self::SigningRequests => "signing-requests",
            Self::Calls => "calls",
            Self::AllCalls => "all-calls",
            Self::AddressCalls => "address-calls",
            Self::IdentityCalls => "identity-calls",
            Self::CallBytes => "call-bytes",
            Self::RequestsPerSecond => "requests-per-second",
            Self::FramesPerSecond => "frames-per-second",
            Self::Connections => "connections",
            Self::AddressConnections => "address-connections",
            Self::Streams => "streams",
            Self::AddressStreams => "address-streams",
            Self::IdentityStreams => "identity-streams",
        }
    }

    /// Counted unit, for error messages.
    fn unit(self) -> &'static str {
        match self {
            Self::RequestBytes => "bytes in a request",
            Self::Subscriptions => "resource names for one stream",
            Self::SubscriptionBytes => "bytes of resource names for one stream",
            Self::AllSubscriptionBytes => "bytes for the resource names of all streams",
            Self::UnidentifiedSubscriptionBytes => {
                "bytes for the resource names of all clients without an identity"
            }
            Self::AddressSubscriptionBytes => {
                "bytes for the resource names of clients without an identity at one address"
            }
            Self::IdentitySubscriptionBytes => "bytes for the resource names of one identity",
            Self::NodeBytes => "bytes in a node",
            Self::AllNodeBytes => "bytes for the nodes of all streams",
            Self::UnidentifiedNodeBytes => "bytes for the nodes of all clients without an identity",
            Self::AddressNodeBytes => "bytes for the nodes of clients without an identity at one address",
            Self::IdentityNodeBytes => "bytes for the nodes of one identity",
            Self::NodeIdBytes => "bytes in a node's id, cluster or locality",
            Self::NodeValues => "values in a node's metadata",
            Self::NodeDepth => "levels in a node's metadata",
            Self::NodeAddresses => "addresses in a node",
            Self::NodeLabels => "labels in a node",
            Self::NodeClaims => "different values that nodes claim",
            Self::IncompleteBytes => "bytes of incomplete requests on one connection",
            Self::AllIncompleteBytes => "bytes of incomplete requests on all connections",
            Self::AddressIncompleteBytes => "bytes of incomplete requests on all connections of an address",
            Self::FirstBytes => "bytes before the node in the first request",
            Self::Unidentified => "streams of a connection whose clients are not identified yet",
            Self::UnidentifiedBytes => {
                "bytes of headers of a connection's streams whose clients are not identified yet"
            }
            Self::AddressReviews => "tokens of an address that are under review",
            Self::IdentityCertificates => "certificate requests of an identity in a second",
            Self::AddressCertificates => "certificate requests of an address in a second",
            Self::SigningRequests => "certificates that an external signer is asked for",
            Self::Calls => "calls of other methods on a connection",
            Self::AllCalls => "calls of other methods of a listener",
            Self::AddressCalls => "calls of other methods of an address",
            Self::IdentityCalls => "calls of methods of an identity",
            Self::CallBytes => "bytes of requests in a call",
            Self::RequestsPerSecond => "requests of a stream in a second",
            Self::FramesPerSecond => "frames of a connection in a second",
            Self::Connections => "connections of a listener",
            Self::AddressConnections => "connections of an address",
            Self::Streams => "streams of a listener",
            Self::AddressStreams => "streams of an address",
            Self::IdentityStreams => "streams of an identity",
        }
    }

    /// Checks that `asked` is at most `allowed`.
    ///
    /// # Errors
    /// [`LimitExceeded`] if it is more.
    pub fn check(self, asked: usize, allowed: usize) -> Result<(), LimitExceeded> {
        if asked <= allowed { Ok(()) } else { Err(LimitExceeded { limit: self, asked, allowed }) }
    }
}

/// Request for more than a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LimitExceeded {
    pub limit: Limit,
    /// Requested number of units.
    pub asked: usize,
    /// Allowed number of units.
    pub allowed: usize,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, asked, allowed } = self;
        write!(f, "too many {}: {asked}, and at most {allowed} are allowed", limit.unit())?;
        write!(f, " (limit {})", limit.as_str())
    }
}

/// Limits of a stream's subscriptions, and its timeouts for ACKs.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Names that one stream subscribes to or lists as known, of all types together.
    pub subscriptions: usize,
    /// Bytes of those names.
    pub subscription_bytes: usize,
    /// Memory for the names that all streams subscribe to: each name is counted once by type and view, and
    /// each subscription once. This limit and the next three reserve a quarter for streams with at most
    /// [`Self::few_subscriptions`] names.
    pub all_subscription_bytes: usize,
    /// Memory for names that a client without an identity asked for first.
    pub unidentified_subscription_bytes: usize,
    /// Memory for the names of clients without an identity at one address.
    pub address_subscription_bytes: usize,
    /// Memory for the names of clients of one identity.
    pub identity_subscription_bytes: usize,
    /// Maximum number of names of a stream that may use the reserved quarter.
    pub few_subscriptions: usize,
    /// Memory for the nodes of all streams, in bytes. This limit and the next three reserve a quarter for
    /// nodes of at most [`Self::small_node`] bytes.
    pub all_node_bytes: usize,
    /// Memory for the nodes of clients without an identity.
    pub unidentified_node_bytes: usize,
    /// Memory for the nodes of clients without an identity at one address.
    pub address_node_bytes: usize,
    /// Memory for the nodes of clients of one identity.
    pub identity_node_bytes: usize,
    /// Maximum size in bytes of a node that may use the reserved quarter.
    pub small_node: usize,
    /// Requests that are read from a client that does not read responses; further ones wait until it does.
    pub blocked_requests: usize,
    /// Limits of a node's content.
    pub node: NodeLimits,
    /// Maximum time that listeners and routes are held until new clusters are acknowledged and have their
    /// endpoints.
    pub warming: Duration,
    /// Maximum time that removed clusters are held until listeners and routes are acknowledged.
    pub draining: Duration,
    /// Maximum time for a resumed client to acknowledge its clusters before its endpoints are sent once more:
    /// Envoy withholds that ACK while a cluster waits for endpoints.
    pub resume_probe: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            subscriptions: 100_000,
            subscription_bytes: 16 << 20,
            all_subscription_bytes: 0,
            unidentified_subscription_bytes: 0,
            address_subscription_bytes: 0,
            identity_subscription_bytes: 0,
            few_subscriptions: 1_000,
            all_node_bytes: 0,
            unidentified_node_bytes: 0,
            address_node_bytes: 0,
            identity_node_bytes: 0,
            small_node: 16 << 10,
            blocked_requests: 256,
            node: NodeLimits::default(),
            warming: Duration::from_secs(5),
            draining: Duration::from_secs(5),
            resume_probe: Duration::from_secs(2),
        }
        .with_all_subscription_bytes(1 << 30)
        .with_all_node_bytes(512 << 20)
    }
}

impl StreamLimits {
    /// Sets the memory for the names of all streams, and the default shares for clients without an identity,
    /// one of their addresses, and one identity.
    #[must_use]
    pub fn with_all_subscription_bytes(self, all: usize) -> Self {
        Self {
            all_subscription_bytes: all,
            // Clients without an identity and one identity together have a quarter, which bounds the share of
            // an attacker. Clients of one identity are mostly of one namespace and share their views.
            unidentified_subscription_bytes: all / 32 * 5,
            address_subscription_bytes: all / 8,
            identity_subscription_bytes: all / 32 * 3,
            ..self
        }
    }

    /// Sets the memory for the nodes of all streams, and the default shares of it.
    #[must_use]
    pub fn with_all_node_bytes(self, all: usize) -> Self {
        Self {
            all_node_bytes: all,
            unidentified_node_bytes: all / 4,
            // A request with a node, and its decoded form, are in memory as well until the node is stored.
            address_node_bytes: all / 16,
            identity_node_bytes: all / 4,
            ..self
        }
    }
}

/// Limits of a node's size. Checked on the encoded form, before anything of it is stored.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// Bytes of the encoded node.
    pub bytes: usize,
    /// Bytes of its id, its cluster, and each part of its locality.
    pub id_bytes: usize,
    /// Values in its metadata, at all levels together.
    pub values: usize,
    /// Nesting depth of its metadata.
    pub depth: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { bytes: 512 << 10, id_bytes: 1_024, values: 4_096, depth: 16 }
    }
}

/// Amount that several clients share.
pub(crate) type Quota = pilotfish_admission::Quota<Limit>;

/// Amount taken from a quota; returned on drop.
pub(crate) type QuotaGuard = pilotfish_admission::QuotaGuard<Limit>;

impl From<Exceeded<Limit>> for LimitExceeded {
    fn from(Exceeded { limit, asked, allowed }: Exceeded<Limit>) -> Self {
        Self { limit, asked, allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_limits_are_different() {
        let names: std::collections::BTreeSet<_> = Limit::ALL.iter().map(|limit| limit.as_str()).collect();
        assert_eq!(names.len(), Limit::ALL.len());
    }
}
