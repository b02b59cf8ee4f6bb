//! `/api/v1`: API of the command line and the dashboard. Its responses are bounded as pages are: lists are
//! paginated.

mod services;

use crate::abandoned::Abandoned;
use crate::access::Gate;
use crate::audit::{self, Change as StateChange};
use crate::process;
use crate::roles::Role;
use crate::routes::{Admin, ControlPlane, Shared, is_shown};
use axum::extract::{DefaultBodyLimit, Path, Query, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router, middleware};
use pilotfish_api::v1::{
    Acknowledgement, CaRotation, CaRotationRequest, CertificateAuthority, Change, ChangeProgress, Failure,
    FailureKind, GuardAcceptance, History, LogFilter, Memory, MemoryKind, NamespaceMap, NodeRequest,
    ObjectName, Overview, Page, Plan, PlanRequest, Proxy, ProxyConfig, Section, ServiceDetail, ServiceMap,
    ServiceRow, Status, Why, WhyEndpoint, WhyObject,
};
use pilotfish_model::{Object, ServiceKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// Queries and operations of operators; the binary implements it.
pub trait Operations: Send + Sync + 'static {
    /// Numbers of the overview page.
    fn overview(&self) -> Overview;

    /// Overall status and its problems.
    fn status(&self) -> Status;

    /// The last changes, [`crate::CHANGES`] at most and the newest first, each with the progress of its
    /// proxies.
    fn changes(&self) -> Vec<ChangeProgress>;

    /// Name of this replica. Each replica has its own proxies and revisions.
    fn replica(&self) -> String;

    /// Connected proxies, by name.
    fn proxies(&self) -> Vec<Proxy>;

    /// One connected proxy: by connection or node id, by name and namespace (`web-0.shop`), or by a prefix of
    /// those.
    ///
    /// # Errors
    /// If there is none, or several.
    fn proxy(&self, name: &str) -> Result<Proxy, Failure>;

    /// Acknowledgements of a revision or an object.
    ///
    /// # Errors
    /// If it is not known.
    fn acknowledgement(&self, what: &WaitFor) -> Result<Acknowledgement, Failure>;

    /// Resources that a proxy was sent, or that it would have had at an earlier revision.
    ///
    /// # Errors
    /// If the proxy is not known, or the revision is not stored.
    fn proxy_config(&self, proxy: &str, asked: &ConfigAsked) -> Result<ProxyConfig, Failure>;

    /// Resources that a proxy which is not connected would be sent.
    ///
    /// # Errors
    /// If the node is malformed, or the resources cannot be computed now.
    fn node_config(&self, request: NodeRequest, abandoned: &Abandoned) -> Result<ProxyConfig, Failure>;

    /// Recent publications, the newest first.
    ///
    /// # Errors
    /// If the object or the proxy is not known.
    fn history(&self, query: &HistoryQuery) -> Result<History, Failure>;

    /// One change with diffs.
    ///
    /// # Errors
    /// If the revision is not stored.
    fn change(&self, revision: u64) -> Result<Change, Failure>;

    /// Effects of a planned change.
    ///
    /// # Errors
    /// If it cannot be computed now.
    fn plan(&self, request: PlanRequest, abandoned: &Abandoned) -> Result<Plan, Failure>;

    /// Path of a proxy's request.
    ///
    /// # Errors
    /// If the proxy or the host is not known.
    fn why(&self, query: &WhyQuery) -> Result<Why, Failure>;

    /// Stored history since a revision, or all of it, as JSON lines.
    ///
    /// # Errors
    /// If the revision is not stored, or there is too much.
    fn record(&self, from: Option<u64>) -> Result<Vec<u8>, Failure>;

    /// Neighbourhood of a service. `row` is its row in lists.
    fn service_detail(&self, key: &ServiceKey, row: ServiceRow) -> ServiceDetail;

    /// Namespaces, and the visibility of their services to each other.
    fn namespace_map(&self) -> NamespaceMap;

    /// Routes from and to services of a namespace.
    fn service_map(&self, namespace: &str) -> ServiceMap;

    /// Memory use by kind.
    fn memory(&self) -> Vec<MemoryKind>;

    /// The log filter.
    ///
    /// # Errors
    /// If it is unknown.
    fn log(&self) -> Result<LogFilter, Failure>;

    /// Sets the log filter; an empty one restores the configured filter.
    ///
    /// # Errors
    /// If the filter is malformed.
    fn set_log(&self, filter: &str) -> Result<LogFilter, Failure>;

    /// Makes a source read the data that its guard holds back again now, and accept it.
    ///
    /// # Errors
    /// If the source holds nothing back.
    fn accept_loss(&self, source: &str) -> Result<GuardAcceptance, Failure>;

    /// The certificate authority of the mesh.
    ///
    /// # Errors
    /// If no certificates are signed.
    fn certificate_authority(&self) -> Result<CertificateAuthority, Failure>;

    /// Begins a rotation of the authority's root, with the longest validity of workload certificates.
    ///
    /// # Errors
    /// If there is no authority, it is a plug-in one, is being rotated, or cannot be written.
    fn rotate_ca(&self, overlap: Duration) -> impl Future<Output = Result<CaRotation, Failure>> + Send;

    /// Services that an address is an endpoint of.
    ///
    /// # Errors
    /// If it is not an address.
    fn why_endpoint(&self, address: &str) -> Result<WhyEndpoint, Failure>;

    /// Proxies that an object reaches.
    ///
    /// # Errors
    /// If it is not known.
    fn why_object(&self, object: &str) -> Result<WhyObject, Failure>;
}

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

