//! Services whose ports, addresses, names and entries overlap, from objects to what proxies are sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_model::{ChangeSet, Fact, Kind};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_registry::testing::{objects, world_from_yaml};
use pilotfish_testkit::cases::translator;
use pilotfish_testkit::dump::dump;
use pilotfish_translate::{Proxy, Translator};
use serde_json::Value as Json;

/// A proxy with metadata; gateways have the label `app: gateway`.
fn proxy(kind: &str, namespace: &str, ip: &str, metadata: &[(&str, &str)]) -> Proxy {
    let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.to_owned())) };
    let labels = Struct { fields: [("app".to_owned(), text("gateway"))].into() };
    let labels = Value { kind: Some(ValueKind::StructValue(labels)) };
    let fields = metadata.iter().map(|(key, value)| ((*key).to_owned(), text(value)));
    let labels = (kind == "router").then(|| ("LABELS".to_owned(), labels));
    Proxy::from_node(&Node {
        id: format!("{kind}~{ip}~p-1.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct { fields: fields.chain(labels).collect() }),
        ..Node::default()
    })
    .unwrap()
}

fn client() -> Proxy {
    proxy("sidecar", "shop", "10.0.99.1", &[])
}

fn gateway() -> Proxy {
    proxy("router", "shop", "10.0.99.2", &[])
}

/// Everything that a proxy is sent in a world of these objects.
fn sent(text: &str, proxy: Proxy) -> Json {
    let translator = translator(objects(text).unwrap());
    let client = translator.connect(proxy);
    dump(&translator.snapshot(), &client, None).unwrap()
}

/// Everything that a gRPC client without a proxy is sent when it dials `target`.
fn sent_to_grpc(text: &str, target: &str) -> Json {
    let translator = translator(objects(text).unwrap());
    let client = translator.connect(proxy("sidecar", "shop", "10.0.99.1", &[("GENERATOR", "grpc")]));
    dump(&translator.snapshot(), &client, Some(&[target.to_owned()])).unwrap()
}

/// `address:port` of the endpoints of a cluster, of its load assignment or in the cluster itself; sorted.
fn endpoints(dump: &Json, cluster: &str) -> Vec<String> {
    let assignments = [&dump["endpoints"][cluster], &dump["clusters"][cluster]["load_assignment"]];
    let localities = assignments.into_iter().flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
    let all = localities.flat_map(|locality| locality["lb_endpoints"].as_array().into_iter().flatten());
    let text = |endpoint: &Json| {
        let address = &endpoint["endpoint"]["address"]["socket_address"];
        format!("{}:{}", address["address"].as_str().unwrap(), address["port_value"])
    };
    let mut texts: Vec<String> = all.map(text).collect();
    texts.sort();
    texts
}

/// All strings under a key anywhere in a value, in order, each once.
fn under(value: &Json, key: &str, found: &mut Vec<String>) {
    match value {
        Json::Object(fields) => fields.iter().for_each(|(name, inner)| match inner {
            Json::String(text) if name == key && !found.contains(text) => found.push(text.clone()),
            inner => under(inner, key, found),
        }),
        Json::Array(items) => items.iter().for_each(|inner| under(inner, key, found)),
        _ => {}
    }
}

/// The clusters of services to which routes and listeners lead.
fn destinations(dump: &Json) -> Vec<String> {
    let mut found = Vec::new();
    for kind in ["listeners", "routes"] {
        under(&dump[kind], "cluster", &mut found);
    }
    found.retain(|name| name.starts_with("outbound|"));
    found.sort();
    found
}

fn object(api: &str, kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n---\n"
    )
}

fn istio(kind: &str, name: &str, spec: &str) -> String {
    object("networking.istio.io/v1", kind, "shop", name, spec)
}

