//! What the recorded cases' objects become, and back.

use super::{Catalogue, of_object};
use crate::kinds::{KINDS, McpKind};
use crate::resource::{Resource, body_to_json};
use pilotfish_config::networking::WorkloadEntry;
use pilotfish_config::{Limits, MeshFile, read, read_live, read_mesh_file};
use pilotfish_model::{ChangeSet, Fact, Kind, Object, ServiceKey, World};
use pilotfish_registry::testing::world_from_objects;
use prost::Message;
use prost_types::Any;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// All objects of the recorded cases that go over MCP, with the name of their case.
fn recorded() -> Vec<(String, Object)> {
    let mut all = Vec::new();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/cases");
    for case in std::fs::read_dir(cases).unwrap() {
        let folder = case.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let mut found = Vec::new();
        if let Ok(text) = std::fs::read(folder.join("config.yaml")) {
            found.extend(read("config.yaml", &text, &Limits::default()).objects);
        }
        if let Ok(text) = std::fs::read(folder.join("mesh.yaml")) {
            found.extend(read_mesh_file(MeshFile::Config, "mesh.yaml", &text, &Limits::default()).objects);
        }
        let objects = found.into_iter().map(|read| read.object);
        all.extend(
            objects
                .filter(|object| McpKind::of(object.key().kind).is_some())
                .map(|object| (name.clone(), object)),
        );
    }
    all
}

/// A resource as a client reads it.
fn read_back(entry: &McpKind, any: &[u8]) -> Result<Object, String> {
    let any = Any::decode(any).unwrap();
    if entry.kind == Kind::MeshConfig {
        let json = body_to_json(entry, &any).map_err(|error| error.to_string())?;
        let mut read =
            read_mesh_file(MeshFile::Config, "mcp", json.to_string().as_bytes(), &Limits::default());
        return read.objects.pop().map(|read| read.object).ok_or_else(|| format!("{:?}", read.rejected));
    }
    let resource = Resource::open(&any).unwrap();
    let metadata = resource.metadata.unwrap();
    let (namespace, name) = metadata.name.split_once('/').unwrap();
    let spec = body_to_json(entry, &resource.body.unwrap()).map_err(|error| error.to_string())?;
    let created = metadata.create_time.map(|time| time.to_string()).unwrap_or_default();
    let object = json!({"metadata": {"name": name, "namespace": namespace, "labels": metadata.labels,
        "annotations": metadata.annotations, "creationTimestamp": created}, "spec": spec});
    let read = read_live(entry.kind, &"mcp".into(), object.to_string().as_bytes());
    read.map(|read| read.object).map_err(|rejected| format!("{:?}: {object}", rejected.problems))
}

fn first_difference(a: &Object, b: &Object) -> String {
    let (a, b) = (format!("{:#?}", a.spec), format!("{:#?}", b.spec));
    let differ = a.lines().zip(b.lines()).enumerate().find(|(_, (a, b))| a != b);
    differ.map_or_else(String::new, |(line, (a, b))| format!("line {line}: {a} / {b}"))
}

