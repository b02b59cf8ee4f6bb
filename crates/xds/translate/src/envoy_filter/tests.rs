use super::merge::{Lists, merge_into};
use super::routes::patch_route_configuration;
use super::value::{encode, parse};
use super::*;
use crate::engine::{Cx, Query};
use crate::proxy::Proxy;
use pilotfish_config::networking::PatchOperation;
use pilotfish_config::{Limits, read, read_checked};
use pilotfish_model::{Update, WorldWriter};
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::core::v3::{Node, TransportSocket};
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use pilotfish_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use pilotfish_proto::{Struct, Value, ValueKind};
use prost::Message;
use serde_json::json;
use std::collections::BTreeMap;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

fn merged(target: &serde_json::Value, patch: &serde_json::Value) -> serde_json::Value {
    merged_with(Lists::Append, target, patch)
}

fn merged_with(lists: Lists, target: &serde_json::Value, patch: &serde_json::Value) -> serde_json::Value {
    let message = parse(CLUSTER, target).unwrap();
    let mut cluster: Cluster = prost::Message::decode(&*encode(&message)).unwrap();
    merge_into(&mut cluster, &parse(CLUSTER, patch).unwrap(), lists);
    let url = format!("type.googleapis.com/{CLUSTER}");
    let mut json = pilotfish_proto::to_json(&url, &prost::Message::encode_to_vec(&cluster)).unwrap();
    json.as_object_mut().unwrap().remove("@type");
    json
}

#[test]
fn messages_merge_by_the_rules_of_protobuf() {
    #[rustfmt::skip]
    let table = [
        // What is set replaces, what is false or zero changes nothing.
        (json!({"name": "a", "respect_dns_ttl": true}), json!({"name": "b", "respect_dns_ttl": false}),
         json!({"name": "b", "respect_dns_ttl": true})),
        // Durations are replaced, in Go's form too.
        (json!({"connect_timeout": "10s"}), json!({"connect_timeout": "250ms"}), json!({"connect_timeout": "0.250s"})),
        // Lists append.
        (json!({"circuit_breakers": {"thresholds": [{"max_retries": 1}]}}),
         json!({"circuit_breakers": {"thresholds": [{"max_retries": 2}]}}),
         json!({"circuit_breakers": {"thresholds": [{"max_retries": 1}, {"max_retries": 2}]}})),
        // Messages merge, entries of maps are replaced whole.
        (json!({"metadata": {"filter_metadata": {"a": {"x": 1}, "b": {"x": 1}}}}),
         json!({"metadata": {"filter_metadata": {"b": {"y": 2}}}}),
         json!({"metadata": {"filter_metadata": {"a": {"x": 1.0}, "b": {"y": 2.0}}}})),
        // Of a oneof the last one stays.
        (json!({"ring_hash_lb_config": {"minimum_ring_size": 1}}), json!({"maglev_lb_config": {"table_size": 3}}),
         json!({"maglev_lb_config": {"table_size": "3"}})),
        // Fields that are not known are left out.
        (json!({"name": "a"}), json!({"no_such_field": 1, "altStatName": "b"}), json!({"name": "a", "alt_stat_name": "b"})),
    ];
    for (target, patch, want) in table {
        assert_eq!(merged(&target, &patch), want, "{target} + {patch}");
    }
}

#[test]
fn values_that_cannot_be_read_have_an_error() {
    for (json, part) in [
        (json!({"connect_timeout": 5}), "Duration"),
        (
            json!({"typed_extension_protocol_options": {"a": {"@type": "type.googleapis.com/no.such.Type"}}}),
            "no.such.Type",
        ),
        (json!("text"), "expected"),
    ] {
        let error = parse(CLUSTER, &json).map(|_| ()).unwrap_err();
        assert!(error.to_lowercase().contains(&part.to_lowercase()), "{json}: {error}");
    }
}

#[test]
fn maps_are_encoded_in_order() {
    let fields: BTreeMap<String, Value> = (0..50)
        .map(|n| (format!("k{n}"), Value { kind: Some(ValueKind::NumberValue(f64::from(n))) }))
        .collect();
    let typed = Struct { fields };
    let json: serde_json::Map<_, _> = (0..50).rev().map(|n| (format!("k{n}"), json!(f64::from(n)))).collect();
    let message = parse("google.protobuf.Struct", &serde_json::Value::Object(json)).unwrap();
    assert_eq!(encode(&message), prost::Message::encode_to_vec(&typed));
}

/// A world of EnvoyFilters.
struct World(std::sync::Arc<pilotfish_model::World>);

