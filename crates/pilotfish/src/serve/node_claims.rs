//! What nodes claim that nothing checks, and that gives each client resources of its own.
//!
//! Proxies share what is computed for equal views. Of most facets there are few values, or each is worth little. Of these a client can
//! invent as many as it likes, and each would cost as much as all that a proxy has: so only so many different ones count at a time.
//!
//! ```text
//! clients that proved an identity ─── each identity        the port with TLS
//! strangers ───────────────────────── each address         the port without
//! ```
//!
//! A value counts once, for the client that claimed it first, until nobody claims it any more.

use super::tls::with_mesh;
use parking_lot::Mutex;
use pilotfish_identity::network_of;
use pilotfish_model::{Namespace, World};
use pilotfish_translate::Proxy;
use pilotfish_xds::{Limit, LimitExceeded, PeerInfo};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The most different values of one kind at a time (limit `node-claims`): of all clients that proved an identity, and of all strangers.
pub(crate) const MAX_NODE_CLAIMS: usize = 64;
/// The same, of one identity, or of strangers at one address.
pub(crate) const MAX_OF_A_PEER: usize = MAX_NODE_CLAIMS / 2;

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NodeClaim {
    /// Paths of certificate files (`TLS_CLIENT_*`), which are written into every cluster.
    Certificates([String; 3]),
    /// The networks whose endpoints it wants to see (`REQUESTED_NETWORK_VIEW`).
    Networks(String),
    /// A namespace that no identity proves and that has nothing.
    Namespace(Namespace),
}

impl NodeClaim {
    /// The claims of a proxy.
    fn of(proxy: &Proxy, world: &World) -> Vec<Self> {
        let files = ["TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_KEY", "TLS_CLIENT_ROOT_CERT"];
        let files = files.map(|name| proxy.meta(name).to_owned());
        let networks = proxy.meta("REQUESTED_NETWORK_VIEW").to_owned();
        let certificates = files.iter().any(|path| !path.is_empty()).then_some(Self::Certificates(files));
        let networks = (!networks.is_empty()).then_some(Self::Networks(networks));
        let is_proven = || {
            let identity = proxy.identity.as_ref();
            identity.is_some_and(|identity| with_mesh(world, |mesh| identity.is_of_mesh(mesh)))
        };
        let is_invented = || !is_proven() && !world.has_namespace(&proxy.namespace);
        let namespace = is_invented().then(|| Self::Namespace(proxy.namespace.clone()));
        [certificates, networks, namespace].into_iter().flatten().collect()
    }
}

/// For whom a value counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Payer {
    /// Clients that proved an identity; `None`: all of them.
    Identity(Option<Arc<str>>),
    /// Those that proved none; `None`: at all addresses.
    Address(Option<Arc<str>>),
}

impl Payer {
    fn of(peer: &PeerInfo) -> Self {
        match peer.identities.first() {
            Some(identity) => Self::Identity(Some(identity.as_str().into())),
            None => {
                let address = peer.address.parse::<SocketAddr>();
                let address =
                    address.map_or_else(|_| peer.address.clone(), |known| network_of(known.ip()).to_string());
                Self::Address(Some(address.into()))
            }
        }
    }

    /// All clients of its sort.
    fn all(&self) -> Self {
        match self {
            Self::Identity(_) => Self::Identity(None),
            Self::Address(_) => Self::Address(None),
        }
    }
}

/// How many connected clients claim what.
#[derive(Debug, Default)]
pub(crate) struct NodeClaims(Arc<Mutex<Counts>>);

/// A kind of claims.
type Kind = std::mem::Discriminant<NodeClaim>;

#[derive(Debug, Default)]
struct Counts {
    clients: HashMap<NodeClaim, Claimed>,
    /// How many different values count for whom.
    different: HashMap<(Kind, Payer), usize>,
}

/// A value that is claimed.
#[derive(Debug)]
struct Claimed {
    clients: usize,
    payer: Payer,
}

/// The claims of one client, for as long as it is connected.
#[derive(Debug)]
pub(crate) struct ClaimedByNode {
    claims: Vec<NodeClaim>,
    counts: Arc<Mutex<Counts>>,
}

impl NodeClaims {
    /// Takes up what a proxy of that peer claims.
    ///
    /// # Errors
    /// When too many clients claim too many different things of a kind already, and this is one more.
    pub(crate) fn enter(
        &self,
        proxy: &Proxy,
        peer: &PeerInfo,
        world: &World,
    ) -> Result<ClaimedByNode, LimitExceeded> {
        let mut entered = ClaimedByNode { claims: Vec::new(), counts: self.0.clone() };
        let payer = Payer::of(peer);
        for claim in NodeClaim::of(proxy, world) {
            self.0.lock().enter(&claim, &payer)?;
            // What was entered before an error leaves with it.
            entered.claims.push(claim);
        }
        Ok(entered)
    }
}

impl Counts {
    fn enter(&mut self, claim: &NodeClaim, payer: &Payer) -> Result<(), LimitExceeded> {
        if let Some(claimed) = self.clients.get_mut(claim) {
            claimed.clients += 1;
            return Ok(());
        }
        let kind = std::mem::discriminant(claim);
        let budgets = [(payer.clone(), MAX_OF_A_PEER), (payer.all(), MAX_NODE_CLAIMS)];
        for (payer, allowed) in &budgets {
            let different = self.different.get(&(kind, payer.clone())).copied().unwrap_or_default();
            Limit::NodeClaims.check(different + 1, *allowed)?;
        }
        for (payer, _) in budgets {
            *self.different.entry((kind, payer)).or_default() += 1;
        }
        self.clients.insert(claim.clone(), Claimed { clients: 1, payer: payer.clone() });
        Ok(())
    }

