//! Content of the mesh: a pure function of its sizes.

use std::net::Ipv4Addr;

use crate::messages::{Kind, Locality, Node, Struct, Value};

const DOMAIN: &str = "cluster.local";
/// Number of Pods on one node of the cluster.
const PODS_PER_NODE: usize = 20;

/// Sizes of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Sizes {
    /// Services of the mesh, in all namespaces
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub services: usize,
    /// Pods, each of them a workload of a service and a proxy
    #[arg(long = "proxies", value_name = "N", default_value_t = 1_000)]
    pub pods: usize,
    /// Namespaces that the services are spread over
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub namespaces: usize,
    /// Namespaces with a Sidecar: their proxies see their own namespace, the first one and istio-system
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub sidecars: usize,
    /// Localities of the nodes that Pods run on
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub localities: usize,
    /// ServiceEntries: every second one is resolved by DNS, the others have addresses
    #[arg(long = "service-entries", alias = "entries", value_name = "N", default_value_t = 50)]
    pub entries: usize,
    /// A VirtualService with weights and a DestinationRule with subsets for every Nth service of a namespace;
    /// 0: none
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub routes_every: usize,
    /// An AuthorizationPolicy for every Nth service of a namespace; 0: none
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub policies_every: usize,
}

/// A Pod of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: String,
    /// Number of the service that selects it.
    pub service: usize,
    /// Value of its label `version`.
    pub version: String,
    pub ip: Ipv4Addr,
    /// Number of its node.
    pub node: usize,
}

impl Sizes {
    /// Validates the sizes.
    ///
    /// # Errors
    /// The size that is too small or too large.
    pub fn check(&self) -> anyhow::Result<()> {
        // All proxies see the first namespace, which needs a service with routes and one without.
        anyhow::ensure!(self.namespaces > self.sidecars, "--namespaces must be more than --sidecars");
        anyhow::ensure!(self.sidecars >= 1, "--sidecars must be 1 or more");
        anyhow::ensure!(
            self.services >= 2 * self.namespaces,
            "--services must be twice --namespaces or more"
        );
        anyhow::ensure!(self.services <= 50_000, "--services must be 50000 or less");
        anyhow::ensure!(self.pods >= self.services, "--proxies must be --services or more");
        anyhow::ensure!(self.pods <= 60_000, "--proxies must be 60000 or less");
        anyhow::ensure!(self.localities >= 1, "--localities must be 1 or more");
        Ok(())
    }