/// Runs a function as a query. Each is evaluated in a memo of its own, so that all may compare equal.
#[derive(Clone, Debug)]
struct EvaluateFn<T>(fn(&Cx<'_>, &Proxy) -> T, std::sync::Arc<Proxy>);

impl<T> PartialEq for EvaluateFn<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for EvaluateFn<T> {}

impl<T> std::hash::Hash for EvaluateFn<T> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl<T: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static> Query for EvaluateFn<T> {
    type Output = T;

    fn compute(&self, cx: &Cx<'_>) -> T {
        (self.0)(cx, &self.1)
    }
}

impl World {
    fn of(filters: &[(&str, &str, &str)]) -> Self {
        let mut writer = WorldWriter::new();
        for (namespace, name, spec) in filters {
            let yaml = format!(
                "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
            );
            let file = read("test.yaml", yaml.as_bytes(), &Limits::default());
            assert!(file.rejected.is_empty(), "{:?}", file.rejected);
            file.objects.into_iter().for_each(|read| writer.apply(Update::Object(read.object)));
        }
        Self(writer.publish().unwrap().0)
    }

    fn evaluate<T: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static>(
        &self,
        proxy: &Proxy,
        evaluate: fn(&Cx<'_>, &Proxy) -> T,
    ) -> T {
        T::clone(&crate::testing::evaluate(
            &self.0,
            &EvaluateFn(evaluate, std::sync::Arc::new(proxy.clone())),
        ))
    }
}

fn proxy(kind: &str, metadata: &[(&str, &str)], labels: &[(&str, &str)]) -> Proxy {
    let text = |value: &str| Value { kind: Some(ValueKind::StringValue(value.to_owned())) };
    let fields = |pairs: &[(&str, &str)]| Struct {
        fields: pairs.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect(),
    };
    let mut all = fields(metadata);
    let labels = Value { kind: Some(ValueKind::StructValue(fields(labels))) };
    all.fields.insert("LABELS".to_owned(), labels);
    let id = format!("{kind}~10.0.0.1~web-0.shop~shop.svc.cluster.local");
    Proxy::from_node(&Node { id, metadata: Some(all), ..Node::default() }).unwrap()
}

/// A patch that appends a route named like the object to a virtual host, so that order shows.
fn appends(name: &str) -> String {
    format!(
        "[{{applyTo: CLUSTER, patch: {{operation: MERGE, value: {{lrs_report_endpoint_metrics: [{name}]}}}}}}]"
    )
}

/// The names that patches of [`appends`] leave on a cluster, in order.
fn order(cx: &Cx<'_>, proxy: &Proxy) -> Vec<String> {
    let patches = Patches::of(cx, proxy, Subject::Cluster);
    let mut patched = Patched::default();
    let cluster =
        patch_cluster(cx, &patches, TrafficClass::Outbound, Cluster::default(), &[], &mut patched).unwrap();
    assert_eq!(patched.into_objects().len(), cluster.lrs_report_endpoint_metrics.len());
    cluster.lrs_report_endpoint_metrics
}

#[test]
fn patches_hold_by_namespace_labels_version_and_metadata_in_order() {
    let spec = |name: &str, more: &str| format!("{{configPatches: {}{more}}}", appends(name));
    let with_proxy = |name: &str, condition: &str| {
        spec(name, "")
            .replace("applyTo: CLUSTER,", &format!("applyTo: CLUSTER, match: {{proxy: {condition}}},"))
    };
    let world = World::of(&[
        ("shop", "a", &spec("late", ", priority: 10")),
        ("shop", "b", &spec("early", ", priority: -1")),
        ("shop", "c", &spec("plain", "")),
        ("shop", "d", &spec("labelled", ", workloadSelector: {labels: {app: web}}")),
        ("shop", "e", &spec("other-labels", ", workloadSelector: {labels: {app: cart}}")),
        ("shop", "f", &with_proxy("version", "{proxyVersion: '^1\\.29'}")),
        ("shop", "g", &with_proxy("other-version", "{proxyVersion: '^1\\.28'}")),
        ("shop", "h", &with_proxy("team", "{metadata: {TEAM: blue}}")),
        ("shop", "i", &with_proxy("other-team", "{metadata: {TEAM: red}}")),
        (
            "shop",
            "j",
            &spec("attached", ", targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}]"),
        ),
        ("istio-system", "z", &spec("root", "")),
        ("default", "y", &spec("elsewhere", "")),
    ]);
    let web = proxy("sidecar", &[("ISTIO_VERSION", "1.29.1"), ("TEAM", "blue")], &[("app", "web")]);
    assert_eq!(
        world.evaluate(&web, order),
        ["early", "root", "plain", "labelled", "version", "team", "late"]
    );
    let plain = proxy("sidecar", &[], &[]);
    assert_eq!(world.evaluate(&plain, order), ["early", "root", "plain", "late"]);
    let gateway = proxy("router", &[], &[("gateway.networking.k8s.io/gateway-name", "g")]);
    assert_eq!(world.evaluate(&gateway, order), ["early", "root", "plain", "attached", "late"]);
}

#[test]
fn proxies_with_the_same_patches_have_equal_facets() {
    let spec = format!("{{configPatches: {}, workloadSelector: {{labels: {{app: web}}}}}}", appends("x"));
    let world = World::of(&[("shop", "a", &spec)]);
    let facet = |labels: &[(&str, &str)]| {
        let proxy = proxy("sidecar", &[("TEAM", labels.first().map_or("", |label| label.1))], labels);
        world.evaluate(&proxy, |cx, proxy| Patches::of(cx, proxy, Subject::Cluster))
    };
    assert_eq!(facet(&[("app", "web")]), facet(&[("app", "web"), ("pod", "1")]));
    assert_ne!(facet(&[("app", "web")]), facet(&[("app", "cart")]));
    assert_eq!(facet(&[("app", "cart")]), Patches::default());
}

/// Which of some clusters a match means.
fn meant(matches: &str, context: TrafficClass) -> Vec<String> {
    let spec = format!(
        "{{configPatches: [{{applyTo: CLUSTER, match: {{cluster: {matches}}}, patch: {{operation: REMOVE}}}}]}}"
    );
    let world = World::of(&[("shop", "a", &spec)]);
    let evaluate = match context {
        TrafficClass::Inbound => |cx: &Cx<'_>, proxy: &Proxy| removed(cx, proxy, TrafficClass::Inbound),
        _ => |cx: &Cx<'_>, proxy: &Proxy| removed(cx, proxy, TrafficClass::Outbound),
    };
    world.evaluate(&proxy("sidecar", &[], &[]), evaluate)
}

fn removed(cx: &Cx<'_>, proxy: &Proxy, context: TrafficClass) -> Vec<String> {
    let patches = Patches::of(cx, proxy, Subject::Cluster);
    let names: &[(&str, &[&str])] = &[
        ("outbound|80||web.shop", &[]),
        ("outbound|80|v1|web.shop", &[]),
        ("outbound_.90_._.cart.shop", &[]),
        ("inbound|80||", &["web.shop"]),
        ("BlackHoleCluster", &[]),
    ];
    let gone = names.iter().filter(|(name, hosts)| {
        let cluster = Cluster { name: (*name).to_owned(), ..Cluster::default() };
        patch_cluster(cx, &patches, context, cluster, hosts, &mut Patched::default()).is_none()
    });
    gone.map(|(name, _)| (*name).to_owned()).collect()
}

#[test]
fn clusters_are_matched_by_the_parts_of_their_names() {
    for (matches, want) in [
        ("{service: web.shop, subset: v1}", vec!["outbound|80|v1|web.shop"]),
        ("{service: cart.shop}", vec!["outbound_.90_._.cart.shop"]),
        ("{portNumber: 80}", vec!["outbound|80||web.shop", "outbound|80|v1|web.shop", "inbound|80||"]),
        ("{name: BlackHoleCluster, portNumber: 1}", vec!["BlackHoleCluster"]),
        ("{service: no.such}", vec![]),
    ] {
        assert_eq!(meant(matches, TrafficClass::Outbound), want, "{matches}");
    }
    assert_eq!(
        meant("{service: web.shop, portNumber: 80}", TrafficClass::Inbound).last().unwrap(),
        "inbound|80||"
    );
}

#[test]
fn routes_of_gateways_are_matched_by_the_ports_of_the_service() {
    let patched = |matches: &str, name: &str| {
        let spec = format!(
            "{{configPatches: [{{applyTo: ROUTE_CONFIGURATION, match: {{routeConfiguration: {matches}}}, patch: {{operation: MERGE, value: {{internal_only_headers: [x]}}}}}}]}}"
        );
        let world = World::of(&[("shop", "a", &spec)]);
        let patches = world.evaluate(&proxy("router", &[], &[]), |cx, proxy| {
            Loaded(Patches::of(cx, proxy, Subject::Route).load(cx))
        });
        let ports: ServicePorts = [(8080, [80].into())].into();
        let mut routes = RouteConfiguration { name: name.to_owned(), ..RouteConfiguration::default() };
        let patching = super::listeners::Patching { patches: &patches.0, context: TrafficClass::Gateway };
        patch_route_configuration(&patching, Some(&ports), &mut routes, &mut Patched::default());
        !routes.internal_only_headers.is_empty()
    };
    for (matches, name, want) in [
        ("{portNumber: 80}", "http.8080", true),
        ("{portNumber: 8080}", "http.8080", false),
        (
            "{portNumber: 443, portName: https, gateway: istio-system/public}",
            "https.443.https.public.istio-system",
            true,
        ),
        ("{gateway: istio-system/other}", "https.443.https.public.istio-system", false),
        ("{gateway: istio-system/public}", "http.8080", false),
        ("{name: http.8080}", "http.8080", true),
    ] {
        assert_eq!(patched(matches, name), want, "{matches} {name}");
    }
}

/// Patches out of the world.
#[derive(Clone, Debug, PartialEq)]
struct Loaded(Vec<std::sync::Arc<super::parse::Patch>>);

#[test]
fn elements_are_put_by_the_operation() {
    use pilotfish_config::networking::PatchOperation::{
        Add, InsertAfter, InsertBefore, InsertFirst, Replace,
    };
    let is_b = |element: &&str| *element == "b";
    let is_x = |element: &&str| *element == "x";
    type Anchor<'a> = Option<&'a dyn Fn(&&str) -> bool>;
    let anchors: [Anchor<'_>; 3] = [None, Some(&is_b), Some(&is_x)];
    for (operation, want) in [
        (Add, ["abc+", "abc+", "abc+"]),
        (InsertFirst, ["+abc", "+abc", "+abc"]),
        (InsertBefore, ["+abc", "a+bc", "abc"]),
        (InsertAfter, ["abc+", "ab+c", "abc"]),
        (Replace, ["abc", "a+c", "abc"]),
    ] {
        for (anchor, want) in anchors.into_iter().zip(want) {
            let mut list = vec!["a", "b", "c"];
            let done = super::insert::insert(&mut list, operation, "+", anchor);
            assert_eq!((list.concat().as_str(), done), (want, want.contains('+')), "{operation:?}");
        }
    }
}

/// A listener with one chain: a connection manager with the HTTP filters `a` and `b`, behind a transport
/// socket.
fn unpatched() -> Listener {
    let named = |name: &str| HttpFilter { name: name.to_owned(), ..HttpFilter::default() };
    let manager = HttpConnectionManager {
        http_filters: vec![named("a"), named("b")],
        ..HttpConnectionManager::default()
    };
    let network = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(pilotfish_proto::any(&manager))),
    };
    let socket = TransportSocket { name: "tls".to_owned(), ..TransportSocket::default() };
    let chain =
        FilterChain { filters: vec![network], transport_socket: Some(socket), ..FilterChain::default() };
    Listener { filter_chains: vec![chain], ..Listener::default() }
}

/// What patches make of it: the HTTP filters, and the transport socket.
fn chain(patches: &str) -> (Vec<String>, String) {
    let world = World::of(&[("shop", "a", &format!("{{configPatches: [{patches}]}}"))]);
    let patched = world.evaluate(&proxy("sidecar", &[], &[]), |cx, proxy| {
        let patches = Patches::of(cx, proxy, Subject::Listener);
        super::patch_listener(cx, &patches, TrafficClass::Outbound, unpatched(), &mut Patched::default())
    });
    let chain = patched.unwrap().filter_chains.remove(0);
    let Some(filter::ConfigType::TypedConfig(config)) = &chain.filters[0].config_type else { panic!() };
    let manager = HttpConnectionManager::decode(&*config.value).unwrap();
    let names = manager.http_filters.into_iter().map(|filter| filter.name).collect();
    (names, chain.transport_socket.unwrap().name)
}

/// A configuration of an HTTP filter.
const CORS: &str = "{'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}";

fn http_filter(sub_filter: &str, operation: &str) -> String {
    let filter = format!("{{name: envoy.filters.network.http_connection_manager, {sub_filter}}}");
    format!(
        "{{applyTo: HTTP_FILTER, match: {{listener: {{filterChain: {{filter: {filter}}}}}}}, patch: {{operation: {operation}, value: {{name: x, typed_config: {CORS}}}}}}}"
    )
}

#[test]
fn http_filters_are_removed_and_inserted_in_the_order_of_the_patches() {
    let b = "subFilter: {name: b}";
    let before = http_filter(b, "INSERT_BEFORE");
    let remove = http_filter(b, "REMOVE");
    assert_eq!(chain(&format!("{before}, {remove}")).0, ["a", "x"]);
    assert_eq!(chain(&format!("{remove}, {before}")).0, ["a"]);
    // What names no filter removes none.
    assert_eq!(chain(&http_filter("", "REMOVE")).0, ["a", "b"]);
}

#[test]
fn a_transport_socket_of_another_name_is_replaced_in_a_chain() {
    let patch = |name: &str| {
        format!(
            "{{applyTo: FILTER_CHAIN, patch: {{operation: MERGE, value: {{transport_socket: {{name: {name}}}}}}}}}"
        )
    };
    assert_eq!(chain(&patch("tls")).1, "tls");
    assert_eq!(chain(&patch("quic")).1, "quic");
}

/// A field of Istio 1.32: the socket that handles the bytes of a chain; plain text where there is none.
#[test]
fn chains_are_matched_by_their_transport_socket() {
    let spec = |socket: &str| {
        format!(
            "{{configPatches: [{{applyTo: FILTER_CHAIN, match: {{listener: {{filterChain: {{transportSocket: {socket}}}}}}}, \
             patch: {{operation: REMOVE}}}}]}}"
        )
    };
    let socket = |name: &str| Some(TransportSocket { name: name.to_owned(), ..TransportSocket::default() });
    let (plain, tls) = ("envoy.transport_sockets.raw_buffer", "envoy.transport_sockets.tls");
    for (wanted, of_chain, want) in [
        (tls, socket(tls), true),
        (tls, socket(plain), false),
        (tls, None, false),
        (plain, None, true),
        (plain, socket(plain), true),
        (plain, socket(tls), false),
        ("''", socket(tls), true),
    ] {
        let world = World::of(&[("shop", "a", &spec(wanted))]);
        let patches = world.evaluate(&proxy("sidecar", &[], &[]), |cx, proxy| {
            Loaded(Patches::of(cx, proxy, Subject::Listener).load(cx))
        });
        let chain = FilterChain { transport_socket: of_chain, ..FilterChain::default() };
        let found = super::listeners::chain_matches(&Listener::default(), &chain, &patches.0[0]);
        assert_eq!(found, want, "{wanted} {chain:?}");
    }
}

#[test]
fn virtual_hosts_are_removed_and_added_and_their_routes_patched() {
    let spec = "{configPatches: [
        {applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: gone}}}, patch: {operation: REMOVE}},
        {applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: new, domains: [x]}}},
        {applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {domainName: kept.example.com}}},
         patch: {operation: ADD, value: {name: r, match: {prefix: /}, direct_response: {status: 200}}}},
        {applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: r, action: REDIRECT}}}}, patch: {operation: REMOVE}},
        {applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {domains: 5}}}]}";
    let world = World::of(&[("shop", "a", spec)]);
    let patches = world.evaluate(&proxy("sidecar", &[], &[]), |cx, proxy| {
        Loaded(Patches::of(cx, proxy, Subject::Route).load(cx))
    });
    // The last one is malformed, which costs it alone.
    assert_eq!(patches.0.len(), 4);
    let host = |name: &str| VirtualHost {
        name: name.to_owned(),
        domains: vec![format!("{name}.example.com")],
        ..VirtualHost::default()
    };
    let mut routes = RouteConfiguration {
        virtual_hosts: vec![host("gone"), host("kept")],
        ..RouteConfiguration::default()
    };
    let patching = super::listeners::Patching { patches: &patches.0, context: TrafficClass::Outbound };
    let mut patched = Patched::default();
    patch_route_configuration(&patching, None, &mut routes, &mut patched);
    let shape: Vec<_> =
        routes.virtual_hosts.iter().map(|host| (host.name.as_str(), host.routes.len())).collect();
    assert_eq!(shape, [("kept", 1), ("new", 0)]);
    assert_eq!(patched.into_objects().len(), 1);
}

