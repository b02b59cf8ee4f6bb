//! Gateway of Istio.

use super::{Refused, has_only, is_sound, items, part, plain};
use crate::networking::{Gateway, Port, Server, ServerTlsSettings};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::limits;
use crate::validate::networking::gateway::{place, server};
use crate::yaml::Node;
use pilotfish_model::Protocol;

impl Gateway {
    /// The gateway with what cannot be used closed: its TLS servers refuse connections, so that these do not come to servers
    /// for more hosts. Others are not served.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let Refused { spec, trust, .. } = *refused;
        let selector = plain(spec.get("selector"));
        let known = trust.parts_if(has_only(spec, &["servers", "selector"])) && selector.is_some();
        let usable = |node| known.then(|| part(Some(node), server)).flatten();
        let servers = items(spec.get("servers")).unwrap_or_default().iter();
        let mut gateway = Self {
            servers: servers.filter_map(|node| usable(node).or_else(|| refusing(node))).collect(),
            selector: selector.unwrap_or_default(),
        };
        limits::cut_gateway(&mut gateway);
        Some(gateway)
    }
}

/// A server for the same connections that refuses them; `None` when they are not known, or are not TLS.
fn refusing(node: &Node) -> Option<Server> {
    let server = Server {
        port: plain::<Option<Port>>(node.get("port"))?,
        bind: plain(node.get("bind"))?,
        hosts: plain(node.get("hosts"))?,
        tls: Some(ServerTlsSettings::default()),
        closed: true,
        ..Server::default()
    };
    let mut checker = Checker::default();
    place(&server, &Path::ROOT, &mut checker);
    let is_tls = server.port.as_ref().is_some_and(|port| Protocol::parse(&port.protocol).is_tls());
    (is_tls && is_sound(&checker.into_problems())).then_some(server)
}