    fn leave(&mut self, claim: &NodeClaim) {
        let Some(claimed) = self.clients.get_mut(claim) else { return };
        claimed.clients -= 1;
        if claimed.clients > 0 {
            return;
        }
        let Some(Claimed { payer, .. }) = self.clients.remove(claim) else { return };
        let kind = std::mem::discriminant(claim);
        for payer in [payer.all(), payer] {
            let key = (kind, payer);
            let Some(different) = self.different.get_mut(&key) else { continue };
            *different -= 1;
            if *different == 0 {
                self.different.remove(&key);
            }
        }
    }
}

impl Drop for ClaimedByNode {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        self.claims.iter().for_each(|claim| counts.leave(claim));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::core::v3::Node;
    use prost_types::{Struct, Value, value::Kind};

    fn proxy(namespace: &str, metadata: &[(&str, String)]) -> Proxy {
        let value = |text: &String| Value { kind: Some(Kind::StringValue(text.clone())) };
        let fields = metadata.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
        let id = format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
        Proxy::from_node(&Node { id, metadata: Some(Struct { fields }), ..Node::default() }).unwrap()
    }

    /// What claims the value of a number.
    type Maker = (&'static str, fn(usize) -> Proxy);

    fn stranger(n: usize) -> PeerInfo {
        PeerInfo { address: format!("192.0.2.{n}:{}", 1_000 + n), ..PeerInfo::default() }
    }

    fn known(account: usize) -> PeerInfo {
        let identities = vec![format!("spiffe://cluster.local/ns/shop/sa/{account}")];
        PeerInfo { address: "192.0.2.1:1".into(), identities, ..PeerInfo::default() }
    }

    fn with_network(n: usize) -> Proxy {
        proxy("shop", &[("REQUESTED_NETWORK_VIEW", format!("net-{n}"))])
    }

    #[test]
    fn strangers_and_one_peer_leave_places_to_others() {
        let (claims, world) = (NodeClaims::default(), World::default());
        let enter = |n: usize, peer: &PeerInfo| claims.enter(&with_network(n), peer, &world);
        let mut held: Vec<_> = (0..MAX_OF_A_PEER).map(|n| enter(n, &stranger(1)).unwrap()).collect();
        let refused = enter(100, &stranger(1)).unwrap_err();
        assert_eq!((refused.limit, refused.allowed), (Limit::NodeClaims, MAX_OF_A_PEER));
        held.extend((MAX_OF_A_PEER..MAX_NODE_CLAIMS).map(|n| enter(n, &stranger(2)).unwrap()));
        assert_eq!(enter(100, &stranger(3)).unwrap_err().allowed, MAX_NODE_CLAIMS);
        // Whatever strangers hold, those that prove who they are have places of their own.
        held.extend((100..100 + MAX_OF_A_PEER).map(|n| enter(n, &known(1)).unwrap()));
        assert_eq!(enter(200, &known(1)).unwrap_err().allowed, MAX_OF_A_PEER);
        let gateway = enter(200, &known(2));
        assert!(gateway.is_ok());
        drop((held, gateway));
        let counts = claims.0.lock();
        assert!(counts.clients.is_empty() && counts.different.is_empty(), "{counts:?}");
    }

    #[test]
    fn only_so_many_invented_values_count_at_a_time() {
        let makers: [Maker; 3] = [
            ("files", |n| proxy("shop", &[("TLS_CLIENT_ROOT_CERT", format!("/{n}"))])),
            ("networks", with_network),
            ("namespaces", |n| proxy(&format!("none-{n}"), &[])),
        ];
        let (claims, world) = (NodeClaims::default(), World::default());
        // Of four addresses.
        let enter = |proxy: Proxy, n: usize| claims.enter(&proxy, &stranger(1 + n % 4), &world);
        for (kind, proxy) in makers {
            let mut held: Vec<_> = (1..MAX_NODE_CLAIMS).map(|n| enter(proxy(n), n).unwrap()).collect();
            // One is the namespace of those that claim something else.
            let more = enter(proxy(MAX_NODE_CLAIMS), 1);
            held.extend(more);
            let refused = enter(proxy(MAX_NODE_CLAIMS + 1), 1).unwrap_err();
            assert_eq!((refused.limit, refused.allowed), (Limit::NodeClaims, MAX_NODE_CLAIMS), "{kind}");
            // What somebody claims already costs nothing more, and what nobody claims any more is free.
            assert!(enter(proxy(1), 1).is_ok(), "{kind}");
            held.pop();
            assert!(enter(proxy(MAX_NODE_CLAIMS + 1), 1).is_ok(), "{kind}");
            drop(held);
            assert!(claims.0.lock().clients.is_empty(), "{kind}");
        }
    }

    #[test]
    fn a_namespace_that_an_identity_proves_is_no_claim() {
        let world = World::default();
        let known = proxy("shop", &[]).with_identities(["spiffe://cluster.local/ns/shop/sa/web"]).unwrap();
        assert!(NodeClaim::of(&known, &world).is_empty());
        let foreign = proxy("shop", &[]).with_identities(["spiffe://other.org/ns/shop/sa/web"]).unwrap();
        assert_eq!(NodeClaim::of(&foreign, &world), [NodeClaim::Namespace("shop".into())]);
        assert_eq!(NodeClaim::of(&proxy("shop", &[]), &world), [NodeClaim::Namespace("shop".into())]);
    }
}
