//! Memory accounting of subscribed names and of nodes: estimated sizes, and the client that each is charged
//! to.
//!
//! A name is stored once for each type and view, independent of the number of subscribed streams. It is
//! charged to the client that first asked for it, until no stream subscribes to it. A shared subscription is
//! charged to the client that created it.
//!
//! ```text
//! all clients ─┬─ an identity
//!              └─ clients without one ─── an address
//! ```
//!
//! Streams with many names leave a quarter of each budget to those with few, and large nodes leave a quarter
//! to small ones. Names and nodes have separate budgets.

use crate::limits::{Limit, LimitExceeded, Quota, QuotaGuard, StreamLimits};
use crate::source::PeerInfo;
use pilotfish_admission::{Quotas, network_of};
use pilotfish_proto::ResourceType;
use std::net::IpAddr;
use std::sync::Arc;

/// Estimated bytes for a name in a subscription, beside its text: entries of the subscription and of the
/// index from names to subscriptions.
const SUBSCRIBED: usize = 96;
/// Estimated bytes for a new `Endpoint` name without other subscribers: in the index, in the source, and as
/// an empty resource.
const ENDPOINT: usize = 512;
/// Estimated bytes for a new name of other types, of which the source keeps more.
const OTHER: usize = 2_048;
/// Number of copies of a name's text.
const COPIES: usize = 4;

/// Estimated bytes for a resource of `initial_resource_versions`, beside the text of its name.
const LISTED: usize = 192;
/// Estimated bytes for a name that was requested again and has not been answered.
const ASKED: usize = 64;

/// Estimated bytes for the resources that a client lists as known, until its request has been answered.
pub(crate) fn listed_bytes(names: usize, text: usize) -> usize {
    names.saturating_mul(LISTED).saturating_add(text)
}

/// Estimated bytes for names that a client requests again, until they have been answered.
pub(crate) fn asked_bytes(names: usize) -> usize {
    names.saturating_mul(ASKED)
}

/// Estimated bytes for a subscription to that many names, if no other stream shares it.
pub(crate) fn subscription_bytes(names: usize) -> usize {
    names.saturating_mul(SUBSCRIBED)
}

/// Estimated bytes for a name without other subscribers.
pub(crate) fn name_bytes(ty: ResourceType, name: &str) -> usize {
    let kept = if ty == ResourceType::Endpoint { ENDPOINT } else { OTHER };
    kept + COPIES * name.len()
}

/// Owner of budgets: a client's identity, or the network of its address without one.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    Identity(String),
    Address(IpAddr),
}

impl Owner {
    pub(crate) fn new(identity: Option<String>, peer: &PeerInfo) -> Self {
        identity.map_or_else(|| Self::Address(network_of(peer.address.ip())), Self::Identity)
    }
}

/// Memory budgets of all clients, by identity or address.
#[derive(Debug)]
pub(crate) struct ClientQuotas {
    identities: Quotas<String, Limit>,
    addresses: Quotas<IpAddr, Limit>,
}

impl ClientQuotas {
    pub(crate) fn of_names(limits: &StreamLimits) -> Self {
        Self::new([
            (Limit::AllSubscriptionBytes, limits.all_subscription_bytes),
            (Limit::UnidentifiedSubscriptionBytes, limits.unidentified_subscription_bytes),
            (Limit::AddressSubscriptionBytes, limits.address_subscription_bytes),
            (Limit::IdentitySubscriptionBytes, limits.identity_subscription_bytes),
        ])
    }

    pub(crate) fn of_nodes(limits: &StreamLimits) -> Self {
        Self::new([
            (Limit::AllNodeBytes, limits.all_node_bytes),
            (Limit::UnidentifiedNodeBytes, limits.unidentified_node_bytes),
            (Limit::AddressNodeBytes, limits.address_node_bytes),
            (Limit::IdentityNodeBytes, limits.identity_node_bytes),
        ])
    }

    fn new([all, unidentified, address, identity]: [(Limit, usize); 4]) -> Self {
        let all = Quota::new(all.0, all.1);
        let unidentified = all.share(unidentified.0, unidentified.1);
        Self {
            identities: Quotas::new(all, identity.0, identity.1),
            addresses: Quotas::new(unidentified, address.0, address.1),
        }
    }

    pub(crate) fn of(&self, owner: &Owner) -> Arc<Quota> {
        match owner {
            Owner::Identity(identity) => self.identities.of(identity.clone()),
            Owner::Address(address) => self.addresses.of(*address),
        }
    }

    /// Estimated bytes of all clients.
    pub(crate) fn used(&self) -> usize {
        self.identities.whole().used()
    }
}

/// Share of its budget that a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but a quarter: the stream has many names.
    Most,
    All,
    /// More than its limit: the client did not ask for it.
    Beyond,
}

/// Quota that names are charged to, and the share that they may use.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) budget: Arc<Quota>,
    pub(crate) part: Part,
}

impl Account {
    /// All of the budget for a `few` names, and three quarters for many.
    pub(crate) fn for_few(budget: Arc<Quota>, few: bool) -> Self {
        Self { budget, part: if few { Part::All } else { Part::Most } }
    }

    /// Account for a request with that many new names: restricted to [`Part::Most`] if they are more than
    /// `few`.
    pub(crate) fn of_many(&self, names: usize, few: usize) -> Self {
        let part = if names > few { Part::Most } else { self.part };
        Self { part, ..self.clone() }
    }

    /// Charges `bytes` until the returned guard is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Result<QuotaGuard, LimitExceeded> {
        self.take(bytes)?;
        Ok(QuotaGuard::of_taken(&self.budget, bytes))
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<(), LimitExceeded> {
        match self.part {
            Part::Most => self.budget.take_leaving_a_quarter(bytes)?,
            Part::All => self.budget.take(bytes)?,
            Part::Beyond => self.budget.overdraw(bytes),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> PeerInfo {
        PeerInfo { address: address.parse().unwrap(), ..PeerInfo::default() }
    }

    #[test]
    fn clients_without_identity_share_a_budget_by_address() {
        let limits = StreamLimits {
            all_subscription_bytes: 1_000,
            unidentified_subscription_bytes: 500,
            address_subscription_bytes: 300,
            identity_subscription_bytes: 600,
            ..StreamLimits::default()
        };
        let budgets = ClientQuotas::of_names(&limits);
        let of = |identity: Option<&str>, address| {
            budgets.of(&Owner::new(identity.map(str::to_owned), &peer(address)))
        };
        let limit = |budget: &Arc<Quota>, bytes| {
            Account { budget: Arc::clone(budget), part: Part::All }.take(bytes).err().map(|error| error.limit)
        };
        let one = of(None, "192.0.2.1:1");
        assert_eq!(limit(&one, 300), None);
        let same = of(None, "192.0.2.1:2");
        assert_eq!(limit(&same, 1), Some(Limit::AddressSubscriptionBytes));
        let other = of(None, "192.0.2.2:1");
        assert_eq!(limit(&other, 201), Some(Limit::UnidentifiedSubscriptionBytes));
        let known = of(Some("a"), "192.0.2.1:3");
        assert_eq!(limit(&known, 601), Some(Limit::IdentitySubscriptionBytes));
        assert_eq!(limit(&known, 600), None);
        let another = of(Some("b"), "192.0.2.1:4");
        assert_eq!(limit(&another, 101), Some(Limit::AllSubscriptionBytes));
        assert_eq!(budgets.used(), 900);
    }
}
