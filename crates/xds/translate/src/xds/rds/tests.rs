use super::{MAX_VIRTUAL_HOSTS, RouteView};
use crate::engine::memo::Memo;
use crate::engine::{Cx, Query, ResourceBatch, ResourceBatchKey};
use crate::proxy::{InterceptionMode, Proxy, ProxyKind};
use crate::testing::{TestService, evaluate, labels, line, of_service_entry, service, sidecar, world, yaml};
use pilotfish_config::{Limits, read};
use pilotfish_model::{
    ChangeSet, Hostname, Locality, Object, Origin, Provider, ShardKey, Update, World, WorldWriter,
};
use pilotfish_proto::envoy::config::route::v3::RouteConfiguration;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The view of a proxy, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ViewOf(Proxy);

impl Query for ViewOf {
    type Output = RouteView;

    fn compute(&self, cx: &Cx<'_>) -> RouteView {
        RouteView::of(cx, &self.0).unwrap()
    }
}

/// One route configuration of a view, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RouteOf(RouteView, Arc<str>);

impl Query for RouteOf {
    type Output = ResourceBatch;

    fn compute(&self, cx: &Cx<'_>) -> ResourceBatch {
        self.0.generate(cx, &ResourceBatchKey::Named(self.1.clone()))
    }
}

fn view(world: &Arc<World>, proxy: &Proxy) -> RouteView {
    RouteView::clone(&evaluate(world, &ViewOf(proxy.clone())))
}

fn rule(name: &str, spec: &str) -> Object {
    let yaml = format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}"
    );
    let file = read("test.yaml", yaml.as_bytes(), &Limits::default());
    assert!(file.rejected.is_empty(), "{:?}", file.rejected);
    file.objects.into_iter().next().unwrap().object
}

fn decode(batch: &ResourceBatch) -> RouteConfiguration {
    let packed = pilotfish_proto::Any::decode(batch.resources[0].body.clone()).unwrap();
    RouteConfiguration::decode(&*packed.value).unwrap()
}

/// A proxy that differs from another in everything that routes never depend on.
fn other(proxy: &Proxy) -> Proxy {
    Proxy {
        id: "else~1".into(),
        name: "else-1".into(),
        ips: Arc::from(["10.0.99.9".parse().unwrap()]),
        network: "net-b".into(),
        locality: Locality::parse("eu/eu-1/a"),
        labels: labels(&[("app", "other"), ("pod-template-hash", "1")]),
        interception: InterceptionMode::None,
        istio_filters: !proxy.istio_filters,
        metadata: [("NODE_NAME", "node-b")].into(),
        proxy_config: "{}".into(),
        ..proxy.clone()
    }
}

#[test]
fn facets_that_routes_do_not_use_do_not_count() {
    let proxy = sidecar("web-0", "shop");
    let route = "route: [{destination: {host: web}}]";
    let plain = world([Update::Object(rule("a", &format!("{{hosts: [web], http: [{{{route}}}]}}")))]);
    assert_eq!(view(&plain, &proxy), view(&plain, &other(&proxy)));
    let by_source =
        format!("{{hosts: [web], http: [{{match: [{{sourceLabels: {{app: other}}}}], {route}}}]}}");
    let by_label = world([Update::Object(rule("a", &by_source))]);
    assert_ne!(view(&by_label, &proxy), view(&by_label, &other(&proxy)));
    // Only labels that a rule matches count.
    let replica = Proxy { labels: labels(&[("app", "other"), ("pod-template-hash", "2")]), ..other(&proxy) };
    assert_eq!(view(&by_label, &other(&proxy)), view(&by_label, &replica));
    let router = Proxy { kind: ProxyKind::Router, ..proxy };
    let away = Proxy { cluster: "elsewhere".into(), dns_domain: "else".into(), ..other(&router) };
    assert_eq!(view(&plain, &router), view(&plain, &away));
}

#[test]
fn a_change_of_one_rule_recomputes_the_routes_of_no_other() {
    let mut writer = WorldWriter::new();
    let spec = |timeout: &str| {
        format!(
            "{{hosts: [web-1], http: [{{timeout: {timeout}, route: [{{destination: {{host: web-1}}}}]}}]}}"
        )
    };
    for index in 0..50 {
        writer.apply(service(&format!("web-{index}"), "shop").update());
    }
    writer.apply(Update::Object(rule("a", &spec("1s"))));
    writer.apply(Update::Object(rule(
        "b",
        "{hosts: [web-2], http: [{route: [{destination: {host: web-2}}]}]}",
    )));
    let memo = Memo::new();
    let (world, _) = writer.publish().unwrap();
    let query = RouteOf(view(&world, &sidecar("client-0", "shop")), "80".into());
    let count = |writer: &mut WorldWriter| {
        let (world, changes) = writer.publish().unwrap();
        let (current, _) = memo.advance(world, &changes);
        let before = memo.computed();
        let batch = memo.get(&current, &query).0;
        (memo.computed() - before, batch)
    };
    let (current, _) = memo.advance(world, &ChangeSet::default());
    memo.get(&current, &query);
    drop(current);
    writer.apply(Update::Object(rule("a", &spec("2s"))));
    let (computed, batch) = count(&mut writer);
    // The index of rules, the rule, its routes, and the configuration.
    assert!(computed <= 5, "{computed}");
    let config = decode(&batch);
    assert_eq!(config.virtual_hosts.len(), 51);
    let names = batch.resources[0]
        .provenance
        .iter()
        .filter(|origin| origin.as_object().is_some_and(|origin| &*origin.object.name == "a"))
        .count();
    assert_eq!(names, 1);
}

