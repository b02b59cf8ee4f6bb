//! What a client may make the server keep or do. Each limit is checked before the work that it limits, and an error names it.

use pilotfish_identity::Exceeded;
use std::fmt;
use std::sync::Arc;
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
    /// What the names of all streams count as ([`StreamLimits::all_subscription_bytes`]).
    AllSubscriptionBytes,
    /// The same, of all clients without an identity ([`StreamLimits::unidentified_subscription_bytes`]).
    UnidentifiedSubscriptionBytes,
    /// The same, of those at one address ([`StreamLimits::address_subscription_bytes`]).
    AddressSubscriptionBytes,
    /// The same, of one identity ([`StreamLimits::identity_subscription_bytes`]).
    IdentitySubscriptionBytes,
    /// Bytes of a node ([`NodeLimits::bytes`]).
    NodeBytes,
    /// What is kept of the nodes of all streams ([`StreamLimits::all_node_bytes`]).
    AllNodeBytes,
    /// The same, of all clients without an identity ([`StreamLimits::unidentified_node_bytes`]).
    UnidentifiedNodeBytes,
    /// The same, of those at one address ([`StreamLimits::address_node_bytes`]).
    AddressNodeBytes,
    /// The same, of one identity ([`StreamLimits::identity_node_bytes`]).
    IdentityNodeBytes,
    /// Bytes of a node's id ([`NodeLimits::id_bytes`]).
    NodeIdBytes,
    /// Values in a node's metadata ([`NodeLimits::values`]).
    NodeValues,
    /// How deep a node's metadata is nested ([`NodeLimits::depth`]).
    NodeDepth,
    /// Addresses in a node's metadata; the source of the resources limits them.
    NodeAddresses,
    /// Labels in a node's metadata; the source of the resources limits them.
    NodeLabels,
    /// Different values of what nodes claim and nothing checks; the source of the resources limits them.
    NodeClaims,
    /// Bytes of incomplete requests of one connection ([`ServerConfig::incomplete_bytes`](crate::ServerConfig::incomplete_bytes)).
    IncompleteBytes,
    /// Bytes of incomplete requests of all connections ([`ServerConfig::all_incomplete_bytes`](crate::ServerConfig::all_incomplete_bytes)).
    AllIncompleteBytes,
    /// The same, of all connections of one address ([`ServerConfig::address_incomplete_bytes`](crate::ServerConfig::address_incomplete_bytes)).
    AddressIncompleteBytes,
    /// Bytes before a client's node ([`ServerConfig::first_bytes`](crate::ServerConfig::first_bytes)).
    FirstBytes,
    /// Streams of a connection whose clients are not identified ([`ServerConfig::max_unidentified`](crate::ServerConfig::max_unidentified)).
    Unidentified,
    /// Bytes of the headers of these streams ([`ServerConfig::unidentified_bytes`](crate::ServerConfig::unidentified_bytes)).
    UnidentifiedBytes,
    /// Tokens of one address that are under review; the authenticator limits them.
    AddressReviews,
    /// Calls of health and reflection on a connection ([`ServerConfig::max_calls`](crate::ServerConfig::max_calls)).
    Calls,
    /// The same, of a listener ([`ServerConfig::all_calls`](crate::ServerConfig::all_calls)).
    AllCalls,
    /// The same, of one address ([`ServerConfig::address_calls`](crate::ServerConfig::address_calls)).
    AddressCalls,
    /// Bytes that such a call sends ([`ServerConfig::call_bytes`](crate::ServerConfig::call_bytes)).
    CallBytes,
    /// Requests of a stream in a second ([`ServerConfig::requests_per_second`](crate::ServerConfig::requests_per_second)): more wait.
    RequestsPerSecond,
    /// Frames of a connection in a second ([`ServerConfig::frames_per_second`](crate::ServerConfig::frames_per_second)): more wait.
    FramesPerSecond,
    /// Open connections of a listener ([`ServerConfig::max_connections`](crate::ServerConfig::max_connections)).
    Connections,
    /// Open connections of an address ([`ServerConfig::address_connections`](crate::ServerConfig::address_connections)).
    AddressConnections,
    /// Open streams of a listener ([`ServerConfig::max_streams`](crate::ServerConfig::max_streams)).
    Streams,
    /// Open streams of an address ([`ServerConfig::address_streams`](crate::ServerConfig::address_streams)).
    AddressStreams,
    /// Open streams of an identity ([`ServerConfig::identity_streams`](crate::ServerConfig::identity_streams)).
    IdentityStreams,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 36] = [
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
        Self::Calls,
        Self::AllCalls,
        Self::AddressCalls,
        Self::CallBytes,
        Self::RequestsPerSecond,
        Self::FramesPerSecond,
        Self::Connections,
        Self::AddressConnections,
        Self::Streams,
        Self::AddressStreams,
        Self::IdentityStreams,
    ];

    /// Its name: `subscriptions`.
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
            Self::Calls => "calls",
            Self::AllCalls => "all-calls",
            Self::AddressCalls => "address-calls",
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

    /// What is counted, for messages.
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
            Self::Calls => "calls of health and reflection on a connection",
            Self::AllCalls => "calls of health and reflection of a listener",
            Self::AddressCalls => "calls of health and reflection of an address",
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

    /// Whether `asked` is within `allowed`.
    ///
    /// # Errors
    /// When it is more.
    pub fn check(self, asked: usize, allowed: usize) -> Result<(), LimitExceeded> {
        if asked <= allowed { Ok(()) } else { Err(LimitExceeded { limit: self, asked, allowed }) }
    }
}