#[test]
fn patches_that_do_nothing_are_reported() {
    let yaml = "{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: a, namespace: shop}, spec: {configPatches: [
        {applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 1s}}},
        {applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: x, typed_config: {'@type': type.googleapis.com/no.such.Filter}}}},
        {applyTo: CLUSTER, match: {proxy: {proxyVersion: '('}}, patch: {operation: REMOVE}}]}}";
    let file = read_checked("test.yaml", yaml.as_bytes(), &Limits::default(), &[check_object]);
    let problems = &file.objects.first().unwrap().warnings;
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [Some(3), Some(4)]);
    assert_eq!(text.len(), 2, "{text:?}");
    assert!(text[0].starts_with("spec.configPatches[1].patch.value: is no envoy."), "{text:?}");
    assert!(text[0].contains("no.such.Filter"), "{text:?}");
    assert!(text[1].starts_with("spec.configPatches[2].match.proxy.proxyVersion: is no regular"), "{text:?}");
    assert!(problems.iter().all(|problem| !problem.is_error()));
}

#[test]
fn extension_configurations_are_found_by_name() {
    use crate::engine::ResourceBatch;
    use crate::engine::ResourceBatchKey;
    let lua = "{'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}";
    let spec = format!(
        "{{configPatches: [{{applyTo: EXTENSION_CONFIG, match: {{context: SIDECAR_INBOUND}}, patch: {{operation: ADD, value: {{name: a, typed_config: {lua}}}}}}}]}}"
    );
    let world = World::of(&[("shop", "a", &spec)]);
    let names = world.evaluate(&proxy("sidecar", &[], &[]), |cx, proxy| {
        let layer = Layer::of(cx, proxy, Subject::Extension);
        ["a", "b"].map(|name| {
            let batch = layer.extensions(cx, &ResourceBatchKey::Named(name.into()), ResourceBatch::default());
            batch.resources.iter().map(|resource| resource.name.to_string()).collect::<Vec<_>>()
        })
    });
    assert_eq!(names, [vec!["a".to_owned()], vec![]]);
}

