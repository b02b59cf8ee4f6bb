//! Kinds that are watched, and their resources at the API server.

use crate::watch::Resource;
use kube::core::discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery};
use pilotfish_config::served;
use pilotfish_model::Kind;
use std::collections::BTreeMap;

/// Label of Secrets with kubeconfigs of remote clusters.
pub(crate) const REMOTE_CLUSTER_LABEL: &str = "istio/multiCluster";

/// Kinds of objects that are read from a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// All kinds: for the cluster whose configuration is in force.
    #[default]
    All,
    /// Kinds that services and endpoints derive from, and the trust domain if permitted: for a remote
    /// cluster.
    Discovery,
}

/// Kinds that are read from a remote cluster. WorkloadEntries are selected across clusters; Gateways of the
/// Gateway API may be gateways between networks.
const DISCOVERY: &[Kind] = &[
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Pod,
    Kind::Node,
    Kind::Namespace,
    Kind::WorkloadEntry,
    Kind::KubernetesGateway,
    Kind::ServiceExport,
    Kind::ServiceImport,
];

/// Field selector of Secrets, without types that are never served.
const UNWANTED_SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
    type!=bootstrap.kubernetes.io/token,type!=kubernetes.io/basic-auth,type!=kubernetes.io/ssh-auth,\
    type!=kubernetes.io/dockercfg,type!=istio.io/ca-root";

impl Kinds {
    pub(super) fn includes(self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Discovery => DISCOVERY.contains(&kind),
        }
    }
}

/// The kind whose watch delivers the mesh-wide settings, and ConfigMaps with CA certificates.
pub(super) const MESH: Kind = Kind::ConfigMap;

/// Kinds and rights that determine the requests to the API server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResourceQuery<'a> {
    pub(super) kinds: Kinds,
    /// The namespace of the mesh-wide settings.
    pub(super) root_namespace: &'a str,
    /// The ConfigMap of the mesh-wide settings.
    pub(super) mesh_config_map: &'a str,
    /// True if Secrets may be read in every namespace, false for the root namespace only.
    pub(super) all_secrets: bool,
    /// True if ConfigMaps may be read in every namespace, false for the one with the mesh-wide settings only.
    pub(super) all_config_maps: bool,
    /// True if the mesh-wide settings are read.
    pub(super) mesh: bool,
}

/// Returns the resources that an API server has for these kinds, in all namespaces.
#[must_use]
pub fn resources_of(groups: &APIGroupDiscoveryList, kinds: &[Kind]) -> BTreeMap<Kind, Resource> {
    let wanted = ResourceQuery {
        kinds: Kinds::All,
        root_namespace: "",
        mesh_config_map: "",
        all_secrets: false,
        all_config_maps: false,
        mesh: true,
    };
    kinds.iter().filter_map(|kind| Some((*kind, wanted.resource(groups, *kind)?))).collect()
}

/// Paths under which a kind may be served, for all namespaces, the preferred version first.
pub(super) fn paths(kind: Kind) -> Vec<String> {
    let versions = served(kind).map_or(&[][..], |served| served.versions);
    versions.iter().map(|version| path(kind, version)).collect()
}

fn base(kind: Kind, version: &str) -> String {
    match kind.group() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

fn path(kind: Kind, version: &str) -> String {
    format!("{}/{}", base(kind, version), kind.plural())
}

impl ResourceQuery<'_> {
    /// Returns the resource to list and watch for each wanted kind that the API server has.
    pub(super) fn resources(&self, groups: &APIGroupDiscoveryList) -> BTreeMap<Kind, Resource> {
        let includes = |kind: Kind| match kind {
            MESH => self.mesh || self.all_config_maps,
            _ => self.kinds.includes(kind),
        };
        let wanted = Kind::ALL.iter().copied().filter(|kind| includes(*kind));
        wanted.filter_map(|kind| Some((kind, self.resource(groups, kind)?))).collect()
    }

    fn resource(&self, groups: &APIGroupDiscoveryList, kind: Kind) -> Option<Resource> {
        let version = match kind.group() {
            // The core group is not in the discovery of groups, and every API server has it.
            "" => "v1",
            _ => served(kind)?.versions.iter().find(|version| has(groups, kind, version))?,
        };
        let everywhere = path(kind, version);
        let base = base(kind, version);
        let in_root = format!("{base}/namespaces/{}/{}", self.root_namespace, kind.plural());
        let (path, fields) = match kind {
            MESH if self.all_config_maps => (everywhere, String::new()),
            MESH => (in_root, format!("metadata.name={}", self.mesh_config_map)),
            Kind::Secret if self.all_secrets => (everywhere, UNWANTED_SECRETS.to_owned()),
            Kind::Secret => (in_root, UNWANTED_SECRETS.to_owned()),
            _ => (everywhere, String::new()),
        };
        // Gateways do not use credentials of remote clusters.
        let labels = match kind {
            Kind::Secret => format!("{}!=true", REMOTE_CLUSTER_LABEL),
            _ => String::new(),
        };
        Some(Resource { path, labels, fields })
    }
}

/// True if the kind has the subresource `status` in the served version.
#[must_use]
pub fn has_status(groups: &APIGroupDiscoveryList, kind: Kind, at: &Resource) -> bool {
    let version = at.path.trim_start_matches("/apis/").split('/').nth(1).unwrap_or_default();
    let subresources = discovered(groups, kind, version).map(|found| found.subresources.as_slice());
    subresources.unwrap_or_default().iter().any(|part| part.subresource.as_deref() == Some("status"))
}

fn has(groups: &APIGroupDiscoveryList, kind: Kind, version: &str) -> bool {
    discovered(groups, kind, version).is_some()
}

fn discovered<'a>(
    groups: &'a APIGroupDiscoveryList,
    kind: Kind,
    version: &str,
) -> Option<&'a APIResourceDiscovery> {
    let name = |group: &APIGroupDiscovery| group.metadata.as_ref().and_then(|meta| meta.name.clone());
    let group = groups.items.iter().find(|group| name(group).as_deref() == Some(kind.group()))?;
    let version = group.versions.iter().find(|known| known.version.as_deref() == Some(version))?;
    version.resources.iter().find(|resource| resource.resource.as_deref() == Some(kind.plural()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_can_be_written_where_the_kind_has_the_subresource() {
        let version = |name: &str, parts: &[&str]| {
            let parts: Vec<_> = parts.iter().map(|part| serde_json::json!({"subresource": part})).collect();
            serde_json::json!({"version": name, "resources": [{"resource": "httproutes", "subresources": parts}]})
        };
        for (v1, beta, at, expected) in [
            (Some(&["scale", "status"][..]), None, "v1", true),
            (Some(&[][..]), Some(&["status"][..]), "v1", false),
            (None, Some(&["status"][..]), "v1beta1", true),
        ] {
            let versions = v1.map(|parts| version("v1", parts)).into_iter();
            let versions: Vec<_> = versions.chain(beta.map(|parts| version("v1beta1", parts))).collect();
            let list = serde_json::json!({"items": [{
                "metadata": {"name": "gateway.networking.k8s.io"}, "versions": versions}]});
            let groups: APIGroupDiscoveryList = serde_json::from_value(list).unwrap();
            let found = resources_of(&groups, &[Kind::HttpRoute]);
            let resource = &found[&Kind::HttpRoute];
            assert!(resource.path.contains(&format!("/{at}/")), "{resource:?}");
            assert_eq!(has_status(&groups, Kind::HttpRoute, resource), expected, "{at}");
        }
    }
}
