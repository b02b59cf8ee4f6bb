//! For whom the names of subscriptions and the nodes are counted that are kept, and how much memory they count as.
//!
//! A name is kept once for a type and a view, however many streams subscribe to it. It counts for the client that asked for it first, until
//! nobody subscribes to it any more. A subscription that is shared by all streams that have it counts for the one that made it.
//!
//! ```text
//! all clients ─┬─ an identity
//!              └─ clients without one ─── an address
//! ```
//!
//! A stream that asks for many names leaves a quarter of each budget to those that ask for few, and a large node to small ones. Names and nodes have
//! budgets of their own.

use crate::limits::{Budget, Limit, LimitExceeded, StreamLimits, Taken};
use crate::source::PeerInfo;
use pilotfish_identity::{Shares, network_of};
use pilotfish_proto::ResourceType;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a name of a subscription counts as, beside its text: its places in the subscription and in the index from names to subscriptions.
const SUBSCRIBED: usize = 96;
/// What a name counts as that nobody has subscribed to yet: in the index, in the source, and as an empty resource.
const ENDPOINT: usize = 512;
/// The same for types whose source keeps more of a name.
const OTHER: usize = 2_048;
/// How often the text of a name is kept.
const COPIES: usize = 4;

/// What a resource counts as that a client says it has, beside the text of its name.
const LISTED: usize = 192;
/// What a name counts as that was asked for once more and is not answered yet.
const ASKED: usize = 64;

/// What resources count as that a client says it has, until it has been answered.
pub(crate) fn listed_bytes(names: usize, text: usize) -> usize {
    names.saturating_mul(LISTED).saturating_add(text)
}

/// What names count as that a client asks for again, until it has been answered.
pub(crate) fn asked_bytes(names: usize) -> usize {
    names.saturating_mul(ASKED)
}

/// What a subscription to that many names counts as, if no other stream has it.
pub(crate) fn subscription_bytes(names: usize) -> usize {
    names.saturating_mul(SUBSCRIBED)
}

/// What a name counts as that nobody else subscribes to.
pub(crate) fn name_bytes(ty: ResourceType, name: &str) -> usize {
    let kept = if ty == ResourceType::Endpoint { ENDPOINT } else { OTHER };
    kept + COPIES * name.len()
}

/// Who a client is, for budgets: its identity, or else its address.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    Identity(String),
    Address(String),
}

impl Owner {
    pub(crate) fn new(identity: Option<String>, peer: &PeerInfo) -> Self {
        identity.map_or_else(
            || {
                let address = peer.address.parse::<SocketAddr>();
                let network = address.map(|known| network_of(known.ip()).to_string());
                Self::Address(network.unwrap_or_else(|_| peer.address.clone()))
            },
            Self::Identity,
        )
    }
}

/// The budgets of all clients for something.
#[derive(Debug)]
pub(crate) struct ClientBudgets {
    identities: Shares<String, Limit>,
    addresses: Shares<String, Limit>,
}

impl ClientBudgets {
    /// For the names of subscriptions.
    pub(crate) fn of_names(limits: &StreamLimits) -> Self {
        Self::new([
            (Limit::AllSubscriptionBytes, limits.all_subscription_bytes),
            (Limit::UnidentifiedSubscriptionBytes, limits.unidentified_subscription_bytes),
            (Limit::AddressSubscriptionBytes, limits.address_subscription_bytes),
            (Limit::IdentitySubscriptionBytes, limits.identity_subscription_bytes),
        ])
    }

    /// For nodes.
    pub(crate) fn of_nodes(limits: &StreamLimits) -> Self {
        Self::new([
            (Limit::AllNodeBytes, limits.all_node_bytes),
            (Limit::UnidentifiedNodeBytes, limits.unidentified_node_bytes),
            (Limit::AddressNodeBytes, limits.address_node_bytes),
            (Limit::IdentityNodeBytes, limits.identity_node_bytes),
        ])
    }

    fn new([all, unidentified, address, identity]: [(Limit, usize); 4]) -> Self {
        let all = Budget::new(all.0, all.1);
        let unidentified = all.share(unidentified.0, unidentified.1);
        Self {
            identities: Shares::new(all, identity.0, identity.1),
            addresses: Shares::new(unidentified, address.0, address.1),
        }
    }

    pub(crate) fn of(&self, owner: &Owner) -> Arc<Budget> {
        match owner {
            Owner::Identity(identity) => self.identities.of(identity.clone()),
            Owner::Address(address) => self.addresses.of(address.clone()),
        }
    }

    /// What is counted of all clients.
    pub(crate) fn used(&self) -> usize {
        self.identities.whole().used()
    }
}

/// How much of its budget a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but a quarter: the stream has many names.
    Most,
    /// All of it.
    All,
    /// More than there is: nobody asked for it.
    Beyond,
}

/// For whom something counts, such as a request's names.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) budget: Arc<Budget>,
    pub(crate) part: Part,
}

impl Account {
    /// All of the budget for what is `few`, and else most of it.
    pub(crate) fn for_few(budget: Arc<Budget>, few: bool) -> Self {
        Self { budget, part: if few { Part::All } else { Part::Most } }
    }

    /// The same where so many names more are asked for than are subscribed to.
    pub(crate) fn of_many(&self, names: usize, few: usize) -> Self {
        let part = if names > few { Part::Most } else { self.part };
        Self { part, ..self.clone() }
    }

    /// Takes so much until what is returned is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Taken, LimitExceeded> {
        self.take(bytes)?;
        Ok(Taken::already(&self.budget, bytes))
    }

    /// Takes so much.
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
        PeerInfo { address: address.to_owned(), ..PeerInfo::default() }
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
        let budgets = ClientBudgets::of_names(&limits);
        let of = |identity: Option<&str>, address| {
            budgets.of(&Owner::new(identity.map(str::to_owned), &peer(address)))
        };
        let limit = |budget: &Arc<Budget>, bytes| {
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
