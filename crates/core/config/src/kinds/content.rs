//! Table of kinds: the type of each kind, the place in an object that it is read from, and its completion and
//! validation.

use crate::path::Path;
use crate::problem::{Checker, Problem};
use crate::unknown::{Settled, settle};
use crate::validate::Refused;
use crate::yaml::Node;
use crate::{extensions, gateway_api, kubernetes, mesh, networking, security, telemetry};
use pilotfish_model::{Kind, KindSpec, Object, ObjectMeta};
use serde::de::DeserializeOwned;

/// Place of a kind's content in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `spec` alone, as in Istio's kinds, whose types have every field.
    Spec,
    /// The whole object, as in the Gateway API's kinds and Kubernetes' kinds that are written by hand; their
    /// types have every field but those of `status`.
    Object,
    /// The whole object, as in Kubernetes' other kinds; their types have only the fields that are used.
    Partial,
    /// The whole document except `apiVersion` and metadata, as in mesh config files.
    Document,
}

/// Decoding hooks and validation that every kind's type implements.
pub(crate) trait Content: KindSpec + DeserializeOwned {
    /// Place in the object that the type is read from.
    const PLACE: Place;

    /// Adds parts of `status` and metadata, and defaults that depend on other fields.
    fn complete(&mut self, _object: &Node, _deleting: bool) {}

    /// Drops fields that are not used after validation, to save memory: large clusters have very many objects
    /// of some kinds.
    fn compact(&mut self, _meta: &mut ObjectMeta) {}

    /// Restrictive object in place of one that cannot be used in full; `None` for kinds that restrict
    /// nothing.
    fn closed(_refused: &Refused<'_>) -> Option<Self> {
        None
    }

    /// True if the object may have the annotation `istio.io/dry-run`.
    fn dry_run_allowed(&self) -> bool {
        false
    }

    /// Reports problems of the object to `checker`; `at` is the path of the type in the object.
    fn check(&self, at: &Path<'_>, meta: &ObjectMeta, checker: &mut Checker);
}

/// Runs `$body` with `$type` as the type of the kind.
macro_rules! with_type {
    ($kind:expr, $type:ident => $body:expr) => {
        with_type!(@all $kind, $type => $body;
            Service: kubernetes::Service,
            EndpointSlice: kubernetes::EndpointSlice,
            Pod: kubernetes::Pod,
            Node: kubernetes::Node,
            Namespace: kubernetes::Namespace,
            Secret: kubernetes::Secret,
            ConfigMap: kubernetes::ConfigMap,
            Ingress: kubernetes::Ingress,
            IngressClass: kubernetes::IngressClass,
            VirtualService: networking::VirtualService,
            DestinationRule: networking::DestinationRule,
            Gateway: networking::Gateway,
            ServiceEntry: networking::ServiceEntry,
            WorkloadEntry: networking::WorkloadEntry,
            WorkloadGroup: networking::WorkloadGroup,
            Sidecar: networking::Sidecar,
            EnvoyFilter: networking::EnvoyFilter,
            ProxyConfig: networking::ProxyConfig,
            AuthorizationPolicy: security::AuthorizationPolicy,
            PeerAuthentication: security::PeerAuthentication,
            RequestAuthentication: security::RequestAuthentication,
            Telemetry: telemetry::Telemetry,
            WasmPlugin: extensions::WasmPlugin,
            TrafficExtension: extensions::TrafficExtension,
            GatewayClass: gateway_api::GatewayClass,
            KubernetesGateway: gateway_api::Gateway,
            ListenerSet: gateway_api::ListenerSet,
            HttpRoute: gateway_api::HttpRoute,
            GrpcRoute: gateway_api::GrpcRoute,
            TcpRoute: gateway_api::TcpRoute,
            TlsRoute: gateway_api::TlsRoute,
            ReferenceGrant: gateway_api::ReferenceGrant,
            BackendTlsPolicy: gateway_api::BackendTlsPolicy,
            ServiceExport: kubernetes::ServiceExport,
            ServiceImport: kubernetes::ServiceImport,
            MeshConfig: mesh::MeshConfig,
            MeshNetworks: mesh::MeshNetworks,
        )
    };
    (@all $kind:expr, $type:ident => $body:expr; $($variant:ident: $path:ty,)*) => {
        match $kind {
            $(Kind::$variant => {
                type $type = $path;
                $body
            })*
        }
    };
}

pub(super) use with_type;

/// The object, unless it has errors, and its errors and warnings.
pub(crate) struct ReadContent {
    pub(crate) object: Option<Object>,
    pub(crate) problems: Vec<Problem>,
}

/// Reads the content of an object of a kind and checks it.
pub(crate) fn read_object(kind: Kind, root: &Node, meta: ObjectMeta, deleting: bool) -> ReadContent {
    with_type!(kind, T => read_as::<T>(root, meta, deleting))
}

/// Restrictive object of a kind in place of one that cannot be used in full; `None` for kinds that restrict
/// nothing.
pub(crate) fn closed(kind: Kind, refused: &Refused<'_>, meta: ObjectMeta) -> Option<Object> {
    with_type!(kind, T => <T as Content>::closed(refused).map(|content| Object::new(meta, content)))
}

/// The tree of an object of a kind with the changes that follow from unknown parts.
pub(crate) fn prepared(kind: Kind, root: &Node) -> Node {
    with_type!(kind, T => crate::unknown::prepared::<T>(root))
}

/// Warnings about unknown fields that are reported for files only.
pub(crate) fn unknown_in_files(kind: Kind, root: &Node) -> Vec<Problem> {
    with_type!(kind, T => crate::unknown::warnings_in_files::<T>(root))
}

/// Operation on the type of a kind that is known only at run time, see [`visit_kind`].
pub trait KindVisitor {
    type Output;

