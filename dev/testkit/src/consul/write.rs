//! Writes to the catalog, sessions and keys.

use super::options::{ConsulOptions, Rights};
use super::read::datacenter;
use super::request::{Answer, Found, Query, refuse};
use super::server::{Shared, State};
use super::store::Pair;
use super::value::{field, first, object, text_of};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(super) fn write(
    shared: &Shared,
    method: &Method,
    parts: &[&str],
    query: &Query,
    body: &Bytes,
    rights: &Rights,
) -> Answer<Found> {
    // [acl] In this simulation, all of these writes need management rights.
    if !rights.management {
        return refuse(StatusCode::FORBIDDEN, "Permission denied");
    }
    let mut state = shared.lock();
    if !state.leader {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No cluster leader");
    }
    let written = match (method, parts) {
        (&Method::PUT, ["kv", key @ ..]) => put_key(&mut state, &shared.options, &key.join("/"), query, body),
        (&Method::DELETE, ["kv", key @ ..]) => delete_key(&mut state, &shared.options, &key.join("/"), query),
        (&Method::PUT, _) => {
            let payload = if body.is_empty() { Ok(json!({})) } else { serde_json::from_slice(body) };
            match payload {
                Ok(payload) => put(&mut state, &shared.options, parts, query, &payload),
                Err(error) => refuse(StatusCode::BAD_REQUEST, format!("Request decode failed: {error}")),
            }
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
    };
    drop(state);
    shared.changed();
    written
}

pub(super) fn put(
    state: &mut State,
    options: &ConsulOptions,
    parts: &[&str],
    query: &Query,
    payload: &Value,
) -> Answer<Found> {
    let own = options.datacenters[0].as_str();
    let agent = options.node.as_str();
    match parts {
        ["catalog", "register"] => {
            return catalog_register(state, options, payload).map(|()| Found::json(&json!(true)));
        }
        ["catalog", "deregister"] => {
            return catalog_deregister(state, options, payload).map(|()| Found::json(&json!(true)));
        }
        ["session", ..] => return put_session(state, options, parts, query, payload),
        _ => {}
    }
    let Some(store) = state.stores.get_mut(own) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    match parts {
        ["agent", "service", "register"] => {
            store.agent_register(options, payload, query.has("replace-existing-checks"))?;
        }
        ["agent", "service", "deregister", id] => {
            if !store.remove_service(agent, id) {
                return refuse(
                    StatusCode::NOT_FOUND,
                    format!(
                        "Unknown service ID {id:?}. Ensure that the service ID is passed, not the service name."
                    ),
                );
            }
        }
        // [agent/service, maintenance] Implemented as a critical check with a well-known name.
        ["agent", "service", "maintenance", id] => {
            if !store.services.contains_key(&(agent.to_owned(), (*id).to_owned())) {
                return refuse(StatusCode::NOT_FOUND, format!("Unknown service ID {id:?}"));
            }
            store.maintenance(agent, &format!("_service_maintenance:{id}"), id, query)?;
        }
        ["agent", "maintenance"] => store.maintenance(agent, "_node_maintenance", "", query)?,
        ["agent", "check", "register"] => {
            store.agent_check(options, payload, text_of(payload, "ServiceID"), 0)?
        }
        ["agent", "check", "deregister", id] => store.remove_check(agent, id),
        ["agent", "check", verb @ ("pass" | "warn" | "fail" | "update"), id] => {
            store.update_ttl(agent, verb, id, query, payload)?;
        }
        _ => return refuse(StatusCode::NOT_FOUND, "404 page not found"),
    }
    Ok(Found::nothing())
}

/// [catalog, register entity] Registers a node, and optionally a service and checks.
pub(super) fn catalog_register(state: &mut State, options: &ConsulOptions, payload: &Value) -> Answer<()> {
    let (node, address) = (text_of(payload, "Node"), text_of(payload, "Address"));
    if node.is_empty() || address.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "Must provide node and address");
    }
    let dc = if text_of(payload, "Datacenter").is_empty() {
        options.datacenters[0].clone()
    } else {
        text_of(payload, "Datacenter").to_owned()
    };
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    // [catalog, `SkipNodeUpdate`] Keeps an existing node.
    let skip = field(payload, "SkipNodeUpdate").and_then(Value::as_bool).unwrap_or_default();
    if !(skip && store.nodes.contains_key(node)) {
        store.put_node(
            node,
            json!({
                "ID": text_of(payload, "ID"), "Node": node, "Address": address, "Datacenter": dc,
                "TaggedAddresses": object(payload, "TaggedAddresses"), "Meta": object(payload, "NodeMeta"),
            }),
        );
    }
    if let Some(service) = field(payload, "Service").filter(|service| !service.is_null()) {
        store.put_service(node, service)?;
    }
    let one = field(payload, "Check").filter(|check| !check.is_null());
    let more = field(payload, "Checks").and_then(Value::as_array).into_iter().flatten();
    for check in one.into_iter().chain(more) {
        let id = first(&[text_of(check, "CheckID"), text_of(check, "Name")]).to_owned();
        let status = first(&[text_of(check, "Status"), "critical"]).to_owned();
        store.put_check(node, &id, check, text_of(check, "ServiceID"), &status, text_of(check, "Output"))?;
    }
    Ok(())
}

