//! Short names of hosts and gateways in VirtualServices.

use crate::routing::ir::MESH;
use pilotfish_config::networking::{Destination, HttpRoute, TcpRoute, TlsRoute};
use pilotfish_model::ClusterDomain;
use pilotfish_model::Namespace;
use std::sync::Arc;

/// Returns a gateway as `namespace/name`: from that form, `./name`, `name`, or the old form
/// `name.namespace.svc...`.
pub(crate) fn gateway_name(written: &str, own: &Namespace) -> Arc<str> {
    if written == MESH {
        return MESH.into();
    }
    if let Some(name) = written.strip_prefix("./") {
        return format!("{own}/{name}").into();
    }
    if written.contains('/') {
        return written.into();
    }
    let mut labels = written.split('.');
    let name = labels.next().unwrap_or(written);
    match labels.next() {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => format!("{own}/{name}").into(),
    }
}

fn complete(destination: &mut Destination, own: &Namespace, domain: &ClusterDomain) {
    destination.host = domain.qualify(&destination.host, own).into_owned();
}

fn complete_gateways(gateways: &mut [String], own: &Namespace) {
    for gateway in gateways {
        *gateway = gateway_name(gateway, own).as_ref().to_owned();
    }
}

/// The route with every name completed.
pub(super) fn complete_route(route: &HttpRoute, own: &Namespace, domain: &ClusterDomain) -> HttpRoute {
    let mut route = route.clone();
    for request in &mut route.r#match {
        complete_gateways(&mut request.gateways, own);
    }
    let destinations = route.route.iter_mut().filter_map(|destination| destination.destination.as_mut());
    let mirrors = route.mirrors.iter_mut().filter_map(|mirror| mirror.destination.as_mut());
    for destination in destinations.chain(mirrors).chain(route.mirror.as_mut()) {
        complete(destination, own, domain);
    }
    route
}

/// The route with every name completed.
pub(super) fn complete_tls(route: &TlsRoute, own: &Namespace, domain: &ClusterDomain) -> TlsRoute {
    let mut route = route.clone();
    route.r#match.iter_mut().for_each(|attributes| complete_gateways(&mut attributes.gateways, own));
    let destinations = route.route.iter_mut().filter_map(|to| to.destination.as_mut());
    destinations.for_each(|destination| complete(destination, own, domain));
    route
}

/// The route with every name completed.
pub(super) fn complete_tcp(route: &TcpRoute, own: &Namespace, domain: &ClusterDomain) -> TcpRoute {
    let mut route = route.clone();
    route.r#match.iter_mut().for_each(|attributes| complete_gateways(&mut attributes.gateways, own));
    let destinations = route.route.iter_mut().filter_map(|to| to.destination.as_mut());
    destinations.for_each(|destination| complete(destination, own, domain));
    route
}

#[cfg(test)]
mod tests {
    use super::gateway_name;

    #[test]
    fn gateways_are_named_in_four_ways() {
        let own = "shop".into();
        for (written, want) in [
            ("mesh", "mesh"),
            ("edge", "shop/edge"),
            ("./edge", "shop/edge"),
            ("infra/edge", "infra/edge"),
            ("edge.infra.svc.cluster.local", "infra/edge"),
        ] {
            assert_eq!(&*gateway_name(written, &own), want, "{written}");
        }
    }
}
