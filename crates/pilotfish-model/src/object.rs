//! Configuration objects: what a source delivers, typed by kind, with the metadata that rules depend on.

use crate::{Labels, Namespace};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $kind:literal, $group:literal, $plural:literal;)*) => {
        /// The kinds of objects that Pilotfish reads.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum Kind {
            $($(#[$doc])* $variant,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The `kind` as written in YAML.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $kind,)* }
            }

            /// The API group; empty for Kubernetes' core group.
            #[must_use]
            pub fn group(self) -> &'static str {
                match self { $(Self::$variant => $group,)* }
            }

            /// The plural resource name, as in API paths.
            #[must_use]
            pub fn plural(self) -> &'static str {
                match self { $(Self::$variant => $plural,)* }
            }
        }
    };
}

kinds! {
    /// Kubernetes Service.
    Service = "Service", "", "services";
    /// Kubernetes EndpointSlice.
    EndpointSlice = "EndpointSlice", "discovery.k8s.io", "endpointslices";
    /// Kubernetes Pod.
    Pod = "Pod", "", "pods";
    /// Kubernetes Node.
    Node = "Node", "", "nodes";
    /// Kubernetes Namespace.
    Namespace = "Namespace", "", "namespaces";
    /// Kubernetes Secret.
    Secret = "Secret", "", "secrets";
    /// Kubernetes ConfigMap.
    ConfigMap = "ConfigMap", "", "configmaps";
    /// Kubernetes Ingress.
    Ingress = "Ingress", "networking.k8s.io", "ingresses";
    /// Kubernetes IngressClass.
    IngressClass = "IngressClass", "networking.k8s.io", "ingressclasses";
    /// Istio VirtualService.
    VirtualService = "VirtualService", "networking.istio.io", "virtualservices";
    /// Istio DestinationRule.
    DestinationRule = "DestinationRule", "networking.istio.io", "destinationrules";
    /// Istio Gateway.
    Gateway = "Gateway", "networking.istio.io", "gateways";
    /// Istio ServiceEntry.
    ServiceEntry = "ServiceEntry", "networking.istio.io", "serviceentries";
    /// Istio WorkloadEntry.
    WorkloadEntry = "WorkloadEntry", "networking.istio.io", "workloadentries";
    /// Istio WorkloadGroup.
    WorkloadGroup = "WorkloadGroup", "networking.istio.io", "workloadgroups";
    /// Istio Sidecar.
    Sidecar = "Sidecar", "networking.istio.io", "sidecars";
    /// Istio EnvoyFilter.
    EnvoyFilter = "EnvoyFilter", "networking.istio.io", "envoyfilters";
    /// Istio ProxyConfig.
    ProxyConfig = "ProxyConfig", "networking.istio.io", "proxyconfigs";
    /// Istio AuthorizationPolicy.
    AuthorizationPolicy = "AuthorizationPolicy", "security.istio.io", "authorizationpolicies";
    /// Istio PeerAuthentication.
    PeerAuthentication = "PeerAuthentication", "security.istio.io", "peerauthentications";
    /// Istio RequestAuthentication.
    RequestAuthentication = "RequestAuthentication", "security.istio.io", "requestauthentications";
    /// Istio Telemetry.
    Telemetry = "Telemetry", "telemetry.istio.io", "telemetries";
    /// Istio WasmPlugin.
    WasmPlugin = "WasmPlugin", "extensions.istio.io", "wasmplugins";
    /// Gateway API GatewayClass.
    GatewayClass = "GatewayClass", "gateway.networking.k8s.io", "gatewayclasses";
    /// Gateway API Gateway.
    KubernetesGateway = "Gateway", "gateway.networking.k8s.io", "gateways";
    /// Gateway API HTTPRoute.
    HttpRoute = "HTTPRoute", "gateway.networking.k8s.io", "httproutes";
    /// Gateway API GRPCRoute.
    GrpcRoute = "GRPCRoute", "gateway.networking.k8s.io", "grpcroutes";
    /// Gateway API TCPRoute.
    TcpRoute = "TCPRoute", "gateway.networking.k8s.io", "tcproutes";
    /// Gateway API TLSRoute.
    TlsRoute = "TLSRoute", "gateway.networking.k8s.io", "tlsroutes";
    /// Gateway API ReferenceGrant.
    ReferenceGrant = "ReferenceGrant", "gateway.networking.k8s.io", "referencegrants";
    /// Gateway API BackendTLSPolicy.
    BackendTlsPolicy = "BackendTLSPolicy", "gateway.networking.k8s.io", "backendtlspolicies";
    /// Multi-cluster services: ServiceExport.
    ServiceExport = "ServiceExport", "multicluster.x-k8s.io", "serviceexports";
    /// Multi-cluster services: ServiceImport.
    ServiceImport = "ServiceImport", "multicluster.x-k8s.io", "serviceimports";
    /// Istio's mesh-wide settings; one object, without namespace.
    MeshConfig = "MeshConfig", "mesh.istio.io", "meshconfigs";
    /// Istio's networks and their gateways; one object, without namespace.
    MeshNetworks = "MeshNetworks", "mesh.istio.io", "meshnetworks";
}

