use super::*;
use crate::answer::{Check, Instance, Node};
use pilotfish_model::HealthStatus;
use std::fmt::Write as _;

/// Old Istio's.
pub(crate) fn mapping() -> Mapping {
    Mapping {
        host: "{service}.service.consul".to_owned(),
        namespace: "default".into(),
        namespace_label: None,
        addresses: Vec::new(),
        virtual_addresses: false,
        separator: "|".to_owned(),
        plain_tags: false,
        meta_labels: true,
        external_meta: "external".to_owned(),
        ports: PortMapping {
            protocol_meta: "protocol".to_owned(),
            default_protocol: Some(Protocol::Tcp),
            name: None,
            default_port: None,
            meta_prefix: None,
            addresses: Vec::new(),
        },
    }
}

/// An instance on a node.
pub(crate) fn entry(node: &str, id: &str) -> Entry {
    Entry {
        node: Node {
            node: node.into(),
            address: "10.9.9.9".into(),
            datacenter: "dc1".into(),
            ..Node::default()
        },
        service: Instance { id: id.into(), address: "10.0.0.1".into(), port: 8080, ..Instance::default() },
        checks: Vec::new(),
    }
}

/// What `GET /v1/health/service/web` answers, with a bit of everything.
const ENTRIES: &str = r#"[
  {
    "Node": {"ID": "1", "Node": "n1", "Address": "10.0.0.1", "Datacenter": "dc1", "TaggedAddresses": {"lan": "10.0.0.1", "wan": "192.0.2.1"}, "Meta": {}},
    "Service": {"ID": "web-1", "Service": "web", "Tags": ["version|v1", "primary", "team|a|b"], "Address": "", "Port": 8080,
      "Meta": {"protocol": "http", "version": "old", "tier": "gold", "port_admin": "9000", "port_bad": "x", "ns": "shop"}, "Weights": {"Passing": 10, "Warning": 2}},
    "Checks": [{"Node": "n1", "CheckID": "serfHealth", "Status": "passing"}, {"Node": "n1", "CheckID": "c", "Status": "warning", "ServiceID": "web-1"}]
  },
  {
    "Node": {"ID": "2", "Node": "n2", "Address": "10.0.0.2", "Datacenter": "dc1", "TaggedAddresses": {"lan": "10.0.0.2"}},
    "Service": {"ID": "web-2", "Service": "web", "Tags": null, "Address": "web-2.example.com", "Port": 8081, "Meta": {"protocol": "grpc"},
      "TaggedAddresses": {"wan": {"Address": "198.51.100.2", "Port": 80}, "metrics": {"Address": "10.0.0.2", "Port": 9100},
        "consul-virtual": {"Address": "240.0.0.1", "Port": 8081}}, "Locality": {"Region": "eu", "Zone": "eu-1"}},
    "Checks": [{"Node": "n2", "CheckID": "c", "Status": "critical", "ServiceID": "web-2"}]
  },
  {
    "Node": {"ID": "3", "Node": "n3", "Address": "10.0.0.3", "Datacenter": "dc1"},
    "Service": {"ID": "web-3", "Service": "web", "Tags": ["ns|tagged"], "Address": "10.0.0.33", "Port": 0, "Meta": null},
    "Checks": []
  },
  {
    "Node": {"ID": "3", "Node": "n3", "Address": "10.0.0.3", "Datacenter": "dc1"},
    "Service": {"ID": "web-sidecar", "Service": "web", "Kind": "connect-proxy", "Port": 21000}
  }
]"#;

/// Services and instances as lines.
fn lines(services: &[CatalogService]) -> String {
    let mut text = String::new();
    for service in services {
        let ports: Vec<_> = service
            .ports
            .iter()
            .map(|port| format!("{} {}", port.number, port.name.as_deref().unwrap_or("-")))
            .collect();
        let external = if service.mesh_external { " external" } else { "" };
        let addresses = service.addresses.join(",");
        let addresses = if addresses.is_empty() { addresses } else { format!(" at {addresses}") };
        writeln!(
            text,
            "{} = {} in {}: {}{addresses}{external}",
            service.id,
            service.host,
            service.namespace,
            ports.join(", ")
        )
        .unwrap();
        for instance in &service.instances {
            let ports: Vec<_> = instance.ports.iter().map(|port| port.number.to_string()).collect();
            let labels: Vec<_> =
                instance.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let health = if instance.health == HealthStatus::Healthy { "" } else { " unhealthy" };
            let weight =
                if instance.weight == 0 { String::new() } else { format!(" weight {}", instance.weight) };
            writeln!(
                text,
                "  {} {}:{} {} [{}]{weight}{health}",
                instance.id,
                instance.addresses.join("+"),
                ports.join("+"),
                instance.locality,
                labels.join(" ")
            )
            .unwrap();
        }
    }
    text
}

