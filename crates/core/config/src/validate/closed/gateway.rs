//! Gateway of Istio.

use super::{Refused, Trust, is_sound, items, known_part, plain};
use crate::networking::{Gateway, Port, Server, ServerTlsSettings};
use crate::path::Path;
use crate::problem::Checker;
use crate::unknown::{checks_clients_of_unknown_protocol, narrows};
use crate::validate::limits;
use crate::validate::networking::gateway::{place, server};
use crate::yaml::Node;
use pilotfish_model::{Kind, Protocol};
use serde::de::DeserializeOwned;

impl Gateway {
    /// Closes the parts of the gateway that cannot be used: its TLS servers refuse connections, so that these
    /// do not reach servers for wider hosts. Other servers are left out.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let Refused { spec, trust, .. } = *refused;
        let selector = plain(spec.get("selector"));
        let known = trust == Trust::Parts && selector.is_some();
        let usable = |index: usize, node: &Node| {
            let at = Path::ROOT.field("spec");
            let at = at.field("servers");
            let refuses = !known || narrows::<Server>(Kind::Gateway, &at.index(index).to_field_path(), node);
            if refuses { None } else { known_part(Some(node), server).map(|known| known.value) }
        };
        let servers = items(spec.get("servers")).unwrap_or_default().iter().enumerate();
        let servers = servers.filter_map(|(index, node)| usable(index, node).or_else(|| refusing(node)));
        let mut gateway = Self { servers: servers.collect(), selector: selector.unwrap_or_default() };
        limits::cut_gateway(&mut gateway);
        Some(gateway)
    }
}

/// The known content of a part. Its unknown content is irrelevant, since the server refuses all connections.
fn known_of<T: DeserializeOwned + Default>(node: Option<&Node>) -> Option<T> {
    known_part(node, |_, _, _| {}).map(|known| known.value)
}

/// Returns a server for the same connections that refuses them; `None` if they are unknown, or not TLS.
fn refusing(node: &Node) -> Option<Server> {
    let mut port = known_of::<Option<Port>>(node.get("port"))?;
    if let Some(port) = port.as_mut().filter(|_| checks_clients_of_unknown_protocol(node)) {
        // Its connections must not reach a server of the port for wider hosts.
        "TLS".clone_into(&mut port.protocol);
    }
    let server = Server {
        port,
        bind: known_of(node.get("bind"))?,
        hosts: known_of(node.get("hosts"))?,
        tls: Some(ServerTlsSettings::default()),
        closed: true,
        ..Server::default()
    };
    let mut checker = Checker::default();
    place(&server, &Path::ROOT, &mut checker);
    let is_tls = server.port.as_ref().is_some_and(|port| Protocol::parse(&port.protocol).is_tls());
    (is_tls && is_sound(&checker.into_problems())).then_some(server)
}
