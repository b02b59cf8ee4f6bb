//! EndpointSlices, Pods and Nodes: endpoints by conditions, in every order of arrival.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_model::{Endpoint, Fact, HealthStatus, Kind, TlsMode};
use pilotfish_registry::RegistrySettings;
use pilotfish_registry::testing::Scene;
use proptest::prelude::*;
use std::sync::Arc;
use support::{endpoints, endpoints_of, identity, pod, pod_with, short_key, slice, step, svc, world};

const WEB: &str = "{clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}";

fn web() -> String {
    svc("web", WEB)
}

fn of_pod(address: &str, pod: &str) -> String {
    format!("{{addresses: ['{address}'], targetRef: {{kind: Pod, name: {pod}, namespace: ns}}}}")
}

/// Every order of the steps gives the same endpoints of `web.ns`.
fn in_every_order(steps: &[String], want: &[&str]) {
    fn permutations(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(count - 1);
        shorter
            .into_iter()
            .flat_map(|order| {
                (0..count).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, count - 1);
                    order
                })
            })
            .collect()
    }
    for order in permutations(steps.len()) {
        let mut scene = Scene::new();
        for index in &order {
            step(&mut scene, &steps[*index]);
            scene.settle();
        }
        assert_eq!(endpoints(&scene.world(), "web.ns"), want, "{order:?}");
    }
}

#[test]
fn the_order_of_arrival_does_not_matter() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/region: r, \
                topology.kubernetes.io/zone: z}}";
    let steps = [
        web(),
        slice("web-1", "web", "[{name: http, port: 8080}]", &format!("[{}]", of_pod("1.2.3.4", "p"))),
        pod_with("p", "1.2.3.4", "{app: web}", "True", "", ", nodeName: n1"),
        node.to_owned(),
    ];
    in_every_order(&steps, &["http 1.2.3.4:8080"]);
    let mut scene = Scene::new();
    for text in steps.iter().rev() {
        scene.apply(text).unwrap();
        scene.settle();
    }
    let endpoint = endpoints_of(&scene.world(), "web.ns")[0].clone();
    assert_eq!(endpoint.attributes.locality.to_string(), "r/z");
    assert_eq!(identity(&endpoint), "spiffe://cluster.local/ns/ns/sa/sa");
    assert_eq!(&*endpoint.attributes.node, "n1");
    let label = |key: &str| endpoint.attributes.labels.get(key);
    assert_eq!(label("app"), Some("web"));
    assert_eq!(label("topology.kubernetes.io/zone"), Some("z"));
    assert_eq!(label("topology.istio.io/cluster"), Some("Kubernetes"));
    assert_eq!(label("kubernetes.io/hostname"), Some("n1"));
}

#[test]
fn an_endpoint_waits_for_the_pod_that_it_names() {
    let mut scene = Scene::new();
    let with_pod =
        slice("web-1", "web", "[{name: http, port: 8080}]", &format!("[{}]", of_pod("1.2.3.4", "p")));
    scene.apply(&(web() + &with_pod)).unwrap();
    assert!(endpoints(&scene.world(), "web.ns").is_empty());
    scene.apply(&pod("p", "1.2.3.4", "{app: web}", "True")).unwrap();
    assert_eq!(endpoints(&scene.world(), "web.ns"), ["http 1.2.3.4:8080"]);

    // The slice goes before the Pod comes: nothing is left that a later Pod could bring back.
    let mut scene = Scene::new();
    scene.apply(&(web() + &with_pod)).unwrap();
    step(&mut scene, "- EndpointSlice ns/web-1");
    scene.apply(&pod("p", "1.2.3.4", "{app: web}", "True")).unwrap();
    assert!(endpoints(&scene.world(), "web.ns").is_empty());

    // The slice drops the address before the Pod comes.
    let mut scene = Scene::new();
    scene.apply(&(web() + &with_pod)).unwrap();
    scene.apply(&slice("web-1", "web", "[{name: http, port: 8080}]", "[]")).unwrap();
    scene.apply(&pod("p", "1.2.3.4", "{app: web}", "True")).unwrap();
    assert!(endpoints(&scene.world(), "web.ns").is_empty());
}

