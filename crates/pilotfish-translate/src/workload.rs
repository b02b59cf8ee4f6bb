//! The workload that a proxy belongs to, as the registries know it.

use crate::{Cx, Proxy, Query};
use pilotfish_model::{ClusterId, Labels, Namespace, Workload, WorkloadKey, WorkloadKind};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Who a proxy says that it is, as far as its workload depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The name in the node id.
    pub name: Arc<str>,
    /// The namespace.
    pub namespace: Namespace,
    /// The cluster.
    pub cluster: ClusterId,
    /// The addresses.
    pub ips: Arc<[IpAddr]>,
}

impl Identity {
    /// The identity of a proxy.
    #[must_use]
    pub fn of(proxy: &Proxy) -> Self {
        Self {
            name: proxy.name.clone(),
            namespace: proxy.namespace.clone(),
            cluster: proxy.cluster.clone(),
            ips: proxy.ips.clone(),
        }
    }

    /// Its pod: found by name and namespace, whatever its address.
    #[must_use]
    pub fn pod(&self, cx: &Cx<'_>) -> Option<Arc<Workload>> {
        cx.workload(&WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            cluster: self.cluster.clone(),
        })
    }

    /// Its WorkloadEntry: one that has its first address. Where several do, the one of its name and namespace, else the
    /// first of its namespace, else the first.
    #[must_use]
    pub fn workload_entry(&self, cx: &Cx<'_>) -> Option<Arc<Workload>> {
        let address = self.ips.first()?.to_string();
        let keys = cx.workloads_at(&address);
        let entries: Vec<&WorkloadKey> =
            keys.iter().filter(|key| key.kind == WorkloadKind::WorkloadEntry).collect();
        let own = |key: &&&WorkloadKey| key.namespace == self.namespace;
        let named = |key: &&&WorkloadKey| own(key) && key.name == self.name;
        let key = entries.iter().find(named).or_else(|| entries.iter().find(own)).or(entries.first())?;
        cx.workload(key)
    }
}

/// The workload of a proxy: its pod, else its WorkloadEntry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkloadOf(pub Identity);

impl Query for WorkloadOf {
    type Output = Option<Arc<Workload>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        self.0.pod(cx).or_else(|| self.0.workload_entry(cx))
    }
}

/// The labels of a proxy's workload: what the registries know, else what the node says. Labels of the node's
/// `STATIC_LABELS` are kept where the registries do not have them.
#[must_use]
pub fn labels_of(cx: &Cx<'_>, proxy: &Proxy) -> Labels {
    let workload = cx.get(&WorkloadOf(Identity::of(proxy)));
    let Some(workload) = &*workload else { return proxy.labels.clone() };
    if proxy.static_labels.is_empty() {
        return workload.labels.clone();
    }
    let mut labels: BTreeMap<String, String> = (*proxy.static_labels).clone();
    labels.extend(workload.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    Arc::new(labels)
}
