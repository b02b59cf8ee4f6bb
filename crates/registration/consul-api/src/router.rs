//! The calls of the API, and the answers to them.

use crate::answer::{self, Headers, TURN};
use crate::calls::{ConsulApi, node_of};
use crate::catalog::{Entry, Scope, ServiceEntry};
use crate::checks::Status;
use crate::filter::Filter;
use crate::forms;
use crate::path::{Call, NoCall};
use crate::query::Query;
use crate::record::service_of;
use bytes::Bytes;
use http::Response;
use http::header::AUTHORIZATION;
use http::request::Parts;
use pilotfish_registration::InstanceKey;
use pilotfish_registration_server::{
    Adapter, AdapterAnswer, AdapterBody, AdapterClient, Credentials, Failure, Protocol,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Services that a client may read, by name, and true if there are others.
type Readable = (Vec<(Arc<str>, Arc<ServiceEntry>)>, bool);

impl ConsulApi {
    async fn call(&self, client: &AdapterClient, parts: &Parts, body: &[u8]) -> AdapterAnswer {
        let found = Call::parse(&parts.method, parts.uri.path()).map_err(|error| match error {
            NoCall::Path => Failure::not_found("Pilotfish serves no such path of Consul's API"),
            NoCall::Method => Failure::invalid(format!("this path has no {}", parts.method)),
        })?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        self.check_datacenter(&query)?;
        match &found {
            Call::Register => self.register(client, body).await?,
            Call::Deregister(id) => self.deregister(client, id).await?,
            Call::Report(status, check) => {
                self.report(client, check, *status, query.get("note").unwrap_or_default()).await?;
            }
            Call::Update(check) => self.update(client, check, body).await?,
            Call::Maintenance(id) => {
                if query.get("enable").is_none() {
                    return Err(Failure::invalid("enable: it is missing"));
                }
                let reason = query.get("reason").unwrap_or_default();
                self.maintain(client, id, query.has("enable").then_some(reason)).await?;
            }
            Call::AgentServices | Call::AgentService(_) | Call::AgentChecks => {
                return self.agent(client, &query, &found);
            }
            Call::AgentSelf => return Ok(answer::json(&forms::agent(&node_of(client), &self.settings))),
            Call::Leader => return Ok(answer::json(&LEADER.into())),
            Call::Peers => return Ok(answer::json(&json!([LEADER]))),
            Call::Datacenters => return Ok(answer::json(&json!([&*self.settings.datacenter]))),
            read => return self.read(client, &query, read).await,
        }
        Ok(answer::empty())
    }

    fn check_datacenter(&self, query: &Query) -> Result<(), Failure> {
        match query.get("dc").filter(|dc| !dc.is_empty() && **dc != *self.settings.datacenter) {
            Some(dc) => {
                let own = &self.settings.datacenter;
                Err(Failure::invalid(format!("dc: No path to datacenter {dc:?}, there is {own:?} only")))
            }
            None => Ok(()),
        }
    }

    /// Answers about the services that the client's address registered.
    fn agent(&self, client: &AdapterClient, query: &Query, call: &Call) -> AdapterAnswer {
        if let Call::AgentService(id) = call {
            let entry = self.of_agent(client, id)?;
            if !client.may_read(&entry.key) {
                return Err(Failure::not_found(format!("unknown service ID: {id}")));
            }
            return Ok(answer::json(&forms::agent_service(&entry, &self.settings)));
        }
        client.check_ready()?;
        let entries = self.catalog().all_of_agent(&node_of(client));
        let readable = entries.iter().filter(|entry| client.may_read(&entry.key));
        let items: Vec<(String, Value)> = match call {
            Call::AgentServices => readable
                .map(|entry| {
                    (entry.registered.service.id.clone(), forms::agent_service(entry, &self.settings))
                })
                .collect(),
            _ => readable
                .flat_map(|entry| {
                    entry.checks.iter().map(|state| (state.id.clone(), forms::check(entry, state)))
                })
                .collect(),
        };
        let fields = if *call == Call::AgentServices { forms::AGENT_FIELDS } else { forms::CHECK_FIELDS };
        let filter = filter_of(query, fields)?;
        let wanted = |value: &Value| filter.as_ref().is_none_or(|filter| filter.matches(value));
        let items: Map<String, Value> = items.into_iter().filter(|(_, value)| wanted(value)).collect();
        Ok(answer::json(&Value::Object(items)))
    }

    /// Answers a query, after it has waited for a change.
    async fn read(&self, client: &AdapterClient, query: &Query, call: &Call) -> AdapterAnswer {
        client.check_ready()?;
        let lower = match call {
            Call::Instances(name) | Call::Health(name) | Call::Checks(name) => name.to_lowercase(),
            _ => String::new(),
        };
        let scope = match call {
            Call::Services => Scope::Services,
            Call::Nodes => Scope::Nodes,
            Call::State(_) => Scope::Checks,
            _ => Scope::Service(&lower),
        };
        let items = Items::of(call, query)?;
        self.wait_for(client, query, self.permitted(client, scope)).await?;
        // Again: rules may have changed meanwhile.
        let scope = self.permitted(client, scope);
        let (services, index) = {
            let catalog = self.catalog();
            (catalog.services(), catalog.index(scope))
        };
        let (readable, is_filtered) = match scope {
            Scope::Unreadable => (Vec::new(), true),
            Scope::Service(name) => {
                let found = services.get_key_value(name);
                select(client, found.map(|(name, found)| (Arc::clone(name), Arc::clone(found))))
            }
            _ => {
                let all = services.iter().map(|(name, found)| (Arc::clone(name), Arc::clone(found)));
                select(client, all)
            }
        };
        let response = match call {
            Call::Services => answer::json(&names(&readable)),
            Call::Nodes => self.nodes(&readable, items).await,
            _ => self.items(readable, items).await,
        };
        Ok(answer::with_headers(response, Headers { index, is_filtered }))
    }

    /// Returns the scope of a query. A service that the client may not read has one that nothing changes,
    /// so that a wait does not tell what it does, or whether it exists.
    fn permitted<'a>(&self, client: &AdapterClient, scope: Scope<'a>) -> Scope<'a> {
        match scope {
            Scope::Service(name) => {
                let namespace = Arc::clone(&self.settings.namespace);
                let key = InstanceKey::new(namespace, service_of(name), "");
                if client.may_read(&key) { scope } else { Scope::Unreadable }
            }
            _ => scope,
        }
    }

    async fn nodes(&self, readable: &[(Arc<str>, Arc<ServiceEntry>)], items: Items) -> Response<AdapterBody> {
        let mut nodes: BTreeMap<String, u64> = BTreeMap::new();
        let mut seen = 0_usize;
        for (_, service) in readable {
            for entry in service.instances.values() {
                let node = nodes.entry(entry.registered.service.node.clone()).or_insert(entry.created);
                *node = entry.created.min(*node);
                seen += 1;
                if seen.is_multiple_of(TURN) {
                    tokio::task::yield_now().await;
                }
            }
        }
        let settings = self.settings.clone();
        let nodes = nodes.into_iter().map(move |(name, index)| forms::node(&name, index, &settings));
        let candidates = nodes.map(move |node| {
            let is_wanted = !items.nothing && items.matches(&node);
            if is_wanted { vec![node] } else { Vec::new() }
        });
        answer::list(candidates).await
    }

    async fn items(
        &self,
        readable: Vec<(Arc<str>, Arc<ServiceEntry>)>,
        items: Items,
    ) -> Response<AdapterBody> {
        let settings = self.settings.clone();
        let entries = readable.into_iter().flat_map(|(_, service)| {
            let entries: Vec<Arc<Entry>> = service.instances.values().cloned().collect();
            entries
        });
        let candidates = entries.map(move |entry| {
            if !items.wants(&entry) {
                return Vec::new();
            }
            let mut values: Vec<Value> = match items.form {
                Form::Health => vec![forms::health(&entry, &settings)],
                Form::Instance => vec![forms::instance(&entry, &settings)],
                Form::Check(status) => {
                    let states = entry.checks.iter();
                    let states = states.filter(|state| status.is_none_or(|status| state.status == status));
                    states.map(|state| forms::check(&entry, state)).collect()
                }
            };
            values.retain(|value| items.matches(value));
            values
        });
        answer::list(candidates).await
    }
}

