//! A stand-in for a Polaris server, written from its documentation and from recorded exchanges: the real one cannot be had from a
//! package registry.
//!
//! It speaks HTTP and gRPC on real sockets. Each rule names where it comes from: `[console]` and `[client]`, the HTTP APIs of Polaris'
//! documentation, `[grpc]`, its protocol buffers, or `[rec FILE]`, a recorded exchange with a server of June 2025.
//! `tests/polaris.rs` replays the recordings. It knows nothing of Pilotfish's client.
//!
//! Not here: rules (routing, limits, circuit breakers), the server's own xDS, roles, and users but for the token of one.

mod aliases;
mod faults;

pub use faults::{PolarisFault, Seen};

use bytes::Bytes;
use faults::Faults;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic_prost::ProstCodec;

/// [console] The largest batch.
const MAX_BATCH: usize = 100;
/// [rec instances-limits, services-create] The longest names and texts.
const MAX_SERVICE: usize = 128;
const MAX_NAMESPACE: usize = 64;
const MAX_HOST: usize = 128;
const MAX_PROTOCOL: usize = 32;
const MAX_VERSION: usize = 32;
const MAX_LOGIC_SET: usize = 128;
const MAX_METADATA: usize = 64;
const MAX_METADATA_KEY: usize = 128;
const MAX_METADATA_VALUE: usize = 4096;
/// [rec services-create] Texts of services.
const MAX_PORTS: usize = 8192;
const MAX_TEXT: usize = 1024;
const MAX_BODY: usize = 8 << 20;

/// How a stand-in is started.
#[derive(Clone, Debug)]
pub struct PolarisOptions {
    /// How often what was written becomes visible to Discover; `None` for [`Polaris::refresh`] alone. [rec discover-read-after-write]
    /// A real server has a tick of one second.
    pub tick: Option<Duration>,
    /// The ports for HTTP and gRPC; 8090 and 8091 of a real server. `None` for free ones.
    pub ports: Option<(u16, u16)>,
    /// The token that the console API needs, in `X-Polaris-Token`.
    pub token: Option<String>,
    /// Whether clients need it too (`clientOpen`).
    pub clients_need_token: bool,
    /// How often one instance may be written by the console API: at once, and then each second.
    pub instance_limit: Option<(u32, u32)>,
    /// A user whose token may be asked for with `token`: its id and its token, which is taken like `token`. [rec auth-users]
    pub user: Option<(String, String)>,
    /// Whether queries of the console see what Discover sees. [doc] Its reads lag behind writes; the recorded server's do not
    /// [rec instances-read-after-write].
    pub console_lags: bool,
    /// Whether instances become unhealthy whose heartbeats fail. [rec health-ttl, health-ttl-unchecked]
    pub checks_heartbeats: bool,
}

impl Default for PolarisOptions {
    fn default() -> Self {
        Self {
            tick: Some(Duration::from_secs(1)),
            ports: None,
            token: None,
            clients_need_token: false,
            instance_limit: None,
            user: None,
            console_lags: false,
            checks_heartbeats: false,
        }
    }
}

/// See the module; ends when dropped.
pub struct Polaris {
    http: u16,
    grpc: u16,
    server: Arc<Server>,
    tasks: Vec<JoinHandle<()>>,
}

impl Polaris {
    /// Starts one on loopback.
    ///
    /// # Panics
    /// When a port is taken.
    pub async fn start(options: PolarisOptions) -> Self {
        let ports = options.ports.unwrap_or_else(|| (crate::real::free_port(), crate::real::free_port()));
        let [http, grpc] = [listen(ports.0).await, listen(ports.1).await];
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        let (http_port, grpc_port) = (port(&http), port(&grpc));
        let tick = options.tick;
        let tokens = Mutex::new((options.token.clone(), options.user.clone()));
        let server = Arc::new(Server {
            options,
            tokens,
            store: Mutex::default(),
            published: Mutex::default(),
            console: Mutex::default(),
            faults: Faults::default(),
        });
        let mut tasks = vec![
            tokio::spawn(serve_http(http, server.clone())),
            tokio::spawn(serve_grpc(grpc, server.clone())),
        ];
        if let Some(tick) = tick {
            let server = server.clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    tokio::time::sleep(tick).await;
                    server.refresh();
                }
            }));
        }
        Self { http: http_port, grpc: grpc_port, server, tasks }
    }

    /// The port of the HTTP APIs (8090 of a real server).
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.http
    }

    /// The port of the gRPC API (8091 of a real server).
    #[must_use]
    pub fn grpc_port(&self) -> u16 {
        self.grpc
    }

    /// Writes by the console API, with the token.
    ///
    /// # Panics
    /// When it is refused.
    pub fn write(&self, method: &str, path: &str, body: &Value) {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let body = body.to_string();
        let token = self.server.options.token.as_deref();
        let answer = route(&self.server, &method, path, &Vec::new(), body.as_bytes(), token);
        assert_eq!(answer.status, 200, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
    }

    /// Lets Discover see what was written.
    pub fn refresh(&self) {
        self.server.refresh();
    }

    /// Moves the server's clock on, by which it judges heartbeats and rates, so that no test has to wait for them.
    pub fn advance(&self, by: Duration) {
        self.server.store().ahead += by;
    }

    /// The next request of that method whose path ends so meets this.
    pub fn fail(&self, method: &'static str, path: &'static str, fault: PolarisFault) {
        self.server.faults.plan(method, path, fault);
    }

    /// How many faults no request has met yet.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.server.faults.planned()
    }

    /// No request meets anything any more.
    pub fn recover(&self) {
        self.server.faults.clear();
    }

    /// The requests to the console API since this was asked last.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.server.faults.seen()
    }

    /// Another token is valid from now on, and another one of the user.
    ///
    /// # Panics
    /// Never, unless something else has.
    pub fn set_tokens(&self, token: Option<&str>, user: Option<(&str, &str)>) {
        let user = user.map(|(id, token)| (id.to_owned(), token.to_owned()));
        *self.server.tokens.lock().expect("no holder panics") = (token.map(str::to_owned), user);
    }

    /// The instances that match a query of the console API, as the server has them now; all pages.
    ///
    /// # Panics
    /// When the query is refused.
    #[must_use]
    pub fn instances(&self, query: &[(&str, &str)]) -> Vec<Value> {
        self.list(&self.server.store(), query, "instances", get_instances)
    }

    /// How many instances there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.server.store().instances.len()
    }

    /// The services that match a query.
    ///
    /// # Panics
    /// When the query is refused.
    #[must_use]
    pub fn services(&self, query: &[(&str, &str)]) -> Vec<Value> {
        self.list(&self.server.store(), query, "services", get_services)
    }

    /// The aliases: `namespace/alias` with `namespace/service`.
    #[must_use]
    pub fn aliases(&self) -> BTreeMap<String, String> {
        let part = |alias: &Element, name| text(alias, name).unwrap_or_default().to_owned();
        let all = self.server.store();
        let shown = all.aliases.iter().map(|((namespace, name), alias)| {
            (
                format!("{namespace}/{name}"),
                format!("{}/{}", part(alias, "namespace"), part(alias, "service")),
            )
        });
        shown.collect()
    }

    /// The namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        self.server.store().namespaces.keys().cloned().collect()
    }

    fn list(
        &self,
        store: &Store,
        query: &[(&str, &str)],
        field: &str,
        get: fn(&Store, &Query) -> Answer,
    ) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let mut given: Query =
                query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            given.push(("offset".to_owned(), all.len().to_string()));
            let answer = get(store, &given);
            assert_eq!(answer.status, 200, "{query:?}: {}", String::from_utf8_lossy(&answer.body));
            let body: Value = serde_json::from_slice(&answer.body).expect("it is JSON");
            let found = body[field].as_array().cloned().unwrap_or_default();
            if found.is_empty() {
                return all;
            }
            all.extend(found);
        }
    }

    /// Forgets everything, as a server does that is started again without its store.
    pub fn lose_everything(&self) {
        *self.server.store() = Store::default();
        self.server.refresh();
    }
}