/// A Service with one endpoint. Ports as `NAME NUMBER TARGET PROTOCOL`.
fn service(name: &str, address: &str, endpoint: &str, ports: &[(&str, u16, u16, &str)]) -> String {
    let declared = ports.iter().map(|(name, number, target, protocol)| {
        format!("{{name: {name}, port: {number}, targetPort: {target}, protocol: {protocol}}}")
    });
    let listed = ports
        .iter()
        .map(|(name, _, target, protocol)| format!("{{name: {name}, port: {target}, protocol: {protocol}}}"));
    let spec = format!(
        "{{clusterIP: {address}, selector: {{app: {name}}}, ports: [{}]}}",
        declared.collect::<Vec<_>>().join(", ")
    );
    object("v1", "Service", "shop", name, &spec)
        + &format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nports: [{}]\nendpoints: [{{addresses: [{endpoint}]}}]\n---\n",
            listed.collect::<Vec<_>>().join(", ")
        )
}

fn gateway_on(port: u16, protocol: &str) -> String {
    let spec = format!(
        "{{selector: {{app: gateway}}, servers: [{{port: {{number: {port}, name: a, protocol: {protocol}}}, hosts: ['*']}}]}}"
    );
    istio("Gateway", "entry", &spec)
}

const PAGE: &str = "outbound|443||page.shop.svc.cluster.local";

#[test]
fn udp_port_of_the_same_number_never_stands_for_the_tcp_port() {
    let (udp, tcp) = (("quic", 443, 1443, "UDP"), ("http-page", 443, 2443, "TCP"));
    let sctp = ("sctp", 443, 3443, "SCTP");
    for ports in [&[udp, tcp][..], &[tcp, udp], &[tcp], &[sctp, tcp, udp], &[udp, tcp, sctp]] {
        let page = service("page", "10.1.0.1", "10.0.0.1", ports);
        let dump = sent(&page, client());
        assert_eq!(endpoints(&dump, PAGE), ["10.0.0.1:2443"], "{ports:?}");
        assert_eq!(destinations(&dump), [PAGE], "{ports:?}");

        let rule = "{hosts: [page], http: [{route: [{destination: {host: page}, headers: {request: {set: {a: b}}}}]}]}";
        let ruled = sent(&(page.clone() + &istio("VirtualService", "page", rule)), client());
        let mut config = Vec::new();
        under(&ruled["routes"], "config", &mut config);
        assert_eq!(
            config,
            ["/apis/networking.istio.io/v1/namespaces/shop/virtual-service/page"],
            "{ports:?}"
        );

        let sidecar = "{egress: [{port: {number: 443, protocol: HTTP, name: a}, hosts: ['./page.shop.svc.cluster.local']}]}";
        let scoped = sent(&(page.clone() + &istio("Sidecar", "default", sidecar)), client());
        assert_eq!(endpoints(&scoped, PAGE), ["10.0.0.1:2443"], "{ports:?}");

        let grpc = sent_to_grpc(&page, "page.shop.svc.cluster.local:443");
        assert_eq!(destinations(&grpc), [PAGE], "{ports:?}");
        assert_eq!(endpoints(&grpc, PAGE), ["10.0.0.1:2443"], "{ports:?}");

        let rule = "{hosts: ['*'], gateways: [entry], http: [{route: [{destination: {host: page}}]}]}";
        let entry = gateway_on(8080, "HTTP") + &istio("VirtualService", "entry", rule);
        let dump = sent(&(page + &entry), gateway());
        assert_eq!(destinations(&dump), [PAGE], "a lone TCP port needs no number: {ports:?}");
        assert_eq!(endpoints(&dump, PAGE), ["10.0.0.1:2443"], "{ports:?}");
    }
}

#[test]
fn tcp_port_describes_the_listener_of_a_target_port_that_udp_has_too() {
    for ports in [
        "{name: dns, port: 53, protocol: UDP}, {name: http-dns, port: 53}",
        "{name: http-dns, port: 53}, {name: dns, port: 53, protocol: UDP}",
    ] {
        let text = object(
            "v1",
            "Service",
            "shop",
            "dns",
            &format!("{{clusterIP: 10.1.0.1, selector: {{app: dns}}, ports: [{ports}]}}"),
        ) + "apiVersion: v1\nkind: Pod\nmetadata: {name: p-1, namespace: shop, labels: {app: dns}}\n\
               spec: {containers: [{name: a, image: a}]}\n\
               status: {phase: Running, podIP: 10.0.99.1, podIPs: [{ip: 10.0.99.1}], conditions: [{type: Ready, status: 'True'}]}\n";
        let dump = sent(&text, client());
        let chains = dump["listeners"]["virtualInbound"]["filter_chains"].to_string();
        assert!(chains.contains("\"inbound_0.0.0.0_53;\""), "its traffic is HTTP: {ports}");
    }
}

