//! Ingress and IngressClass.

use super::ServiceStatus;
use crate::Unread;
use crate::kinds::message::{kind, message};
use serde::{Deserialize, Serialize};

kind! {
    Ingress = Ingress;
    IngressClass = IngressClass;
}

message! {
/// HTTP routes into the cluster.
pub struct Ingress {
    pub spec: IngressSpec,
    pub status: ServiceStatus,
}

/// `spec` of an Ingress.
pub struct IngressSpec {
    pub ingress_class_name: Option<String>,
    pub default_backend: Option<IngressBackend>,
    pub rules: Vec<IngressRule>,
    pub tls: Vec<IngressTls>,
}

/// The certificate of some hosts.
pub struct IngressTls {
    pub hosts: Vec<String>,
    pub secret_name: String,
}

/// The paths of a host.
pub struct IngressRule {
    pub host: String,
    pub http: Option<HttpIngressRuleValue>,
}

/// HTTP paths of a host.
pub struct HttpIngressRuleValue {
    pub paths: Vec<HttpIngressPath>,
}

/// Path and its backend.
pub struct HttpIngressPath {
    pub path: String,
    pub path_type: PathType,
    pub backend: IngressBackend,
}

/// Target of a path; a oneof.
pub struct IngressBackend {
    pub service: Option<IngressServiceBackend>,
    pub resource: Option<serde_json::Value>,
}

/// A port of a Service.
pub struct IngressServiceBackend {
    pub name: String,
    pub port: ServiceBackendPort,
}

/// A port by name or by number; a oneof.
pub struct ServiceBackendPort {
    pub name: String,
    pub number: u16,
}

/// A class of Ingresses.
pub struct IngressClass {
    pub spec: IngressClassSpec,
}

/// `spec` of an IngressClass.
pub struct IngressClassSpec {
    pub controller: String,
    pub parameters: Unread,
}
}

/// Operator of a path match. `ImplementationSpecific` matches by prefix if the path ends in `/*` or `.*`,
/// else exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PathType {
    Exact,
    Prefix,
    #[default]
    ImplementationSpecific,
}
