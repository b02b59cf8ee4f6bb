//! `/api/v1`: what the command line and the dashboard ask. Its answers are as bounded as pages are: lists come in parts.

mod services;

use crate::abandoned::Abandoned;
use crate::access;
use crate::process;
use crate::routes::{Admin, ControlPlane, Shared, is_shown};
use axum::extract::{DefaultBodyLimit, Path, Query, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router, middleware};
use pilotfish_api::v1::{
    Acknowledgement, Change, ChangeProgress, Failure, FailureKind, GuardAcceptance, History, LogFilter,
    Memory, MemoryKind, NamespaceMap, ObjectName, Overview, Page, Plan, PlanRequest, Proxy, ProxyConfig,
    Section, ServiceDetail, ServiceMap, ServiceRow, Status, Why, WhyEndpoint, WhyObject,
};
use pilotfish_model::{Object, ServiceKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::sync::Arc;

/// What the control plane can tell an operator; the binary implements it.
pub trait Operations: Send + Sync + 'static {
    /// Everything in numbers.
    fn overview(&self) -> Overview;

    /// Whether all is well.
    fn status(&self) -> Status;

    /// The last changes, [`crate::CHANGES`] at most and the newest first, each with how far its proxies are.
    fn changes(&self) -> Vec<ChangeProgress>;

    /// The name of this replica, where there may be several: each has proxies and revisions of its own.
    fn replica(&self) -> String;

    /// The connected proxies, by name.
    fn proxies(&self) -> Vec<Proxy>;

    /// One connected proxy: by the id of its connection or node, by name and namespace (`web-0.shop`), or by the beginning of that.
    ///
    /// # Errors
    /// When there is none, or several.
    fn proxy(&self, name: &str) -> Result<Proxy, Failure>;

    /// Who has acknowledged something.
    ///
    /// # Errors
    /// When it is not known.
    fn acknowledgement(&self, what: &WaitFor) -> Result<Acknowledgement, Failure>;

    /// What a proxy was sent, or what it would have had at an earlier revision.
    ///
    /// # Errors
    /// When the proxy is not known, or the revision is not kept.
    fn proxy_config(&self, proxy: &str, asked: &ConfigAsked) -> Result<ProxyConfig, Failure>;

    /// What was published lately, the newest first.
    ///
    /// # Errors
    /// When the object or the proxy is not known.
    fn history(&self, query: &HistoryQuery) -> Result<History, Failure>;

    /// One change with diffs.
    ///
    /// # Errors
    /// When the revision is not kept.
    fn change(&self, revision: u64) -> Result<Change, Failure>;

    /// What would change.
    ///
    /// # Errors
    /// When it cannot be computed now.
    fn plan(&self, request: PlanRequest, abandoned: &Abandoned) -> Result<Plan, Failure>;

    /// Where a request of a proxy goes.
    ///
    /// # Errors
    /// When the proxy or the host is not known.
    fn why(&self, query: &WhyQuery) -> Result<Why, Failure>;

    /// What is kept of the past since a revision, or all of it, as lines of JSON.
    ///
    /// # Errors
    /// When the revision is not kept, or it is too much.
    fn record(&self, from: Option<u64>) -> Result<Vec<u8>, Failure>;

    /// What there is around a service. `row` is what lists show of it.
    fn service_detail(&self, key: &ServiceKey, row: ServiceRow) -> ServiceDetail;

    /// Namespaces, and who sees whose services.
    fn namespace_map(&self) -> NamespaceMap;

    /// The routes around the services of a namespace.
    fn service_map(&self, namespace: &str) -> ServiceMap;

    /// What memory is for, by kind.
    fn memory(&self) -> Vec<MemoryKind>;

    /// Which logs are written.
    ///
    /// # Errors
    /// When that is not known.
    fn log(&self) -> Result<LogFilter, Failure>;

    /// Changes which logs are written: what is configured where the filter is empty.
    ///
    /// # Errors
    /// When the filter cannot be read.
    fn set_log(&self, filter: &str) -> Result<LogFilter, Failure>;

    /// Makes a source read again now what its guard holds back, and believe it.
    ///
    /// # Errors
    /// When the source holds nothing back.
    fn accept_loss(&self, source: &str) -> Result<GuardAcceptance, Failure>;

    /// Which services an address is an endpoint of.
    ///
    /// # Errors
    /// When it is no address.
    fn why_endpoint(&self, address: &str) -> Result<WhyEndpoint, Failure>;

    /// Whom an object reaches.
    ///
    /// # Errors
    /// When it is not known.
    fn why_object(&self, object: &str) -> Result<WhyObject, Failure>;
}

/// An object.
#[derive(Deserialize)]
struct ObjectQuery {
    object: String,
}

