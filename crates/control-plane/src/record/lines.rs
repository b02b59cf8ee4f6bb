//! Lines of a record.

use super::Hashes;
use pilotfish_config::extensions::{TrafficExtension, VmConfig, WasmPlugin};
use pilotfish_model::{
    ClusterDomain, Endpoint, Kind, NetworkGateway, Object, ObjectKey, ObjectMeta, SecretReader, Service,
    ServiceKey, ShardKey, Switches, Update, Workload, WorkloadKey,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the format of records.
pub(super) const FORMAT: u32 = 2;

/// Line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    Begin(Begin),
    Proxy(RecordedProxy),
    /// Publication: everything in the first one, changes in the others.
    Publish(Publish),
    End(End),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begin {
    pub(super) format: u32,
    /// Version of the program that wrote the record.
    pub(super) version: String,
    pub(super) at: String,
    pub(super) domain: ClusterDomain,
    /// Those of the process; the default ones in records of versions without.
    #[serde(default)]
    pub(super) switches: Switches,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedProxy {
    pub(super) name: String,
    /// Encoded `envoy.config.core.v3.Node` of the proxy, in hexadecimal digits.
    pub(super) node: String,
    /// Identities that the connection proved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) identities: Vec<String>,
    /// Subscriptions by name, of types whose names do not follow from other resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) names: BTreeMap<String, Vec<Arc<str>>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Publish {
    pub(super) revision: u64,
    pub(super) at: String,
    pub(super) updates: Vec<RecordedUpdate>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct End {
    pub(super) revision: u64,
    /// Hashes of the resources of proxies at the end.
    pub(super) hashes: Hashes,
    /// Number of Secrets that are left out.
    pub(super) secrets: usize,
    /// Number of objects that are left out because they are in force in a closed form, which JSON cannot
    /// express.
    pub(super) closed: usize,
    /// Proxies and types for which the running control plane sent other resources, because they depend on
    /// objects that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) differ: Vec<String>,
}

/// Serializable form of [`Update`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RecordedUpdate {
    Services(ServiceKey, Arc<[Arc<Service>]>),
    Endpoints(ServiceKey, ShardKey, Arc<[Arc<Endpoint>]>),
    RemoveShard(ServiceKey, ShardKey),
    Workload(Arc<Workload>),
    RemoveWorkload(WorkloadKey),
    Object(Arc<ObjectMeta>, Value),
    RemoveObject(ObjectKey),
    NetworkGateways(Arc<[NetworkGateway]>),
    SecretAccess(SecretReader, Option<bool>),
}

/// Placeholder for a value that is not recorded.
const REDACTED: &str = "redacted";

/// Removes the values of `env` in WasmPlugins and TrafficExtensions, which may be credentials for plugins.
pub(super) fn redacted(update: Update) -> Update {
    let Update::Object(object) = &update else { return update };
    let meta = || (*object.meta).clone();
    if let Some(plugin) = object.typed::<WasmPlugin>() {
        let mut plugin = (*plugin).clone();
        plugin.vm_config.iter_mut().for_each(redact);
        return Update::Object(Object::new(meta(), plugin));
    }
    let Some(extension) = object.typed::<TrafficExtension>() else { return update };
    let mut extension = (*extension).clone();
    extension.wasm.iter_mut().filter_map(|wasm| wasm.vm_config.as_mut()).for_each(redact);
    Update::Object(Object::new(meta(), extension))
}

fn redact(config: &mut VmConfig) {
    for variable in config.env.iter_mut().filter(|variable| !variable.value.is_empty()) {
        REDACTED.clone_into(&mut variable.value);
    }
}

/// Reason why an update is left out of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Secret,
    /// The object is in force in a closed form, which JSON cannot express.
    Closed,
}

impl RecordedUpdate {
    pub(super) fn of(update: Update) -> Result<Self, LeftOut> {
        Ok(match update {
            Update::Services(key, services) => Self::Services(key, services),
            Update::Endpoints(key, shard, endpoints) => Self::Endpoints(key, shard, endpoints),
            Update::RemoveShard(key, shard) => Self::RemoveShard(key, shard),
            Update::Workload(workload) => Self::Workload(workload),
            Update::RemoveWorkload(key) => Self::RemoveWorkload(key),
            Update::Object(object) if object.key().kind == Kind::Secret => return Err(LeftOut::Secret),
            Update::Object(Object { meta, spec }) => {
                let content = pilotfish_config::whole_spec_json(&Object { meta: meta.clone(), spec });
                Self::Object(meta, content.ok_or(LeftOut::Closed)?)
            }
            Update::RemoveObject(key) => Self::RemoveObject(key),
            Update::NetworkGateways(gateways) => Self::NetworkGateways(gateways),
            Update::SecretAccess(reader, allowed) => Self::SecretAccess(reader, allowed),
        })
    }

    pub(super) fn into_update(self) -> Result<Update, String> {
        Ok(match self {
            Self::Services(key, services) => Update::Services(key, services),
            Self::Endpoints(key, shard, endpoints) => Update::Endpoints(key, shard, endpoints),
            Self::RemoveShard(key, shard) => Update::RemoveShard(key, shard),
            Self::Workload(workload) => Update::Workload(workload),
            Self::RemoveWorkload(key) => Update::RemoveWorkload(key),
            Self::Object(meta, content) => {
                let key = meta.key.clone();
                let object = pilotfish_config::object_of(Arc::unwrap_or_clone(meta), content);
                Update::Object(object.map_err(|error| format!("{key}: {error}"))?)
            }
            Self::RemoveObject(key) => Update::RemoveObject(key),
            Self::NetworkGateways(gateways) => Update::NetworkGateways(gateways),
            Self::SecretAccess(reader, allowed) => Update::SecretAccess(reader, allowed),
        })
    }
}
