//! Permissions of clients without configured rules.
//!
//! | Client | Registers |
//! |---|---|
//! | without identity, on a loopback listener, not through a proxy | everything: no owner needs protection |
//! | with the SPIFFE id of a workload of the mesh | services of its own namespace |
//! | with a token of the file, or without identity | short names |
//!
//! Hosts with dots and services defined by an object need a rule. All clients may read everything, and
//! deregister their own instances.

use super::{Action, Denied, Surroundings};
use crate::identity::{ANONYMOUS, Who};
use pilotfish_identity::{WorkloadId, is_this_machine};
use pilotfish_registration::InstanceKey;

pub(super) fn check(
    who: &Who,
    action: Action,
    key: &InstanceKey,
    around: &Surroundings,
) -> Result<(), Denied> {
    let is_anonymous = &*who.identity == ANONYMOUS;
    let is_local = around.is_loopback && is_this_machine(who.address) && !who.is_forwarded;
    if action != Action::Register || (is_anonymous && is_local) {
        return Ok(());
    }
    if who.identities.iter().any(|id| id.starts_with("spiffe://")) {
        workload_in(who, &key.namespace, around)?;
    }
    if key.service.contains('.') {
        return Err(Denied::Host);
    }
    match around.mesh.owner_of(&key.service_key().host(&around.domain)) {
        Some(owner) => Err(Denied::Owned(owner)),
        None => Ok(()),
    }
}

/// Accepts clients with a SPIFFE id of a workload in the namespace.
fn workload_in(who: &Who, namespace: &str, around: &Surroundings) -> Result<(), Denied> {
    let mut of_mesh = who
        .identities
        .iter()
        .filter_map(|id| WorkloadId::parse(id))
        .filter(|id| around.mesh.has_trust_domain(id.trust_domain))
        .peekable();
    if of_mesh.peek().is_none() {
        return Err(Denied::TrustDomain);
    }
    if of_mesh.any(|id| id.namespace == namespace) { Ok(()) } else { Err(Denied::Namespace) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Mesh;
    use std::sync::Arc;

    struct Shop;

    impl Mesh for Shop {
        fn has_trust_domain(&self, domain: &str) -> bool {
            matches!(domain, "cluster.local" | "old.local")
        }

        fn has_namespace(&self, _: &str) -> bool {
            false
        }

        fn owner_of(&self, host: &str) -> Option<String> {
            (host == "pay.shop.svc.cluster.local").then(|| "Service shop/pay".to_owned())
        }
    }

    #[test]
    fn a_workload_registers_in_its_own_namespace_and_nothing_that_an_object_makes() {
        const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
        use Action::{Deregister, Read, Register};
        let owned = || Err(Denied::Owned("Service shop/pay".to_owned()));
        for (identity, is_loopback, action, namespace, service, expected) in [
            (WEB, true, Register, "shop", "web", Ok(())),
            (WEB, false, Register, "shop", "web", Ok(())),
            (WEB, true, Register, "payments", "web", Err(Denied::Namespace)),
            (WEB, true, Register, "shop", "pay", owned()),
            (WEB, true, Register, "shop", "web.example.com", Err(Denied::Host)),
            ("spiffe://old.local/ns/shop/sa/web", true, Register, "shop", "web", Ok(())),
            ("spiffe://other.org/ns/shop/sa/web", true, Register, "shop", "web", Err(Denied::TrustDomain)),
            ("spiffe://cluster.local/shop/web", true, Register, "shop", "web", Err(Denied::TrustDomain)),
            ("token/agent", true, Register, "shop", "web", Ok(())),
            ("token/agent", true, Register, "shop", "pay", owned()),
            ("token/agent", true, Register, "shop", "web.example.com", Err(Denied::Host)),
            (ANONYMOUS, true, Register, "shop", "pay", Ok(())),
            (ANONYMOUS, true, Register, "shop", "web.example.com", Ok(())),
            (ANONYMOUS, false, Register, "shop", "web", Ok(())),
            (ANONYMOUS, false, Register, "shop", "pay", owned()),
            (ANONYMOUS, false, Register, "shop", "web.example.com", Err(Denied::Host)),
            (WEB, false, Deregister, "payments", "web", Ok(())),
            ("spiffe://other.org/ns/shop/sa/web", false, Read, "payments", "web.example.com", Ok(())),
        ] {
            let address = std::net::Ipv4Addr::LOCALHOST.into();
            let who = Who::new(vec![identity.to_owned()].into(), None, address).unwrap();
            let around =
                Surroundings { mesh: Arc::new(Shop), domain: "cluster.local".to_owned(), is_loopback };
            let key = InstanceKey::new(namespace, service, "a");
            let checked = check(&who, action, &key, &around);
            assert_eq!(checked, expected, "{identity} {is_loopback} {action:?} {namespace}/{service}");
            // Through a proxy, a client on loopback is as one from elsewhere.
            let elsewhere = Surroundings { is_loopback: false, ..around };
            let forwarded = Who { is_forwarded: true, ..who.clone() };
            let of_a_sidecar = Who { address: [127, 0, 0, 6].into(), ..who.clone() };
            let local =
                Surroundings { mesh: Arc::new(Shop), domain: "cluster.local".to_owned(), is_loopback };
            for passed_on in [forwarded, of_a_sidecar] {
                assert_eq!(
                    check(&passed_on, action, &key, &local),
                    check(&who, action, &key, &elsewhere),
                    "{identity}"
                );
            }
        }
    }
}
