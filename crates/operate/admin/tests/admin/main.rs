//! Every path of the admin API over a small mesh, compared with golden replies: tools read them.
//!
//! `PILOTFISH_WRITE_GOLDEN=1 cargo test -p pilotfish-admin --test admin` rewrites the replies; review the
//! difference.
// `clippy.toml` allows these in test functions; here whole modules are helpers of tests.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod access;
mod dashboard;
mod plan;
mod ready;
mod roles;

use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode, header};
use pilotfish_admin::{
    Abandoned, Access, ConfigAsked, ControlPlane, ENDPOINTS, Feed, HistoryQuery, Metrics, Operations,
    Permissions, ProblemLines, WaitFor, WhyQuery, router,
};
use pilotfish_api as api;
use pilotfish_api::v1::{self, Failure};
use pilotfish_model::{Kind, Object, ServiceKey, World};
use pilotfish_registry::testing::world_from_yaml;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tower::ServiceExt;

const MESH: &str = include_str!("mesh.yaml");
const NETWORKS: &str = include_str!("networks.yaml");
const TIME: &str = "2023-11-14T22:13:20Z";

/// A control plane with one proxy.
struct Fixture {
    world: Arc<World>,
    ready: bool,
    injects: bool,
    silent_for: Duration,
    /// What is wrong is known when this says so.
    problems_wait: Option<Mutex<Receiver<()>>>,
    /// Is sent false when a plan starts and true when it ends because its client has left.
    plans: Option<UnboundedSender<bool>>,
}

impl ControlPlane for Fixture {
    fn silent_for(&self) -> Duration {
        self.silent_for
    }

    fn readiness(&self) -> api::Readiness {
        let waiting_for = if self.ready { vec![] } else { vec!["Kubernetes/east".to_owned()] };
        api::Readiness { ready: self.ready, waiting_for, ..api::Readiness::default() }
    }

    fn readiness_problems(&self) -> ProblemLines {
        if let Some(wait) = &self.problems_wait {
            // Until the test lets it go on.
            let _ = wait.lock().unwrap().recv();
        }
        let mut problems = ProblemLines::default();
        problems.add(["shop.yaml:3: VirtualService shop/web: spec.hosts: must not be empty"].iter());
        problems
    }

    fn source_silence(&self) -> Vec<(String, Duration)> {
        vec![("files".to_owned(), Duration::from_millis(1_500))]
    }

    fn registries(&self) -> Vec<api::Registry> {
        let known = api::Registry {
            name: "Kubernetes/Kubernetes".into(),
            synced: true,
            services: 1,
            endpoints: 1,
            workloads: 1,
            ..api::Registry::default()
        };
        let failing = api::Registry {
            name: "Kubernetes/east".into(),
            failure: Some("connection refused".into()),
            failing_since: Some(TIME.into()),
            given_up: true,
            replacing: true,
            ..api::Registry::default()
        };
        vec![known, failing]
    }

    fn dropped_log_lines(&self) -> u64 {
        7
    }

    fn registration(&self) -> Option<api::Registration> {
        let store = api::RegistrationStore {
            kind: "redb".into(),
            place: "data/registrations.redb".into(),
            bytes: Some(4_096),
            trouble: None,
        };
        let requests = |operation: &str, count| api::RegistrationRequests {
            operation: operation.into(),
            result: "ok".into(),
            count,
        };
        self.ready.then(|| api::Registration {
            store,
            ready: true,
            revision: 7,
            services: 4,
            instances: [("healthy".to_owned(), 5), ("lapsed".to_owned(), 1)].into(),
            preserving: vec!["shop/web".into()],
            requests: vec![requests("register", 6), requests("renew", 60)],
            ..api::Registration::default()
        })
    }

    fn world(&self) -> Arc<World> {
        self.world.clone()
    }

    fn spec(&self, object: &Object) -> serde_json::Value {
        pilotfish_config::spec_json(object)
    }

    fn problems(&self) -> Vec<api::Problem> {
        vec![api::Problem {
            code: String::new(),
            severity: "error".into(),
            place: "shop.yaml:3".into(),
            object: "VirtualService shop/web".into(),
            path: "spec.hosts".into(),
            message: "must not be empty".into(),
            hint: "name a host".into(),
            in_force: "last-good".into(),
        }]
    }