    /// Number of nodes of the cluster.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.pods.div_ceil(PODS_PER_NODE).max(self.localities)
    }

    /// Region and zone of a node: three zones in a region.
    #[must_use]
    pub fn locality(&self, node: usize) -> (String, String) {
        let locality = node % self.localities.max(1);
        (format!("region-{}", locality / 3), format!("zone-{}-{}", locality / 3, locality % 3))
    }

    /// Number of the namespace of a service.
    #[must_use]
    pub fn namespace_of(&self, service: usize) -> usize {
        service % self.namespaces
    }

    /// True if a service has a VirtualService and a DestinationRule.
    #[must_use]
    pub fn has_routes(&self, service: usize) -> bool {
        self.routes_every > 0 && (service / self.namespaces).is_multiple_of(self.routes_every)
    }

    /// True if a service has an AuthorizationPolicy.
    #[must_use]
    pub fn has_policy(&self, service: usize) -> bool {
        self.policies_every > 0 && (service / self.namespaces).is_multiple_of(self.policies_every)
    }

    /// True if a namespace has a Sidecar: the last ones do.
    #[must_use]
    pub fn has_sidecar(&self, namespace: usize) -> bool {
        namespace + self.sidecars >= self.namespaces
    }

    /// A Pod of the mesh. Those of a service alternate between the versions 1 and 2.
    #[must_use]
    pub fn pod(&self, index: usize) -> Pod {
        let (service, turn) = (index % self.services, index / self.services);
        let version = format!("v{}", 1 + turn % 2);
        Pod {
            name: format!("{}-{version}-{index}", service_name(service)),
            service,
            version,
            ip: pod_address(index),
            // Pods of a service are on different nodes, like those of a scheduler.
            node: (service + 7 * turn) % self.nodes(),
        }
    }

    /// An additional Pod: of an existing workload, or of a new workload of its service.
    #[must_use]
    pub fn further_pod(&self, index: usize, new_workload: bool) -> Pod {
        let service = index % self.services;
        let (kind, offset) = if new_workload { ("new", 2_000) } else { ("more", 0) };
        let version = if new_workload { format!("w{index}") } else { "v1".to_owned() };
        Pod {
            name: format!("{}-{version}-{kind}-{index}", service_name(service)),
            service,
            version,
            ip: pod_address(60_000 + offset + index),
            node: service % self.nodes(),
        }
    }

    /// Number of Pods whose proxy sees the services of a namespace.
    #[must_use]
    pub fn seeing(&self, namespace: usize) -> usize {
        (0..self.pods)
            .filter(|pod| {
                let own = self.namespace_of(pod % self.services);
                namespace == 0 || own == namespace || !self.has_sidecar(own)
            })
            .count()
    }

    /// Number of Pods in a namespace.
    #[must_use]
    pub fn pods_in(&self, namespace: usize) -> usize {
        (0..self.pods).filter(|pod| self.namespace_of(pod % self.services) == namespace).count()
    }

    /// Number of Pods of a service.
    #[must_use]
    pub fn pods_of(&self, service: usize) -> usize {
        (0..self.pods).filter(|pod| pod % self.services == service).count()
    }

    /// Node of a Pod's proxy, as sent by Istio's agent.
    #[must_use]
    pub fn proxy(&self, pod: &Pod) -> Node {
        let namespace = namespace_name(self.namespace_of(pod.service));
        let account = account(pod.service);
        let (region, zone) = self.locality(pod.node);
        let workload = format!("{}-{}", service_name(pod.service), pod.version);
        let (ip, node) = (pod.ip.to_string(), node_name(pod.node));
        let owner = format!("kubernetes://apis/apps/v1/namespaces/{namespace}/deployments/{workload}");
        let texts = [
            ("CLUSTER_ID", "Kubernetes"),
            ("INSTANCE_IPS", &ip),
            ("INTERCEPTION_MODE", "REDIRECT"),
            ("ISTIO_VERSION", "1.29.1"),
            ("MESH_ID", DOMAIN),
            ("NAME", &pod.name),
            ("NAMESPACE", &namespace),
            ("NODE_NAME", &node),
            ("OWNER", &owner),
            ("POD_PORTS", "[{\"name\":\"http\",\"containerPort\":8080,\"protocol\":\"TCP\"}]"),
            ("SERVICE_ACCOUNT", &account),
            ("WORKLOAD_NAME", &workload),
        ];
        let text = |value: &str| Value { kind: Some(Kind::Text(value.to_owned())) };
        let mut metadata =
            Struct { fields: texts.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect() };
        let labels = labels(pod).into_iter().map(|(key, value)| (key.to_owned(), text(&value)));
        let labels = Value { kind: Some(Kind::Struct(Struct { fields: labels.collect() })) };
        metadata.fields.insert("LABELS".to_owned(), labels);
        Node {
            id: format!("sidecar~{ip}~{}.{namespace}~{namespace}.svc.{DOMAIN}", pod.name),
            cluster: format!("{}.{namespace}", service_name(pod.service)),
            metadata: Some(metadata),
            locality: Some(Locality { region, zone, sub_zone: String::new() }),
            user_agent_name: "envoy".into(),
        }
    }
}

