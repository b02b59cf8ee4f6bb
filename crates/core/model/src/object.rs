//! Configuration objects from sources, typed by kind, with the metadata that rules depend on.

use crate::{Labels, Namespace};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $kind:literal, $group:literal, $plural:literal;)*) => {
        /// Kinds of objects that Pilotfish reads.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum Kind {
            $($(#[$doc])* $variant,)*
        }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// `kind` as written in YAML.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $kind,)* }
            }

            /// API group; empty for Kubernetes' core group.
            #[must_use]
            pub fn group(self) -> &'static str {
                match self { $(Self::$variant => $group,)* }
            }

            /// Plural resource name, as in API paths.
            #[must_use]
            pub fn plural(self) -> &'static str {
                match self { $(Self::$variant => $plural,)* }
            }
        }
    };
}

kinds! {
    Service = "Service", "", "services";
    EndpointSlice = "EndpointSlice", "discovery.k8s.io", "endpointslices";
    Pod = "Pod", "", "pods";
    Node = "Node", "", "nodes";
    Namespace = "Namespace", "", "namespaces";
    Secret = "Secret", "", "secrets";
    ConfigMap = "ConfigMap", "", "configmaps";
    Ingress = "Ingress", "networking.k8s.io", "ingresses";
    IngressClass = "IngressClass", "networking.k8s.io", "ingressclasses";
    VirtualService = "VirtualService", "networking.istio.io", "virtualservices";
    DestinationRule = "DestinationRule", "networking.istio.io", "destinationrules";
    Gateway = "Gateway", "networking.istio.io", "gateways";
    ServiceEntry = "ServiceEntry", "networking.istio.io", "serviceentries";
    WorkloadEntry = "WorkloadEntry", "networking.istio.io", "workloadentries";
    WorkloadGroup = "WorkloadGroup", "networking.istio.io", "workloadgroups";
    Sidecar = "Sidecar", "networking.istio.io", "sidecars";
    EnvoyFilter = "EnvoyFilter", "networking.istio.io", "envoyfilters";
    ProxyConfig = "ProxyConfig", "networking.istio.io", "proxyconfigs";
    AuthorizationPolicy = "AuthorizationPolicy", "security.istio.io", "authorizationpolicies";
    PeerAuthentication = "PeerAuthentication", "security.istio.io", "peerauthentications";
    RequestAuthentication = "RequestAuthentication", "security.istio.io", "requestauthentications";
    Telemetry = "Telemetry", "telemetry.istio.io", "telemetries";
    WasmPlugin = "WasmPlugin", "extensions.istio.io", "wasmplugins";
    TrafficExtension = "TrafficExtension", "extensions.istio.io", "trafficextensions";
    GatewayClass = "GatewayClass", "gateway.networking.k8s.io", "gatewayclasses";
    KubernetesGateway = "Gateway", "gateway.networking.k8s.io", "gateways";
    ListenerSet = "ListenerSet", "gateway.networking.k8s.io", "listenersets";
    HttpRoute = "HTTPRoute", "gateway.networking.k8s.io", "httproutes";
    GrpcRoute = "GRPCRoute", "gateway.networking.k8s.io", "grpcroutes";
    TcpRoute = "TCPRoute", "gateway.networking.k8s.io", "tcproutes";
    TlsRoute = "TLSRoute", "gateway.networking.k8s.io", "tlsroutes";
    ReferenceGrant = "ReferenceGrant", "gateway.networking.k8s.io", "referencegrants";
    BackendTlsPolicy = "BackendTLSPolicy", "gateway.networking.k8s.io", "backendtlspolicies";
    ServiceExport = "ServiceExport", "multicluster.x-k8s.io", "serviceexports";
    ServiceImport = "ServiceImport", "multicluster.x-k8s.io", "serviceimports";
    /// Istio's mesh-wide settings; one object, without namespace.
    MeshConfig = "MeshConfig", "mesh.istio.io", "meshconfigs";
    /// Istio's networks and their gateways; one object, without namespace.
    MeshNetworks = "MeshNetworks", "mesh.istio.io", "meshnetworks";
}