async fn why_object<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ObjectQuery>,
) -> Response {
    answer(admin.plane.why_object(&query.object))
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Everything that is in force: at a revision, or now.
    Newest {
        /// The revision.
        up_to: Option<u64>,
    },
    /// What a revision changed.
    Revision(u64),
    /// An object as it was read last.
    Object {
        /// `VirtualService/shop/catalog`.
        object: String,
        /// The `metadata.generation` that is to be read first; then an object that is not known may come, and is no error.
        generation: Option<i64>,
    },
}

/// Which of a proxy's resources are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigAsked {
    /// Of one section; `None` for all.
    pub section: Option<Section>,
    /// Those whose names are this, or else contain it.
    pub name: Option<String>,
    /// Whole, or by name only.
    pub full: bool,
    /// So many of them are left out at the beginning.
    pub offset: usize,
    /// So many at most.
    pub limit: usize,
    /// As of this revision; `None` for what it was sent last.
    pub at: Option<u64>,
}

/// A request of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhyQuery {
    /// The proxy, or a workload.
    pub proxy: String,
    /// Whether a workload that is not connected would be a gateway, and not have a sidecar.
    pub gateway: bool,
    /// `HOST[:PORT]`.
    pub to: String,
    /// The path.
    pub path: String,
    /// The method.
    pub method: String,
    /// Headers: `NAME=VALUE`.
    pub headers: Vec<String>,
    /// At an earlier revision.
    pub at: Option<u64>,
}

/// Which changes are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HistoryQuery {
    /// Those that touched an object: `VirtualService/shop/catalog`.
    pub object: Option<String>,
    /// Those that concerned a connected proxy, since it connected.
    pub proxy: Option<String>,
    /// Also those of nothing but endpoints; they are always there where an object or a proxy is named.
    #[serde(default)]
    pub endpoints: bool,
    /// The first one of the list that is shown.
    pub offset: Option<usize>,
    /// How many are shown.
    pub limit: Option<usize>,
}

/// Bytes of the files of a plan, as JSON.
const PLAN_BYTES: usize = 8 << 20;
/// Bytes of a filter of logs, as JSON.
const LOG_BYTES: usize = 4 << 10;

pub(crate) fn router<C: ControlPlane + Operations>() -> Router<Arc<Admin<C>>> {
    Router::new()
        .route("/proxies", get(proxies::<C>))
        .route("/proxies/{name}", get(proxy::<C>))
        .route("/proxies/{name}/config", get(config::<C>))
        .route("/services", get(services::services::<C>))
        .route("/service", get(services::service::<C>))
        .route("/map", get(services::map::<C>))
        .route("/map/{namespace}", get(services::map_of::<C>))
        .route("/endpoints", get(services::endpoints::<C>))
        .route("/registries", get(registries::<C>))
        .route("/problems", get(problems::<C>))
        .route("/objects", get(objects::<C>))
        .route("/acknowledgements", get(acknowledgements::<C>))
        .route("/record", get(record::<C>))
        .route("/overview", get(overview::<C>))
        .route("/status", get(status::<C>))
        .route("/changes", get(changes::<C>))
        .route("/samples", get(samples::<C>))
        .route("/memory", get(memory::<C>))
        .route("/log", get(log::<C>).merge(change_log::<C>()))
        .route("/guard", accept_guard::<C>())
        .route("/history", get(history::<C>))
        .route("/history/{revision}", get(change::<C>))
        .route("/plan", post(plan::<C>).layer(DefaultBodyLimit::max(PLAN_BYTES)))
        .route("/why", get(why::<C>))
        .route("/why/endpoint", get(why_endpoint::<C>))
        .route("/why/object", get(why_object::<C>))
}

/// Changes what is in force, as an edit of the source would.
fn accept_guard<C: ControlPlane + Operations>() -> MethodRouter<Arc<Admin<C>>> {
    let accept = post(accept_loss::<C>).layer(DefaultBodyLimit::max(LOG_BYTES));
    accept.layer(middleware::from_fn(access::this_machine))
}

/// Changes which logs are written.
fn change_log<C: ControlPlane + Operations>() -> MethodRouter<Arc<Admin<C>>> {
    let change = post(set_log::<C>).layer(DefaultBodyLimit::max(LOG_BYTES));
    change.layer(middleware::from_fn(access::this_machine))
}

pub(crate) fn answer<T: Serialize>(result: Result<T, Failure>) -> Response {
    match result {
        Ok(answer) => Json(answer).into_response(),
        Err(failure) => {
            let status = match failure.kind {
                FailureKind::NotFound => StatusCode::NOT_FOUND,
                FailureKind::Ambiguous => StatusCode::CONFLICT,
                FailureKind::Invalid => StatusCode::BAD_REQUEST,
                FailureKind::Unavailable | FailureKind::Other => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, Json(failure)).into_response()
        }
    }
}