#[test]
fn ports_of_several_entries_unite_by_number_and_protocol() {
    let entry = |name: &str, port: &str, address: &str| {
        let spec = format!(
            "{{hosts: [a.example.com], resolution: DNS, ports: [{{number: 443, {port}}}], endpoints: [{{address: {address}}}]}}"
        );
        istio("ServiceEntry", name, &spec)
    };
    let udp = entry("a", "name: quic, protocol: UDP", "u.example.com");
    let tcp = entry("b", "name: tls, protocol: TLS", "t.example.com");
    let dump = sent(&(udp + &tcp), client());
    assert_eq!(endpoints(&dump, "outbound|443||a.example.com"), ["t.example.com:443"]);
}

#[test]
fn listeners_have_all_cluster_addresses_where_both_families_are_redirected() {
    let web = |ips: &str| {
        let first = ips.split(", ").next().unwrap();
        let spec = format!("{{clusterIP: {first}, clusterIPs: [{ips}], ports: [{{name: tcp, port: 9000}}]}}");
        object("v1", "Service", "shop", "web", &spec)
    };
    let listener = |ips: &str, metadata: &[(&str, &str)]| {
        let metadata = [metadata, &[("INSTANCE_IPS", "10.0.99.1,fd00::1")]].concat();
        let dump = sent(&web(ips), proxy("sidecar", "shop", "10.0.99.1", &metadata));
        let listeners = dump["listeners"].as_object().unwrap().clone();
        let (name, listener) = listeners.into_iter().find(|(name, _)| name.ends_with("_9000")).unwrap();
        let mut others = Vec::new();
        under(&listener["additional_addresses"], "address", &mut others);
        (name, others)
    };
    let both: &[(&str, &str)] = &[("DUAL_STACK", "true")];
    let (v4, v6) = ("10.1.0.1", "fd00:1::1");
    let of = |name: &str, others: &[&str]| {
        (format!("{name}_9000"), others.iter().map(ToString::to_string).collect())
    };
    assert_eq!(listener("10.1.0.1, 'fd00:1::1'", both), of(v4, &[v6]));
    assert_eq!(listener("'fd00:1::1', 10.1.0.1", both), of(v6, &[v4]));
    assert_eq!(listener("'fd00:1::1'", both), of(v6, &[]));
    assert_eq!(listener("10.1.0.1, 'fd00:1::1'", &[]), of(v4, &[]), "only one family is redirected");
}

/// `stock` on ports 8080 to 8083, and aliases of it: with another port, with none, and of an alias.
fn aliases() -> String {
    let ports = [("http", 8080, 80, "TCP"), ("tcp", 8081, 81, "TCP"), ("tls", 8082, 82, "TCP")];
    let alias = |name: &str, to: &str, ports: &str| {
        object(
            "v1",
            "Service",
            "shop",
            name,
            &format!("{{type: ExternalName, externalName: {to}.shop.svc.cluster.local{ports}}}"),
        )
    };
    service("stock", "10.1.0.2", "10.0.0.2", &ports)
        + &service("web", "10.1.0.1", "10.0.0.1", &ports)
        + &alias("nick", "stock", ", ports: [{name: http, port: 80}]")
        + &alias("bare", "stock", "")
        + &alias("second", "bare", "")
}

fn stock(port: u16) -> String {
    format!("outbound|{port}||stock.shop.svc.cluster.local")
}

/// A destination in a route of a VirtualService.
fn to(alias: &str, port: u16) -> String {
    format!("{{destination: {{host: {alias}, port: {{number: {port}}}}}}}")
}

