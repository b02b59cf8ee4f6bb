//! Objects of a gateway.

use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Field manager of the writes.
pub const FIELD_MANAGER: &str = "pilotfish-gateways";

/// Kind of an object of a gateway, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManagedKind {
    ServiceAccount,
    Service,
    Deployment,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
}

impl ManagedKind {
    pub const ALL: [Self; 5] = [
        Self::ServiceAccount,
        Self::Service,
        Self::Deployment,
        Self::HorizontalPodAutoscaler,
        Self::PodDisruptionBudget,
    ];

    /// `kind` as written in YAML.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::Service => "Service",
            Self::Deployment => "Deployment",
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }

    /// Kind of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// API group, empty for the core group, and version.
    #[must_use]
    pub fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::ServiceAccount | Self::Service => ("", "v1"),
            Self::Deployment => ("apps", "v1"),
            Self::HorizontalPodAutoscaler => ("autoscaling", "v2"),
            Self::PodDisruptionBudget => ("policy", "v1"),
        }
    }

    /// `apiVersion` as written in YAML.
    #[must_use]
    pub fn api_version(self) -> String {
        match self.group_version() {
            ("", version) => version.to_owned(),
            (group, version) => format!("{group}/{version}"),
        }
    }

    /// Plural resource name, as in API paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccounts",
            Self::Service => "services",
            Self::Deployment => "deployments",
            Self::HorizontalPodAutoscaler => "horizontalpodautoscalers",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
        }
    }

    /// Key of its overlay in a ConfigMap.
    #[must_use]
    pub fn overlay_key(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceAccount",
            Self::Service => "service",
            Self::Deployment => "deployment",
            Self::HorizontalPodAutoscaler => "horizontalPodAutoscaler",
            Self::PodDisruptionBudget => "podDisruptionBudget",
        }
    }

    /// True for kinds that a gateway has only if its parameters have an overlay for them.
    #[must_use]
    pub fn is_optional(self) -> bool {
        matches!(self, Self::HorizontalPodAutoscaler | Self::PodDisruptionBudget)
    }
}

/// Kind, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub kind: ManagedKind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectId {
    /// Path of the object at an API server.
    #[must_use]
    pub fn path(&self) -> String {
        let Self { kind, namespace, name } = self;
        let base = match kind.group_version() {
            ("", version) => format!("/api/{version}"),
            (group, version) => format!("/apis/{group}/{version}"),
        };
        format!("{base}/namespaces/{namespace}/{}/{name}", kind.plural())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// Object to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub id: ObjectId,
    pub body: Value,
}