impl Drop for Polaris {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn listen(port: u16) -> TcpListener {
    TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free")
}

type User = (String, String);

struct Server {
    options: PolarisOptions,
    /// The valid token, and the user with a token of its own.
    tokens: Mutex<(Option<String>, Option<User>)>,
    /// What queries of the console see where they lag.
    console: Mutex<Arc<Store>>,
    faults: Faults,
    store: Mutex<Store>,
    published: Mutex<Arc<Published>>,
}

impl Server {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no holder panics")
    }

    fn published(&self) -> Arc<Published> {
        self.published.lock().expect("no holder panics").clone()
    }

    fn refresh(&self) {
        if self.options.checks_heartbeats {
            self.store().check_heartbeats();
        }
        if self.options.console_lags {
            *self.console.lock().expect("no holder panics") = Arc::new(self.store().clone());
        }
        let published = Published::of(&self.store());
        *self.published.lock().expect("no holder panics") = Arc::new(published);
    }

    fn allows(&self, token: Option<&str>) -> bool {
        let (valid, user) = &*self.tokens.lock().expect("no holder panics");
        let of_user = user.as_ref().map(|(_, token)| token.as_str());
        valid.is_none() || token.is_some() && (token == valid.as_deref() || token == of_user)
    }

    /// Runs a query of the console.
    fn query(&self, query: &Query, get: fn(&Store, &Query) -> Answer) -> Answer {
        if self.options.console_lags {
            let console = self.console.lock().expect("no holder panics").clone();
            return get(&console, query);
        }
        get(&self.store(), query)
    }
}

// ---- Codes

/// [rec *] What the codes say.
fn info(code: u32) -> &'static str {
    match code {
        200_000 => "execute success",
        200_001 => "discover data is no change",
        200_002 => "update data is no change, no need to update",
        400_000 => "bad request",
        400_001 => "request decode failed",
        400_002 => "empty request",
        400_003 => "batch size over the limit",
        400_004 => "invalid discover resource",
        400_103 => "invalid parameter",
        400_104 => "query instance parameter is empty",
        400_105 => "query instance, service or namespace or host is required",
        400_110 => "invalid namespace name",
        400_120 => "invalid service name",
        400_121 => "invalid service owners",
        400_124 => "invalid service ports",
        400_128 => "invalid service comment",
        400_130 => "invalid instance id",
        400_131 => "invalid instance host",
        400_132 => "invalid instance port",
        400_136 => "invalid instance protocol",
        400_137 => "invalid instance version",
        400_133 => "invalid service alias",
        400_134 => "request namespace is not allow to create sid type alias",
        400_138 => "invalid instance logic set",
        400_150 => "the length of metadata is too long or metadata contains invalid characters",
        400_201 => "existed resource",
        400_202 => "not found resource",
        400_203 => "some services existed in namespace",
        400_204 => "some instances existed in service",
        400_208 => "the same instance request",
        400_210 => "some aliases existed in service",
        400_301 => "not found service",
        400_303 => "not found instances",
        400_304 => "not found service alias",
        400_312 => "not found user",
        400_504 => "only source service can create alias",
        401_001 => "access is not approved",
        429_001 => "instance has too many requests",
        500_000 => "server error",
        500_001 => "store layer exception",
        _ => "unknown",
    }
}

/// Why one element of a batch was refused.
type Refusal = (u32, String);

fn refusal(code: u32) -> Refusal {
    (code, info(code).to_owned())
}

// ---- What there is

/// One element of a request.
type Element = Map<String, Value>;

#[derive(Clone, Default)]
struct Store {
    aliases: BTreeMap<(String, String), Element>,
    /// When an instance was written or beat last.
    beats: HashMap<String, Instant>,
    namespaces: BTreeMap<String, Element>,
    services: BTreeMap<(String, String), Element>,
    instances: BTreeMap<String, Element>,
    /// The ids of instances, by namespace and service.
    ids: HashMap<(String, String), BTreeSet<String>>,
    buckets: HashMap<String, (f64, Option<Instant>)>,
    beats_of_unknown: HashMap<String, u32>,
    counter: u64,
    /// How far its clock is ahead, see [`Polaris::advance`].
    ahead: Duration,
}

const NAMESPACE_FIELDS: &[&str] = &[
    "name",
    "comment",
    "owners",
    "token",
    "ctime",
    "mtime",
    "total_service_count",
    "total_health_instance_count",
    "total_instance_count",
    "[user_ids",
    "[group_ids",
    "[remove_user_ids",
    "[remove_group_ids",
    "id",
    "editable",
    "[service_export_to",
    "{metadata",
    "deleteable",
];
const SERVICE_FIELDS: &[&str] = &[
    "name",
    "namespace",
    "{metadata",
    "ports",
    "business",
    "department",
    "cmdb_mod1",
    "cmdb_mod2",
    "cmdb_mod3",
    "comment",
    "owners",
    "token",
    "ctime",
    "mtime",
    "revision",
    "platform_id",
    "total_instance_count",
    "healthy_instance_count",
    "[user_ids",
    "[group_ids",
    "[remove_user_ids",
    "[remove_group_ids",
    "id",
    "editable",
    "[export_to",
    "deleteable",
];
const INSTANCE_FIELDS: &[&str] = &[
    "id",
    "service",
    "namespace",
    "vpc_id",
    "host",
    "port",
    "protocol",
    "version",
    "priority",
    "weight",
    "enableHealthCheck",
    "healthCheck",
    "healthy",
    "isolate",
    "location",
    "{metadata",
    "logic_set",
    "ctime",
    "mtime",
    "revision",
    "service_token",
];
const ANSWER_FIELDS: &[&str] = &[
    "client",
    "namespace",
    "service",
    "instance",
    "routing",
    "alias",
    "rateLimit",
    "circuitBreaker",
    "configRelease",
    "user",
    "userGroup",
    "authStrategy",
    "relation",
    "loginResponse",
    "modifyAuthStrategy",
    "modifyUserGroup",
    "resources",
    "optionSwitch",
    "instanceLabels",
    "data",
    "serviceContract",
];
const LIST_FIELDS: &[&str] = &[
    "namespaces",
    "services",
    "instances",
    "routings",
    "aliases",
    "rateLimits",
    "configWithServices",
    "users",
    "userGroups",
    "authStrategies",
    "clients",
    "data",
];

/// [rec headers] An object has all of its fields: `null`, or `[]` and `{}` where it is a list or a map.
fn shaped(fields: &[&str], values: &Element) -> Value {
    let field = |field: &&str| {
        let (name, empty) = match field.split_at(1) {
            ("[", name) => (name, json!([])),
            ("{", name) => (name, json!({})),
            _ => (*field, Value::Null),
        };
        (name.to_owned(), values.get(name).filter(|value| !value.is_null()).cloned().unwrap_or(empty))
    };
    Value::Object(fields.iter().map(field).collect())
}

fn text<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    element.get(name).and_then(Value::as_str)
}

fn number(element: &Element, name: &str) -> Option<u64> {
    element.get(name).and_then(Value::as_u64)
}

/// [console] Names have letters, digits and `- . / : _`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./:_".contains(&byte))
}

fn sha1(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> Value {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that leap days end years.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    json!(format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60))
}

impl Store {
    /// What its clock says.
    fn clock(&self) -> Instant {
        Instant::now() + self.ahead
    }

    /// A new revision, id or token: 32 hex digits, as the server's.
    fn unique(&mut self) -> Value {
        self.counter += 1;
        json!(sha1(&format!("unique {}", self.counter)).chars().take(32).collect::<String>())
    }

