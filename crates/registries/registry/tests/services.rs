//! Kubernetes Services: addresses, ports, annotations, traffic distribution.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_model::{ExportTo, Protocol, Resolution, TargetPort, TrafficDistribution};
use pilotfish_registry::testing::Scene;
use support::{endpoints, pod, service, services, slice, step, svc, world};

#[test]
fn a_service_has_its_address_and_its_ports() {
    let spec = "{clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: x, port: 9000}, \
                {name: db, port: 3306, targetPort: sql}, {name: dns, port: 53, protocol: UDP}, \
                {name: tcp-x, port: 70, appProtocol: kubernetes.io/h2c}, {name: http-b, port: 71, appProtocol: ''}]}";
    let world = world(&svc("web", spec));
    let web = service(&world, "web.ns");
    assert_eq!(web.resolution, Resolution::ClientSideLB);
    assert_eq!(&*web.default_address, "10.0.0.1");
    assert_eq!(web.addresses.get("Kubernetes").unwrap().to_vec(), ["10.0.0.1".into()]);
    let protocols: Vec<_> = web.ports.iter().map(|port| port.protocol).collect();
    use Protocol::{Http, Http2, Tcp, Udp, Unsupported};
    assert_eq!(protocols, [Http, Unsupported, Tcp, Udp, Http2, Unsupported]);
    assert_eq!(web.ports[0].target_port, Some(TargetPort::Number(80)));
    assert_eq!(web.ports[2].target_port, Some(TargetPort::Name("sql".into())));
}

#[test]
fn resolution_and_addresses_follow_cluster_ips() {
    let table = [
        ("{clusterIP: 10.0.0.1, ports: [{port: 80}]}", Resolution::ClientSideLB, vec!["10.0.0.1"]),
        (
            "{clusterIPs: [10.0.0.1, '2001:db8::1'], ports: [{port: 80}]}",
            Resolution::ClientSideLB,
            vec!["10.0.0.1", "2001:db8::1"],
        ),
        ("{ports: [{port: 80}]}", Resolution::ClientSideLB, vec!["0.0.0.0"]),
        ("{clusterIP: None, ports: [{port: 80}]}", Resolution::Passthrough, vec!["0.0.0.0"]),
        ("{type: ExternalName, externalName: db.example.com}", Resolution::Alias, vec!["0.0.0.0"]),
    ];
    for (spec, resolution, addresses) in table {
        let world = world(&svc("web", spec));
        let web = service(&world, "web.ns");
        assert_eq!(web.resolution, resolution, "{spec}");
        let got: Vec<&str> = web.addresses.get("Kubernetes").unwrap().iter().map(|a| &**a).collect();
        assert_eq!(got, addresses, "{spec}");
        assert_eq!(&*web.default_address, addresses[0], "{spec}");
        assert_eq!(web.mesh_external, resolution == Resolution::Alias, "{spec}");
    }
}

#[test]
fn an_external_name_has_no_endpoints() {
    let text = svc("db", "{type: ExternalName, externalName: db.example.com}")
        + &slice("db-1", "db", "[{name: x, port: 1}]", "[{addresses: [1.2.3.4]}]");
    let world = world(&text);
    let attributes = service(&world, "db.ns").kubernetes.clone().unwrap();
    assert_eq!(attributes.external_name.as_deref(), Some("db.example.com"));
    assert!(world.endpoints_of(&support::short_key("db.ns")).is_none());
}

#[test]
fn external_addresses_come_from_the_load_balancer_and_the_spec() {
    let text = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns}
spec: {type: LoadBalancer, clusterIP: 10.0.0.1, externalIPs: [2.2.2.2], ports: [{port: 80, nodePort: 30080}]}
status: {loadBalancer: {ingress: [{ip: 1.1.1.1}, {hostname: a.b}]}}
";
    let attributes = service(&world(text), "web.ns").kubernetes.clone().unwrap();
    let external = attributes.external_addresses.get("Kubernetes").unwrap();
    assert_eq!(external.to_vec(), ["1.1.1.1".into(), "a.b".into(), "2.2.2.2".into()]);
    assert!(attributes.node_ports.is_empty());
    assert_eq!(&*attributes.service_type, "LoadBalancer");
}

#[test]
fn annotations_give_visibility_and_accounts() {
    let export = |value: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: ns, \
             annotations: {{networking.istio.io/exportTo: '{value}'}}}}\nspec: {{clusterIP: 10.0.0.1, ports: [{{port: 80}}]}}"
        );
        service(&world(&text), "web.ns").export_to.clone()
    };
    assert_eq!(export(" ns2, ns3 "), ExportTo::namespaces(["ns2", "ns3"]));
    assert_eq!(export("."), ExportTo::namespaces(["ns"]));
    assert_eq!(export("~"), ExportTo::Nobody);
    assert_eq!(export("*,ns2"), ExportTo::Public);
    assert_eq!(export(""), ExportTo::Unset);

    let text = "
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: ns
  annotations:
    alpha.istio.io/canonical-serviceaccounts: spiffe://x
    alpha.istio.io/kubernetes-serviceaccounts: sa1,sa2
spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}
";
    let mut scene = Scene::new();
    scene.apply(text).unwrap();
    let accounts = |scene: &mut Scene| service(&scene.world(), "web.ns").service_accounts.to_vec();
    let of = |domain: &str, name: &str| format!("spiffe://{domain}/ns/ns/sa/{name}").into();
    assert_eq!(
        accounts(&mut scene),
        ["spiffe://x".into(), of("cluster.local", "sa1"), of("cluster.local", "sa2")]
    );
    scene.set_mesh("trustDomain: td.example").unwrap();
    assert_eq!(accounts(&mut scene), ["spiffe://x".into(), of("td.example", "sa1"), of("td.example", "sa2")]);
}

/// Rule 13 of Istio 1.31.
#[test]
fn traffic_distribution_comes_from_spec_annotation_or_namespace() {
    use TrafficDistribution::{Any, PreferSameNode, PreferSameZone};
    let table = [
        ("PreferClose", "", "", PreferSameZone),
        ("PreferSameZone", "PreferSameNode", "", PreferSameZone),
        ("PreferSameNode", "", "", PreferSameNode),
        ("Unknown", "preferclose", "", PreferSameZone),
        ("", "PREFERSAMENODE", "PreferClose", PreferSameNode),
        ("", "", "PreferClose", PreferSameZone),
        ("", "junk", "PreferClose", Any),
        ("", "", "", Any),
    ];
    for (spec, own, namespace, want) in table {
        let quoted = |text: &str| if text.is_empty() { "null".to_owned() } else { format!("'{text}'") };
        let annotated = |name: &str, value: &str| match value {
            "" => format!("{{name: {name}}}"),
            value => format!(
                "{{name: {name}, annotations: {{networking.istio.io/traffic-distribution: '{value}'}}}}"
            ),
        };
        let mut metadata = annotated("web", own);
        metadata.insert_str(1, "namespace: ns, ");
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {metadata}\nspec: {{clusterIP: 10.0.0.1, ports: [{{port: 80}}], \
             trafficDistribution: {}}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {}\n",
            quoted(spec),
            annotated("ns", namespace)
        );
        let world = world(&text);
        assert_eq!(service(&world, "web.ns").traffic_distribution, want, "{spec:?} {own:?} {namespace:?}");
    }
}

#[test]
fn a_namespace_annotation_reaches_services_that_are_there() {
    let mut scene = Scene::new();
    scene.apply(&svc("web", "{clusterIP: 10.0.0.1, ports: [{port: 80}]}")).unwrap();
    scene.world();
    scene
        .apply(
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns, annotations: \
             {networking.istio.io/traffic-distribution: PreferClose}}",
        )
        .unwrap();
    let distribution = |scene: &mut Scene| service(&scene.world(), "web.ns").traffic_distribution;
    assert_eq!(distribution(&mut scene), TrafficDistribution::PreferSameZone);
    step(&mut scene, "- Namespace ns");
    assert_eq!(distribution(&mut scene), TrafficDistribution::Any);
}

#[test]
fn a_deleted_service_leaves_nothing_and_comes_back_with_its_endpoints() {
    let mut scene = Scene::new();
    let web = svc("web", "{clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}");
    scene.apply(&web).unwrap();
    scene.apply(&slice("web-1", "web", "[{name: http, port: 8080}]", "[{addresses: [1.2.3.4]}]")).unwrap();
    assert_eq!(endpoints(&scene.world(), "web.ns"), ["http 1.2.3.4:8080"]);
    step(&mut scene, "- Service ns/web");
    let world = scene.world();
    assert!(services(&world, "web.ns").is_empty());
    assert!(world.endpoints_of(&support::short_key("web.ns")).is_none());
    scene.apply(&web).unwrap();
    assert_eq!(endpoints(&scene.world(), "web.ns"), ["http 1.2.3.4:8080"]);
}

#[test]
fn only_real_differences_are_reported() {
    let mut scene = Scene::new();
    let with = |annotation: &str, target: u16| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: ns, annotations: {{note: '{annotation}'}}}}\n\
             spec: {{clusterIP: 10.0.0.1, ports: [{{name: http, port: 80, targetPort: {target}}}]}}"
        )
    };
    scene.apply(&with("a", 8080)).unwrap();
    scene.apply(&pod("p", "1.2.3.4", "{}", "True")).unwrap();
    scene.settle();
    scene.apply(&with("b", 8080)).unwrap();
    assert!(scene.settle().is_empty());
    scene.apply(&with("b", 9090)).unwrap();
    assert!(!scene.settle().is_empty());
}
