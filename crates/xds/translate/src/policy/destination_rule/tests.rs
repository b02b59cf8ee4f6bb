use super::{DestinationRules, DestinationRulesFor};
use crate::engine::Query;
use crate::engine::memo::Memo;
use pilotfish_config::mesh::{DefaultTrafficPolicy, MeshConfig};
use pilotfish_config::networking::ClientTlsMode;
use pilotfish_config::{Limits, read};
use pilotfish_model::{ChangeSet, Hostname, Labels, ServiceKey, Update, WorldWriter};
use std::sync::Arc;

/// What clients of a namespace find for a service, by the name of the rule.
struct World(Memo);

impl World {
    fn of(rules: &[(&str, &str, &str)]) -> Self {
        let mut writer = WorldWriter::new();
        for (namespace, name, spec) in rules {
            let yaml = format!(
                "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
            );
            let file = read("test.yaml", yaml.as_bytes(), &Limits::default());
            assert!(file.rejected.is_empty(), "{:?}", file.rejected);
            file.objects.into_iter().for_each(|read| writer.apply(Update::Object(read.object)));
        }
        let memo = Memo::new();
        if let Some((world, _)) = writer.publish() {
            drop(memo.advance(world, &ChangeSet::default()));
        }
        Self(memo)
    }

    fn rules(&self, client: &str, host: &str, namespace: &str) -> Arc<DestinationRules> {
        let service = ServiceKey { hostname: Hostname::parse(host).unwrap(), namespace: namespace.into() };
        let query = DestinationRulesFor { client: client.into(), service };
        self.evaluate(&query)
    }

    fn evaluate<Q: Query>(&self, query: &Q) -> Arc<Q::Output> {
        self.0.get(&self.0.read(), query).0
    }

    fn name(&self, client: &str, host: &str) -> Option<String> {
        let rules = self.rules(client, host, "shop");
        rules.outbound(&Labels::default()).map(|rule| rule.name.to_string())
    }
}

const CATALOG: &str = "catalog.shop.svc.cluster.local";

#[test]
fn the_client_comes_before_the_service_and_the_root() {
    let world = World::of(&[
        ("client", "a", "{host: '*.shop.svc.cluster.local'}"),
        ("shop", "b", "{host: catalog}"),
        ("istio-system", "c", "{host: '*'}"),
    ]);
    assert_eq!(world.name("client", CATALOG).as_deref(), Some("a"));
    assert_eq!(world.name("other", CATALOG).as_deref(), Some("b"));
    assert_eq!(world.name("other", "cart.shop.svc.cluster.local").as_deref(), Some("c"));
    // Of the root namespace's own rules only private ones come first for clients there.
    assert_eq!(world.name("istio-system", CATALOG).as_deref(), Some("b"));
}

#[test]
fn the_longest_wildcard_wins() {
    let world = World::of(&[
        ("shop", "all", "{host: '*'}"),
        ("shop", "com", "{host: '*.example.com'}"),
        ("shop", "deep", "{host: '*.a.example.com'}"),
    ]);
    for (host, rule) in [
        ("x.a.example.com", "deep"),
        ("a.example.com", "com"),
        ("*.a.example.com", "deep"),
        ("example.com", "all"),
    ] {
        assert_eq!(world.name("shop", host).as_deref(), Some(rule), "{host}");
    }
}

#[test]
fn a_hidden_exact_rule_hides_the_wildcard_beside_it() {
    let world = World::of(&[
        ("shop", "hidden", "{host: catalog, exportTo: [team-a]}"),
        ("shop", "shown", "{host: '*.shop.svc.cluster.local'}"),
        ("istio-system", "root", "{host: '*'}"),
    ]);
    assert_eq!(world.name("team-a", CATALOG).as_deref(), Some("hidden"));
    assert_eq!(world.name("team-b", CATALOG).as_deref(), Some("root"));
    // It is not even for its own namespace.
    assert_eq!(world.name("shop", CATALOG).as_deref(), Some("shown"));
}

#[test]
fn rules_for_one_host_are_merged() {
    let world = World::of(&[
        ("shop", "a", "{host: catalog, subsets: [{name: v1, labels: {version: v1}}]}"),
        (
            "shop",
            "b",
            "{host: catalog, trafficPolicy: {loadBalancer: {simple: RANDOM}}, subsets: [{name: v1}, {name: v2}]}",
        ),
    ]);
    let rules = world.rules("client", CATALOG, "shop");
    let rule = rules.outbound(&Labels::default()).unwrap();
    let names: Vec<_> = rule.subsets.iter().map(|subset| &*subset.name).collect();
    assert_eq!((&*rule.name, names), ("a", vec!["v1", "v2"]));
    assert_eq!(rule.subset("v1").unwrap().labels.len(), 1);
    assert!(rule.policy(80).load_balancer.is_some());
    assert_eq!(rule.provenance.len(), 2);
}

