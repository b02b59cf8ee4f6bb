//! The multi-cluster services API: which Services other clusters may see, and which hosts stand for a Service in all of them.

use crate::links::Name;
use crate::registry::Import;
use crate::settings::{MultiClusterServices, RegistrySettings};
use pilotfish_config::kubernetes::ServiceImport;
use pilotfish_model::{CLUSTER_SET, ClusterId, Hostname, HostnameError, Origin, ServiceKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The ServiceExports and ServiceImports of a cluster.
#[derive(Clone, Default)]
pub(super) struct Exports {
    exported: BTreeSet<Name>,
    imported: BTreeMap<ServiceKey, Import>,
    changed: BTreeSet<ServiceKey>,
}

/// Where the endpoints that this cluster has for a Service are hidden from other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Confined {
    /// Behind the Service's own host.
    pub(super) own: bool,
    /// Behind its host below `clusterset.local`.
    pub(super) clusterset: bool,
}

impl Exports {
    /// Notes whether a Service is exported.
    pub(super) fn set_export(&mut self, name: &Name, exported: bool) {
        if exported {
            self.exported.insert(name.clone());
        } else {
            self.exported.remove(name);
        }
    }

    /// What that means for the Service of the name.
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

    /// Takes in an import, or that it is gone. One without an IP address, for a Service without one, stands for nothing.
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
                tracing::warn!(import = %name, %error, "the ServiceImport's name makes no host name, it is left out");
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

    /// The hosts whose import is another one than before.
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
