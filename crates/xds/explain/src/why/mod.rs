//! Path of a proxy's request: Envoy's decisions, step by step, over the resources of this proxy.
//!
//! ```text
//! host ─▶ service ─▶ listener ─▶ filter chain ─▶ virtual host ─▶ route ─▶ cluster ─▶ endpoints
//!                          the policies in it ◀─ inbound listener of the other side ◀────┘
//! ```
//!
//! Queries that decide on visibility explain why a service or an endpoint is left out (`Snapshot::host_seen`,
//! `Snapshot::endpoints_considered`).

mod address;
mod arrival;
mod authorization;
mod chain;
mod cluster;
mod endpoints;
mod inbound;
mod listener;
mod matches;
mod object;
mod rbac;
mod request;
mod route;
mod service;

pub use address::why_endpoint;
pub use object::why_object;
pub use request::Request;
pub(crate) use service::unseen;

use crate::resource::json;
use cluster::{ALLOW_ANY_DYNAMIC_DNS, PASSTHROUGH};
use pilotfish_api::Registry;
use pilotfish_api::v1::{Dropped, Failure, Step, Verdict, Why};
use pilotfish_model::{ObjectKey, Origin, PortId, Service, World};
use pilotfish_proto::ResourceType;
use pilotfish_translate::{Client, Proxy, ProxyKind, Snapshot, Translator};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of items in each list.
const LISTED: usize = 100;

/// Explains where a request of a proxy goes. `registries` has their states, since a host may be missing or
/// outdated because of one.
///
/// # Errors
/// If the question cannot be answered.
pub fn why(
    translator: &Translator,
    proxy: &Arc<Proxy>,
    request: &Request,
    registries: &[Registry],
) -> Result<Why, Failure> {
    // An equal proxy has equal views, so this client sees the resources of the connected one.
    let client = translator.connect(Proxy::clone(proxy));
    let world = translator.snapshot().world().clone();
    let walk = Walk { translator, world, client: &client, proxy, registries };
    let mut answer = Why { proxy: format!("{}.{}", proxy.name, proxy.namespace), ..Why::default() };
    walk.go(request, &mut answer);
    answer.endpoints.truncate(LISTED);
    answer.dropped.truncate(LISTED);
    Ok(answer)
}

/// Context of a walk.
struct Walk<'a> {
    translator: &'a Translator,
    world: Arc<World>,
    client: &'a Client,
    proxy: &'a Arc<Proxy>,
    registries: &'a [Registry],
}

/// A resource of the proxy.
struct Found {
    name: Arc<str>,
    json: Value,
    made_by: Vec<String>,
}

/// State of the walk: the request with the findings of the steps before.
#[derive(Clone, Default)]
struct Way {
    request: Request,
    /// Service with the host, if there is one.
    service: Option<Arc<Service>>,
    port: u32,
    /// Addresses that the application may connect to.
    addresses: Vec<String>,
    /// True if the application or client speaks TLS; `None` if neither the request nor a gateway's listener
    /// determines it.
    tls: Option<bool>,
    /// True if this proxy reads it as HTTP.
    as_http: bool,
    /// New `:authority`, if a route rewrites it.
    rewritten_host: Option<String>,
    /// Reason why the request is for no service: nothing has the host, the proxy does not see it, or it lacks
    /// the port.
    missed: Option<String>,
    /// Lower-case names of headers that a route changes in a way that is not evaluated.
    unsure: BTreeSet<String>,
}

/// Result of a step.
enum Next<T> {
    /// The walk continues with this value.
    On(T),
    /// The walk ends, with the outcome.
    End(String),
}

impl Walk<'_> {
    fn go(&self, request: &Request, answer: &mut Why) {
        let way = Way { tls: request.tls, ..self.service(request, &mut answer.steps) };
        answer.request = way.words();
        let next = self.follow(&way, answer);
        (answer.reaches, answer.outcome) = verdict(next, &way, answer);
    }

    fn follow(&self, way: &Way, answer: &mut Why) -> Next<()> {
        let listener = match self.listener(way, &mut answer.steps) {
            Next::On(listener) => listener,
            Next::End(outcome) => return Next::End(outcome),
        };
        let way = &Way { tls: way.tls.or_else(|| self.presumed_tls(&listener)), ..way.clone() };
        answer.request = way.words();
        let chosen = match self.chain(way, &listener, &mut answer.steps) {
            Next::On(chosen) => chosen,
            Next::End(outcome) => return Next::End(outcome),
        };
        let (clusters, sent) = match chosen {
            listener::Chosen::Http(routes) => match self.route(way, &routes, &mut answer.steps) {
                Next::On(found) => found,
                Next::End(outcome) => return Next::End(outcome),
            },
            listener::Chosen::Clusters(clusters) => (clusters, way.clone()),
        };
        self.clusters(&sent, &clusters, answer)
    }

    /// The newest state. Released after each query, so that explanations do not delay publications.
    fn snapshot(&self) -> Snapshot<'_> {
        self.translator.snapshot()
    }

    /// All resources of a type that the proxy receives without naming them.
    fn all(&self, ty: ResourceType) -> Vec<Found> {
        let names = self.names(ty);
        names.iter().filter_map(|name| self.named(ty, name)).collect()
    }

    /// Names of all resources of such a type.
    fn names(&self, ty: ResourceType) -> Arc<[Arc<str>]> {
        let mut snapshot = self.snapshot();
        let Some(view) = snapshot.view(self.client, ty) else { return Arc::default() };
        while !snapshot.prepare(view) {
            drop(snapshot);
            snapshot = self.snapshot();
        }
        snapshot.names(view)
    }

    fn named(&self, ty: ResourceType, name: &str) -> Option<Found> {
        self.named_of(self.client, ty, name)
    }

    fn named_of(&self, client: &Client, ty: ResourceType, name: &str) -> Option<Found> {
        let resource = {
            let snapshot = self.snapshot();
            snapshot.get(snapshot.view(client, ty)?, name)?
        };
        Some(Found {
            name: resource.name.clone(),
            json: json(&resource.body),
            made_by: resource.provenance.iter().map(ToString::to_string).collect(),
        })
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn is_router(&self) -> bool {
        self.proxy.kind == ProxyKind::Router
    }
}

