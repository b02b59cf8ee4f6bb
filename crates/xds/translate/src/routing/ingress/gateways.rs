//! The gateways of Ingresses.

use super::{GATEWAY_NAMESPACE, gateway_name, ingresses};
use crate::engine::{Cx, Query, reference};
use crate::routing::ir::{Gateway, GatewayHeader, GatewayId, Selection};
use pilotfish_config::kubernetes::{Ingress, IngressTls};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{Port, Server, ServerTlsMode, ServerTlsSettings};
use pilotfish_model::{Kind, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The gateways that are made from Ingresses, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IngressGateways;

impl Query for IngressGateways {
    type Output = BTreeMap<Arc<str>, (GatewayHeader, Arc<Gateway>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mesh = cx.mesh();
        let made = ingresses(cx).into_iter().map(|ingress| {
            let name: Arc<str> = gateway_name(&ingress).into();
            let id =
                GatewayId { source: Kind::Ingress, namespace: GATEWAY_NAMESPACE.into(), name: name.clone() };
            let header = GatewayHeader {
                id: id.clone(),
                selection: Selection::Labels(selector(&mesh)),
                routers: GATEWAY_NAMESPACE.into(),
                created: ingress.meta().created,
                is_managed: false,
            };
            let gateway = Gateway {
                id,
                servers: servers(&ingress),
                routers: GATEWAY_NAMESPACE.into(),
                provenance: vec![reference(&ingress)],
            };
            (name, (header, Arc::new(gateway)))
        });
        made.collect()
    }
}

/// The routers that serve Ingresses: by the mesh's selector, else named as its Service, else those of the
/// usual installation.
pub(super) fn selector(mesh: &MeshConfig) -> BTreeMap<String, String> {
    let value = match (mesh.ingress_selector.as_str(), mesh.ingress_service.as_str()) {
        ("", "" | "istio-ingressgateway") => "ingressgateway",
        ("", service) => service,
        (selector, _) => selector,
    };
    [("istio".to_owned(), value.to_owned())].into()
}

fn servers(ingress: &Typed<Ingress>) -> Vec<Server> {
    let (name, namespace) = (ingress.name(), ingress.namespace());
    let plain = Server {
        port: Some(port(80, "HTTP", format!("http-80-ingress-{name}-{namespace}"))),
        hosts: vec!["*".to_owned()],
        ..Server::default()
    };
    let tls = ingress.spec.tls.iter().enumerate().filter(|(_, tls)| !tls.secret_name.is_empty());
    let secure = tls.map(|(index, tls)| {
        let name = format!("https-443-ingress-{name}-{namespace}-{index}");
        Server {
            port: Some(port(443, "HTTPS", name)),
            hosts: hosts(tls),
            tls: Some(ServerTlsSettings {
                mode: ServerTlsMode::Simple,
                credential_name: tls.secret_name.clone(),
                ..ServerTlsSettings::default()
            }),
            ..Server::default()
        }
    });
    secure.chain([plain]).collect()
}

fn hosts(tls: &IngressTls) -> Vec<String> {
    if tls.hosts.is_empty() { vec!["*".to_owned()] } else { tls.hosts.clone() }
}

fn port(number: u32, protocol: &str, name: String) -> Port {
    Port { number, protocol: protocol.to_owned(), name, ..Port::default() }
}
