use super::*;
use crate::engine::Query;
use crate::testing::{labels, yaml_world};
use pilotfish_model::{ChangeSet, Labels};
use pilotfish_proto::envoy::extensions::filters::http::wasm::v3::Wasm;
use pilotfish_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use prost::Message;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct All(Labels, WasmSupport);

impl Query for All {
    type Output = Plugins;

    fn compute(&self, cx: &Cx<'_>) -> Plugins {
        Plugins::of(cx, &"shop".into(), &self.0, self.1)
    }
}

fn plugins(yaml: &str, app: &str) -> Arc<Plugins> {
    supported(yaml, app, WasmSupport { http: true, network: true })
}

fn supported(yaml: &str, app: &str, support: WasmSupport) -> Arc<Plugins> {
    let memo = crate::engine::memo::Memo::new();
    let (current, _) = memo.advance(yaml_world(yaml), &ChangeSet::default());
    memo.get(&current, &All(labels(&[("app", app)]), support)).0
}

fn names<T>(filters: &[T], name: impl Fn(&T) -> &str) -> Vec<String> {
    let short = |filter| {
        let name = name(filter).strip_prefix("extensions.istio.io/trafficextension/")?;
        Some(name.strip_suffix("~istio-translated-wasmplugin").unwrap_or(name))
    };
    filters.iter().map(|filter| short(filter).unwrap_or("?").to_owned()).collect()
}

fn http(plugins: &Plugins, phase: PluginPhase, class: TrafficClass, port: u32) -> Vec<String> {
    names(&plugins.http(phase, Traffic { class, port }), |filter| &filter.name)
}

const SEVERAL: &str = "
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: a, namespace: shop},
 spec: {url: 'https://a/a.wasm', phase: AUTHN, priority: 5, selector: {matchLabels: {app: web}}}}
---
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: b, namespace: shop},
 spec: {url: 'https://a/b.wasm', phase: AUTHN, priority: 50}}
---
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: c, namespace: istio-system},
 spec: {url: 'https://a/c.wasm', phase: AUTHN}}
---
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: d, namespace: shop},
 spec: {url: 'https://a/d.wasm', match: [{mode: CLIENT, ports: [{number: 80}]}]}}
---
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: e, namespace: shop},
 spec: {url: 'https://a/e.wasm', type: NETWORK, match: [{mode: SERVER}]}}
";

#[test]
fn plugins_are_chosen_by_workload_phase_and_traffic() {
    use TrafficClass::{Gateway, Inbound, Outbound};
    let web = plugins(SEVERAL, "web");
    assert_eq!(http(&web, PluginPhase::Authn, Inbound, 8080), ["shop.b", "shop.a", "istio-system.c"]);
    assert_eq!(http(&plugins(SEVERAL, "db"), PluginPhase::Authn, Inbound, 1), ["shop.b", "istio-system.c"]);
    let none = PluginPhase::UnspecifiedPhase;
    assert_eq!(http(&web, none, Outbound, 80), ["shop.d"]);
    assert_eq!(http(&web, none, Gateway, 80), ["shop.d"]);
    assert!(http(&web, none, Outbound, 81).is_empty() && http(&web, none, Inbound, 80).is_empty());
    let network = |class| names(&web.network(none, Traffic { class, port: 80 }), |filter| &filter.name);
    assert_eq!(network(Inbound), ["shop.e"]);
    assert!(network(Outbound).is_empty());
}

#[test]
fn the_configuration_has_the_module_and_its_settings() {
    let yaml = "{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: a, namespace: shop},
      spec: {url: registry.example.com/a:v1, sha256: 'abababababababababababababababababababababababababababababababab', pluginName: check, pluginConfig: {list: [1], mode: x},
             failStrategy: FAIL_OPEN, imagePullPolicy: Always,
             vmConfig: {env: [{name: A, value: b}, {name: HOST, valueFrom: HOST}]}}}";
    let config = extension_config(&plugins(yaml, "web").list[0], Some("{}")).unwrap();
    let wasm = Wasm::decode(&*config.typed_config.unwrap().value).unwrap().config.unwrap();
    assert_eq!(
        (&*config.name, &*wasm.root_id),
        ("extensions.istio.io/trafficextension/shop.a~istio-translated-wasmplugin", "check")
    );
    let configuration = String::decode(&*wasm.configuration.unwrap().value).unwrap();
    assert_eq!(configuration, r#"{"list":[1],"mode":"x"}"#);
    let Some(Vm::VmConfig(vm)) = wasm.vm else { panic!("no VM") };
    assert!(format!("{:?}", vm.code).contains("oci://registry.example.com/a:v1"));
    let environment = vm.environment_variables.unwrap();
    assert_eq!(environment.host_env_keys, ["HOST"]);
    let keys: Vec<_> = environment.key_values.keys().map(String::as_str).collect();
    let agent = ["ISTIO_META_WASM_IMAGE_PULL_POLICY", "ISTIO_META_WASM_IMAGE_PULL_SECRET"];
    assert_eq!(keys, ["A", agent[0], agent[1]]);
}