/// The destination of a cluster for unknown hosts.
fn goes_on(step: &Step) -> Option<&'static str> {
    match step.chosen.as_str() {
        PASSTHROUGH => Some("its original address, without policies"),
        ALLOW_ANY_DYNAMIC_DNS => Some("the address that DNS has for its host, without policies"),
        _ => None,
    }
}

/// Verdict of a walk: true if the request reaches a service or may leave the mesh, and the sentence for it.
/// A request without a service that goes through a cluster for unknown hosts reaches none.
fn verdict(next: Next<()>, way: &Way, answer: &Why) -> (bool, String) {
    let goes_on = answer.steps.iter().filter(|step| step.step == "cluster").find_map(goes_on);
    match (next, &way.missed) {
        (Next::End(outcome), Some(missed)) => (false, format!("{outcome}; {missed}")),
        (Next::End(outcome), None) => (false, outcome),
        (Next::On(()), Some(missed)) if goes_on.is_some() => {
            (false, format!("it reaches no service: {missed}; it goes on to {}", goes_on.unwrap_or_default()))
        }
        (Next::On(()), _) => {
            let doubts = answer.steps.iter().filter(|step| step.verdict == Verdict::Doubtful).count();
            let doubts = match doubts {
                0 => String::new(),
                1 => "; 1 step is doubtful".to_owned(),
                more => format!("; {more} steps are doubtful"),
            };
            let reaches = match answer.endpoints.len() {
                0 => "it leaves as it is".to_owned(),
                1 => "it reaches 1 endpoint".to_owned(),
                count => format!("it reaches one of {count} endpoints"),
            };
            (true, reaches + &doubts)
        }
    }
}

impl Way {
    fn words(&self) -> String {
        let Request { host, path, method, .. } = &self.request;
        if self.is_http() {
            let scheme = self.scheme();
            format!("{method} {scheme}://{host}:{}{path}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// True if the proxy can read the request as HTTP: also if the protocol is not declared, so that Envoy
    /// detects it.
    fn is_http(&self) -> bool {
        let Some(port) = self.service.as_ref().and_then(|service| service.port(PortId::tcp(self.port)))
        else {
            return true;
        };
        port.protocol.is_http() || port.protocol.is_unsupported()
    }

    fn is_tls(&self) -> bool {
        if let Some(known) = self.tls {
            return known;
        }
        let port = self.service.as_ref().and_then(|service| service.port(PortId::tcp(self.port)));
        port.is_some_and(|port| port.protocol.is_tls())
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }

    /// `Host` or `:authority` that the application sends.
    fn authority(&self) -> String {
        if let Some(rewritten) = &self.rewritten_host {
            rewritten.clone()
        } else if self.port == if self.is_tls() { 443 } else { 80 } {
            self.request.host.clone()
        } else {
            format!("{}:{}", self.request.host, self.port)
        }
    }
}

fn step(name: &str, verdict: Verdict, chosen: impl Into<String>, text: impl Into<String>) -> Step {
    Step { step: name.to_owned(), verdict, chosen: chosen.into(), text: text.into(), ..Step::default() }
}

fn dropped(what: impl Into<String>, why: impl Into<String>) -> Dropped {
    Dropped { what: what.into(), why: why.into() }
}

/// Readable name of an object, from its path in Istio's metadata:
/// `/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web`.
fn object_in(metadata: Option<&Value>) -> Option<String> {
    let path = metadata?.pointer("/filter_metadata/istio/config")?.as_str()?;
    let mut parts = path.rsplit('/');
    let (name, kind, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    let kind: String = kind
        .split('-')
        .map(|word| {
            let mut chars = word.chars();
            chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect::<String>()
        })
        .collect();
    Some(format!("{kind} {namespace}/{name}"))
}

fn origin(origin: &Origin) -> String {
    origin.to_string()
}

fn object(key: &ObjectKey) -> String {
    key.to_string()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests;
