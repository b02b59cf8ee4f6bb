//! The world as resources for other control planes: configuration as it is, and services of other registries
//! as ServiceEntries.

mod services;
#[cfg(test)]
mod tests;

use crate::kinds::{KINDS, McpKind};
use crate::resource::{Metadata, Resource, json_to_body};
use pilotfish_config::whole_spec_json;
use pilotfish_model::{ChangeSet, Fact, Kind, Object, ObjectKey, ServiceKey, World};
use prost::Message;
use prost_types::{Any, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Debug, PartialEq)]
pub struct ServedResource {
    /// Name as `NAMESPACE/NAME`; empty for mesh config.
    pub name: Arc<str>,
    /// Version of the content, equal in all replicas.
    pub version: u64,
    /// Encoded `Any` with the envelope.
    pub any: Vec<u8>,
}

/// One difference: kind, name, and the resource, or `None` if it was removed.
pub type Difference = (Kind, Arc<str>, Option<ServedResource>);

/// Follows worlds and computes the changes of the resources.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Versions of all resources.
    versions: BTreeMap<(Kind, Arc<str>), u64>,
    /// Name of each service's resource.
    services: BTreeMap<ServiceKey, Arc<str>>,
    started: bool,
}

impl Catalogue {
    /// Changes since the last call; all resources at the first call.
    pub fn update(&mut self, world: &World, changes: &ChangeSet) -> Vec<Difference> {
        let (objects, services) = match std::mem::replace(&mut self.started, true) {
            true => affected(changes),
            false => everything(world),
        };
        let mut differences = Vec::new();
        for key in objects {
            let name = name_of(&key);
            let resource = world.object(&key).and_then(|object| of_object(object, name.clone()));
            self.set(key.kind, name, resource, &mut differences);
        }
        for key in services {
            self.service(world, key, &mut differences);
        }
        differences
    }

    fn service(&mut self, world: &World, key: ServiceKey, differences: &mut Vec<Difference>) {
        let made = world
            .services_of(&key)
            .and_then(|services| services.first())
            .filter(|service| services::is_served(service))
            .map(|service| (services::name(service), services::entry(service, world.endpoints_of(&key))));
        let (name, resource) = made.unzip();
        let before = match &name {
            Some(name) => self.services.insert(key, name.clone()),
            None => self.services.remove(&key),
        };
        if let Some(before) = before.filter(|before| Some(before) != name.as_ref()) {
            self.set(Kind::ServiceEntry, before, None, differences);
        }
        if let Some(name) = name {
            self.set(Kind::ServiceEntry, name, resource.flatten(), differences);
        }
    }

    fn set(
        &mut self,
        kind: Kind,
        name: Arc<str>,
        resource: Option<ServedResource>,
        differences: &mut Vec<Difference>,
    ) {
        let place = (kind, name);
        let before = match &resource {
            Some(resource) => self.versions.insert(place.clone(), resource.version),
            None => self.versions.remove(&place),
        };
        if before != resource.as_ref().map(|resource| resource.version) {
            differences.push((place.0, place.1, resource));
        }
    }
}

/// Objects and services that changes affect.
fn affected(changes: &ChangeSet) -> (BTreeSet<ObjectKey>, BTreeSet<ServiceKey>) {
    let (mut objects, mut services) = (BTreeSet::new(), BTreeSet::new());
    for fact in &changes.facts {
        match fact {
            Fact::Object(key) if McpKind::of(key.kind).is_some() => {
                objects.insert(key.clone());
            }
            Fact::Service(key) | Fact::Endpoints(key) => {
                services.insert(key.clone());
            }
            _ => {}
        }
    }
    (objects, services)
}

fn everything(world: &World) -> (BTreeSet<ObjectKey>, BTreeSet<ServiceKey>) {
    let objects = KINDS.iter().flat_map(|entry| world.objects(entry.kind));
    let services = world.services().map(|(key, _)| key.clone());
    (objects.map(|object| object.key().clone()).collect(), services.collect())
}

fn name_of(key: &ObjectKey) -> Arc<str> {
    match key.kind {
        Kind::MeshConfig => Arc::default(),
        _ => format!("{}/{}", key.namespace, key.name).into(),
    }
}

/// An object as a resource. An object that is closed because it is invalid is sent as invalid: the receiver
/// closes it in turn, or keeps its last good version.
fn of_object(object: &Object, name: Arc<str>) -> Option<ServedResource> {
    let entry = McpKind::of(object.key().kind)?;
    let meta = &object.meta;
    let labels = meta.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let metadata = Metadata {
        name: name.to_string(),
        create_time: (meta.created > 0).then_some(Timestamp { seconds: meta.created, nanos: 0 }),
        version: String::new(),
        labels,
        annotations: (*meta.annotations).clone(),
    };
    resource(entry, name, metadata, whole_spec_json(object).as_ref())
}

/// A resource with this content. Its version is a hash of content and metadata.
fn resource(
    entry: &McpKind,
    name: Arc<str>,
    mut metadata: Metadata,
    spec: Option<&Value>,
) -> Option<ServedResource> {
    let body = match spec.map(|spec| json_to_body(entry, spec)) {
        Some(Ok(body)) => body,
        None => Any { type_url: format!("type.googleapis.com/{}", entry.message), value: vec![0xff] },
        Some(Err(error)) => {
            tracing::warn!(
                kind = %entry.kind,
                name = &*name,
                %error,
                "cannot encode an object; not serving it to other control planes"
            );
            return None;
        }
    };
    let text = spec.map(Value::to_string).unwrap_or_default();
    let version = xxh3_64(&[text.as_bytes(), &metadata.encode_to_vec()].concat()).max(1);
    let any = match entry.kind {
        Kind::MeshConfig => body,
        _ => {
            metadata.version = format!("{version:016x}");
            Resource { metadata: Some(metadata), body: Some(body) }.into_any()
        }
    };
    Some(ServedResource { name, version, any: any.encode_to_vec() })
}
