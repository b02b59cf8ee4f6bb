//! What nodes claim that nothing checks, and that gives each client resources of its own.
//!
//! Proxies share what is computed for equal views. Of most facets there are few values, or each is worth little. Of these a client can
//! invent as many as it likes, and each would cost as much as all that a proxy has: so only so many different ones count at a time.

use parking_lot::Mutex;
use pilotfish_model::{Namespace, World};
use pilotfish_translate::Proxy;
use pilotfish_xds::{Limit, LimitExceeded};
use std::collections::HashMap;
use std::sync::Arc;

/// The most different values of one kind at a time (limit `node-claims`).
pub(crate) const MAX_NODE_CLAIMS: usize = 64;

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
        let is_invented = || proxy.identity.is_none() && !world.has_namespace(&proxy.namespace);
        let namespace = is_invented().then(|| Self::Namespace(proxy.namespace.clone()));
        [certificates, networks, namespace].into_iter().flatten().collect()
    }
}

/// How many connected clients claim what.
#[derive(Debug, Default)]
pub(crate) struct NodeClaims(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    clients: HashMap<NodeClaim, usize>,
    different: HashMap<std::mem::Discriminant<NodeClaim>, usize>,
}

/// The claims of one client, for as long as it is connected.
#[derive(Debug)]
pub(crate) struct ClaimedByNode {
    claims: Vec<NodeClaim>,
    counts: Arc<Mutex<Counts>>,
}

impl NodeClaims {
    /// Takes up what a proxy claims.
    ///
    /// # Errors
    /// When too many clients claim too many different things of a kind already, and this is one more.
    pub(crate) fn enter(&self, proxy: &Proxy, world: &World) -> Result<ClaimedByNode, LimitExceeded> {
        let mut entered = ClaimedByNode { claims: Vec::new(), counts: self.0.clone() };
        for claim in NodeClaim::of(proxy, world) {
            self.0.lock().enter(&claim)?;
            // What was entered before an error leaves with it.
            entered.claims.push(claim);
        }
        Ok(entered)
    }
}

impl Counts {
    fn enter(&mut self, claim: &NodeClaim) -> Result<(), LimitExceeded> {
        if let Some(clients) = self.clients.get_mut(claim) {
            *clients += 1;
            return Ok(());
        }
        let different = self.different.entry(std::mem::discriminant(claim)).or_default();
        Limit::NodeClaims.check(*different + 1, MAX_NODE_CLAIMS)?;
        *different += 1;
        self.clients.insert(claim.clone(), 1);
        Ok(())
    }

    fn leave(&mut self, claim: &NodeClaim) {
        let Some(clients) = self.clients.get_mut(claim) else { return };
        *clients -= 1;
        if *clients == 0 {
            self.clients.remove(claim);
            if let Some(different) = self.different.get_mut(&std::mem::discriminant(claim)) {
                *different -= 1;
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

    #[test]
    fn only_so_many_invented_values_count_at_a_time() {
        let makers: [Maker; 3] = [
            ("files", |n| proxy("shop", &[("TLS_CLIENT_ROOT_CERT", format!("/{n}"))])),
            ("networks", |n| proxy("shop", &[("REQUESTED_NETWORK_VIEW", format!("net-{n}"))])),
            ("namespaces", |n| proxy(&format!("none-{n}"), &[])),
        ];
        let (claims, world) = (NodeClaims::default(), World::default());
        for (kind, proxy) in makers {
            let mut held: Vec<_> =
                (1..MAX_NODE_CLAIMS).map(|n| claims.enter(&proxy(n), &world).unwrap()).collect();
            // One is the namespace of those that claim something else.
            let more = claims.enter(&proxy(MAX_NODE_CLAIMS), &world);
            held.extend(more);
            let refused = claims.enter(&proxy(MAX_NODE_CLAIMS + 1), &world).unwrap_err();
            assert_eq!((refused.limit, refused.allowed), (Limit::NodeClaims, MAX_NODE_CLAIMS), "{kind}");
            // What somebody claims already costs nothing more, and what nobody claims any more is free.
            assert!(claims.enter(&proxy(1), &world).is_ok(), "{kind}");
            held.pop();
            assert!(claims.enter(&proxy(MAX_NODE_CLAIMS + 1), &world).is_ok(), "{kind}");
            drop(held);
            assert!(claims.0.lock().clients.is_empty(), "{kind}");
        }
    }

    #[test]
    fn a_namespace_that_an_identity_proves_is_no_claim() {
        let world = World::default();
        let known = proxy("shop", &[]).with_identities(["spiffe://cluster.local/ns/shop/sa/web"]).unwrap();
        assert!(NodeClaim::of(&known, &world).is_empty());
        assert_eq!(NodeClaim::of(&proxy("shop", &[]), &world), [NodeClaim::Namespace("shop".into())]);
    }
}
