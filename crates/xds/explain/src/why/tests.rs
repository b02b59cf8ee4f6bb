mod authorization;
mod gateway;

use super::*;
use crate::subject::sidecar;
use pilotfish_model::ChangeSet;
use pilotfish_registry::testing::Scene;
use pilotfish_translate::InterceptionMode;

const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop, labels: {app: client}}
spec: {serviceAccountName: client, containers: [{name: app, image: x}]}
status: {phase: Running, podIP: 10.0.0.9, podIPs: [{ip: 10.0.0.9}], conditions: [{type: Ready, status: \"True\"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web, version: v1, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: web, containers: [{name: app, image: x}]}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], conditions: [{type: Ready, status: \"True\"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: web-0, namespace: shop}}
- {addresses: [10.0.0.2], conditions: {ready: false, serving: false, terminating: false}}
";

/// The answer for a request of the client in a world of these objects.
fn ask(objects: &[&str], to: &str, path: &str) -> Why {
    ask_as(objects, to, path, |_| ())
}

/// The same of a client that differs.
fn ask_as(objects: &[&str], to: &str, path: &str, change: impl FnOnce(&mut Proxy)) -> Why {
    ask_in(scene_world(objects), to, path, change)
}

/// The same in a world.
fn ask_in(world: Arc<World>, to: &str, path: &str, change: impl FnOnce(&mut Proxy)) -> Why {
    ask_for(world, &Request::parse(to, path, "GET", &[]).unwrap(), change)
}

/// The same for any request.
fn ask_for(world: Arc<World>, request: &Request, change: impl FnOnce(&mut Proxy)) -> Why {
    let workload = world.workloads().find(|workload| &*workload.key.name == "client").unwrap();
    let mut proxy = sidecar(workload).unwrap();
    change(&mut proxy);
    let proxy = Arc::new(proxy);
    let translator = Translator::new();
    translator.publish(world, &ChangeSet::default());
    why(&translator, &proxy, request, &[]).unwrap()
}

/// The answer for a request from outside, of the client as a gateway.
fn ask_gateway(objects: &[&str], to: &str) -> Why {
    let world = scene_world(objects);
    let proxy = crate::subject::proxy_named(&world, "client.shop", true).unwrap();
    let translator = Translator::new();
    translator.publish(world, &ChangeSet::default());
    why(&translator, &Arc::new(proxy), &Request::parse(to, "/", "GET", &[]).unwrap(), &[]).unwrap()
}

fn scene_world(objects: &[&str]) -> Arc<World> {
    let mut scene = Scene::new();
    objects.iter().for_each(|text| scene.apply(text).unwrap());
    scene.world()
}

fn said(answer: &Why) -> String {
    let steps = answer.steps.iter().map(|step| {
        let others: Vec<String> =
            step.others.iter().map(|other| format!("  not {}: {}", other.what, other.why)).collect();
        format!(
            "{:?} {} {}: {} by {:?}\n{}",
            step.verdict,
            step.step,
            step.chosen,
            step.text,
            step.decided_by,
            others.join("\n")
        )
    });
    let dropped = answer.dropped.iter().map(|drop| format!("dropped {}: {}", drop.what, drop.why));
    [answer.outcome.clone()].into_iter().chain(steps).chain(dropped).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_request_is_followed_to_its_endpoints() {
    let answer = ask(&[SHOP], "web", "/");
    let said = said(&answer);
    assert!(answer.reaches, "{said}");
    assert_eq!(answer.endpoints.len(), 1, "{said}");
    assert!(answer.endpoints[0].starts_with("10.0.0.1:8080 (HEALTHY"), "{said}");
    assert_eq!(answer.dropped, [dropped("10.0.0.2:8080 (EndpointSlice shop/web-1)", "it is not ready")]);
    let steps: Vec<&str> = answer.steps.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(
        steps,
        ["service", "listener", "filter chain", "virtual host", "route", "cluster", "endpoints"]
    );
}

/// Other namespaces see nothing of this one.
const HIDDEN: &str = "
apiVersion: v1
kind: Service
metadata: {name: secret, namespace: vault, annotations: {networking.istio.io/exportTo: .}}
spec: {clusterIP: 10.1.0.7, ports: [{name: http, port: 80}]}
";

#[test]
fn requests_that_reach_no_service_end_with_the_reason() {
    for (to, reasons) in [
        ("wbe", &["no service has the host wbe", "the nearest is web.shop.svc.cluster.local"][..]),
        ("web.shopp:80", &["no service has the host web.shopp", "the nearest is web.shop.svc.cluster.local"]),
        ("web:8080", &["web.shop.svc.cluster.local: port 8080 is none of its ports: 80 (http, HTTP)"]),
        (
            "secret.vault",
            &["secret.vault.svc.cluster.local exists, and this proxy does not see it: its exportTo"],
        ),
        ("tls://nothing.example.org:443", &["no service has the host nothing.example.org"]),
    ] {
        let answer = ask(&[SHOP, HIDDEN], to, "/");
        assert!(!answer.reaches, "{to}: {}", said(&answer));
        assert!(answer.outcome.starts_with("it reaches no service: "), "{to}: {}", said(&answer));
        for reason in reasons {
            assert!(answer.outcome.contains(reason), "{to}: {reason:?} in {}", said(&answer));
        }
        // Without a way out, the reason is there, too.
        let alone = ask_as(&[SHOP, HIDDEN], to, "/", |proxy| proxy.interception = InterceptionMode::None);
        assert!(!alone.reaches && alone.outcome.contains(reasons[0]), "{to}: {}", said(&alone));
    }
}

#[test]
fn alias_leads_to_the_ports_of_its_target() {
    let aliases = "
apiVersion: v1
kind: Service
metadata: {name: shop-window, namespace: shop}
spec: {type: ExternalName, externalName: web.shop.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: www.example.com, ports: [{name: http, port: 80}]}
";
    let answer = ask(&[SHOP, aliases], "shop-window", "/");
    assert!(answer.reaches && answer.outcome == "it reaches 1 endpoint", "{}", said(&answer));
    let answer = ask(&[SHOP, aliases], "outside", "/");
    let reason = "outside.shop.svc.cluster.local: port 80 of www.example.com, of which it is an alias";
    assert!(!answer.reaches && answer.outcome.contains(reason), "{}", said(&answer));
}

#[test]
fn route_that_aborts_every_request_reaches_nothing() {
    let rules = |percentage: &str| {
        format!(
            "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  hosts: [web]
  http: [{{fault: {{abort: {{httpStatus: 418{percentage}}}}}, route: [{{destination: {{host: web}}}}]}}]
"
        )
    };
    for (percentage, reaches, outcome) in [
        (", percentage: {value: 100}", false, "418: the route aborts every request"),
        (", percentage: {value: 2.5}", true, "it reaches 1 endpoint; 1 step is doubtful"),
        (", percentage: {value: 0}", true, "it reaches 1 endpoint"),
    ] {
        let answer = ask(&[SHOP, &rules(percentage)], "web", "/");
        assert_eq!((answer.reaches, answer.outcome.as_str()), (reaches, outcome), "{}", said(&answer));
    }
}

#[test]
fn routes_of_hosts_without_a_service_reach_those_that_they_name() {
    let routes = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: virtual, namespace: shop}
spec: {hosts: [virtual.example.com], http: [{route: [{destination: {host: web}}]}]}
";
    let answer = ask(&[SHOP, routes], "virtual.example.com:80", "/");
    assert!(answer.reaches && answer.outcome.starts_with("it reaches 1 endpoint"), "{}", said(&answer));
}

#[test]
fn without_interception_requests_go_to_the_proxy_itself() {
    let answer = ask_as(&[SHOP], "web", "/", |proxy| proxy.interception = InterceptionMode::None);
    assert!(answer.reaches && said(&answer).contains("127.0.0.1:80"), "{}", said(&answer));
    // Where else than to the proxy they were to go, nobody knows.
    let answer = ask_as(&[SHOP], "nowhere:80", "/", |proxy| proxy.interception = InterceptionMode::None);
    assert!(!answer.reaches && answer.outcome.starts_with("503"), "{}", said(&answer));
}

#[test]
fn of_a_route_to_another_host_its_endpoints_are_told() {
    let rules = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.1.0.9, selector: {app: cart}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: cart}}]}]}
