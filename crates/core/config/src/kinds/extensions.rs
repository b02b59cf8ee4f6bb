//! `extensions.istio.io`: WebAssembly plugins and Lua scripts.
//!
//! The types have the fields, names and proto JSON forms of
//! <https://istio.io/latest/docs/reference/config/proxy_extensions/>.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Istio's API reference, linked above"
)]

use crate::kinds::message::{enumeration, kind, message};
use crate::networking::PortSelector;
use crate::{PolicyTargetReference, WorkloadMode, WorkloadSelector};

kind! {
    WasmPlugin = WasmPlugin;
    TrafficExtension = TrafficExtension;
}

message! {
/// A plugin in the filter chain of the selected workloads.
pub struct WasmPlugin {
    pub selector: Option<WorkloadSelector>,
    pub target_ref: Option<PolicyTargetReference>,
    pub target_refs: Vec<PolicyTargetReference>,
    pub url: String,
    pub sha256: String,
    pub image_pull_policy: PullPolicy,
    pub image_pull_secret: String,
    pub verification_key: String,
    pub plugin_config: Option<serde_json::Map<String, serde_json::Value>>,
    pub plugin_name: String,
    pub phase: PluginPhase,
    pub priority: Option<i32>,
    pub fail_strategy: FailStrategy,
    pub vm_config: Option<VmConfig>,
    pub r#match: Vec<TrafficSelector>,
    pub r#type: PluginType,
}

/// A Wasm plugin or a Lua script in the filter chain of the selected workloads.
pub struct TrafficExtension {
    pub selector: Option<WorkloadSelector>,
    pub target_refs: Vec<PolicyTargetReference>,
    pub phase: PluginPhase,
    pub priority: Option<i32>,
    pub r#match: Vec<TrafficSelector>,
    pub wasm: Option<WasmConfig>,
    pub lua: Option<LuaConfig>,
}

/// The Wasm plugin of a TrafficExtension.
pub struct WasmConfig {
    pub url: String,
    pub sha256: String,
    pub image_pull_policy: PullPolicy,
    pub image_pull_secret: String,
    pub verification_key: String,
    pub plugin_config: Option<serde_json::Map<String, serde_json::Value>>,
    pub plugin_name: String,
    pub fail_strategy: FailStrategy,
    pub vm_config: Option<VmConfig>,
    pub r#type: PluginType,
}

/// The Lua script of a TrafficExtension.
pub struct LuaConfig {
    pub inline_code: String,
}

/// Traffic that passes the plugin: role of the workload and ports.
pub struct TrafficSelector {
    pub mode: WorkloadMode,
    pub ports: Vec<PortSelector>,
}

/// Settings of the virtual machine.
pub struct VmConfig {
    pub env: Vec<EnvVar>,
}

/// A variable in the virtual machine's environment.
pub struct EnvVar {
    pub name: String,
    pub value_from: EnvValueSource,
    pub value: String,
}
}

enumeration! {
/// Kind of filter: HTTP or network.
pub enum PluginType {
    #[default]
    UnspecifiedPluginType,
    Http,
    Network,
}

/// Position in the filter chain: before Istio's filters of the phase.
pub enum PluginPhase {
    #[default]
    UnspecifiedPhase,
    Authn,
    Authz,
    Stats,
}

/// Policy for fetching the module again.
pub enum PullPolicy {
    #[default]
    UnspecifiedPolicy,
    #[serde(rename = "IfNotPresent")]
    IfNotPresent,
    #[serde(rename = "Always")]
    Always,
}

/// Source of a variable's value.
pub enum EnvValueSource {
    #[default]
    Inline,
    Host,
}

/// Handling of requests while the plugin fails.
pub enum FailStrategy {
    #[default]
    FailClose,
    FailOpen,
    FailReload,
}
}

impl From<&WasmPlugin> for TrafficExtension {
    /// The extension that a plugin is made into.
    fn from(plugin: &WasmPlugin) -> Self {
        let wasm = WasmConfig {
            url: plugin.url.clone(),
            sha256: plugin.sha256.clone(),
            image_pull_policy: plugin.image_pull_policy,
            image_pull_secret: plugin.image_pull_secret.clone(),
            verification_key: plugin.verification_key.clone(),
            plugin_config: plugin.plugin_config.clone(),
            plugin_name: plugin.plugin_name.clone(),
            fail_strategy: plugin.fail_strategy,
            vm_config: plugin.vm_config.clone(),
            r#type: plugin.r#type,
        };
        Self {
            selector: plugin.selector.clone(),
            target_refs: plugin.target_refs.iter().chain(&plugin.target_ref).cloned().collect(),
            phase: plugin.phase,
            priority: plugin.priority,
            r#match: plugin.r#match.clone(),
            wasm: Some(wasm),
            lua: None,
        }
    }
}