/// Rules of a VirtualService that lead to an alias, and the clusters that they must name.
fn rules_to(alias: &str) -> [(String, Vec<String>); 5] {
    let mirror = |port: u16| format!("{{host: {alias}, port: {{number: {port}}}}}");
    let mirrors = format!("[{{destination: {}}}, {{destination: {}}}]", mirror(8080), mirror(8081));
    let mirror = mirror(8080);
    let streams = format!(
        "tcp: [{{match: [{{port: 8081}}], route: [{}]}}], tls: [{{match: [{{port: 8082, sniHosts: [web]}}], route: [{}]}}]",
        to(alias, 8081),
        to(alias, 8082)
    );
    let weighted = format!(
        "http: [{{route: [{}, {}]}}]",
        to(alias, 8080).replace("}}}", "}}, weight: 1}"),
        to(alias, 8081).replace("}}}", "}}, weight: 2}")
    );
    [
        (format!("http: [{{route: [{}]}}]", to(alias, 8080)), vec![stock(8080)]),
        (weighted, vec![stock(8080), stock(8081)]),
        (
            format!("http: [{{mirrors: {mirrors}, route: [{{destination: {{host: web}}}}]}}]"),
            vec![stock(8080), stock(8081)],
        ),
        (format!("http: [{{mirror: {mirror}, route: [{{destination: {{host: web}}}}]}}]"), vec![stock(8080)]),
        (streams, vec![stock(8081), stock(8082)]),
    ]
}

#[test]
fn routes_to_an_alias_lead_to_the_named_port_of_what_is_behind_it() {
    for alias in ["nick", "bare", "second"] {
        let to = |port: u16| to(alias, port);
        for (rule, clusters) in rules_to(alias) {
            let rule = istio("VirtualService", "web", &format!("{{hosts: [web], {rule}}}"));
            let narrow = istio("Sidecar", "default", "{egress: [{hosts: ['./web.shop.svc.cluster.local']}]}");
            for (scope, what) in [(String::new(), "all"), (narrow, "web only")] {
                let dump = sent(&(aliases() + &rule + &scope), client());
                let named = dump["routes"].to_string() + &dump["listeners"].to_string();
                for aliased in [alias, "nick", "bare", "second"] {
                    assert!(!named.contains(&format!("||{aliased}.shop")), "{alias} {what}: {rule}");
                }
                for cluster in &clusters {
                    assert!(named.contains(&format!("\"{cluster}\"")), "{alias} {what} {cluster}: {rule}");
                    assert_eq!(endpoints(&dump, cluster).len(), 1, "{alias} {what} {cluster}: {rule}");
                }
            }
        }
        let rule = format!("{{hosts: ['*'], gateways: [entry], http: [{{route: [{}]}}]}}", to(8080));
        let entry = gateway_on(80, "HTTP") + &istio("VirtualService", "entry", &rule);
        assert_eq!(destinations(&sent(&(aliases() + &entry), gateway())), [stock(8080)], "{alias}");
        let rule = format!("{{hosts: ['*'], gateways: [entry], tcp: [{{route: [{}]}}]}}", to(8081));
        let entry = gateway_on(90, "TCP") + &istio("VirtualService", "entry", &rule);
        assert_eq!(destinations(&sent(&(aliases() + &entry), gateway())), [stock(8081)], "{alias}");

        let rule = format!("{{hosts: [web], http: [{{route: [{}]}}]}}", to(8080));
        let text = aliases() + &istio("VirtualService", "web", &rule);
        for target in ["web", alias] {
            let dump = sent_to_grpc(&text, &format!("{target}.shop.svc.cluster.local:8080"));
            assert!(dump["clusters"].get(stock(8080)).is_some(), "{alias} {target}: {dump}");
            assert_eq!(endpoints(&dump, &stock(8080)).len(), 1, "{alias} {target}");
        }
    }
}

#[test]
fn delegate_to_an_alias_leads_to_the_named_port_of_what_is_behind_it() {
    for alias in ["nick", "bare", "second"] {
        let root = istio(
            "VirtualService",
            "root",
            "{hosts: [web], http: [{match: [{uri: {prefix: /a}}], delegate: {name: part}}]}",
        );
        let part = format!("{{http: [{{route: [{}]}}]}}", to(alias, 8080));
        let dump = sent(&(aliases() + &root + &istio("VirtualService", "part", &part)), client());
        assert_names_stock(&dump, alias, 8080);
    }
}

