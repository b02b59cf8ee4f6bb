//! A proxy whose resources are compared: a connected one, or a sidecar that a workload would have.

use pilotfish_model::{Workload, World};
use pilotfish_proto::envoy::config::core::v3::{Locality, Node};
use pilotfish_proto::{ResourceType, Struct, Value, ValueKind};
use pilotfish_translate::Proxy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A proxy whose resources are compared.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name: `web-0.shop`.
    pub name: String,
    /// The proxy.
    pub proxy: Proxy,
    /// What it subscribes to by name, by type. A type that is not named here is subscribed to as Envoy does: by what clusters and listeners
    /// refer to.
    pub names: BTreeMap<ResourceType, BTreeSet<Arc<str>>>,
}

/// A sidecar for each Pod and WorkloadEntry of some worlds; equal ones are as good as one, since they get the same. Where there is no
/// workload, a sidecar for each namespace that has services.
#[must_use]
pub fn subjects_of(worlds: &[&World]) -> Vec<Subject> {
    let mut subjects: BTreeMap<String, Subject> = BTreeMap::new();
    for world in worlds {
        for workload in world.workloads() {
            let name = format!("{}.{}", workload.key.name, workload.key.namespace);
            if let Some(proxy) = sidecar(workload) {
                subjects.entry(name.clone()).or_insert(Subject { name, proxy, names: BTreeMap::new() });
            }
        }
    }
    if subjects.is_empty() {
        for world in worlds {
            for (key, _) in world.services() {
                let name = format!("any.{}", key.namespace);
                let id = format!("sidecar~127.0.0.1~{name}~{}.svc.cluster.local", key.namespace);
                if let Ok(proxy) = Proxy::from_node(&Node { id, ..Node::default() }) {
                    subjects.entry(name.clone()).or_insert(Subject { name, proxy, names: BTreeMap::new() });
                }
            }
        }
    }
    subjects.into_values().collect()
}

/// The gateways that the Pods and WorkloadEntries of a world would be: Envoys that stand alone.
#[must_use]
pub fn gateways_of(world: &World) -> Vec<Subject> {
    let gateway = |workload: &Arc<Workload>| {
        let name = format!("{}.{}", workload.key.name, workload.key.namespace);
        Some(Subject { name, proxy: proxy("router", workload)?, names: BTreeMap::new() })
    };
    world.workloads().filter_map(gateway).collect()
}

/// The sidecar that the workload of a name and namespace (`web-0.shop`) would have, or the gateway that it would be.
#[must_use]
pub fn proxy_named(world: &World, wanted: &str, is_gateway: bool) -> Option<Proxy> {
    let (name, namespace) = wanted.rsplit_once('.')?;
    let is_meant =
        |workload: &&Arc<Workload>| *workload.key.name == *name && workload.key.namespace == *namespace;
    let kind = if is_gateway { "router" } else { "sidecar" };
    world.workloads().find(is_meant).and_then(|workload| proxy(kind, workload))
}

/// The sidecar of a workload.
pub(crate) fn sidecar(workload: &Workload) -> Option<Proxy> {
    proxy("sidecar", workload)
}

/// The proxy of a workload, as Istio's agent names it.
fn proxy(kind: &str, workload: &Workload) -> Option<Proxy> {
    let address = workload.addresses.first()?;
    let (name, namespace) = (&workload.key.name, &workload.key.namespace);
    let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.to_owned())) };
    let labels = workload.labels.iter().map(|(key, value)| (key.to_string(), text(value))).collect();
    let labels = Value { kind: Some(ValueKind::StructValue(Struct { fields: labels })) };
    let fields = [
        ("LABELS", labels),
        ("NAMESPACE", text(namespace.as_str())),
        ("CLUSTER_ID", text(workload.key.cluster.as_str())),
        ("NETWORK", text(workload.network.as_str())),
        ("SERVICE_ACCOUNT", text(&workload.service_account)),
        ("ISTIO_VERSION", text("1.29.1")),
    ];
    let metadata = Some(Struct { fields: fields.map(|(key, value)| (key.to_owned(), value)).into() });
    let mut parts = workload.locality.to_string();
    let mut part = || {
        let (first, rest) = parts
            .split_once('/')
            .map_or((parts.clone(), String::new()), |(first, rest)| (first.to_owned(), rest.to_owned()));
        parts = rest;
        first
    };
    let locality = Some(Locality { region: part(), zone: part(), sub_zone: part() });
    let id = format!("{kind}~{address}~{name}.{namespace}~{namespace}.svc.cluster.local");
    Proxy::from_node(&Node { id, metadata, locality, ..Node::default() }).ok()
}
