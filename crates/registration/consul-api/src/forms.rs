//! Instances, checks and agents in the JSON of Consul's answers.

use crate::ConsulSettings;
use crate::catalog::{CheckState, Entry};
use crate::service::{Service, TaggedAddress};
use serde_json::{Map, Value, json};

/// Fields of [`instance`], for filters.
pub(crate) const INSTANCE_FIELDS: &[&str] = &[
    "Node",
    "Address",
    "Datacenter",
    "ServiceID",
    "ServiceName",
    "ServiceTags",
    "ServiceAddress",
    "ServicePort",
    "ServiceMeta",
    "ServiceWeights",
    "ServiceEnableTagOverride",
];
/// Fields of [`health`], for filters.
pub(crate) const HEALTH_FIELDS: &[&str] = &["Node", "Service", "Checks"];
/// Fields of [`check`], for filters.
pub(crate) const CHECK_FIELDS: &[&str] = &[
    "Node",
    "CheckID",
    "Name",
    "Status",
    "Notes",
    "Output",
    "ServiceID",
    "ServiceName",
    "ServiceTags",
    "Type",
];
/// Fields of [`agent_service`], for filters.
pub(crate) const AGENT_FIELDS: &[&str] =
    &["ID", "Service", "Tags", "Meta", "Port", "Address", "Weights", "EnableTagOverride", "Datacenter"];
/// Fields of [`node`], for filters.
pub(crate) const NODE_FIELDS: &[&str] = &["Node", "Address", "Datacenter"];

/// An agent: the address of its client.
pub(crate) fn node(name: &str, index: u64, settings: &ConsulSettings) -> Value {
    json!({
        "ID": "", "Node": name, "Address": name, "Datacenter": &*settings.datacenter,
        "TaggedAddresses": {"lan": name, "wan": name}, "Meta": {}, "CreateIndex": index, "ModifyIndex": index,
    })
}

/// An instance in `health/service`.
pub(crate) fn health(entry: &Entry, settings: &ConsulSettings) -> Value {
    let service = &entry.registered.service;
    let mut own = service_fields(service);
    own.insert("Proxy".to_owned(), json!({"Mode": "", "MeshGateway": {}, "Expose": {}}));
    own.insert("Connect".to_owned(), json!({}));
    own.insert("CreateIndex".to_owned(), entry.created.into());
    own.insert("ModifyIndex".to_owned(), entry.modified.into());
    let checks: Vec<Value> = entry.checks.iter().map(|state| check(entry, state)).collect();
    json!({"Node": node(&service.node, entry.created, settings), "Service": own, "Checks": checks})
}

/// An instance in `catalog/service`.
pub(crate) fn instance(entry: &Entry, settings: &ConsulSettings) -> Value {
    let service = &entry.registered.service;
    json!({
        "ID": "", "Node": service.node, "Address": service.node, "Datacenter": &*settings.datacenter,
        "TaggedAddresses": {"lan": service.node, "wan": service.node}, "NodeMeta": {},
        "ServiceKind": "", "ServiceID": service.id, "ServiceName": name(entry), "ServiceTags": service.tags,
        "ServiceAddress": service.address, "ServiceTaggedAddresses": tagged(service),
        "ServiceWeights": service.weights, "ServiceMeta": service.meta, "ServicePort": service.port,
        "ServiceSocketPath": "", "ServiceEnableTagOverride": service.enable_tag_override,
        "ServiceProxy": {"Mode": "", "MeshGateway": {}, "Expose": {}}, "ServiceConnect": {},
        "ServiceLocality": service.locality,
        "CreateIndex": entry.created, "ModifyIndex": entry.modified,
    })
}

/// A check of an instance.
pub(crate) fn check(entry: &Entry, state: &CheckState) -> Value {
    let service = &entry.registered.service;
    json!({
        "Node": service.node, "CheckID": state.id, "Name": state.name, "Status": state.status.name(),
        "Notes": state.notes, "Output": state.output, "ServiceID": service.id, "ServiceName": name(entry),
        "ServiceTags": service.tags, "Type": state.kind, "Interval": "", "Timeout": "", "ExposedPort": 0,
        "Definition": {}, "CreateIndex": entry.created, "ModifyIndex": entry.modified,
    })
}

/// A service in the lists of an agent.
pub(crate) fn agent_service(entry: &Entry, settings: &ConsulSettings) -> Value {
    let mut own = service_fields(&entry.registered.service);
    own.insert("Datacenter".to_owned(), (*settings.datacenter).into());
    Value::Object(own)
}

/// Answer about an agent.
pub(crate) fn agent(name: &str, settings: &ConsulSettings) -> Value {
    let datacenter = &*settings.datacenter;
    json!({
        "Config": {
            "Datacenter": datacenter, "PrimaryDatacenter": datacenter, "NodeName": name, "NodeID": "",
            "Server": true, "Revision": "", "Version": VERSION,
        },
        "Member": {
            "Name": name, "Addr": name, "Port": 8301, "Status": 1,
            "Tags": {"dc": datacenter, "role": "consul"},
        },
        "Meta": {},
    })
}

/// Version of Consul whose API is served.
const VERSION: &str = "1.15.0";

/// Returns the name that the service is listed with.
fn name(entry: &Entry) -> String {
    entry.registered.service.name.to_lowercase()
}

fn service_fields(service: &Service) -> Map<String, Value> {
    let fields = json!({
        "ID": service.id, "Service": service.name.to_lowercase(), "Tags": service.tags, "Meta": service.meta,
        "Address": service.address, "Port": service.port, "SocketPath": "", "Weights": service.weights,
        "TaggedAddresses": tagged(service), "EnableTagOverride": service.enable_tag_override,
    });
    let mut fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if let Some(locality) = &service.locality {
        fields.insert("Locality".to_owned(), json!(locality));
    }
    fields
}

/// Returns the tagged addresses. An instance with an address has it as `lan_ipv4` and so on, as in Consul.
fn tagged(service: &Service) -> Value {
    let mut tagged = service.tagged_addresses.clone();
    if let Ok(address) = service.address.parse::<std::net::IpAddr>() {
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        for network in ["lan", "wan"] {
            let own = TaggedAddress { address: service.address.clone(), port: service.port };
            tagged.entry(format!("{network}_{family}")).or_insert(own);
        }
    }
    json!(tagged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tests::entry;

    #[test]
    fn fields_of_filters_are_those_of_the_answers() {
        let settings = ConsulSettings::default();
        let entry = entry(r#"{"Name":"a","Port":1,"Check":{"TTL":"1s"}}"#);
        let state = entry.checks.first().unwrap();
        for (value, fields) in [
            (instance(&entry, &settings), INSTANCE_FIELDS),
            (health(&entry, &settings), HEALTH_FIELDS),
            (check(&entry, state), CHECK_FIELDS),
            (agent_service(&entry, &settings), AGENT_FIELDS),
            (node("n", 1, &settings), NODE_FIELDS),
        ] {
            assert!(fields.iter().all(|field| value.get(field).is_some()), "{value}: {fields:?}");
        }
    }
}