#[test]
fn names_that_mean_nothing_have_an_empty_route() {
    let world = world([service("web", "shop").update()]);
    let view = view(&world, &sidecar("client-0", "shop"));
    let hosts = |name: &str| {
        let config = decode(&evaluate(&world, &RouteOf(view.clone(), name.into())));
        assert_eq!(config.name, name);
        config.virtual_hosts.into_iter().map(|host| host.name).collect::<Vec<_>>()
    };
    assert_eq!(hosts("80"), ["web.shop.svc.cluster.local:80", "allow_any"]);
    assert_eq!(hosts("web.shop.svc.cluster.local:80"), ["web.shop.svc.cluster.local:80"]);
    assert_eq!(hosts("http_proxy"), ["web.shop.svc.cluster.local:80", "allow_any"]);
    assert!(hosts("nonsense").is_empty() && hosts("gone.shop.svc.cluster.local:80").is_empty());
}

#[test]
fn a_short_form_never_hides_the_full_name_of_another() {
    let named = |host: &str| {
        service("x", "shop")
            .with(|service| service.hostname = pilotfish_model::Hostname::parse(host).unwrap())
    };
    let world = world([named("web.shop.svc.cluster.local").update(), named("web.shop").update()]);
    let view = view(&world, &sidecar("client-0", "pay"));
    let config = decode(&evaluate(&world, &RouteOf(view, "80".into())));
    let domains =
        |name: &str| config.virtual_hosts.iter().find(|host| host.name == name).unwrap().domains.clone();
    assert_eq!(domains("web.shop:80"), ["web.shop", "web.shop."]);
    assert!(!domains("web.shop.svc.cluster.local:80").contains(&"web.shop".to_owned()));
}

#[test]
fn hosts_of_live_registries_take_no_short_form_of_a_service() {
    let registered = |host: &str| {
        service("x", "evil").with(|service| {
            service.hostname = pilotfish_model::Hostname::parse(host).unwrap();
            let shard = ShardKey::new(Provider::new(2, "registration"), "c");
            service.provenance = Origin::registered(shard, host);
        })
    };
    let taken = ["pay.payments", "pay.payments.svc", "pay-0.pay.payments", "pay-0.pay.payments.svc"];
    let free = ["free.payments", "pay.example.com", "web.consul"];
    let others = taken.into_iter().chain(free);
    let services = others.map(|host| registered(host).update());
    let world = world(services.chain([service("pay", "payments").update()]));
    for (client, short) in [("shop", None), ("payments", Some("pay"))] {
        let view = view(&world, &sidecar("client-0", client));
        let config = decode(&evaluate(&world, &RouteOf(view, "80".into())));
        let domains: BTreeMap<&str, &[String]> =
            config.virtual_hosts.iter().map(|host| (&*host.name, &*host.domains)).collect();
        let pay = domains["pay.payments.svc.cluster.local:80"];
        for form in
            ["pay.payments", "pay.payments.svc", "pay.payments.svc.cluster.local"].iter().chain(&short)
        {
            assert!(pay.iter().any(|domain| domain == form), "{form} in {client}: {pay:?}");
        }
        for host in taken {
            assert!(!domains.contains_key(&*format!("{host}:80")), "{client}: {domains:?}");
        }
        for host in free {
            assert!(domains[&*format!("{host}:80")].iter().any(|domain| domain == host), "{client} {host}");
        }
    }
}

#[test]
fn hosts_beyond_the_limit_of_routes_are_refused_one_by_one() {
    let hosts: Vec<_> = (0..41).map(|n| format!("h{n:02}.example")).collect();
    let conditions = "{uri: {prefix: /a}}, ".repeat(2_499);
    let spec = format!(
        "{{hosts: [{}], http: [{{match: [{conditions}], route: [{{destination: {{host: web}}}}]}}, {{route: [{{destination: {{host: web}}}}]}}]}}",
        hosts.join(", ")
    );
    let world = world([service("web", "shop").update(), Update::Object(rule("a", &spec))]);
    let config = decode(&evaluate(&world, &RouteOf(view(&world, &sidecar("client-0", "shop")), "80".into())));
    let routes: Vec<_> = config
        .virtual_hosts
        .iter()
        .filter(|host| host.name.starts_with('h'))
        .map(|host| host.routes.len())
        .collect();
    assert_eq!(routes[..40], [2_500; 40]);
    assert_eq!(routes[40..], [1], "100,000 are there already");
    let refused = config.virtual_hosts.iter().find(|host| host.name == "h40.example:80").unwrap();
    let text = format!("{:?}", refused.routes[0].action);
    assert!(text.contains("status: 503") && text.contains("VirtualService shop/a"), "{text}");
    assert!(
        config.virtual_hosts.iter().any(|host| host.name.starts_with("web.shop")),
        "the rest is as it was"
    );
}