#[test]
fn what_the_recorded_cases_have_survives_the_way_over_the_wire() {
    let (mut kinds, mut differ) = (std::collections::BTreeMap::new(), Vec::new());
    for (case, object) in recorded() {
        let entry = McpKind::of(object.key().kind).unwrap();
        let served = of_object(&object, super::name_of(object.key())).unwrap();
        let back = match read_back(entry, &served.any) {
            Ok(back) => back,
            Err(error) => {
                differ.push(format!("{case}: {}: {error}", object.key()));
                continue;
            }
        };
        // The status is not sent, and the health of a WorkloadEntry is in it.
        let workload = object.typed::<WorkloadEntry>();
        let has_status = workload.is_some_and(|workload| !workload.status.conditions.is_empty());
        if !has_status && !back.spec.equals(&*object.spec) {
            differ.push(format!("{case}: {}: {}", object.key(), first_difference(&object, &back)));
        }
        assert_eq!(
            (&back.meta.labels, &back.meta.annotations),
            (&object.meta.labels, &object.meta.annotations)
        );
        assert_eq!(back.meta.created, object.meta.created);
        *kinds.entry(entry.kind).or_insert(0) += 1;
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    let missing = KINDS.iter().filter(|entry| !kinds.contains_key(&entry.kind));
    let missing: Vec<&str> = missing.map(|entry| entry.kind.name()).collect();
    assert_eq!(missing, ["ProxyConfig"], "kinds that no case has");
}

fn world(text: &str) -> Arc<World> {
    let read = read("test.yaml", text.as_bytes(), &Limits::default());
    assert!(read.rejected.is_empty(), "{:?}", read.rejected);
    world_from_objects(read.objects.into_iter().map(|read| read.object))
}

const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {team: a}}
spec:
  clusterIP: 10.96.0.1
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: mysql, port: 3306}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: mysql, port: 3306}]
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}}
- {addresses: [10.0.0.2], conditions: {ready: false}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other, namespace: shop}
spec: {hosts: [other.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
";

#[test]
fn services_of_other_registries_are_entries_with_their_endpoints() {
    let world = world(WEB);
    let mut catalogue = Catalogue::default();
    let all = catalogue.update(&world, &ChangeSet::default());
    let names: Vec<_> = all.iter().map(|(kind, name, _)| format!("{kind} {name}")).collect();
    assert_eq!(names, ["ServiceEntry shop/other", "ServiceEntry shop/synthetic-web"]);
    let entry = McpKind::of(Kind::ServiceEntry).unwrap();
    let any = Any::decode(&*all[1].2.as_ref().unwrap().any).unwrap();
    let resource = Resource::open(&any).unwrap();
    assert_eq!(resource.metadata.as_ref().unwrap().labels["team"], "a");
    let spec: Value = body_to_json(entry, resource.body.as_ref().unwrap()).unwrap();
    assert_eq!(spec["hosts"], json!(["web.shop.svc.cluster.local"]));
    assert_eq!(spec["addresses"], json!(["10.96.0.1"]));
    assert_eq!((&spec["location"], &spec["resolution"]), (&json!("MESH_INTERNAL"), &json!("STATIC")));
    assert_eq!(spec["ports"][1], json!({"number": 3306, "name": "mysql", "protocol": "MySQL"}));
    let endpoints = spec["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 1, "who is not ready is left out: {endpoints:?}");
    assert_eq!(endpoints[0]["address"], "10.0.0.1");
    assert_eq!(endpoints[0]["ports"], json!({"http": 8080, "mysql": 3306}));
}

/// As an istiod's entry `synthetic-store`: its clients make no listener that takes all connections of the
/// port.
#[test]
fn headless_service_keeps_its_selector() {
    let world = world(
        "
apiVersion: v1
kind: Service
metadata: {name: store, namespace: default}
spec: {clusterIP: None, selector: {app: store}, ports: [{name: tcp, port: 7000}]}
",
    );
    let all = Catalogue::default().update(&world, &ChangeSet::default());
    let [(_, name, Some(served))] = &all[..] else { panic!("{all:?}") };
    let entry = McpKind::of(Kind::ServiceEntry).unwrap();
    let resource = Resource::open(&Any::decode(&*served.any).unwrap()).unwrap();
    let spec = body_to_json(entry, resource.body.as_ref().unwrap()).unwrap();
    let recorded = json!({
        "hosts": ["store.default.svc.cluster.local"], "addresses": ["0.0.0.0"],
        "ports": [{"number": 7000, "protocol": "TCP", "name": "tcp"}],
        "location": "MESH_INTERNAL", "workloadSelector": {"labels": {"app": "store"}},
    });
    assert_eq!((&**name, spec), ("default/synthetic-store", recorded));
}

/// In free JSON, `null` is a value: Envoy's API has it, and it unsets what is merged.
#[test]
fn null_in_free_json_survives_the_way_over_the_wire() {
    let value = json!({"a": null, "list": [null, {"b": null}], "c": {"d": null, "value": null}});
    for (kind, spec) in [
        (
            Kind::EnvoyFilter,
            json!({"configPatches": [{"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": value}}]}),
        ),
        (Kind::WasmPlugin, json!({"url": "file:///a.wasm", "pluginConfig": value})),
    ] {
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec}).to_string();
        let object = read_live(kind, &"x".into(), object.as_bytes()).unwrap().object;
        let served = of_object(&object, "n/a".into()).unwrap();
        let back = read_back(McpKind::of(kind).unwrap(), &served.any).unwrap();
        assert!(back.spec.equals(&*object.spec), "{kind}: {}", first_difference(&object, &back));
        let shown = format!("{:?}", back.spec);
        assert!(shown.contains("Null"), "{kind}: {shown}");
    }
    let mesh = br#"{"extensionProviders": [{"name": "log", "envoyFileAccessLog":
        {"path": "/dev/stdout", "logFormat": {"labels": {"a": null, "b": "%PROTOCOL%"}}}}]}"#;
    let mut read = read_mesh_file(MeshFile::Config, "mesh", mesh, &Limits::default());
    let object = read.objects.pop().unwrap().object;
    let served = of_object(&object, Arc::default()).unwrap();
    let back = read_back(McpKind::of(Kind::MeshConfig).unwrap(), &served.any).unwrap();
    assert!(back.spec.equals(&*object.spec), "{}", first_difference(&object, &back));
}

#[test]
fn only_what_differs_is_told() {
    let mut catalogue = Catalogue::default();
    let first = world(WEB);
    let key =
        first.services().map(|(key, _)| key.clone()).find(|key| key.hostname.as_str().starts_with("web"));
    let key: ServiceKey = key.unwrap();
    assert_eq!(catalogue.update(&first, &ChangeSet::default()).len(), 2);
    let changes = |facts: &[Fact]| ChangeSet { facts: facts.iter().cloned().collect() };
    let facts = changes(&[Fact::Endpoints(key.clone()), Fact::Services]);
    assert_eq!(catalogue.update(&first, &facts), [], "equal content is no difference");
    let second = world(&WEB.replace("10.0.0.1", "10.0.0.9"));
    let differ = catalogue.update(&second, &facts);
    assert_eq!(differ.len(), 1);
    assert_eq!((&*differ[0].1, differ[0].2.is_some()), ("shop/synthetic-web", true));
    let gone = catalogue.update(&World::default(), &changes(&[Fact::Service(key)]));
    assert_eq!(gone, [(Kind::ServiceEntry, "shop/synthetic-web".into(), None)]);
}

#[test]
fn an_object_that_is_closed_is_sent_as_one_that_cannot_be_used() {
    let json = br#"{"metadata": {"name": "a", "namespace": "n"},
        "spec": {"host": "a", "trafficPolicy": {"tls": {"mode": ["SIMPLE"]}}}}"#;
    let closed = read_live(Kind::DestinationRule, &"x".into(), json).unwrap_err().closed.unwrap();
    let served = of_object(&closed, "n/a".into()).unwrap();
    let error = read_back(McpKind::of(Kind::DestinationRule).unwrap(), &served.any).unwrap_err();
    assert!(error.contains("does not decode"), "{error}");
}