/// Address of a leader in answers: clients ask only if there is one.
const LEADER: &str = "127.0.0.1:8300";

/// Form of the items of a list.
#[derive(Clone, Copy, Debug)]
enum Form {
    Health,
    Instance,
    /// Checks in this state; `None` for any.
    Check(Option<Status>),
}

/// Selection of the items of a list.
struct Items {
    form: Form,
    tags: Vec<String>,
    passing: bool,
    /// True if metadata of agents is asked for: they have none.
    nothing: bool,
    filter: Option<Filter>,
}

impl Items {
    fn of(call: &Call, query: &Query) -> Result<Self, Failure> {
        let (form, fields) = match call {
            Call::Health(_) => (Form::Health, forms::HEALTH_FIELDS),
            Call::State(status) => (Form::Check(*status), forms::CHECK_FIELDS),
            Call::Checks(_) => (Form::Check(None), forms::CHECK_FIELDS),
            Call::Nodes => (Form::Instance, forms::NODE_FIELDS),
            _ => (Form::Instance, forms::INSTANCE_FIELDS),
        };
        let filter = match call {
            Call::Services if query.get("filter").is_some_and(|text| !text.is_empty()) => {
                return Err(Failure::invalid("filter: names of services are not filtered"));
            }
            Call::Services => None,
            _ => filter_of(query, fields)?,
        };
        let is_health = matches!(form, Form::Health);
        Ok(Self {
            form,
            tags: query.all("tag").filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            passing: is_health && query.has("passing"),
            nothing: query.get("node-meta").is_some_and(|text| !text.is_empty()),
            filter,
        })
    }