/// The first problem with a patch.
fn problem(patch: &str) -> String {
    let yaml = format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: a, namespace: shop}}, spec: {{configPatches: [{patch}]}}}}"
    );
    let file = read("test.yaml", yaml.as_bytes(), &Limits::default());
    let object = &file.objects.first().unwrap_or_else(|| panic!("{patch}: {:?}", file.rejected)).object;
    check_object(object).first().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn values_that_envoy_refuses_are_reported() {
    let lua = |code: &str| {
        format!(
            "{{'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inlineCode: '{code}'}}"
        )
    };
    let tcp = "{'@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: x, cluster: x}";
    let structure = |kind: &str| {
        format!(
            "{{'@type': type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/{kind}}}"
        )
    };
    let filter = |config: &str| {
        format!("{{applyTo: HTTP_FILTER, patch: {{operation: INSERT_FIRST, value: {{name: x{config}}}}}}}")
    };
    let typed = |config: &str| filter(&format!(", typed_config: {config}"));
    let on = |kind: &str, operation: &str, value: &str| {
        format!("{{applyTo: {kind}, patch: {{operation: {operation}, value: {value}}}}}")
    };
    let address = "address: {socket_address: {address: 127.0.0.1, port_value: 80}}";
    for (patch, part) in [
        (filter(""), "the filter \"x\" has no configuration"),
        (filter(", is_optional: true"), ""),
        (filter(", config_discovery: {config_source: {ads: {}}, type_urls: [x]}"), ""),
        (typed(CORS), ""),
        (typed(tcp), "no http filter"),
        (typed(&structure("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy")), "no http filter"),
        (typed(&structure("example.Unknown")), ""),
        (typed(&lua("function (")), "typed_config a script does not compile: line 1"),
        (typed(&lua("function envoy_on_request(h) end")), ""),
        (
            on("NETWORK_FILTER", "INSERT_FIRST", &format!("{{name: x, typed_config: {CORS}}}")),
            "no network filter",
        ),
        (on("NETWORK_FILTER", "INSERT_FIRST", &format!("{{name: x, typed_config: {tcp}}}")), ""),
        (on("LISTENER_FILTER", "ADD", &format!("{{name: x, typed_config: {tcp}}}")), "no listener filter"),
        (on("CLUSTER", "ADD", "{type: STATIC}"), "name must have at least 1 characters"),
        (on("CLUSTER", "INSERT_FIRST", "{type: STATIC}"), "name must have at least 1 characters"),
        (on("CLUSTER", "MERGE", "{type: STATIC}"), ""),
        (on("CLUSTER", "MERGE", "{connect_timeout: -1s}"), "connect_timeout must not be below zero"),
        (on("LISTENER", "ADD", "{name: x}"), "has no address"),
        (on("LISTENER", "ADD", &format!("{{name: x, {address}}}")), "has no filter chains"),
        (on("LISTENER", "ADD", &format!("{{name: x, {address}, filter_chains: [{{}}]}}")), ""),
        (
            on("LISTENER", "ADD", &format!("{{name: x, {address}, filter_chains: [{{}}, {{name: b}}]}}")),
            "two filter chains for the same",
        ),
        (on("LISTENER", "MERGE", "{name: x}"), ""),
        (on("VIRTUAL_HOST", "ADD", "{name: x}"), "domains must have at least 1 elements"),
        (on("HTTP_ROUTE", "MERGE", "{match: {safe_regex: {regex: '('}}}"), "is no regular expression"),
        (on("HTTP_FILTER", "ADD", &format!("{{name: x, typed_config: {CORS}}}")), "behind the router"),
    ] {
        let problem = problem(&patch);
        assert!(problem.contains(part) && problem.is_empty() == part.is_empty(), "{patch}: {problem:?}");
    }
}

