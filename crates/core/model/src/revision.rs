//! Revision of a control plane: the objects that it reads, and those whose status it writes.
//!
//! Several control planes share a cluster by revisions, as Istio's do. The label `istio.io/rev` of an object
//! names a revision, or a tag of one.

use crate::Kind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Label that binds an object, a Pod or the Pods of a namespace to a revision.
pub const REVISION_LABEL: &str = "istio.io/rev";
/// Label of webhook configurations with the name of a tag.
pub const TAG_LABEL: &str = "istio.io/tag";

/// Tag of the revision that handles objects without a label which only one revision may handle.
const DEFAULT: &str = "default";
/// Revision of Pods that a process without a revision name handles.
const UNNAMED: &str = "pilotfish";

/// A revision with its tags. The default one has no name and reads everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    name: Option<Arc<str>>,
    /// `None` until they have been read.
    tags: Option<Arc<BTreeSet<Arc<str>>>>,
}

impl Revision {
    /// Revision of that name, whose tags are not known yet.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), tags: None }
    }

    /// Returns the revision with these tags instead of its own.
    #[must_use]
    pub fn with_tags(&self, tags: BTreeSet<Arc<str>>) -> Self {
        Self { name: self.name.clone(), tags: Some(Arc::new(tags)) }
    }

    /// Name; `None` for a process that reads the objects of all revisions.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Value of the label `istio.io/rev` of webhook configurations, and of Pods with its sidecars.
    #[must_use]
    pub fn label(&self) -> &str {
        self.name().unwrap_or(UNNAMED)
    }

    /// Iterates over the tags; empty while they are unknown.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().flat_map(|tags| tags.iter()).map(|tag| &**tag)
    }

    /// Selector of the webhook configurations of its tags.
    #[must_use]
    pub fn tag_selector(&self) -> String {
        format!("{TAG_LABEL},{REVISION_LABEL}={}", self.label())
    }

    /// Name of an object that each revision has of its own.
    #[must_use]
    pub fn name_of(&self, base: &str) -> String {
        self.name().map_or_else(|| base.to_owned(), |name| format!("{base}-{name}"))
    }

    /// Name of the ConfigMap with the mesh-wide settings, as in Istio.
    #[must_use]
    pub fn mesh_config_map(&self) -> String {
        let suffix = self.name().filter(|name| *name != DEFAULT);
        suffix.map_or_else(|| "istio".to_owned(), |name| format!("istio-{name}"))
    }

    /// True for kinds whose objects belong to revisions: Istio's, and those of the Gateway API except for
    /// Gateways and their listeners, for which a revision only leaves the status to others.
    #[must_use]
    pub fn divides(kind: Kind) -> bool {
        match kind.group() {
            "gateway.networking.k8s.io" => !matches!(kind.name(), "Gateway" | "ListenerSet"),
            "mesh.istio.io" => false,
            group => group.ends_with(".istio.io"),
        }
    }

    /// True if objects of the kind with that label `istio.io/rev` are read.
    #[must_use]
    pub fn reads(&self, kind: Kind, label: Option<&str>) -> bool {
        let (Some(_), Some(label)) = (&self.name, label) else { return true };
        !Self::divides(kind) || self.is(label)
    }

    /// True while an object that [`Self::reads`] leaves out may still have a tag of this revision.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        self.name.is_some() && self.tags.is_none()
    }

    /// True if this revision writes the status of objects with that label `istio.io/rev` in a namespace with
    /// that one. Exactly one revision does. Without a label of either, it is the default revision.
    ///
    /// For a process without a name, labels of namespaces only decide on injection.
    #[must_use]
    pub fn writes_status(&self, label: Option<&str>, namespace: Option<&str>) -> bool {
        let namespace = namespace.filter(|_| self.name.is_some());
        label.or(namespace).map_or_else(|| self.is_default(), |label| self.is(label))
    }

    /// True for the revision that handles objects and namespaces without a label.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.name.is_none() || self.is(DEFAULT)
    }

    /// True if the label is the revision's name or one of its tags.
    fn is(&self, label: &str) -> bool {
        label == self.label() || self.tags().any(|tag| tag == label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(tags: &[&str]) -> Revision {
        Revision::named("canary").with_tags(tags.iter().map(|tag| Arc::from(*tag)).collect())
    }

    #[test]
    fn objects_are_read_by_their_own_label() {
        let (route, gateway) = (Kind::HttpRoute, Kind::KubernetesGateway);
        let cases = [
            // A process without a revision reads everything.
            (Revision::default(), Kind::VirtualService, None, true),
            (Revision::default(), Kind::VirtualService, Some("canary"), true),
            (Revision::default(), route, Some(""), true),
            // Istio's kinds and those of the Gateway API: the name, a tag, or no label.
            (canary(&[]), Kind::VirtualService, None, true),
            (canary(&[]), Kind::VirtualService, Some("canary"), true),
            (canary(&[]), Kind::VirtualService, Some("stable"), false),
            (canary(&[]), Kind::VirtualService, Some("default"), false),
            (canary(&[]), Kind::VirtualService, Some("pilotfish"), false),
            (canary(&[]), Kind::VirtualService, Some(""), false),
            (canary(&["prod", "default"]), Kind::VirtualService, Some("prod"), true),
            (canary(&["prod", "default"]), Kind::VirtualService, Some("default"), true),
            (canary(&["prod", "default"]), Kind::VirtualService, Some("Prod"), false),
            (Revision::named("canary"), Kind::VirtualService, Some("prod"), false),
            (canary(&[]), Kind::AuthorizationPolicy, Some("stable"), false),
            (canary(&[]), Kind::Telemetry, Some("stable"), false),
            (canary(&[]), Kind::WasmPlugin, Some("stable"), false),
            (canary(&[]), Kind::Gateway, Some("stable"), false),
            (canary(&[]), route, Some("stable"), false),
            (canary(&[]), Kind::GrpcRoute, Some("stable"), false),
            (canary(&[]), Kind::TcpRoute, Some("stable"), false),
            (canary(&[]), Kind::TlsRoute, Some("canary"), true),
            // Others belong to the cluster, whatever their label.
            (canary(&[]), gateway, Some("stable"), true),
            (canary(&[]), Kind::Service, Some("stable"), true),
            (canary(&[]), Kind::Pod, Some("stable"), true),
            (canary(&[]), Kind::Namespace, Some("stable"), true),
            (canary(&[]), Kind::Ingress, Some("stable"), true),
            (canary(&[]), Kind::ConfigMap, Some("stable"), true),
            (canary(&[]), Kind::ServiceExport, Some("stable"), true),
            (canary(&[]), Kind::MeshConfig, Some("stable"), true),
        ];
        for (revision, kind, label, expected) in cases {
            assert_eq!(revision.reads(kind, label), expected, "{revision:?} {kind} {label:?}");
        }
    }

    #[test]
    fn one_revision_writes_each_status() {
        let (unnamed, named) = (Revision::default(), canary(&[]));
        let default = Revision::named("stable").with_tags(BTreeSet::from(["default".into()]));
        let istiod = Revision::named("default").with_tags(BTreeSet::new());
        for (label, namespace, [by_unnamed, by_canary, by_default, by_istiod]) in [
            (None, None, [true, false, true, true]),
            (Some("canary"), None, [false, true, false, false]),
            (Some("canary"), Some("stable"), [false, true, false, false]),
            (Some("stable"), None, [false, false, true, false]),
            (Some("default"), None, [false, false, true, true]),
            (Some("pilotfish"), None, [true, false, false, false]),
            (None, Some("canary"), [true, true, false, false]),
            (None, Some("stable"), [true, false, true, false]),
            (Some("other"), None, [false; 4]),
        ] {
            let of = |revision: &Revision| revision.writes_status(label, namespace);
            let written = [of(&unnamed), of(&named), of(&default), of(&istiod)];
            assert_eq!(written, [by_unnamed, by_canary, by_default, by_istiod], "{label:?} in {namespace:?}");
        }
    }

    #[test]
    fn only_unread_tags_of_a_named_revision_leave_objects_undecided() {
        assert!(!Revision::default().is_undecided());
        assert!(Revision::named("canary").is_undecided());
        assert!(!canary(&[]).is_undecided());
    }

    #[test]
    fn each_revision_has_objects_of_its_own() {
        assert_eq!(Revision::default().name_of("pilotfish"), "pilotfish");
        assert_eq!(canary(&[]).name_of("pilotfish"), "pilotfish-canary");
        let maps = [Revision::default(), Revision::named("default"), canary(&[])];
        assert_eq!(maps.map(|revision| revision.mesh_config_map()), ["istio", "istio", "istio-canary"]);
        assert_eq!((Revision::default().label(), canary(&[]).label()), ("pilotfish", "canary"));
    }
}