#[test]
fn redirect_to_an_alias_finds_the_alias_on_its_port() {
    for alias in ["nick", "bare", "second"] {
        let authority = format!("{alias}.shop.svc.cluster.local");
        let rule = format!("{{hosts: [web], http: [{{redirect: {{authority: '{authority}:8080'}}}}]}}");
        let dump = sent(&(aliases() + &istio("VirtualService", "web", &rule)), client());
        let hosts = dump["routes"]["8080"]["virtual_hosts"].as_array().unwrap();
        let redirect = hosts.iter().find(|host| host.to_string().contains("host_redirect")).unwrap();
        assert!(redirect.to_string().contains(&format!("{authority}:8080")), "{alias}: {redirect}");
        let next = hosts.iter().find(|host| {
            host["domains"]
                .as_array()
                .is_some_and(|domains| domains.iter().any(|domain| domain == &authority))
        });
        let next = next.unwrap_or_else(|| panic!("{alias}: no virtual host of {authority} on port 8080"));
        assert!(next.to_string().contains(&stock(8080)), "{alias}: {next}");
    }
}

#[test]
fn routes_of_the_gateway_api_to_an_alias_lead_to_the_named_port_of_what_is_behind_it() {
    let route = |version: &str, kind: &str, port: u16, rule: &str| {
        let spec = format!(
            "{{parentRefs: [{{group: '', kind: Service, name: web, port: {port}}}], rules: [{rule}]}}"
        );
        object(&format!("gateway.networking.k8s.io/{version}"), kind, "shop", "web", &spec)
    };
    for alias in ["nick", "bare", "second"] {
        let backend = |port: u16| format!("backendRefs: [{{name: {alias}, port: {port}}}]");
        let mirror = format!(
            "{{filters: [{{type: RequestMirror, requestMirror: {{backendRef: {{name: {alias}, port: 8081}}}}}}], \
             backendRefs: [{{name: {alias}, port: 8080}}]}}"
        );
        let rule = |port: u16| format!("{{{}}}", backend(port));
        for (port, text) in [
            (8080, route("v1", "HTTPRoute", 8080, &rule(8080))),
            (8081, route("v1", "HTTPRoute", 8080, &mirror)),
            (8080, route("v1", "GRPCRoute", 8080, &rule(8080))),
            (8081, route("v1alpha2", "TCPRoute", 8081, &rule(8081))),
            (
                8082,
                route("v1", "TLSRoute", 8082, &rule(8082)).replacen(
                    "{parentRefs",
                    "{hostnames: [a.b.c], parentRefs",
                    1,
                ),
            ),
        ] {
            let dump = sent(&(aliases() + &text), client());
            assert_names_stock(&dump, alias, port);
        }
    }
}

/// Asserts that routes or listeners name `stock` on a port and no alias.
fn assert_names_stock(dump: &Json, alias: &str, port: u16) {
    let named = dump["routes"].to_string() + &dump["listeners"].to_string();
    assert!(named.contains(&format!("\"{}\"", stock(port))), "{alias} {port}: {named}");
    for aliased in ["nick", "bare", "second"] {
        assert!(!named.contains(&format!("||{aliased}.shop")), "{alias} {port}: {named}");
    }
    assert_eq!(endpoints(dump, &stock(port)).len(), 1, "{alias} {port}");
}

/// What clients of the namespaces `left` and `right` have behind `pay.example.com`, whose entries are in
/// `shop`.
fn left_and_right(entries: &str) -> [Vec<String>; 2] {
    ["left", "right"].map(|namespace| {
        let dump = sent(entries, proxy("sidecar", namespace, "10.0.99.1", &[]));
        endpoints(&dump, "outbound|80||pay.example.com")
    })
}

fn pay(name: &str, export: &str, more: &str) -> String {
    let spec = format!(
        "{{hosts: [pay.example.com], exportTo: [{export}], ports: [{{number: 80, name: http, protocol: HTTP}}], {more}}}"
    );
    istio("ServiceEntry", name, &spec)
}