#[test]
fn a_filter_goes_behind_the_router_only_where_nothing_else_is_named() {
    let insert = |sub_filter: &str, operation: &str, name: &str| {
        let chain =
            format!("{{filter: {{name: envoy.filters.network.http_connection_manager{sub_filter}}}}}");
        problem(&format!(
            "{{applyTo: HTTP_FILTER, match: {{listener: {{filterChain: {chain}}}}}, patch: {{operation: {operation}, value: {{name: {name}, typed_config: {CORS}}}}}}}"
        ))
    };
    let router = ", subFilter: {name: envoy.filters.http.router}";
    let cors = ", subFilter: {name: envoy.filters.http.cors}";
    assert!(insert(router, "INSERT_AFTER", "x").contains("behind the router"));
    assert!(insert("", "INSERT_AFTER", "x").contains("behind the router"));
    for (sub_filter, operation, name) in [
        (router, "INSERT_BEFORE", "x"),
        (cors, "INSERT_AFTER", "x"),
        ("", "INSERT_FIRST", "x"),
        ("", "ADD", "envoy.filters.http.router"),
    ] {
        assert_eq!(insert(sub_filter, operation, name), "", "{sub_filter} {operation} {name}");
    }
}

#[test]
fn an_insertion_where_nothing_has_an_order_adds() {
    use pilotfish_config::networking::PatchOperation::{Add, InsertAfter};
    for (kind, subject, value, want) in [
        ("CLUSTER", Subject::Cluster, "{name: x}", Add),
        ("LISTENER", Subject::Listener, "{name: x, address: {pipe: {path: /x}}, filter_chains: [{}]}", Add),
        ("FILTER_CHAIN", Subject::Listener, "{name: x}", Add),
        ("VIRTUAL_HOST", Subject::Route, "{name: x, domains: [x]}", Add),
        ("ROUTE_CONFIGURATION", Subject::Route, "{name: x}", Add),
        (
            "EXTENSION_CONFIG",
            Subject::Extension,
            "{name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}",
            Add,
        ),
        ("HTTP_ROUTE", Subject::Route, "{match: {prefix: /}, direct_response: {status: 200}}", InsertAfter),
        (
            "HTTP_FILTER",
            Subject::Listener,
            "{name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}",
            InsertAfter,
        ),
        (
            "NETWORK_FILTER",
            Subject::Listener,
            "{name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}",
            InsertAfter,
        ),
        (
            "LISTENER_FILTER",
            Subject::Listener,
            "{name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}",
            InsertAfter,
        ),
    ] {
        let spec = format!(
            "{{configPatches: [{{applyTo: {kind}, patch: {{operation: INSERT_AFTER, value: {value}}}}}]}}"
        );
        let world = World::of(&[("shop", "a", &spec)]);
        let load = match subject {
            Subject::Cluster => {
                |cx: &Cx<'_>, proxy: &Proxy| Loaded(Patches::of(cx, proxy, Subject::Cluster).load(cx))
            }
            Subject::Listener => {
                |cx: &Cx<'_>, proxy: &Proxy| Loaded(Patches::of(cx, proxy, Subject::Listener).load(cx))
            }
            Subject::Route => {
                |cx: &Cx<'_>, proxy: &Proxy| Loaded(Patches::of(cx, proxy, Subject::Route).load(cx))
            }
            Subject::Extension => {
                |cx: &Cx<'_>, proxy: &Proxy| Loaded(Patches::of(cx, proxy, Subject::Extension).load(cx))
            }
        };
        let operations: Vec<_> =
            world.evaluate(&proxy("sidecar", &[], &[]), load).0.iter().map(|patch| patch.operation).collect();
        assert_eq!(operations, [want], "{kind}");
    }
}