/// Labels of a Pod, as set by injection and a Deployment.
#[must_use]
pub fn labels(pod: &Pod) -> [(&'static str, String); 6] {
    let app = service_name(pod.service);
    let hash = xxhash_rust::xxh3::xxh3_64(format!("{app}-{}", pod.version).as_bytes()) & 0xff_ffff_ffff;
    [
        ("app", app.clone()),
        ("pod-template-hash", format!("h{hash:010x}")),
        ("security.istio.io/tlsMode", "istio".to_owned()),
        ("service.istio.io/canonical-name", app),
        ("service.istio.io/canonical-revision", pod.version.clone()),
        ("version", pod.version.clone()),
    ]
}

#[must_use]
pub fn service_name(service: usize) -> String {
    format!("svc-{service}")
}

#[must_use]
pub fn namespace_name(namespace: usize) -> String {
    format!("ns-{namespace:02}")
}

#[must_use]
pub fn node_name(node: usize) -> String {
    format!("node-{node}")
}

/// Service account of a service's Pods.
#[must_use]
pub fn account(service: usize) -> String {
    format!("{}-sa", service_name(service))
}

/// Virtual address of a service.
#[must_use]
pub fn service_address(service: usize) -> Ipv4Addr {
    // In the default Service range of API servers, 10.96.0.0/12, without the reserved first ones.
    spread(10, 97, service)
}

fn pod_address(index: usize) -> Ipv4Addr {
    spread(10, 0, index)
}

/// Address of an endpoint in a round, which no Pod has.
#[must_use]
pub fn round_address(round: usize) -> Ipv4Addr {
    spread(10, 230, round)
}

/// Address with this number in the networks from `first.second` on, without .0 and .255.
fn spread(first: u8, second: u8, index: usize) -> Ipv4Addr {
    let part = |value: usize| u8::try_from(value % 250).unwrap_or_default();
    let network = u8::try_from(index / 62_500).unwrap_or_default();
    Ipv4Addr::new(first, second.saturating_add(network), part(index / 250), 1 + part(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Sizes with which a test is quick: two namespaces of four with a Sidecar.
    fn small() -> Sizes {
        Sizes {
            services: 16,
            pods: 32,
            namespaces: 4,
            sidecars: 2,
            localities: 3,
            entries: 4,
            routes_every: 2,
            policies_every: 4,
        }
    }

    #[test]
    fn half_of_the_services_of_each_namespace_have_routes() {
        let sizes = small();
        for namespace in 0..4 {
            let of = |what: fn(&Sizes, usize) -> bool| {
                (0..16).filter(|k| sizes.namespace_of(*k) == namespace && what(&sizes, *k)).count()
            };
            assert_eq!((of(Sizes::has_routes), of(Sizes::has_policy)), (2, 1));
        }
    }

    #[test]
    fn a_sidecar_narrows_who_sees_a_namespace() {
        let sizes = small();
        assert_eq!(sizes.seeing(0), 32, "the first one is seen by all");
        assert_eq!(sizes.seeing(1), 16, "two namespaces have no Sidecar");
        assert_eq!(sizes.seeing(3), 24, "they and its own");
        assert_eq!((sizes.pods_in(3), sizes.pods_of(5)), (8, 2));
    }

    #[test]
    fn every_proxy_has_a_node_and_an_address_of_its_own() {
        let sizes = Sizes { pods: 1_000, services: 500, namespaces: 20, sidecars: 10, ..small() };
        let pods = (0..1_000).map(|index| sizes.pod(index));
        let further = (0..500).flat_map(|k| [sizes.further_pod(k, false), sizes.further_pod(k, true)]);
        let all: Vec<Pod> = pods.chain(further).collect();
        let ids: BTreeSet<String> = all.iter().map(|pod| sizes.proxy(pod).id).collect();
        let addresses: BTreeSet<Ipv4Addr> = all.iter().map(|pod| pod.ip).collect();
        assert_eq!((ids.len(), addresses.len()), (2_000, 2_000));
    }

    #[test]
    fn a_further_proxy_has_the_labels_of_a_workload_that_is_there() {
        let sizes = small();
        assert_eq!(labels(&sizes.further_pod(3, false)), labels(&sizes.pod(3)));
        assert_ne!(labels(&sizes.further_pod(3, true)), labels(&sizes.pod(3)));
    }
}
