//! Several clusters in one mesh, from objects to what proxies of each are sent; and a domain other than
//! `cluster.local`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_config::SourceEvent;
use pilotfish_model::{ChangeSet, ClusterDomain, Fact, Kind, WorldWriter};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Struct, Value, ValueKind};
use pilotfish_registry::testing::{EXTERNAL, KUBERNETES, objects};
use pilotfish_registry::{
    AggregateController, AggregateSettings, KubernetesRegistry, MultiClusterServices, RegistrySettings,
    ServiceEntryRegistry,
};
use pilotfish_testkit::dump::dump;
use pilotfish_translate::{Proxy, Translator};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The clusters `c1`, which has the configuration, and `c2`, fed with YAML.
struct Mesh {
    controller: AggregateController,
    domain: &'static str,
}

impl Mesh {
    fn new(settings: &RegistrySettings, domain: &'static str) -> Self {
        let mut controller = AggregateController::new(AggregateSettings {
            config_feed: "c1".into(),
            primary: "c1".into(),
            ..AggregateSettings::default()
        });
        for cluster in ["c1", "c2"] {
            let settings =
                RegistrySettings { cluster: cluster.into(), domain: domain.into(), ..settings.clone() };
            controller.add_source(cluster, "test");
            controller.add_registry(Box::new(KubernetesRegistry::new(KUBERNETES, settings.clone())), cluster);
            let entries = match cluster {
                "c1" => ServiceEntryRegistry::new(EXTERNAL, settings),
                _ => ServiceEntryRegistry::workload_entries_only(EXTERNAL, settings),
            };
            controller.add_registry(Box::new(entries), cluster);
        }
        Self { controller, domain }
    }

    fn apply(&mut self, cluster: &str, text: &str) {
        for object in objects(text).unwrap() {
            let event = SourceEvent::Apply(object);
            self.controller.source_event(cluster, "test", event).unwrap();
        }
    }

    fn set_mesh(&mut self, config: &str) {
        let limits = pilotfish_config::Limits::default();
        let file = pilotfish_config::MeshFile::Config;
        let read = pilotfish_config::read_mesh_file(file, "mesh.yaml", config.as_bytes(), &limits);
        assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        for object in read.objects {
            let event = SourceEvent::Apply(object.object);
            self.controller.source_event("c1", "test", event).unwrap();
        }
    }

    /// Everything that a sidecar of the namespace `shop` is sent in each of some clusters.
    fn sidecars(&mut self, proxies: &[(&str, &[(&str, &str)])]) -> Vec<Json> {
        let mut writer = WorldWriter::new();
        for update in self.controller.settle() {
            writer.apply(update);
        }
        let translator = Translator::with_settings(ClusterDomain::new(self.domain).into());
        let (world, _) = writer.publish().unwrap();
        translator.publish(world, &ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() });
        let dumped = proxies.iter().map(|(name, metadata)| {
            let client = translator.connect(sidecar(name, self.domain, metadata));
            dump(&translator.snapshot(), &client, None).unwrap()
        });
        dumped.collect()
    }
}

fn sidecar(name: &str, domain: &str, metadata: &[(&str, &str)]) -> Proxy {
    let fields = metadata.iter().map(|(key, value)| {
        let value = Value { kind: Some(ValueKind::StringValue((*value).to_owned())) };
        ((*key).to_owned(), value)
    });
    Proxy::from_node(&Node {
        id: format!("sidecar~10.0.99.1~{name}.shop~shop.svc.{domain}"),
        metadata: Some(Struct { fields: fields.collect() }),
        ..Node::default()
    })
    .unwrap()
}

fn service(name: &str, address: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{clusterIP: {address}, selector: {{app: {name}}}, ports: [{{name: http, port: 80{more}}}]}}\n---\n"
    )
}

/// A ready Pod behind a Service, with its slice. `labels` begins with a comma.
fn pod(service: &str, name: &str, address: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: {service}{labels}}}}}\n\
         spec: {{serviceAccountName: {service}, containers: [{{name: app, image: x}}]}}\n\
         status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}], conditions: [{{type: Ready, status: 'True'}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: {service}}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\n\
         endpoints: [{{addresses: [{address}], targetRef: {{kind: Pod, name: {name}, namespace: shop}}}}]\n---\n"
    )
}

