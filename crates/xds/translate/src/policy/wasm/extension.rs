//! TrafficExtensions and WasmPlugins in one form (rule 34 of istiod 1.31).

use crate::engine::{Cx, Query, reference};
use crate::policy::attachment::applies;
use pilotfish_config::extensions::{PluginType, TrafficExtension, WasmConfig, WasmPlugin};
use pilotfish_model::{LabelMap, Namespace, ObjectMeta, Origin, Typed};
use std::sync::Arc;

/// Start of the names of filters; namespace and name of the extension follow.
const NAME_PREFIX: &str = "extensions.istio.io/trafficextension/";
/// End of the names of filters whose TrafficExtension is made from a WasmPlugin.
const NAME_SUFFIX: &str = "~istio-translated-wasmplugin";

/// A TrafficExtension, or a WasmPlugin that is made into one.
#[derive(Debug, PartialEq)]
pub(crate) struct Extension {
    /// Name of the filter and of its configuration.
    pub(crate) name: String,
    pub(crate) spec: TrafficExtension,
    /// The object that it is made from.
    pub(crate) object: Origin,
    pub(crate) namespace: Namespace,
}

impl Extension {
    fn of_plugin(plugin: &Typed<WasmPlugin>) -> Self {
        let spec = TrafficExtension::from(&**plugin);
        Self::new(plugin.meta(), NAME_SUFFIX, spec, reference(plugin))
    }

    fn of_extension(extension: &Typed<TrafficExtension>) -> Self {
        Self::new(extension.meta(), "", (**extension).clone(), reference(extension))
    }

    fn new(meta: &ObjectMeta, suffix: &str, spec: TrafficExtension, object: Origin) -> Self {
        let namespace = meta.key.namespace.clone();
        let name = format!("{NAME_PREFIX}{namespace}.{}{suffix}", meta.key.name);
        Self { name, spec, object, namespace }
    }

    /// The extensions of a namespace that concern a workload, the oldest first.
    pub(super) fn concerning(
        cx: &Cx<'_>,
        from: &Namespace,
        namespace: &Namespace,
        labels: &LabelMap,
    ) -> Vec<Arc<Self>> {
        let all = cx.get(&ExtensionsIn(from.clone()));
        all.iter().filter(|found| applies(&found.spec, from, namespace, labels)).cloned().collect()
    }

    /// Returns the namespace in the name of a filter.
    pub(crate) fn namespace_of(name: &str) -> Option<Namespace> {
        // A namespace has no dot, so the first one ends it.
        name.strip_prefix(NAME_PREFIX)?.split_once('.').map(|(namespace, _)| namespace.into())
    }

    /// Returns the extension with that name of a filter.
    pub(crate) fn find(cx: &Cx<'_>, name: &str) -> Option<Self> {
        let (namespace, object) = name.strip_prefix(NAME_PREFIX)?.split_once('.')?;
        let namespace = Namespace::from(namespace);
        match object.strip_suffix(NAME_SUFFIX) {
            Some(plugin) => cx.object(&namespace, plugin).as_ref().map(Self::of_plugin),
            None => cx.object(&namespace, object).as_ref().map(Self::of_extension),
        }
    }

    /// Returns true if the image of any plugin is fetched with a secret.
    pub(crate) fn any_has_pull_secret(cx: &Cx<'_>) -> bool {
        let has_secret = |wasm: &WasmConfig| !wasm.image_pull_secret.is_empty();
        cx.objects::<WasmPlugin>().any(|plugin| !plugin.image_pull_secret.is_empty())
            || cx.objects::<TrafficExtension>().any(|object| object.wasm.as_ref().is_some_and(has_secret))
    }

    pub(super) fn is_of_network(&self) -> bool {
        self.spec.wasm.as_ref().is_some_and(|wasm| wasm.r#type == PluginType::Network)
    }
}

/// The extensions of a namespace, the oldest first. One result for all workloads: a script may be large.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ExtensionsIn(Namespace);

impl Query for ExtensionsIn {
    type Output = Vec<Arc<Extension>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let plugins = cx.objects_in::<WasmPlugin>(&self.0);
        let extensions = cx.objects_in::<TrafficExtension>(&self.0);
        let plugins = plugins.iter().map(|plugin| (plugin.meta(), Extension::of_plugin(plugin)));
        let extensions = extensions.iter().map(|object| (object.meta(), Extension::of_extension(object)));
        let mut found: Vec<_> = plugins.chain(extensions).collect();
        found.sort_by(|(a, _), (b, _)| a.precedence().cmp(&b.precedence()));
        found.into_iter().map(|(_, extension)| Arc::new(extension)).collect()
    }
}
