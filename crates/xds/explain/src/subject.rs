//! Proxies whose resources are compared: connected ones, and the sidecar or gateway that a workload could be.

use pilotfish_model::{ChangeSet, Namespace, TlsMode, Workload, World};
use pilotfish_proto::envoy::config::core::v3::{Locality, Node};
use pilotfish_proto::{ResourceType, Struct, Value, ValueKind};
use pilotfish_translate::{Proxy, Translator};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Version that a proxy beside Istio's agent reports (`ISTIO_VERSION`).
const ISTIO_VERSION: &str = "1.31.0";

#[derive(Clone, Debug)]
pub struct Subject {
    /// Name with namespace, such as `web-0.shop`.
    pub name: String,
    pub proxy: Proxy,
    /// Subscriptions by name, by type. Types without an entry are subscribed to as Envoy does: by the
    /// references of clusters and listeners.
    pub names: BTreeMap<ResourceType, BTreeSet<Arc<str>>>,
}

/// A sidecar for each Pod and WorkloadEntry of some worlds; of equal ones only one, since they receive the
/// same. Without workloads, a sidecar for each namespace with services.
#[must_use]
pub fn subjects_of(worlds: &[&World]) -> Vec<Subject> {
    sidecars_of(worlds, &BTreeMap::new()).into_values().collect()
}

/// Subjects of a plan from one world to another: a router for each workload that a gateway selects in one of
/// them, and a sidecar for each other one. If no workload is a gateway, a router with the labels that
/// gateways select; if none has a sidecar, a sidecar for each namespace with services. `empty` is a
/// translator with the settings of the serving one.
///
/// A selected workload with the label of a sidecar may be either, so it is planned as both.
#[must_use]
pub fn subjects_of_change(empty: &Translator, before: &Arc<World>, after: &Arc<World>) -> Vec<Subject> {
    let mut routers: BTreeMap<String, Subject> = BTreeMap::new();
    let mut selectors = BTreeMap::new();
    for world in [before, after] {
        // The separate translator needs no changes between the worlds.
        let translator = empty.scratch();
        translator.publish(world.clone(), &ChangeSet::default());
        let snapshot = translator.snapshot();
        for subject in gateways_of(world) {
            if snapshot.is_gateway(&Arc::new(subject.proxy.clone())) {
                routers.entry(subject.name.clone()).or_insert(subject);
            }
        }
        for (labels, namespace) in snapshot.gateway_selectors().iter() {
            selectors.entry(labels.clone()).or_insert_with(|| namespace.clone());
        }
    }
    let mut all = sidecars_of(&[before, after], &routers);
    if routers.is_empty() {
        all.extend(selectors.iter().filter_map(|(labels, namespace)| selected(labels, namespace)));
    }
    for (name, subject) in routers {
        let name = if all.contains_key(&name) { format!("{name} (gateway)") } else { name };
        all.insert(name.clone(), Subject { name, ..subject });
    }
    all.into_values().collect()
}

/// Sidecars of workloads that are not only gateways, by name.
fn sidecars_of(worlds: &[&World], gateways: &BTreeMap<String, Subject>) -> BTreeMap<String, Subject> {
    let mut subjects: BTreeMap<String, Subject> = BTreeMap::new();
    for world in worlds {
        for workload in world.workloads() {
            let name = name_of(workload);
            if gateways.contains_key(&name) && workload.tls_mode != TlsMode::Istio {
                continue;
            }
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
    subjects
}

/// A router with these labels, for a gateway without workloads.
fn selected(labels: &BTreeMap<String, String>, namespace: &Namespace) -> Option<(String, Subject)> {
    let words: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let words = if words.is_empty() { "any".to_owned() } else { words.join(",") };
    let name = format!("gateway {words}.{namespace}");
    let labels = labels.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    let labels = Value { kind: Some(ValueKind::StructValue(Struct { fields: labels })) };
    let fields = [("LABELS", labels), ("ISTIO_VERSION", text(ISTIO_VERSION))];
    let metadata = Some(Struct { fields: fields.map(|(key, value)| (key.to_owned(), value)).into() });
    let id = format!("router~127.0.0.1~gateway.{namespace}~{namespace}.svc.cluster.local");
    let proxy = Proxy::from_node(&Node { id, metadata, ..Node::default() }).ok()?;
    Some((name.clone(), Subject { name, proxy, names: BTreeMap::new() }))
}

fn name_of(workload: &Workload) -> String {
    format!("{}.{}", workload.key.name, workload.key.namespace)
}

/// Gateways that the Pods and WorkloadEntries of a world could be: standalone Envoys.
#[must_use]
pub fn gateways_of(world: &World) -> Vec<Subject> {
    let gateway = |workload: &Arc<Workload>| {
        let name = name_of(workload);
        Some(Subject { name, proxy: proxy("router", workload)?, names: BTreeMap::new() })
    };
    world.workloads().filter_map(gateway).collect()
}

/// Sidecar of the workload with a name and namespace (`web-0.shop`), or the gateway that it could be.
#[must_use]
pub fn proxy_named(world: &World, wanted: &str, is_gateway: bool) -> Option<Proxy> {
    let (name, namespace) = wanted.rsplit_once('.')?;
    let is_meant =
        |workload: &&Arc<Workload>| *workload.key.name == *name && workload.key.namespace == *namespace;
    let kind = if is_gateway { "router" } else { "sidecar" };
    world.workloads().find(is_meant).and_then(|workload| proxy(kind, workload))
}

pub(crate) fn sidecar(workload: &Workload) -> Option<Proxy> {
    proxy("sidecar", workload)
}

/// Proxy of a workload, named as Istio's agent does.
fn proxy(kind: &str, workload: &Workload) -> Option<Proxy> {
    let address = workload.addresses.first()?;
    let (name, namespace) = (&workload.key.name, &workload.key.namespace);
    let labels = workload.labels.iter().map(|(key, value)| (key.to_string(), text(value))).collect();
    let labels = Value { kind: Some(ValueKind::StructValue(Struct { fields: labels })) };
    let fields = [
        ("LABELS", labels),
        ("NAMESPACE", text(namespace.as_str())),
        ("CLUSTER_ID", text(workload.key.cluster.as_str())),
        ("NETWORK", text(workload.network.as_str())),
        ("SERVICE_ACCOUNT", text(&workload.service_account)),
        ("ISTIO_VERSION", text(ISTIO_VERSION)),
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

fn text(text: &str) -> Value {
    Value { kind: Some(ValueKind::StringValue(text.to_owned())) }
}