/// `address:port weight` of a load assignment, sorted.
fn endpoints(dump: &Json, cluster: &str) -> Vec<String> {
    let assignment = &dump["endpoints"][cluster];
    let localities = assignment["endpoints"].as_array().into_iter().flatten();
    let all = localities.flat_map(|locality| locality["lb_endpoints"].as_array().into_iter().flatten());
    let mut texts: Vec<String> = all
        .map(|endpoint| {
            let address = &endpoint["endpoint"]["address"]["socket_address"];
            let (host, port) = (address["address"].as_str().unwrap(), &address["port_value"]);
            format!("{host}:{port} {}", endpoint["load_balancing_weight"])
        })
        .collect();
    texts.sort();
    texts
}

fn has(dump: &Json, kind: &str, name: &str) -> bool {
    dump[kind].get(name).is_some()
}

const WEB: &str = "outbound|80||web.shop.svc.cluster.local";
const C1: (&str, &[(&str, &str)]) = ("client", &[("CLUSTER_ID", "c1")]);
const C2: (&str, &[(&str, &str)]) = ("client", &[("CLUSTER_ID", "c2")]);

/// `web` with one Pod in each cluster.
fn two_clusters(settings: &RegistrySettings) -> Mesh {
    let mut mesh = Mesh::new(settings, "cluster.local");
    mesh.apply("c1", &(service("web", "10.1.0.1", "") + &pod("web", "web-1", "1.0.0.1", "")));
    mesh.apply("c2", &(service("web", "10.2.0.1", "") + &pod("web", "web-2", "2.0.0.1", "")));
    mesh
}

#[test]
fn a_service_has_the_endpoints_of_all_clusters_and_the_addresses_of_the_own() {
    let mut mesh = two_clusters(&RegistrySettings::default());
    mesh.apply("c1", &service("tcp", "10.1.0.9", "").replace("name: http", "name: tcp"));
    mesh.apply("c2", &service("tcp", "10.2.0.9", "").replace("name: http", "name: tcp"));
    let dumps = mesh.sidecars(&[C1, C2]);
    for dump in &dumps {
        assert_eq!(endpoints(dump, WEB), ["1.0.0.1:8080 1", "2.0.0.1:8080 1"]);
    }
    let listeners = |at: usize| ["10.1.0.9_80", "10.2.0.9_80"].map(|name| has(&dumps[at], "listeners", name));
    assert_eq!((listeners(0), listeners(1)), ([true, false], [false, true]));
}

#[test]
fn headless_variant_of_a_service_listens_at_its_endpoints_and_not_everywhere() {
    let tcp = |text: String| text.replace("name: http", "name: tcp");
    for (c1, c2) in [("10.1.0.1", "None"), ("None", "10.1.0.1")] {
        let mut mesh = Mesh::new(&RegistrySettings::default(), "cluster.local");
        mesh.apply("c1", &tcp(service("web", c1, "") + &pod("web", "web-1", "1.0.0.1", "")));
        mesh.apply("c2", &tcp(service("web", c2, "") + &pod("web", "web-2", "2.0.0.1", "")));
        let dumps = mesh.sidecars(&[C1, C2]);
        let headless = &dumps[usize::from(c2 == "None")];
        let own = if c2 == "None" { "2.0.0.1_80" } else { "1.0.0.1_80" };
        assert!(has(headless, "listeners", own), "{c1} {c2}");
        assert!(dumps.iter().all(|dump| !has(dump, "listeners", "0.0.0.0_80")), "{c1} {c2}");
        assert!(has(&dumps[usize::from(c1 == "None")], "listeners", "10.1.0.1_80"), "{c1} {c2}");
    }
}

