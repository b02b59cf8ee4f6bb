//! Dump of the resources of one proxy in the newest world, in the format of Envoy's `/config_dump`.

use pilotfish_proto::{Any, ResourceType, to_json};
use pilotfish_translate::{Client, EncodedResource, Proxy, Translator};
use pilotfish_xds::{ConnectionStatus, Names};
use prost::Message;
use serde_json::{Value, json};

/// Returns the dump of a connected proxy; `None` if its node cannot be read, which connecting would have
/// refused.
#[must_use]
pub(crate) fn config_dump(
    translator: &Translator,
    connection: &ConnectionStatus,
    include_eds: bool,
) -> Option<Value> {
    // Equal proxies share their views, so this one gets the resources of the connected one.
    let client = translator.connect(Proxy::from_node(&connection.node).ok()?);
    let read = |ty| resources_of(translator, &client, connection, ty);
    let mut configs = vec![
        section("ClustersConfigDump", "dynamic_active_clusters", |out| {
            entries(&read(ResourceType::Cluster), "cluster", out);
        }),
        section("ListenersConfigDump", "dynamic_listeners", |out| {
            listeners(&read(ResourceType::Listener), out)
        }),
        section("RoutesConfigDump", "dynamic_route_configs", |out| {
            entries(&read(ResourceType::Route), "route_config", out);
        }),
    ];
    if include_eds {
        configs.push(section("EndpointsConfigDump", "dynamic_endpoint_configs", |out| {
            entries(&read(ResourceType::Endpoint), "endpoint_config", out);
        }));
    }
    Some(json!({ "configs": configs }))
}

fn section(message: &str, field: &str, fill: impl FnOnce(&mut Vec<Value>)) -> Value {
    let mut rows = Vec::new();
    fill(&mut rows);
    json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{message}"), field: rows})
}

fn entries(resources: &[EncodedResource], field: &str, out: &mut Vec<Value>) {
    out.extend(
        resources.iter().map(|resource| json!({"version_info": version(resource), field: body(resource)})),
    );
}

fn listeners(resources: &[EncodedResource], out: &mut Vec<Value>) {
    for resource in resources {
        let state = json!({"version_info": version(resource), "listener": body(resource)});
        out.push(json!({"name": resource.name, "active_state": state}));
    }
}

/// Returns the resources of a type to which the proxy subscribes. The snapshot is released between resources
/// if the next world waits for it, so that pages for operators delay no proxy.
pub(crate) fn resources_of(
    translator: &Translator,
    client: &Client,
    connection: &ConnectionStatus,
    ty: ResourceType,
) -> Vec<EncodedResource> {
    let mut snapshot = translator.snapshot();
    let Some(view) = snapshot.view(client, ty) else { return Vec::new() };
    let names = match connection.types.get(&ty).map(|status| &status.names) {
        Some(Names::Named(names)) => names.iter().cloned().collect(),
        Some(Names::Wildcard) => {
            while !snapshot.prepare(view) {
                drop(snapshot);
                snapshot = translator.snapshot();
            }
            snapshot.names(view)
        }
        None => return Vec::new(),
    };
    let mut found = Vec::new();
    for name in names.iter() {
        found.extend(snapshot.get(view, name));
        if snapshot.is_waited_for() {
            drop(snapshot);
            snapshot = translator.snapshot();
        }
    }
    found
}

fn version(resource: &EncodedResource) -> String {
    format!("{:016x}", resource.version)
}

fn body(resource: &EncodedResource) -> Value {
    let packed = Any::decode(resource.body.clone()).unwrap_or_default();
    to_json(&packed.type_url, &packed.value).unwrap_or_else(|error| json!({"@error": error.to_string()}))
}
