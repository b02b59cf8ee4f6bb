//! Mesh facts for registration: other owners of a service, namespaces and trust domains.

use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::with_mesh;
use pilotfish_model::{Hostname, Kind, Namespace, Origin, World};
use pilotfish_registration_server::Mesh;
use std::sync::Arc;

/// Facts about the mesh from the newest published world.
pub(super) struct PublishedMesh(pub(super) Arc<Shared>);

impl Mesh for PublishedMesh {
    fn has_trust_domain(&self, domain: &str) -> bool {
        with_mesh(&self.0.world(), |mesh| mesh.has_trust_domain(domain))
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        has_objects(&self.0.world(), &Namespace::from(namespace))
    }

    fn owner_of(&self, host: &str) -> Option<String> {
        owner_of(&self.0.world(), host)
    }
}

/// True for a namespace that has an object or a Pod. Services of other registries are not searched, because
/// there may be many, and every request of a client can cause a search.
fn has_objects(world: &World, namespace: &Namespace) -> bool {
    world.pods_in(namespace).next().is_some()
        || Kind::ALL.iter().any(|kind| world.objects_in(*kind, namespace).next().is_some())
}

/// Returns the first object with a service of the host, in any namespace.
fn owner_of(world: &World, host: &str) -> Option<String> {
    let host = Hostname::parse(host).ok()?;
    let services = world.services_of_host(&host).flat_map(|(_, services)| services.iter());
    let objects = services.filter(|service| service.provenance.as_object().is_some());
    objects.map(|service| &service.provenance).min().map(Origin::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{ObjectKey, Provider, Service, ShardKey, Update, WorldWriter};

    #[test]
    fn services_of_objects_have_an_owner_and_registered_ones_none() {
        let of_object = Origin::object(ObjectKey::new(Kind::Service, "payments", "pay"), "c");
        let shard = ShardKey::new(Provider::new(2, "registration"), "c");
        let registered = Origin::registered(shard, "shop/web");
        let mut writer = WorldWriter::new();
        for (host, namespace, provenance) in [
            ("pay.payments.svc.cluster.local", "payments", of_object),
            ("web.shop.svc.cluster.local", "shop", registered),
        ] {
            let hostname = Hostname::parse(host).unwrap();
            let provider = Provider::new(0, "Kubernetes");
            let service = Service::registered(provider, hostname, namespace, [], provenance);
            let key = service.key();
            writer.apply(Update::Services(key, Arc::from([Arc::new(service)])));
        }
        let world = writer.publish().unwrap().0;
        let owner = |host: &str| owner_of(&world, host);
        assert_eq!(owner("pay.payments.svc.cluster.local").as_deref(), Some("Service payments/pay"));
        assert_eq!(owner("web.shop.svc.cluster.local"), None);
        assert_eq!(owner("new.shop.svc.cluster.local"), None);
        assert_eq!(owner("no host"), None);
    }
}