#[test]
fn a_failed_pod_counts_as_gone() {
    let text = web()
        + &slice("web-1", "web", "[{name: http, port: 8080}]", &format!("[{}]", of_pod("1.2.3.4", "p")))
        + &pod("p", "1.2.3.4", "{app: web}", "True").replace("phase: Running", "phase: Failed");
    let world = world(&text);
    assert!(endpoints(&world, "web.ns").is_empty());
    assert_eq!(world.workloads().count(), 0);
}

#[test]
fn an_endpoint_without_a_reference_takes_the_pod_of_its_address() {
    let manual = slice("web-1", "web", "[{name: http, port: 8080}]", "[{addresses: [1.2.3.4]}]");
    let steps = [web(), manual, pod("p", "1.2.3.4", "{app: web}", "True")];
    in_every_order(&steps, &["http 1.2.3.4:8080"]);
    let mut scene = Scene::new();
    for text in &steps {
        scene.apply(text).unwrap();
        scene.settle();
    }
    let account = |scene: &mut Scene| identity(&endpoints_of(&scene.world(), "web.ns")[0]);
    assert_eq!(account(&mut scene), "spiffe://cluster.local/ns/ns/sa/sa");
    step(&mut scene, "- Pod ns/p");
    assert_eq!(account(&mut scene), "");
    let endpoint = endpoints_of(&scene.world(), "web.ns")[0].clone();
    assert_eq!(
        endpoint.attributes.labels.len(),
        1,
        "only the cluster is known: {:?}",
        endpoint.attributes.labels
    );
    assert_eq!(endpoint.attributes.tls_mode, TlsMode::Disabled);
}

#[test]
fn an_address_in_two_slices_counts_once() {
    let mut scene = Scene::new();
    let ports = "[{name: http, port: 8080}]";
    let (a, b) = ("{addresses: [1.1.1.1]}", "{addresses: [2.2.2.2]}");
    scene.apply(&web()).unwrap();
    scene.apply(&slice("web-1", "web", ports, &format!("[{a}, {b}]"))).unwrap();
    scene.apply(&slice("web-2", "web", ports, &format!("[{b}]"))).unwrap();
    assert_eq!(endpoints(&scene.world(), "web.ns"), ["http 1.1.1.1:8080", "http 2.2.2.2:8080"]);
    step(&mut scene, "- EndpointSlice ns/web-1");
    assert_eq!(endpoints(&scene.world(), "web.ns"), ["http 2.2.2.2:8080"]);
    step(&mut scene, "- EndpointSlice ns/web-2");
    let world = scene.world();
    assert!(endpoints(&world, "web.ns").is_empty());
    assert!(world.endpoints_of(&short_key("web.ns")).is_some(), "scaled to zero, still known");
}

/// An endpoint of one of three slices: its slice, address, conditions and Pod.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Listed {
    slice: usize,
    address: u8,
    /// Ready, not ready, terminating, or both ready and terminating (`publishNotReadyAddresses`).
    state: u8,
    /// Pods are the newer the higher their number; 0 stands for none.
    pod: u8,
}

impl Listed {
    fn text(&self) -> String {
        let conditions = [
            "ready: true",
            "ready: false, terminating: false",
            "ready: false, terminating: true",
            "ready: true, terminating: true",
        ];
        let pod = match self.pod {
            0 => String::new(),
            pod => format!(", targetRef: {{kind: Pod, name: p{pod}, namespace: ns}}"),
        };
        let conditions = conditions[usize::from(self.state)];
        format!("{{addresses: [1.0.0.{}], conditions: {{{conditions}}}{pod}}}", self.address)
    }

    /// The better ones first.
    fn rank(&self) -> (usize, u8) {
        let states = [0, 2, 3, 1];
        (states[usize::from(self.state)], u8::MAX - self.pod)
    }

    fn as_endpoint(&self) -> String {
        let health = ["", " Unhealthy", " Terminating", ""][usize::from(self.state)];
        let pod = if self.pod == 0 { String::new() } else { format!(" p{}", self.pod) };
        format!("1.0.0.{}{health}{pod}", self.address)
    }
}

fn listed() -> impl Strategy<Value = Vec<Listed>> {
    let one = (0..3_usize, 1..3_u8, 0..4_u8, 0..3_u8);
    proptest::collection::vec(
        one.prop_map(|(slice, address, state, pod)| Listed { slice, address, state, pod }),
        0..8,
    )
}

