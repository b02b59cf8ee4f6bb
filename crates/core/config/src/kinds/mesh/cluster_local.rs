//! Hosts whose endpoints in other clusters are hidden.

use super::{MeshConfig, OBJECT_NAME, ServiceSettings};
use pilotfish_model::{ClusterDomain, Hostname, Namespace, World};
use std::collections::BTreeMap;

/// Hosts that are local to each cluster, by `serviceSettings` of the mesh config and Istio's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterLocal {
    hosts: BTreeMap<String, bool>,
}

impl ClusterLocal {
    /// Computes the hosts from mesh config; `domain` completes the default hosts.
    #[must_use]
    pub fn of(mesh: &MeshConfig, domain: &ClusterDomain) -> Self {
        let mut hosts: BTreeMap<String, bool> = defaults(mesh, domain)
            .into_iter()
            .filter(|default| !is_overridden(default, &mesh.service_settings))
            .map(|default| (default, true))
            .collect();
        for settings in &mesh.service_settings {
            for host in &settings.hosts {
                hosts.insert(host.clone(), settings.settings.cluster_local);
            }
        }
        Self { hosts }
    }

    /// Computes the hosts from the mesh config of a world, or from Istio's defaults if there is none.
    #[must_use]
    pub fn in_world(world: &World, domain: &ClusterDomain) -> Self {
        let mesh = world.typed::<MeshConfig>(&Namespace::default(), OBJECT_NAME);
        mesh.map_or_else(|| Self::of(&MeshConfig::default(), domain), |mesh| Self::of(&mesh, domain))
    }

    /// True if the host is local to each cluster. The most specific entry decides.
    #[must_use]
    pub fn contains(&self, host: &Hostname) -> bool {
        let host = host.as_str();
        if let Some(local) = self.hosts.get(host) {
            return *local;
        }
        let covering = self
            .hosts
            .iter()
            .filter(|(pattern, _)| pattern.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix)));
        covering.max_by_key(|(pattern, _)| pattern.len()).is_some_and(|(_, local)| *local)
    }
}

/// Hosts that are local by default: the cluster's own services and the control plane.
fn defaults(mesh: &MeshConfig, domain: &ClusterDomain) -> [String; 3] {
    let address = &mesh.default_config.discovery_address;
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let own = |name: &str, namespace: &str| domain.service(name, &namespace.into());
    [own("*", "kube-system"), own("kubernetes", "default"), domain.complete(host)]
}

/// True if a setting with `clusterLocal: false` names the default or a host below it.
fn is_overridden(default: &str, settings: &[ServiceSettings]) -> bool {
    let shared = settings.iter().filter(|settings| !settings.settings.cluster_local);
    shared
        .flat_map(|settings| &settings.hosts)
        .any(|host| host == default || default.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Settings;

    fn local(settings: &[(&[&str], bool)], host: &str) -> bool {
        let service_settings = settings.iter().map(|(hosts, cluster_local)| ServiceSettings {
            settings: Settings { cluster_local: *cluster_local },
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        });
        let mesh = MeshConfig { service_settings: service_settings.collect(), ..Default::default() };
        ClusterLocal::of(&mesh, &ClusterDomain::default()).contains(&Hostname::parse(host).unwrap())
    }

    #[test]
    fn the_most_specific_setting_decides() {
        #[rustfmt::skip]
        #[allow(clippy::type_complexity)]
        let table: &[(&[(&[&str], bool)], &str, bool)] = &[
            (&[], "s.kube-system.svc.cluster.local", true),
            (&[], "kubernetes.default.svc.cluster.local", true),
            (&[], "istiod.istio-system.svc.cluster.local", true),
            (&[], "not.cluster.local", false),
            (&[(&["*.kube-system.svc.cluster.local"], false)], "s.kube-system.svc.cluster.local", false),
            (&[(&["a.kube-system.svc.cluster.local"], false)], "s.kube-system.svc.cluster.local", false),
            (&[(&["kubernetes.default.svc.cluster.local"], false)], "kubernetes.default.svc.cluster.local", false),
            (&[(&["*.ns1.svc.cluster.local", "*.ns2.svc.cluster.local"], true)], "s.ns2.svc.cluster.local", true),
            (&[(&["*.ns1.svc.cluster.local", "*.ns2.svc.cluster.local"], true)], "s.ns3.svc.cluster.local", false),
            (&[(&["*"], true)], "s.ns1.svc.cluster.local", true),
            (&[(&["*"], true), (&["*.ns1.svc.cluster.local"], false)], "s.ns1.svc.cluster.local", false),
            (&[(&["*"], true), (&["service.ns1.svc.cluster.local"], false)], "service.ns1.svc.cluster.local", false),
            (&[(&["*.cluster.local"], true), (&["*"], false)], "echo.test.svc.cluster.local", true),
            (&[(&["*.cluster.local"], true), (&["*"], false)], "otherdomain.example.com", false),
        ];
        for (settings, host, want) in table {
            assert_eq!(local(settings, host), *want, "{settings:?} {host}");
        }
    }
}