#[test]
fn a_selected_workload_has_its_own_rule() {
    let world = World::of(&[
        ("shop", "a", "{host: bank.example.com}"),
        ("shop", "b", "{host: bank.example.com, workloadSelector: {matchLabels: {app: billing}}}"),
    ]);
    let billing: Labels = crate::testing::labels(&[("app", "billing")]);
    let name =
        |rules: &DestinationRules, labels: &Labels| rules.outbound(labels).map(|rule| rule.name.to_string());
    let rules = world.rules("shop", "bank.example.com", "shop");
    assert_eq!(name(&rules, &billing).as_deref(), Some("b"));
    assert_eq!(name(&rules, &Labels::default()).as_deref(), Some("a"));
    assert_eq!(rules.inbound().map(|rule| &*rule.name), Some("a"));
    assert_eq!(name(&world.rules("other", "bank.example.com", "shop"), &billing).as_deref(), Some("a"));
}

/// Rule 2 of Istio 1.31, for retry budgets.
#[test]
fn ports_replace_everything_and_subsets_replace_parts() {
    let world = World::of(&[(
        "shop",
        "a",
        "{host: catalog, trafficPolicy: {
            loadBalancer: {simple: RANDOM}, connectionPool: {tcp: {maxConnections: 1}}, retryBudget: {percent: 5},
            portLevelSettings: [{port: {number: 90}, tls: {mode: SIMPLE}}]},
          subsets: [
            {name: plain},
            {name: pool, trafficPolicy: {connectionPool: {tcp: {maxConnections: 2}}}},
            {name: budget, trafficPolicy: {retryBudget: {percent: 7}}},
            {name: port, trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}]}}]}",
    )]);
    let rules = world.rules("shop", CATALOG, "shop");
    let rule = rules.outbound(&Labels::default()).unwrap();
    // What is there: load balancer, connections, TLS, retry budget.
    let parts = |subset: &str, port: u32| {
        let policy = rule.policy_of(subset, port);
        let connections =
            policy.connection_pool.and_then(|pool| pool.tcp.as_ref()).map(|tcp| tcp.max_connections);
        let budget = policy.retry_budget.and_then(|budget| budget.percent);
        (policy.load_balancer.is_some(), connections, policy.tls.is_some(), budget)
    };
    assert_eq!(parts("", 80), (true, Some(1), false, Some(5.0)));
    assert_eq!(parts("", 90), (false, None, true, None));
    assert_eq!(parts("plain", 80), (true, Some(1), false, Some(5.0)));
    assert_eq!(parts("pool", 80), (true, Some(2), false, Some(5.0)));
    assert_eq!(parts("pool", 90), (false, Some(2), true, None));
    assert_eq!(parts("budget", 80), (true, Some(1), false, Some(7.0)));
    assert_eq!(parts("budget", 90), (false, None, true, Some(7.0)));
    assert_eq!(parts("port", 80), (false, None, true, Some(5.0)));
    assert_eq!(parts("port", 81), (true, Some(1), false, Some(5.0)));
}

#[test]
fn hashing_comes_from_the_most_specific_place_that_has_any() {
    let hash = |name: &str| format!("{{consistentHash: {{httpHeaderName: {name}}}}}");
    let spec = format!(
        "{{host: catalog, trafficPolicy: {{loadBalancer: {}, portLevelSettings: [{{port: {{number: 90}}, loadBalancer: {}}}]}},
          subsets: [{{name: v1, trafficPolicy: {{loadBalancer: {}}}}}]}}",
        hash("top"),
        hash("port"),
        hash("subset")
    );
    let world = World::of(&[("shop", "a", &spec)]);
    let rules = world.rules("shop", CATALOG, "shop");
    let rule = rules.outbound(&Labels::default()).unwrap();
    let key =
        |port, subset| rule.consistent_hash(port, subset).and_then(|hash| hash.http_header_name.as_deref());
    assert_eq!(key(Some(80), ""), Some("top"));
    assert_eq!(key(Some(90), ""), Some("port"));
    assert_eq!(key(None, ""), Some("top"));
    assert_eq!(key(Some(90), "v1"), Some("subset"));
}

#[test]
fn a_policy_for_tls_counts_as_older_than_any_rule() {
    let mut service = crate::testing::service("catalog", "shop").0;
    service.kubernetes = Some(Arc::default());
    let mut writer = WorldWriter::new();
    let text = "
{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: z, namespace: shop, creationTimestamp: '2026-01-01T00:00:00Z'},
 spec: {targetRefs: [{kind: Service, name: catalog}], validation: {hostname: a.b, wellKnownCACertificates: System}}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a, namespace: shop},
 spec: {host: catalog, trafficPolicy: {tls: {mode: DISABLE}, connectionPool: {tcp: {maxConnections: 3}}}, subsets: [{name: v1}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: own, namespace: client}, spec: {host: '*.shop.svc.cluster.local'}}
