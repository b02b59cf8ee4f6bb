use crate::access::{self, Gate};
use crate::metrics_page::MetricsPage;
use crate::permissions::Permissions;
use crate::readiness::{Prepared, ProblemLines};
use crate::v1::{self, Operations};
use crate::{Feed, Metrics, dashboard, feed, profile, views};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use pilotfish_api as api;
use pilotfish_model::{Kind, Object, World};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// State that the admin API shows; the binary implements it.
pub trait ControlPlane: Send + Sync + 'static {
    /// Time since the last heartbeat of the control loop, which sends one at least every second.
    fn silent_for(&self) -> Duration;
    /// Readiness, and missing conditions. Called often and by any client, so it must not block.
    fn readiness(&self) -> api::Readiness;
    /// Problems for `/ready`. May take a while; called by one thread at a time.
    fn readiness_problems(&self) -> ProblemLines;
    /// Time since the last sign of life of each source, by name.
    fn source_silence(&self) -> Vec<(String, Duration)>;
    /// States of registries, by name.
    fn registries(&self) -> Vec<api::Registry>;
    /// Registrations with this process; `None` if registration is disabled.
    fn registration(&self) -> Option<api::Registration>;
    /// Number of log lines dropped since the start.
    fn dropped_log_lines(&self) -> u64;
    /// The world that was published last.
    fn world(&self) -> Arc<World>;
    /// Content of an object as JSON, with defaults applied.
    fn spec(&self, object: &Object) -> serde_json::Value;
    /// Objects whose newest version is not in force, or that have warnings.
    fn problems(&self) -> Vec<api::Problem>;
    /// Sidecar templates by name; `None` if injection is disabled.
    fn injection_templates(&self) -> Option<BTreeMap<String, String>>;
    /// Connected proxies with their subscriptions; one of them also with its metadata.
    fn ads(&self, proxy_id: Option<&str>) -> api::Ads;
    /// Connected proxies in the format of istioctl and Kiali.
    fn sync_status(&self) -> Vec<api::SyncStatus>;
    /// Resources of a proxy in the newest world, in the format of Envoy's `config_dump`. `proxy_id` is a
    /// connection id, a node id, or the name and namespace of a proxy (`web-0.shop`). `None` if no such proxy
    /// is connected.
    fn config_dump(&self, proxy_id: &str, include_eds: bool) -> Option<serde_json::Value>;
}

/// Paths below `/debug` with their descriptions.
pub const ENDPOINTS: &[(&str, &str)] = &[
    ("adsz", "Connected proxies, what they subscribe to and what they acknowledged"),
    ("config_dump", "Everything that one proxy gets: ?proxyID=NAME.NAMESPACE [&include_eds=true]"),
    ("configz", "Configuration objects in force: [?kind=VirtualService] [&namespace=shop] [&name=web]"),
    ("endpointShardz", "The same as endpointz"),
    ("endpointz", "Endpoints by host, namespace and registry: [?host=PART]"),
    ("inject", "The template of the sidecars that are added to Pods"),
    ("list", "The names of these paths as JSON"),
    ("networkz", "Gateways between networks"),
    ("problemz", "Objects whose newest version is not in force, and why"),
    ("registrationz", "What is registered with this process, and where it is kept"),
    ("registryz", "All services: [?registries=true] for the registries themselves"),
    ("syncz", "Connected proxies with nonces, in the form of istioctl"),
];

pub(crate) struct Admin<C> {
    pub(crate) plane: Arc<C>,
    metrics: Arc<Metrics>,
    pub(crate) feed: Arc<Feed>,
    version: &'static str,
    readiness: Arc<Prepared>,
    gate: Arc<Gate>,
    metrics_page: MetricsPage,
}

pub(crate) type Shared<C> = State<Arc<Admin<C>>>;

/// Maximum time without a heartbeat of the control loop: computing one world may take a while.
const ALIVE: Duration = Duration::from_secs(30);