fn mapped(mapping: &Mapping) -> String {
    let entries: Vec<Entry> = serde_json::from_str(ENTRIES).unwrap();
    lines(&mapping.services("web", [("dc1", entries.as_slice())], &mut PortMemory::new()))
}

#[test]
fn the_default_is_the_mapping_of_old_istio() {
    assert_eq!(
        mapped(&mapping()),
        "\
web = web.service.consul in default: 8080 http, 8081 grpc
  dc1/n1/web-1 10.0.0.1:8080 dc1 [ns=shop port_admin=9000 port_bad=x protocol=http team=a|b tier=gold version=v1] weight 2
  dc1/n2/web-2 web-2.example.com:8081 eu/eu-1 [protocol=grpc] unhealthy
  dc1/n3/web-3 10.0.0.33: dc1 [ns=tagged]
"
    );
}

#[test]
fn settings_make_another_mapping_of_the_same() {
    let other = Mapping {
        host: "{service}.{datacenter}.example".to_owned(),
        namespace_label: Some("ns".to_owned()),
        addresses: vec!["wan".to_owned(), "lan".to_owned()],
        virtual_addresses: true,
        plain_tags: true,
        meta_labels: false,
        ports: PortMapping {
            name: Some("main".to_owned()),
            default_port: Some(80),
            meta_prefix: Some("port_".to_owned()),
            addresses: vec!["metrics".to_owned()],
            ..mapping().ports
        },
        ..mapping()
    };
    assert_eq!(
        mapped(&other),
        "\
web/dc1/default = web.dc1.example in default: 80 main, 9100 metrics at 240.0.0.1
  dc1/n2/web-2 198.51.100.2:80 eu/eu-1 [] unhealthy
  dc1/n2/web-2@10.0.0.2 10.0.0.2:9100 eu/eu-1 [] unhealthy
web/dc1/shop = web.dc1.example in shop: 8080 main, 9000 admin
  dc1/n1/web-1 192.0.2.1:8080+9000 dc1 [primary=true team=a|b version=v1] weight 2
web/dc1/tagged = web.dc1.example in tagged: 80 main
  dc1/n3/web-3 10.0.0.33:80 dc1 [ns=tagged]
"
    );
}

#[test]
fn what_lies_outside_the_mesh_is_passed_through() {
    let mut one = entry("n1", "db-1");
    one.service.meta.insert("external".to_owned(), String::new());
    let services = mapping().services("db", [("dc1", [one].as_slice())], &mut PortMemory::new());
    assert!(services[0].mesh_external);
    assert_eq!(services[0].resolution, Resolution::Passthrough);
}

#[test]
fn a_service_without_instances_keeps_its_ports_and_one_that_never_had_any_is_none() {
    let mapping = mapping();
    let mut memory = PortMemory::new();
    assert_eq!(mapping.services("web", [("dc1", [].as_slice())], &mut memory), []);
    mapping.services("web", [("dc1", [entry("n1", "web-1")].as_slice())], &mut memory);
    let empty = mapping.services("web", [("dc1", [].as_slice())], &mut memory);
    assert_eq!(lines(&empty), "web = web.service.consul in default: 8080 tcp\n");
}

#[test]
fn an_instance_that_moves_to_another_namespace_leaves_nothing_behind() {
    let mapping = Mapping { namespace_label: Some("ns".to_owned()), ..mapping() };
    let mut memory = PortMemory::new();
    let at = |namespace: &str| {
        let mut one = entry("n1", "web-1");
        one.service.meta.insert("ns".to_owned(), namespace.to_owned());
        one
    };
    mapping.services("web", [("dc1", [at("a")].as_slice())], &mut memory);
    let moved = mapping.services("web", [("dc1", [at("b")].as_slice())], &mut memory);
    assert_eq!(moved.iter().map(|service| service.namespace.as_str()).collect::<Vec<_>>(), ["b"]);
    let empty = mapping.services("web", [("dc1", [].as_slice())], &mut memory);
    assert_eq!(empty.iter().map(|service| service.namespace.as_str()).collect::<Vec<_>>(), ["b"]);
    let odd = mapping.services("web", [("dc1", [at("No Name")].as_slice())], &mut memory);
    assert_eq!(odd[0].namespace.as_str(), "default");
}

#[test]
fn absurd_ports_are_left_out() {
    for port in [-1, 0, 65536, i64::MAX, i64::MIN] {
        let mut one = entry("n1", "web-1");
        one.service.port = port;
        one.checks = vec![Check::default()];
        let services = mapping().services("web", [("dc1", [one].as_slice())], &mut PortMemory::new());
        assert_eq!(services, [], "{port}");
    }
}
