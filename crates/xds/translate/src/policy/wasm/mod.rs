//! WasmPlugins: which ones a listener has, as filters whose configuration the proxy subscribes to by name
//! (ECDS).

mod resource;

pub(crate) use resource::{NAME_PREFIX, NAME_SUFFIX, extension_config};

use crate::engine::{Cx, Refusal};
use crate::envoy::{TrafficClass, filters};
use crate::policy::attachment::concerns;
use crate::proxy::WasmSupport;
use pilotfish_config::WorkloadMode;
use pilotfish_config::extensions::{FailStrategy, PluginPhase, PluginType, TrafficSelector, WasmPlugin};
use pilotfish_model::{LabelMap, Namespace, Origin, Typed};
use pilotfish_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, ExtensionConfigSource,
    config_source::ConfigSourceSpecifier,
};
use pilotfish_proto::envoy::config::listener::v3::{Filter, filter};
use pilotfish_proto::envoy::config::rbac::v3::{Rbac, rbac};
use pilotfish_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use pilotfish_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;

/// The plugins that concern a proxy, in the order of their filters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plugins {
    list: Vec<Typed<WasmPlugin>>,
    /// The types of plugins that the proxy can run.
    support: WasmSupport,
}

/// What of a filter chain decides over which plugins it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Which side the listener is on.
    pub class: TrafficClass,
    /// The listener's port; to a workload, the workload's port.
    pub port: u32,
}

impl Plugins {
    /// The plugins of a proxy: of the root namespace, then of its own; of each phase, those with the highest
    /// priority first.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, namespace: &Namespace, labels: &LabelMap, support: WasmSupport) -> Self {
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let mut list = concerning(cx, &root, namespace, labels);
        if *namespace != root {
            list.extend(concerning(cx, namespace, namespace, labels));
        }
        // Stable: equal priorities stay in order of namespace and age. None at all is the lowest.
        list.sort_by_key(|plugin| std::cmp::Reverse(plugin.priority));
        Self { list, support }
    }

    /// The HTTP filters of a phase.
    #[must_use]
    pub(crate) fn http(&self, phase: PluginPhase, traffic: Traffic) -> Vec<HttpFilter> {
        let found = self.list.iter().filter(|plugin| plugin.r#type != PluginType::Network);
        let found = found.filter(|plugin| applies(plugin, phase, traffic));
        let filter = |plugin: &Typed<WasmPlugin>| {
            if self.can_run(plugin) {
                return Some(http_filter(plugin));
            }
            let deny = HttpRbac { rules: Some(nobody()), ..HttpRbac::default() };
            closes(plugin).then(|| HttpFilter {
                name: resource::name_of(plugin),
                config_type: Some(http_filter::ConfigType::TypedConfig(pilotfish_proto::any(&deny))),
                ..HttpFilter::default()
            })
        };
        found.filter_map(filter).collect()
    }

    /// The network filters of a phase.
    #[must_use]
    pub(crate) fn network(&self, phase: PluginPhase, traffic: Traffic) -> Vec<Filter> {
        let found = self.list.iter().filter(|plugin| plugin.r#type == PluginType::Network);
        let found = found.filter(|plugin| applies(plugin, phase, traffic));
        let filter = |plugin: &Typed<WasmPlugin>| {
            if self.can_run(plugin) {
                return Some(network_filter(plugin));
            }
            let stat_prefix = resource::name_of(plugin);
            let deny = NetworkRbac { rules: Some(nobody()), stat_prefix, ..NetworkRbac::default() };
            closes(plugin).then(|| filters::network(&resource::name_of(plugin), &deny))
        };
        found.filter_map(filter).collect()
    }

    fn can_run(&self, plugin: &WasmPlugin) -> bool {
        match plugin.r#type {
            PluginType::Network => self.support.network,
            PluginType::Http | PluginType::UnspecifiedPluginType => self.support.http,
        }
    }

    /// The plugins that the proxy cannot run.
    #[must_use]
    pub(crate) fn refused(&self) -> Vec<Refusal> {
        let refused = self.list.iter().filter(|plugin| !self.can_run(plugin));
        let refusal = |plugin: &Typed<WasmPlugin>| {
            let outcome = match closes(plugin) {
                true => "its phase and failStrategy FAIL_CLOSE refuse all traffic that it is for",
                false => "traffic passes without it",
            };
            Refusal {
                object: crate::engine::reference(plugin),
                field: String::new(),
                fault: format!(
                    "some proxies that it selects list no Wasm filter or no runtime envoy.wasm.runtime.v8, \
                     so they do not run it: {outcome}"
                ),
            }
        };
        refused.map(refusal).collect()
    }

    /// The objects.
    #[must_use]
    pub(crate) fn provenance(&self) -> Vec<Origin> {
        let used = self.list.iter().filter(|plugin| self.can_run(plugin) || closes(plugin));
        used.map(crate::engine::reference).collect()
    }
}

