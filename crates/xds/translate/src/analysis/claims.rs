//! Hosts that several VirtualServices of the mesh have: only the first one is used.
//!
//! No fact of the world lists the VirtualServices of a host, so a query would read all of them after each
//! change. This type follows single objects instead.

use super::finding::listed;
use super::virtual_service::is_of_mesh;
use super::{Code, Finding};
use crate::routing::VirtualServiceHeader;
use pilotfish_model::{ExportTo, Hostname, Namespace, ObjectKey};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum number of VirtualServices of one host that are compared with each other; the work grows with the
/// square of their number.
const MOST_COMPARED: usize = 100;

/// The VirtualServices of the mesh by their hosts.
#[derive(Default)]
pub(super) struct Claims {
    headers: HashMap<ObjectKey, Arc<VirtualServiceHeader>>,
    /// VirtualServices of each host, in order of precedence.
    by_host: HashMap<Hostname, Vec<(ObjectKey, Arc<VirtualServiceHeader>)>>,
}

impl Claims {
    /// Updates a VirtualService. Returns the hosts that it gained, lost, or has in a different way.
    pub(super) fn set(
        &mut self,
        key: &ObjectKey,
        header: Option<VirtualServiceHeader>,
    ) -> BTreeSet<Hostname> {
        let header = header.filter(is_of_mesh).map(Arc::new);
        if self.headers.get(key) == header.as_ref() {
            return BTreeSet::new();
        }
        let mut touched = BTreeSet::new();
        if let Some(before) = self.headers.remove(key) {
            for host in &before.hosts {
                if let Some(list) = self.by_host.get_mut(host) {
                    list.retain(|(other, _)| other != key);
                    if list.is_empty() {
                        self.by_host.remove(host);
                    }
                }
                touched.insert(host.clone());
            }
        }
        if let Some(header) = header {
            for host in header.hosts.iter().collect::<BTreeSet<_>>() {
                let list = self.by_host.entry(host.clone()).or_default();
                let at = list.partition_point(|(_, other)| other.precedence() < header.precedence());
                list.insert(at, (key.clone(), header.clone()));
                touched.insert(host.clone());
            }
            self.headers.insert(key.clone(), header);
        }
        touched
    }

    /// The VirtualServices that have some of these hosts.
    pub(super) fn of_hosts(&self, hosts: &BTreeSet<Hostname>) -> BTreeSet<ObjectKey> {
        let lists = hosts.iter().filter_map(|host| self.by_host.get(host));
        lists.flatten().map(|(key, _)| key.clone()).collect()
    }

    /// The hosts that a VirtualService has in common with others.
    pub(super) fn findings(&self, key: &ObjectKey) -> Vec<Finding> {
        self.headers.get(key).map(|header| self.of(key, header)).unwrap_or_default()
    }

    /// Returns the findings as if the VirtualService had this header.
    pub(super) fn supposed(&self, key: &ObjectKey, header: &VirtualServiceHeader) -> Vec<Finding> {
        if is_of_mesh(header) { self.of(key, header) } else { Vec::new() }
    }

    fn of(&self, key: &ObjectKey, own: &VirtualServiceHeader) -> Vec<Finding> {
        let hosts: BTreeSet<&Hostname> = own.hosts.iter().collect();
        hosts.into_iter().filter_map(|host| self.conflict(key, own, host)).collect()
    }

    fn conflict(&self, key: &ObjectKey, own: &VirtualServiceHeader, host: &Hostname) -> Option<Finding> {
        let others = self.by_host.get(host)?.iter().take(MOST_COMPARED);
        let others: Vec<_> = others.filter(|(other, header)| other != key && meet(own, header)).collect();
        if others.is_empty() {
            return None;
        }
        let is_first = others.iter().all(|(_, other)| own.precedence() < other.precedence());
        let which = if is_first { "this one is used" } else { "the other is used" };
        let names = listed(others.iter().map(|(other, _)| format!("{}/{}", other.namespace, other.name)));
        Some(Finding {
            object: key.clone(),
            path: "spec.hosts".to_owned(),
            code: Code::ConflictingMeshGatewayVirtualServiceHosts,
            message: format!("VirtualService {names} has the host {host} in the mesh, too: {which}"),
            hint: Some("merge them into one, or use delegates".to_owned()),
        })
    }
}

/// Returns true if both are visible in some common namespace. A namespace prefers its own VirtualService to
/// public ones, as users expect, so a private one never conflicts with one of another namespace.
fn meet(a: &VirtualServiceHeader, b: &VirtualServiceHeader) -> bool {
    let seen = |header: &VirtualServiceHeader| -> Option<Arc<BTreeSet<Namespace>>> {
        match &header.export_to {
            ExportTo::Unset | ExportTo::Public => None,
            ExportTo::Nobody => Some(Arc::default()),
            ExportTo::Namespaces(namespaces) => Some(namespaces.clone()),
        }
    };
    match (seen(a), seen(b)) {
        (None, None) => true,
        (Some(a), Some(b)) => !a.is_disjoint(&b),
        (Some(_), None) | (None, Some(_)) => false,
    }
}