    fn injection_templates(&self) -> Option<BTreeMap<String, String>> {
        self.injects.then(|| BTreeMap::from([("sidecar".to_owned(), "spec:\n  containers: []\n".to_owned())]))
    }

    fn ads(&self, proxy_id: Option<&str>) -> api::Ads {
        let clusters = api::Watch {
            wildcard: true,
            nonce_sent: "0000000000000002".into(),
            nonce_acked: "0000000000000001".into(),
            status: "ERROR".into(),
            last_sent: TIME.into(),
            last_error: "no such filter".into(),
            ..api::Watch::default()
        };
        let endpoints = api::Watch {
            subscribed: 1,
            names: vec!["outbound|80||web.shop.svc.cluster.local".into()],
            status: "NOT_SENT".into(),
            ..api::Watch::default()
        };
        let client = api::AdsClient {
            connection_id: "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local-1".into(),
            connected_at: TIME.into(),
            address: "10.0.0.1:5000".into(),
            protocol: "delta".into(),
            metadata: proxy_id.map_or(serde_json::Value::Null, |id| serde_json::json!({"NAME": id})),
            watches: [("type/Cluster".to_owned(), clusters), ("type/Endpoint".to_owned(), endpoints)].into(),
        };
        api::Ads { total_clients: 1, clients: vec![client] }
    }

    fn sync_status(&self) -> Vec<api::SyncStatus> {
        vec![api::SyncStatus {
            cluster_id: "Kubernetes".into(),
            proxy: "web-0.shop".into(),
            proxy_type: "sidecar".into(),
            istio_version: "1.29.1".into(),
            nonces: [("cluster_sent", "2"), ("cluster_acked", "1")]
                .map(|(name, nonce)| (name.to_owned(), nonce.to_owned()))
                .into(),
        }]
    }

    fn config_dump(&self, proxy_id: &str, include_eds: bool) -> Option<serde_json::Value> {
        (proxy_id == "web-0.shop").then(|| serde_json::json!({"configs": [{"include_eds": include_eds}]}))
    }
}

/// Answers with what it was asked, so that the golden files show how questions are read.
impl Operations for Fixture {
    fn overview(&self) -> v1::Overview {
        v1::Overview { version: "1.2.3".into(), revision: 9, ready: self.ready, ..v1::Overview::default() }
    }

    fn changes(&self) -> Vec<v1::ChangeProgress> {
        Vec::new()
    }

    fn proxies(&self) -> Vec<v1::Proxy> {
        let clusters = v1::ProxyType {
            name: "clusters".into(),
            state: v1::State::Rejected,
            since: TIME.into(),
            lag_seconds: Some(1.5),
            resources: 7,
            revision: 1,
            rejection: Some(v1::Rejection {
                at: TIME.into(),
                reason: "no such filter".into(),
                error: "no such filter".into(),
                resources: vec!["outbound|80||web.shop.svc.cluster.local".into()],
                made_by: vec!["Service shop/web".into()],
            }),
            ..v1::ProxyType::default()
        };
        let other = v1::Proxy { name: "cart-0.pay".into(), ..v1::Proxy::default() };
        vec![
            other,
            v1::Proxy {
                name: "web-0.shop".into(),
                connection: "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local-1".into(),
                state: v1::State::Rejected,
                types: vec![clusters],
                ..v1::Proxy::default()
            },
        ]
    }

    fn status(&self) -> v1::Status {
        let api::Readiness { ready, waiting_for, .. } = self.readiness();
        let refusal = v1::Refusal {
            proxy: "web-0.shop".into(),
            resource_type: "listeners".into(),
            since: TIME.into(),
            reason: "no such filter".into(),
            made_by: vec!["EnvoyFilter shop/bad".into()],
        };
        v1::Status {
            ready,
            waiting_for,
            proxies: 1,
            rejected: 1,
            refused: vec![refusal],
            ..v1::Status::default()
        }
    }

    fn replica(&self) -> String {
        "pilotfish-0".into()
    }