/// The part of a list, and which of it.
#[derive(Deserialize)]
struct ListQuery {
    offset: Option<usize>,
    limit: Option<usize>,
    host: Option<String>,
    namespace: Option<String>,
    registry: Option<String>,
    health: Option<String>,
    state: Option<String>,
    severity: Option<String>,
    /// Names contain this.
    name: Option<String>,
    /// `health`, `namespace`, `endpoints` of services; `state` of proxies; else by name.
    sort: Option<String>,
    #[serde(default)]
    without_endpoints: bool,
    /// Whether the host is meant as it is, and not as a part of others.
    #[serde(default)]
    exact: bool,
}

impl ListQuery {
    fn page<T>(&self, list: Vec<T>) -> Page<T> {
        Page::of(list, self.offset, self.limit)
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
    }

    fn has_host(&self, host: &str) -> bool {
        self.host.as_deref().is_none_or(|wanted| host.contains(wanted))
    }

    fn has_name(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|wanted| name.contains(wanted))
    }

    fn has_registry(&self, registry: &str) -> bool {
        let begins = |wanted: &str| {
            registry.get(..wanted.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(wanted))
        };
        self.registry.as_deref().is_none_or(begins)
    }
}

async fn overview<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    Json(admin.plane.overview()).into_response()
}

async fn status<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    Json(admin.plane.status()).into_response()
}

async fn changes<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    Json(admin.plane.changes()).into_response()
}

async fn samples<C: ControlPlane>(State(admin): Shared<C>) -> Response {
    Json(admin.feed.samples()).into_response()
}

async fn proxies<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ListQuery>,
) -> Response {
    let mut list = admin.plane.proxies();
    list.retain(|proxy| {
        let namespace = proxy.name.rsplit_once('.').map_or("", |(_, namespace)| namespace);
        query.has_namespace(namespace)
            && query.has_name(&proxy.name)
            && query.state.as_deref().is_none_or(|state| proxy.state.to_string() == state)
    });
    if query.sort.as_deref() == Some("state") {
        list.sort_by_key(|proxy| Reverse(proxy.state));
    }
    Json(Page { replica: admin.plane.replica(), ..query.page(list) }).into_response()
}

async fn proxy<C: ControlPlane + Operations>(State(admin): Shared<C>, Path(name): Path<String>) -> Response {
    answer(admin.plane.proxy(&name))
}

#[derive(Deserialize)]
struct ConfigQuery {
    section: Option<String>,
    name: Option<String>,
    #[serde(default)]
    full: bool,
    offset: Option<usize>,
    limit: Option<usize>,
    at: Option<u64>,
}

async fn config<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Path(proxy): Path<String>,
    Query(query): Query<ConfigQuery>,
) -> Response {
    let section = query.section.as_deref().map(|word| {
        let unknown =
            || Failure::unknown("section", word, Section::ALL.iter().map(|section| section.as_str()));
        Section::parse(word).ok_or_else(unknown)
    });
    let asked = |section| ConfigAsked {
        section,
        name: query.name.clone(),
        full: query.full,
        offset: query.offset.unwrap_or(0),
        limit: query.limit.unwrap_or(usize::MAX),
        at: query.at,
    };
    answer(section.transpose().and_then(|section| admin.plane.proxy_config(&proxy, &asked(section))))
}

async fn history<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<HistoryQuery>,
) -> Response {
    answer(admin.plane.history(&query))
}

async fn change<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Path(revision): Path<String>,
) -> Response {
    let wrong = || {
        let failure = Failure::new(FailureKind::Invalid, format!("{revision:?} is no revision"));
        failure.hint("revisions are numbers, as in /api/v1/history/42")
    };
    answer(revision.parse().map_err(|_| wrong()).and_then(|revision| admin.plane.change(revision)))
}

async fn registries<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ListQuery>,
) -> Response {
    let mut list = admin.plane.registries();
    list.retain(|registry| query.has_registry(&registry.name));
    Json(query.page(list)).into_response()
}

async fn problems<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ListQuery>,
) -> Response {
    let mut list = admin.plane.problems();
    list.retain(|problem| {
        let name = problem.object.rsplit_once(' ').map_or("", |(_, name)| name);
        let namespace = name.split_once('/').map_or("", |(namespace, _)| namespace);
        query.has_namespace(namespace)
            && (query.has_name(&problem.object) || query.has_name(&problem.message))
            && query.severity.as_deref().is_none_or(|severity| problem.severity == severity)
    });
    Json(query.page(list)).into_response()
}

