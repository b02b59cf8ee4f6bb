//! Secrets (SDS): certificates and keys out of Kubernetes Secrets and ConfigMaps, for proxies that may read
//! them.
//!
//! ```text
//! kubernetes://[NAMESPACE/]NAME[-cacert]        Secret of the proxy's own namespace, if its account may
//!                                               read it
//! kubernetes-gateway://NAMESPACE/NAME[-cacert]  Secret that a Gateway of the proxy's namespace names (or
//!                                               one of its ListenerSets), and may name
//! configmap://NAMESPACE/NAME[-cacert]           certificates alone, for every client with an identity
//! ```
//!
//! The identity of a proxy is the one that its connection proved, never the one that its node claims. Without
//! proof, and while its rights are unknown, it is served no secrets. Denied and missing secrets are left out
//! of the response.

mod certificates;
mod reference;
mod references;

pub(crate) use reference::SecretRef;

use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::proxy::{Proxy, ProxyKind, SecretAccess};
use crate::routing::gateway::RouterGateways;
use crate::routing::gateway_api::grant_allows;
use crate::routing::ir::GatewayId;
use certificates::FoundSecret;
use pilotfish_config::kubernetes::{Secret, SecretType};
use pilotfish_model::{Namespace, Typed};
use references::{NamedByGateways, NamedByRules};
use std::sync::Arc;

/// The facets of a proxy that its secrets may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecretView {
    /// The namespace of the identity that its connection proved.
    namespace: Namespace,
    right: Right,
    /// The gateways that the proxy serves.
    gateways: Arc<[GatewayId]>,
}

/// Right of a proxy to read Secrets of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Right {
    /// All that may be served: its account may list them anyway.
    All,
    /// Secrets that Gateways and DestinationRules refer to.
    Named,
    /// CA certificates, but no key pairs.
    Authorities,
    /// None, and none that Gateways name either.
    Nothing,
}

impl SecretView {
    /// Returns the view of a proxy; `None` if it is not served this type, or its right to read Secrets is not
    /// known yet.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        let identity = proxy.identity.as_ref()?;
        let namespace = identity.namespace.clone();
        let right = match &proxy.secret_access {
            SecretAccess::Foreign => Right::Nothing,
            _ if !identity.is_of_mesh(&cx.mesh()) => Right::Nothing,
            SecretAccess::Referenced => Right::Named,
            SecretAccess::Reviewed(reader) if cx.secret_access(reader)? => Right::All,
            SecretAccess::Reviewed(_) => Right::Authorities,
        };
        let gateways = match proxy.kind {
            ProxyKind::Router if right != Right::Nothing => RouterGateways::of(cx, proxy).gateways,
            _ => Arc::default(),
        };
        Some(Self { namespace, right, gateways })
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        let ResourceBatchKey::Named(name) = batch_key else { return ResourceBatch::default() };
        self.secret(cx, name).into_iter().collect::<Vec<_>>().into()
    }

    fn secret(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<EncodedResource> {
        let wanted = SecretRef::parse(name, &self.namespace)?;
        let may_read = |object: &Typed<Secret>| self.may_read(cx, &wanted, object);
        let FoundSecret { secret, provenance } = certificates::find(cx, name, &wanted, may_read)?;
        Some(EncodedResource::new(name.clone(), &secret, provenance))
    }

    /// Returns true if the proxy may read `object`, the Secret to which `wanted` leads.
    fn may_read(&self, cx: &Cx<'_>, wanted: &SecretRef, object: &Typed<Secret>) -> bool {
        let by_gateway =
            || NamedByGateways { namespace: self.namespace.clone(), gateways: self.gateways.clone() };
        let is_named = || cx.get(&by_gateway()).contains_key(wanted);
        match wanted {
            SecretRef::Secret { namespace, is_ca, .. } => {
                let has_right = match self.right {
                    Right::All => true,
                    Right::Named => {
                        is_named() || cx.get(&NamedByRules(self.namespace.clone())).contains(wanted)
                    }
                    Right::Authorities => *is_ca,
                    Right::Nothing => false,
                };
                let is_usual = || object.content_type() == SecretType::Certificates;
                *namespace == self.namespace && has_right && (is_usual() || is_named())
            }
            SecretRef::GatewaySecret { namespace, .. } => {
                let target = ("", "Secret", namespace, object.name());
                let named = cx.get(&by_gateway());
                let mut referrers = named.get(wanted).into_iter().flatten();
                referrers.any(|(kind, from)| grant_allows(cx, (kind.name(), from), target))
            }
            SecretRef::ConfigMap { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