    fn instances_of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &Element> {
        let ids = self.ids.get(&(namespace.to_owned(), service.to_owned()));
        ids.into_iter().flatten().filter_map(|id| self.instances.get(id))
    }

    // -- Namespaces

    fn create_namespace(&mut self, given: &Element) -> (Refusal, Element) {
        // [rec namespaces] Only the characters are checked, not the length.
        let Some(name) = text(given, "name").filter(|name| is_name(name)).map(str::to_owned) else {
            return (refusal(400_110), given.clone());
        };
        if self.namespaces.contains_key(&name) {
            return (refusal(400_201), given.clone());
        }
        let mut stored = given.clone();
        let token = self.unique();
        for (field, value) in
            [("token", token.clone()), ("ctime", now()), ("mtime", now()), ("id", json!(name))]
        {
            stored.insert(field.to_owned(), value);
        }
        self.namespaces.insert(name.clone(), stored);
        (
            refusal(200_000),
            Element::from_iter([("name".to_owned(), json!(name)), ("token".to_owned(), token)]),
        )
    }

    fn update_namespace(&mut self, given: &Element) -> (Refusal, Element) {
        let Some(stored) = text(given, "name").and_then(|name| self.namespaces.get_mut(name)) else {
            return (refusal(400_202), given.clone());
        };
        stored.extend(given.clone());
        stored.insert("mtime".to_owned(), now());
        (refusal(200_000), given.clone())
    }

    /// [rec namespaces] One that is not there is deleted already; one with services is not.
    fn delete_namespace(&mut self, given: &Element) -> (Refusal, Element) {
        let name = text(given, "name").unwrap_or_default();
        if self.services.keys().any(|(namespace, _)| namespace == name) {
            return (refusal(400_203), given.clone());
        }
        self.namespaces.remove(name);
        (refusal(200_000), given.clone())
    }

    /// [rec instances-create] A namespace or service that an instance names is made, and belongs to Polaris.
    fn ensure_namespace(&mut self, name: &str) {
        if !self.namespaces.contains_key(name) {
            let _ = self.create_namespace(&Element::from_iter([
                ("name".to_owned(), json!(name)),
                ("owners".to_owned(), json!("Polaris")),
            ]));
        }
    }

    // -- Services

    fn create_service(&mut self, given: &Element) -> (Refusal, Element) {
        let key = service_key(given);
        if let Some(known) = self.services.get(&key) {
            let mut echo = given.clone();
            echo.insert("id".to_owned(), known.get("id").cloned().unwrap_or_default());
            return (refusal(400_201), echo);
        }
        // [rec services-create] The store of the recorded server takes no empty key.
        if given.get("metadata").and_then(Value::as_object).is_some_and(|metadata| metadata.contains_key(""))
        {
            return ((500_001, format!("{}: key required", info(500_001))), given.clone());
        }
        self.ensure_namespace(&key.0);
        let (token, id, revision) = (self.unique(), self.unique(), self.unique());
        let mut stored = given.clone();
        let set = [
            ("token", token.clone()),
            ("id", id.clone()),
            ("revision", revision),
            ("ctime", now()),
            ("mtime", now()),
        ];
        stored.extend(set.map(|(field, value)| (field.to_owned(), value)));
        self.services.insert(key.clone(), stored);
        let (namespace, name) = key;
        let made = [("name", json!(name)), ("namespace", json!(namespace)), ("token", token), ("id", id)];
        (refusal(200_000), made.map(|(field, value)| (field.to_owned(), value)).into_iter().collect())
    }

    /// [rec services-update] Absent metadata clears it, other absent fields stay; a service needs an owner then.
    fn update_service(&mut self, given: &Element) -> (Refusal, Element) {
        let revision = self.unique();
        // [rec aliases] An alias stands for its service.
        let named = service_key(given);
        let source = self.aliases.get(&named).map(aliases::source);
        let key = source.clone().unwrap_or(named);
        let Some(stored) = self.services.get_mut(&key) else {
            return (refusal(400_202), given.clone());
        };
        let mut new = stored.clone();
        new.extend(given.clone());
        if source.is_some() {
            new.extend([("namespace".to_owned(), json!(key.0)), ("name".to_owned(), json!(key.1))]);
        }
        new.insert("metadata".to_owned(), given.get("metadata").cloned().unwrap_or_else(|| json!({})));
        if text(&new, "owners").unwrap_or_default().is_empty() {
            return (
                (400_103, format!("{}: Update Service missing some params", info(400_103))),
                given.clone(),
            );
        }
        if is_same(stored, &new) {
            return (refusal(200_002), given.clone());
        }
        new.insert("revision".to_owned(), revision);
        new.insert("mtime".to_owned(), now());
        *stored = new;
        (refusal(200_000), given.clone())
    }

    fn delete_service(&mut self, given: &Element) -> (Refusal, Element) {
        let (namespace, name) = service_key(given);
        if self.instances_of(&namespace, &name).next().is_some() {
            return (refusal(400_204), given.clone());
        }
        if self.has_alias(&namespace, &name) {
            return (refusal(400_210), given.clone());
        }
        let key = (namespace, name);
        // [rec aliases] The name of an alias deletes the alias.
        if self.services.remove(&key).is_none() {
            self.aliases.remove(&key);
        }
        (refusal(200_000), given.clone())
    }

    // -- Instances