/// True if traffic is refused where the plugin does not run: it decides on access, and is to fail closed.
fn closes(plugin: &WasmPlugin) -> bool {
    matches!(plugin.phase, PluginPhase::Authn | PluginPhase::Authz)
        && plugin.fail_strategy == FailStrategy::FailClose
}

/// The rules that let nobody in.
fn nobody() -> Rbac {
    Rbac { action: rbac::Action::Allow.into(), ..Rbac::default() }
}

/// The plugins of a namespace that concern a workload, the oldest first.
fn concerning(
    cx: &Cx<'_>,
    from: &Namespace,
    namespace: &Namespace,
    labels: &LabelMap,
) -> Vec<Typed<WasmPlugin>> {
    let mut plugins = cx.objects_in::<WasmPlugin>(from);
    plugins.retain(|plugin| concerns(plugin, namespace, labels));
    plugins.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
    plugins
}

fn applies(plugin: &WasmPlugin, phase: PluginPhase, traffic: Traffic) -> bool {
    plugin.phase == phase && (plugin.r#match.is_empty() || plugin.r#match.iter().any(|m| matches(m, traffic)))
}

fn matches(selector: &TrafficSelector, traffic: Traffic) -> bool {
    let by_mode = match selector.mode {
        WorkloadMode::Undefined | WorkloadMode::ClientAndServer => true,
        WorkloadMode::Client => traffic.class != TrafficClass::Inbound,
        WorkloadMode::Server => traffic.class == TrafficClass::Inbound,
    };
    by_mode && (selector.ports.is_empty() || selector.ports.iter().any(|port| port.number == traffic.port))
}

fn http_filter(plugin: &Typed<WasmPlugin>) -> HttpFilter {
    let kinds = ["envoy.extensions.filters.http.wasm.v3.Wasm", "envoy.extensions.filters.http.rbac.v3.RBAC"];
    HttpFilter {
        name: resource::name_of(plugin),
        config_type: Some(http_filter::ConfigType::ConfigDiscovery(discovery(kinds))),
        ..Default::default()
    }
}

fn network_filter(plugin: &Typed<WasmPlugin>) -> Filter {
    let kinds =
        ["envoy.extensions.filters.network.wasm.v3.Wasm", "envoy.extensions.filters.network.rbac.v3.RBAC"];
    Filter {
        name: resource::name_of(plugin),
        config_type: Some(filter::ConfigType::ConfigDiscovery(discovery(kinds))),
    }
}

/// Over the same stream as everything else. RBAC is what the agent puts in place of a module that it cannot
/// fetch.
fn discovery(kinds: [&str; 2]) -> ExtensionConfigSource {
    ExtensionConfigSource {
        config_source: Some(ConfigSource {
            initial_fetch_timeout: Some(pilotfish_proto::Duration::default()),
            resource_api_version: ApiVersion::V3.into(),
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
            ..Default::default()
        }),
        type_urls: kinds.into_iter().map(|kind| format!("{}{kind}", pilotfish_proto::PREFIX)).collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
