//! TrafficExtensions, and WasmPlugins, which are made into them: the filters of a listener. Proxies subscribe
//! to the configuration of Wasm filters by name (ECDS); scripts in Lua are in the filter.

mod extension;
mod resource;

pub(crate) use extension::Extension;
pub(crate) use resource::extension_config;

use crate::engine::{Cx, Refusal};
use crate::envoy::{TrafficClass, filters};
use crate::proxy::WasmSupport;
use pilotfish_config::WorkloadMode;
use pilotfish_config::extensions::{FailStrategy, PluginPhase, PluginType, TrafficSelector};
use pilotfish_model::{LabelMap, Namespace, Origin};
use pilotfish_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, DataSource, ExtensionConfigSource,
    config_source::ConfigSourceSpecifier, data_source,
};
use pilotfish_proto::envoy::config::listener::v3::{Filter, filter};
use pilotfish_proto::envoy::config::rbac::v3::{Rbac, rbac};
use pilotfish_proto::envoy::extensions::filters::http::lua::v3::Lua;
use pilotfish_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use pilotfish_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use std::sync::Arc;

/// The extensions that concern a proxy, in the order of their filters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plugins {
    list: Vec<Arc<Extension>>,
    /// The types of Wasm plugins that the proxy can run.
    support: WasmSupport,
}

/// Properties of a filter chain that decide which plugins it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Side of the proxy that the listener is on.
    pub class: TrafficClass,
    /// The listener's port; to a workload, the workload's port.
    pub port: u32,
}

impl Plugins {
    /// The extensions of a proxy; of each phase, those with the highest priority first. Equal priorities are
    /// in the order of the namespaces (the proxy's own, then the root namespace) and of age.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, namespace: &Namespace, labels: &LabelMap, support: WasmSupport) -> Self {
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let mut list = Extension::concerning(cx, namespace, namespace, labels);
        if *namespace != root {
            list.extend(Extension::concerning(cx, &root, namespace, labels));
        }
        // Stable. None at all is the lowest.
        list.sort_by_key(|extension| std::cmp::Reverse(extension.spec.priority));
        Self { list, support }
    }

    /// The HTTP filters of a phase.
    #[must_use]
    pub(crate) fn http(&self, phase: PluginPhase, traffic: Traffic) -> Vec<HttpFilter> {
        let found = self.list.iter().filter(|extension| !extension.is_of_network());
        let found = found.filter(|extension| applies(extension, phase, traffic));
        let filter = |extension: &Arc<Extension>| {
            let config = if let Some(lua) = &extension.spec.lua {
                http_filter::ConfigType::TypedConfig(pilotfish_proto::any(&script(&lua.inline_code)))
            } else if self.can_run(extension) {
                http_filter::ConfigType::ConfigDiscovery(discovery([
                    "envoy.extensions.filters.http.wasm.v3.Wasm",
                    "envoy.extensions.filters.http.rbac.v3.RBAC",
                ]))
            } else if closes(extension) {
                let deny = HttpRbac { rules: Some(nobody()), ..HttpRbac::default() };
                http_filter::ConfigType::TypedConfig(pilotfish_proto::any(&deny))
            } else {
                return None;
            };
            Some(HttpFilter { name: extension.name.clone(), config_type: Some(config), ..Default::default() })
        };
        found.filter_map(filter).collect()
    }

    /// The network filters of a phase.
    #[must_use]
    pub(crate) fn network(&self, phase: PluginPhase, traffic: Traffic) -> Vec<Filter> {
        let found = self.list.iter().filter(|extension| extension.is_of_network());
        let found = found.filter(|extension| applies(extension, phase, traffic));
        let filter = |extension: &Arc<Extension>| {
            let name = extension.name.clone();
            if self.can_run(extension) {
                return Some(network_filter(name));
            }
            let deny =
                NetworkRbac { rules: Some(nobody()), stat_prefix: name.clone(), ..NetworkRbac::default() };
            closes(extension).then(|| filters::network(&name, &deny))
        };
        found.filter_map(filter).collect()
    }

    fn can_run(&self, extension: &Extension) -> bool {
        match extension.spec.wasm.as_ref().map(|wasm| wasm.r#type) {
            Some(PluginType::Network) => self.support.network,
            Some(PluginType::Http | PluginType::UnspecifiedPluginType) => self.support.http,
            None => true,
        }
    }

    /// The plugins that the proxy cannot run.
    #[must_use]
    pub(crate) fn refused(&self) -> Vec<Refusal> {
        let refused = self.list.iter().filter(|extension| !self.can_run(extension));
        let refusal = |extension: &Arc<Extension>| {
            let outcome = match closes(extension) {
                true => "its phase and failStrategy FAIL_CLOSE refuse all traffic that it is for",
                false => "traffic passes without it",
            };
            Refusal {
                object: extension.object.clone(),
                field: String::new(),
                fault: format!(
                    "some proxies that it selects list no Wasm filter or no runtime envoy.wasm.runtime.v8, \
                     so they do not run it: {outcome}"
                ),
            }
        };
        refused.map(refusal).collect()
    }

    /// Objects of the plugins that are used, or that refuse traffic because they cannot run.
    #[must_use]
    pub(crate) fn provenance(&self) -> Vec<Origin> {
        let used = self.list.iter().filter(|extension| self.can_run(extension) || closes(extension));
        used.map(|extension| extension.object.clone()).collect()
    }
}

/// True if traffic is refused where the plugin does not run: it decides on access, and is to fail closed.
fn closes(extension: &Extension) -> bool {
    let decides = matches!(extension.spec.phase, PluginPhase::Authn | PluginPhase::Authz);
    let strategy = extension.spec.wasm.as_ref().map(|wasm| wasm.fail_strategy);
    decides && strategy == Some(FailStrategy::FailClose)
}

/// The rules that let nobody in.
fn nobody() -> Rbac {
    Rbac { action: rbac::Action::Allow.into(), ..Rbac::default() }
}

fn applies(extension: &Extension, phase: PluginPhase, traffic: Traffic) -> bool {
    let spec = &extension.spec;
    spec.phase == phase && (spec.r#match.is_empty() || spec.r#match.iter().any(|one| matches(one, traffic)))
}

fn matches(selector: &TrafficSelector, traffic: Traffic) -> bool {
    let by_mode = match selector.mode {
        WorkloadMode::Undefined | WorkloadMode::ClientAndServer => true,
        WorkloadMode::Client => traffic.class != TrafficClass::Inbound,
        WorkloadMode::Server => traffic.class == TrafficClass::Inbound,
    };
    by_mode && (selector.ports.is_empty() || selector.ports.iter().any(|port| port.number == traffic.port))
}

fn script(code: &str) -> Lua {
    let specifier = Some(data_source::Specifier::InlineString(code.to_owned()));
    Lua { default_source_code: Some(DataSource { specifier, ..DataSource::default() }), ..Lua::default() }
}

fn network_filter(name: String) -> Filter {
    let kinds =
        ["envoy.extensions.filters.network.wasm.v3.Wasm", "envoy.extensions.filters.network.rbac.v3.RBAC"];
    Filter { name, config_type: Some(filter::ConfigType::ConfigDiscovery(discovery(kinds))) }
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