/// [catalog, deregister entity] Removes a check, a service with its checks, or a node with everything on it.
pub(super) fn catalog_deregister(state: &mut State, options: &ConsulOptions, payload: &Value) -> Answer<()> {
    let node = text_of(payload, "Node");
    if node.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "Must provide node");
    }
    let dc = first(&[text_of(payload, "Datacenter"), &options.datacenters[0]]).to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    match (text_of(payload, "ServiceID"), text_of(payload, "CheckID")) {
        ("", "") => store.remove_node(node),
        ("", check) => store.remove_check(node, check),
        (service, _) => {
            store.remove_service(node, service);
        }
    }
    Ok(())
}

/// [session] Creates, renews and destroys sessions.
pub(super) fn put_session(
    state: &mut State,
    options: &ConsulOptions,
    parts: &[&str],
    query: &Query,
    payload: &Value,
) -> Answer<Found> {
    let dc = datacenter(state, options, query)?.to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    let value = match parts {
        ["session", "create"] => json!({"ID": store.create_session(&options.node, payload)?}),
        // [session, delete] A missing one is no error.
        ["session", "destroy", id] => {
            store.destroy_session(id);
            json!(true)
        }
        ["session", "renew", id] => match store.sessions.get_mut(*id) {
            Some(session) => {
                session.deadline = session.ttl.map(|ttl| Instant::now() + ttl);
                json!([session.value])
            }
            None => return refuse(StatusCode::NOT_FOUND, format!("Session id '{id}' not found")),
        },
        _ => return refuse(StatusCode::NOT_FOUND, "404 page not found"),
    };
    Ok(Found::json(&value))
}

/// [kv, create/update] Writes a key, subject to `cas`, `acquire` and `release`.
pub(super) fn put_key(
    state: &mut State,
    options: &ConsulOptions,
    key: &str,
    query: &Query,
    body: &Bytes,
) -> Answer<Found> {
    let dc = datacenter(state, options, query)?.to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    let before = store.kv.get(key).cloned();
    let cas = query.get("cas").map(str::parse::<u64>).transpose();
    let Ok(cas) = cas else { return refuse(StatusCode::BAD_REQUEST, "Invalid cas") };
    if cas.is_some_and(|cas| cas != before.as_ref().map_or(0, |pair| pair.modified)) {
        return Ok(Found::json(&json!(false)));
    }
    let index = store.next();
    let mut pair = before.unwrap_or_else(|| Pair { created: index, ..Pair::default() });
    if let Some(session) = query.get("acquire") {
        if !store.sessions.contains_key(session) {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, format!("invalid session {session:?}"));
        }
        let delayed = store.delayed.get(key).is_some_and(|until| Instant::now() < *until);
        match &pair.session {
            Some(owner) if owner == session => {}
            None if !delayed => {
                pair.session = Some(session.to_owned());
                pair.locks += 1;
            }
            _ => return Ok(Found::json(&json!(false))),
        }
    }
    if let Some(session) = query.get("release") {
        if pair.session.as_deref() != Some(session) {
            return Ok(Found::json(&json!(false)));
        }
        pair.session = None;
    }
    pair.flags = query.get("flags").and_then(|flags| flags.parse().ok()).unwrap_or(pair.flags);
    pair.value = body.to_vec();
    pair.modified = index;
    store.kv.insert(key.to_owned(), pair);
    Ok(Found::json(&json!(true)))
}

/// [kv, delete] Deletes keys, with `recurse` and `cas`.
pub(super) fn delete_key(
    state: &mut State,
    options: &ConsulOptions,
    key: &str,
    query: &Query,
) -> Answer<Found> {
    let dc = datacenter(state, options, query)?.to_owned();
    let Some(store) = state.stores.get_mut(&dc) else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "No path to datacenter");
    };
    let cas = query.get("cas").and_then(|cas| cas.parse::<u64>().ok());
    if cas.is_some_and(|cas| cas == 0 || store.kv.get(key).is_none_or(|pair| pair.modified != cas)) {
        return Ok(Found::json(&json!(false)));
    }
    let recurse = query.has("recurse");
    store.kv.retain(|name, _| !(name == key || recurse && name.starts_with(key)));
    store.deleted_index = store.next();
    Ok(Found::json(&json!(true)))
}
