//! Extension configurations (ECDS): filters that listeners name and whose configuration proxies subscribe to
//! by that name.

use crate::engine::{Cx, EncodedResource, Query, ResourceBatch, ResourceBatchKey, reference};
use crate::policy::wasm::{Extension, extension_config};
use crate::proxy::{Identity, Proxy, ProxyKind, SecretAccess};
use pilotfish_config::kubernetes::{Secret, SecretType};
use pilotfish_model::{Namespace, Origin};
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
        let namespace = Extension::namespace_of(name)?;
        let is_root = || cx.mesh().root_namespace == namespace.as_str();
        if namespace != self.namespace && !is_root() {
            return None;
        }
        let extension = Extension::find(cx, name)?;
        let mut provenance = vec![extension.object.clone()];
        let secret = self.pull_secret(cx, &extension, &mut provenance);
        let config = extension_config(&extension, secret.as_deref())?;
        Some(EncodedResource::new(name.clone(), &config, provenance))
    }

    /// The Docker configuration out of the plugin's pull secret, for a proxy that may read it. The secret is
    /// searched in the plugin's namespace.
    fn pull_secret(
        &self,
        cx: &Cx<'_>,
        extension: &Extension,
        provenance: &mut Vec<Origin>,
    ) -> Option<String> {
        let wasm = extension.spec.wasm.as_ref()?;
        let name = Some(wasm.image_pull_secret.as_str()).filter(|name| !name.is_empty())?;
        let name = name.strip_prefix("kubernetes://").unwrap_or(name);
        let (namespace, name) = name.split_once('/').unwrap_or((extension.namespace.as_str(), name));
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

/// Query: true if the image of any plugin is fetched with a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyPullSecret;

impl Query for AnyPullSecret {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        Extension::any_has_pull_secret(cx)
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

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct NamesOf(&'static str, &'static [&'static str]);

    impl Query for NamesOf {
        type Output = Vec<String>;

        fn compute(&self, cx: &Cx<'_>) -> Vec<String> {
            let view = ExtensionView::of(cx, &sidecar("web-0", self.0)).unwrap();
            let found = self.1.iter().filter_map(|name| view.plugin(cx, &Arc::from(*name)));
            found.map(|resource| resource.name.to_string()).collect()
        }
    }

    /// Rule 34 of istiod 1.31: extensions are subscribed to by the name of their filter, scripts are not.
    #[test]
    fn plugins_of_both_kinds_are_found_by_name_in_the_namespace_and_the_root_namespace() {
        let wasm = "{wasm: {url: 'file:///w.wasm'}}";
        let object = |kind, namespace, spec| {
            line("extensions.istio.io/v1alpha1", kind, namespace, "a.b", spec) + "\n---\n"
        };
        let world = world(yaml(
            &[
                object("WasmPlugin", "shop", "{url: 'file:///w.wasm'}"),
                object("TrafficExtension", "shop", wasm),
                object("TrafficExtension", "istio-system", wasm),
                object("TrafficExtension", "pay", "{lua: {inlineCode: return}}"),
            ]
            .concat(),
        ));
        const NAMES: &[&str] = &[
            "extensions.istio.io/trafficextension/shop.a.b~istio-translated-wasmplugin",
            "extensions.istio.io/trafficextension/shop.a.b",
            "extensions.istio.io/trafficextension/istio-system.a.b",
            "extensions.istio.io/trafficextension/istio-system.a.b~istio-translated-wasmplugin",
            "extensions.istio.io/trafficextension/pay.a.b",
            "extensions.istio.io/wasmplugin/shop.a.b",
        ];
        for (namespace, expected) in [("shop", &NAMES[..3]), ("pay", &NAMES[2..3])] {
            assert_eq!(*evaluate(&world, &NamesOf(namespace, NAMES)), expected, "{namespace}");
        }
    }
}