";
    let answer = ask(&[SHOP, rules], "web", "/");
    assert!(!answer.reaches);
    assert!(said(&answer).contains("its selector app=cart selects none of"), "{}", said(&answer));
}

#[test]
fn a_missing_subset_is_named_with_those_that_there_are() {
    let rules = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web, subset: v9}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, subsets: [{name: v1, labels: {version: v1}}]}
";
    let answer = ask(&[SHOP, rules], "web:80", "/");
    let said = said(&answer);
    assert!(!answer.reaches && answer.outcome.starts_with("503"), "{said}");
    assert!(
        said.contains("no DestinationRule for web.shop.svc.cluster.local defines subset v9; defined are v1"),
        "{said}"
    );
    assert!(said.contains("by [\"VirtualService shop/web\"]"), "{said}");
}

#[test]
fn a_shadowed_route_is_said_to_stand_behind() {
    let rules = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - match: [{uri: {prefix: /}}]
    route: [{destination: {host: web}}]
  - match: [{uri: {prefix: /v2}}]
    fault: {abort: {httpStatus: 400, percentage: {value: 100}}}
    route: [{destination: {host: web}}]
";
    let said = said(&ask(&[SHOP, rules], "web", "/v2/items"));
    assert!(
        said.contains(
            "not rule 2 (prefix /v2) of VirtualService shop/web: rule 1 takes every request, so it is never reached"
        ),
        "{said}"
    );
}