#[test]
fn endpoints_of_an_entry_reach_only_those_that_it_is_exported_to() {
    let vm = istio("WorkloadEntry", "vm", "{address: 10.9.9.9, labels: {app: pay}}");
    let selecting = "resolution: STATIC, workloadSelector: {labels: {app: pay}}";
    for resolution in ["STATIC", "DNS", "DNS_ROUND_ROBIN"] {
        let inline = |address: &str| format!("resolution: {resolution}, endpoints: [{{address: {address}}}]");
        let a = |export: &str| pay("a", export, &inline("10.0.0.1"));
        let b = |export: &str| pay("b", export, &inline("10.0.0.2"));
        let both = left_and_right(&(a("left") + &b("right")));
        assert_eq!(both, [["10.0.0.1:80"], ["10.0.0.2:80"]], "{resolution}");
        let [left, right] = left_and_right(&(a("'*'") + &b("right")));
        assert_eq!(left, ["10.0.0.1:80"], "{resolution}");
        // A logical DNS cluster has one endpoint: that of the oldest entry.
        let count = if resolution == "DNS_ROUND_ROBIN" { 1 } else { 2 };
        assert_eq!(right, ["10.0.0.1:80", "10.0.0.2:80"][..count], "{resolution}");
        let both = left_and_right(&(a("left") + &pay("b", "right", selecting) + &vm));
        assert_eq!(both, [["10.0.0.1:80"], ["10.9.9.9:80"]], "{resolution}");
        let both = left_and_right(&(pay("a", "left", selecting) + &b("right") + &vm));
        assert_eq!(both, [["10.9.9.9:80"], ["10.0.0.2:80"]], "{resolution}");
        let both = left_and_right(&(a("left") + &b("left")));
        assert_eq!(both[1], [""; 0], "{resolution}");
    }
}

#[test]
fn private_entry_adds_nothing_to_the_public_service_of_its_host() {
    let host = "web.shop.svc.cluster.local";
    let entry = |export: &str| {
        pay("a", export, "resolution: STATIC, endpoints: [{address: 10.0.0.2}]")
            .replace("pay.example.com", host)
    };
    let web = service("web", "10.1.0.1", "10.0.0.1", &[("http", 80, 80, "TCP")]);
    let of = |entry: String| {
        let dump = sent(&(web.clone() + &entry), proxy("sidecar", "left", "10.0.99.1", &[]));
        endpoints(&dump, &format!("outbound|80||{host}"))
    };
    assert_eq!(of(entry("right")), ["10.0.0.1:80"]);
    assert_eq!(of(entry("left")), ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(of(entry("'*'")), ["10.0.0.1:80", "10.0.0.2:80"]);
}

#[test]
fn mesh_default_hides_endpoints_of_an_entry_behind_a_public_service() {
    let host = "web.shop.svc.cluster.local";
    let entry = |export: &str| {
        let spec = format!(
            "{{hosts: [{host}], {export}ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: 10.0.0.2}}]}}"
        );
        istio("ServiceEntry", "a", &spec)
    };
    let web = service("web", "10.1.0.1", "10.0.0.1", &[("http", 80, 80, "TCP")]).replacen(
        "name: web,",
        "name: web, annotations: {networking.istio.io/exportTo: '*'},",
        1,
    );
    assert!(web.contains("exportTo"), "{web}");
    let only_here = "defaultServiceExportTo: ['.']";
    let capped = "serviceEntryVisibility: {applyToSidecars: true, defaultVisibility: NAMESPACE}";
    let (one, both) = (vec!["10.0.0.1:80"], vec!["10.0.0.1:80", "10.0.0.2:80"]);
    for (setting, export, elsewhere, at_home) in [
        (only_here, "", &one, &both),
        (only_here, "exportTo: ['*'], ", &both, &both),
        (only_here, "exportTo: [left], ", &both, &one),
        (only_here, "exportTo: [right], ", &one, &one),
        ("defaultServiceExportTo: [left]", "", &both, &one),
        ("defaultServiceExportTo: [right]", "", &one, &one),
        ("defaultServiceExportTo: ['*']", "", &both, &both),
        (capped, "", &one, &both),
        (capped, "exportTo: ['*'], ", &one, &both),
        ("serviceEntryVisibility: {defaultVisibility: NAMESPACE}", "", &both, &both),
    ] {
        let text = web.clone() + &entry(export);
        let world = world_from_yaml(&text, Some(setting), None).unwrap();
        let translator = Translator::new();
        translator.publish(world, &ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() });
        let of = |namespace: &str| {
            let client = translator.connect(proxy("sidecar", namespace, "10.0.99.1", &[]));
            let dump = dump(&translator.snapshot(), &client, None).unwrap();
            endpoints(&dump, &format!("outbound|80||{host}"))
        };
        assert_eq!(of("left"), *elsewhere, "{setting} {export}");
        assert_eq!(of("shop"), *at_home, "{setting} {export}");
    }
}