/// All paths of the admin API. Health, metrics and the version are open to all clients. Pages below `/debug`
/// contain the configuration of all namespaces and are restricted by `permissions`, as are the details of
/// `/ready`.
pub fn router<C: ControlPlane + Operations>(
    plane: Arc<C>,
    metrics: Arc<Metrics>,
    feed: Arc<Feed>,
    version: &'static str,
    permissions: impl Into<Permissions>,
) -> Router {
    let gate = Arc::new(Gate::new(permissions.into(), metrics.clone()));
    let pages = Router::new()
        .route("/debug", get(index))
        .route("/debug/", get(index))
        .route("/debug/list", get(list))
        .route("/debug/registryz", get(registryz::<C>))
        .route("/debug/registrationz", get(registrationz::<C>))
        .route("/debug/endpointz", get(endpointz::<C>))
        .route("/debug/endpointShardz", get(endpointz::<C>))
        .route("/debug/configz", get(configz::<C>))
        .route("/debug/problemz", get(problemz::<C>))
        .route("/debug/inject", get(inject::<C>))
        .route("/debug/networkz", get(networkz::<C>))
        .route("/debug/adsz", get(adsz::<C>))
        .route("/debug/syncz", get(syncz::<C>))
        .route("/debug/config_dump", get(config_dump::<C>))
        .nest("/api/v1", v1::router(&gate))
        .layer(middleware::from_fn_with_state(gate.clone(), access::guard));
    // Not computed for the client: needs no permit.
    let files = dashboard::router().layer(middleware::from_fn_with_state(gate.clone(), access::admit_links));
    // Waits more than it computes: does not use the permits of computed pages.
    let lasting = Router::new()
        .route("/api/v1/events", get(events::<C>))
        .merge(profile::router())
        .layer(middleware::from_fn_with_state(gate.clone(), access::admit));
    Router::new()
        .route("/metrics", get(metrics_text::<C>))
        .route("/ready", get(ready::<C>))
        .route("/healthz", get(alive::<C>))
        .route("/healthz/ready", get(ready::<C>))
        .route("/version", get(version_text::<C>))
        // The path that `istioctl version` requests.
        .route("//version", get(version_text::<C>))
        .merge(pages)
        .merge(lasting)
        .merge(files)
        .layer(middleware::map_response(for_this_site))
        .with_state(Arc::new(Admin {
            metrics_page: MetricsPage::new(metrics.clone()),
            readiness: Prepared::new(),
            gate,
            plane,
            metrics,
            feed,
            version,
        }))
}

/// Headers of every response: browsers must not guess another content type, or pass it to pages of other
/// sites.
async fn for_this_site(mut response: Response) -> Response {
    const HEADERS: [(HeaderName, &str); 2] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Liveness: fails if the control loop sends no heartbeats, so that a restart would help.
async fn alive<C: ControlPlane>(State(admin): Shared<C>) -> Response {
    let silent = admin.plane.silent_for();
    if silent < ALIVE {
        return "ok\n".into_response();
    }
    let message = format!("nothing was seen of the control loop for {} s\n", silent.as_secs());
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}

async fn ready<C: ControlPlane>(State(admin): Shared<C>, request: Request) -> Response {
    let told = admin.gate.tells(&request);
    drop(request);
    let told = told.await;
    admin.readiness.answer(&admin.plane, told).await
}

async fn metrics_text<C: ControlPlane>(State(admin): Shared<C>, request: Request) -> Response {
    if let Err(refusal) = access::check_site(&request) {
        return access::refuse(refusal);
    }
    let peer = access::peer(&request);
    drop(request);
    let this = Arc::clone(&admin);
    let make = move || {
        this.metrics.set_registries(&this.plane.registries());
        this.metrics.set_dropped_log_lines(this.plane.dropped_log_lines());
        this.metrics.set_source_silence(&this.plane.source_silence());
        if let Some(all) = this.plane.registration() {
            this.metrics.set_registration(&all);
        }
        this.metrics.encode(&this.plane.world()).map_err(|error| error.to_string())
    };
    admin.metrics_page.answer(peer, make).await
}

async fn events<C: ControlPlane>(State(admin): Shared<C>) -> Response {
    let response = feed::stream(&admin.feed);
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        admin.metrics.limit_reached("admin", "event-streams");
    }
    response
}

async fn version_text<C: ControlPlane>(State(admin): Shared<C>) -> String {
    format!("{}\n", admin.version)
}

async fn index() -> Response {
    let row = |(path, what): &(&str, &str)| {
        let what = what.replace('&', "&amp;").replace('<', "&lt;");
        format!("<tr><td><a href=\"/debug/{path}\">{path}</a></td><td>{what}</td></tr>\n")
    };
    let rows: String = ENDPOINTS.iter().map(row).collect();
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>Pilotfish</title>\
         <style>body{{font:15px system-ui;margin:2em}}td{{padding:.2em 1em}}</style><h1>Pilotfish</h1><p>\
         <a href=/dashboard/>dashboard</a> <a href=/ready>ready</a> <a href=/metrics>metrics</a></p><table>\n\
         {rows}</table>\n"
    );
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

/// Names only, in istiod's format: `istioctl x internal-debug` takes one of them.
async fn list() -> Json<Vec<&'static str>> {
    Json(ENDPOINTS.iter().map(|(path, _)| *path).filter(|path| *path != "list").collect())
}

#[derive(Deserialize)]
struct RegistryzQuery {
    #[serde(default)]
    registries: bool,
}

async fn registryz<C: ControlPlane>(
    State(admin): Shared<C>,
    Query(query): Query<RegistryzQuery>,
) -> Response {
    if query.registries {
        return Json(admin.plane.registries()).into_response();
    }
    Json(views::services(&admin.plane.world())).into_response()
}