    fn proxy(&self, name: &str) -> Result<v1::Proxy, Failure> {
        let found = self.proxies().into_iter().find(|proxy| proxy.name == name);
        found.ok_or_else(|| Failure::unknown("proxy", name, ["web-0.shop", "cart-0.pay"]))
    }

    fn acknowledgement(&self, what: &WaitFor) -> Result<v1::Acknowledgement, Failure> {
        match what {
            WaitFor::Revision(revision) => {
                Ok(v1::Acknowledgement { revision: *revision, current: 9, ..Default::default() })
            }
            WaitFor::Newest { up_to } => Ok(v1::Acknowledgement {
                revision: up_to.unwrap_or(9),
                everything: true,
                current: 9,
                ..Default::default()
            }),
            WaitFor::Object { object, generation: None } => {
                Err(Failure::unknown("object", object, ["VirtualService/shop/web"]))
            }
            WaitFor::Object { object, generation } => {
                let object = v1::WaitedObject {
                    name: object.clone(),
                    generation: *generation,
                    ..v1::WaitedObject::default()
                };
                Ok(v1::Acknowledgement { object: Some(object), ..Default::default() })
            }
        }
    }

    fn proxy_config(&self, proxy: &str, asked: &ConfigAsked) -> Result<v1::ProxyConfig, Failure> {
        let proxy = format!("{proxy} {asked:?}");
        Ok(v1::ProxyConfig { proxy, ..v1::ProxyConfig::default() })
    }

    fn node_config(
        &self,
        request: v1::NodeRequest,
        _abandoned: &Abandoned,
    ) -> Result<v1::ProxyConfig, Failure> {
        let proxy = format!("{} from {}", request.node["id"], request.offset);
        Ok(v1::ProxyConfig { proxy, ..v1::ProxyConfig::default() })
    }

    fn plan(&self, request: v1::PlanRequest, abandoned: &Abandoned) -> Result<v1::Plan, Failure> {
        if let Some(plans) = &self.plans {
            let _ = plans.send(abandoned.is_abandoned());
            let start = Instant::now();
            while !abandoned.is_abandoned() && start.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            let _ = plans.send(abandoned.is_abandoned());
        }
        Ok(v1::Plan { objects: request.files.len(), ..v1::Plan::default() })
    }

    fn why(&self, query: &WhyQuery) -> Result<v1::Why, Failure> {
        Ok(v1::Why { request: format!("{query:?}"), ..v1::Why::default() })
    }

    fn history(&self, query: &HistoryQuery) -> Result<v1::History, Failure> {
        let change = v1::Change {
            revision: 9,
            summary: format!("{query:?}"),
            at: TIME.into(),
            ..v1::Change::default()
        };
        let page = v1::Page { items: vec![change], total: 1, ..v1::Page::default() };
        Ok(v1::History { page, current: 9, oldest: 2, ..v1::History::default() })
    }

    fn change(&self, revision: u64) -> Result<v1::Change, Failure> {
        let failure = Failure::new(v1::FailureKind::NotFound, format!("revision {revision} is forgotten"));
        if revision < 2 { Err(failure) } else { Ok(v1::Change { revision, ..v1::Change::default() }) }
    }

    fn record(&self, from: Option<u64>) -> Result<Vec<u8>, Failure> {
        Ok(format!("{{\"from\":{from:?}}}\n").into_bytes())
    }

    fn memory(&self) -> Vec<v1::MemoryKind> {
        vec![v1::MemoryKind { kind: "services".into(), count: 3, bytes: None }]
    }

    fn log(&self) -> Result<v1::LogFilter, Failure> {
        self.set_log("info")
    }

    fn set_log(&self, filter: &str) -> Result<v1::LogFilter, Failure> {
        Ok(v1::LogFilter { filter: filter.into(), configured: "info".into() })
    }

    fn accept_loss(&self, source: &str) -> Result<v1::GuardAcceptance, Failure> {
        Ok(v1::GuardAcceptance { source: source.into() })
    }

    fn certificate_authority(&self) -> Result<v1::CertificateAuthority, Failure> {
        Ok(v1::CertificateAuthority { source: "ca.pem".into(), signed: 7, ..Default::default() })
    }