/// Names of objects, `VirtualService shop/catalog`, by kind.
async fn objects<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<ListQuery>,
) -> Response {
    let world = admin.plane.world();
    let keys = world.all_objects().map(Object::key);
    let wanted = keys.filter(|key| is_shown(key.kind) && query.has_namespace(key.namespace.as_str()));
    let mut list: Vec<ObjectName> = wanted.map(ToString::to_string).collect();
    list.retain(|name| query.has_name(name));
    list.sort_unstable();
    Json(query.page(list)).into_response()
}

#[derive(Deserialize)]
struct WaitQuery {
    revision: Option<u64>,
    up_to: Option<u64>,
    object: Option<String>,
    generation: Option<i64>,
}

async fn acknowledgements<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<WaitQuery>,
) -> Response {
    let what = match (query.revision, query.object) {
        (Some(revision), _) => WaitFor::Revision(revision),
        (None, Some(object)) => WaitFor::Object { object, generation: query.generation },
        (None, None) => WaitFor::Newest { up_to: query.up_to },
    };
    answer(admin.plane.acknowledgement(&what))
}

/// The question of a POST. A page of another site that a browser has open cannot send JSON without being asked for leave, which is not
/// given.
fn question<T: DeserializeOwned>(what: &str, headers: &HeaderMap, body: &[u8]) -> Result<T, Failure> {
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let invalid = |error: String| Failure::new(FailureKind::Invalid, error);
    if !is_json {
        return Err(invalid(format!("{what} is asked for with content-type: application/json")));
    }
    serde_json::from_slice(body)
        .map_err(|error| invalid(format!("the body is no question for {what}: {error}")))
}

async fn plan<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Extension(abandoned): Extension<Abandoned>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    let request = question("a plan", &headers, &body);
    answer(request.and_then(|request| admin.plane.plan(request, &abandoned)))
}

#[derive(Deserialize)]
struct RecordQuery {
    from: Option<u64>,
}

async fn record<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<RecordQuery>,
) -> Response {
    match admin.plane.record(query.from) {
        Ok(record) => ([(header::CONTENT_TYPE, "application/x-ndjson")], record).into_response(),
        Err(failure) => answer::<()>(Err(failure)),
    }
}

async fn memory<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    Json(Memory { kinds: admin.plane.memory(), ..process::memory() }).into_response()
}

async fn log<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    answer(admin.plane.log())
}

async fn set_log<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    let asked = question("the log level", &headers, &body);
    answer(asked.and_then(|LogFilter { filter, .. }| admin.plane.set_log(&filter)))
}

async fn accept_loss<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    let asked = question("a loss that is held back", &headers, &body);
    answer(asked.and_then(|GuardAcceptance { source }| admin.plane.accept_loss(&source)))
}

async fn why<C: ControlPlane + Operations>(State(admin): Shared<C>, RawQuery(query): RawQuery) -> Response {
    let mut asked = WhyQuery { path: "/".into(), method: "GET".into(), ..WhyQuery::default() };
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let value = value.into_owned();
        match &*name {
            "proxy" => asked.proxy = value,
            "to" => asked.to = value,
            "gateway" => asked.gateway = value == "true",
            "path" => asked.path = value,
            "method" => asked.method = value,
            "header" => asked.headers.push(value),
            "at" => match value.parse() {
                Ok(revision) => asked.at = Some(revision),
                Err(_) => {
                    let failure = Failure::new(FailureKind::Invalid, format!("at={value:?} is no revision"));
                    return answer::<()>(Err(failure));
                }
            },
            _ => {}
        }
    }
    if asked.proxy.is_empty() || asked.to.is_empty() {
        let failure = Failure::new(FailureKind::Invalid, "a proxy and a host are missing");
        return answer::<()>(Err(failure.hint("?proxy=web-0.shop&to=catalog:80")));
    }
    answer(admin.plane.why(&asked))
}

#[derive(Deserialize)]
struct AddressQuery {
    address: String,
}

async fn why_endpoint<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Query(query): Query<AddressQuery>,
) -> Response {
    answer(admin.plane.why_endpoint(&query.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_limits_has_those_of_questions() {
        let page = include_str!("../../../docs/limits.md");
        let (plan, log) = (PLAN_BYTES >> 20, LOG_BYTES >> 10);
        for row in [
            format!("| The files of a plan; a filter of logs | {plan} MiB; {log} KiB, as JSON |"),
            format!(
                "| Samples and changes that are kept for charts | {}; {} |",
                crate::SAMPLES,
                crate::CHANGES
            ),
        ] {
            assert!(page.contains(&row), "no row {row:?}");
        }
    }
}