async fn registrationz<C: ControlPlane>(State(admin): Shared<C>) -> Response {
    match admin.plane.registration() {
        Some(all) => Json(all).into_response(),
        None => {
            (StatusCode::NOT_FOUND, "nothing can be registered: see --registration-address\n").into_response()
        }
    }
}

#[derive(Deserialize)]
struct EndpointzQuery {
    host: Option<String>,
}

async fn endpointz<C: ControlPlane>(
    State(admin): Shared<C>,
    Query(query): Query<EndpointzQuery>,
) -> Response {
    Json(views::endpoints(&admin.plane.world(), query.host.as_deref())).into_response()
}

#[derive(Deserialize)]
struct ConfigzQuery {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

async fn configz<C: ControlPlane>(State(admin): Shared<C>, Query(query): Query<ConfigzQuery>) -> Response {
    let is_named = |name: &str, kind: Kind| name.eq_ignore_ascii_case(kind.name());
    if let Some(name) = &query.kind
        && !shown_kinds().any(|kind| is_named(name, kind))
    {
        return unknown_kind(name);
    }
    let world = admin.plane.world();
    let wanted = |object: &&Object| {
        is_shown(object.key().kind)
            && query.kind.as_ref().is_none_or(|name| is_named(name, object.key().kind))
            && query.namespace.as_ref().is_none_or(|namespace| object.key().namespace == **namespace)
            && query.name.as_ref().is_none_or(|name| *object.key().name == **name)
    };
    let objects = world.all_objects().filter(wanted);
    let list: Vec<_> = objects.map(|object| views::object(object, admin.plane.spec(object))).collect();
    Json(list).into_response()
}

pub(crate) fn is_shown(kind: Kind) -> bool {
    kind != Kind::Secret
}

fn shown_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| is_shown(*kind))
}

fn unknown_kind(name: &str) -> Response {
    let names: BTreeSet<&str> = shown_kinds().map(Kind::name).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    (StatusCode::BAD_REQUEST, format!("\"{name}\" is no kind that is shown here. Known kinds: {names}\n"))
        .into_response()
}

async fn problemz<C: ControlPlane>(State(admin): Shared<C>) -> Json<Vec<api::Problem>> {
    Json(admin.plane.problems())
}

async fn networkz<C: ControlPlane>(State(admin): Shared<C>) -> Response {
    let world = admin.plane.world();
    let gateways = world.network_gateways().iter().map(|gateway| {
        serde_json::json!({
            "Network": gateway.network, "Cluster": gateway.cluster, "Addr": gateway.address,
            "Port": gateway.port, "HBONEPort": gateway.hbone_port, "ServiceAccount": gateway.service_account,
        })
    });
    Json(gateways.collect::<Vec<_>>()).into_response()
}

async fn inject<C: ControlPlane>(State(admin): Shared<C>) -> Response {
    match admin.plane.injection_templates() {
        Some(templates) => Json(templates).into_response(),
        None => (StatusCode::NOT_FOUND, "No sidecars are added to Pods: --webhook-address turns it on\n")
            .into_response(),
    }
}

#[derive(Deserialize)]
struct AdsQuery {
    #[serde(rename = "proxyID")]
    proxy_id: Option<String>,
}

async fn adsz<C: ControlPlane>(State(admin): Shared<C>, Query(query): Query<AdsQuery>) -> Json<api::Ads> {
    Json(admin.plane.ads(query.proxy_id.as_deref()))
}

async fn syncz<C: ControlPlane>(State(admin): Shared<C>) -> Json<Vec<api::SyncStatus>> {
    Json(admin.plane.sync_status())
}

#[derive(Deserialize)]
struct ConfigDumpQuery {
    #[serde(rename = "proxyID")]
    proxy_id: Option<String>,
    #[serde(default)]
    include_eds: bool,
}

/// istioctl searches replies for these words, to try the next replica.
pub const NOT_CONNECTED: &str =
    "Proxy not connected to this Pilot instance. It may be connected to another instance.\n";

async fn config_dump<C: ControlPlane>(
    State(admin): Shared<C>,
    Query(query): Query<ConfigDumpQuery>,
) -> Response {
    let Some(proxy_id) = query.proxy_id.filter(|id| !id.is_empty()) else {
        let hint = "You must provide a proxyID in the query string, for example ?proxyID=web-0.shop\n";
        return (StatusCode::BAD_REQUEST, hint).into_response();
    };
    let dump = tokio::task::spawn_blocking(move || {
        let dump = admin.plane.config_dump(&proxy_id, query.include_eds)?;
        Some(serde_json::to_vec(&dump))
    });
    match dump.await {
        Ok(Some(Ok(dump))) => ([(header::CONTENT_TYPE, "application/json")], dump).into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, NOT_CONNECTED).into_response(),
        Ok(Some(Err(error))) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
