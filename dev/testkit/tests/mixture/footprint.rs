//! What a case touches: enough to prove of two cases that neither has a say in the other's namespaces, hosts
//! and addresses.

use pilotfish_testkit::cases::Case;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

type Labels = BTreeMap<String, String>;

/// What the objects and proxies of a case name.
#[derive(Default)]
pub(crate) struct Footprint {
    /// Of objects and proxies.
    namespaces: BTreeSet<String>,
    /// `KIND NAME` of the objects without a namespace.
    cluster_scoped: BTreeSet<String>,
    root_namespace: String,
    has_mesh_settings: bool,
    /// Whether it says where networks are, which counts for all workloads of a network.
    has_networks: bool,
    /// Every address that is written somewhere, and whole networks.
    pub(crate) addresses: BTreeSet<String>,
    blocks: Vec<(IpAddr, u8)>,
    /// What services are called, and what rules are about.
    pub(crate) hosts: BTreeSet<String>,
    /// The ports of services.
    pub(crate) ports: BTreeSet<u64>,
    /// Whether something is for every gateway.
    has_ingress: bool,
    /// Whom Gateways select.
    gateway_selectors: Vec<Labels>,
    /// The labels of the gateways among the proxies.
    routers: Vec<Labels>,
}

const CLUSTER_SCOPED: [&str; 5] =
    ["Namespace", "Node", "GatewayClass", "CustomResourceDefinition", "IngressClass"];
/// Fields whose texts are hosts.
const HOSTS: [&str; 4] = ["host", "hosts", "hostnames", "externalName"];

impl Footprint {
    pub(crate) fn of(case: &Case, documents: &[Value]) -> Self {
        let mesh = case.file("mesh.yaml").unwrap();
        let mut out = Self {
            root_namespace: mesh.as_deref().and_then(root_namespace).unwrap_or_else(|| "istio-system".into()),
            has_mesh_settings: mesh.is_some() || case.file("networks.yaml").unwrap().is_some(),
            ..Self::default()
        };
        for object in documents {
            out.object(object);
        }
        for proxy in &case.proxies {
            out.namespaces.insert(proxy.namespace.clone());
            out.text(&proxy.ip);
            out.all_texts(&Value::Object(proxy.metadata.clone()));
            if proxy.kind == "router" {
                out.routers.push(proxy.labels.clone());
            }
        }
        out
    }

    fn object(&mut self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let mut namespace = text(&object["metadata"]["namespace"]);
        if CLUSTER_SCOPED.contains(&kind.as_str()) {
            // A Namespace is as good as being in it.
            namespace = if kind == "Namespace" { name.clone() } else { String::new() };
            self.cluster_scoped.insert(format!("{kind} {name}"));
        } else if namespace.is_empty() {
            namespace = "default".into();
        }
        if !namespace.is_empty() {
            self.namespaces.insert(namespace.clone());
        }
        match kind.as_str() {
            "Service" => drop(self.hosts.insert(format!("{name}.{namespace}.svc.cluster.local"))),
            "Ingress" => self.has_ingress = true,
            "Gateway" if text(&object["apiVersion"]).starts_with("networking.istio.io") => {
                let selector = object["spec"]["selector"].as_object();
                let labels = selector.into_iter().flatten().map(|(k, v)| (k.clone(), text(v)));
                self.gateway_selectors.push(labels.collect());
            }
            _ => {}
        }
        if ["Service", "ServiceEntry"].contains(&kind.as_str()) {
            let ports = object["spec"]["ports"].as_array().into_iter().flatten();
            self.ports
                .extend(ports.flat_map(|port| [&port["port"], &port["number"]]).filter_map(Value::as_u64));
        }
        self.hosts_below(object, &namespace);
        self.all_texts(object);
    }

    fn hosts_below(&mut self, value: &Value, namespace: &str) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if HOSTS.contains(&name.as_str()) {
                        each_text(value, &mut |text| {
                            let host = text.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
                            let is_short = !host.contains('.') && host != "*";
                            let full =
                                if is_short { format!("{host}.{namespace}.svc.cluster.local") } else { host };
                            self.hosts.insert(full);
                        });
                    }
                    self.hosts_below(value, namespace);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.hosts_below(item, namespace)),
            _ => {}
        }
    }

    fn all_texts(&mut self, value: &Value) {
        each_text(value, &mut |text| self.text(text));
    }

    fn text(&mut self, text: &str) {
        self.has_networks |= text == "topology.istio.io/network" || text == "NETWORK";
        for part in text.split(',') {
            if let Ok(address) = part.parse::<IpAddr>() {
                if !address.is_unspecified() && !address.is_loopback() {
                    self.addresses.insert(address.to_string());
                }
            } else if let Some((address, length)) = part.split_once('/')
                && let (Ok(address), Ok(length)) = (address.parse::<IpAddr>(), length.parse())
            {
                self.blocks.push((address, length));
            }
        }
    }

    /// Whether nothing of `other` has effect on the proxies of this case as long as `other` exports no host:
    /// it has objects neither in a namespace of these proxies nor in the root namespace, no settings of the
    /// mesh, no address of this case, no Gateway for a gateway of this case.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        let selects = |selector: &Labels| {
            self.routers.iter().any(|labels| selector.iter().all(|(k, v)| labels.get(k) == Some(v)))
        };
        self.namespaces.is_disjoint(&other.namespaces)
            && !other.namespaces.contains(&self.root_namespace)
            && !other.namespaces.contains(&other.root_namespace)
            && self.cluster_scoped.is_disjoint(&other.cluster_scoped)
            && !other.has_mesh_settings
            && !other.has_networks
            && self.addresses.is_disjoint(&other.addresses)
            && !self.covers_address_of(other)
            && !other.covers_address_of(self)
            && (self.routers.is_empty() || !other.has_ingress)
            && !other.gateway_selectors.iter().any(selects)
    }

    fn covers_address_of(&self, other: &Self) -> bool {
        let addresses = || other.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        let blocks = || other.blocks.iter().map(|block| block.0);
        self.blocks.iter().any(|block| addresses().chain(blocks()).any(|address| contains(*block, address)))
    }

    /// Whether in addition no rule and no service of one is about a host of the other.
    pub(crate) fn has_other_hosts_than(&self, other: &Self) -> bool {
        self.hosts.iter().all(|a| other.hosts.iter().all(|b| !covers(a, b) && !covers(b, a)))
    }
}

fn root_namespace(mesh: &str) -> Option<String> {
    let mesh: Value = serde_saphyr::from_str(mesh).unwrap();
    mesh["rootNamespace"].as_str().map(str::to_owned)
}

fn each_text(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(fields) => {
            for (name, value) in fields {
                visit(name);
                each_text(value, visit);
            }
        }
        _ => {}
    }
}

fn contains((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(it) => (u128::from(u32::from(it)) << 96, 32),
        IpAddr::V6(it) => (u128::from(it), 128),
    };
    let ((a, width), (b, other)) = (bits(network), bits(address));
    let mask = u128::MAX.checked_shl(128 - u32::from(length.min(width))).unwrap_or(0);
    width == other && a & mask == b & mask
}

/// Whether the host `a`, perhaps with `*` at its start, stands for `b` too.
fn covers(a: &str, b: &str) -> bool {
    a == b || a.strip_prefix('*').is_some_and(|rest| b.ends_with(rest))
}
