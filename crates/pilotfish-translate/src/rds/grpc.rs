//! Route configurations of gRPC clients without a proxy: named like the cluster of a service port, with the virtual hosts of
//! every service on that port. gRPC looks for the host with its port, and does not know a catch-all.

use super::sidecar::virtual_hosts;
use super::view::RouteView;
use crate::{Cx, Encoded};
use pilotfish_proto::envoy::config::route::v3::RouteConfiguration;
use std::sync::Arc;

/// The route configuration of that name; `None` for a name that is no cluster's.
pub(super) fn route_configuration(view: &RouteView, cx: &Cx<'_>, name: &Arc<str>) -> Option<Encoded> {
    let mut parts = name.split('|');
    let (Some("outbound"), Some(port), Some(_), Some(host), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let port = port.parse().ok().filter(|port| *port != 0 && !host.is_empty())?;
    let (hosts, provenance) = virtual_hosts(view, cx, port, name);
    let config = RouteConfiguration { name: name.to_string(), virtual_hosts: hosts, ..Default::default() };
    Some(Encoded::new(name.clone(), &config, provenance))
}