    /// [rec instances-create, instances-update] A new one replaces the old one: what is not given is reset, but for `isolate`.
    fn create_instance(&mut self, given: &Element) -> (Refusal, Element) {
        let id = instance_id(given);
        let known = self.instances.get(&id);
        let isolate = known.and_then(|known| known.get("isolate").cloned()).unwrap_or(json!(false));
        let ctime = known.and_then(|known| known.get("ctime").cloned()).unwrap_or_else(now);
        let (namespace, service) =
            (text(given, "namespace").unwrap_or_default(), text(given, "service").unwrap_or_default());
        // [rec aliases] The answer does not say which instance.
        if self.aliases.contains_key(&(namespace.to_owned(), service.to_owned())) {
            return ((400_000, format!("{}: service is alias", info(400_000))), Element::new());
        }
        self.ensure_namespace(namespace);
        if !self.services.contains_key(&(namespace.to_owned(), service.to_owned())) {
            let made = [("name", service), ("namespace", namespace), ("owners", "Polaris")];
            let _ = self.create_service(
                &made.map(|(name, value)| (name.to_owned(), json!(value))).into_iter().collect(),
            );
        }
        let mut stored = given.clone();
        stored.insert("id".to_owned(), json!(id));
        let defaults =
            [("weight", json!(100)), ("healthy", json!(true)), ("isolate", isolate), ("ctime", ctime)];
        for (field, value) in defaults {
            stored.entry(field.to_owned()).or_insert(value);
        }
        // [rec instances-create] Without a check, whether it is on is not kept.
        set_health_check(&mut stored, given);
        if !stored.contains_key("healthCheck") {
            stored.remove("enableHealthCheck");
        }
        stored.insert("mtime".to_owned(), now());
        stored.insert("revision".to_owned(), self.unique());
        let beat = self.clock();
        self.beats.insert(id.clone(), beat);
        self.ids.entry(service_of(&stored)).or_default().insert(id.clone());
        self.instances.insert(id.clone(), stored);
        let fields = ["service", "namespace", "vpc_id", "host", "port"];
        let mut echo: Element = fields
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), given.get(*field)?.clone())))
            .collect();
        echo.insert("id".to_owned(), json!(id));
        (refusal(200_000), echo)
    }

    fn update_instance(&mut self, given: &Element) -> (Refusal, Element) {
        let id = instance_id(given);
        let mut echo = given.clone();
        echo.insert("id".to_owned(), json!(id));
        if given.contains_key("healthCheck") {
            set_health_check(&mut echo, given);
            echo.remove("enableHealthCheck");
        }
        let revision = self.unique();
        let Some(stored) = self.instances.get_mut(&id) else { return (refusal(400_303), echo) };
        let mut new = stored.clone();
        new.extend(given.clone());
        set_health_check(&mut new, given);
        let checks = |of: &Element| of.get("enableHealthCheck").and_then(Value::as_bool).unwrap_or_default();
        // [rec instances-update] Only this makes an instance unhealthy: its check is switched on.
        if checks(&new) && !checks(stored) {
            new.insert("healthy".to_owned(), json!(false));
        }
        if is_same(stored, &new) {
            return (refusal(200_002), echo);
        }
        new.insert("revision".to_owned(), revision);
        new.insert("mtime".to_owned(), now());
        *stored = new;
        (refusal(200_000), echo)
    }

    /// [rec instances-delete] One that is not there is deleted already.
    fn delete_instance(&mut self, given: &Element) -> (Refusal, Element) {
        let id = instance_id(given);
        if let Some(removed) = self.instances.remove(&id)
            && let Some(ids) = self.ids.get_mut(&service_of(&removed))
        {
            ids.remove(&id);
        }
        let mut echo = given.clone();
        echo.insert("id".to_owned(), json!(id));
        (refusal(200_000), echo)
    }

    /// [rec health-ttl] Without a beat for three times its TTL an instance is unhealthy, and healthy again when beats come.
    fn check_heartbeats(&mut self) {
        let now = self.clock();
        for (id, instance) in &mut self.instances {
            let ttl = instance.get("healthCheck").and_then(|check| check.pointer("/heartbeat/ttl"));
            let Some(ttl) = ttl.and_then(Value::as_u64) else { continue };
            let is_recent = |beat: &Instant| now.duration_since(*beat) < Duration::from_secs(3 * ttl);
            let is_beating = self.beats.get(id).is_some_and(is_recent);
            if instance.insert("healthy".to_owned(), json!(is_beating)) != Some(json!(is_beating)) {
                self.counter += 1;
                let revision = sha1(&format!("unique {}", self.counter));
                instance.insert("revision".to_owned(), json!(revision.get(..32)));
            }
        }
    }

    /// [rec ratelimit] Takes from the bucket of an instance; `false` when it is empty.
    fn take_token(&mut self, id: &str, (most, rate): (u32, u32)) -> bool {
        let now = self.clock();
        let (tokens, at) = self.buckets.entry(id.to_owned()).or_insert((f64::from(most), None));
        if let Some(at) = at.replace(now) {
            *tokens = (*tokens + now.duration_since(at).as_secs_f64() * f64::from(rate)).min(f64::from(most));
        }
        let has = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(has));
        has
    }
}

fn service_key(given: &Element) -> (String, String) {
    let part = |name| text(given, name).unwrap_or_default().to_owned();
    (part("namespace"), part("name"))
}

/// [rec instances-create] The given id, else the SHA-1 of what it is made of.
fn instance_id(given: &Element) -> String {
    if let Some(id) = text(given, "id") {
        return id.to_owned();
    }
    let port = number(given, "port").unwrap_or_default().to_string();
    let parts = [
        text(given, "namespace"),
        text(given, "service"),
        text(given, "vpc_id"),
        text(given, "host"),
        Some(&port),
    ];
    sha1(&parts.iter().flatten().copied().collect::<Vec<_>>().join("##"))
}

/// Whether only times and revisions differ.
fn is_same(a: &Element, b: &Element) -> bool {
    let plain = |element: &Element| {
        let empty = |value: &Value| value.is_null() || *value == json!({}) || *value == json!("");
        let kept =
            element.iter().filter(|(name, value)| *name != "mtime" && *name != "revision" && !empty(value));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Element>()
    };
    plain(a) == plain(b)
}

/// [rec instances-update, health-ttl] A check that is given is on, of the type HEARTBEAT whatever was given; `enableHealthCheck: false`
/// switches it off.
fn set_health_check(stored: &mut Element, given: &Element) {
    if given.get("enableHealthCheck") == Some(&json!(false)) {
        stored.remove("healthCheck");
        return;
    }
    let Some(check) = given.get("healthCheck").filter(|check| check.is_object()) else { return };
    // [doc] From 1 to 60 seconds, else 5.
    let ttl = check
        .pointer("/heartbeat/ttl")
        .and_then(Value::as_u64)
        .filter(|ttl| (1..=60).contains(ttl))
        .unwrap_or(5);
    stored.insert("healthCheck".to_owned(), json!({"type": "HEARTBEAT", "heartbeat": {"ttl": ttl}}));
    stored.insert("enableHealthCheck".to_owned(), json!(true));
}

// ---- Checks before anything is written

fn check_namespace_of(given: &Element) -> Option<u32> {
    let name = text(given, "namespace").unwrap_or_default();
    (!is_name(name) || name.len() > MAX_NAMESPACE).then_some(400_110)
}

fn check_service_name(given: &Element, field: &str) -> Option<u32> {
    let name = text(given, field).unwrap_or_default();
    (!is_name(name) || name.len() > MAX_SERVICE).then_some(400_120)
}

/// [rec services-create] Sizes of metadata. `with_empty` says whether a key may be empty.
fn check_metadata(given: &Element) -> Option<u32> {
    let metadata = given.get("metadata").and_then(Value::as_object)?;
    let is_long = |(key, value): (&String, &Value)| {
        key.len() > MAX_METADATA_KEY || value.as_str().is_none_or(|value| value.len() > MAX_METADATA_VALUE)
    };
    (metadata.len() > MAX_METADATA || metadata.iter().any(is_long)).then_some(400_150)
}

fn check_service(given: &Element) -> Option<u32> {
    check_service_name(given, "name")
        .or_else(|| check_namespace_of(given))
        .or_else(|| check_metadata(given))
        .or_else(|| check_length(given, "ports", MAX_PORTS, 400_124))
        .or_else(|| check_length(given, "owners", MAX_TEXT, 400_121))
        .or_else(|| check_length(given, "comment", MAX_TEXT, 400_128))
}

fn check_length(given: &Element, field: &str, most: usize, code: u32) -> Option<u32> {
    text(given, field).is_some_and(|text| text.len() > most).then_some(code)
}

fn check_place(given: &Element) -> Option<u32> {
    // [rec instances-update] An id stands for all of it.
    if let Some(id) = text(given, "id") {
        return id.is_empty().then_some(400_130);
    }
    let host = text(given, "host").unwrap_or_default();
    check_service_name(given, "service")
        .or_else(|| check_namespace_of(given))
        .or_else(|| (host.is_empty() || host.len() > MAX_HOST).then_some(400_131))
        .or_else(|| number(given, "port").is_none_or(|port| port > 65_535).then_some(400_132))
}

fn check_instance(given: &Element) -> Option<u32> {
    check_metadata(given)
        .or_else(|| check_place(given))
        .or_else(|| check_length(given, "protocol", MAX_PROTOCOL, 400_136))
        .or_else(|| check_length(given, "version", MAX_VERSION, 400_137))
        .or_else(|| check_length(given, "logic_set", MAX_LOGIC_SET, 400_138))
        .or_else(|| number(given, "weight").is_some_and(|weight| weight > 65_535).then_some(400_103))
}

// ---- Batches

/// What a batch is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Namespaces,
    Services,
    Instances,
    Aliases,
}

impl Of {
    fn field(self) -> &'static str {
        match self {
            Self::Namespaces => "namespace",
            Self::Services => "service",
            Self::Instances => "instance",
            Self::Aliases => "alias",
        }
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Namespaces => NAMESPACE_FIELDS,
            Self::Services => SERVICE_FIELDS,
            Self::Instances => INSTANCE_FIELDS,
            Self::Aliases => aliases::ALIAS_FIELDS,
        }
    }
}