    fn wants(&self, entry: &Entry) -> bool {
        let own = &entry.registered.service.tags;
        !self.nothing
            && self.tags.iter().all(|tag| own.contains(tag))
            && (!self.passing || entry.status() == Status::Passing)
    }

    fn matches(&self, value: &Value) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(value))
    }
}

fn filter_of(query: &Query, fields: &[&str]) -> Result<Option<Filter>, Failure> {
    let text = query.get("filter").filter(|text| !text.is_empty());
    text.map(|text| Filter::parse(text, fields)).transpose()
}

/// Chooses the services that a client may read. Rules name services, so one instance stands for all.
fn select(
    client: &AdapterClient,
    services: impl IntoIterator<Item = (Arc<str>, Arc<ServiceEntry>)>,
) -> Readable {
    let may_read = |service: &ServiceEntry| {
        service.instances.values().next().is_some_and(|entry| client.may_read(&entry.key))
    };
    let (mut readable, mut is_filtered) = (Vec::new(), false);
    for (name, service) in services {
        if may_read(&service) {
            readable.push((name, service));
        } else {
            is_filtered = true;
        }
    }
    (readable, is_filtered)
}

/// Returns the names of services with their tags.
fn names(readable: &[(Arc<str>, Arc<ServiceEntry>)]) -> Value {
    let names = readable.iter().map(|(name, service)| (name.to_string(), json!(service.tags)));
    Value::Object(names.collect())
}

/// The token of `X-Consul-Token`, else of the parameter `token`. One of `Authorization` is read anyway.
fn token(parts: &Parts) -> Option<String> {
    let header = parts.headers.get("x-consul-token").and_then(|value| value.to_str().ok());
    if let Some(token) = header.filter(|token| !token.is_empty()) {
        return Some(token.to_owned());
    }
    if parts.headers.contains_key(AUTHORIZATION) {
        return None;
    }
    let query = Query::parse(parts.uri.query()?);
    query.get("token").filter(|token| !token.is_empty()).map(str::to_owned)
}

impl Adapter for ConsulApi {
    fn protocol(&self) -> Protocol {
        Protocol::Consul
    }

    fn method(&self, parts: &Parts) -> &'static str {
        Call::parse(&parts.method, parts.uri.path()).map_or("other", |call| call.label())
    }

    fn credentials(&self, parts: &Parts, _: Option<&[u8]>) -> Credentials {
        Credentials::Token(token(parts))
    }

    fn answer<'a>(
        &'a self,
        client: AdapterClient,
        parts: &'a Parts,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = AdapterAnswer> + Send + 'a>> {
        Box::pin(async move { self.call(&client, parts, &body).await })
    }

    fn refresh(&self) {
        drop(self.catalog());
    }

    fn wait(&self, parts: &Parts) -> Duration {
        match Call::parse(&parts.method, parts.uri.path()) {
            Ok(call) if call.may_wait() => Query::parse(parts.uri.query().unwrap_or_default()).longest(),
            _ => Duration::ZERO,
        }
    }

    fn run<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.follow())
    }
}
