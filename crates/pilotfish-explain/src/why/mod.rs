//! Why a request of a proxy goes where it goes: Envoy's own decisions, step by step, over the resources that this proxy gets.
//!
//! ```text
//! host ─▶ service ─▶ listener ─▶ filter chain ─▶ virtual host ─▶ route ─▶ cluster ─▶ endpoints ─▶ the other side's inbound listener
//!                                                                                                  ─▶ the policies in it
//! ```
//!
//! What keeps a service or an endpoint away is asked of the queries that decide on it (`Snapshot::host_seen`,
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
use cluster::PASSTHROUGH;
use pilotfish_api::Registry;
use pilotfish_api::v1::{Dropped, Failure, Step, Verdict, Why};
use pilotfish_model::{ObjectKey, Origin, PortId, Service, World};
use pilotfish_proto::ResourceType;
use pilotfish_translate::{Client, Proxy, ProxyKind, Snapshot, Translator};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Items of each list.
const LISTED: usize = 100;

/// Where a request of a proxy goes. `registries`: how they are, since a host may be missing or old because of one.
///
/// # Errors
/// When the question cannot be answered.
pub fn why(
    translator: &Translator,
    proxy: &Arc<Proxy>,
    request: &Request,
    registries: &[Registry],
) -> Result<Why, Failure> {
    // An equal proxy has equal views, so this one sees what the connected one sees.
    let client = translator.connect(Proxy::clone(proxy));
    let world = translator.snapshot().world().clone();
    let walk = Walk { translator, world, client: &client, proxy, registries };
    let mut answer = Why { proxy: format!("{}.{}", proxy.name, proxy.namespace), ..Why::default() };
    walk.go(request, &mut answer);
    answer.endpoints.truncate(LISTED);
    answer.dropped.truncate(LISTED);
    Ok(answer)
}

/// What a walk reads.
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

/// Where the walk is: the request with what the steps before found out.
#[derive(Clone, Default)]
struct Way {
    request: Request,
    /// The service, where one has the host.
    service: Option<Arc<Service>>,
    port: u32,
    /// The addresses to which the application connects.
    addresses: Vec<String>,
    /// Whether the application or client speaks TLS, where that is known: by the request, or by what a gateway's listener takes.
    tls: Option<bool>,
    /// Whether this proxy reads it as HTTP.
    as_http: bool,
    /// What a route writes into `:authority`.
    rewritten_host: Option<String>,
    /// Reason why the request is for no service: nothing has the host, the proxy does not see it, or it lacks the port.
    missed: Option<String>,
    /// Headers, by lower-case name, that a route changes in a way that is not followed.
    unsure: BTreeSet<String>,
}

/// What a step says of the next.
enum Next<T> {
    /// It goes on.
    On(T),
    /// It ends, with the outcome.
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

    /// The newest state. It is given back after each question: the pages of operators keep no proxy waiting.
    fn snapshot(&self) -> Snapshot<'_> {
        self.translator.snapshot()
    }

    /// All resources of a type that the proxy has as a whole.
    fn all(&self, ty: ResourceType) -> Vec<Found> {
        let names = self.names(ty);
        names.iter().filter_map(|name| self.named(ty, name)).collect()
    }

    /// The names of all resources of such a type.
    fn names(&self, ty: ResourceType) -> Arc<[Arc<str>]> {
        let mut snapshot = self.snapshot();
        let Some(view) = snapshot.view(self.client, ty) else { return Arc::default() };
        while !snapshot.prepare(view) {
            drop(snapshot);
            snapshot = self.snapshot();
        }
        snapshot.names(view)
    }

    /// A resource by name.
    fn named(&self, ty: ResourceType, name: &str) -> Option<Found> {
        self.named_of(self.client, ty, name)
    }

    /// A resource of another proxy by name.
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

/// Verdict of a walk: true if the request reaches a service or may leave the mesh, and the sentence for it.
/// A request without a service that goes through `PassthroughCluster` reaches none.
fn verdict(next: Next<()>, way: &Way, answer: &Why) -> (bool, String) {
    let passes = answer.steps.iter().any(|step| step.step == "cluster" && step.chosen == PASSTHROUGH);
    match (next, &way.missed) {
        (Next::End(outcome), Some(missed)) => (false, format!("{outcome}; {missed}")),
        (Next::End(outcome), None) => (false, outcome),
        (Next::On(()), Some(missed)) if passes => (
            false,
            format!("it reaches no service: {missed}; it goes on to its original address, without policies"),
        ),
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

    /// Whether the request is HTTP that the proxy can read: also where the protocol is not declared, and it finds out.
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

    /// What the application writes into `Host` or `:authority`.
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

/// An object as people name it, out of its path in Istio's metadata: `/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web`.
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
