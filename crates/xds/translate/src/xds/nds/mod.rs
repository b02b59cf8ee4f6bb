//! The name table (NDS): from what Istio's agent answers the DNS queries of a workload. One resource, without
//! a name.

mod headless;

use crate::engine::{Cx, EncodedResource, Query, ResourceBatch, ResourceBatchKey};
use crate::proxy::{Proxy, ProxyKind};
use crate::scope::{EgressOf, ListenerServicesOf, Scope};
use crate::services::service_address::AddressView;
use headless::{HeadlessView, NamesOf};
use pilotfish_model::{Origin, Provider, Resolution, Service};
use pilotfish_proto::istio::{NameInfo, NameTable};
use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The domain of services that are shared by clusters: the agent does not complete short names to it.
const CLUSTER_SET: &str = ".clusterset.local";

/// The facets of a proxy that its name table may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameTableView {
    /// Scope of the services that it sees.
    pub scope: Scope,
    /// Facets that the addresses of services depend on.
    pub addresses: AddressView,
    /// Its place, where some service is known by its endpoints.
    headless: Option<HeadlessView>,
}

impl NameTableView {
    /// The view of a proxy; `None` when it is not served this type.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        (proxy.kind == ProxyKind::Sidecar).then(|| Self {
            scope: Scope::of(cx, proxy),
            addresses: AddressView::of(cx, proxy),
            headless: cx
                .get(&AnyHeadless)
                .then(|| HeadlessView { cluster: proxy.cluster.clone(), network: proxy.network.clone() }),
        })
    }

    /// The batches of the whole set; `None` for clients that subscribe by name.
    #[must_use]
    #[allow(clippy::unnecessary_wraps, reason = "the shape that all types have")]
    pub(crate) fn batch_keys(&self, _cx: &Cx<'_>) -> Option<Vec<ResourceBatchKey>> {
        Some(vec![ResourceBatchKey::Static])
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, _unit: &ResourceBatchKey) -> ResourceBatch {
        let mut table = Table::default();
        for index in 0..cx.get(&EgressOf(self.scope.clone())).len() {
            for service in cx.get(&ListenerServicesOf(self.scope.clone(), index)).iter() {
                self.add(cx, service, &mut table);
            }
        }
        table.drop_taken_short_names();
        let names = table.names.into_iter().map(|(name, (_, info))| (name, info)).collect();
        let message = NameTable { table: names };
        vec![EncodedResource::new("", &message, table.provenance)].into()
    }

    fn add(&self, cx: &Cx<'_>, service: &Arc<Service>, table: &mut Table) {
        let listed = self.addresses.all(service);
        let unspecified = listed.iter().any(|address| &**address == Service::UNSPECIFIED);
        let mut addresses: Vec<String> = Vec::new();
        if !unspecified {
            // Ranges are no addresses to answer with.
            let single = listed.iter().filter(|address| address.parse::<IpAddr>().is_ok());
            addresses.extend(single.map(ToString::to_string));
        } else if let Some(view) = &self.headless
            && service.resolution == Resolution::Passthrough
            && !service.ports.is_empty()
        {
            let headless = cx.get(&NamesOf {
                service: service.key(),
                unready: service.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.publish_not_ready),
                entries: service.entries.clone(),
                view: view.clone(),
            });
            for pod in &headless.pods {
                table.add_pod(service, pod);
            }
            addresses.clone_from(&headless.addresses);
        }
        if !(addresses.is_empty() && (unspecified || listed.is_empty())) {
            table.add_service(service, addresses);
        }
    }
}

/// Query: true if any service is known by the addresses of its endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnyHeadless;

impl Query for AnyHeadless {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let is_headless = |service: &Arc<Service>| service.resolution == Resolution::Passthrough;
        cx.services().any(|(_, services)| services.iter().any(is_headless))
    }
}

/// The table while it is filled.
#[derive(Default)]
struct Table {
    names: BTreeMap<String, (Provider, NameInfo)>,
    /// Hosts of live registries.
    live: Vec<String>,
    provenance: Vec<Origin>,
}

impl Table {
    /// Several services of one host: those of the first registry in order win, those of one registry add up.
    fn add_service(&mut self, service: &Service, addresses: Vec<String>) {
        let host = service.hostname.to_string();
        let short = service.has_short_name && !host.ends_with(CLUSTER_SET);
        let text = |text: &str| if short { text.to_owned() } else { String::new() };
        let new = NameInfo {
            ips: addresses,
            registry: service.provider.istio_name().to_owned(),
            shortname: text(&service.name),
            namespace: text(service.namespace.as_str()),
        };
        self.provenance.push(service.provenance.clone());
        if service.provenance.as_object().is_none() {
            self.live.push(host.clone());
        }
        match self.names.entry(host) {
            Entry::Vacant(free) => drop(free.insert((service.provider, new))),
            Entry::Occupied(mut held) => {
                let (provider, held) = held.get_mut();
                match service.provider.cmp(provider) {
                    Ordering::Less => (*provider, *held) = (service.provider, new),
                    Ordering::Equal if service.addresses.is_empty() => held.ips.extend(new.ips),
                    Ordering::Equal | Ordering::Greater => {}
                }
            }
        }
    }

    /// Takes away hosts of live registries that agents would answer in place of a Kubernetes Service of that
    /// short name.
    fn drop_taken_short_names(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let short = |info: &NameInfo| format!("{}.{}", info.shortname, info.namespace);
        let taken: BTreeSet<String> = self
            .names
            .values()
            .filter(|(_, info)| !info.shortname.is_empty())
            .map(|(_, info)| short(info))
            .collect();
        for host in std::mem::take(&mut self.live) {
            if taken.contains(host.strip_suffix(".svc").unwrap_or(&host)) {
                self.names.remove(&host);
            }
        }
    }

    /// A pod of a headless service, under the name that Kubernetes gives it. Where two clusters have it, the
    /// proxy's own one counts.
    fn add_pod(&mut self, service: &Service, pod: &headless::Pod) {
        let Some((_, domain)) = service.hostname.as_str().split_once('.') else { return };
        let info = NameInfo {
            ips: pod.addresses.clone(),
            registry: service.provider.istio_name().to_owned(),
            shortname: pod.name.clone(),
            namespace: service.namespace.to_string(),
        };
        match self.names.entry(format!("{}.{domain}", pod.name)) {
            Entry::Vacant(free) => drop(free.insert((service.provider, info))),
            Entry::Occupied(mut held) if pod.own_cluster => drop(held.insert((service.provider, info))),
            Entry::Occupied(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
