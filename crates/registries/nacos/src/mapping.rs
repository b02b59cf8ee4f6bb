//! Mapping of Nacos services and instances.

use pilotfish_model::{HealthStatus, Locality, Namespace};
use pilotfish_nacos_wire::{
    CLUSTER_LABEL, DEFAULT_CLUSTER, Host, HostPattern, MAX_WEIGHT, ServiceInfo, grpc_port, protocol,
};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Factor of weights if any of them has a fraction.
const FRACTIONS: f64 = 100.0;

/// Namespace and group of a list of services.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    pub(crate) namespace: Arc<str>,
    pub(crate) group: Arc<str>,
}

/// Identity of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceName {
    pub(crate) scope: Scope,
    pub(crate) name: Arc<str>,
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@@{}", self.scope.namespace, self.scope.group, self.name)
    }
}

/// Source of the zone of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ZoneFrom {
    /// Metadata: `region`, `zone` and `subzone`.
    #[default]
    Metadata,
    /// The cluster is the zone; region and subzone come from the metadata.
    Cluster,
}

/// Options of the mapping.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mapping {
    pub(crate) host: HostPattern,
    pub(crate) zone: ZoneFrom,
    /// Only instances of these clusters; empty for all.
    pub(crate) clusters: BTreeSet<String>,
    pub(crate) namespace: Namespace,
}

impl Mapping {
    /// Returns the service of an answer. `ports` are its last known ports, which stay while it has no
    /// instance.
    pub(crate) fn service(
        &self,
        name: &ServiceName,
        info: &ServiceInfo,
        ports: &[CatalogPort],
    ) -> CatalogService {
        let mut service = CatalogService::new(name.to_string(), self.host_of(name), self.namespace.clone());
        let scale = if self.used(info).any(|host| host.weight.fract() != 0.0) { FRACTIONS } else { 1.0 };
        service.instances = self.used(info).map(|host| self.instance(info, host, scale)).collect();
        if service.instances.is_empty() {
            service.ports = ports.to_vec();
        }
        service
    }

    fn host_of(&self, name: &ServiceName) -> String {
        let Scope { namespace, group } = &name.scope;
        self.host.host(namespace, group, &name.name)
    }

    /// Returns the ports of a service.
    pub(crate) fn ports(service: &CatalogService) -> Vec<CatalogPort> {
        let ports = service.instances.iter().flat_map(|instance| &instance.ports);
        let by_number: BTreeMap<u32, &CatalogPort> = ports.map(|port| (port.number, &port.service)).collect();
        by_number.into_values().cloned().collect()
    }

    /// Returns the instances in use: enabled by the operator, and with a weight above 0.
    fn used<'a>(&'a self, info: &'a ServiceInfo) -> impl Iterator<Item = &'a Host> {
        info.hosts.iter().filter(|host| {
            let is_chosen = self.clusters.is_empty() || self.clusters.contains(cluster(host));
            host.enabled && host.weight > 0.0 && !host.ip.is_empty() && is_chosen
        })
    }