#[test]
fn proxy_that_cannot_run_a_plugin_closes_where_access_is_decided() {
    let plugin = |more: &str| {
        format!(
            "{{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {{name: a, namespace: shop}},
              spec: {{url: 'https://a/a.wasm'{more}}}}}"
        )
    };
    let traffic = Traffic { class: TrafficClass::Inbound, port: 80 };
    let all = [PluginPhase::Authn, PluginPhase::Authz, PluginPhase::Stats, PluginPhase::UnspecifiedPhase];
    for (more, closed) in [
        (", phase: AUTHN", true),
        (", phase: AUTHZ", true),
        (", phase: AUTHN, failStrategy: FAIL_OPEN", false),
        (", phase: AUTHN, failStrategy: FAIL_CLOSE", true),
        (", phase: STATS", false),
        ("", false),
        (", phase: AUTHN, type: NETWORK", true),
        (", phase: STATS, type: NETWORK", false),
    ] {
        let is_network = more.contains("NETWORK");
        let without = supported(&plugin(more), "web", WasmSupport { http: is_network, network: !is_network });
        let http: Vec<_> = all.iter().flat_map(|phase| without.http(*phase, traffic)).collect();
        let network: Vec<_> = all.iter().flat_map(|phase| without.network(*phase, traffic)).collect();
        assert_eq!(http.len() + network.len(), usize::from(closed), "{more}");
        let is_rbac = format!("{http:?}{network:?}").contains("rbac.v3.RBAC");
        assert_eq!(is_rbac, closed, "{more}");
        assert_eq!((without.refused().len(), without.provenance().len()), (1, usize::from(closed)), "{more}");
        assert!(plugins(&plugin(more), "web").refused().is_empty(), "{more}");
    }
}

/// Rule 34: TrafficExtensions and WasmPlugins are one list.
#[test]
fn extensions_and_plugins_are_in_order_of_priority_namespace_and_age() {
    let wasm = "wasm: {url: 'file:///a.wasm'}";
    let network = "wasm: {url: 'file:///a.wasm', type: NETWORK}";
    let lua = "lua: {inlineCode: 'function envoy_on_request(handle) end'}";
    let object = |kind: &str, namespace: &str, name: &str, age: u32, spec: &str| {
        format!(
            "{{apiVersion: extensions.istio.io/v1alpha1, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}, \
             creationTimestamp: '2026-01-01T00:00:0{age}Z'}}, spec: {{{spec}}}}}\n---\n"
        )
    };
    let extension = |namespace, name, age, spec: &str| object("TrafficExtension", namespace, name, age, spec);
    let plugin = |namespace, name, age, spec: &str| object("WasmPlugin", namespace, name, age, spec);
    let plain = "url: 'file:///a.wasm'";
    for (objects, expected, of_network) in [
        (
            [
                extension("shop", "low", 1, &format!("priority: 1, {lua}")),
                plugin("shop", "middle", 1, &format!("priority: 2, {plain}")),
                extension("istio-system", "high", 1, &format!("priority: 3, {wasm}")),
            ],
            &["istio-system.high", "shop.middle", "shop.low"][..],
            &[][..],
        ),
        (
            [
                extension("istio-system", "root", 1, lua),
                extension("shop", "younger", 3, wasm),
                plugin("shop", "older", 2, plain),
            ],
            &["shop.older", "shop.younger", "istio-system.root"],
            &[],
        ),
        (
            [
                extension("shop", "minus", 1, &format!("priority: -5, {lua}")),
                extension("shop", "unset", 1, lua),
                extension("shop", "zero", 1, &format!("priority: 0, {lua}")),
            ],
            &["shop.zero", "shop.minus", "shop.unset"],
            &[],
        ),
        (
            [
                extension("shop", "other", 1, &format!("selector: {{matchLabels: {{app: db}}}}, {lua}")),
                extension("shop", "phase", 1, &format!("phase: AUTHN, {lua}")),
                extension("shop", "network", 1, network),
            ],
            &[],
            &["shop.network"],
        ),
    ] {
        let found = plugins(&objects.concat(), "web");
        let (phase, traffic) =
            (PluginPhase::UnspecifiedPhase, Traffic { class: TrafficClass::Inbound, port: 80 });
        assert_eq!(http(&found, phase, TrafficClass::Inbound, 80), expected, "{objects:?}");
        assert_eq!(names(&found.network(phase, traffic), |filter| &filter.name), of_network, "{objects:?}");
    }
}

/// Rule 34: a script is in the filter, also where the proxy runs no Wasm; there is nothing to subscribe to.
#[test]
fn a_script_is_in_its_filter() {
    use pilotfish_proto::envoy::extensions::filters::http::lua::v3::Lua;
    let text = "{apiVersion: extensions.istio.io/v1alpha1, kind: TrafficExtension, metadata: {name: a, namespace: shop},
        spec: {phase: AUTHZ, lua: {inlineCode: 'function envoy_on_request(handle) end'}}}";
    let found = supported(text, "web", WasmSupport::default());
    let traffic = Traffic { class: TrafficClass::Gateway, port: 80 };
    let filters = found.http(PluginPhase::Authz, traffic);
    let [filter] = &filters[..] else { panic!("{filters:?}") };
    assert_eq!(filter.name, "extensions.istio.io/trafficextension/shop.a");
    let Some(http_filter::ConfigType::TypedConfig(config)) = &filter.config_type else {
        panic!("{filter:?}")
    };
    let code = Lua::decode(&*config.value).unwrap().default_source_code.unwrap().specifier;
    let expected = "function envoy_on_request(handle) end".to_owned();
    assert_eq!(code, Some(data_source::Specifier::InlineString(expected)));
    assert!(found.network(PluginPhase::Authz, traffic).is_empty() && found.refused().is_empty());
    assert!(extension_config(&found.list[0], None).is_none());
}