#[test]
fn cluster_local_hosts_keep_to_their_cluster() {
    let mut mesh = two_clusters(&RegistrySettings::default());
    mesh.set_mesh("serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.shop.svc.cluster.local']}]");
    let dumps = mesh.sidecars(&[C1, C2]);
    assert_eq!(endpoints(&dumps[0], WEB), ["1.0.0.1:8080 1"]);
    assert_eq!(endpoints(&dumps[1], WEB), ["2.0.0.1:8080 1"]);
}

#[test]
fn endpoints_of_another_network_are_behind_its_gateways() {
    let mut mesh = Mesh::new(&RegistrySettings::default(), "cluster.local");
    let istio = ", security.istio.io/tlsMode: istio";
    let network = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: istio-system, labels: {{topology.istio.io/network: {name}}}}}\n---\n"
        )
    };
    let gateway = |network: &str, ips: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: eastwest, namespace: shop, labels: {{topology.istio.io/network: {network}}}}}\n\
             spec: {{type: LoadBalancer, clusterIP: 10.0.0.9, ports: [{{name: tls, port: 15443}}]}}\n\
             status: {{loadBalancer: {{ingress: {ips}}}}}\n---\n"
        )
    };
    mesh.apply(
        "c1",
        &(network("n1") + &service("web", "10.1.0.1", "") + &pod("web", "web-1", "1.0.0.1", istio)),
    );
    mesh.apply("c1", &gateway("n1", "[{ip: 8.1.0.1}]"));
    mesh.apply(
        "c2",
        &(network("n2") + &service("web", "10.2.0.1", "") + &pod("web", "web-2", "2.0.0.1", istio)),
    );
    mesh.apply(
        "c2",
        &(gateway("n2", "[{ip: 8.2.0.1}, {ip: 8.2.0.2}]") + &pod("web", "web-3", "2.0.0.2", "")),
    );
    let at = |cluster, network| [("CLUSTER_ID", cluster), ("NETWORK", network)];
    let (c1, c2) = (at("c1", "n1"), at("c2", "n2"));
    let dumps = mesh.sidecars(&[("client", &c1), ("client", &c2)]);
    // The Pod of c2 without mutual TLS cannot be reached through a gateway.
    assert_eq!(endpoints(&dumps[0], WEB), ["1.0.0.1:8080 2", "8.2.0.1:15443 1", "8.2.0.2:15443 1"]);
    assert_eq!(endpoints(&dumps[1], WEB), ["2.0.0.1:8080 2", "2.0.0.2:8080 2", "8.1.0.1:15443 2"]);
}

#[test]
fn exports_decide_over_clusters_and_imports_over_hosts() {
    let settings = RegistrySettings {
        multi_cluster_services: MultiClusterServices::Hosts,
        ..RegistrySettings::default()
    };
    let mut mesh = two_clusters(&settings);
    let object = |kind: &str, rest: &str| {
        format!(
            "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\n{rest}---\n"
        )
    };
    mesh.apply("c1", &object("ServiceExport", ""));
    mesh.apply(
        "c2",
        &object("ServiceImport", "spec: {type: ClusterSetIP, ips: [10.9.0.1], ports: [{port: 80}]}\n"),
    );
    let dumps = mesh.sidecars(&[C1, C2]);
    let clusterset = "outbound|80||web.shop.svc.clusterset.local";
    for host in [WEB, clusterset] {
        assert_eq!(endpoints(&dumps[0], host), ["1.0.0.1:8080 1"], "c2 does not export it");
        assert_eq!(endpoints(&dumps[1], host), ["1.0.0.1:8080 1", "2.0.0.1:8080 1"]);
    }
}

