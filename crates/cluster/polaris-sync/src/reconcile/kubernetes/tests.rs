//! Objects in, services of the other registry out.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and is read more easily without borrowed literals"
)]

use super::*;
use crate::reconcile::{AliasKey, Capabilities, Instance, Metadata, Place};
use pilotfish_config::read_live;
use serde_json::{Value, json};

/// Takes everything but names with a blank, and metadata keys that are longer than 10.
struct Plain;

impl Target for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities { namespaces: true, services: true, aliases: true, batch: 100 }
    }

    fn check_service(&self, key: &ServiceKey) -> Result<(), String> {
        if key.name.contains(' ') { Err(format!("{:?} is no name", key.name)) } else { Ok(()) }
    }

    fn fit_service(&self, _: &mut DesiredService) -> Vec<String> {
        Vec::new()
    }

    fn fit_instance(&self, _: &Place, instance: &mut Instance) -> Result<Vec<String>, String> {
        let long = |key: &Text| key.len() > 10;
        let dropped = instance.metadata.keys().filter(|key| long(key)).map(|key| format!("{key} is long"));
        let dropped = dropped.collect();
        instance.metadata.retain(|key, _| !long(key));
        Ok(dropped)
    }

    fn owns(&self, _: &Metadata) -> bool {
        true
    }

    fn isolated_by_us(&self, _: &Metadata) -> bool {
        false
    }

    fn mark_isolated(&self, _: &mut Metadata, _: bool) {}

    fn retired(&self, known: &Metadata) -> Metadata {
        known.clone()
    }
}

fn read(kind: Kind, object: &Value) -> Object {
    read_live(kind, &"test".into(), object.to_string().as_bytes()).unwrap().object
}

fn namespace(name: &str, sync: Option<&str>) -> Object {
    let annotations: BTreeMap<_, _> = sync.map(|sync| ("polarismesh.cn/sync", sync)).into_iter().collect();
    read(Kind::Namespace, &json!({"metadata": {"name": name, "annotations": annotations}}))
}

fn service(namespace: &str, name: &str, annotations: Value) -> Object {
    let mut annotations = annotations;
    if let Some(fields) = annotations.as_object_mut() {
        *fields =
            fields.iter().map(|(key, value)| (format!("polarismesh.cn/{key}"), value.clone())).collect();
    }
    let spec = json!({"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]});
    let metadata =
        json!({"name": name, "namespace": namespace, "annotations": annotations, "labels": {"app": name}});
    read(Kind::Service, &json!({"metadata": metadata, "spec": spec}))
}

fn slice(namespace: &str, service: &str, endpoints: Value) -> Object {
    slice_of(
        namespace,
        service,
        "IPv4",
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}]),
        endpoints,
    )
}

fn slice_of(namespace: &str, service: &str, family: &str, ports: Value, endpoints: Value) -> Object {
    let labels = json!({"kubernetes.io/service-name": service});
    let metadata = json!({"name": format!("{service}-{}", family.to_lowercase()), "namespace": namespace, "labels": labels});
    let object = json!({"metadata": metadata, "addressType": family, "ports": ports, "endpoints": endpoints});
    read(Kind::EndpointSlice, &object)
}

fn endpoint(address: &str, pod: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": pod, "namespace": "shop"}})
}

fn pod(name: &str, labels: Value) -> Object {
    read(
        Kind::Pod,
        &json!({"metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": {}, "status": {}}),
    )
}

fn cluster(mode: Mode, objects: &[Object]) -> Cluster {
    let mut cluster = Cluster::new(Arc::new(Plain), ClusterSettings { mode, ignored: BTreeSet::new() });
    objects.iter().for_each(|object| cluster.apply(object));
    cluster
}

fn names(cluster: &mut Cluster) -> Vec<String> {
    cluster.desired(None).services.keys().map(ToString::to_string).collect()
}

fn of(cluster: &mut Cluster, name: &str) -> DesiredService {
    cluster.desired(None).services.remove(&ServiceKey::new("shop", name)).unwrap()
}

/// Mode, what the namespace says, what the Service says, whether it is synced.
#[test]
fn the_service_decides_before_the_namespace_and_that_before_the_mode() {
    use Mode::{All, Demand};
    let words = [None, Some("true"), Some("false"), Some("yes")];
    for mode in [All, Demand] {
        for of_namespace in words {
            for of_service in words {
                let says = |word: Option<&str>| word.map(|word| word == "true");
                let wanted = says(of_service).or(says(of_namespace)).unwrap_or(mode == All);
                let annotations = of_service.map_or(json!({}), |word| json!({"sync": word}));
                let objects = [namespace("shop", of_namespace), service("shop", "web", annotations)];
                let synced = !names(&mut cluster(mode, &objects)).is_empty();
                assert_eq!(synced, wanted, "{mode:?} {of_namespace:?} {of_service:?}");
            }
        }
    }
}

