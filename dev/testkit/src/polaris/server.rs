//! A running simulated server, and the state that its requests share.

use super::discover::{Published, serve_grpc};
use super::element::{Element, text};
use super::faults::{Faults, PolarisFault, Seen};
use super::http::{Answer, route, serve_http};
use super::options::PolarisOptions;
use super::query::{Query, get_instances, get_services};
use super::store::Store;
use http::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A simulated server; ends on drop.
pub struct Polaris {
    pub(super) http: u16,
    pub(super) grpc: u16,
    pub(super) server: Arc<Server>,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

impl Polaris {
    /// Starts a server on loopback.
    ///
    /// # Panics
    /// When a port is in use.
    pub async fn start(options: PolarisOptions) -> Self {
        let ports = options.ports.unwrap_or_else(|| (crate::real::free_port(), crate::real::free_port()));
        let [http, grpc] = [listen(ports.0).await, listen(ports.1).await];
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        let (http_port, grpc_port) = (port(&http), port(&grpc));
        let tick = options.tick;
        let tokens = Mutex::new((options.token.clone(), options.user.clone()));
        let store = Store { shows_deleted: options.shows_deleted, ..Store::default() };
        let server = Arc::new(Server {
            options,
            tokens,
            store: Mutex::new(store),
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

    /// Port of the HTTP APIs (8090 on a real server).
    #[must_use]
    pub fn http_port(&self) -> u16 {
        self.http
    }

    /// Port of the gRPC API (8091 on a real server).
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

    /// Makes writes visible to Discover.
    pub fn refresh(&self) {
        self.server.refresh();
    }

    /// Advances the server's clock for heartbeats and rates, so that tests do not have to wait.
    pub fn advance(&self, by: Duration) {
        self.server.store().ahead += by;
    }

    /// Injects a fault for the next request of that method with this path suffix.
    pub fn fail(&self, method: &'static str, path: &'static str, fault: PolarisFault) {
        self.server.faults.plan(method, path, fault);
    }

    /// Number of faults that have not been applied yet.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.server.faults.planned()
    }

    pub fn recover(&self) {
        self.server.faults.clear();
    }

    /// Requests to the console API since the last call.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.server.faults.seen()
    }

    /// Replaces the valid tokens: the main one, and that of the user.
    ///
    /// # Panics
    /// When a thread panicked with the lock held.
    pub fn set_tokens(&self, token: Option<&str>, user: Option<(&str, &str)>) {
        let user = user.map(|(id, token)| (id.to_owned(), token.to_owned()));
        *self.server.tokens.lock().expect("no holder panics") = (token.map(str::to_owned), user);
    }

    /// Current instances that match a query of the console API, from all pages.
    ///
    /// # Panics
    /// When the query is refused.
    #[must_use]
    pub fn instances(&self, query: &[(&str, &str)]) -> Vec<Value> {
        self.list(&self.server.store(), query, "instances", get_instances)
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.server.store().instances.len()
    }

    /// Services that match a query.
    ///
    /// # Panics
    /// When the query is refused.
    #[must_use]
    pub fn services(&self, query: &[(&str, &str)]) -> Vec<Value> {
        self.list(&self.server.store(), query, "services", get_services)
    }

    /// Aliases: `namespace/alias` with `namespace/service`.
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

    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        self.server.store().namespaces.keys().cloned().collect()
    }

    pub(super) fn list(
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

    /// Hides deleted instances, like a restarted server.
    ///
    /// # Panics
    /// When a thread panicked with the lock held.
    pub fn notice_deletions(&self) {
        self.server.store().unnoticed.clear();
        self.server.refresh();
    }

    /// Loses all data, like a server that is restarted without its store.
    pub fn lose_everything(&self) {
        let shows_deleted = self.server.options.shows_deleted;
        *self.server.store() = Store { shows_deleted, ..Store::default() };
        self.server.refresh();
    }
}

impl Drop for Polaris {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub(super) async fn listen(port: u16) -> TcpListener {
    TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free")
}

pub(super) type User = (String, String);

pub(super) struct Server {
    pub(super) options: PolarisOptions,
    /// Valid token, and the user with a separate token.
    pub(super) tokens: Mutex<(Option<String>, Option<User>)>,
    /// Data for queries of the console, if they lag.
    pub(super) console: Mutex<Arc<Store>>,
    pub(super) faults: Faults,
    pub(super) store: Mutex<Store>,
    pub(super) published: Mutex<Arc<Published>>,
}

impl Server {
    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no holder panics")
    }

    pub(super) fn published(&self) -> Arc<Published> {
        self.published.lock().expect("no holder panics").clone()
    }

    pub(super) fn refresh(&self) {
        if self.options.checks_heartbeats {
            self.store().check_heartbeats();
        }
        if self.options.console_lags {
            *self.console.lock().expect("no holder panics") = Arc::new(self.store().clone());
        }
        let published = Published::of(&self.store());
        *self.published.lock().expect("no holder panics") = Arc::new(published);
    }

    pub(super) fn allows(&self, token: Option<&str>) -> bool {
        let (valid, user) = &*self.tokens.lock().expect("no holder panics");
        let of_user = user.as_ref().map(|(_, token)| token.as_str());
        valid.is_none() || token.is_some() && (token == valid.as_deref() || token == of_user)
    }

    /// Runs a query of the console.
    pub(super) fn query(&self, query: &Query, get: fn(&Store, &Query) -> Answer) -> Answer {
        if self.options.console_lags {
            let console = self.console.lock().expect("no holder panics").clone();
            return get(&console, query);
        }
        get(&self.store(), query)
    }
}
