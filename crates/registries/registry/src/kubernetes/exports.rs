//! Multi-cluster services API: Services that are exported to other clusters, and hosts for Services of all
//! clusters.

use crate::links::Name;
use crate::registry::Import;
use crate::settings::{MultiClusterServices, RegistrySettings};
use pilotfish_config::kubernetes::ServiceImport;
use pilotfish_model::{CLUSTER_SET, ClusterId, Hostname, HostnameError, Origin, ServiceKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// ServiceExports and ServiceImports of a cluster.
#[derive(Clone, Default)]
pub(super) struct Exports {
    exported: BTreeSet<Name>,
    imported: BTreeMap<ServiceKey, Import>,
    changed: BTreeSet<ServiceKey>,
}

/// Hosts of a Service behind which the endpoints of this cluster are hidden from other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Confined {
    /// True if they are hidden behind the Service's own host.
    pub(super) own: bool,
    /// True if they are hidden behind its host below `clusterset.local`.
    pub(super) clusterset: bool,
}

impl Exports {
    /// Sets or clears the export of a Service.
    pub(super) fn set_export(&mut self, name: &Name, exported: bool) {
        if exported {
            self.exported.insert(name.clone());
        } else {
            self.exported.remove(name);
        }
    }

    /// Returns the hosts of a Service behind which its endpoints are hidden.
    pub(super) fn confine(&self, name: &Name, mode: MultiClusterServices) -> Confined {
        let hidden = !self.exported.contains(name);
        match mode {
            MultiClusterServices::Off => Confined::default(),
            MultiClusterServices::Discovery | MultiClusterServices::Hosts => {
                Confined { own: hidden, clusterset: hidden }
            }
            MultiClusterServices::ClusterLocal => Confined { own: true, clusterset: hidden },
        }
    }

    /// Sets or removes an import. An import without an IP address, for a headless Service, is ignored.
    pub(super) fn set_import(
        &mut self,
        name: &Name,
        object: Option<&Typed<ServiceImport>>,
        settings: &RegistrySettings,
    ) {
        let keys = key(name, CLUSTER_SET).and_then(|host| Ok((host, key(name, &settings.domain)?)));
        let (host, service) = match keys {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(
                    import = %name, %error,
                    "the ServiceImport's name is not valid in a host name; the ServiceImport is ignored"
                );
                return;
            }
        };
        let new = object.and_then(|object| import(object, service, &settings.cluster));
        let old = match new.clone() {
            Some(new) => self.imported.insert(host.clone(), new),
            None => self.imported.remove(&host),
        };
        if old != new {
            self.changed.insert(host);
        }
    }

    /// Returns the hosts whose import has changed.
    pub(super) fn settle(&mut self) -> impl Iterator<Item = (ServiceKey, Option<Import>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|host| {
            let import = self.imported.get(&host).cloned();
            (host, import)
        })
    }
}

fn key(name: &Name, domain: &str) -> Result<ServiceKey, HostnameError> {
    let hostname = Hostname::of_kubernetes_service(&name.name, name.namespace.as_str(), domain)?;
    Ok(ServiceKey { hostname, namespace: name.namespace.clone() })
}

fn import(object: &Typed<ServiceImport>, service: ServiceKey, cluster: &ClusterId) -> Option<Import> {
    let valid = object.spec.ips.iter().filter(|ip| ip.parse::<IpAddr>().is_ok());
    let sorted: BTreeSet<Arc<str>> = valid.map(|ip| ip.as_str().into()).collect();
    let provenance = Origin::object(object.key().clone(), cluster.clone());
    let addresses: Arc<[Arc<str>]> = sorted.into_iter().collect();
    (!addresses.is_empty()).then_some(Import { service, addresses, provenance })
}