fn apply_slice(scene: &mut Scene, slice: usize, list: &[Listed]) {
    let own = list.iter().filter(|listed| listed.slice == slice).map(Listed::text).collect::<Vec<_>>();
    let text = support::slice(
        &format!("web-{slice}"),
        "web",
        "[{name: http, port: 80}]",
        &format!("[{}]", own.join(", ")),
    );
    scene.apply(&text).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ready_endpoint_wins_over_others_of_its_address_in_every_order(
        list in listed().prop_shuffle(),
        before in listed(),
        order in Just(vec![0_usize, 1, 2]).prop_shuffle(),
    ) {
        let mut scene = Scene::new();
        scene.apply(&web()).unwrap();
        for number in 1..3 {
            let created = format!(", creationTimestamp: '202{number}-01-01T00:00:00Z'");
            scene.apply(&pod_with(&format!("p{number}"), "9.9.9.9", &format!("{{app: p{number}}}"), "True", &created, "")).unwrap();
        }
        for slice in &order {
            apply_slice(&mut scene, *slice, &before);
            scene.settle();
        }
        for slice in order.iter().rev() {
            apply_slice(&mut scene, *slice, &list);
            scene.settle();
        }
        let shown = |endpoint: &Arc<Endpoint>| {
            let health = match endpoint.health {
                HealthStatus::Healthy => String::new(),
                other => format!(" {other:?}"),
            };
            let pod = endpoint.attributes.labels.get("app").map(|pod| format!(" {pod}")).unwrap_or_default();
            format!("{}{health}{pod}", endpoint.address())
        };
        let mut got: Vec<String> = endpoints_of(&scene.world(), "web.ns").iter().map(shown).collect();
        got.sort();
        let mut want: Vec<String> = Vec::new();
        for address in 1..3 {
            let best = list.iter().filter(|listed| listed.address == address).min_by_key(|listed| listed.rank());
            want.extend(best.map(Listed::as_endpoint));
        }
        want.sort();
        prop_assert_eq!(got, want);
    }
}

#[test]
fn address_of_a_deleted_pod_goes_to_the_new_one_before_its_slice_says_so() {
    let old = pod("old", "1.1.1.1", "{app: old}", "True")
        .replace("namespace: ns,", "namespace: ns, deletionTimestamp: '2024-05-01T12:00:00Z',");
    let new = pod("new", "1.1.1.1", "{app: new}", "True");
    let steps = |first: &str, second: &str| {
        let list = format!("[{}, {}]", of_pod("1.1.1.1", first), of_pod("1.1.1.1", second));
        slice("web-1", "web", "[{name: http, port: 80}]", &list)
    };
    for slice in [steps("old", "new"), steps("new", "old")] {
        let world = world(&(web() + &slice + &old + &new));
        let app = endpoints_of(&world, "web.ns")[0].attributes.labels.get("app").map(str::to_owned);
        assert_eq!(app.as_deref(), Some("new"), "{slice}");
    }
}

#[test]
fn a_slice_moves_from_one_service_to_another() {
    let mut scene = Scene::new();
    let ports = "[{name: http, port: 8080}]";
    scene.apply(&(web() + &svc("other", WEB))).unwrap();
    scene.apply(&slice("s", "web", ports, "[{addresses: [1.1.1.1]}]")).unwrap();
    scene.settle();
    scene.apply(&slice("s", "other", ports, "[{addresses: [1.1.1.1]}]")).unwrap();
    let world = scene.world();
    assert!(endpoints(&world, "web.ns").is_empty());
    assert_eq!(endpoints(&world, "other.ns"), ["http 1.1.1.1:8080"]);
}

#[test]
fn slices_that_do_not_count_are_ignored() {
    let ports = "[{name: http, port: 8080}]";
    let good = slice("web-1", "web", ports, "[{addresses: [1.1.1.1]}]");
    let table = [
        good.replace("kubernetes.io/service-name: web", "x: y"),
        good.replace(
            "{kubernetes.io/service-name: web",
            "{multicluster.kubernetes.io/service-name: a, kubernetes.io/service-name: web",
        ),
        good.replace("IPv4", "FQDN").replace("1.1.1.1", "a.example.com"),
    ];
    for text in table {
        assert!(endpoints(&world(&(web() + &text)), "web.ns").is_empty(), "{text}");
    }
}