#[test]
fn listeners_for_endpoints_are_of_exported_entries_only() {
    let vm = istio("WorkloadEntry", "vm", "{address: 10.9.9.9, labels: {app: pay}}");
    let tcp = |name: &str, export: &str, selector: &str| {
        pay(name, export, &format!("resolution: NONE, workloadSelector: {{labels: {{app: {selector}}}}}"))
            .replace("name: http, protocol: HTTP", "name: tcp, protocol: TCP")
    };
    let text = vm.clone()
        + &vm.replace("vm", "other").replace("10.9.9.9", "10.9.9.8").replace("app: pay", "app: other")
        + &tcp("a", "left", "pay")
        + &tcp("b", "right", "other");
    let listeners = |namespace: &str| {
        let dump = sent(&text, proxy("sidecar", namespace, "10.0.99.1", &[]));
        let names = dump["listeners"].as_object().unwrap().keys();
        names.filter(|name| name.ends_with("_80")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(listeners("left"), ["10.9.9.9_80"]);
    assert_eq!(listeners("right"), ["10.9.9.8_80"]);
}

#[test]
fn unknown_tls_mode_takes_the_clusters_of_its_port_or_subset_alone() {
    let stock =
        service("stock", "10.1.0.1", "10.0.0.1", &[("http", 80, 80, "TCP"), ("http-b", 81, 81, "TCP")]);
    let unknown = "tls: {mode: FUTURE}";
    let of_port = format!("portLevelSettings: [{{port: {{number: 81}}, {unknown}}}]");
    let subsets = |policy: &str| {
        format!(
            "subsets: [{{name: v1, labels: {{app: stock}}, trafficPolicy: {{{policy}}}}}, {{name: v2, labels: {{app: stock}}}}]"
        )
    };
    let all = ["80||", "80|v1|", "80|v2|", "81||", "81|v1|", "81|v2|"];
    for (spec, closed) in [
        (subsets("connectionPool: {}"), &[][..]),
        (subsets(unknown), &["80|v1|", "81|v1|"]),
        (subsets(&of_port), &["81|v1|"]),
        (
            format!("trafficPolicy: {{{of_port}}}, {}", subsets("connectionPool: {}")),
            &["81||", "81|v1|", "81|v2|"],
        ),
        (format!("trafficPolicy: {{{of_port}}}, {}", subsets("tls: {mode: SIMPLE}")), &["81||", "81|v2|"]),
        (format!("trafficPolicy: {{{unknown}}}, {}", subsets("connectionPool: {}")), &all),
        (
            format!("trafficPolicy: {{{unknown}}}, {}", subsets("tls: {mode: SIMPLE}")),
            &["80||", "80|v2|", "81||", "81|v2|"],
        ),
    ] {
        let rule = istio("DestinationRule", "stock", &format!("{{host: stock, {spec}}}"));
        let dump = sent(&(stock.clone() + &rule), client());
        let is_there = |part: &&&str| {
            dump["clusters"].get(format!("outbound|{part}stock.shop.svc.cluster.local")).is_some()
        };
        let missing: Vec<&str> = all.iter().filter(|part| !is_there(part)).copied().collect();
        assert_eq!(missing, closed, "{spec}");
    }
}