    async fn rotate_ca(&self, overlap: Duration) -> Result<v1::CaRotation, Failure> {
        let stage = format!("distributing for {} s", overlap.as_secs());
        Ok(v1::CaRotation { stage, until: TIME.into() })
    }

    fn why_object(&self, object: &str) -> Result<v1::WhyObject, Failure> {
        Ok(v1::WhyObject { object: object.into(), ..v1::WhyObject::default() })
    }

    fn service_detail(&self, key: &ServiceKey, row: v1::ServiceRow) -> v1::ServiceDetail {
        let others = vec![v1::Dropped { what: key.to_string(), why: "asked for".into() }];
        v1::ServiceDetail { service: row, others, ..v1::ServiceDetail::default() }
    }

    fn namespace_map(&self) -> v1::NamespaceMap {
        let row = v1::NamespaceRow { name: "shop".into(), services: 2, ..v1::NamespaceRow::default() };
        let link = v1::NamespaceLink { from: "pay".into(), to: "shop".into(), services: 1, routed: 2 };
        v1::NamespaceMap { namespaces: vec![row], links: vec![link], truncated: false }
    }

    fn service_map(&self, namespace: &str) -> v1::ServiceMap {
        let service = |host: &str| v1::RoutedService {
            host: host.into(),
            namespace: namespace.into(),
            endpoints: 2,
            healthy: 1,
        };
        let route = v1::ServiceRoute {
            from: service("web"),
            is_service: true,
            to: service("catalog"),
            made_by: vec!["VirtualService shop/web".into()],
            ..v1::ServiceRoute::default()
        };
        v1::ServiceMap { namespace: namespace.into(), routes: vec![route], truncated: false }
    }

    fn why_endpoint(&self, address: &str) -> Result<v1::WhyEndpoint, Failure> {
        Ok(v1::WhyEndpoint { address: address.into(), ..v1::WhyEndpoint::default() })
    }
}

fn fixture() -> Fixture {
    Fixture {
        world: world_from_yaml(MESH, None, Some(NETWORKS)).unwrap(),
        ready: true,
        injects: true,
        silent_for: Duration::ZERO,
        problems_wait: None,
        plans: None,
    }
}

fn routes(fixture: Fixture) -> axum::Router {
    routes_for(fixture, Access::ThisMachine)
}

fn routes_for(fixture: Fixture, permissions: impl Into<Permissions>) -> axum::Router {
    let metrics = Arc::new(Metrics::new("1.2.3").unwrap());
    router(Arc::new(fixture), metrics, Arc::new(Feed::default()), "1.2.3", permissions)
}

/// Status, content type and body of a reply.
async fn get(fixture: Fixture, path: &str) -> (StatusCode, String, String) {
    let router = routes(fixture);
    let reply = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let kind = reply.headers().get(header::CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap()).to_owned();
    let status = reply.status();
    let body = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
    (status, kind, String::from_utf8(body.to_vec()).unwrap())
}