    fn instance(&self, info: &ServiceInfo, host: &Host, scale: f64) -> CatalogInstance {
        let cluster = cluster(host);
        let id = format!("{}#{}#{cluster}", host.ip, host.port);
        let mut mapped = CatalogInstance::new(id, host.ip.as_str());
        mapped.labels =
            host.metadata.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
        mapped.ports = ports(host, &mapped.labels);
        mapped.locality = self.locality(cluster, &mapped.labels);
        mapped.labels.entry(CLUSTER_LABEL.to_owned()).or_insert_with(|| cluster.to_owned());
        mapped.weight = weight(host.weight, scale);
        // Below its protect threshold a server means clients to use all instances.
        let is_healthy = host.healthy || info.reach_protection_threshold;
        mapped.health = if is_healthy { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
        mapped
    }

    fn locality(&self, cluster: &str, labels: &BTreeMap<String, String>) -> Locality {
        let of = |key: &str| labels.get(key).map_or("", String::as_str);
        let zone = match self.zone {
            ZoneFrom::Metadata => of("zone"),
            ZoneFrom::Cluster => cluster,
        };
        Locality { region: of("region").into(), zone: zone.into(), sub_zone: of("subzone").into() }
    }
}

fn cluster(host: &Host) -> &str {
    if host.cluster_name.is_empty() { DEFAULT_CLUSTER } else { &host.cluster_name }
}

/// Returns the scaled weight, never 0: that would mean "not set".
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 1,000,000")]
fn weight(weight: f64, scale: f64) -> u32 {
    (weight.min(MAX_WEIGHT) * scale).round().max(1.0) as u32
}

/// Returns the port of an instance, and its gRPC port from the metadata.
fn ports(host: &Host, metadata: &BTreeMap<String, String>) -> Vec<InstancePort> {
    let port = |number: u32, protocol: Option<&str>| InstancePort {
        service: CatalogPort { number, name: None, protocol: protocol.map(str::to_owned) },
        number,
    };
    let grpc = grpc_port(host.port, metadata).map(|number| port(number, Some("grpc")));
    let own = Some(port(host.port, protocol(metadata)));
    own.into_iter().chain(grpc).filter(|port| (1..=65_535).contains(&port.number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(host: &str) -> Mapping {
        Mapping {
            host: HostPattern::parse(host).unwrap(),
            zone: ZoneFrom::Metadata,
            clusters: BTreeSet::new(),
            namespace: "default".into(),
        }
    }

    fn name(namespace: &str, group: &str, name: &str) -> ServiceName {
        ServiceName { scope: Scope { namespace: namespace.into(), group: group.into() }, name: name.into() }
    }

    /// A service with one host for each JSON object.
    fn map(mapping: &Mapping, hosts: &str) -> CatalogService {
        let info = serde_json::from_str(&format!(r#"{{"hosts":[{hosts}]}}"#)).unwrap();
        mapping.service(&name("public", "DEFAULT_GROUP", "web"), &info, &[])
    }

    const PATTERN: &str = pilotfish_nacos_wire::DEFAULT_HOST;

    #[test]
    fn a_service_has_the_ids_of_nacos() {
        let service = map(&mapping(PATTERN), r#"{"ip":"10.0.0.1","port":80}"#);
        assert_eq!(&*service.id, "public/DEFAULT_GROUP@@web");
        assert_eq!(&*service.instances[0].id, "10.0.0.1#80#DEFAULT");
    }

    #[test]
    fn what_an_operator_took_out_is_out() {
        for (host, want) in [
            (r#"{"ip":"10.0.0.1","port":80}"#, Some((HealthStatus::Healthy, 1))),
            (r#"{"ip":"10.0.0.1","port":80,"weight":3}"#, Some((HealthStatus::Healthy, 3))),
            (r#"{"ip":"10.0.0.1","port":80,"weight":1e300}"#, Some((HealthStatus::Healthy, 10_000))),
            (r#"{"ip":"10.0.0.1","port":80,"healthy":false}"#, Some((HealthStatus::Unhealthy, 1))),
            (r#"{"ip":"10.0.0.1","port":80,"weight":0}"#, None),
            (r#"{"ip":"10.0.0.1","port":80,"weight":-1}"#, None),
            (r#"{"ip":"10.0.0.1","port":80,"enabled":false}"#, None),
            (r#"{"ip":"","port":80}"#, None),
        ] {
            let service = map(&mapping(PATTERN), host);
            let got = service.instances.first().map(|instance| (instance.health, instance.weight));
            assert_eq!(got, want, "{host}");
        }
    }

    #[test]
    fn fractions_of_weights_keep_their_proportion() {
        let weights = |hosts: &str| -> Vec<u32> {
            map(&mapping(PATTERN), hosts).instances.iter().map(|instance| instance.weight).collect()
        };
        let hosts = r#"{"ip":"10.0.0.1","port":80,"weight":1},{"ip":"10.0.0.2","port":80,"weight":2}"#;
        assert_eq!(weights(hosts), [1, 2]);
        let hosts = r#"{"ip":"10.0.0.1","port":80,"weight":1},{"ip":"10.0.0.2","port":80,"weight":0.25},
            {"ip":"10.0.0.3","port":80,"weight":0.0001}"#;
        assert_eq!(weights(hosts), [100, 25, 1]);
    }

    #[test]
    fn below_the_protect_threshold_all_are_used() {
        let text =
            r#"{"hosts":[{"ip":"10.0.0.1","port":80,"healthy":false}],"reachProtectionThreshold":true}"#;
        let info = serde_json::from_str(text).unwrap();
        let service = mapping(PATTERN).service(&name("public", "G", "web"), &info, &[]);
        assert_eq!(service.instances[0].health, HealthStatus::Healthy);
    }

    #[test]
    fn metadata_tells_protocols_and_a_port_for_grpc() {
        for (metadata, want) in [
            ("{}", "80"),
            (r#"{"protocol":"http2"}"#, "80 http2"),
            (r#"{"protocol":"tri"}"#, "80 grpc"),
            (r#"{"protocol":"dubbo"}"#, "80 tcp"),
            (r#"{"protocol":"rest","secure":"true"}"#, "80 http"),
            (r#"{"preserved.register.source":"SPRING_CLOUD"}"#, "80 http"),
            (r#"{"preserved.register.source":"SPRING_CLOUD","secure":"true"}"#, "80 https"),
            (r#"{"preserved.register.source":"SPRING_CLOUD","gRPC_port":"9090"}"#, "80 http, 9090 grpc"),
            (r#"{"gRPC.port":"80"}"#, "80"),
            (r#"{"gRPC.port":"http"}"#, "80"),
            (r#"{"gRPC.port":"99999"}"#, "80"),
            (r#"{"gRPC.port":null}"#, "80"),
        ] {
            let service =
                map(&mapping(PATTERN), &format!(r#"{{"ip":"10.0.0.1","port":80,"metadata":{metadata}}}"#));
            let ports = service.instances[0].ports.iter().map(|port| {
                let protocol = port.service.protocol.as_deref();
                protocol.map_or(port.number.to_string(), |protocol| format!("{} {protocol}", port.number))
            });
            assert_eq!(ports.collect::<Vec<_>>().join(", "), want, "{metadata}");
        }
        let service = map(&mapping(PATTERN), r#"{"ip":"10.0.0.1","port":0}"#);
        assert!(service.instances[0].ports.is_empty(), "0 is no port");
    }

    #[test]
    fn clusters_are_labels_and_zones_if_wanted_and_can_be_chosen() {
        let hosts = r#"{"ip":"10.0.0.1","port":80,"clusterName":"hz","metadata":{"region":"r","zone":"z","subzone":"s"}},
            {"ip":"10.0.0.2","port":80,"clusterName":null}"#;
        let show = |mapping: &Mapping| -> Vec<String> {
            let one = |instance: &CatalogInstance| {
                let locality = &instance.locality;
                let cluster = instance.labels.get(CLUSTER_LABEL).unwrap();
                format!("{cluster}: {}/{}/{}", locality.region, locality.zone, locality.sub_zone)
            };
            map(mapping, hosts).instances.iter().map(one).collect()
        };
        assert_eq!(show(&mapping(PATTERN)), ["hz: r/z/s", "DEFAULT: //"]);
        let by_cluster = Mapping { zone: ZoneFrom::Cluster, ..mapping(PATTERN) };
        assert_eq!(show(&by_cluster), ["hz: r/hz/s", "DEFAULT: /DEFAULT/"]);
        let chosen = Mapping { clusters: ["DEFAULT".to_owned()].into(), ..mapping(PATTERN) };
        assert_eq!(show(&chosen), ["DEFAULT: //"]);
    }

    #[test]
    fn ports_stay_while_there_is_no_instance() {
        let before = map(&mapping(PATTERN), r#"{"ip":"10.0.0.1","port":80,"metadata":{"gRPC_port":"90"}}"#);
        let ports = Mapping::ports(&before);
        assert_eq!(ports.iter().map(|port| port.number).collect::<Vec<_>>(), [80, 90]);
        let service = mapping(PATTERN).service(&name("public", "G", "web"), &ServiceInfo::default(), &ports);
        assert_eq!(service.ports, ports);
    }

    proptest! {
        #[test]
        fn nothing_that_a_server_writes_panics(
            ip in ".{0,40}", port: u32, weight: f64, key in ".{0,20}", value in ".{0,20}", host in ".{0,40}",
        ) {
            let one = Host {
                ip, port, weight, healthy: true, enabled: true, cluster_name: host.clone(),
                metadata: [(key, Some(value))].into(), instance_id: String::new(), ephemeral: true,
                service_name: String::new(),
            };
            let info = ServiceInfo { hosts: vec![one], ..ServiceInfo::default() };
            let _ = mapping(PATTERN).service(&name(&host, &host, &host), &info, &[]);
        }
    }
}
