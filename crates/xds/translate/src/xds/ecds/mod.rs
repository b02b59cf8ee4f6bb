//! Extension configurations (ECDS): filters that listeners name and whose configuration proxies subscribe to
//! by that name.

use crate::engine::{Cx, EncodedResource, Query, ResourceBatch, ResourceBatchKey, reference};
use crate::policy::wasm::{NAME_PREFIX, NAME_SUFFIX, extension_config};
use crate::proxy::{Identity, Proxy, ProxyKind, SecretAccess};
use pilotfish_config::extensions::WasmPlugin;
use pilotfish_config::kubernetes::{Secret, SecretType};
use pilotfish_model::{Namespace, Origin, Typed};
use std::sync::Arc;

/// The facets of a proxy that its extension configurations may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExtensionView {
    /// The namespace whose plugins it may have, besides those of the root namespace.
    pub namespace: Namespace,
    /// The namespace whose pull secrets it may have, if some plugin's image needs one.
    pub pull_secrets: Option<Namespace>,
}

impl ExtensionView {
    /// The view of a proxy; `None` when it is not served this type.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        if proxy.kind == ProxyKind::Grpc {
            return None;
        }
        // As in istiod, these are for all proxies of the namespace: the plugin names them, and they open an
        // image.
        let is_here = |identity: &&Identity| {
            proxy.secret_access != SecretAccess::Foreign && identity.is_of_mesh(&cx.mesh())
        };
        let identity = proxy.identity.as_ref().filter(is_here);
        let pull_secrets =
            identity.filter(|_| *cx.get(&AnyPullSecret)).map(|identity| identity.namespace.clone());
        Some(Self { namespace: proxy.namespace.clone(), pull_secrets })
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        let ResourceBatchKey::Named(name) = batch_key else { return ResourceBatch::default() };
        self.plugin(cx, name).into_iter().collect::<Vec<_>>().into()
    }

    fn plugin(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<EncodedResource> {
        // A namespace has no dot, so the first one ends it.
        let name_of_plugin = name.strip_prefix(NAME_PREFIX)?.strip_suffix(NAME_SUFFIX)?;
        let (namespace, plugin) = name_of_plugin.split_once('.')?;
        let namespace = Namespace::from(namespace);
        let is_root = || cx.mesh().root_namespace == namespace.as_str();
        if namespace != self.namespace && !is_root() {
            return None;
        }
        let plugin = cx.object::<WasmPlugin>(&namespace, plugin)?;
        let mut provenance = vec![reference(&plugin)];
        let secret = self.pull_secret(cx, &plugin, &mut provenance);
        let config = extension_config(&plugin, secret.as_deref());
        Some(EncodedResource::new(name.clone(), &config, provenance))
    }

    /// The Docker configuration out of the plugin's pull secret, for a proxy that may read it. The secret is
    /// searched in the plugin's namespace.
    fn pull_secret(
        &self,
        cx: &Cx<'_>,
        plugin: &Typed<WasmPlugin>,
        provenance: &mut Vec<Origin>,
    ) -> Option<String> {
        let name = Some(plugin.image_pull_secret.as_str()).filter(|name| !name.is_empty())?;
        let name = name.strip_prefix("kubernetes://").unwrap_or(name);
        let (namespace, name) = name.split_once('/').unwrap_or((plugin.namespace().as_str(), name));
        let namespace = Namespace::from(namespace);
        if self.pull_secrets.as_ref() != Some(&namespace) {
            return None;
        }
        let secret = cx.object::<Secret>(&namespace, name)?;
        if secret.content_type() == SecretType::Other {
            return None;
        }
        provenance.push(reference(&secret));
        String::from_utf8(secret.value(".dockerconfigjson")?.to_vec()).ok()
    }
}

/// Whether the image of any plugin is fetched with a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyPullSecret;

impl Query for AnyPullSecret {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        cx.objects::<WasmPlugin>().any(|plugin| !plugin.image_pull_secret.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluate, line, sidecar, world, yaml};

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct ViewOf(Proxy);

    impl Query for ViewOf {
        type Output = Option<Namespace>;

        fn compute(&self, cx: &Cx<'_>) -> Option<Namespace> {
            ExtensionView::of(cx, &self.0).and_then(|view| view.pull_secrets)
        }
    }

    #[test]
    fn pull_secrets_are_for_identities_of_the_mesh() {
        let spec = "{url: 'oci://r/w', imagePullSecret: pull}";
        let world = world(yaml(&line("extensions.istio.io/v1alpha1", "WasmPlugin", "shop", "w", spec)));
        let proxy = sidecar("web-0", "shop");
        let of = |domain: &str| {
            let id = format!("spiffe://{domain}/ns/shop/sa/web");
            evaluate(&world, &ViewOf(proxy.clone().with_identities([&*id]).unwrap())).as_ref().clone()
        };
        assert_eq!(of("cluster.local"), Some("shop".into()));
        assert_eq!(of("elsewhere.example.com"), None);
        assert_eq!(*evaluate(&world, &ViewOf(proxy.clone())), None);
    }
}
