//! Fields that have no effect are warnings where they are written, and cost nothing.

use pilotfish_config::{Limits, read};

/// The fields of the warnings about what has no effect.
fn warned(text: &str) -> Vec<String> {
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    assert!(file.rejected.is_empty(), "{text}: {:?}", file.rejected);
    let warnings = file.objects.into_iter().flat_map(|object| object.warnings);
    let about = warnings.filter(|warning| warning.message.contains("has no effect"));
    about.map(|warning| warning.path.to_string()).collect()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn field_without_effect_is_a_warning_at_its_place() {
    let api = "gateway.networking.k8s.io/v1";
    let rule = "backendRefs: [{name: web, port: 80}]";
    let gateway = "gatewayClassName: istio, listeners: [{name: l, port: 80, protocol: HTTP}]";
    let object = |api: &str, kind: &str, spec: &str| {
        format!(
            "{{apiVersion: {api}, kind: {kind}, metadata: {{name: one, namespace: shop}}, spec: {{{spec}}}}}"
        )
    };
    let slice = |kind: &str, address: &str| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: one, namespace: shop}}, \
             addressType: {kind}, endpoints: [{{addresses: [{address}]}}]}}"
        )
    };
    for (with, path, without) in [
        (
            object(
                api,
                "HTTPRoute",
                &format!("rules: [{{{rule}}}, {{{rule}, sessionPersistence: {{sessionName: a}}}}]"),
            ),
            "spec.rules[1].sessionPersistence",
            object(api, "HTTPRoute", &format!("rules: [{{{rule}}}, {{{rule}}}]")),
        ),
        (
            object(api, "GRPCRoute", &format!("rules: [{{{rule}, sessionPersistence: {{sessionName: a}}}}]")),
            "spec.rules[0].sessionPersistence",
            object(api, "GRPCRoute", &format!("rules: [{{{rule}}}]")),
        ),
        (
            object(
                api,
                "Gateway",
                &format!("{gateway}, tls: {{backend: {{clientCertificateRef: {{name: a}}}}}}"),
            ),
            "spec.tls.backend",
            object(api, "Gateway", gateway),
        ),
        (
            object(
                api,
                "GatewayClass",
                "controllerName: istio.io/gateway-controller, parametersRef: {group: a.com, kind: A, name: b}",
            ),
            "spec.parametersRef",
            object(api, "GatewayClass", "controllerName: istio.io/gateway-controller"),
        ),
        (
            object(api, "Gateway", &format!("{gateway}, defaultScope: All")),
            "spec.defaultScope",
            object(api, "Gateway", gateway),
        ),
        (
            object(api, "Gateway", &format!("{gateway}, backendTLS: {{clientCertificateRef: {{name: a}}}}")),
            "spec.backendTLS",
            object(api, "Gateway", gateway),
        ),
        (
            object(api, "TCPRoute", &format!("useDefaultGateways: All, rules: [{{{rule}}}]")),
            "spec.useDefaultGateways",
            object(api, "TCPRoute", &format!("rules: [{{{rule}}}]")),
        ),
        (slice("FQDN", "a.example.com"), "addressType", slice("IPv4", "10.0.0.1")),
    ] {
        assert_eq!(warned(&with), [path], "{with}");
        assert!(warned(&without).is_empty(), "{without}");
    }
}