/// From one state of a namespace to another: its Services come and go at once.
#[test]
fn a_namespace_that_is_switched_takes_its_services_along() {
    let objects = [
        namespace("shop", None),
        service("shop", "web", json!({})),
        service("shop", "own", json!({"sync": "true"})),
    ];
    let mut cluster = cluster(Mode::Demand, &objects);
    cluster.take_changed();
    assert_eq!(
        (names(&mut cluster), cluster.desired(None).namespaces.len()),
        (vec!["shop/own".to_owned()], 1)
    );
    cluster.apply(&namespace("shop", Some("true")));
    let (changed, _) = cluster.take_changed();
    assert_eq!(changed, [ServiceKey::new("shop", "web")].into());
    assert_eq!(names(&mut cluster), ["shop/own", "shop/web"]);
    cluster.apply(&namespace("shop", Some("false")));
    assert_eq!(cluster.take_changed().0, [ServiceKey::new("shop", "web")].into());
    cluster.delete(&ObjectKey::new(Kind::Namespace, "", "shop"));
    cluster.delete(&ObjectKey::new(Kind::Service, "shop", "own"));
    assert_eq!(cluster.take_changed().0, [ServiceKey::new("shop", "own")].into());
    assert_eq!(cluster.desired(None), Desired::default());
}

#[test]
fn some_are_never_synced() {
    let without = |field: &str| {
        let mut spec = json!({"selector": {"app": "x"}, "ports": [{"port": 80}]});
        spec[field] = Value::Null;
        read(Kind::Service, &json!({"metadata": {"name": field, "namespace": "shop"}, "spec": spec}))
    };
    let objects = [
        service("kube-system", "dns", json!({"sync": "true"})),
        service("shop", "kube-system", json!({})),
        without("selector"),
    ];
    // The name of an object is no namespace.
    assert_eq!(names(&mut cluster(Mode::All, &objects)), ["shop/kube-system"]);
}

