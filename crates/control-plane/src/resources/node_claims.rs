//! Limits on unverified claims of nodes that give a client its own resources.
//!
//! Proxies with equal views share resources. Most facets of a view have few values, or cost little. The
//! claims below can have any value, and each value would cost all resources of a proxy, so the number of
//! different values is limited.
//!
//! ```text
//! clients that proved an identity ─── each identity        the port with TLS
//! strangers ───────────────────────── each address         the port without
//! ```
//!
//! A value counts once, for the client that claimed it first, until no client claims it any more.

use super::hooks::{ClientState, ConnectHook, ConnectingClient};
use crate::mesh::with_mesh;
use parking_lot::Mutex;
use pilotfish_admission::network_of;
use pilotfish_model::{Namespace, World};
use pilotfish_translate::Proxy;
use pilotfish_xds::{ConnectError, Limit, LimitExceeded, PeerInfo};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Limit on the different values of a kind (limit `node-claims`), separately for all clients with a proven
/// identity and for all without.
pub const MAX_NODE_CLAIMS: usize = 64;
/// Limit on the different values of a kind for one identity, or for clients without identity at one address.
const MAX_OF_A_PEER: usize = MAX_NODE_CLAIMS / 2;

/// Claim of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NodeClaim {
    /// Paths of certificate files (`TLS_CLIENT_*`), which are written into every cluster.
    Certificates([String; 3]),
    /// Networks whose endpoints the proxy requests (`REQUESTED_NETWORK_VIEW`).
    Networks(String),
    /// Namespace without objects that no identity proves.
    Namespace(Namespace),
}

impl NodeClaim {
    /// Returns the claims of a proxy.
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

/// Group of clients to which the limit of a value applies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Payer {
    /// Clients with a proven identity; `None` for all of them.
    Identity(Option<Arc<str>>),
    /// Clients without identity in a network; `None` for all addresses.
    Address(Option<IpAddr>),
}

impl Payer {
    fn of(peer: &PeerInfo) -> Self {
        match peer.identities.first() {
            Some(identity) => Self::Identity(Some(identity.as_str().into())),
            None => Self::Address(Some(network_of(peer.address.ip()))),
        }
    }

    /// Returns the group of all clients with, or without, an identity.
    fn all(&self) -> Self {
        match self {
            Self::Identity(_) => Self::Identity(None),
            Self::Address(_) => Self::Address(None),
        }
    }
}

/// Claims of connected clients, with their counts.
#[derive(Debug, Default)]
pub struct NodeClaims(Arc<Mutex<Counts>>);

/// Kind of a claim, without its value.
type Kind = std::mem::Discriminant<NodeClaim>;

#[derive(Debug, Default)]
struct Counts {
    clients: HashMap<NodeClaim, Claimed>,
    /// Number of different values by kind and group.
    different: HashMap<(Kind, Payer), usize>,
}

/// Value that clients claim.
#[derive(Debug)]
struct Claimed {
    clients: usize,
    payer: Payer,
}

/// Claims of a connected client; released when dropped.
#[derive(Debug)]
struct ClaimedByNode {
    claims: Vec<NodeClaim>,
    counts: Arc<Mutex<Counts>>,
}

impl NodeClaims {
    /// Enters the claims of a proxy.
    ///
    /// # Errors
    /// When a claim would exceed the limit on different values.
    fn enter(&self, proxy: &Proxy, peer: &PeerInfo, world: &World) -> Result<ClaimedByNode, LimitExceeded> {
        let mut entered = ClaimedByNode { claims: Vec::new(), counts: self.0.clone() };
        let payer = Payer::of(peer);
        for claim in NodeClaim::of(proxy, world) {
            self.0.lock().enter(&claim, &payer)?;
            // Pushed one by one, so that an error releases the claims entered before.
            entered.claims.push(claim);
        }
        Ok(entered)
    }
}

impl ConnectHook for NodeClaims {
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
        let entered = self.enter(client.proxy, client.peer, client.world)?;
        Ok((!entered.claims.is_empty()).then(|| Box::new(entered) as Box<dyn ClientState>))
    }
}

impl ClientState for ClaimedByNode {}

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
        PeerInfo { address: format!("192.0.2.{n}:{}", 1_000 + n).parse().unwrap(), ..PeerInfo::default() }
    }

    fn known(account: usize) -> PeerInfo {
        let identities = vec![format!("spiffe://cluster.local/ns/shop/sa/{account}")];
        PeerInfo { address: "192.0.2.1:1".parse().unwrap(), identities, ..PeerInfo::default() }
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
