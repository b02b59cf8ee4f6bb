//! What is tried is what then happens, and leaves nothing.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_model::{Object, ObjectKey, Revision, Update, World, WorldWriter};
use pilotfish_registry::WhatIf;
use pilotfish_registry::testing::{SHOP, Scene, objects};
use std::collections::{BTreeMap, BTreeSet};

const CHANGES: [&str; 5] = [
    // A Service with another port.
    "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: \
     http, port: 81}]}\n",
    // A slice that is not ready.
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: \
     web}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: [{addresses: [10.0.0.1], conditions: {ready: \
     false}}]\n",
    // A ServiceEntry of a new host that selects the Pod.
    "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: db, namespace: shop}\nspec: {hosts: [db.example.com], \
     resolution: STATIC, workloadSelector: {labels: {app: web}}, ports: [{name: tcp, number: 5432, protocol: TCP}]}\n",
    // A VirtualService, which no registry reads.
    "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec: {hosts: [web], http: [{route: \
     [{destination: {host: web}}]}]}\n",
    // The Pod with another label.
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: shop, labels: {app: other}}\nspec: {serviceAccountName: web, containers: \
     [{name: app, image: x}]}\nstatus: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], conditions: [{type: Ready, status: \
     \"True\"}]}\n",
];

fn tried(text: &str) -> BTreeMap<ObjectKey, Option<Object>> {
    objects(text).unwrap().into_iter().map(|object| (object.key().clone(), Some(object))).collect()
}

/// Everything in a world, as text.
fn whole(world: &World) -> String {
    let services: Vec<_> = world.services().collect();
    let endpoints: Vec<_> = world.endpoints().collect();
    let workloads: Vec<_> = world.workloads().collect();
    let objects: Vec<_> = world.all_objects().map(|object| (object.key(), &object.spec)).collect();
    format!("{services:#?}\n{endpoints:#?}\n{workloads:#?}\n{objects:#?}")
}

/// The world of these updates alone.
fn supposed(updates: Vec<Update>) -> String {
    let mut writer = WorldWriter::default();
    updates.into_iter().for_each(|update| writer.apply(update));
    writer.publish().map(|(world, _)| whole(&world)).unwrap_or_default()
}

#[test]
fn what_is_tried_is_what_then_happens() {
    for change in CHANGES {
        let (mut scene, mut twin) = (Scene::new(), Scene::new());
        for scene in [&mut scene, &mut twin] {
            scene.apply(SHOP).unwrap();
        }
        let before = whole(&scene.world());
        twin.world();
        let WhatIf { updates, objects } = scene.controller.clone().what_if(tried(change));
        assert_eq!(objects, 1, "{change}");
        twin.apply(change).unwrap();
        let real = twin.controller.settle();
        assert_eq!(supposed(updates), supposed(real), "{change}");
        assert!(scene.controller.settle().is_empty(), "{change}: nothing is left to be settled");
        assert_eq!(whole(&scene.world()), before, "{change}: the world is as it was");
        // What happens afterwards is what would have happened without it.
        scene.apply(change).unwrap();
        let mut fresh = Scene::new();
        fresh.apply(SHOP).unwrap();
        fresh.apply(change).unwrap();
        assert_eq!(whole(&scene.world()), whole(&fresh.world()), "{change}");
    }
}

#[test]
fn an_object_that_is_the_same_is_no_change() {
    let mut scene = Scene::new();
    scene.apply(SHOP).unwrap();
    scene.world();
    let WhatIf { updates, objects } = scene.controller.clone().what_if(tried(SHOP));
    assert_eq!((updates.len(), objects), (0, 0));
}

#[test]
fn an_object_can_be_tried_away() {
    let mut scene = Scene::new();
    scene.apply(SHOP).unwrap();
    let before = whole(&scene.world());
    let keys: Vec<ObjectKey> = objects(SHOP).unwrap().iter().map(|object| object.key().clone()).collect();
    let away: BTreeMap<ObjectKey, Option<Object>> = keys.into_iter().map(|key| (key, None)).collect();
    let WhatIf { updates, objects } = scene.controller.clone().what_if(away);
    assert_eq!(objects, 3);
    let gone =
        updates.iter().any(|update| matches!(update, Update::Services(_, services) if services.is_empty()));
    assert!(gone, "{updates:?}");
    assert_eq!(whole(&scene.world()), before);
}

/// Rule D2 of Istio 1.31.
#[test]
fn object_of_another_revision_is_tried_as_one_that_is_not_read() {
    let route = |label: &str, host: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: web, namespace: shop, labels: {{istio.io/rev: \
             {label}}}}}\nspec: {{hosts: [{host}], http: [{{route: [{{destination: {{host: web}}}}]}}]}}\n"
        )
    };
    let mut scene = Scene::new();
    scene.controller.set_revision(&Revision::named("canary").with_tags(BTreeSet::from(["prod".into()])));
    scene.world();
    let tried_with = |scene: &Scene, text: &str| {
        let WhatIf { updates, objects } = scene.controller.clone().what_if(tried(text));
        (updates.len(), objects)
    };
    assert_eq!(tried_with(&scene, &route("stable", "web")), (0, 0));
    assert_eq!(tried_with(&scene, &route("prod", "web")), (1, 1));
    scene.apply(&route("canary", "web")).unwrap();
    scene.world();
    assert_eq!(tried_with(&scene, &route("canary", "web")), (0, 0));
    let WhatIf { updates, objects } = scene.controller.clone().what_if(tried(&route("stable", "web")));
    assert!(objects == 1 && matches!(&*updates, [Update::RemoveObject(_)]), "{updates:?}");
}