/// What patches leave of the virtual hosts `a` and `b` (by their domains), and what is said about those left
/// out.
fn hosts(patches: &str) -> (Vec<String>, Vec<(String, String)>) {
    let world = World::of(&[("shop", "a", &format!("{{configPatches: [{patches}]}}"))]);
    world.evaluate(&proxy("sidecar", &[], &[]), |cx, proxy| {
        let host = |name: &str| VirtualHost {
            name: name.to_owned(),
            domains: vec![format!("{name}.example.com")],
            ..VirtualHost::default()
        };
        let routes = RouteConfiguration { virtual_hosts: vec![host("a"), host("b")], ..Default::default() };
        let (patches, mut patched) = (Patches::of(cx, proxy, Subject::Route), Patched::default());
        let ports = ServicePorts::default();
        let routes = super::patch_routes(cx, &patches, TrafficClass::Outbound, &ports, routes, &mut patched);
        let domains = routes.unwrap().virtual_hosts.into_iter().flat_map(|host| host.domains).collect();
        let refused = patched.take_refused().into_iter().map(|patch| (patch.field, patch.fault)).collect();
        (domains, refused)
    })
}

#[test]
fn a_patch_whose_result_envoy_refuses_is_left_out_alone() {
    let add = |domain: &str| {
        format!(
            "{{applyTo: VIRTUAL_HOST, patch: {{operation: ADD, value: {{name: x, domains: ['{domain}']}}}}}}"
        )
    };
    let gone = "{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: a}}}, patch: {operation: REMOVE}}";
    let (ab, fault) = (
        ["a.example.com", "b.example.com"],
        "makes what Envoy refuses, it is left out there: the domain \"A.example.com\" of virtual host \"x\" is there twice",
    );
    let patches = format!("{}, {}, {}", add("c"), add("A.example.com"), add("d"));
    let (domains, refused) = hosts(&patches);
    assert_eq!(domains, [&ab[..], &["c", "d"]].concat());
    assert_eq!(refused, [("spec.configPatches[1]".to_owned(), fault.to_owned())]);
    // Together they are good.
    let (domains, refused) = hosts(&format!("{}, {gone}", add("A.example.com")));
    assert_eq!((domains, refused.len()), (vec!["b.example.com".to_owned(), "A.example.com".to_owned()], 0));
    let (domains, refused) = hosts(&add("c"));
    assert_eq!((domains.len(), refused.len()), (3, 0));
    // Bad ones among many cost themselves, and trying ends.
    let some = |bad: usize| {
        let patches =
            (0..100).map(|n| if n % 100 < bad { add("a.example.com") } else { add(&format!("d{n}")) });
        hosts(&patches.collect::<Vec<_>>().join(", "))
    };
    let (domains, refused) = some(60);
    assert_eq!((domains.len(), refused.len()), (2 + 40, 60));
    let (domains, refused) = some(70);
    let untried =
        refused.iter().filter(|(_, fault)| fault.starts_with("is left out there: 64 patches")).count();
    assert_eq!((domains.len(), refused.len(), untried), (2, 100, 36));
}