#[test]
fn hosts_beyond_their_own_limit_are_refused_together() {
    // What one virtual service may have is less than what all of a port may.
    let of = |rule: &str, count: usize| {
        let hosts: Vec<_> = (0..count).map(|n| format!("{rule}{n:05}.example")).collect();
        format!("{{hosts: [{}], http: [{{route: [{{destination: {{host: web}}}}]}}]}}", hosts.join(", "))
    };
    let rules = [("a", 32_000), ("b", 32_000), ("c", 32_000), ("d", 5_000)];
    let rules = rules.map(|(name, count)| Update::Object(rule(name, &of(name, count))));
    let world = world(std::iter::once(service("web", "shop").update()).chain(rules));
    let batch = evaluate(&world, &RouteOf(view(&world, &sidecar("client-0", "shop")), "80".into()));
    let config = decode(&batch);
    let of_rules = config.virtual_hosts.iter().filter(|host| host.name.ends_with(".example:80")).count();
    assert!((99_990..=MAX_VIRTUAL_HOSTS).contains(&of_rules), "{of_rules}");
    let others: Vec<_> =
        config.virtual_hosts.iter().filter(|host| host.domains.iter().any(|domain| domain == "*")).collect();
    let [refused] = &others[..] else { panic!("{} for all hosts", others.len()) };
    assert!(format!("{:?}", refused.routes).contains("status: 503"), "{refused:?}");
    let named: Vec<_> = batch.resources[0]
        .refused
        .iter()
        .map(|refusal| format!("{} {} {}", refusal.object, refusal.field, refusal.fault))
        .collect();
    assert!(
        matches!(&named[..], [one] if one.contains("shop/d spec.hosts") && one.contains("limit route-configuration-hosts")),
        "{named:?}"
    );
}

/// A service of a ServiceEntry of namespace `shop`.
fn external(host: &str) -> TestService {
    service("any", "shop").with(|service| {
        service.hostname = Hostname::parse(host).unwrap();
        service.name = host.into();
        of_service_entry(service);
    })
}

/// `virtual host: first route` of a port, without the catch-all.
fn hosts(world: &Arc<World>, port: &str) -> Vec<String> {
    let view = view(world, &sidecar("client-0", "shop"));
    let config = decode(&evaluate(world, &RouteOf(view, port.into())));
    let named = config.virtual_hosts.iter().filter(|host| host.name != "allow_any");
    named.map(|host| format!("{} {}", host.name, host.routes[0].name)).collect()
}

#[test]
fn routes_of_the_gateway_api_decide_on_plain_hosts_of_services_alone() {
    let entry = line(
        "networking.istio.io/v1",
        "ServiceEntry",
        "shop",
        "e",
        "{hosts: [plain.example, '*.wild.example', elsewhere.example], ports: [{number: 80, name: http, protocol: HTTP}]}",
    );
    let route = |kind: &str, port: &str| {
        let spec = format!(
            "{{parentRefs: [{{group: networking.istio.io, kind: ServiceEntry, name: e{port}}}], rules: [{{backendRefs: [{{group: networking.istio.io, kind: Hostname, name: plain.example, port: 80}}]}}]}}"
        );
        line("gateway.networking.k8s.io/v1", kind, "shop", "r", &spec)
    };
    for kind in ["HTTPRoute", "GRPCRoute"] {
        for port in ["", ", port: 80"] {
            let updates = yaml(&(entry.clone() + &route(kind, port)));
            // `elsewhere.example` has no such port.
            let services =
                ["plain.example", "*.wild.example", "below.wild.example"].map(|host| external(host).update());
            let world = world(updates.into_iter().chain(services));
            assert_eq!(
                hosts(&world, "80"),
                ["*.wild.example:80 default", "below.wild.example:80 default", "plain.example:80 shop.r.0"],
                "{kind} {port}"
            );
        }
    }
    let rule = line(
        "networking.istio.io/v1",
        "VirtualService",
        "shop",
        "v",
        "{hosts: ['*.wild.example'], http: [{name: v, route: [{destination: {host: plain.example}}]}]}",
    );
    let world = world(
        yaml(&rule)
            .into_iter()
            .chain(["plain.example", "*.wild.example"].map(|host| external(host).update())),
    );
    assert_eq!(hosts(&world, "80"), ["*.wild.example:80 v", "plain.example:80 default"]);
}
