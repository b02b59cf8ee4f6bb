//! Secrets (SDS): certificates and keys out of Kubernetes Secrets and ConfigMaps, for proxies that may read them.
//!
//! ```text
//! kubernetes://[NAMESPACE/]NAME[-cacert]     a Secret of the proxy's own namespace
//! kubernetes-gateway://NAMESPACE/NAME        a Secret that a ReferenceGrant may have opened to Gateways there
//! configmap://NAMESPACE/NAME[-cacert]        certificates alone, for every client with an identity
//! ```
//!
//! The identity of a proxy is what its connection proved and never what its node claims: without proof it is served no secrets at
//! all. What is denied or not there is left out of the answer.

mod certificates;
mod reference;

pub(crate) use reference::SecretRef;

use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::proxy::Proxy;
use certificates::FoundSecret;
use pilotfish_config::gateway_api::ReferenceGrant;
use pilotfish_model::Namespace;
use std::sync::Arc;

/// The facets of a proxy that its secrets may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecretView {
    /// The namespace of the identity that its connection proved.
    pub namespace: Namespace,
}

impl SecretView {
    /// The view of a proxy; `None` when it is not served this type.
    #[must_use]
    pub(crate) fn of(_cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        Some(Self { namespace: proxy.identity.as_ref()?.namespace.clone() })
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        let ResourceBatchKey::Named(name) = batch_key else { return ResourceBatch::default() };
        self.secret(cx, name).into_iter().collect::<Vec<_>>().into()
    }

    fn secret(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<EncodedResource> {
        let wanted = SecretRef::parse(name, &self.namespace)?;
        if !self.may_read(cx, &wanted) {
            return None;
        }
        let FoundSecret { secret, provenance } = certificates::find(cx, name, &wanted)?;
        Some(EncodedResource::new(name.clone(), &secret, provenance))
    }

    fn may_read(&self, cx: &Cx<'_>, wanted: &SecretRef) -> bool {
        match wanted {
            SecretRef::Secret { namespace, .. } => *namespace == self.namespace,
            SecretRef::GatewaySecret { namespace, name, .. } => {
                *namespace == self.namespace || is_granted(cx, namespace, name, &self.namespace)
            }
            SecretRef::ConfigMap { .. } => true,
        }
    }
}

/// Whether a ReferenceGrant opens a Secret to Gateways of another namespace.
fn is_granted(cx: &Cx<'_>, namespace: &Namespace, name: &str, to: &Namespace) -> bool {
    const GATEWAY_API: &str = "gateway.networking.k8s.io";
    let grants = cx.objects_in::<ReferenceGrant>(namespace);
    grants.iter().any(|grant| {
        let grant = &grant.spec;
        let from = grant
            .from
            .iter()
            .any(|from| from.group == GATEWAY_API && from.kind == "Gateway" && from.namespace == to.as_str());
        let opened = grant.to.iter().any(|to| {
            to.group.is_empty() && to.kind == "Secret" && to.name.as_ref().is_none_or(|only| only == name)
        });
        from && opened
    })
}

#[cfg(test)]
mod tests;
