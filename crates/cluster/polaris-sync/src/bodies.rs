//! HTTP requests of calls: paths and bodies are those of polaris-controller.

use crate::reconcile::{
    AliasKey, Call, InstanceKey, InstanceRetirement, InstanceWrite, ServiceKey, ServiceWrite,
};
use crate::target::{CONTROLLER, PolarisTarget};
use serde::Serialize;
use serde_json::{Value, json};

/// An HTTP request of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    pub method: &'static str,
    /// Path without the server.
    pub path: &'static str,
    pub body: Value,
}

/// Returns the request of a call.
#[must_use]
pub fn request_of(call: &Call, target: &PolarisTarget) -> Request {
    let (method, path) = match call {
        Call::CreateNamespaces(_) => ("POST", "/naming/v1/namespaces"),
        Call::CreateServices(_) => ("POST", "/naming/v1/services"),
        Call::UpdateServices(_) => ("PUT", "/naming/v1/services"),
        Call::CreateAlias(..) => ("POST", "/naming/v1/service/alias"),
        Call::UpdateAlias(..) => ("PUT", "/naming/v1/service/alias"),
        Call::CreateInstances(_) => ("POST", "/naming/v1/instances"),
        Call::UpdateInstances(_) | Call::RetireInstances(_) => ("PUT", "/naming/v1/instances"),
        Call::DeleteInstances(_) => ("POST", "/naming/v1/instances/delete"),
        Call::DeleteAliases(_) => ("POST", "/naming/v1/service/aliases/delete"),
    };
    let body = match call {
        Call::CreateNamespaces(names) => {
            names.iter().map(|name| json!({"name": name, "owners": CONTROLLER})).collect()
        }
        Call::CreateServices(writes) | Call::UpdateServices(writes) => writes.iter().map(service).collect(),
        Call::CreateAlias(name, of) | Call::UpdateAlias(name, of) => alias(name, of, target),
        Call::CreateInstances(writes) => writes.iter().map(|write| instance(write, true)).collect(),
        Call::UpdateInstances(writes) => writes.iter().map(|write| instance(write, false)).collect(),
        Call::RetireInstances(all) => all.iter().map(retirement).collect(),
        Call::DeleteInstances(keys) => keys.iter().map(place).collect(),
        Call::DeleteAliases(names) => names
            .iter()
            .map(|AliasKey(name)| json!({"alias": name.name, "alias_namespace": name.namespace}))
            .collect(),
    };
    Request { method, path, body }
}

fn service(write: &ServiceWrite) -> Value {
    let ports: Vec<String> = write.ports.iter().map(ToString::to_string).collect();
    // The server refuses to update a service without an owner.
    let owners = if write.owners.is_empty() { CONTROLLER } else { &write.owners };
    json!({
        "name": write.key.name, "namespace": write.key.namespace, "owners": owners,
        "metadata": write.metadata, "ports": ports.join(","),
    })
}

fn alias(AliasKey(name): &AliasKey, of: &ServiceKey, target: &PolarisTarget) -> Value {
    json!({
        "service": of.name, "namespace": of.namespace, "alias": name.name,
        "alias_namespace": name.namespace, "owners": CONTROLLER, "comment": target.alias_comment(),
    })
}

fn place(key: &InstanceKey) -> Value {
    let ServiceKey { namespace, name } = &key.service;
    json!({"service": name, "namespace": namespace, "host": key.place.host, "port": key.place.port})
}

fn retirement(one: &InstanceRetirement) -> Value {
    let mut body = place(&one.key);
    body["isolate"] = json!(true);
    body["metadata"] = json!(one.metadata);
    body
}

fn instance(write: &InstanceWrite, is_new: bool) -> Value {
    let given = &write.instance;
    let mut body = place(&write.key);
    body["protocol"] = json!(given.protocol);
    body["version"] = json!(given.version);
    body["weight"] = json!(given.weight);
    body["metadata"] = json!(given.metadata);
    body["enableHealthCheck"] = json!(given.ttl.is_some());
    if let Some(ttl) = given.ttl {
        body["healthCheck"] = json!({"type": 1, "heartbeat": {"ttl": ttl}});
    }
    // Health of an existing instance with a health check depends on its heartbeats.
    if is_new || given.ttl.is_none() {
        body["healthy"] = json!(true);
    }
    // Omitted to keep a manual isolation.
    if let Some(isolate) = write.isolate {
        body["isolate"] = json!(isolate);
    }
    body
}