";
    crate::testing::yaml(text).into_iter().for_each(|update| writer.apply(update));
    writer.apply(crate::testing::TestService(service).update());
    let memo = Memo::new();
    drop(memo.advance(writer.publish().unwrap().0, &ChangeSet::default()));
    let world = World(memo);
    let rules = world.rules("other", CATALOG, "shop");
    let rule = rules.outbound(&Labels::default()).unwrap();
    assert_eq!(&*rule.name, "catalog~istio-autogenerated-k8s-gateway");
    assert!(!rule.requires_tls("", 80), "the written rule turns TLS off");
    assert_eq!(rule.policy(80).tls.unwrap().mode, ClientTlsMode::Disable);
    assert!(rule.policy(80).connection_pool.is_some());
    assert!(rule.subset("v1").is_some());
    let kinds: Vec<_> = rule.provenance.iter().map(ToString::to_string).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    // Clients with a rule of their own use that, as for any other rule.
    assert_eq!(world.name("client", CATALOG).as_deref(), Some("own"));
}

/// Rule 12 of Istio 1.31.
#[test]
fn policy_for_tls_lies_below_every_written_rule() {
    let mut service = crate::testing::service("catalog", "shop").0;
    service.kubernetes = Some(Arc::default());
    let mut writer = WorldWriter::new();
    let text = "
{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: z, namespace: shop},
 spec: {targetRefs: [{kind: Service, name: catalog}], validation: {hostname: a.b, wellKnownCACertificates: System}}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a, namespace: shop},
 spec: {host: catalog, trafficPolicy: {loadBalancer: {simple: RANDOM}, connectionPool: {tcp: {maxConnections: 3}},
   portLevelSettings: [{port: {number: 90}, loadBalancer: {simple: RANDOM}}]}}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: b, namespace: shop},
 spec: {host: catalog, workloadSelector: {matchLabels: {app: billing}}, trafficPolicy: {connectionPool: {tcp: {maxConnections: 4}}}}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: c, namespace: shop},
 spec: {host: catalog, exportTo: [partner], trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}}}
";
    crate::testing::yaml(text).into_iter().for_each(|update| writer.apply(update));
    writer.apply(crate::testing::TestService(service).update());
    let memo = Memo::new();
    drop(memo.advance(writer.publish().unwrap().0, &ChangeSet::default()));
    let world = World(memo);
    let billing = crate::testing::labels(&[("app", "billing")]);
    let connections = |client: &str, labels: &Labels| {
        let rules = world.rules(client, CATALOG, "shop");
        let rule = rules.outbound(labels).unwrap();
        assert_eq!(rule.policy(80).tls.unwrap().sni, "a.b", "for {client}");
        assert!(rule.requires_tls("", 80));
        rule.policy(80).connection_pool.unwrap().tcp.as_ref().unwrap().max_connections
    };
    assert_eq!(connections("other", &Labels::default()), 3);
    assert_eq!(connections("shop", &Labels::default()), 3);
    assert_eq!(connections("shop", &billing), 4);
    assert_eq!(connections("partner", &Labels::default()), 5);
    let rules = world.rules("other", CATALOG, "shop");
    let of_port = rules.outbound(&Labels::default()).unwrap().policy(90);
    assert!(
        of_port.tls.is_none() && of_port.load_balancer.is_some(),
        "settings of a port hide those of all ports"
    );
}

/// Rule 11 of Istio 1.31.
#[test]
fn default_export_of_rules_may_name_namespaces() {
    for (default, seen) in [
        (&["*"][..], [true, true, true]),
        (&["."], [true, false, false]),
        (&[".", "partner"], [true, true, false]),
        (&["partner"], [false, true, false]),
        (&["~"], [false, false, false]),
        (&["~", "*"], [true, true, true]),
    ] {
        let mut writer = WorldWriter::new();
        let rule =
            crate::testing::line("networking.istio.io/v1", "DestinationRule", "shop", "a", "{host: catalog}");
        crate::testing::yaml(&rule).into_iter().for_each(|update| writer.apply(update));
        let default_destination_rule_export_to = default.iter().map(ToString::to_string).collect();
        let mesh = MeshConfig { default_destination_rule_export_to, ..MeshConfig::default() };
        writer.apply(Update::Object(crate::testing::mesh(mesh)));
        let memo = Memo::new();
        drop(memo.advance(writer.publish().unwrap().0, &ChangeSet::default()));
        let world = World(memo);
        let sees = ["shop", "partner", "stranger"].map(|client| world.name(client, CATALOG).is_some());
        assert_eq!(sees, seen, "{default:?}");
    }
}

