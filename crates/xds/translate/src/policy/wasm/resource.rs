//! The configuration of a plugin's filter: where the module is, and its settings. Istio's agent, which stands
//! between, fetches the module and puts a local file in its place.

use super::Extension;
use pilotfish_config::extensions::{
    EnvValueSource, FailStrategy, PluginType, PullPolicy, VmConfig as WrittenVm, WasmConfig,
};
use pilotfish_proto::envoy::config::core::v3::{
    AsyncDataSource, DataSource, HttpUri, RemoteDataSource, TypedExtensionConfig,
    async_data_source::Specifier, data_source, http_uri::HttpUpstreamType,
};
use pilotfish_proto::envoy::extensions::filters::http::wasm::v3::Wasm as HttpWasm;
use pilotfish_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use pilotfish_proto::envoy::extensions::wasm::v3::{
    EnvironmentVariables, FailurePolicy, PluginConfig, VmConfig, plugin_config::Vm,
};
use pilotfish_proto::{Any, Duration, PREFIX, any};
use prost::Message;

/// Variables that carry to the agent how an image is fetched.
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";
const PULL_POLICY: &str = "ISTIO_META_WASM_IMAGE_PULL_POLICY";

/// The configuration of a plugin's filter; `None` for an extension without a plugin. `pull_secret`: the
/// Docker configuration by which the agent may fetch the image.
#[must_use]
pub(crate) fn extension_config(
    extension: &Extension,
    pull_secret: Option<&str>,
) -> Option<TypedExtensionConfig> {
    let wasm = extension.spec.wasm.as_ref()?;
    let config = Some(plugin_config(&extension.name, wasm, pull_secret));
    let packed = match wasm.r#type {
        PluginType::Network => any(&NetworkWasm { config }),
        PluginType::Http | PluginType::UnspecifiedPluginType => any(&HttpWasm { config }),
    };
    Some(TypedExtensionConfig { name: extension.name.clone(), typed_config: Some(packed) })
}

fn plugin_config(name: &str, plugin: &WasmConfig, pull_secret: Option<&str>) -> PluginConfig {
    PluginConfig {
        name: name.to_owned(),
        root_id: plugin.plugin_name.clone(),
        configuration: configuration(plugin),
        failure_policy: match plugin.fail_strategy {
            FailStrategy::FailClose => FailurePolicy::FailClosed,
            FailStrategy::FailOpen => FailurePolicy::FailOpen,
            FailStrategy::FailReload => FailurePolicy::FailReload,
        }
        .into(),
        vm: Some(Vm::VmConfig(VmConfig {
            runtime: "envoy.wasm.runtime.v8".to_owned(),
            code: Some(code(plugin)),
            environment_variables: Some(environment(plugin, pull_secret)),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// `pluginConfig` as JSON text, which is how modules expect it; none when there is nothing in it.
fn configuration(plugin: &WasmConfig) -> Option<Any> {
    let written = plugin.plugin_config.as_ref().filter(|config| !config.is_empty())?;
    let value = serde_json::Value::Object(written.clone()).to_string().encode_to_vec();
    Some(Any { type_url: format!("{PREFIX}google.protobuf.StringValue"), value })
}

/// Source of the module. A URL without a scheme names an image in a registry.
fn code(plugin: &WasmConfig) -> AsyncDataSource {
    if let Some(path) = plugin.url.strip_prefix("file://") {
        let local = DataSource {
            specifier: Some(data_source::Specifier::Filename(path.to_owned())),
            ..Default::default()
        };
        return AsyncDataSource { specifier: Some(Specifier::Local(local)) };
    }
    let uri = if plugin.url.contains("://") { plugin.url.clone() } else { format!("oci://{}", plugin.url) };
    let http_uri = HttpUri {
        uri,
        timeout: Some(Duration { seconds: 30, nanos: 0 }),
        // The agent fetches it, so the proxy needs no cluster for it.
        http_upstream_type: Some(HttpUpstreamType::Cluster("_".to_owned())),
    };
    let remote =
        RemoteDataSource { http_uri: Some(http_uri), sha256: plugin.sha256.clone(), retry_policy: None };
    AsyncDataSource { specifier: Some(Specifier::Remote(remote)) }
}

fn environment(plugin: &WasmConfig, pull_secret: Option<&str>) -> EnvironmentVariables {
    let none = WrittenVm::default();
    let written = &plugin.vm_config.as_ref().unwrap_or(&none).env;
    let mut out = EnvironmentVariables::default();
    for variable in written {
        match variable.value_from {
            EnvValueSource::Inline => {
                out.key_values.insert(variable.name.clone(), variable.value.clone());
            }
            EnvValueSource::Host => out.host_env_keys.push(variable.name.clone()),
        }
    }
    if let Some(secret) = pull_secret {
        out.key_values.insert(PULL_SECRET.to_owned(), secret.to_owned());
    }
    let policy = match plugin.image_pull_policy {
        PullPolicy::UnspecifiedPolicy => return out,
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Always => "Always",
    };
    out.key_values.insert(PULL_POLICY.to_owned(), policy.to_owned());
    out
}