#[test]
fn each_address_and_port_is_an_instance_with_what_its_pod_says() {
    let endpoints = json!([
        endpoint("10.0.0.1", "web-0"),
        {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
    ]);
    let ports = json!([{"name": "http", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    let annotations = json!({"metadata": "{\"tier\": \"gold\", \"app\": \"annotation\"}", "weight": "7"});
    let mut cluster = cluster(
        Mode::All,
        &[
            service("shop", "web", annotations),
            slice_of("shop", "web", "IPv4", ports, endpoints),
            slice_of(
                "shop",
                "web",
                "IPv6",
                json!([{"name": "http", "port": 8080}]),
                json!([{"addresses": ["2001:db8::1"]}]),
            ),
            pod("web-0", json!({"app": "web", "version": "v2", "very-long-label": "x"})),
        ],
    );
    let web = of(&mut cluster, "web");
    let shown: Vec<String> = web
        .instances
        .iter()
        .map(|(place, one)| {
            let metadata: Vec<String> =
                one.metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!(
                "{place} {} {:?} {} {} {}",
                one.protocol,
                one.version,
                one.weight,
                one.ready,
                metadata.join(",")
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "10.0.0.1:53 dns/UDP \"v2\" 7 true app=web,tier=gold,version=v2",
            "10.0.0.1:8080 http/TCP \"v2\" 7 true app=web,tier=gold,version=v2",
            "10.0.0.2:53 dns/UDP \"\" 7 false app=annotation,tier=gold",
            "10.0.0.2:8080 http/TCP \"\" 7 false app=annotation,tier=gold",
            "[2001:db8::1]:8080 http/TCP \"\" 7 true app=annotation,tier=gold",
        ]
    );
    assert_eq!((web.ports, web.metadata), ([80].into(), [("app".into(), "web".into())].into()));
    let problems: Vec<String> = cluster.problems().into_iter().map(|one| one.message).collect();
    assert_eq!(problems, ["10.0.0.1:8080: very-long-label is long", "10.0.0.1:53: very-long-label is long"]);
}

#[test]
fn only_what_differs_is_changed() {
    let mut cluster = cluster(
        Mode::All,
        &[
            service("shop", "web", json!({})),
            service("shop", "api", json!({})),
            slice("shop", "web", json!([endpoint("10.0.0.1", "web-0")])),
            pod("web-0", json!({"version": "v1"})),
        ],
    );
    let changed =
        |cluster: &mut Cluster| cluster.take_changed().0.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(changed(&mut cluster), ["shop/api", "shop/web"]);
    cluster.apply(&pod("web-0", json!({"version": "v1"})));
    cluster.apply(&slice("shop", "web", json!([endpoint("10.0.0.1", "web-0")])));
    cluster.apply(&pod("other", json!({"version": "v1"})));
    assert_eq!(changed(&mut cluster), Vec::<String>::new());
    cluster.apply(&pod("web-0", json!({"version": "v2"})));
    assert_eq!(changed(&mut cluster), ["shop/web"]);
    cluster.delete(&ObjectKey::new(Kind::EndpointSlice, "shop", "web-ipv4"));
    assert_eq!(changed(&mut cluster), ["shop/web"]);
    cluster.apply(&pod("web-0", json!({"version": "v3"})));
    assert_eq!(changed(&mut cluster), Vec::<String>::new(), "no endpoint is that Pod any more");
}

#[test]
fn a_service_with_another_name_moves() {
    let mut cluster = cluster(
        Mode::All,
        &[service("shop", "web", json!({})), slice("shop", "web", json!([endpoint("10.0.0.1", "web-0")]))],
    );
    cluster.take_changed();
    cluster.apply(&service(
        "shop",
        "web",
        json!({"overideNamespace": "prod", "overideService": "web.v2", "aliasNamespace": "old", "aliasService": "www"}),
    ));
    let (changed, _) = cluster.take_changed();
    assert_eq!(changed, [ServiceKey::new("prod", "web.v2"), ServiceKey::new("shop", "web")].into());
    let desired = cluster.desired(Some(&changed));
    assert_eq!(desired.services.keys().map(ToString::to_string).collect::<Vec<_>>(), ["prod/web.v2"]);
    assert!(desired.namespaces.contains("prod"));
    let aliases: Vec<_> = desired.aliases().keys().map(ToString::to_string).collect();
    assert_eq!(aliases, ["old/www"]);
    assert!(
        desired.namespaces.contains("old"),
        "the namespace of an alias is made: {:?}",
        desired.namespaces
    );
}

#[test]
fn several_services_may_be_one() {
    let together = json!({"overideService": "all"});
    let mut cluster = cluster(
        Mode::All,
        &[
            service("shop", "a", together.clone()),
            service("shop", "b", together),
            slice("shop", "a", json!([endpoint("10.0.0.1", "a-0")])),
            slice("shop", "b", json!([endpoint("10.0.0.2", "b-0")])),
        ],
    );
    let all = of(&mut cluster, "all");
    assert_eq!((all.instances.len(), all.metadata), (2, [("app".into(), "a".into())].into()));
    cluster.delete(&ObjectKey::new(Kind::Service, "shop", "a"));
    let all = of(&mut cluster, "all");
    assert_eq!((all.instances.len(), all.metadata), (1, [("app".into(), "b".into())].into()));
}

#[test]
fn who_registers_itself_has_no_instances_of_ours() {
    let mut cluster = cluster(
        Mode::All,
        &[
            service("shop", "web", json!({"enableRegister": "false"})),
            slice("shop", "web", json!([endpoint("10.0.0.1", "web-0")])),
        ],
    );
    assert!(of(&mut cluster, "web").instances.is_empty());
}

#[test]
fn a_name_that_cannot_be_is_told_and_costs_the_service_alone() {
    let mut cluster = cluster(
        Mode::All,
        &[
            service("shop", "web", json!({"overideService": "not a name"})),
            service("shop", "api", json!({"aliasNamespace": "shop", "aliasService": "not a name"})),
        ],
    );
    assert_eq!(names(&mut cluster), ["shop/api"]);
    assert_eq!(of(&mut cluster, "api").aliases, BTreeSet::<AliasKey>::new());
    let problems: Vec<String> =
        cluster.problems().into_iter().map(|one| format!("{}: {}", one.service, one.message)).collect();
    assert_eq!(
        problems,
        [
            "shop/api: alias shop/not a name: \"not a name\" is no name; there is no alias",
            "shop/web: \"not a name\" is no name; the Service is not synced",
        ]
    );
}
