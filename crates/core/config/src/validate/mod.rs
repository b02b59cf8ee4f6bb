//! Checks of every kind: those of Istio's webhook and of the CRD schemas.
//!
//! Errors reject the object, warnings do not. Every message describes the problem of the field at its path,
//! in one line.

mod closed;
mod extensions;
mod fields;
mod gateway_api;
mod kubernetes;
mod limits;
mod mesh;
mod networking;
mod security;
mod telemetry;

pub use fields::regex::{MAX_REGEX_BYTES, is_regex};
pub use limits::{OBJECT_LIMITS, ObjectLimit};

pub(crate) use closed::{Refused, Trust, closed_object};
pub(crate) use gateway_api::routes::HTTP_METHODS;
pub(crate) use security::authorization::{ATTRIBUTES, is_attribute};

use crate::kinds;
use crate::kinds::content::{Content, Place};
use crate::path::Path;
use crate::problem::Checker;
use crate::yaml::{Mode, Node, decode};
use pilotfish_model::{Kind, ObjectMeta};
use serde::de::DeserializeOwned;

/// Returns why RE2, which Envoy uses, refuses a regular expression; `None` if it accepts it.
#[must_use]
pub fn refused_by_re2(expression: &str) -> Option<String> {
    fields::regex::refusal(expression)
}

/// Returns why `LuaJIT`, which Envoy uses, does not compile a script; `None` if it does.
#[must_use]
pub fn refused_by_lua(script: &str) -> Option<String> {
    fields::lua::refusal(script)
}

/// Ties types to their checks, and to details of reading them.
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
    (@closed $type:ty) => {
        fn closed(refused: &Refused<'_>) -> Option<Self> {
            <$type>::closed(refused)
        }
    };
    (@dry_run $type:ty) => {
        fn dry_run_allowed(&self) -> bool {
            use kinds::security::AuthorizationAction;
            matches!(self.action, AuthorizationAction::Allow | AuthorizationAction::Deny)
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
    kinds::kubernetes::Service => kubernetes::core::service, complete, compact;
    kinds::kubernetes::EndpointSlice => kubernetes::core::endpoint_slice, compact;
    kinds::kubernetes::Ingress => kubernetes::ingress::check;
    kinds::kubernetes::IngressClass => nothing;
    kinds::gateway_api::GatewayClass => gateway_api::gateway::class;
    kinds::gateway_api::Gateway => gateway_api::gateway::gateway;
    kinds::gateway_api::ListenerSet => gateway_api::gateway::listener_set;
    kinds::gateway_api::HttpRoute => gateway_api::routes::http;
    kinds::gateway_api::GrpcRoute => gateway_api::routes::grpc;
    kinds::gateway_api::TcpRoute => gateway_api::routes::tcp;
    kinds::gateway_api::TlsRoute => gateway_api::routes::tls;
    kinds::gateway_api::ReferenceGrant => gateway_api::gateway::reference_grant;
    kinds::gateway_api::BackendTlsPolicy => gateway_api::backend_tls::check, closed;
}

content! { Partial:
    kinds::kubernetes::Pod => kubernetes::core::pod, deleting, compact;
    kinds::kubernetes::Node => nothing, compact;
    kinds::kubernetes::Namespace => kubernetes::core::namespace;
    kinds::kubernetes::Secret => kubernetes::core::secret, complete;
    kinds::kubernetes::ConfigMap => nothing, compact;
    kinds::kubernetes::ServiceExport => nothing;
    kinds::kubernetes::ServiceImport => kubernetes::core::service_import;
}

content! { Spec:
    kinds::networking::VirtualService => networking::virtual_service::check;
    kinds::networking::DestinationRule => networking::destination_rule::check, closed;
    kinds::networking::Gateway => networking::gateway::check, closed;
    kinds::networking::ServiceEntry => networking::service_entry::check, status;
    kinds::networking::WorkloadEntry => networking::workload::check_entry, status;
    kinds::networking::WorkloadGroup => networking::workload::check_group;
    kinds::networking::Sidecar => networking::sidecar::check;
    kinds::networking::EnvoyFilter => networking::envoy_filter::check;
    kinds::networking::ProxyConfig => networking::workload::check_proxy_config;
    kinds::security::AuthorizationPolicy => security::authorization::check, dry_run, closed;
    kinds::security::PeerAuthentication => security::authentication::check_peer, closed;
    kinds::security::RequestAuthentication => security::authentication::check_request, closed;
    kinds::telemetry::Telemetry => telemetry::check;
    kinds::extensions::WasmPlugin => extensions::wasm_plugin;
    kinds::extensions::TrafficExtension => extensions::traffic_extension;
}

content! { Document:
    kinds::mesh::MeshConfig => mesh::mesh_config::check, complete;
    kinds::mesh::MeshNetworks => mesh::mesh_config::check_networks;
}

/// Check of kinds that have none beyond their metadata.
fn nothing<T>(_content: &T, _at: &Path<'_>, _meta: &ObjectMeta, _checker: &mut Checker) {}

/// The part of `status` that is read. Its errors are ignored, since users do not write it.
fn status<T: DeserializeOwned + Default>(object: &Node) -> T {
    let status = object.get("status").map(|status| decode(status, Mode::Partial, &["status"]));
    status.and_then(|status| status.value).unwrap_or_default()
}

/// Annotation that makes an AuthorizationPolicy log its decision without enforcing it.
const DRY_RUN: &str = "istio.io/dry-run";

/// Checks the annotations that change the effect of an Istio object.
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
        checker.error(&at, format!("{} is not true or false", fields::names::quoted(value)));
    }
}

/// Parses a boolean in the forms that Go accepts.
fn parse_bool(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False")
}