fn element_answer(of: Of, (code, info): &Refusal, echo: Option<&Element>) -> Value {
    let mut values = Element::new();
    // [rec aliases] An answer may say nothing of the element.
    if let Some(echo) = echo.filter(|echo| !echo.is_empty()) {
        values.insert(of.field().to_owned(), shaped(of.fields(), echo));
    }
    let mut answer = Element::from_iter([("code".to_owned(), json!(code)), ("info".to_owned(), json!(info))]);
    if let Value::Object(fields) = shaped(ANSWER_FIELDS, &values) {
        answer.extend(fields);
    }
    Value::Object(answer)
}

fn batch_answer(code: u32, responses: &[Value]) -> Answer {
    let body = json!({"code": code, "info": info(code), "size": responses.len(), "responses": responses});
    Answer::coded(code, &body)
}

/// [rec instances-batch] The code of a whole batch.
fn top(of: Of, codes: &[u32]) -> u32 {
    let most = codes.iter().copied().max().unwrap_or_default();
    match codes.first() {
        // [rec namespaces] Namespaces never collapse.
        _ if of == Of::Namespaces => most,
        Some(first) if codes.iter().all(|code| code == first) => *first,
        _ if most >= 500_000 => 500_000,
        _ if most >= 400_000 => 400_000,
        _ => 200_000,
    }
}

type Write = fn(&mut Store, &Element) -> (Refusal, Element);
type Check = fn(&Element) -> Option<u32>;

/// Writes a batch, or refuses it as a whole.
fn batch(server: &Server, of: Of, body: &[u8], check: Check, write: Write, is_limited: bool) -> Answer {
    let elements: Vec<Element> = match serde_json::from_slice(body) {
        Ok(elements) => elements,
        Err(error) => {
            return Answer::coded(
                400_001,
                &json!({"code": 400_001, "info": format!("{}: {error}", info(400_001)), "size": 0, "responses": []}),
            );
        }
    };
    if elements.is_empty() || elements.len() > MAX_BATCH {
        return batch_answer(if elements.is_empty() { 400_002 } else { 400_003 }, &[]);
    }
    // [rec services-create, instances-limits] One bad element refuses all; then services list an
    // empty answer for good ones, instances only the bad.
    let checked: Vec<Option<u32>> = elements.iter().map(check).collect();
    if let Some(most) = checked.iter().flatten().max() {
        let answers = elements.iter().zip(&checked).filter_map(|(element, code)| match (code, of) {
            (Some(code), _) => Some(element_answer(of, &refusal(*code), Some(element))),
            (None, Of::Services) => {
                let nothing = Element::new();
                let Value::Object(mut empty) = shaped(ANSWER_FIELDS, &nothing) else { return None };
                empty.extend(["code", "info"].map(|name| (name.to_owned(), Value::Null)));
                Some(Value::Object(empty))
            }
            (None, _) => None,
        });
        return batch_answer(*most, &answers.collect::<Vec<_>>());
    }
    let mut store = server.store();
    if let Some(limit) = server.options.instance_limit.filter(|_| is_limited) {
        let over = elements.iter().find(|element| !store.take_token(&instance_id(element), limit));
        if let Some(element) = over {
            return batch_answer(429_001, &[element_answer(of, &refusal(429_001), Some(element))]);
        }
    }
    // [rec instances-batch] The same instance twice in one batch: one of them is refused.
    let mut seen = std::collections::BTreeSet::new();
    let mut write = |element: &Element| {
        if of == Of::Instances && is_limited && !seen.insert(instance_id(element)) {
            return (refusal(400_208), element.clone());
        }
        write(&mut store, element)
    };
    let written: Vec<(Refusal, Element)> = elements.iter().map(&mut write).collect();
    let codes: Vec<u32> = written.iter().map(|((code, _), _)| *code).collect();
    let answers: Vec<Value> =
        written.iter().map(|(refusal, echo)| element_answer(of, refusal, Some(echo))).collect();
    batch_answer(top(of, &codes), &answers)
}

// ---- Queries

type Query = Vec<(String, String)>;

fn value<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// [console] A `*` at the end stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == text, |start| text.starts_with(start))
}

fn page(code: u32, amount: usize, field: &str, all: Vec<Value>, query: &Query, summary: Value) -> Answer {
    let bound = |name: &str, default: usize| match value(query, name) {
        None => Some(default),
        Some(text) => text.parse::<usize>().ok(),
    };
    let (Some(offset), Some(limit)) = (bound("offset", 0), bound("limit", MAX_BATCH)) else {
        return page(400_103, 0, field, Vec::new(), &Vec::new(), Value::Null);
    };
    let shown: Vec<Value> = all.into_iter().skip(offset).take(limit.min(MAX_BATCH)).collect();
    let mut body = Element::new();
    for (name, value) in [
        ("code", json!(code)),
        ("info", json!(info(code))),
        ("amount", json!(amount)),
        ("size", json!(shown.len())),
    ] {
        body.insert(name.to_owned(), value);
    }
    body.extend(LIST_FIELDS.iter().map(|name| ((*name).to_owned(), json!([]))));
    body.insert(field.to_owned(), json!(shown));
    body.insert("summary".to_owned(), summary);
    Answer::coded(code, &Value::Object(body))
}

/// [rec instances-query] What instances can be asked for by.
const INSTANCE_QUERY: [&str; 15] = [
    "service",
    "namespace",
    "host",
    "port",
    "protocol",
    "version",
    "weight",
    "healthy",
    "health_status",
    "isolate",
    "keys",
    "values",
    "offset",
    "limit",
    "id",
];

/// All values of a parameter, which may be given several times, and several in one.
fn list(query: &Query, name: &str) -> Vec<String> {
    let given = query.iter().filter(|(known, _)| known == name);
    given.flat_map(|(_, value)| value.split(',').map(str::to_owned)).collect()
}

fn get_instances(store: &Store, query: &Query) -> Answer {
    let refused = |code| page(code, 0, "instances", Vec::new(), &Vec::new(), Value::Null);
    if query.is_empty() {
        return refused(400_104);
    }
    if query.iter().any(|(name, value)| !INSTANCE_QUERY.contains(&&**name) || value.is_empty()) {
        return refused(400_103);
    }
    let (keys, values, hosts) = (list(query, "keys"), list(query, "values"), list(query, "host"));
    if keys.len() != values.len() {
        return refused(400_105);
    }
    let is_wanted = |instance: &&Element| {
        let metadata = |(key, value): (&String, &String)| {
            instance.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str)
                == Some(value)
        };
        is_wanted(query, instance)
            && (hosts.is_empty() || hosts.iter().any(|host| Some(host.as_str()) == text(instance, "host")))
            && keys.iter().zip(&values).all(metadata)
    };
    let found: Vec<Value> =
        store.instances.values().filter(is_wanted).map(|instance| shown_instance(store, instance)).collect();
    page(200_000, found.len(), "instances", found, query, Value::Null)
}

/// Whether an instance has what a query asks for by its own fields.
fn is_wanted(query: &Query, instance: &Element) -> bool {
    let is = |name: &&str| {
        value(query, name).is_none_or(|pattern| matches(pattern, text(instance, name).unwrap_or_default()))
    };
    // [rec instances-query] What is no number does not count.
    let equals = |name: &&str| {
        let wanted = value(query, name).and_then(|text| text.parse::<u64>().ok());
        wanted.is_none_or(|wanted| number(instance, name) == Some(wanted))
    };
    let flag = |(asked, name): &(&str, &str)| {
        let wanted = value(query, asked).map(|text| text == "true" || text == "1");
        wanted.is_none_or(|wanted| instance.get(*name).and_then(Value::as_bool) == Some(wanted))
    };
    ["service", "namespace", "protocol", "version", "id"].iter().all(is)
        && ["port", "weight"].iter().all(equals)
        && [("healthy", "healthy"), ("health_status", "healthy"), ("isolate", "isolate")].iter().all(flag)
}