#[test]
fn ports_are_matched_by_name() {
    let spec = "{clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: http-other, port: 90}]}";
    let ports = "[{name: http-other, port: 9090}, {name: http, port: 8080}]";
    let text = svc("web", spec) + &slice("web-1", "web", ports, "[{addresses: [1.1.1.1]}]");
    assert_eq!(endpoints(&world(&text), "web.ns"), ["http 1.1.1.1:8080", "http-other 1.1.1.1:9090"]);
}

#[test]
fn ports_without_a_number_have_no_endpoints() {
    let ports = "[{name: http}, {name: grpc, port: 9090}]";
    let spec = "{clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: grpc, port: 90}]}";
    let text = svc("web", spec) + &slice("web-1", "web", ports, "[{addresses: [1.1.1.1]}]");
    assert_eq!(endpoints(&world(&text), "web.ns"), ["grpc 1.1.1.1:9090"]);
}

/// Rules 1 and E2 of Istio 1.31: endpoints that are not ready are unhealthy, terminating ones never are.
#[test]
fn conditions_give_health_and_a_label_of_the_service_keeps_what_drains() {
    let conditions = |ready: &str, serving: &str, terminating: &str| {
        format!(
            "{{addresses: [1.1.1.1], conditions: {{ready: {ready}, serving: {serving}, terminating: {terminating}}}}}"
        )
    };
    let table = [
        (conditions("true", "true", "false"), "http 1.1.1.1:80", "http 1.1.1.1:80"),
        ("{addresses: [1.1.1.1]}".to_owned(), "http 1.1.1.1:80", "http 1.1.1.1:80"),
        (conditions("false", "true", "true"), "http 1.1.1.1:80 Terminating", "http 1.1.1.1:80 Draining"),
        (conditions("false", "false", "true"), "http 1.1.1.1:80 Terminating", "http 1.1.1.1:80 Terminating"),
        (conditions("false", "true", "false"), "http 1.1.1.1:80 Unhealthy", "http 1.1.1.1:80 Unhealthy"),
    ];
    for (endpoint, plain, persistent) in table {
        let slices = slice("web-1", "web", "[{name: http, port: 80}]", &format!("[{endpoint}]"));
        let mut scene = Scene::new();
        scene.apply(&slices).unwrap();
        scene.apply(&web()).unwrap();
        assert_eq!(endpoints(&scene.world(), "web.ns"), [plain], "{endpoint}");
        let labelled =
            web().replace("namespace: ns}", "namespace: ns, labels: {istio.io/persistent-session: x}}");
        scene.apply(&labelled).unwrap();
        assert_eq!(endpoints(&scene.world(), "web.ns"), [persistent], "{endpoint}");
    }
}

#[test]
fn a_label_of_the_pod_lets_its_endpoint_drain() {
    let text = web()
        + &slice("web-1", "web", "[{name: http, port: 80}]", &format!("[{}]", of_pod("1.2.3.4", "p")))
        + &pod("p", "1.2.3.4", "{app: web, istio.io/draining: 'true'}", "True");
    assert_eq!(endpoints(&world(&text), "web.ns"), ["http 1.2.3.4:80 Draining"]);
}

#[test]
fn localities_come_from_the_pod_or_its_node() {
    let node =
        |labels: &str| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n1, labels: {labels}}}\n---\n");
    let full =
        "{topology.kubernetes.io/region: nr, topology.kubernetes.io/zone: nz, topology.istio.io/subzone: ns}";
    let table = [
        ("{app: web}", node("{}"), ""),
        ("{app: web, istio-locality: r.z.s}", node(full), "r/z/s"),
        ("{app: web, topology.istio.io/locality: r.z}", node(full), "r/z"),
        ("{app: web}", node(full), "nr/nz/ns"),
        ("{app: web}", node("{topology.kubernetes.io/zone: z}"), "/z"),
        ("{app: web}", node("{failure-domain.beta.kubernetes.io/region: r}"), "r"),
        ("{app: web}", String::new(), ""),
    ];
    for (labels, node, want) in table {
        let text = pod_with("p", "1.2.3.4", labels, "True", "", ", nodeName: n1") + &node;
        let world = world(&text);
        let workload = world.workloads().next().unwrap();
        assert_eq!(workload.locality.to_string(), want, "{labels} {node}");
    }
}

