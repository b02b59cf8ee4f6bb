//! The lines of a record.

use super::Hashes;
use pilotfish_config::extensions::WasmPlugin;
use pilotfish_model::{
    ClusterDomain, Endpoint, Kind, NetworkGateway, Object, ObjectKey, ObjectMeta, SecretReader, Service,
    ServiceKey, ShardKey, Update, Workload, WorkloadKey,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The form of records that this program writes and reads.
pub(super) const FORMAT: u32 = 2;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// The first.
    Begin(Begin),
    /// A proxy that was connected.
    Proxy(RecordedProxy),
    /// What was published: everything in the first one, then what changed.
    Publish(Publish),
    /// The last.
    End(End),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begin {
    pub(super) format: u32,
    /// The version of the program that wrote it.
    pub(super) version: String,
    pub(super) at: String,
    pub(super) domain: ClusterDomain,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedProxy {
    pub(super) name: String,
    /// Its `envoy.config.core.v3.Node`, encoded, in hexadecimal digits.
    pub(super) node: String,
    /// Proven identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) identities: Vec<String>,
    /// What it subscribes to by name of types that do not follow from others.
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
    /// Of what proxies get at the end.
    pub(super) hashes: Hashes,
    /// Secrets that are left out.
    pub(super) secrets: usize,
    /// Objects that are left out because they are in force in a closed form, which JSON cannot say.
    pub(super) closed: usize,
    /// Proxies and types of which the running control plane sent something else: they depend on what is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) differ: Vec<String>,
}

/// [`Update`] as JSON.
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

/// Text in the place of a value that is not recorded.
const REDACTED: &str = "redacted";

/// The update without the values of env in WasmPlugins, where credentials are passed to plugins.
pub(super) fn redacted(update: Update) -> Update {
    let Update::Object(object) = &update else { return update };
    let Some(plugin) = object.typed::<WasmPlugin>() else { return update };
    let mut plugin = (*plugin).clone();
    for variable in plugin.vm_config.iter_mut().flat_map(|config| &mut config.env) {
        if !variable.value.is_empty() {
            variable.value = REDACTED.to_owned();
        }
    }
    Update::Object(Object::new((*object.meta).clone(), plugin))
}

/// Why an update is not in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// It has a Secret.
    Secret,
    /// JSON cannot say it.
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