/// Condition to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// All changes up to a revision, or up to now.
    Newest { up_to: Option<u64> },
    /// Changes of one revision.
    Revision(u64),
    /// The newest version of an object.
    Object {
        /// Name such as `VirtualService/shop/catalog`.
        object: String,
        /// Minimum `metadata.generation`; with it, an unknown object is waited for and no error.
        generation: Option<i64>,
    },
}

/// Filter for the resources of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigAsked {
    /// Section; `None` for all.
    pub section: Option<Section>,
    /// Exact name, or else a part of the name.
    pub name: Option<String>,
    /// True for the content, false for names only.
    pub full: bool,
    /// Number of skipped resources.
    pub offset: usize,
    /// Maximum number of resources.
    pub limit: usize,
    /// Revision; `None` for the resources that were sent last.
    pub at: Option<u64>,
}

/// Query for the path of a proxy's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhyQuery {
    /// The proxy, or a workload.
    pub proxy: String,
    /// True if a workload that is not connected is a gateway and has no sidecar.
    pub gateway: bool,
    /// `HOST[:PORT]` of the destination.
    pub to: String,
    pub path: String,
    pub method: String,
    /// Headers of the request, as `NAME=VALUE`.
    pub headers: Vec<String>,
    /// Earlier revision to evaluate.
    pub at: Option<u64>,
}

/// Query parameters of a list of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HistoryQuery {
    /// Changes of an object, such as `VirtualService/shop/catalog`.
    pub object: Option<String>,
    /// Changes that concerned a connected proxy since it connected.
    pub proxy: Option<String>,
    /// Includes changes of endpoints only; always included with an object or a proxy.
    #[serde(default)]
    pub endpoints: bool,
    /// Index of the first listed change.
    pub offset: Option<usize>,
    /// Maximum number of listed changes.
    pub limit: Option<usize>,
}

/// Maximum size of a plan's files, as JSON.
const PLAN_BYTES: usize = 8 << 20;
/// Maximum size of a node, as JSON.
const NODE_BYTES: usize = 512 << 10;
/// Maximum size of a request to change state, as JSON: a log filter is the longest.
const CHANGE_BYTES: usize = 4 << 10;

