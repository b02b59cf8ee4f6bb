//! Hosts below `clusterset.local`: each is an alias of a Kubernetes Service in all clusters, with the
//! addresses of the importing clusters' ServiceImports.

use super::entry::{RegistryEntry, Touched};
use super::merge;
use crate::registry::Import;
use pilotfish_model::{ClusterAddresses, Hostname, Provider, Resolution, Service, ServiceKey, ShardKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Imported hosts and their Services, one to one, by their common name and namespace.
#[derive(Clone, Default)]
pub(super) struct ClusterSet {
    /// The Service, and the provider of the registries that import it: only their shards have its endpoints.
    service_of: BTreeMap<ServiceKey, (ServiceKey, Provider)>,
    host_of: BTreeMap<ServiceKey, ServiceKey>,
}

impl ClusterSet {
    /// Looks up the cluster that imports a host, if any. Returns the Service that the host is, or was, an
    /// alias of.
    pub(super) fn update<'a>(
        &mut self,
        host: &ServiceKey,
        mut entries: impl Iterator<Item = &'a RegistryEntry>,
    ) -> Option<ServiceKey> {
        let import = entries.find_map(|entry| Some((entry.state.imports.get(host)?, entry.shard().provider)));
        match import {
            Some((Import { service, .. }, provider)) => {
                self.service_of.insert(host.clone(), (service.clone(), provider));
                self.host_of.insert(service.clone(), host.clone());
                Some(service.clone())
            }
            None => {
                let (service, _) = self.service_of.remove(host)?;
                self.host_of.remove(&service);
                Some(service)
            }
        }
    }

    /// Marks the hosts of touched Services as touched.
    pub(super) fn touch(&self, touched: &mut Touched) {
        let hosts: Vec<ServiceKey> =
            touched.services.iter().filter_map(|service| self.host_of.get(service)).cloned().collect();
        touched.services.extend(hosts);
        let at_host = |(service, shard): &(ServiceKey, ShardKey)| {
            Some((self.host_of.get(service)?.clone(), shard.clone()))
        };
        let shards: Vec<(ServiceKey, ShardKey)> = touched.endpoints.iter().filter_map(at_host).collect();
        touched.endpoints.extend(shards);
    }

    /// Returns the key under which the endpoints of a shard are stored: for an imported host the key of its
    /// Service, else the key itself.
    pub(super) fn owner<'a>(&'a self, key: &'a ServiceKey, shard: &ShardKey) -> &'a ServiceKey {
        let imported = self.service_of.get(key).filter(|(_, provider)| shard.provider == *provider);
        imported.map_or(key, |(service, _)| service)
    }

    /// Returns the service of an imported host: the Service that it is an alias of, under the host's name and
    /// addresses. `None` while no cluster has the Service.
    pub(super) fn service<'a>(
        &self,
        host: &ServiceKey,
        entries: impl Iterator<Item = &'a RegistryEntry> + Clone,
    ) -> Option<Arc<Service>> {
        let (key, provider) = self.service_of.get(host)?;
        let merged = merge::services(entries.clone().filter_map(|entry| entry.state.services.get(key)));
        let real = merged.iter().find(|service| service.provider == *provider)?;
        if real.resolution == Resolution::Alias {
            return None;
        }
        let imports = entries.filter_map(|entry| Some((entry.shard(), entry.state.imports.get(host)?)));
        stand_in(real, &host.hostname, imports).map(Arc::new)
    }
}

/// Builds the service of an imported host. The first import gives the address for clients of clusters without
/// one.
fn stand_in<'a>(
    real: &Service,
    hostname: &Hostname,
    imports: impl Iterator<Item = (&'a ShardKey, &'a Import)> + Clone,
) -> Option<Service> {
    let (_, first) = imports.clone().next()?;
    let addresses: ClusterAddresses =
        imports.map(|(shard, import)| (shard.cluster.clone(), import.addresses.clone())).collect();
    let mut kubernetes = real.kubernetes.as_deref().cloned().unwrap_or_default();
    kubernetes.confined = std::mem::take(&mut kubernetes.confined_in_clusterset);
    kubernetes.variants.clear();
    Some(Service {
        hostname: hostname.clone(),
        default_address: first.addresses.first().cloned()?,
        addresses,
        // Workloads belong to the Service itself.
        selector: Arc::default(),
        kubernetes: Some(Arc::new(kubernetes)),
        provenance: first.provenance.clone(),
        ..real.clone()
    })
}