fn check(name: &str, found: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin/golden").join(name);
    if std::env::var_os("PILOTFISH_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, found).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert!(found == expected, "the reply differs from {}:\n{found}", golden.display());
}

/// Compares a JSON reply with its golden file, both with one field to a line.
async fn check_json(fixture: Fixture, path: &str, status: StatusCode, name: &str) {
    let (found, kind, body) = get(fixture, path).await;
    assert_eq!((found, kind.as_str()), (status, "application/json"), "{path}: {body}");
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    check(name, &(serde_json::to_string_pretty(&json).unwrap() + "\n"));
}

/// What is compared: path and golden file.
const JSON: &[(&str, &str)] = &[
    ("/debug/adsz", "adsz.json"),
    ("/debug/adsz?proxyID=web-0", "adsz-proxy.json"),
    ("/debug/config_dump?proxyID=web-0.shop", "config_dump.json"),
    ("/debug/config_dump?proxyID=web-0.shop&include_eds=true", "config_dump_eds.json"),
    ("/debug/configz", "configz.json"),
    ("/debug/configz?kind=virtualservice", "configz_kind.json"),
    ("/debug/configz?namespace=nobody", "configz_empty.json"),
    ("/debug/configz?kind=VirtualService&name=web", "configz_kind.json"),
    ("/debug/configz?kind=VirtualService&name=nobody", "configz_empty.json"),
    ("/debug/endpointShardz", "endpointz.json"),
    ("/debug/endpointz", "endpointz.json"),
    ("/debug/endpointz?host=db.test", "endpointz_host.json"),
    ("/debug/inject", "inject.json"),
    ("/debug/list", "list.json"),
    ("/debug/networkz", "networkz.json"),
    ("/debug/problemz", "problemz.json"),
    ("/debug/registrationz", "registrationz.json"),
    ("/debug/registryz", "registryz.json"),
    ("/debug/registryz?registries=true", "registryz_registries.json"),
    ("/debug/syncz", "syncz.json"),
    ("/api/v1/changes", "v1_changes.json"),
    ("/api/v1/map", "v1_map.json"),
    ("/api/v1/map/shop", "v1_map_of.json"),
    ("/api/v1/overview", "v1_overview.json"),
    ("/api/v1/samples", "v1_changes.json"),
    ("/api/v1/status", "v1_status.json"),
    ("/api/v1/acknowledgements", "v1_newest.json"),
    ("/api/v1/acknowledgements?up_to=4", "v1_up_to.json"),
    ("/api/v1/acknowledgements?object=VirtualService/shop/web&generation=3", "v1_generation.json"),
    ("/api/v1/acknowledgements?revision=3", "v1_revision.json"),
    ("/api/v1/endpoints?host=web&health=unhealthy", "v1_endpoints.json"),
    ("/api/v1/endpoints?host=web&exact=true", "v1_endpoints_exact.json"),
    ("/api/v1/endpoints?limit=1", "v1_endpoints_page.json"),
    ("/api/v1/problems?namespace=shop", "v1_problems.json"),
    ("/api/v1/objects", "v1_objects.json"),
    ("/api/v1/objects?name=VirtualService%20shop/w&limit=1", "v1_objects_named.json"),
    ("/api/v1/proxies?namespace=shop", "v1_proxies.json"),
    ("/api/v1/proxies/web-0.shop/config?section=route&name=80&full=true", "v1_config.json"),
    ("/api/v1/registries", "v1_registries.json"),
    ("/api/v1/service?host=db.test", "v1_service.json"),
    ("/api/v1/services", "v1_services.json"),
    ("/api/v1/services?sort=health&health=healthy&limit=1", "v1_services_healthy.json"),
    ("/api/v1/services?registry=serviceentry", "v1_services_external.json"),
    ("/api/v1/why?proxy=web-0.shop&to=catalog:80&header=a%3Db&header=c%3Dd", "v1_why.json"),
    ("/api/v1/history?object=VirtualService/shop/web&endpoints=true&limit=5", "v1_history.json"),
    ("/api/v1/why/object?object=VirtualService/shop/web", "v1_why_object.json"),
    ("/api/v1/why/endpoint?address=10.0.0.1", "v1_why_endpoint.json"),
    ("/healthz/ready", "ready.json"),
    ("/ready", "ready.json"),
];

#[tokio::test]
async fn replies_are_those_of_the_golden_files() {
    for (path, name) in JSON {
        check_json(fixture(), path, StatusCode::OK, name).await;
    }
    let requested: BTreeSet<&str> =
        JSON.iter().filter_map(|(path, _)| path.strip_prefix("/debug/")?.split('?').next()).collect();
    let listed: BTreeSet<&str> = ENDPOINTS.iter().map(|(path, _)| *path).collect();
    assert_eq!(requested, listed, "every path below /debug is compared");
}

#[tokio::test]
async fn a_control_plane_that_is_not_ready_lists_what_it_waits_for() {
    let waiting = || Fixture { ready: false, ..fixture() };
    check_json(waiting(), "/ready", StatusCode::SERVICE_UNAVAILABLE, "not_ready.json").await;
}

#[tokio::test]
async fn where_nothing_registers_the_page_says_how() {
    let (status, _, text) = get(Fixture { ready: false, ..fixture() }, "/debug/registrationz").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("--registration-address"), "{text}");
}