pub(crate) fn router<C: ControlPlane + Operations>(gate: &Arc<Gate>) -> Router<Arc<Admin<C>>> {
    let set_log = post(set_log::<C>);
    let accept_loss = post(accept_loss::<C>);
    let rotate = post(rotate_ca::<C>);
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
        .route("/log", get(log::<C>).merge(changing(set_log, "set-log-level", Role::Operator, gate)))
        .route("/ca", get(certificate_authority::<C>))
        .route("/ca/rotate", changing(rotate, "rotate-root", Role::Admin, gate))
        .route("/guard", changing(accept_loss, "accept-loss", Role::Operator, gate))
        .route("/history", get(history::<C>))
        .route("/history/{revision}", get(change::<C>))
        .route("/plan", post(plan::<C>).layer(DefaultBodyLimit::max(PLAN_BYTES)))
        .route("/node/config", post(node_config::<C>).layer(DefaultBodyLimit::max(NODE_BYTES)))
        .route("/why", get(why::<C>))
        .route("/why/endpoint", get(why_endpoint::<C>))
        .route("/why/object", get(why_object::<C>))
}

/// Route that changes state: needs a role, and is audited.
fn changing<C: ControlPlane + Operations>(
    handler: MethodRouter<Arc<Admin<C>>>,
    action: &'static str,
    needed: Role,
    gate: &Arc<Gate>,
) -> MethodRouter<Arc<Admin<C>>> {
    let change = StateChange::new(action, needed, gate);
    let handler = handler.layer(DefaultBodyLimit::max(CHANGE_BYTES));
    handler.layer(middleware::from_fn_with_state(change, audit::change))
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

/// Filter, order and page of a list.
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
    /// Substring of the name.
    name: Option<String>,
    /// Sort key: `health`, `namespace`, `endpoints` of services; `state` of proxies; by name otherwise.
    sort: Option<String>,
    #[serde(default)]
    without_endpoints: bool,
    /// True if the host filter is exact and not a substring.
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

/// Body of a POST request. A foreign page in a browser cannot send JSON without a CORS preflight, which is
/// not answered.
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

async fn node_config<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    Extension(abandoned): Extension<Abandoned>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    let request = question("the configuration of a node", &headers, &body);
    answer(request.and_then(|request| admin.plane.node_config(request, &abandoned)))
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
    match question("the log level", &headers, &body) {
        Ok(LogFilter { filter, .. }) => about(&filter, admin.plane.set_log(&filter)),
        Err(failure) => answer::<()>(Err(failure)),
    }
}

/// Response to a change of an object, for the audit log.
fn about<T: Serialize>(object: &str, result: Result<T, Failure>) -> Response {
    let mut response = answer(result);
    response.extensions_mut().insert(audit::Object(object.to_owned()));
    response
}

async fn certificate_authority<C: ControlPlane + Operations>(State(admin): Shared<C>) -> Response {
    answer(admin.plane.certificate_authority())
}

async fn accept_loss<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    match question("a loss that is held back", &headers, &body) {
        Ok(GuardAcceptance { source }) => about(&source, admin.plane.accept_loss(&source)),
        Err(failure) => answer::<()>(Err(failure)),
    }
}

async fn rotate_ca<C: ControlPlane + Operations>(
    State(admin): Shared<C>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    match question("a rotation", &headers, &body) {
        Ok(CaRotationRequest { overlap_seconds }) => {
            let overlap = Duration::from_secs(overlap_seconds);
            let object = format!("certificate authority, overlap {overlap_seconds} s");
            about(&object, admin.plane.rotate_ca(overlap).await)
        }
        Err(failure) => answer::<()>(Err(failure)),
    }
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
        let page = include_str!("../../../../docs/limits.md");
        let (plan, node, log) = (PLAN_BYTES >> 20, NODE_BYTES >> 10, CHANGE_BYTES >> 10);
        for row in [
            format!(
                "| The files of a plan; a node; a filter of logs | {plan} MiB; {node} KiB; {log} KiB, as JSON |"
            ),
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
