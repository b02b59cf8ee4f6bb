//! Conditions on the source of traffic. They are evaluated here, so that a proxy receives only the routes
//! that apply to it.

use super::ir::MESH;
use crate::engine::{Cx, Query};
use crate::proxy::selectors::Selectors;
use pilotfish_config::networking::{HttpMatchRequest, L4MatchAttributes, TlsMatchAttributes, VirtualService};
use pilotfish_model::{Labels, Namespace, label_subset};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Properties of a proxy that conditions of virtual services match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub namespace: Namespace,
    /// Its labels, of which only those in [`SourceLabels`] matter.
    pub labels: Labels,
    /// Gateway names of the proxy, sorted: `mesh` for a sidecar.
    pub gateways: Arc<[Arc<str>]>,
}

impl Source {
    #[must_use]
    pub(crate) fn sidecar(namespace: Namespace, labels: Labels) -> Self {
        Self { namespace, labels, gateways: Arc::from([Arc::from(MESH)]) }
    }

    /// Returns true if requests of this source can match the condition. If the condition names gateways,
    /// labels and namespace are ignored.
    #[must_use]
    pub(crate) fn fits(&self, request: &HttpMatchRequest) -> bool {
        if request.gateways.is_empty() {
            return self.has_labels(&request.source_labels, &request.source_namespace);
        }
        self.is_any(&request.gateways)
    }

    /// Returns true if TLS connections of this source to a port can match the condition.
    #[must_use]
    pub(crate) fn fits_tls(&self, attributes: &TlsMatchAttributes, port: u32) -> bool {
        (attributes.gateways.is_empty() || self.is_any(&attributes.gateways))
            && self.has_labels(&attributes.source_labels, &attributes.source_namespace)
            && (attributes.port == 0 || attributes.port == port)
    }

    /// Returns true if TCP connections of this source to a port can match the condition.
    #[must_use]
    pub(crate) fn fits_tcp(&self, attributes: &L4MatchAttributes, port: u32) -> bool {
        (attributes.gateways.is_empty() || self.is_any(&attributes.gateways))
            && self.has_labels(&attributes.source_labels, &attributes.source_namespace)
            && (attributes.port == 0 || attributes.port == port)
    }

    fn is_any(&self, gateways: &[String]) -> bool {
        gateways.iter().any(|gateway| self.gateways.iter().any(|own| **own == **gateway))
    }

    fn has_labels(&self, labels: &BTreeMap<String, String>, namespace: &str) -> bool {
        label_subset(labels, &self.labels) && (namespace.is_empty() || self.namespace == namespace)
    }
}

/// The labels that VirtualServices match in the source of one kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SourceLabels {
    /// Source labels of HTTP routes.
    Requests,
    /// Source labels of TCP and TLS routes.
    Connections,
}

impl Query for SourceLabels {
    type Output = Selectors;

    fn compute(&self, cx: &Cx<'_>) -> Selectors {
        let mut selectors = Selectors::default();
        for object in cx.objects::<VirtualService>() {
            let http = object.http.iter().flat_map(|route| &route.r#match).map(|m| &m.source_labels);
            let tls = object.tls.iter().flat_map(|route| &route.r#match).map(|m| &m.source_labels);
            let tcp = object.tcp.iter().flat_map(|route| &route.r#match).map(|m| &m.source_labels);
            match self {
                Self::Requests => selectors.extend(http),
                Self::Connections => selectors.extend(tls.chain(tcp)),
            }
        }
        selectors
    }
}