#[tokio::test]
async fn pages_and_texts_are_served() {
    for path in ["/debug", "/debug/"] {
        let (status, kind, page) = get(fixture(), path).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/html; charset=utf-8"), "{path}");
        for (endpoint, _) in ENDPOINTS {
            assert!(page.contains(&format!("href=\"/debug/{endpoint}\"")), "{path}: {endpoint}");
        }
    }
    let (status, _, text) = get(fixture(), "/healthz").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "ok\n"));
    for path in ["/version", "//version"] {
        assert_eq!(get(fixture(), path).await.2, "1.2.3\n", "{path}");
    }
    let (status, kind, metrics) = get(fixture(), "/metrics").await;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/plain; version=0.0.4"));
    assert!(metrics.contains("pilotfish_registry_failing{registry=\"Kubernetes/east\"} 1"), "{metrics}");
    assert!(metrics.contains("pilot_services 2"), "{metrics}");
    assert!(metrics.contains("pilotfish_registration_instances{health=\"healthy\"} 5"), "{metrics}");
}

#[tokio::test]
async fn requests_for_what_does_not_exist_are_errors_with_a_reason() {
    let off = Fixture { injects: false, ..fixture() };
    let (status, _, text) = get(off, "/debug/inject").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("--webhook-address"), "{text}");
    let (status, _, text) = get(fixture(), "/debug/config_dump").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("proxyID"), "{text}");
    let (status, _, text) = get(fixture(), "/debug/config_dump?proxyID=other").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.starts_with("Proxy not connected to this Pilot instance"), "{text}");
    assert_eq!(get(fixture(), "/debug/nonsense").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn questions_without_an_answer_are_failures_with_near_names() {
    for (path, status, message, name) in [
        ("/api/v1/proxies/web-1.shop", StatusCode::NOT_FOUND, "no proxy is named", Some("web-0.shop")),
        (
            "/api/v1/acknowledgements?object=VirtualService/shop/wbe",
            StatusCode::NOT_FOUND,
            "no object",
            Some("VirtualService/shop/web"),
        ),
        ("/api/v1/endpoints?host=wbe", StatusCode::NOT_FOUND, "no host", Some("web.shop.svc.cluster.local")),
        (
            "/api/v1/proxies/web-0.shop/config?section=rutes",
            StatusCode::NOT_FOUND,
            "no section",
            Some("routes"),
        ),
        ("/api/v1/why?proxy=web-0.shop", StatusCode::BAD_REQUEST, "are missing", None),
        ("/api/v1/why?proxy=web-0.shop&to=a&at=x", StatusCode::BAD_REQUEST, "at=\"x\" is no revision", None),
        ("/api/v1/history/1", StatusCode::NOT_FOUND, "revision 1 is forgotten", None),
        ("/api/v1/history/last", StatusCode::BAD_REQUEST, "\"last\" is no revision", None),
        ("/api/v1/profile?seconds=31", StatusCode::BAD_REQUEST, "is neither 0 nor between 0.1 and 30", None),
    ] {
        let (found, _, body) = get(fixture(), path).await;
        let failure: Failure =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert_eq!(found, status, "{path}: {body}");
        assert!(failure.error.contains(message), "{path}: {body}");
        assert_eq!(failure.names.first().map(String::as_str), name, "{path}: {body}");
    }
}

/// A page of another site can send a form without asking, and no JSON.
#[tokio::test]
async fn plans_nodes_and_the_log_level_are_asked_for_with_json_only() {
    let plan = r#"{"files": [{"name": "a.yaml", "text": ""}]}"#;
    let log = r#"{"filter": "debug"}"#;
    let node = r#"{"node": {"id": "sidecar~10.0.0.1~web-0.shop~x"}}"#;
    let large = format!("{{\"node\": {{\"id\": \"{}\"}}}}", "x".repeat(512 << 10));
    for (path, kind, text, status) in [
        ("plan", "application/json", plan, StatusCode::OK),
        ("plan", "text/plain", plan, StatusCode::BAD_REQUEST),
        ("plan", "application/json", "[", StatusCode::BAD_REQUEST),
        ("node/config", "application/json", node, StatusCode::OK),
        ("node/config", "text/plain", node, StatusCode::BAD_REQUEST),
        ("node/config", "application/json", &large, StatusCode::PAYLOAD_TOO_LARGE),
        ("log", "application/json", log, StatusCode::OK),
        ("log", "text/plain", log, StatusCode::BAD_REQUEST),
    ] {
        let router = routes(fixture());
        let request = Request::post(format!("/api/v1/{path}"))
            .header(header::CONTENT_TYPE, kind)
            .extension(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))))
            .body(Body::from(text.to_owned()))
            .unwrap();
        assert_eq!(
            router.oneshot(request).await.unwrap().status(),
            status,
            "{path} {kind} {} bytes",
            text.len()
        );
    }
}

