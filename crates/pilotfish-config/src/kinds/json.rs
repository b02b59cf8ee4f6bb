//! Objects as JSON, for debug pages: what is in force, with defaults applied and empty fields left out.

use crate::{extensions, gateway_api, kubernetes, mesh, networking, security, telemetry};
use pilotfish_model::{Kind, KindSpec, Object};
use serde::Serialize;
use serde_json::Value;

/// The content of an object as JSON. Of a Secret, nothing is shown.
#[must_use]
pub fn spec_json(object: &Object) -> Value {
    use Kind as K;
    match object.key().kind {
        K::Service => json::<kubernetes::Service>(object),
        K::EndpointSlice => json::<kubernetes::EndpointSlice>(object),
        K::Pod => json::<kubernetes::Pod>(object),
        K::Node => json::<kubernetes::Node>(object),
        K::Namespace => json::<kubernetes::Namespace>(object),
        K::Secret => Value::Null,
        K::ConfigMap => json::<kubernetes::ConfigMap>(object),
        K::Ingress => json::<kubernetes::Ingress>(object),
        K::IngressClass => json::<kubernetes::IngressClass>(object),
        K::ServiceExport => json::<kubernetes::ServiceExport>(object),
        K::ServiceImport => json::<kubernetes::ServiceImport>(object),
        K::MeshConfig => json::<mesh::MeshConfig>(object),
        K::MeshNetworks => json::<mesh::MeshNetworks>(object),
        _ => istio_or_gateway_json(object),
    }
}

fn istio_or_gateway_json(object: &Object) -> Value {
    use Kind as K;
    match object.key().kind {
        K::VirtualService => json::<networking::VirtualService>(object),
        K::DestinationRule => json::<networking::DestinationRule>(object),
        K::Gateway => json::<networking::Gateway>(object),
        K::ServiceEntry => json::<networking::ServiceEntry>(object),
        K::WorkloadEntry => json::<networking::WorkloadEntry>(object),
        K::WorkloadGroup => json::<networking::WorkloadGroup>(object),
        K::Sidecar => json::<networking::Sidecar>(object),
        K::EnvoyFilter => json::<networking::EnvoyFilter>(object),
        K::ProxyConfig => json::<networking::ProxyConfig>(object),
        K::AuthorizationPolicy => json::<security::AuthorizationPolicy>(object),
        K::PeerAuthentication => json::<security::PeerAuthentication>(object),
        K::RequestAuthentication => json::<security::RequestAuthentication>(object),
        K::Telemetry => json::<telemetry::Telemetry>(object),
        K::WasmPlugin => json::<extensions::WasmPlugin>(object),
        K::GatewayClass => json::<gateway_api::GatewayClass>(object),
        K::KubernetesGateway => json::<gateway_api::Gateway>(object),
        K::HttpRoute => json::<gateway_api::HttpRoute>(object),
        K::GrpcRoute => json::<gateway_api::GrpcRoute>(object),
        K::TcpRoute => json::<gateway_api::TcpRoute>(object),
        K::TlsRoute => json::<gateway_api::TlsRoute>(object),
        K::ReferenceGrant => json::<gateway_api::ReferenceGrant>(object),
        _ => Value::Null,
    }
}

fn json<T: KindSpec + Serialize>(object: &Object) -> Value {
    let value = object.typed::<T>().map(|typed| serde_json::to_value(&*typed));
    let mut value = value.and_then(Result::ok).unwrap_or_default();
    prune(&mut value);
    value
}

/// Drops fields that are absent or empty.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Limits, read, spec_json};

    #[test]
    fn an_object_is_shown_as_it_is_in_force() {
        let text = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: n}\n\
                    spec: {host: a, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1500ms}}}}\n";
        let file = read("a.yaml", text.as_bytes(), &Limits::default());
        let json = spec_json(&file.objects[0].object);

        assert_eq!(json["host"], "a");
        assert_eq!(json["trafficPolicy"]["connectionPool"]["tcp"]["connectTimeout"], "1.5s");
        assert!(json.get("subsets").is_none());
    }
}