#[test]
fn a_service_that_is_not_exported_is_explained() {
    let hidden = SHOP.replace("metadata: {name: web, namespace: shop}\nspec: {clusterIP", "metadata: {name: web, namespace: other, annotations: {networking.istio.io/exportTo: '.'}}\nspec: {clusterIP");
    let said = said(&ask(&[&hidden], "web.other", "/"));
    assert!(said.contains("web.other.svc.cluster.local exists, and this proxy does not see it: its exportTo names other, and not shop"), "{said}");
}

#[test]
fn a_service_outside_of_the_sidecar_is_explained() {
    let sidecar = "
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: narrow, namespace: shop}
spec: {egress: [{hosts: [\"./other.shop.svc.cluster.local\"]}]}
";
    let said = said(&ask(&[SHOP, sidecar], "web", "/"));
    assert!(said.contains("Sidecar shop/narrow does not import shop/web.shop.svc.cluster.local"), "{said}");
}

#[test]
fn plaintext_to_a_strict_workload_is_explained() {
    let policies = "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, trafficPolicy: {tls: {mode: DISABLE}}}
";
    let answer = ask(&[SHOP, policies], "web", "/");
    let said = said(&answer);
    assert!(!answer.reaches, "{said}");
    assert!(said.contains("takes mutual TLS only on port 8080, and this proxy sends plaintext"), "{said}");
    assert!(
        said.contains("by [\"PeerAuthentication shop/default\", \"DestinationRule shop/web\"]"),
        "{said}"
    );
}

/// The root namespace is not `istio-system` here, and a policy with a selector is for those that it selects
/// only.
#[test]
fn the_policies_that_require_mutual_tls_are_those_that_translation_applies() {
    let policy = |namespace: &str, name: &str, spec: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n"
        )
    };
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\nspec: {host: web, \
                trafficPolicy: {tls: {mode: DISABLE}}}\n";
    let mut scene = Scene::new();
    scene.set_mesh("rootNamespace: mesh-root\n").unwrap();
    for text in [
        SHOP,
        rule,
        &policy("mesh-root", "all", "{mtls: {mode: STRICT}}"),
        &policy("istio-system", "none", "{mtls: {mode: STRICT}}"),
        &policy("shop", "others", "{selector: {matchLabels: {app: other}}, mtls: {mode: STRICT}}"),
    ] {
        scene.apply(text).unwrap();
    }
    let answer = ask_in(scene.world(), "web", "/", |_| ());
    let step = answer.steps.last().unwrap();
    assert_eq!(
        step.decided_by,
        ["PeerAuthentication mesh-root/all", "DestinationRule shop/web"],
        "{}",
        said(&answer)
    );
}

#[test]
fn localities_are_unranked_by_the_rule_that_applies() {
    let spread = SHOP.replace(
        "{ready: false, serving: false, terminating: false}}",
        "{ready: true}, targetRef: {kind: Pod, name: web-1, namespace: shop}}",
    );
    let node = "
apiVersion: v1
kind: Node
metadata: {name: far, labels: {topology.kubernetes.io/region: us}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {nodeName: far, containers: [{name: app, image: x}]}
status: {phase: Running, podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}], conditions: [{type: Ready, status: \"True\"}]}
";
    let rule = |namespace: &str, host: &str, outliers: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: web, namespace: {namespace}}}\nspec: {{host: {host}, \
             trafficPolicy: {{{outliers}loadBalancer: {{localityLbSetting: {{enabled: true}}}}}}}}\n"
        )
    };
    let doubt = "DestinationRule shop/web asks for failover by locality";
    let asks = |rules: &[&str]| said(&ask(&[&[&spread, node], rules].concat(), "web", "/"));
    let all = asks(&[&rule("shop", "web", "")]);
    assert!(all.contains(doubt), "{all}");
    // A rule for a wildcard applies as well.
    assert!(asks(&[&rule("shop", "\"*.shop.svc.cluster.local\"", "")]).contains(doubt));
    let ranked = rule("shop", "web", "outlierDetection: {consecutive5xxErrors: 5}, ");
    // The rule of the client's own namespace is in the place of that of another one.
    let other = rule("istio-system", "web.shop.svc.cluster.local", "");
    assert!(!asks(&[&ranked, &other]).contains("asks for failover"));
}