/// [rec instances-query] An instance as the console shows it: with the token of its service.
fn shown_instance(store: &Store, instance: &Element) -> Value {
    let mut shown = instance.clone();
    let key = |name| text(instance, name).unwrap_or_default().to_owned();
    if let Some(service) = store.services.get(&(key("namespace"), key("service"))) {
        shown.insert("service_token".to_owned(), service.get("token").cloned().unwrap_or_default());
    }
    if let Some(location) = instance.get("location").and_then(Value::as_object) {
        shown.insert("location".to_owned(), shaped(&["region", "zone", "campus"], location));
    }
    shaped(INSTANCE_FIELDS, &shown)
}

/// The namespace and the service of an instance.
fn service_of(instance: &Element) -> (String, String) {
    let part = |field| text(instance, field).unwrap_or_default().to_owned();
    (part("namespace"), part("service"))
}

fn counts<'a>(instances: impl Iterator<Item = &'a Element>) -> (usize, usize) {
    instances.fold((0, 0), |(all, healthy), instance| {
        let is_used =
            instance.get("healthy") == Some(&json!(true)) && instance.get("isolate") != Some(&json!(true));
        (all + 1, healthy + usize::from(is_used))
    })
}

fn get_services(store: &Store, query: &Query) -> Answer {
    let is = |name: &str, text: &str| value(query, name).is_none_or(|pattern| matches(pattern, text));
    let wanted =
        store.services.iter().filter(|((namespace, name), _)| is("namespace", namespace) && is("name", name));
    let found: Vec<Value> = wanted
        .map(|((namespace, name), service)| {
            let mut shown = service.clone();
            shown.remove("token");
            let texts = [
                "ports",
                "business",
                "department",
                "cmdb_mod1",
                "cmdb_mod2",
                "cmdb_mod3",
                "comment",
                "owners",
                "platform_id",
            ];
            for field in texts {
                shown.entry(field.to_owned()).or_insert(json!(""));
            }
            // [rec instances-create, services-get] Without ports of its own a service has those of its instances, some twice.
            if text(&shown, "ports").is_none_or(str::is_empty) {
                let ports =
                    store.instances_of(namespace, name).filter_map(|instance| number(instance, "port"));
                let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
                shown.insert("ports".to_owned(), json!(ports.join(",")));
            }
            let (all, healthy) = counts(store.instances_of(namespace, name));
            let set = [("total_instance_count", json!(all)), ("healthy_instance_count", json!(healthy))];
            shown.extend(set.map(|(field, value)| (field.to_owned(), value)));
            shown.extend(["editable", "deleteable"].map(|field| (field.to_owned(), json!(true))));
            shaped(SERVICE_FIELDS, &shown)
        })
        .collect();
    page(200_000, found.len(), "services", found, query, Value::Null)
}

fn get_namespaces(store: &Store, query: &Query) -> Answer {
    let wanted = store
        .namespaces
        .iter()
        .filter(|(name, _)| value(query, "name").is_none_or(|pattern| matches(pattern, name)));
    let mut sums = [0; 3];
    let found: Vec<Value> = wanted
        .map(|(name, namespace)| {
            let services = store.services.keys().filter(|(of, _)| of == name).count();
            let (all, healthy) =
                counts(store.instances.values().filter(|instance| text(instance, "namespace") == Some(name)));
            let mut shown = namespace.clone();
            shown.remove("token");
            let own = [services, healthy, all];
            for ((field, count), sum) in COUNTS.iter().zip(own).zip(&mut sums) {
                shown.insert((*field).to_owned(), json!(count));
                *sum += count;
            }
            for field in ["comment", "owners"] {
                shown.entry(field.to_owned()).or_insert(json!(""));
            }
            shown.extend(["editable", "deleteable"].map(|field| (field.to_owned(), json!(true))));
            shaped(NAMESPACE_FIELDS, &shown)
        })
        .collect();
    let summary = COUNTS.iter().zip(sums).map(|(field, sum)| ((*field).to_owned(), json!(sum))).collect();
    page(200_000, found.len(), "namespaces", found, query, Value::Object(summary))
}

const COUNTS: [&str; 3] = ["total_service_count", "total_health_instance_count", "total_instance_count"];

// ---- HTTP

/// A status and a body.
struct Answer {
    status: u16,
    code: u32,
    body: Bytes,
}

impl Answer {
    /// [client] The status is the code without its last three digits.
    fn coded(code: u32, body: &Value) -> Self {
        let status = u16::try_from(code / 1000).unwrap_or(500);
        Self { status, code, body: body.to_string().into() }
    }

    /// [rec headers] Errors of the router are plain text.
    fn plain(status: u16, text: &'static str) -> Self {
        Self { status, code: 200_000, body: text.into() }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        // [rec headers] Even where it is JSON.
        headers.insert("content-type", http::HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.code != 200_000 {
            headers.insert("x-polaris-code", self.code.into());
            headers.insert("x-polaris-message", http::HeaderValue::from_static(info(self.code)));
        }
        response
    }
}

async fn serve_http(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    while let Ok((io, _)) = listener.accept().await {
        let server = server.clone();
        let answer = move |request: Request<Incoming>| {
            let server = server.clone();
            async move { Ok::<_, Gone>(answer_http(&server, request).await?.into_response()) }
        };
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service_fn(answer)));
        while connections.try_join_next().is_some() {}
    }
}

/// The connection is closed instead of an answer.
#[derive(Debug)]
struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed, as a test wants it")
    }
}

impl std::error::Error for Gone {}

async fn answer_http(server: &Server, request: Request<Incoming>) -> Result<Answer, Gone> {
    let (method, path) = (request.method().as_str().to_owned(), request.uri().path().to_owned());
    match server.faults.take(&method, &path) {
        None => Ok(answer_now(server, request).await),
        Some(PolarisFault::Closed | PolarisFault::Down) => Err(Gone),
        Some(PolarisFault::Code(code)) => Ok(faults::coded(code)),
        Some(PolarisFault::Status(status)) => Ok(Answer::plain(status, "not from Polaris")),
        Some(PolarisFault::ClosedAfter) => {
            answer_now(server, request).await;
            Err(Gone)
        }
        Some(PolarisFault::Slow(by)) => {
            let answer = answer_now(server, request).await;
            tokio::time::sleep(by).await;
            Ok(answer)
        }
    }
}

async fn answer_now(server: &Server, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/');
    if path.is_empty() {
        return Answer::plain(200, "Polaris Server");
    }
    // [rec headers] No other Content-Type is taken.
    let content = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if parts.method != Method::GET && !content.starts_with("application/json") {
        return Answer::plain(415, "415: Unsupported Media Type");
    }
    let token = parts.headers.get("x-polaris-token").and_then(|value| value.to_str().ok());
    let is_console = path.starts_with("/naming/") || path.starts_with("/core/");
    if is_console && !server.allows(token) {
        let mut body = json!({"code": 401_001, "info": info(401_001), "size": 0});
        // [rec auth] A query has the amount beside it, a write an empty list.
        let (name, value) =
            if parts.method == Method::GET { ("amount", json!(0)) } else { ("responses", json!([])) };
        body[name] = value;
        return Answer::coded(401_001, &body);
    }
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return Answer::plain(413, "too large");
    };
    let query: Query =
        form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let body = body.to_bytes();
    if is_console {
        let header =
            |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        server.faults.saw(Seen {
            method: parts.method.to_string(),
            path: path.to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            elements: match serde_json::from_slice(&body) {
                Ok(Value::Array(all)) => all.len(),
                Ok(Value::Object(_)) => 1,
                _ => 0,
            },
            id: header("request-id").to_owned(),
            token: header("x-polaris-token").to_owned(),
            at: Instant::now(),
        });
    }
    route(server, &parts.method, path, &query, &body, token)
}

