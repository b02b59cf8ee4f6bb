//! What the tests of this crate share: short YAML, and worlds in short text.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(missing_docs, clippy::missing_docs_in_private_items, reason = "helpers of tests")]
#![allow(unreachable_pub, reason = "a module of several test files")]

pub mod live;
pub mod mesh;

use pilotfish_model::{Endpoint, Hostname, Kind, ObjectKey, Service, ServiceKey, World};
use pilotfish_registry::testing::{Scene, world_from_yaml};
use std::sync::Arc;

pub fn world(text: &str) -> Arc<World> {
    world_from_yaml(text, None, None).unwrap()
}

pub fn key(host: &str, namespace: &str) -> ServiceKey {
    ServiceKey { hostname: Hostname::parse(host).unwrap(), namespace: namespace.into() }
}

/// `web.ns` is the Kubernetes Service, anything else is a host in the namespace `ns`.
pub fn short_key(short: &str) -> ServiceKey {
    match short.split_once('.') {
        Some((name, namespace)) if !namespace.contains('.') && !namespace.starts_with("com") => {
            key(&format!("{name}.{namespace}.svc.cluster.local"), namespace)
        }
        _ => key(short, "ns"),
    }
}

pub fn services(world: &World, short: &str) -> Vec<Arc<Service>> {
    world.services_of(&short_key(short)).map(|services| services.to_vec()).unwrap_or_default()
}

pub fn service(world: &World, short: &str) -> Arc<Service> {
    services(world, short).first().unwrap_or_else(|| panic!("no service {short}")).clone()
}

/// All endpoints of a service.
pub fn endpoints_of(world: &World, short: &str) -> Vec<Arc<Endpoint>> {
    world.endpoints_of(&short_key(short)).map(|all| all.iter().cloned().collect()).unwrap_or_default()
}

/// `port-name address:port`, with the health where it is neither healthy nor unknown; sorted.
pub fn endpoints(world: &World, short: &str) -> Vec<String> {
    use pilotfish_model::HealthStatus::{Healthy, Unknown};
    let text = |endpoint: &Arc<Endpoint>| {
        let addresses =
            endpoint.addresses.iter().map(|address| address.to_string()).collect::<Vec<_>>().join("+");
        let health = match endpoint.health {
            Healthy | Unknown => String::new(),
            other => format!(" {other:?}"),
        };
        format!("{} {addresses}:{}{health}", endpoint.service_port, endpoint.port)
    };
    let mut all: Vec<String> = endpoints_of(world, short).iter().map(text).collect();
    all.sort();
    all
}

/// `Kind ns/name`, or `Kind name`.
pub fn object_key(text: &str) -> ObjectKey {
    let (kind, name) = text.split_once(' ').unwrap();
    let kind = *Kind::ALL.iter().find(|known| known.name() == kind).unwrap();
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(kind, namespace, name)
}

/// One step of a sequence: objects to apply, or `- Kind ns/name` lines of objects to delete.
pub fn step(scene: &mut Scene, text: &str) {
    match text.strip_prefix("- ") {
        Some(key) => scene.delete(object_key(key.trim())),
        None => scene.apply(text).unwrap(),
    }
}

pub fn svc(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: ns}}\nspec: {spec}\n---\n")
}

/// An IPv4 slice of a service in `ns`.
pub fn slice(name: &str, service: &str, ports: &str, endpoints: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}, namespace: ns, labels: {{kubernetes.io/service-name: {service}}}}}\n\
         addressType: IPv4\nports: {ports}\nendpoints: {endpoints}\n---\n"
    )
}

/// A running pod of `ns` with service account `sa`; `ready` is `True` or `False`.
pub fn pod(name: &str, ip: &str, labels: &str, ready: &str) -> String {
    pod_with(name, ip, labels, ready, "", "")
}

/// The same with more metadata and more of the spec, each beginning with a comma.
pub fn pod_with(name: &str, ip: &str, labels: &str, ready: &str, metadata: &str, spec: &str) -> String {
    let ips: Vec<String> = ip.split('+').map(|ip| format!("{{ip: '{ip}'}}")).collect();
    let first = ip.split('+').next().unwrap();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ns, labels: {labels}{metadata}}}\n\
         spec: {{serviceAccountName: sa, containers: [{{name: app, image: x}}]{spec}}}\n\
         status: {{phase: Running, podIP: '{first}', podIPs: [{}], conditions: [{{type: Ready, status: '{ready}'}}]}}\n---\n",
        ips.join(", ")
    )
}

pub fn se(name: &str, spec: &str) -> String {
    se_with(name, "", spec)
}

/// A ServiceEntry of `ns` with more metadata, beginning with a comma.
pub fn se_with(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{name: {name}, namespace: ns{metadata}}}\nspec: {spec}\n---\n"
    )
}

pub fn we(name: &str, spec: &str) -> String {
    we_with(name, "", spec)
}

/// A WorkloadEntry of `ns` with more metadata, beginning with a comma.
pub fn we_with(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\n\
         metadata: {{name: {name}, namespace: ns{metadata}}}\nspec: {spec}\n---\n"
    )
}

/// A ServiceExport of `ns`.
pub fn export(name: &str) -> String {
    format!(
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\n\
         metadata: {{name: {name}, namespace: ns}}\n---\n"
    )
}

/// A ServiceImport of `ns` with these addresses.
pub fn import(name: &str, ips: &str) -> String {
    format!(
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\n\
         metadata: {{name: {name}, namespace: ns}}\nspec: {{type: ClusterSetIP, ips: {ips}, ports: [{{port: 80}}]}}\n---\n"
    )
}

pub fn same(a: &World, b: &World) -> bool {
    a.services().eq(b.services()) && a.endpoints().eq(b.endpoints()) && a.workloads().eq(b.workloads())
}

/// The identity of an endpoint; empty for none.
pub fn identity(endpoint: &Endpoint) -> String {
    endpoint.attributes.identity.as_ref().map(ToString::to_string).unwrap_or_default()
}