#[test]
fn workloads_know_where_their_node_is_reached_from_outside() {
    let node = |address: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\nstatus: {{addresses: [{{type: InternalIP, address: 10.9.9.9}}, \
             {{type: ExternalIP, address: {address}}}]}}\n---\n"
        )
    };
    let of = |scene: &mut Scene| {
        let world = scene.world();
        let pods: Vec<_> = world.pods_in(&"ns".into()).cloned().collect();
        assert_eq!((pods.len(), world.pods_in(&"nt".into()).count()), (1, 0));
        pods[0].node_addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut scene = Scene::new();
    scene.apply(&pod_with("p", "1.2.3.4", "{app: web}", "True", "", ", nodeName: n1")).unwrap();
    assert_eq!(of(&mut scene), [""; 0]);
    scene.apply(&node("192.0.2.1")).unwrap();
    assert_eq!(of(&mut scene), ["192.0.2.1"]);
    scene.apply(&node("192.0.2.2")).unwrap();
    assert_eq!(of(&mut scene), ["192.0.2.2"]);
}

#[test]
fn host_network_pods_share_an_address_and_a_late_deletion_keeps_the_other() {
    let ports = "[{name: http, port: 80}]";
    let mut scene = Scene::new();
    scene.apply(&(web() + &slice("web-1", "web", ports, "[{addresses: [1.2.3.4]}]"))).unwrap();
    scene.apply(&pod("a", "1.2.3.4", "{app: a}", "True")).unwrap();
    scene.apply(&pod("b", "1.2.3.4", "{app: b}", "True")).unwrap();
    scene.settle();
    assert_eq!(scene.world().workloads_at("1.2.3.4").count(), 2);
    step(&mut scene, "- Pod ns/a");
    let world = scene.world();
    assert_eq!(world.workloads_at("1.2.3.4").count(), 1);
    assert_eq!(endpoints_of(&world, "web.ns")[0].attributes.labels.get("app"), Some("b"));
}

#[test]
fn workloads_know_whether_they_are_ready() {
    let base = pod("p", "1.2.3.4", "{app: web}", "True");
    let table = [
        (base.clone(), true),
        (pod("p", "1.2.3.4", "{app: web}", "False"), false),
        (base.replace("Running", "Pending"), true),
        (base.replace("Running", "Succeeded"), false),
        (base.replace("namespace: ns,", "namespace: ns, deletionTimestamp: '2024-05-01T12:00:00Z',"), false),
    ];
    for (text, want) in table {
        let world = world(&text);
        assert_eq!(world.workloads().next().unwrap().ready, want, "{text}");
    }
}

#[test]
fn workloads_are_named_after_their_owner() {
    let owner = |kind: &str, name: &str| {
        format!(
            ", ownerReferences: [{{apiVersion: x/v1, kind: {kind}, name: {name}, controller: true, uid: u}}]"
        )
    };
    let table = [
        ("{pod-template-hash: 5d4f9c}", owner("ReplicaSet", "web-5d4f9c"), "web"),
        ("{pod-template-hash: '99'}", owner("ReplicaSet", "web-77"), "web-77"),
        ("{}", owner("ReplicaSet", "web-5d4f9c"), "web-5d4f9c"),
        ("{}", owner("StatefulSet", "set"), "set"),
        ("{}", owner("Job", "cron-28374650"), "cron"),
        ("{}", owner("Job", "job-1"), "job-1"),
        ("{deploymentconfig: dc}", owner("ReplicationController", "dc-1"), "dc"),
        ("{service.istio.io/workload-name: told}", owner("DaemonSet", "daemon"), "told"),
        ("{}", String::new(), "p"),
    ];
    for (labels, owner, want) in table {
        let world = world(&pod_with("p", "1.2.3.4", labels, "True", &owner, ""));
        assert_eq!(&*world.workloads().next().unwrap().workload_name, want, "{labels} {owner}");
    }
}

