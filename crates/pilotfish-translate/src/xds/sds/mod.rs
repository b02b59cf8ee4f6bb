//! Secrets (SDS): certificates and keys out of Kubernetes Secrets and ConfigMaps, for proxies that may read them.
//!
//! ```text
//! kubernetes://[NAMESPACE/]NAME[-cacert]         a Secret of the proxy's own namespace
//! kubernetes-gateway://NAMESPACE/NAME[-cacert]   a Secret that a ReferenceGrant may have opened to Gateways there
//! configmap://NAMESPACE/NAME[-cacert]            certificates alone, for every client with an identity
//! ```
//!
//! The identity of a proxy is what its connection proved and never what its node claims: without proof it is served no secrets at
//! all. What is denied or not there is left out of the answer.

mod certificates;
mod reference;

pub(crate) use reference::SecretRef;

use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::proxy::Proxy;
use crate::routing::gateway_api::grant_allows;
use certificates::FoundSecret;
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
        let may_read = |object: &str| self.may_read(cx, &wanted, object);
        let FoundSecret { secret, provenance } = certificates::find(cx, name, &wanted, may_read)?;
        Some(EncodedResource::new(name.clone(), &secret, provenance))
    }

    /// Whether it may read the object of that name, which the wanted one leads to.
    fn may_read(&self, cx: &Cx<'_>, wanted: &SecretRef, object: &str) -> bool {
        match wanted {
            SecretRef::Secret { namespace, .. } => *namespace == self.namespace,
            SecretRef::GatewaySecret { namespace, .. } => {
                grant_allows(cx, ("Gateway", &self.namespace), ("", "Secret", namespace, object))
            }
            SecretRef::ConfigMap { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests;