impl Kind {
    /// The kind of that name in that API group, any version.
    #[must_use]
    pub fn find(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| k.name() == kind && k.group() == group)
    }

    /// The kind in the form that Istio uses in metadata paths: `virtual-service` for `VirtualService`.
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

/// Which object: kind, namespace and name. Unique within one store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of that object.
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

/// Metadata of an object, as far as rules depend on it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ObjectMeta {
    /// Kind, namespace and name.
    pub key: ObjectKey,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// `metadata.creationTimestamp` in seconds since the epoch; 0 when not written. Ties break by name, then namespace.
    pub created: i64,
    /// `metadata.generation`, where the source has one.
    pub generation: i64,
    /// `metadata.uid`, where the source has one.
    pub uid: Arc<str>,
    /// Names of the owners, as `(kind, name)`: a Pod's workload name is derived from them.
    pub owners: Arc<[(String, String)]>,
    /// Where it was written, for messages: `shop.yaml:12`, or a cluster's name.
    pub origin: Arc<str>,
}

impl ObjectMeta {
    /// Metadata with nothing but a key.
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

    /// The order in which Istio lets the first one win: age, then name, then namespace.
    #[must_use]
    pub fn precedence(&self) -> (i64, &str, &str) {
        (self.created, &self.key.name, self.key.namespace.as_str())
    }

    /// The value of the label `istio.io/rev`.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        self.labels.get(crate::REVISION_LABEL)
    }

    /// Whether the part that rules depend on is equal. The origin (a line number) and the generation are not.
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

/// The typed content of one kind of object: `spec`, and what is read of `status`.
pub trait KindSpec: PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The kind whose content this is.
    const KIND: Kind;
}

/// Content of any kind, compared and read back by its type. Implemented for every [`KindSpec`].
pub trait Spec: Any + fmt::Debug + Send + Sync {
    /// The kind.
    fn kind(&self) -> Kind;
    /// For reading it back as its type.
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

/// One object as a source delivers it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Name, labels, age, origin.
    pub meta: Arc<ObjectMeta>,
    /// The content, typed by its kind.
    pub spec: Arc<dyn Spec>,
}

impl Object {
    /// An object of a known type.
    pub fn new<T: KindSpec>(meta: ObjectMeta, spec: T) -> Self {
        Self { meta: Arc::new(meta), spec: Arc::new(spec) }
    }

    /// Kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.meta.key
    }

    /// The object as its type; `None` when it is of another kind.
    #[must_use]
    pub fn typed<T: KindSpec>(&self) -> Option<Typed<T>> {
        self.spec.as_any().is::<T>().then(|| Typed { object: self.clone(), of: std::marker::PhantomData })
    }
}

impl PartialEq for Object {
    /// Equal in what rules depend on: an edit that only moves lines in a file is no change.
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
    /// Name, labels, age, origin.
    #[must_use]
    pub fn meta(&self) -> &Arc<ObjectMeta> {
        &self.object.meta
    }

    /// Kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.object.meta.key
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.object.meta.key.namespace
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.meta.key.name
    }

    /// The object with its type erased.
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
