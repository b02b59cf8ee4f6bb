//! Endpoints of a service as its clients get them.

use crate::engine::Cx;
use pilotfish_model::{Endpoint, ExportTo, Kind, Provider, ServiceEndpoints, ServiceKey, ShardKey, SpiffeId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the endpoints of a service that clients may have. istiod keeps no endpoints of EndpointSlices of a
/// Service that is exported to nobody (`~`), also for routes of its own namespace that lead to it.
#[must_use]
pub(crate) fn client_endpoints(cx: &Cx<'_>, key: &ServiceKey) -> Option<Arc<ServiceEndpoints>> {
    let endpoints = cx.endpoints_of(key)?;
    let hidden = hidden_providers(cx, key);
    if hidden.is_empty() {
        return Some(endpoints);
    }
    let visible = |shard: &ShardKey, list: &Arc<[Arc<Endpoint>]>| -> Arc<[Arc<Endpoint>]> {
        let is_hidden = |endpoint: &Endpoint| hidden.contains(&shard.provider) && is_of_slice(endpoint);
        list.iter().filter(|endpoint| !is_hidden(endpoint)).cloned().collect()
    };
    let shards = endpoints.shards.iter().map(|(shard, list)| (shard.clone(), visible(shard, list)));
    let mut out = ServiceEndpoints { shards: shards.collect(), ..ServiceEndpoints::default() };
    out.identities =
        Arc::new(out.iter().filter_map(|endpoint| endpoint.attributes.identity.clone()).collect());
    Some(Arc::new(out))
}

/// Returns the identities of the endpoints that clients may have.
#[must_use]
pub(crate) fn client_identities(cx: &Cx<'_>, key: &ServiceKey) -> Arc<BTreeSet<SpiffeId>> {
    if hidden_providers(cx, key).is_empty() {
        return cx.identities_of(key);
    }
    client_endpoints(cx, key).map(|endpoints| endpoints.identities.clone()).unwrap_or_default()
}

/// True for an endpoint that clients of its service do not get because the Service is exported to nobody.
#[must_use]
pub(crate) fn is_hidden(cx: &Cx<'_>, key: &ServiceKey, endpoint: &Endpoint) -> bool {
    is_of_slice(endpoint) && !hidden_providers(cx, key).is_empty()
}

/// Registries of Kubernetes whose Service of this key is exported to nobody, by its own annotation.
fn hidden_providers(cx: &Cx<'_>, key: &ServiceKey) -> BTreeSet<Provider> {
    let services = cx.services_of(key);
    let services = services.iter().flat_map(|services| services.iter());
    let hidden =
        services.filter(|service| service.kubernetes.is_some() && service.export_to == ExportTo::Nobody);
    hidden.map(|service| service.provider).collect()
}

fn is_of_slice(endpoint: &Endpoint) -> bool {
    let origin = endpoint.attributes.provenance.as_object();
    origin.is_some_and(|origin| origin.object.kind == Kind::EndpointSlice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Query;
    use crate::testing::{TestService, endpoint, evaluate, of_service_entry, service, world};
    use pilotfish_model::{ObjectKey, Origin, Update};

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Addresses(ServiceKey);

    impl Query for Addresses {
        /// Addresses, and the number of identities.
        type Output = (Vec<String>, usize, usize);

        fn compute(&self, cx: &Cx<'_>) -> Self::Output {
            let endpoints = client_endpoints(cx, &self.0);
            let addresses = endpoints.iter().flat_map(|all| all.iter());
            let addresses = addresses.map(|endpoint| endpoint.address().to_owned()).collect();
            let identities = endpoints.map_or(0, |endpoints| endpoints.identities.len());
            (addresses, identities, client_identities(cx, &self.0).len())
        }
    }

    /// Addresses that clients of a service get, of an EndpointSlice and of a WorkloadEntry.
    fn asked(service: &TestService) -> (Vec<String>, usize, usize) {
        let made = |address: &str, account: &str, kind: Option<Kind>| {
            let mut made = endpoint(address, 8080, "http");
            let attributes = Arc::make_mut(&mut made.attributes);
            attributes.identity = Some(SpiffeId::new("cluster.local", "shop", account));
            if let Some(kind) = kind {
                attributes.provenance = Origin::object(ObjectKey::new(kind, "shop", "vm"), "Kubernetes");
            }
            Arc::new(made)
        };
        let list = [made("10.0.0.1", "pod", None), made("10.0.0.2", "vm", Some(Kind::WorkloadEntry))];
        let shard = ShardKey::new(service.0.provider, "Kubernetes");
        let endpoints = Update::Endpoints(service.key(), shard, Arc::from(list));
        let world = world([service.update(), endpoints]);
        (*evaluate(&world, &Addresses(service.key()))).clone()
    }

    #[test]
    fn slices_of_services_exported_to_nobody_have_no_clients() {
        let both = (vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()], 2, 2);
        let of = |export_to: ExportTo| {
            service("web", "shop").with(|service| {
                service.kubernetes = Some(Arc::default());
                service.export_to = export_to;
            })
        };
        assert_eq!(asked(&of(ExportTo::Nobody)), (vec!["10.0.0.2".to_owned()], 1, 1));
        for export_to in
            [ExportTo::Unset, ExportTo::Public, ExportTo::Namespaces(Arc::new(["reef".into()].into()))]
        {
            assert_eq!(asked(&of(export_to.clone())), both, "{export_to:?}");
        }
        // Endpoints of other registries stay: istiod has the rule for EndpointSlices only.
        let entry = of(ExportTo::Nobody).with(of_service_entry).with(|service| service.kubernetes = None);
        assert_eq!(asked(&entry), both);
    }
}