#[test]
fn what_is_bad_without_patches_is_patched_all_the_same() {
    let spec = "{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {lrs_report_endpoint_metrics: [x]}}}]}";
    let world = World::of(&[("shop", "a", spec)]);
    // A cluster without a name.
    assert_eq!(world.evaluate(&proxy("sidecar", &[], &[]), order), ["x"]);
}

/// Rule 27 of Istio 1.31: lists of the patch take the place of others, in any depth; all else merges.
#[test]
fn lists_of_a_patch_replace_those_that_are_there() {
    let thresholds = |list: serde_json::Value| json!({"circuit_breakers": {"thresholds": list}});
    #[rustfmt::skip]
    let table = [
        (thresholds(json!([{"max_retries": 1}, {"max_retries": 2}])), thresholds(json!([{"max_retries": 3}])),
         thresholds(json!([{"max_retries": 3}]))),
        // An empty list says nothing.
        (thresholds(json!([{"max_retries": 1}])), thresholds(json!([])), thresholds(json!([{"max_retries": 1}]))),
        // A list that is not in the patch stays.
        (json!({"name": "a", "health_checks": [{"timeout": "1s"}]}), json!({"name": "b"}),
         json!({"name": "b", "health_checks": [{"timeout": "1s"}]})),
        // Maps and messages merge.
        (json!({"metadata": {"filter_metadata": {"a": {"x": 1}}}, "circuit_breakers": {"thresholds": [{"max_retries": 1}]}}),
         json!({"metadata": {"filter_metadata": {"b": {"y": 2}}}, "circuit_breakers": {"per_host_thresholds": [{"max_connections": 2}]}}),
         json!({"metadata": {"filter_metadata": {"a": {"x": 1.0}, "b": {"y": 2.0}}},
                "circuit_breakers": {"thresholds": [{"max_retries": 1}], "per_host_thresholds": [{"max_connections": 2}]}})),
    ];
    for (target, patch, want) in table {
        assert_eq!(merged_with(Lists::Replace, &target, &patch), want, "{target} + {patch}");
    }
    for (operation, lists) in [
        (PatchOperation::Merge, Some(Lists::Append)),
        (PatchOperation::MergeAndReplaceList, Some(Lists::Replace)),
        (PatchOperation::Add, None),
        (PatchOperation::Replace, None),
    ] {
        assert_eq!(Lists::of(operation), lists, "{operation:?}");
    }
}