#[test]
fn named_ports_are_those_of_containers_that_run_all_the_time() {
    let containers = ", initContainers: [{name: once, image: x, ports: [{name: a, containerPort: 1}]}, \
                      {name: always, image: x, restartPolicy: Always, ports: [{name: b, containerPort: 2}]}]";
    let text = pod_with("p", "1.2.3.4", "{}", "True", "", containers).replace(
        "{name: app, image: x}",
        "{name: app, image: x, ports: [{name: c, containerPort: 3}, {name: d, containerPort: 4, protocol: UDP}, \
         {containerPort: 5}]}",
    );
    let world = world(&text);
    let ports: Vec<_> =
        world.workloads().next().unwrap().ports.iter().map(|(name, port)| format!("{name}:{port}")).collect();
    assert_eq!(ports, ["b:2", "c:3"]);
}

#[test]
fn two_families_make_one_endpoint_where_that_is_on() {
    let spec = "{clusterIPs: [10.0.0.1, 'fd00::1'], ports: [{name: http, port: 80}]}";
    let four = slice("web-4", "web", "[{name: http, port: 80}]", &format!("[{}]", of_pod("1.2.3.4", "p")));
    let six = slice("web-6", "web", "[{name: http, port: 80}]", &format!("[{}]", of_pod("fd00::2", "p")))
        .replace("IPv4", "IPv6");
    let both = pod("p", "1.2.3.4+fd00::2", "{app: web}", "True");
    let run = |dual_stack: bool, texts: &[&String]| {
        let mut scene = Scene::with(&RegistrySettings { dual_stack, ..RegistrySettings::default() });
        for text in texts {
            scene.apply(text).unwrap();
        }
        endpoints(&scene.world(), "web.ns")
    };
    let web = svc("web", spec);
    assert_eq!(run(true, &[&web, &four, &six, &both]), ["http 1.2.3.4+fd00::2:80"]);
    assert_eq!(run(true, &[&web, &four, &both]), ["http 1.2.3.4+fd00::2:80"]);
    assert_eq!(run(false, &[&web, &four, &six, &both]), ["http 1.2.3.4:80", "http fd00::2:80"]);
    assert_eq!(run(true, &[&web, &four, &six]), [] as [&str; 0]);
    let manual = slice(
        "web-m",
        "web",
        "[{name: http, port: 80}]",
        "[{addresses: [1.2.3.4]}, {addresses: ['fd00::2']}]",
    );
    assert_eq!(run(true, &[&web, &manual]), ["http 1.2.3.4:80", "http fd00::2:80"]);
}

#[test]
fn a_slice_touches_its_own_service_alone() {
    let mut scene = Scene::new();
    for index in 0..50 {
        let name = format!("s{index}");
        scene.apply(&svc(&name, WEB)).unwrap();
        let list = format!("[{{addresses: [10.1.0.{index}]}}]");
        scene.apply(&slice(&name, &name, "[{name: http, port: 80}]", &list)).unwrap();
    }
    scene.settle();
    scene.apply(&slice("s7", "s7", "[{name: http, port: 80}]", "[{addresses: [10.2.0.7]}]")).unwrap();
    let updates = scene.controller.settle();
    assert_eq!(updates.len(), 1, "{updates:?}");
}

#[test]
fn a_pod_that_changes_touches_the_slices_that_name_it() {
    let mut scene = Scene::new();
    let ports = "[{name: http, port: 80}]";
    scene.apply(&(web() + &svc("other", WEB))).unwrap();
    scene.apply(&slice("web-1", "web", ports, &format!("[{}]", of_pod("1.2.3.4", "p")))).unwrap();
    scene.apply(&slice("other-1", "other", ports, &format!("[{}]", of_pod("1.2.3.5", "q")))).unwrap();
    scene.apply(&pod("p", "1.2.3.4", "{app: web}", "True")).unwrap();
    scene.apply(&pod("q", "1.2.3.5", "{app: web}", "True")).unwrap();
    scene.settle();
    scene.apply(&pod("p", "1.2.3.4", "{app: web, version: v2}", "True")).unwrap();
    let changes = scene.settle();
    assert!(changes.facts.contains(&Fact::Endpoints(short_key("web.ns"))));
    assert!(!changes.facts.contains(&Fact::Endpoints(short_key("other.ns"))));
    assert!(!changes.facts.contains(&Fact::Kind(Kind::Pod)));
}