#[tokio::test]
async fn a_record_is_passed_on_as_it_is_and_memory_has_that_of_the_process() {
    let (status, kind, body) = get(fixture(), "/api/v1/record?from=7").await;
    assert_eq!(
        (status, kind.as_str(), body.as_str()),
        (StatusCode::OK, "application/x-ndjson", "{\"from\":Some(7)}\n")
    );
    let memory: v1::Memory = serde_json::from_str(&get(fixture(), "/api/v1/memory").await.2).unwrap();
    assert!(memory.resident > 1 << 20 && memory.kinds.len() == 1);
    let profile: v1::Profile =
        serde_json::from_str(&get(fixture(), "/api/v1/profile?seconds=0.1").await.2).unwrap();
    assert!(profile.seconds >= 0.1);
}

/// Profiles wait for most of their time: nobody waits for them.
#[tokio::test]
async fn a_page_answers_while_profiles_are_taken() {
    let router = routes(fixture());
    let ask = |path: &str| router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
    let profiles: Vec<_> = (0..2).map(|_| tokio::spawn(ask("/api/v1/profile?seconds=30"))).collect();
    // On the one thread of this test both are waiting when it goes on.
    tokio::task::yield_now().await;
    let page = tokio::time::timeout(Duration::from_secs(4), ask("/api/v1/proxies")).await;
    assert_eq!(page.expect("it takes none of their turns").unwrap().status(), StatusCode::OK);
    assert!(profiles.iter().all(|profile| !profile.is_finished()), "they are still being taken");
    let at_once = ask("/api/v1/profile?seconds=0").await.unwrap();
    assert_eq!(at_once.status(), StatusCode::OK);
    profiles.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_profile_is_for_those_who_may_see_pages() {
    let request = Request::get("/api/v1/profile?seconds=0").header(header::HOST, "evil.example.com");
    let answer = routes(fixture()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_unknown_kind_is_an_error_that_lists_the_known_ones() {
    for kind in ["Nonsense", "Secret"] {
        let (status, _, text) = get(fixture(), &format!("/debug/configz?kind={kind}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{kind}");
        assert!(text.starts_with(&format!("\"{kind}\" is no kind that is shown here")), "{text}");
        assert!(text.contains(" DestinationRule,") && text.contains(" VirtualService,"), "{text}");
        assert!(!text.contains("Secret,"), "{text}");
        assert_eq!(text.matches(" Gateway,").count(), 1, "a name of two groups is listed once: {text}");
    }
    let (status, _, text) = get(fixture(), "/debug/configz?kind=Sidecar").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "[]"), "a known kind without objects");
}

#[tokio::test]
async fn secrets_are_never_shown() {
    let fixture = fixture();
    assert_eq!(fixture.world.objects(Kind::Secret).count(), 1);
    let (_, _, all) = get(fixture, "/debug/configz").await;
    assert!(!all.contains("password") && !all.contains("\"Secret\""), "{all}");
}

#[tokio::test]
async fn a_control_loop_that_is_silent_is_not_alive() {
    let silent = |seconds| Fixture { silent_for: Duration::from_secs(seconds), ..fixture() };
    assert_eq!(get(silent(29), "/healthz").await.0, StatusCode::OK);
    let (status, _, text) = get(silent(31), "/healthz").await;
    assert_eq!(
        (status, text.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "nothing was seen of the control loop for 31 s\n")
    );
}