#[test]
fn a_workload_serves_the_ports_of_its_own_cluster() {
    let mut mesh = Mesh::new(&RegistrySettings::default(), "cluster.local");
    mesh.apply("c1", &(service("web", "10.1.0.1", ", targetPort: 8080") + &service("only", "10.1.0.2", "")));
    mesh.apply("c1", &pod("web", "web-1", "10.0.99.1", ""));
    mesh.apply("c2", &service("web", "10.2.0.1", ", targetPort: 9090"));
    mesh.apply("c2", &(pod("web", "web-1", "10.0.99.1", "") + &pod("only", "only-1", "2.0.0.9", "")));
    let only = [("CLUSTER_ID", "c2"), ("INSTANCE_IPS", "2.0.0.9")];
    let dumps = mesh.sidecars(&[("web-1", C1.1), ("web-1", C2.1), ("only-1", &only)]);
    let inbound = |dump: &Json| -> Vec<String> {
        let names = dump["clusters"].as_object().unwrap().keys();
        names.filter(|name| name.starts_with("inbound|")).cloned().collect()
    };
    assert_eq!(inbound(&dumps[0]), ["inbound|8080||"]);
    assert_eq!(inbound(&dumps[1]), ["inbound|9090||"]);
    assert!(inbound(&dumps[2]).is_empty(), "the Service is in the other cluster only");
}

#[test]
fn services_that_cannot_select_entries_are_not_behind_them() {
    let mut mesh = Mesh::new(&RegistrySettings::default(), "cluster.local");
    mesh.apply("c1", &(service("web", "10.1.0.1", "") + &service("headless", "None", ", targetPort: 81")));
    mesh.apply(
        "c1",
        "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\n\
         spec: {address: 10.0.99.1, labels: {app: web}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm2, namespace: shop}\n\
         spec: {address: 10.0.99.1, labels: {app: headless}}\n",
    );
    let dumps = mesh.sidecars(&[("vm", C1.1), ("vm2", C1.1), ("vm", C2.1)]);
    let inbound = |at: usize| ["inbound|80||", "inbound|81||"].map(|name| has(&dumps[at], "clusters", name));
    assert_eq!(inbound(0), [true, false]);
    assert_eq!(inbound(1), [false, false], "headless Services select no WorkloadEntries");
    assert_eq!(inbound(2), [false, false], "the entry is in another cluster");
}

#[test]
fn short_names_are_completed_with_the_domain_of_the_mesh() {
    let mut mesh = Mesh::new(&RegistrySettings::default(), "example.org");
    mesh.apply("c1", &(service("web", "10.1.0.1", "") + &service("api", "10.1.0.2", "")));
    mesh.apply(
        "c1",
        "apiVersion: v1\nkind: Service\nmetadata: {name: alias, namespace: shop}\n\
         spec: {type: ExternalName, externalName: web.shop.svc.example.org}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: api, namespace: shop}\n\
         spec: {hosts: [api], http: [{route: [{destination: {host: web, subset: v1}}]}]}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\n\
         spec: {host: web, subsets: [{name: v1, labels: {version: v1}}]}\n",
    );
    mesh.apply("c1", &service("dns", "10.1.0.3", "").replace("namespace: shop", "namespace: kube-system"));
    let slice = pod("dns", "dns-1", "1.0.0.3", "").replace("namespace: shop", "namespace: kube-system");
    mesh.apply(
        "c2",
        &(service("dns", "10.2.0.3", "").replace("namespace: shop", "namespace: kube-system") + &slice),
    );
    let dumps = mesh.sidecars(&[C1]);
    let subset = "outbound|80|v1|web.shop.svc.example.org";
    assert!(has(&dumps[0], "clusters", subset));
    assert!(
        endpoints(&dumps[0], "outbound|80||dns.kube-system.svc.example.org").is_empty(),
        "it is cluster-local"
    );
    let hosts = dumps[0]["routes"]["80"]["virtual_hosts"].as_array().unwrap();
    let hosts: BTreeMap<&str, &Json> =
        hosts.iter().map(|host| (host["name"].as_str().unwrap(), host)).collect();
    let api = hosts["api.shop.svc.example.org:80"];
    assert_eq!(api["routes"][0]["route"]["cluster"], subset);
    let domains = |host: &Json| -> Vec<String> {
        host["domains"].as_array().unwrap().iter().map(|domain| domain.as_str().unwrap().to_owned()).collect()
    };
    assert!(domains(api).contains(&"api".to_owned()), "{:?}", domains(api));
    let web = domains(hosts["web.shop.svc.example.org:80"]);
    assert!(web.contains(&"alias.shop.svc.example.org".to_owned()), "{web:?}");
}