#[test]
fn a_port_name_that_differs_is_explained() {
    let named = SHOP.replace("ports: [{name: http, port: 8080", "ports: [{name: web, port: 8080");
    let said = said(&ask(&[&named], "web", "/"));
    assert!(
        said.contains("the port is named \"http\", and its 2 endpoints have ports named \"web\" only"),
        "{said}"
    );
}

#[test]
fn a_host_that_nobody_knows_is_answered_with_the_nearest() {
    let answer = ask(&[SHOP], "wbe.shop", "/");
    let said = said(&answer);
    assert!(
        said.contains("no service has the host wbe.shop; the nearest is web.shop.svc.cluster.local"),
        "{said}"
    );
}

#[test]
fn an_address_is_explained_service_by_service() {
    let mut scene = Scene::new();
    scene.apply(SHOP).unwrap();
    let other = "apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop}\nspec: {clusterIP: 10.1.0.2, selector: {app: api}, ports: [{name: http, port: 80}]}\n";
    scene.apply(other).unwrap();
    let answer = why_endpoint(&scene.world(), &[], "10.0.0.1").unwrap();
    assert_eq!(answer.workloads, ["Pod shop/web-0"]);
    let rules: Vec<(&str, bool, &str)> = answer
        .services
        .iter()
        .map(|service| (service.host.as_str(), service.serves, service.rule.as_str()))
        .collect();
    assert_eq!(
        rules,
        [
            ("web.shop.svc.cluster.local", true, "it is ready, for port \"http\""),
            ("api.shop.svc.cluster.local", false, "its selector wants app=api, and the label is web"),
        ]
    );
    assert!(why_endpoint(&scene.world(), &[], "web").is_err());
}

#[test]
fn an_address_is_told_of_selectors_of_service_entries_and_of_registries_that_win() {
    let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: ext, namespace: shop}\nspec: {hosts: [ext.example.com], \
                 resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], workloadSelector: {labels: {app: ext}}}\n";
    let world = scene_world(&[SHOP, entry]);
    let losing = pilotfish_api::LosingService {
        hostname: "web.shop.svc.cluster.local".to_owned(),
        namespace: "shop".to_owned(),
        winner: "Consul/Kubernetes".to_owned(),
        reason: "Consul comes first".to_owned(),
    };
    let loser = Registry {
        name: "Kubernetes/Kubernetes".to_owned(),
        losers: Arc::from([losing]),
        ..Registry::default()
    };
    let answer = why_endpoint(&world, &[loser], "10.0.0.1").unwrap();
    let rules: Vec<(&str, bool, &str)> = answer
        .services
        .iter()
        .map(|service| (service.host.as_str(), service.serves, service.rule.as_str()))
        .collect();
    assert_eq!(
        rules,
        [
            (
                "web.shop.svc.cluster.local",
                true,
                "it is ready, for port \"http\"; Consul/Kubernetes describes the service: Consul comes first"
            ),
            ("ext.example.com", false, "its selector wants app=ext, and the label is web"),
        ]
    );
}

/// Whom an object reaches, of sidecars of all Pods.
fn reach(objects: &[&str], kind: pilotfish_model::Kind, name: &str) -> pilotfish_api::v1::WhyObject {
    let mut scene = Scene::new();
    for text in objects {
        scene.apply(text).unwrap();
    }
    let world = scene.world();
    let key = ObjectKey::new(kind, "shop", name);
    let spec = world.object(&key).map(pilotfish_config::spec_json).unwrap_or_default();
    let subjects = crate::subject::subjects_of(&[&world]);
    let translator = Translator::new();
    translator.publish(world, &ChangeSet::default());
    why_object(&translator, &key, &spec, &subjects)
}