impl Kind {
    /// Kind of that name in that API group, in any version.
    #[must_use]
    pub fn find(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| k.name() == kind && k.group() == group)
    }

    /// Kind in the form of Istio's metadata paths: `virtual-service` for `VirtualService`.
    #[must_use]
    pub fn kebab(self) -> String {
        let mut out = String::new();
        for (index, c) in self.name().chars().enumerate() {
            if c.is_ascii_uppercase() && index > 0 {
                out.push('-');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Key of an object: kind, namespace and name. Unique within one store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ObjectKey {
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Namespace,
    pub name: Arc<str>,
}

impl ObjectKey {
    pub fn new(kind: Kind, namespace: impl Into<Namespace>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    /// `VirtualService shop/catalog`, or `Node node-a` without a namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// Metadata of an object that rules depend on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ObjectMeta {
    /// Kind, namespace and name.
    pub key: ObjectKey,
    pub labels: Labels,
    pub annotations: Arc<BTreeMap<String, String>>,
    /// `metadata.creationTimestamp` in seconds since the epoch; 0 if unset. Ties break by name, then
    /// namespace.
    pub created: i64,
    /// `metadata.generation`, if the source has one.
    pub generation: i64,
    /// `metadata.uid`, if the source has one.
    pub uid: Arc<str>,
    /// Owners as `(kind, name)`: a Pod's workload name is derived from them.
    pub owners: Arc<[(String, String)]>,
    /// Source location for messages: `shop.yaml:12`, or a cluster's name.
    pub origin: Arc<str>,
}

impl ObjectMeta {
    /// Metadata with a key only.
    #[must_use]
    pub fn of(key: ObjectKey) -> Self {
        Self {
            key,
            labels: Labels::default(),
            annotations: Arc::default(),
            created: 0,
            generation: 0,
            uid: "".into(),
            owners: Arc::from([]),
            origin: "".into(),
        }
    }

    /// Order by which Istio resolves conflicts, the first one wins: age, then name, then namespace.
    #[must_use]
    pub fn precedence(&self) -> (i64, &str, &str) {
        (self.created, &self.key.name, self.key.namespace.as_str())
    }

    /// Value of the label `istio.io/rev`.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        self.labels.get(crate::REVISION_LABEL)
    }

    /// True if all metadata that rules depend on is equal. The origin (a line number) and the generation are
    /// ignored.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        self.key == other.key
            && self.labels == other.labels
            && self.annotations == other.annotations
            && self.created == other.created
            && self.uid == other.uid
            && self.owners == other.owners
    }
}

/// Typed content of one kind of object: `spec`, and the used parts of `status`.
pub trait KindSpec: PartialEq + fmt::Debug + Send + Sync + 'static {
    const KIND: Kind;
}

/// Content of any kind, with comparison and downcast. Implemented for every [`KindSpec`].
pub trait Spec: Any + fmt::Debug + Send + Sync {
    fn kind(&self) -> Kind;
    /// Access for a downcast.
    fn as_any(&self) -> &dyn Any;
    /// Equality across the erased type.
    fn equals(&self, other: &dyn Spec) -> bool;
}

impl<T: KindSpec> Spec for T {
    fn kind(&self) -> Kind {
        T::KIND
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Spec) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }
}

/// An object from a source.
#[derive(Clone, Debug)]
pub struct Object {
    /// Name, labels, age and origin.
    pub meta: Arc<ObjectMeta>,
    /// Content, typed by its kind.
    pub spec: Arc<dyn Spec>,
}

impl Object {
    /// Creates an object of a known type.
    pub fn new<T: KindSpec>(meta: ObjectMeta, spec: T) -> Self {
        Self { meta: Arc::new(meta), spec: Arc::new(spec) }
    }

    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.meta.key
    }

    /// The object with its type; `None` if it is of another kind.
    #[must_use]
    pub fn typed<T: KindSpec>(&self) -> Option<Typed<T>> {
        self.spec.as_any().is::<T>().then(|| Typed { object: self.clone(), of: std::marker::PhantomData })
    }
}

impl PartialEq for Object {
    /// Compares the parts that rules depend on: an edit that only moves lines in a file is no change.
    fn eq(&self, other: &Self) -> bool {
        self.meta.same_content(&other.meta)
            && (Arc::ptr_eq(&self.spec, &other.spec) || self.spec.equals(&*other.spec))
    }
}

/// An object known to be of type `T`; derefs to the content.
pub struct Typed<T> {
    object: Object,
    of: std::marker::PhantomData<T>,
}

impl<T> Typed<T> {
    #[must_use]
    pub fn meta(&self) -> &Arc<ObjectMeta> {
        &self.object.meta
    }

    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.object.meta.key
    }

    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.object.meta.key.namespace
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.meta.key.name
    }

    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl<T> Clone for Typed<T> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), of: std::marker::PhantomData }
    }
}

impl<T: KindSpec> std::ops::Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object.spec.as_any().downcast_ref().expect("`Object::typed` checked the type")
    }
}

impl<T: KindSpec> PartialEq for Typed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<T: KindSpec> fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object.meta.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_group_and_name() {
        assert_eq!(Kind::find("networking.istio.io", "Gateway"), Some(Kind::Gateway));
        assert_eq!(Kind::find("gateway.networking.k8s.io", "Gateway"), Some(Kind::KubernetesGateway));
        assert_eq!(Kind::find("apps", "Deployment"), None);
        assert_eq!(Kind::VirtualService.kebab(), "virtual-service");
    }
}