/// A client asks for more than a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LimitExceeded {
    /// The limit.
    pub limit: Limit,
    /// What the client asks for.
    pub asked: usize,
    /// What it may ask for.
    pub allowed: usize,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, asked, allowed } = self;
        write!(f, "too many {}: {asked}, and at most {allowed} are allowed", limit.unit())?;
        write!(f, " (limit {})", limit.as_str())
    }
}

/// How much one stream may subscribe to, and how long it waits for its client's ACKs.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Names that one stream subscribes to or says it has, all types together.
    pub subscriptions: usize,
    /// Bytes of those names.
    pub subscription_bytes: usize,
    /// What all names count as that streams subscribe to: each once by type and view, with what is kept for it, and each subscription once.
    /// This limit and the next three leave a quarter to streams with at most [`Self::few_subscriptions`].
    pub all_subscription_bytes: usize,
    /// The same, of those that clients without an identity asked for first.
    pub unidentified_subscription_bytes: usize,
    /// The same, of those clients at one address.
    pub address_subscription_bytes: usize,
    /// The same, of clients of one identity.
    pub identity_subscription_bytes: usize,
    /// As many names of a stream are few.
    pub few_subscriptions: usize,
    /// What is kept of the nodes of all streams, in bytes. This limit and the next three leave a quarter to nodes of at most
    /// [`Self::small_node`].
    pub all_node_bytes: usize,
    /// The same, of clients without an identity.
    pub unidentified_node_bytes: usize,
    /// The same, of those clients at one address.
    pub address_node_bytes: usize,
    /// The same, of clients of one identity.
    pub identity_node_bytes: usize,
    /// So many bytes of a node are few.
    pub small_node: usize,
    /// Requests that are read of a client that takes no responses; more wait until it does.
    pub blocked_requests: usize,
    /// What a node may hold.
    pub node: NodeLimits,
    /// How long listeners and routes wait for new clusters to be acknowledged and to have their endpoints.
    pub warming: Duration,
    /// How long removed clusters are kept for listeners and routes to be acknowledged.
    pub draining: Duration,
    /// How long a client that resumed may take to acknowledge its clusters before its endpoints are sent once more: Envoy
    /// holds that ACK back while a cluster waits for endpoints.
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
    /// The same with so many bytes for the names of all streams, and the usual parts of them for clients without identity, an address of
    /// theirs, and an identity.
    #[must_use]
    pub fn with_all_subscription_bytes(self, all: usize) -> Self {
        Self {
            all_subscription_bytes: all,
            // Strangers and one identity together have a quarter: no more than an attack may need. Those of one identity are mostly of one namespace and
            // share their views.
            unidentified_subscription_bytes: all / 32 * 5,
            address_subscription_bytes: all / 8,
            identity_subscription_bytes: all / 32 * 3,
            ..self
        }
    }

    /// The same with so many bytes for the nodes of all streams, and the usual parts of them.
    #[must_use]
    pub fn with_all_node_bytes(self, all: usize) -> Self {
        Self {
            all_node_bytes: all,
            unidentified_node_bytes: all / 4,
            // A request with a node, and what is read of it, are in memory as well until the node is kept.
            address_node_bytes: all / 16,
            identity_node_bytes: all / 4,
            ..self
        }
    }
}

/// How much a node may hold. Checked on its encoded form, before anything of it is kept.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// Bytes of the encoded node.
    pub bytes: usize,
    /// Bytes of its id, its cluster, and each part of its locality.
    pub id_bytes: usize,
    /// Values in its metadata, at all levels together.
    pub values: usize,
    /// How deep its metadata is nested.
    pub depth: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { bytes: 512 << 10, id_bytes: 1_024, values: 4_096, depth: 16 }
    }
}

/// What several clients share of something limited.
pub(crate) type Budget = pilotfish_identity::Budget<Limit>;

/// What was taken of a budget; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Budget>, usize);

impl Taken {
    pub(crate) fn of(budget: &Arc<Budget>, amount: usize) -> Result<Self, LimitExceeded> {
        budget.take(amount)?;
        Ok(Self::already(budget, amount))
    }

    /// Of so much that was taken before.
    pub(crate) fn already(budget: &Arc<Budget>, amount: usize) -> Self {
        Self(Arc::clone(budget), amount)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.give(self.1);
    }
}

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
