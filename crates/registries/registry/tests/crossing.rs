//! Selection across registries: Services select WorkloadEntries, ServiceEntries select Pods and
//! WorkloadEntries.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_registry::RegistrySettings;
use pilotfish_registry::testing::Scene;
use support::{endpoints, pod, pod_with, se, slice, step, svc, we, we_with};

const SERVICE: &str = "{clusterIP: 9.9.9.9, selector: {app: foo}, ports: [{name: http, port: 80}]}";
const ENTRY: &str = "{hosts: [e.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, \
                     workloadSelector: {labels: {app: foo}}}";

fn vm(spec: &str) -> String {
    we("vm", &format!("{{address: 2.3.4.5, labels: {{app: foo}}{spec}}}"))
}

fn foo_pod() -> String {
    pod("pod", "1.2.3.4", "{app: foo}", "True")
}

fn foo_slice() -> String {
    slice(
        "foo-1",
        "foo",
        "[{name: http, port: 80}]",
        "[{addresses: [1.2.3.4], targetRef: {kind: Pod, name: pod, namespace: ns}}]",
    )
}

/// All steps, forwards and backwards, settled after each, give these endpoints.
fn check(steps: &[String], host: &str, want: &[&str]) {
    for backwards in [false, true] {
        let mut scene = Scene::new();
        let mut steps: Vec<&String> = steps.iter().collect();
        if backwards {
            steps.reverse();
        }
        for text in &steps {
            step(&mut scene, text);
            scene.settle();
        }
        assert_eq!(endpoints(&scene.world(), host), want, "{steps:?}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn both_kinds_select_in_either_order() {
    let service = svc("foo", SERVICE);
    let named = |spec: &str| svc("foo", spec);
    let table: Vec<(Vec<String>, &str, Vec<&str>)> = vec![
        (vec![se("e", ENTRY), vm("")], "e.com", vec!["http 2.3.4.5:80"]),
        (vec![se("e", ENTRY), vm(", ports: {http: 8080}")], "e.com", vec!["http 2.3.4.5:8080"]),
        (
            vec![
                se("e", &ENTRY.replace("protocol: HTTP", "protocol: HTTP, targetPort: 8081")),
                vm(", ports: {http: 8080}"),
            ],
            "e.com",
            vec!["http 2.3.4.5:8080"],
        ),
        (
            vec![
                se("e", &ENTRY.replace("protocol: HTTP", "protocol: HTTP, targetPort: 8080")),
                vm(", ports: {other: 1}"),
            ],
            "e.com",
            vec!["http 2.3.4.5:8080"],
        ),
        (vec![se("e", ENTRY), vm(", ports: {other: 8081}")], "e.com", vec!["http 2.3.4.5:80"]),
        (vec![service.clone(), vm("")], "foo.ns", vec!["http 2.3.4.5:80"]),
        (
            vec![service.clone(), foo_pod(), foo_slice(), vm("")],
            "foo.ns",
            vec!["http 1.2.3.4:80", "http 2.3.4.5:80"],
        ),
        (
            vec![
                named("{clusterIP: 9.9.9.9, selector: {app: foo}, ports: [{name: my-port, port: 80}]}"),
                vm(", ports: {my-port: 8080}"),
            ],
            "foo.ns",
            vec!["my-port 2.3.4.5:8080"],
        ),
        (
            vec![
                named(
                    "{clusterIP: 9.9.9.9, selector: {app: foo}, ports: [{name: http, port: 80, targetPort: my-port}, {name: x, port: 81, targetPort: none}]}",
                ),
                vm(", ports: {my-port: 8080}"),
            ],
            "foo.ns",
            vec!["http 2.3.4.5:8080"],
        ),
        (
            vec![
                named(
                    "{clusterIP: 9.9.9.9, selector: {app: foo}, ports: [{name: a, port: 80, targetPort: 8080}, {name: b, port: 90, targetPort: 9090}]}",
                ),
                vm(""),
            ],
            "foo.ns",
            vec!["a 2.3.4.5:8080", "b 2.3.4.5:9090"],
        ),
        (vec![se("e", ENTRY), foo_pod()], "e.com", vec!["http 1.2.3.4:80"]),
        (
            vec![se("e", &ENTRY.replace("protocol: HTTP", "protocol: HTTP, targetPort: 8080")), foo_pod()],
            "e.com",
            vec!["http 1.2.3.4:8080"],
        ),
        (vec![se("e", ENTRY), pod("pod", "1.2.3.4", "{app: foo}", "False")], "e.com", vec![]),
        (
            vec![
                se("e", &ENTRY.replace("e.com", "foo.ns.svc.cluster.local")),
                service.clone(),
                foo_pod(),
                foo_slice(),
                vm(""),
            ],
            "foo.ns",
            vec!["http 1.2.3.4:80", "http 1.2.3.4:80", "http 2.3.4.5:80", "http 2.3.4.5:80"],
        ),
        (
            vec![
                svc("foo", "{clusterIP: None, selector: {app: foo}, ports: [{name: http, port: 80}]}"),
                vm(""),
            ],
            "foo.ns",
            vec![],
        ),
        (vec![svc("foo", "{clusterIP: 9.9.9.9, ports: [{name: http, port: 80}]}"), vm("")], "foo.ns", vec![]),
        (vec![se("e", &ENTRY.replace("app: foo", "app: bar")), vm("")], "e.com", vec![]),
    ];
    for (steps, host, want) in table {
        check(&steps, host, &want);
    }
}

#[test]
fn a_container_port_of_the_name_goes_before_the_target_port() {
    let entry = se("e", &ENTRY.replace("protocol: HTTP", "protocol: HTTP, targetPort: 8080"));
    let pod = pod_with("pod", "1.2.3.4", "{app: foo}", "True", "", "").replace(
        "{name: app, image: x}",
        "{name: app, image: x, ports: [{name: http, containerPort: 8081}]}",
    );
    check(&[entry, pod], "e.com", &["http 1.2.3.4:8081"]);
}

#[test]
fn host_names_are_selected_only_where_the_proxy_resolves_them() {
    let named = we("vm", "{address: vm.example.com, labels: {app: foo}}");
    check(&[svc("foo", SERVICE), named.clone()], "foo.ns", &[]);
    check(&[se("e", ENTRY), named.clone()], "e.com", &[]);
    let dns = se("e", &ENTRY.replace("STATIC", "DNS"));
    check(&[dns.clone(), named.clone()], "e.com", &["http vm.example.com:80"]);
    let mut scene = Scene::new();
    scene.apply(&(dns + &named)).unwrap();
    scene.settle();
    scene.apply(&se("e", ENTRY)).unwrap();
    assert!(endpoints(&scene.world(), "e.com").is_empty());
    scene.apply(&vm("")).unwrap();
    assert_eq!(endpoints(&scene.world(), "e.com"), ["http 2.3.4.5:80"]);
}

#[test]
fn an_entry_behind_a_gateway_needs_no_address() {
    let behind = we("vm", "{network: n2, labels: {app: foo}}");
    check(&[se("e", ENTRY), behind.clone()], "e.com", &["http :80"]);
    check(&[svc("foo", SERVICE), behind], "foo.ns", &["http :80"]);
}

#[test]
fn health_counts_where_it_is_checked() {
    let entry = |annotation: &str, status: &str| {
        we_with(
            "vm",
            &format!(", annotations: {{proxy.istio.io/health-checks-enabled: '{annotation}'}}"),
            "{address: 2.3.4.5, labels: {app: foo}}",
        )
        .replace("---\n", &format!("{status}\n---\n"))
    };
    let condition = |value: &str| format!("status: {{conditions: [{{type: Healthy, status: '{value}'}}]}}");
    let (all, none) = (vec!["http 2.3.4.5:80"], vec![]);
    let table = [
        ("true", String::new(), &none),
        ("true", condition("False"), &none),
        ("true", condition("True"), &all),
        ("maybe", String::new(), &all),
        ("false", condition("False"), &all),
    ];
    let mut scene = Scene::new();
    scene.apply(&(svc("foo", SERVICE) + &se("e", ENTRY))).unwrap();
    for (annotation, status, want) in table {
        scene.apply(&entry(annotation, &status)).unwrap();
        let world = scene.world();
        assert_eq!(endpoints(&world, "foo.ns"), *want, "{annotation} {status}");
        assert_eq!(endpoints(&world, "e.com"), *want, "{annotation} {status}");
    }
}

#[test]
fn a_workload_follows_its_labels_ports_and_address() {
    let mut scene = Scene::new();
    let second = ENTRY.replace("app: foo", "bar: x").replace("e.com", "f.com");
    scene.apply(&(se("e", ENTRY) + &se("f", &second) + &svc("foo", SERVICE))).unwrap();
    let mut check = |text: &str, e: &[&str], f: &[&str], foo: &[&str]| {
        step(&mut scene, text);
        let world = scene.world();
        assert_eq!(endpoints(&world, "e.com"), e, "{text}");
        assert_eq!(endpoints(&world, "f.com"), f, "{text}");
        assert_eq!(endpoints(&world, "foo.ns"), foo, "{text}");
    };
    let both = |rest: &str| we("vm", &format!("{{address: 2.3.4.5, labels: {{app: foo, bar: x}}{rest}}}"));
    let all = &["http 2.3.4.5:80"][..];
    check(&both(""), all, all, all);
    check(
        &both(", ports: {http: 1234}"),
        &["http 2.3.4.5:1234"],
        &["http 2.3.4.5:1234"],
        &["http 2.3.4.5:1234"],
    );
    check(&we("vm", "{address: 2.3.4.6, labels: {bar: x}}"), &[], &["http 2.3.4.6:80"], &[]);
    check(&vm(""), all, &[], all);
    check("- WorkloadEntry ns/vm", &[], &[], &[]);
}

#[test]
fn two_entries_of_one_address_are_two_endpoints() {
    let mut scene = Scene::new();
    let at = |name: &str, port: u16| {
        we(name, &format!("{{address: 2.3.4.5, labels: {{app: foo}}, ports: {{http: {port}}}}}"))
    };
    scene.apply(&(se("e", ENTRY) + &svc("foo", SERVICE) + &at("a", 1234) + &at("b", 5678))).unwrap();
    let world = scene.world();
    assert_eq!(endpoints(&world, "e.com"), ["http 2.3.4.5:1234", "http 2.3.4.5:5678"]);
    assert_eq!(endpoints(&world, "foo.ns"), ["http 2.3.4.5:1234", "http 2.3.4.5:5678"]);
    assert_eq!(world.workloads_at("2.3.4.5").count(), 2);
    step(&mut scene, "- WorkloadEntry ns/b");
    let world = scene.world();
    assert_eq!(endpoints(&world, "e.com"), ["http 2.3.4.5:1234"]);
    assert_eq!(endpoints(&world, "foo.ns"), ["http 2.3.4.5:1234"]);
}

#[test]
fn an_address_that_is_used_again_keeps_its_new_owner() {
    let mut scene = Scene::new();
    scene.apply(&(se("e", ENTRY) + &pod("a", "1.2.3.4", "{app: foo}", "True"))).unwrap();
    scene.settle();
    scene.apply(&pod("a", "1.2.3.4", "{app: foo}", "False")).unwrap();
    scene.apply(&pod("b", "1.2.3.4", "{app: foo}", "True")).unwrap();
    scene.settle();
    step(&mut scene, "- Pod ns/a");
    assert_eq!(endpoints(&scene.world(), "e.com"), ["http 1.2.3.4:80"]);
}

#[test]
fn a_pod_leaves_when_it_can_take_no_traffic() {
    let ready = foo_pod();
    let table = [
        ready.replace("'True'", "'False'"),
        ready.replace("Running", "Failed"),
        ready.replace("Running", "Failed").replace("podIP: '1.2.3.4', podIPs: [{ip: '1.2.3.4'}], ", ""),
        ready.replace("podIP: '1.2.3.4', podIPs: [{ip: '1.2.3.4'}], ", ""),
        ready.replace("namespace: ns,", "namespace: ns, deletionTimestamp: '2024-05-01T12:00:00Z',"),
    ];
    for text in table {
        let mut scene = Scene::new();
        scene.apply(&(se("e", ENTRY) + &ready)).unwrap();
        assert_eq!(endpoints(&scene.world(), "e.com"), ["http 1.2.3.4:80"]);
        scene.apply(&text).unwrap();
        assert!(endpoints(&scene.world(), "e.com").is_empty(), "{text}");
        scene.apply(&ready).unwrap();
        assert_eq!(endpoints(&scene.world(), "e.com"), ["http 1.2.3.4:80"]);
    }
}

#[test]
fn selectors_see_the_labels_of_the_place_and_an_empty_one_sees_all() {
    let in_region = "{topology.kubernetes.io/region: r}";
    let placed = we("vm", "{address: 2.3.4.5, labels: {app: foo}, locality: r/z}");
    check(&[se("e", &ENTRY.replace("{app: foo}", in_region)), placed.clone()], "e.com", &["http 2.3.4.5:80"]);
    check(
        &[svc("foo", &SERVICE.replace("{app: foo}", in_region)), placed.clone()],
        "foo.ns",
        &["http 2.3.4.5:80"],
    );
    check(&[se("e", &ENTRY.replace("{app: foo}", "{}")), placed], "e.com", &["http 2.3.4.5:80"]);
}

#[test]
fn selection_can_be_turned_off() {
    let settings = RegistrySettings {
        select_pods: false,
        select_workload_entries: false,
        ..RegistrySettings::default()
    };
    let mut scene = Scene::with(&settings);
    scene.apply(&(svc("foo", SERVICE) + &se("e", ENTRY) + &vm("") + &foo_pod())).unwrap();
    let world = scene.world();
    assert!(endpoints(&world, "foo.ns").is_empty());
    assert_eq!(endpoints(&world, "e.com"), ["http 2.3.4.5:80"]);
}

#[test]
fn ports_of_the_service_and_of_the_entry_follow_their_changes() {
    let mut scene = Scene::new();
    scene.apply(&(svc("foo", SERVICE) + &se("e", ENTRY) + &vm(""))).unwrap();
    scene.settle();
    scene.apply(&svc("foo", &SERVICE.replace("port: 80", "port: 8080"))).unwrap();
    assert_eq!(endpoints(&scene.world(), "foo.ns"), ["http 2.3.4.5:8080"]);
    scene.apply(&svc("foo", &SERVICE.replace("port: 80", "port: 8080, targetPort: 9090"))).unwrap();
    assert_eq!(endpoints(&scene.world(), "foo.ns"), ["http 2.3.4.5:9090"]);
    scene.apply(&se("e", &ENTRY.replace("number: 80", "number: 9090, targetPort: 9091"))).unwrap();
    assert_eq!(endpoints(&scene.world(), "e.com"), ["http 2.3.4.5:9091"]);
    step(&mut scene, "- Service ns/foo");
    step(&mut scene, "- ServiceEntry ns/e");
    assert_eq!(scene.world().endpoints().count(), 0);
}
