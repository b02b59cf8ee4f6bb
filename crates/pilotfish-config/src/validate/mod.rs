//! Checks of every kind: what Istio's webhook and the definitions of the API server refuse.

use crate::content::{Content, Place};
use crate::path::Path;
use crate::problem::Checker;
use crate::yaml::{Mode, Node, decode};
use crate::{extensions, gateway_api, kubernetes, mesh, networking, security, telemetry};
use pilotfish_model::ObjectMeta;

macro_rules! plain {
    ($place:ident: $($type:ty),*) => {$(
        impl Content for $type {
            const PLACE: Place = Place::$place;
            fn check(&self, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}
        }
    )*};
}
macro_rules! complete {
    ($place:ident: $($type:ty),*) => {$(
        impl Content for $type {
            const PLACE: Place = Place::$place;
            fn complete(&mut self, _object: &Node, _deleting: bool) { <$type>::complete(self) }
            fn check(&self, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}
        }
    )*};
}

plain!(Object: kubernetes::EndpointSlice, kubernetes::Node, kubernetes::Namespace, kubernetes::ConfigMap, kubernetes::Ingress, kubernetes::IngressClass,
 gateway_api::GatewayClass, gateway_api::Gateway, gateway_api::HttpRoute, gateway_api::GrpcRoute, gateway_api::TcpRoute, gateway_api::TlsRoute, gateway_api::ReferenceGrant,
 kubernetes::ServiceExport, kubernetes::ServiceImport);
plain!(Spec: networking::VirtualService, networking::DestinationRule, networking::Gateway, networking::WorkloadGroup, networking::Sidecar, networking::EnvoyFilter,
 networking::ProxyConfig, security::AuthorizationPolicy, security::PeerAuthentication, security::RequestAuthentication, telemetry::Telemetry, extensions::WasmPlugin);
complete!(Object: kubernetes::Service, kubernetes::Secret);
complete!(Document: mesh::MeshConfig);
plain!(Document: mesh::MeshNetworks);

impl Content for kubernetes::Pod {
    const PLACE: Place = Place::Object;
    fn complete(&mut self, _object: &Node, deleting: bool) {
        self.deleting = deleting;
        kubernetes::Pod::complete(self);
    }
    fn check(&self, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}
}

impl Content for networking::ServiceEntry {
    const PLACE: Place = Place::Spec;
    fn complete(&mut self, object: &Node, _deleting: bool) {
        if let Some(status) = object.get("status") {
            self.status = decode(status, Mode::Lenient, &["status"]).value.unwrap_or_default();
        }
    }
    fn check(&self, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}
}

impl Content for networking::WorkloadEntry {
    const PLACE: Place = Place::Spec;
    fn complete(&mut self, object: &Node, _deleting: bool) {
        if let Some(status) = object.get("status") {
            self.status = decode(status, Mode::Lenient, &["status"]).value.unwrap_or_default();
        }
    }
    fn check(&self, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}
}