    /// Runs the operation with the content type `T` of the kind, which is read from `place` in an object.
    fn visit<T: DeserializeOwned>(self, place: Place) -> Self::Output;
}

/// Calls the visitor with the type of the kind.
pub fn visit_kind<V: KindVisitor>(kind: Kind, visitor: V) -> V::Output {
    with_type!(kind, T => visitor.visit::<T>(T::PLACE))
}

/// Returns the problems of an object, from a file, an API server or a registry alike.
#[must_use]
pub fn validate(object: &Object) -> Vec<Problem> {
    with_type!(object.key().kind, T => {
        object.typed::<T>().map(|typed| check(&*typed, typed.meta())).unwrap_or_default()
    })
}

fn read_as<T: Content>(root: &Node, mut meta: ObjectMeta, deleting: bool) -> ReadContent {
    let Settled { value, mut problems } = settle(root, |content: &mut T| {
        content.complete(root, deleting);
        check(content, &meta)
    });
    problems.extend(crate::inert::warnings(T::KIND, root));
    for problem in &mut problems {
        let line = problem.line.unwrap_or_else(|| root.line_of(&problem.path));
        problem.line = Some(line);
    }
    let rejected = problems.iter().any(Problem::is_error);
    let object = value.filter(|_| !rejected).map(|mut content| {
        content.compact(&mut meta);
        Object::new(meta, content)
    });
    ReadContent { object, problems }
}

fn check<T: Content>(content: &T, meta: &ObjectMeta) -> Vec<Problem> {
    let mut checker = Checker::default();
    match T::PLACE {
        Place::Spec => {
            crate::validate::annotations(meta, content.dry_run_allowed(), &mut checker);
            content.check(&Path::ROOT.field("spec"), meta, &mut checker);
        }
        Place::Object | Place::Partial | Place::Document => content.check(&Path::ROOT, meta, &mut checker),
    }
    checker.into_problems()
}

/// The versions of a group that are read.
pub(crate) fn versions(group: &str) -> &'static [&'static str] {
    match group {
        "" | "discovery.k8s.io" | "networking.k8s.io" => &["v1"],
        "networking.istio.io" => &["v1", "v1beta1", "v1alpha3"],
        "security.istio.io" => &["v1", "v1beta1"],
        "telemetry.istio.io" => &["v1", "v1alpha1"],
        "extensions.istio.io" => &["v1alpha1"],
        "gateway.networking.k8s.io" => &["v1", "v1beta1", "v1alpha3", "v1alpha2"],
        "multicluster.x-k8s.io" => &["v1beta1", "v1alpha1"],
        _ => &[],
    }
}

/// True if objects of the kind belong to a namespace.
pub(crate) fn is_namespaced(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Node
            | Kind::Namespace
            | Kind::IngressClass
            | Kind::GatewayClass
            | Kind::MeshConfig
            | Kind::MeshNetworks
    )
}
