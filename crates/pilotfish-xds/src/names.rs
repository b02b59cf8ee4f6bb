//! For whom the names of subscriptions are counted, and how much memory they count as.
//!
//! A name is kept once for a type and a view, however many streams subscribe to it. It counts for the client that asked for it first, until
//! nobody subscribes to it any more. A subscription that is shared by all streams that have it counts for the one that made it.
//!
//! ```text
//! all clients ─┬─ an identity
//!              └─ clients without one ─── an address
//! ```
//!
//! A stream that asks for many names leaves a quarter of each budget to those that ask for few.

use crate::limits::{Budget, Limit, LimitExceeded, StreamLimits};
use crate::source::PeerInfo;
use pilotfish_identity::Shares;
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

/// What a subscription to that many names counts as, if no other stream has it.
pub(crate) fn subscription_bytes(names: usize) -> usize {
    names.saturating_mul(SUBSCRIBED)
}

/// What a name counts as that nobody else subscribes to.
pub(crate) fn name_bytes(ty: ResourceType, name: &str) -> usize {
    let kept = if ty == ResourceType::Endpoint { ENDPOINT } else { OTHER };
    kept + COPIES * name.len()
}

/// The budgets of all clients.
#[derive(Debug)]
pub(crate) struct NameBudgets {
    identities: Shares<String, Limit>,
    addresses: Shares<String, Limit>,
}

impl NameBudgets {
    pub(crate) fn new(limits: &StreamLimits) -> Self {
        let all = Budget::new(Limit::AllSubscriptionBytes, limits.all_subscription_bytes);
        let unidentified =
            all.share(Limit::UnidentifiedSubscriptionBytes, limits.unidentified_subscription_bytes);
        Self {
            identities: Shares::new(
                all,
                Limit::IdentitySubscriptionBytes,
                limits.identity_subscription_bytes,
            ),
            addresses: Shares::new(
                unidentified,
                Limit::AddressSubscriptionBytes,
                limits.address_subscription_bytes,
            ),
        }
    }

    /// The budget of a client: of its identity, or else of its address.
    pub(crate) fn of(&self, identity: Option<String>, peer: &PeerInfo) -> Arc<Budget> {
        match identity {
            Some(identity) => self.identities.of(identity),
            None => {
                let address = peer.address.parse::<SocketAddr>();
                self.addresses
                    .of(address.map_or_else(|_| peer.address.clone(), |known| known.ip().to_string()))
            }
        }
    }

    /// What all names count as.
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

/// For whom a request's names count.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) budget: Arc<Budget>,
    pub(crate) part: Part,
}

impl Account {
    /// Takes so much for names.
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
        let budgets = NameBudgets::new(&limits);
        let limit = |budget: &Arc<Budget>, bytes| {
            Account { budget: Arc::clone(budget), part: Part::All }.take(bytes).err().map(|error| error.limit)
        };
        let one = budgets.of(None, &peer("192.0.2.1:1"));
        assert_eq!(limit(&one, 300), None);
        let same = budgets.of(None, &peer("192.0.2.1:2"));
        assert_eq!(limit(&same, 1), Some(Limit::AddressSubscriptionBytes));
        let other = budgets.of(None, &peer("192.0.2.2:1"));
        assert_eq!(limit(&other, 201), Some(Limit::UnidentifiedSubscriptionBytes));
        let known = budgets.of(Some("a".into()), &peer("192.0.2.1:3"));
        assert_eq!(limit(&known, 601), Some(Limit::IdentitySubscriptionBytes));
        assert_eq!(limit(&known, 600), None);
        let another = budgets.of(Some("b".into()), &peer("192.0.2.1:4"));
        assert_eq!(limit(&another, 101), Some(Limit::AllSubscriptionBytes));
        assert_eq!(budgets.used(), 900);
    }
}