/// [rec auth-users] The token of a user.
fn user_token(server: &Server, query: &Query) -> Answer {
    let (_, user) = &*server.tokens.lock().expect("no holder panics");
    match user.as_ref().filter(|(id, _)| value(query, "id") == Some(id)) {
        None => Answer::coded(400_312, &json!({"code": 400_312, "info": info(400_312), "user": null})),
        Some((id, token)) => {
            let user = json!({"id": id, "name": id, "auth_token": token, "token_enable": true});
            Answer::coded(200_000, &json!({"code": 200_000, "info": info(200_000), "user": user}))
        }
    }
}

fn route(
    server: &Server,
    method: &Method,
    path: &str,
    query: &Query,
    body: &[u8],
    token: Option<&str>,
) -> Answer {
    let write =
        |of, check: Check, write: Write, is_limited| batch(server, of, body, check, write, is_limited);
    match (method.as_str(), path.strip_prefix("/naming/v1").unwrap_or(path)) {
        ("POST", "/namespaces") => write(Of::Namespaces, |_| None, Store::create_namespace, false),
        ("PUT", "/namespaces") => write(Of::Namespaces, |_| None, Store::update_namespace, false),
        ("POST", "/namespaces/delete") => write(Of::Namespaces, |_| None, Store::delete_namespace, false),
        ("GET", "/namespaces") => server.query(query, get_namespaces),
        ("POST", "/service/alias") => aliases::write(server, body, true),
        ("PUT", "/service/alias") => aliases::write(server, body, false),
        ("POST", "/service/aliases/delete") => write(Of::Aliases, |_| None, Store::delete_alias, false),
        ("GET", "/service/aliases") => aliases::list(server, query),
        ("POST", "/services") => write(Of::Services, check_service, Store::create_service, false),
        ("PUT", "/services") => write(Of::Services, check_service, Store::update_service, false),
        ("POST", "/services/delete") => write(Of::Services, check_service, Store::delete_service, false),
        ("GET", "/services") => server.query(query, get_services),
        ("POST", "/instances") => write(Of::Instances, check_instance, Store::create_instance, true),
        ("PUT", "/instances") => write(Of::Instances, check_instance, Store::update_instance, false),
        ("POST", "/instances/delete") => write(Of::Instances, check_place, Store::delete_instance, true),
        ("GET", "/instances") => server.query(query, get_instances),
        ("GET", "/core/v1/user/token") => user_token(server, query),
        ("GET", "/instances/count") => {
            let count = server.store().instances.len();
            page(200_000, count, "instances", Vec::new(), &Vec::new(), Value::Null)
        }
        ("POST", "/v1/RegisterInstance" | "/v1/DeregisterInstance" | "/v1/Heartbeat") => {
            let Ok(given) = serde_json::from_slice::<Element>(body) else {
                return Answer::coded(400_001, &json!({"code": 400_001, "info": info(400_001)}));
            };
            let (refusal, echo) = client_call(server, path.trim_start_matches("/v1/"), &given, token);
            Answer::coded(refusal.0, &element_answer(Of::Instances, &refusal, echo.as_ref()))
        }
        _ => Answer::plain(404, "404: Page Not Found"),
    }
}

/// [client] What clients call, over HTTP and gRPC.
fn client_call(
    server: &Server,
    call: &str,
    given: &Element,
    token: Option<&str>,
) -> (Refusal, Option<Element>) {
    // [rec client-api] Checks come before the token; a heartbeat needs none.
    if let Some(code) = check_instance(given) {
        return (refusal(code), Some(given.clone()));
    }
    if call != "Heartbeat" && server.options.clients_need_token && !server.allows(token) {
        return (refusal(401_001), None);
    }
    let mut store = server.store();
    let (refusal, echo) = match call {
        "RegisterInstance" => store.create_instance(given),
        "DeregisterInstance" => store.delete_instance(given),
        _ => {
            // [rec grpc-register] Beats of an unknown instance are taken four times.
            let id = instance_id(given);
            let unknown = !store.instances.contains_key(&id);
            let beats = store.beats_of_unknown.entry(id).or_default();
            *beats = if unknown { *beats + 1 } else { 0 };
            let is_over = *beats > 4;
            let id = instance_id(given);
            if !unknown {
                let beat = store.clock();
                store.beats.insert(id, beat);
            }
            (refusal(if is_over { 400_202 } else { 200_000 }), given.clone())
        }
    };
    (refusal, Some(echo))
}

// ---- Discover

/// What Discover sees: the store as it was at the last tick.
#[derive(Default)]
struct Published {
    /// By namespace, the services in their order, with what they have.
    namespaces: BTreeMap<String, BTreeMap<String, Listed>>,
}

struct Listed {
    service: grpc::Service,
    /// [rec grpc-discover] The SHA-1 of its instances' revisions: that of nothing for an empty service.
    revision: String,
    instances: Vec<grpc::Instance>,
}

impl Published {
    fn of(store: &Store) -> Self {
        let mut this = Self::default();
        for ((namespace, name), service) in &store.services {
            let of_service: Vec<&Element> = store.instances_of(namespace, name).collect();
            let revisions: String =
                of_service.iter().filter_map(|instance| text(instance, "revision")).collect();
            let listed = Listed {
                service: grpc::service(service),
                revision: sha1(&revisions),
                instances: of_service.into_iter().map(grpc::instance).collect(),
            };
            this.namespaces.entry(namespace.clone()).or_default().insert(name.clone(), listed);
        }
        // [rec aliases] An alias has what its service has, under its own name.
        for ((namespace, name), alias) in &store.aliases {
            let part = |field| text(alias, field).unwrap_or_default();
            let of =
                this.namespaces.get(part("namespace")).and_then(|services| services.get(part("service")));
            let Some(of) = of else { continue };
            let service = grpc::Service {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                ..of.service.clone()
            };
            let (revision, instances) = (of.revision.clone(), of.instances.clone());
            let listed = Listed { service, revision, instances };
            this.namespaces.entry(namespace.clone()).or_default().insert(name.clone(), listed);
        }
        this
    }

    fn answer(&self, ask: &grpc::DiscoverRequest) -> grpc::DiscoverResponse {
        let asked = ask.service.clone().unwrap_or_default();
        match ask.r#type {
            grpc::INSTANCE => self.instances(asked),
            grpc::SERVICES => self.services(asked),
            // [rec grpc-discover] All others but the rules, which are not here, are refused with this type.
            _ => grpc::answer(400_004, 3, asked),
        }
    }

    fn instances(&self, mut asked: grpc::Service) -> grpc::DiscoverResponse {
        // [rec grpc-discover] No namespace is the one called default.
        let namespace =
            asked.namespace.take().filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
        asked.namespace = Some(namespace.clone());
        let name = asked.name.clone().unwrap_or_default();
        if name.is_empty() {
            return grpc::answer(400_120, grpc::INSTANCE, asked);
        }
        let Some(listed) = self.namespaces.get(&namespace).and_then(|services| services.get(&name)) else {
            return grpc::answer(400_202, grpc::INSTANCE, asked);
        };
        if asked.revision.as_ref() == Some(&listed.revision) {
            return grpc::answer(200_001, grpc::INSTANCE, asked);
        }
        let service = grpc::Service {
            revision: Some(listed.revision.clone()),
            metadata: HashMap::new(),
            ..listed.service.clone()
        };
        let instances = listed.instances.clone();
        grpc::DiscoverResponse { instances, ..grpc::answer(200_000, grpc::INSTANCE, service) }
    }

    fn services(&self, asked: grpc::Service) -> grpc::DiscoverResponse {
        let namespace = asked.namespace.clone().unwrap_or_default();
        // [rec grpc-discover] An unknown namespace has no revision, and is no error.
        let Some(services) = self.namespaces.get(&namespace) else {
            return grpc::answer(200_000, grpc::SERVICES, asked);
        };
        let all: String = services.values().filter_map(|listed| listed.service.revision.clone()).collect();
        let revision = sha1(&all);
        if asked.revision.as_ref() == Some(&revision) {
            return grpc::answer(200_001, grpc::SERVICES, asked);
        }
        let list = services.values().map(|listed| grpc::Service {
            name: listed.service.name.clone(),
            namespace: listed.service.namespace.clone(),
            metadata: listed.service.metadata.clone(),
            ..grpc::Service::default()
        });
        let about = grpc::Service {
            name: Some(String::new()),
            namespace: asked.namespace,
            revision: Some(revision),
            ..grpc::Service::default()
        };
        grpc::DiscoverResponse { services: list.collect(), ..grpc::answer(200_000, grpc::SERVICES, about) }
    }
}