/// Rule 8 of Istio 1.31.
#[test]
fn tls_mode_of_a_subset_falls_back_to_that_of_the_host() {
    let mode = |of: &str| format!("tls: {{mode: {of}}}");
    let port = |of: &str| format!("portLevelSettings: [{{port: {{number: 90}}, {}}}]", mode(of));
    let spec = format!(
        "{{host: catalog, trafficPolicy: {{{}, {}}}, subsets: [
            {{name: plain}},
            {{name: pool, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: 2}}}}}}}},
            {{name: own, trafficPolicy: {{{}}}}},
            {{name: port, trafficPolicy: {{{}}}}}]}}",
        mode("DISABLE"),
        port("SIMPLE"),
        mode("ISTIO_MUTUAL"),
        port("MUTUAL")
    );
    let world = World::of(&[("shop", "a", &spec)]);
    let rules = world.rules("shop", CATALOG, "shop");
    let rule = rules.outbound(&Labels::default()).unwrap();
    use ClientTlsMode::{Disable, IstioMutual, Mutual, Simple};
    for (subset, number, want) in [
        ("", 80, Disable),
        ("", 90, Simple),
        ("plain", 80, Disable),
        ("plain", 90, Simple),
        ("pool", 80, Disable),
        ("pool", 90, Simple),
        ("own", 80, IstioMutual),
        ("own", 90, IstioMutual),
        ("port", 80, Disable),
        ("port", 90, Mutual),
    ] {
        assert_eq!(rule.endpoint_tls_mode(subset, number), Some(want), "{subset}:{number}");
    }
}

/// Rule 19 of Istio 1.31: blocks of the mesh's policy are under those of rules, each as a whole.
#[test]
fn blocks_of_the_mesh_stand_in_for_those_that_a_policy_lacks() {
    let mesh: DefaultTrafficPolicy = serde_json::from_str(
        r#"{"connectionPool": {"tcp": {"maxConnections": 1}}, "outlierDetection": {"consecutive5xxErrors": 1}}"#,
    )
    .unwrap();
    let pool = |connections: i32| format!("connectionPool: {{tcp: {{maxConnections: {connections}}}}}");
    let ejects = |errors: u32| format!("outlierDetection: {{consecutive5xxErrors: {errors}}}");
    let port = |settings: &str| format!("portLevelSettings: [{{port: {{number: 80}}, {settings}}}]");
    // Of the host: its policy, then connections and errors; of the subset: its policy, then the same.
    for (host, of_host, subset, of_subset) in [
        (String::new(), (Some(1), Some(1)), String::new(), (Some(1), Some(1))),
        (pool(2), (Some(2), Some(1)), String::new(), (Some(2), Some(1))),
        (ejects(2), (Some(1), Some(2)), pool(3), (Some(3), Some(2))),
        (format!("{}, {}", pool(2), ejects(2)), (Some(2), Some(2)), ejects(3), (Some(2), Some(3))),
        // Settings of the port hide the policy's blocks, not the mesh's.
        (format!("{}, {}", pool(2), port("tls: {}")), (Some(1), Some(1)), String::new(), (Some(1), Some(1))),
        (format!("{}, {}", ejects(2), port(&pool(4))), (Some(4), Some(1)), String::new(), (Some(4), Some(1))),
        // Those of a subset hide both.
        (pool(2), (Some(2), Some(1)), port("tls: {}"), (None, None)),
        (pool(2), (Some(2), Some(1)), port(&ejects(5)), (None, Some(5))),
    ] {
        let spec = format!(
            "{{host: catalog, trafficPolicy: {{{host}}}, subsets: [{{name: v1, trafficPolicy: {{{subset}}}}}]}}"
        );
        let world = World::of(&[("shop", "rule", &spec)]);
        let rules = world.rules("shop", CATALOG, "shop");
        let rule = rules.outbound(&Labels::default()).unwrap();
        let values = |policy: &super::Policy<'_>| {
            let connections =
                policy.connection_pool.and_then(|pool| Some(pool.tcp.as_ref()?.max_connections));
            (connections, policy.outlier_detection.and_then(|ejects| ejects.consecutive_5xx_errors))
        };
        assert_eq!(values(&rule.policy(80).over_mesh(Some(&mesh))), of_host, "{spec}");
        let v1 = rule.subset("v1").unwrap();
        let policy = rule.subset_policy_over_mesh(v1, 80, Some(&mesh));
        assert_eq!(values(&policy), of_subset, "{spec}");
    }
}
