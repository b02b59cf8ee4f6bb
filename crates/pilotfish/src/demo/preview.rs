//! Preview of the resources for an Envoy, if none is found.

use super::picture::Picture;
use anyhow::Result;
use pilotfish_admin::ControlPlane;
use pilotfish_admin_state::AdminState;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Any, ResourceType, to_json};
use pilotfish_translate::{Proxy, Snapshot, ViewId};
use prost::Message;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Waits until the example is read, then prints the names of all resources and the complete routes.
pub(super) async fn show(state: &AdminState, picture: &Picture) -> Result<()> {
    while !state.readiness().ready {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let node = Node { id: "sidecar~127.0.0.1~demo.shop~shop.svc.cluster.local".into(), ..Node::default() };
    let client = state.translator.connect(Proxy::from_node(&node)?);
    let snapshot = state.translator.snapshot();
    let mut routes = BTreeSet::new();
    for ty in [ResourceType::Cluster, ResourceType::Listener] {
        let Some(view) = snapshot.view(&client, ty) else { continue };
        let names = snapshot.names(view);
        picture.say(&format!("{} ({}):", ty.short().to_uppercase(), names.len()));
        for name in names.iter() {
            picture.say(&format!("  {name}"));
            if ty == ResourceType::Listener {
                route_names(&json(&snapshot, view, name), &mut routes);
            }
        }
    }
    if let Some(view) = snapshot.view(&client, ResourceType::Route) {
        for name in routes {
            picture.say(&format!("RDS {name}:\n{:#}", json(&snapshot, view, &name)));
        }
    }
    Ok(())
}

fn json(snapshot: &Snapshot<'_>, view: ViewId, name: &str) -> Value {
    let packed =
        snapshot.get(view, name).and_then(|resource| Any::decode(resource.body).ok()).unwrap_or_default();
    to_json(&packed.type_url, &packed.value).unwrap_or_default()
}

/// Collects the names of the route configurations to which a listener refers.
fn route_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            names.extend(fields.get("route_config_name").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| route_names(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| route_names(item, names)),
        _ => {}
    }
}