#[test]
fn an_object_names_those_that_it_reaches_or_the_reasons_of_those_that_it_does_not() {
    use pilotfish_model::Kind;
    let route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\n\
                 spec: {hosts: [HOST], http: [{timeout: 3s, route: [{destination: {host: web}}]}]}\n";
    let answer = reach(&[SHOP, &route.replace("HOST", "web")], Kind::VirtualService, "web");
    assert_eq!((answer.proxies, answer.reached), (2, 2));
    assert_eq!(answer.examples[0].resources, ["routes 80"], "{answer:?}");
    assert!(answer.reasons.is_empty(), "{answer:?}");

    let answer = reach(&[SHOP, &route.replace("HOST", "wbe")], Kind::VirtualService, "web");
    assert_eq!(answer.reasons[0].what, "host wbe");
    assert!(
        answer.reasons[0].why.starts_with("no service has it; the nearest are web.shop.svc"),
        "{answer:?}"
    );

    let hidden =
        SHOP.replacen("name: web,", "name: web, annotations: {networking.istio.io/exportTo: \"~\"},", 1);
    let answer = reach(&[&hidden], Kind::Service, "web");
    let why = "its exportTo says ~, so nobody sees it (2 proxies)";
    assert!(answer.reasons.iter().any(|reason| reason.why == why) || answer.reached > 0, "{answer:?}");

    let policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: none, namespace: shop}\n\
                  spec: {selector: {matchLabels: {app: nobody}}, rules: [{}]}\n";
    let answer = reach(&[SHOP, policy], Kind::AuthorizationPolicy, "none");
    assert_eq!(answer.reached, 0);
    assert!(
        answer.reasons[0].why.starts_with("nothing of 2 connected proxies is made of it: its selector"),
        "{answer:?}"
    );
}

/// Hosts that the proxy looks up: those of an entry, and all others by the mesh config.
const LOOKED_UP: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: buckets, namespace: shop}
spec:
  hosts: ['*.buckets.example']
  resolution: DYNAMIC_DNS
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]
";

#[test]
fn hosts_that_the_proxy_looks_up_need_no_endpoint() {
    for (to, cluster) in [
        ("one.buckets.example", "outbound|80||*.buckets.example"),
        ("tls://one.buckets.example:443", "outbound|443||*.buckets.example"),
    ] {
        let answer = ask(&[SHOP, LOOKED_UP], to, "/");
        let said = said(&answer);
        assert!(answer.reaches && answer.outcome.starts_with("it leaves as it is"), "{said}");
        let at = answer.steps.iter().find(|step| step.step == "cluster").unwrap();
        assert_eq!(at.chosen, cluster, "{said}");
        assert_eq!(at.text, "the host that the request names, by DNS, in plaintext", "{said}");
    }
}

#[test]
fn requests_to_unknown_hosts_may_be_looked_up() {
    let mut scene = Scene::new();
    scene.apply(SHOP).unwrap();
    scene.set_mesh("outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}").unwrap();
    // On a port with a listener, and on one without.
    for to in ["other.example:80", "other.example:8088"] {
        let answer = ask_in(scene.world(), to, "/", |_| ());
        let said = said(&answer);
        assert!(!answer.reaches, "{said}");
        assert!(answer.outcome.contains("goes on to the address that DNS has for its host"), "{said}");
    }
}

#[test]
fn endpoints_of_a_service_exported_to_nobody_are_explained() {
    let hidden = SHOP.replace(
        "namespace: shop}\nspec: {clusterIP",
        "namespace: shop, annotations: {networking.istio.io/exportTo: \"~\"}}\nspec: {clusterIP",
    );
    let route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: front, namespace: shop}\n\
        spec: {hosts: [front.example.com], http: [{route: [{destination: {host: web.shop.svc.cluster.local}}]}]}\n\
        ---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: front, namespace: shop}\n\
        spec: {hosts: [front.example.com], resolution: NONE, ports: [{number: 80, name: http, protocol: HTTP}]}\n";
    let answer = ask(&[&hidden, route], "front.example.com", "/");
    let said = said(&answer);
    assert!(!answer.reaches && answer.endpoints.is_empty(), "{said}");
    assert!(said.contains("its Service is exported to nobody"), "{said}");
    assert!(ask(&[SHOP, route], "front.example.com", "/").reaches);
}
