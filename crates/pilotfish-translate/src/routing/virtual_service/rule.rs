//! A rule: the routes of some hosts behind some gateways.

use super::delegate::merge_routes;
use super::names::{complete_route, complete_tcp, complete_tls, gateway_name};
use crate::engine::{Cx, Query, reference};
use crate::routing::gateway_api::ApiRules;
use crate::routing::ingress::IngressRules;
use crate::services::short_name::Domain;
use pilotfish_config::networking::{Delegate, HttpRoute, TcpRoute, TlsRoute, VirtualService};
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace, ObjectKey, ObjectRef, Typed};
use std::sync::Arc;

/// Which rule: the kind of object that it comes from, and the name of the VirtualService that it is, or would be in Istio.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    /// The kind of object that it comes from.
    pub source: Kind,
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
}

/// Whose rules of routing hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Semantics {
    /// Those of VirtualService.
    #[default]
    Istio,
    /// Those of Ingress: prefixes match whole path elements.
    Ingress,
    /// Those of the Gateway API: as for Ingress, and requests for unknown backends are answered with 500.
    Gateway,
}

impl Semantics {
    /// Whether a path prefix matches whole path elements only.
    #[must_use]
    pub fn whole_elements(self) -> bool {
        self != Self::Istio
    }
}

/// What decides who uses a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which rule.
    pub id: RuleId,
    /// The hosts, names completed.
    pub hosts: Vec<Hostname>,
    /// The gateways as `namespace/name`, or `mesh`.
    pub gateways: Vec<Arc<str>>,
    /// Who sees it.
    pub export_to: ExportTo,
    /// Whether it hands some route to a delegate.
    pub delegates: bool,
    /// Whether it has routes for TCP or TLS.
    pub has_streams: bool,
    /// Creation time: the oldest wins.
    pub created: i64,
    /// Whose rules of routing hold.
    pub semantics: Semantics,
}

impl Header {
    /// The header of a VirtualService; one without hosts is a delegate and no rule.
    pub(super) fn of(object: &Typed<VirtualService>, domain: &Domain) -> Option<Self> {
        let namespace = object.namespace();
        if object.hosts.is_empty() {
            return None;
        }
        let hosts = object.hosts.iter();
        let hosts = hosts.filter_map(|host| Hostname::parse(&domain.qualify(host, namespace)).ok());
        let gateways = match object.gateways.as_slice() {
            [] => vec![super::MESH.into()],
            names => names.iter().map(|name| gateway_name(name, namespace)).collect(),
        };
        Some(Self {
            id: RuleId {
                source: Kind::VirtualService,
                namespace: namespace.clone(),
                name: object.key().name.clone(),
            },
            hosts: hosts.collect(),
            gateways,
            export_to: ExportTo::parse(object.export_to.iter().map(String::as_str), namespace),
            delegates: object.http.iter().any(|route| route.delegate.is_some()),
            has_streams: !object.tls.is_empty() || !object.tcp.is_empty(),
            created: object.meta().created,
            semantics: Semantics::Istio,
        })
    }

    /// The order in which the first rule wins: rules without delegates first, then age, name and namespace.
    #[must_use]
    pub fn precedence(&self) -> (bool, i64, &str, &str) {
        (self.delegates, self.created, &self.id.name, self.id.namespace.as_str())
    }
}

/// A rule with its routes, names completed and delegates merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which rule.
    pub id: RuleId,
    /// Whose rules of routing hold.
    pub semantics: Semantics,
    /// Routes of requests.
    pub http: Vec<HttpRoute>,
    /// Routes of TLS connections by SNI.
    pub tls: Vec<TlsRoute>,
    /// Routes of TCP connections.
    pub tcp: Vec<TcpRoute>,
    /// All objects that made it, delegates too.
    pub provenance: Vec<ObjectRef>,
}

impl Rule {
    /// The key of the VirtualService that it is, or would be in Istio, for metadata.
    #[must_use]
    pub fn config_key(&self) -> ObjectKey {
        ObjectKey::new(Kind::VirtualService, self.id.namespace.clone(), self.id.name.clone())
    }

    /// Reads a VirtualService; routes to a delegate that is missing, hidden or contradicts are left out.
    fn read(cx: &Cx<'_>, object: &Typed<VirtualService>) -> Self {
        let (namespace, domain) = (object.namespace(), cx.domain());
        let mut provenance = vec![reference(object)];
        let mut http = Vec::with_capacity(object.http.len());
        for route in object.http.iter().map(|route| complete_route(route, namespace, domain)) {
            let Some(delegate) = &route.delegate else {
                http.push(route);
                continue;
            };
            let Some(found) = delegate_of(cx, delegate, namespace) else { continue };
            provenance.push(reference(&found));
            let routes = found.http.iter().map(|leaf| complete_route(leaf, found.namespace(), domain));
            http.extend(merge_routes(&route, routes));
        }
        Self {
            id: RuleId {
                source: Kind::VirtualService,
                namespace: namespace.clone(),
                name: object.key().name.clone(),
            },
            semantics: Semantics::Istio,
            http,
            tls: object.tls.iter().map(|route| complete_tls(route, namespace, domain)).collect(),
            tcp: object.tcp.iter().map(|route| complete_tcp(route, namespace, domain)).collect(),
            provenance,
        }
    }
}

fn delegate_key(delegate: &Delegate, root: &Namespace) -> ObjectKey {
    let namespace = match delegate.namespace.as_str() {
        "" => root.clone(),
        namespace => namespace.into(),
    };
    ObjectKey::new(Kind::VirtualService, namespace, delegate.name.as_str())
}

/// The delegate, if there is one that the root's namespace may see. A VirtualService with hosts is none.
fn delegate_of(cx: &Cx<'_>, delegate: &Delegate, root: &Namespace) -> Option<Typed<VirtualService>> {
    let key = delegate_key(delegate, root);
    let object = cx.object::<VirtualService>(&key.namespace, &key.name)?;
    let export_to = ExportTo::parse(object.export_to.iter().map(String::as_str), &key.namespace);
    let mesh = cx.mesh();
    let default = mesh.default_virtual_service_export_to.iter().map(String::as_str);
    let visible = export_to.visible_to(root, &ExportTo::parse(default, &key.namespace));
    (object.hosts.is_empty() && visible).then_some(object)
}

/// A rule by its id; `None` when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleOf(pub RuleId);

impl Query for RuleOf {
    type Output = Option<Arc<Rule>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        match self.0.source {
            Kind::HttpRoute | Kind::TcpRoute | Kind::TlsRoute => {
                cx.get(&ApiRules).get(&self.0).map(|(_, rule)| rule.clone())
            }
            Kind::Ingress => cx.get(&IngressRules).get(&self.0).map(|(_, rule)| rule.clone()),
            _ => {
                let object = cx.object::<VirtualService>(&self.0.namespace, &self.0.name)?;
                Some(Arc::new(Rule::read(cx, &object)))
            }
        }
    }
}