/// [grpc] `request.proto`, `response.proto`, `service.proto`, `model.proto`: the messages, with the fields that are used here.
pub mod grpc {
    #![allow(missing_docs, reason = "the fields have the names of Polaris' specification")]

    use super::{Element, info, number, text};
    use serde_json::Value;
    use std::collections::HashMap;

    pub const INSTANCE: i32 = 1;
    pub const SERVICES: i32 = 6;

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DiscoverRequest {
        #[prost(int32, tag = "1")]
        pub r#type: i32,
        #[prost(message, optional, tag = "2")]
        pub service: Option<Service>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DiscoverResponse {
        #[prost(message, optional, tag = "1")]
        pub code: Option<u32>,
        #[prost(message, optional, tag = "2")]
        pub info: Option<String>,
        #[prost(int32, tag = "3")]
        pub r#type: i32,
        #[prost(message, optional, tag = "4")]
        pub service: Option<Service>,
        #[prost(message, repeated, tag = "5")]
        pub instances: Vec<Instance>,
        #[prost(message, repeated, tag = "9")]
        pub services: Vec<Service>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Service {
        #[prost(message, optional, tag = "1")]
        pub name: Option<String>,
        #[prost(message, optional, tag = "2")]
        pub namespace: Option<String>,
        #[prost(map = "string, string", tag = "3")]
        pub metadata: HashMap<String, String>,
        #[prost(message, optional, tag = "11")]
        pub owners: Option<String>,
        #[prost(message, optional, tag = "15")]
        pub revision: Option<String>,
        #[prost(message, optional, tag = "21")]
        pub id: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Instance {
        #[prost(message, optional, tag = "1")]
        pub id: Option<String>,
        #[prost(message, optional, tag = "2")]
        pub service: Option<String>,
        #[prost(message, optional, tag = "3")]
        pub namespace: Option<String>,
        #[prost(message, optional, tag = "4")]
        pub host: Option<String>,
        #[prost(message, optional, tag = "5")]
        pub port: Option<u32>,
        #[prost(message, optional, tag = "6")]
        pub protocol: Option<String>,
        #[prost(message, optional, tag = "7")]
        pub version: Option<String>,
        #[prost(message, optional, tag = "9")]
        pub weight: Option<u32>,
        #[prost(message, optional, tag = "11")]
        pub healthy: Option<bool>,
        #[prost(message, optional, tag = "12")]
        pub isolate: Option<bool>,
        #[prost(message, optional, tag = "13")]
        pub location: Option<Location>,
        #[prost(map = "string, string", tag = "14")]
        pub metadata: HashMap<String, String>,
        #[prost(message, optional, tag = "18")]
        pub revision: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(message, optional, tag = "1")]
        pub region: Option<String>,
        #[prost(message, optional, tag = "2")]
        pub zone: Option<String>,
        #[prost(message, optional, tag = "3")]
        pub campus: Option<String>,
    }

    pub(super) fn answer(code: u32, kind: i32, service: Service) -> DiscoverResponse {
        DiscoverResponse {
            code: Some(code),
            info: Some(info(code).to_owned()),
            r#type: kind,
            service: Some(service),
            ..DiscoverResponse::default()
        }
    }

    fn owned(element: &Element, name: &str) -> Option<String> {
        text(element, name).map(str::to_owned)
    }

    fn small(element: &Element, name: &str) -> Option<u32> {
        number(element, name).and_then(|number| u32::try_from(number).ok())
    }

    fn metadata(element: &Element) -> HashMap<String, String> {
        let given = element.get("metadata").and_then(Value::as_object).into_iter().flatten();
        given.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
    }

    pub(super) fn service(given: &Element) -> Service {
        let of = |name| owned(given, name);
        Service {
            name: of("name"),
            namespace: of("namespace"),
            metadata: metadata(given),
            owners: Some(of("owners").unwrap_or_default()),
            revision: of("revision"),
            id: of("id"),
        }
    }

    /// [rec grpc-discover] What an instance says of its place, version and protocol is in its metadata too.
    pub(super) fn instance(given: &Element) -> Instance {
        let of = |name| owned(given, name);
        let location = given.get("location").and_then(Value::as_object);
        let mut all = metadata(given);
        for name in ["version", "protocol"] {
            all.extend(of(name).map(|value| (name.to_owned(), value)));
        }
        for name in ["region", "zone", "campus"] {
            all.extend(location.map(|place| (name.to_owned(), owned(place, name).unwrap_or_default())));
        }
        Instance {
            id: of("id"),
            service: of("service"),
            namespace: of("namespace"),
            host: of("host"),
            port: small(given, "port"),
            protocol: of("protocol"),
            version: of("version"),
            weight: small(given, "weight"),
            healthy: given.get("healthy").and_then(Value::as_bool),
            isolate: given.get("isolate").and_then(Value::as_bool),
            location: location.map(|place| Location {
                region: owned(place, "region"),
                zone: owned(place, "zone"),
                campus: owned(place, "campus"),
            }),
            metadata: all,
            revision: of("revision"),
        }
    }
}

async fn serve_grpc(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    while let Ok((io, _)) = listener.accept().await {
        let server = server.clone();
        let answer = move |request: Request<Incoming>| {
            let server = server.clone();
            async move {
                let is_discover = request.uri().path() == "/v1.PolarisGRPC/Discover";
                let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                let token = request.headers().get("x-polaris-token").and_then(|value| value.to_str().ok());
                let allowed = !server.options.clients_need_token || server.allows(token);
                Ok::<_, Infallible>(if is_discover {
                    grpc.streaming(Discover { server, allowed }, request).await
                } else {
                    tonic::Status::unimplemented("unknown method").into_http()
                })
            }
        };
        let connection = http2::Builder::new(TokioExecutor::new());
        connections.spawn(connection.serve_connection(TokioIo::new(io), service_fn(answer)));
        while connections.try_join_next().is_some() {}
    }
}

/// One Discover stream.
struct Discover {
    server: Arc<Server>,
    allowed: bool,
}

type Answers = ReceiverStream<Result<grpc::DiscoverResponse, tonic::Status>>;

impl tonic::server::StreamingService<grpc::DiscoverRequest> for Discover {
    type Response = grpc::DiscoverResponse;
    type ResponseStream = Answers;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Answers>, tonic::Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<tonic::Streaming<grpc::DiscoverRequest>>) -> Self::Future {
        let (server, allowed) = (self.server.clone(), self.allowed);
        let mut asks = request.into_inner();
        let (sender, answers) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok(Some(ask)) = asks.message().await {
                // [rec grpc-discover] Without a service the stream ends, with the status 0.
                if ask.service.is_none() {
                    return;
                }
                let answer = if allowed {
                    server.published().answer(&ask)
                } else {
                    // [rec auth-grpc] A refusal has neither type nor service.
                    grpc::DiscoverResponse {
                        code: Some(401_001),
                        info: Some(info(401_001).to_owned()),
                        ..grpc::DiscoverResponse::default()
                    }
                };
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(std::future::ready(Ok(tonic::Response::new(ReceiverStream::new(answers)))))
    }
}
