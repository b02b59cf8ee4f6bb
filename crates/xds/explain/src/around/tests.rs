use super::*;
use pilotfish_api::v1::{ServiceDetail, ServiceRow};
use pilotfish_model::{ChangeSet, Hostname, ServiceKey};
use pilotfish_registry::testing::{SHOP, Scene};
use pilotfish_translate::Translator;

/// What there is around [`SHOP`], whose Service gets a label and a second endpoint, which is not ready.
const MESH: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {team: a}}
spec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: stock, annotations: {networking.istio.io/exportTo: shop}}
spec: {clusterIP: 10.1.0.2, selector: {app: db}, ports: [{name: tcp, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.0.0.2], conditions: {ready: false, serving: false, terminating: false}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: pay}
spec: {egress: [{hosts: [\"shop/*\"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web, subset: v1}, weight: 1}, {destination: {host: nobody}, weight: 1}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: other, namespace: shop}
spec: {hosts: [old.example.com], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: unrelated, namespace: shop}
spec: {hosts: [x.example.com], http: [{route: [{destination: {host: web.other.svc.cluster.local}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: away, namespace: stock}
spec: {hosts: [db], tcp: [{route: [{destination: {host: web.shop.svc.cluster.local}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, subsets: [{name: v1, labels: {app: web}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec: {selector: {matchLabels: {app: web}}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: db, namespace: shop}
spec: {selector: {matchLabels: {app: db}}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
";

fn translator() -> Translator {
    let mut scene = Scene::new();
    scene.apply(SHOP).unwrap();
    scene.apply(MESH).unwrap();
    let translator = Translator::new();
    translator.publish(scene.world(), &ChangeSet::default());
    translator
}

fn proxies() -> ProxyCounts {
    [("shop".to_owned(), 2), ("pay".to_owned(), 1)].into()
}

fn detail(name: &str, namespace: &str) -> ServiceDetail {
    let host = Hostname::of_kubernetes_service(name, namespace, "cluster.local").unwrap();
    let key = ServiceKey { hostname: host, namespace: namespace.into() };
    service(&translator(), &key, ServiceRow::default(), &proxies())
}

#[test]
fn routes_are_those_of_the_host_and_those_that_lead_to_it() {
    let detail = detail("web", "shop");
    let routes: Vec<(&str, bool)> =
        detail.routes.iter().map(|route| (route.made_by[0].as_str(), route.own)).collect();
    let expected = [
        ("VirtualService stock/away", false),
        ("VirtualService shop/other", false),
        ("VirtualService shop/own", true),
    ];
    assert_eq!(routes, expected);
    let to: Vec<(&str, &str, &str, usize, usize)> = detail.routes[2]
        .destinations
        .iter()
        .map(|to| (to.host.as_str(), to.namespace.as_str(), to.subset.as_str(), to.endpoints, to.healthy))
        .collect();
    assert_eq!(
        to,
        [("nobody.shop.svc.cluster.local", "", "", 0, 0), ("web.shop.svc.cluster.local", "shop", "v1", 1, 1)]
    );
}

/// Routes of `web` to subsets, and a rule of another namespace with a subset of the same name.
const SUBSETS: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: shop}
spec:
  hosts: [web]
  http:
  - route:
    - {destination: {host: web, subset: v1}, weight: 1}
    - {destination: {host: web, subset: any}, weight: 1}
    - {destination: {host: web, subset: none}, weight: 1}
    - {destination: {host: web, subset: undefined}, weight: 1}
    - {destination: {host: web}, weight: 1}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web
  subsets: [{name: v1, labels: {app: web}}, {name: any}, {name: none, labels: {app: other}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: away, namespace: stock}
spec: {hosts: [db], tcp: [{route: [{destination: {host: web.shop.svc.cluster.local, subset: v1}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: stock}
spec: {host: web.shop.svc.cluster.local, subsets: [{name: v1, labels: {app: other}}]}
";

#[test]
fn subset_counts_its_own_endpoints_for_the_clients_of_its_route() {
    let mut scene = Scene::new();
    for objects in [SHOP, MESH, SUBSETS] {
        scene.apply(objects).unwrap();
    }
    let translator = Translator::new();
    translator.publish(scene.world(), &ChangeSet::default());
    let key = ServiceKey {
        hostname: Hostname::of_kubernetes_service("web", "shop", "cluster.local").unwrap(),
        namespace: "shop".into(),
    };
    let detail = service(&translator, &key, ServiceRow::default(), &proxies());
    let mut of_detail: Vec<(String, usize, usize)> = Vec::new();
    for route in detail.routes.iter().filter(|route| route.made_by[0].ends_with("/own")) {
        of_detail.extend(route.destinations.iter().map(|to| (to.subset.clone(), to.endpoints, to.healthy)));
    }
    let row = |subset: &str, endpoints, healthy| (subset.to_owned(), endpoints, healthy);
    let subsets = [row("any", 2, 1), row("none", 0, 0), row("undefined", 0, 0), row("v1", 1, 1)];
    assert_eq!(of_detail[0], row("", 2, 1), "without a subset it is the whole service");
    assert_eq!(of_detail[1..], subsets);
    let map = service_map(&translator, "shop");
    let to_itself = map.routes.iter().filter(|one| one.made_by[0].ends_with("/own"));
    let of_map: Vec<_> = to_itself
        .map(|one| {
            let to = one.to_subset.clone().unwrap();
            assert_eq!((one.to.endpoints, one.to.healthy), (2, 1), "the box is that of the whole service");
            (one.subset.clone(), to.endpoints, to.healthy)
        })
        .collect();
    assert_eq!(of_map, subsets);
    let away = map.routes.iter().find(|one| one.made_by[0].ends_with("/away")).unwrap();
    assert_eq!(away.to_subset.clone().unwrap().endpoints, 0, "clients of stock follow the rule of stock");
}

#[test]
fn policies_are_those_that_concern_its_clients_or_workloads() {
    let detail = detail("web", "shop");
    assert_eq!(detail.client_policies, ["DestinationRule shop/web"]);
    assert_eq!(
        detail.workload_policies,
        ["PeerAuthentication shop/default", "AuthorizationPolicy shop/web"],
        "not that of db"
    );
    assert_eq!((detail.labels["team"].as_str(), detail.selector["app"].as_str()), ("a", "web"));
}

#[test]
fn callers_see_it_or_are_told_why_not() {
    let sees = |detail: &ServiceDetail| -> Vec<(String, bool)> {
        detail.callers.iter().map(|caller| (caller.namespace.clone(), caller.sees)).collect()
    };
    let all = |pay: bool, shop: bool, stock: bool| {
        vec![("pay".to_owned(), pay), ("shop".to_owned(), shop), ("stock".to_owned(), stock)]
    };
    let web = detail("web", "shop");
    assert_eq!(sees(&web), all(true, true, true));
    assert_eq!((web.callers[0].proxies, web.callers[0].sidecar.as_deref()), (1, Some("Sidecar pay/default")));
    assert_eq!(web.callers[1].workloads, 1);
    let db = detail("db", "stock");
    assert_eq!(sees(&db), all(false, true, false));
    assert_eq!(db.callers[0].why, "its exportTo names shop, and not pay");
}

#[test]
fn namespaces_have_links_where_they_do_not_see_everything_or_something_is_shown_to_them() {
    let map = namespaces(&translator(), &proxies());
    let links: Vec<(&str, &str, usize)> =
        map.links.iter().map(|link| (link.from.as_str(), link.to.as_str(), link.services)).collect();
    assert_eq!(links, [("pay", "shop", 1), ("shop", "stock", 1), ("stock", "shop", 0)]);
    let routed: Vec<usize> = map.links.iter().map(|link| link.routed).collect();
    assert_eq!(routed, [0, 0, 1], "a route of stock leads to shop");
    let shop = &map.namespaces[1];
    assert_eq!((shop.endpoints, shop.healthy_endpoints), (2, 1));
    let rows: Vec<(&str, usize, usize, bool)> =
        map.namespaces.iter().map(|row| (row.name.as_str(), row.degraded, row.empty, row.sees_all)).collect();
    assert_eq!(rows, [("pay", 0, 0, false), ("shop", 1, 0, true), ("stock", 0, 1, false)]);
    assert!(!map.truncated);
}

#[test]
fn a_namespace_has_the_routes_from_and_to_its_services() {
    let routes = |namespace: &str| -> Vec<(String, String, String)> {
        let map = service_map(&translator(), namespace);
        assert!(!map.truncated);
        let row = |one: pilotfish_api::v1::ServiceRoute| (one.from.host, one.to.host, one.subset);
        map.routes.into_iter().map(row).collect()
    };
    let web = "web.shop.svc.cluster.local";
    let row = |from: &str, subset: &str| (from.to_owned(), web.to_owned(), subset.to_owned());
    let db = "db.stock.svc.cluster.local";
    let mut shop = routes("shop");
    shop.sort();
    assert_eq!(shop, [row(db, ""), row("old.example.com", ""), row(web, "v1")]);
    assert_eq!(routes("stock"), [row(db, "")]);
    assert!(routes("pay").is_empty());
}
