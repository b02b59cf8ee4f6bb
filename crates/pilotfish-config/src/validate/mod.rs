//! Checks of every kind: what Istio's webhook and the definitions of the API server refuse.
//!
//! Errors refuse the object, warnings do not. Every message says what is wrong with the field at the path, in one line.

mod authentication;
mod authorization;
mod destination_rule;
mod envoy_filter;
mod extension_provider;
mod format;
mod gateway;
mod gateway_api;
mod gateway_api_filters;
mod gateway_api_routes;
mod http_fault;
mod http_match;
mod http_route;
mod ingress;
mod kubernetes;
mod locality;
mod mesh;
mod names;
mod regex;
mod selectors;
mod service_entry;
mod shadowed;
mod sidecar;
mod stream_route;
mod telemetry;
mod tls;
mod values;
mod virtual_service;
mod wasm_plugin;
mod workload;

use crate::kinds::content::{Content, Place};
use crate::path::Path;
use crate::problem::Checker;
use crate::yaml::{Mode, Node, decode};
use crate::{extensions, gateway_api as api, kubernetes as k8s, networking, security};
use pilotfish_model::{Kind, ObjectMeta};
use serde::de::DeserializeOwned;

/// Ties types to their checks, and to what is special about reading them.
macro_rules! content {
    ($place:ident: $($type:ty => $($module:ident)::+ $(, $extra:ident)*;)*) => {$(
        impl Content for $type {
            const PLACE: Place = Place::$place;
            $(content!(@$extra $type);)*
            fn check(&self, at: &Path<'_>, meta: &ObjectMeta, checker: &mut Checker) {
                $($module)::+(self, at, meta, checker);
            }
        }
    )*};
    (@complete $type:ty) => {
        fn complete(&mut self, _object: &Node, _deleting: bool) {
            <$type>::complete(self);
        }
    };
    (@compact $type:ty) => {
        fn compact(&mut self, meta: &mut ObjectMeta) {
            <$type>::compact(self, meta);
        }
    };
    (@status $type:ty) => {
        fn complete(&mut self, object: &Node, _deleting: bool) {
            self.status = status(object);
        }
    };
    (@dry_run $type:ty) => {
        fn dry_run_allowed(&self) -> bool {
            matches!(self.action, security::AuthorizationAction::Allow | security::AuthorizationAction::Deny)
        }
    };
    (@deleting $type:ty) => {
        fn complete(&mut self, _object: &Node, deleting: bool) {
            self.deleting = deleting;
            <$type>::complete(self);
        }
    };
}

content! { Object:
    k8s::Service => kubernetes::service, complete, compact;
    k8s::EndpointSlice => kubernetes::endpoint_slice, compact;
    k8s::Pod => kubernetes::pod, deleting, compact;
    k8s::Node => nothing, compact;
    k8s::Namespace => kubernetes::namespace;
    k8s::Secret => kubernetes::secret, complete;
    k8s::ConfigMap => nothing;
    k8s::Ingress => ingress::check;
    k8s::IngressClass => nothing;
    k8s::ServiceExport => nothing;
    k8s::ServiceImport => kubernetes::service_import;
    api::GatewayClass => gateway_api::class;
    api::Gateway => gateway_api::gateway;
    api::HttpRoute => gateway_api_routes::http;
    api::GrpcRoute => gateway_api_routes::grpc;
    api::TcpRoute => gateway_api_routes::tcp;
    api::TlsRoute => gateway_api_routes::tls;
    api::ReferenceGrant => gateway_api::reference_grant;
}

content! { Spec:
    networking::VirtualService => virtual_service::check;
    networking::DestinationRule => destination_rule::check;
    networking::Gateway => gateway::check;
    networking::ServiceEntry => service_entry::check, status;
    networking::WorkloadEntry => workload::check_entry, status;
    networking::WorkloadGroup => workload::check_group;
    networking::Sidecar => sidecar::check;
    networking::EnvoyFilter => envoy_filter::check;
    networking::ProxyConfig => workload::check_proxy_config;
    security::AuthorizationPolicy => authorization::check, dry_run;
    security::PeerAuthentication => authentication::check_peer;
    security::RequestAuthentication => authentication::check_request;
    crate::telemetry::Telemetry => telemetry::check;
    extensions::WasmPlugin => wasm_plugin::check;
}

content! { Document:
    crate::mesh::MeshConfig => mesh::check, complete;
    crate::mesh::MeshNetworks => mesh::check_networks;
}

/// For kinds whose metadata is all that can be wrong.
fn nothing<T>(_content: &T, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}

/// The part of `status` that is read; what is wrong with it is no fault of who wrote the object.
fn status<T: DeserializeOwned + Default>(object: &Node) -> T {
    let status = object.get("status").map(|status| decode(status, Mode::Lenient, &["status"]));
    status.and_then(|status| status.value).unwrap_or_default()
}

/// The annotation that makes an AuthorizationPolicy log what it would do.
const DRY_RUN: &str = "istio.io/dry-run";

/// Checks the annotations that change what an Istio object means.
pub(crate) fn annotations(meta: &ObjectMeta, dry_run_allowed: bool, checker: &mut Checker) {
    let Some(value) = meta.annotations.get(DRY_RUN) else { return };
    let (metadata, good) = (Path::ROOT.field("metadata"), parse_bool(value));
    let annotations = metadata.field("annotations");
    let at = annotations.key(DRY_RUN);
    if meta.key.kind != Kind::AuthorizationPolicy {
        checker.warning(&at, "has an effect on AuthorizationPolicies only");
    } else if !dry_run_allowed {
        checker.warning(&at, "has an effect for the actions ALLOW and DENY only");
    } else if !good {
        checker.error(&at, format!("{} is not true or false", names::quoted(value)));
    }
}

/// The forms of truth values in Go.
fn parse_bool(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False")
}
