//! Kubernetes' own kinds.

use super::check;

fn of<'a>(api: &'a str, kind: &'a str) -> impl Fn(&str) -> String + 'a {
    move |rest| format!("apiVersion: {api}\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\n{rest}\n")
}

#[test]
fn services() {
    let spec = |spec: &str| of("v1", "Service")(&format!("spec: {{{spec}}}"));
    const PORT: &str = "ports: [{port: 80}]";
    check(
        spec,
        &[
            ("type: ClusterIP", "spec.ports: must be set", "clusterIP: None"),
            ("ports: [{port: 0}]", "spec.ports[0].port: 0 is not a port, must be 1 to 65535", PORT),
            (
                "ports: [{port: 80}, {port: 81, name: x}]",
                "spec.ports[0].name: must be set, there are several ports",
                "ports: [{port: 80, name: y}, {port: 81, name: x}]",
            ),
            (
                "ports: [{port: 80, name: X}]",
                "spec.ports[0].name: \"X\" is not the name of a port: 1 to 63 of a-z, 0-9 and '-', not '-' at the ends",
                "ports: [{port: 80, name: x}]",
            ),
            (
                "ports: [{port: 80, name: x}, {port: 81, name: x}]",
                "spec.ports[1].name: is the same as that of item 0, must be unique",
                "ports: [{port: 80, name: x}, {port: 80, name: y, protocol: UDP}]",
            ),
            (
                "ports: [{port: 80, name: x}, {port: 80, name: y}]",
                "spec.ports[1].port: is the same as that of item 0, must be unique",
                PORT,
            ),
            (
                "ports: [{port: 80, targetPort: 70000}]",
                "spec.ports[0].targetPort: 70000 is not a port, must be 1 to 65535",
                "ports: [{port: 80, targetPort: 7000}]",
            ),
            (
                "ports: [{port: 80, targetPort: A_B}]",
                "spec.ports[0].targetPort: \"A_B\" is not the name of a container's port: up to 15 of a-z, 0-9 and '-', with a letter",
                "ports: [{port: 80, targetPort: a-b}]",
            ),
            (
                "clusterIP: a, ports: [{port: 80}]",
                "spec.clusterIPs[0]: \"a\" is not an IP address",
                "clusterIP: \"::1\", ports: [{port: 80}]",
            ),
            (
                "clusterIP: 1.1.1.1, clusterIPs: [1.1.1.2], ports: [{port: 80}]",
                "spec.clusterIPs: must begin with clusterIP",
                "clusterIP: 1.1.1.1, clusterIPs: [1.1.1.1, \"::1\"], ports: [{port: 80}]",
            ),
            (
                "externalIPs: [a], ports: [{port: 80}]",
                "spec.externalIPs[0]: \"a\" is not an IP address",
                "externalIPs: [1.1.1.1], ports: [{port: 80}]",
            ),
            (
                "type: ExternalName",
                "spec.externalName: must be set for type ExternalName",
                "type: ExternalName, externalName: a.b.",
            ),
            (
                "type: ExternalName, externalName: a_b",
                "spec.externalName: \"a_b\" is not a host name",
                "type: ExternalName, externalName: A.b",
            ),
            (
                "ports: [{port: 80}], selector: {a: \"b c\"}",
                "spec.selector[a]: \"b c\" is not the value of a label",
                "ports: [{port: 80}], selector: {a: b}",
            ),
        ],
    );
    check(
        of("v1", "Service"),
        &[(
            "spec: {ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: a}]}}",
            "status.loadBalancer.ingress[0].ip: \"a\" is not an IP address",
            "spec: {ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: 1.1.1.1}, {hostname: a}]}}",
        )],
    );
}

#[test]
fn names() {
    let named = |kind: &'static str, rest: &'static str| {
        move |name: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{rest}\n")
    };
    const RULE: &str = "1 to 63 of a-z, 0-9 and '-', not '-' at the ends";
    check(
        named("Service", "spec: {clusterIP: None}"),
        &[
            ("a.b", &format!("metadata.name: \"a.b\" is not the name of a Service: {RULE}"), "a-b"),
            (
                "A",
                "metadata.name: \"A\" is not a name: up to 253 of a-z, 0-9, '-' and '.', a letter or digit at each end",
                "a",
            ),
        ],
    );
    check(
        named("Namespace", ""),
        &[("a.b", &format!("metadata.name: \"a.b\" is not the name of a Namespace: {RULE}"), "a")],
    );
    check(named("ConfigMap", ""), &[("\"\"", "metadata.name: must be set", "a.b")]);
}

#[test]
fn endpoint_slices() {
    check(
        of("discovery.k8s.io/v1", "EndpointSlice"),
        &[
            (
                "addressType: IPv4\nendpoints: [{addresses: [\"::1\"]}]",
                "warning: endpoints[0].addresses[0]: is not of addressType IPv4",
                "addressType: IPv6\nendpoints: [{addresses: [\"::1\"]}]",
            ),
            (
                "addressType: FQDN\nendpoints: [{addresses: [a.b]}]",
                "warning: addressType: FQDN has no effect: the endpoints of this slice are not used; a ServiceEntry with resolution \
                 DNS can have names",
                "endpoints: [{addresses: [1.1.1.1]}]",
            ),
            (
                "endpoints: [{addresses: [a]}]",
                "endpoints[0].addresses[0]: \"a\" is not an IP address",
                "endpoints: [{addresses: [1.1.1.1]}]",
            ),
            ("endpoints: [{}]", "endpoints[0].addresses: must be set", "endpoints: []"),
            (
                "ports: [{port: 0}]",
                "ports[0].port: 0 is not a port, must be 1 to 65535",
                "ports: [{port: 1}]",
            ),
            (
                "ports: [{name: a}]",
                "warning: ports[0].port: is not set: the endpoints are not used for this port",
                "ports: [{port: 1}]",
            ),
            (
                "ports: [{port: 1, name: a}, {port: 2, name: a}]",
                "ports[1].name: is the same as that of item 0, must be unique",
                "ports: [{port: 1, name: a}, {port: 2, name: b}]",
            ),
        ],
    );
}

#[test]
fn pods_secrets_and_imports() {
    check(
        of("v1", "Pod"),
        &[
            (
                "status: {podIP: a}",
                "status.podIPs[0].ip: \"a\" is not an IP address",
                "status: {podIP: 1.1.1.1}",
            ),
            ("status: {hostIP: a}", "status.hostIP: \"a\" is not an IP address", "status: {hostIP: \"::1\"}"),
            (
                "spec: {containers: [{ports: [{containerPort: 0}]}]}",
                "spec.containers[0].ports[0].containerPort: 0 is not a port, must be 1 to 65535",
                "spec: {containers: [{ports: [{containerPort: 80, name: http}]}]}",
            ),
        ],
    );
    check(
        of("v1", "Secret"),
        &[
            (
                "type: kubernetes.io/tls\ndata: {tls.crt: \"\"}",
                "data[tls.key]: must be set for type kubernetes.io/tls",
                "type: kubernetes.io/tls\ndata: {tls.crt: \"\"}\nstringData: {tls.key: \"\"}",
            ),
            (
                "type: kubernetes.io/tls\ndata: {tls.crt: YQ==, tls.key: \"\"}",
                "data[tls.crt]: is not PEM, -----BEGIN ...----- and base64",
                "type: kubernetes.io/tls\ndata: {tls.crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCllRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=, tls.key: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCllRPT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo=}",
            ),
        ],
    );
    check(
        of("multicluster.x-k8s.io/v1alpha1", "ServiceImport"),
        &[
            ("spec: {ips: [a]}", "spec.ips[0]: \"a\" is not an IP address", "spec: {ips: [1.1.1.1]}"),
            (
                "spec: {ports: [{port: 0}]}",
                "spec.ports[0].port: 0 is not a port, must be 1 to 65535",
                "spec: {ports: [{port: 1}]}",
            ),
        ],
    );
}

#[test]
fn ingresses() {
    let rule = |rule: &str| of("networking.k8s.io/v1", "Ingress")(&format!("spec: {{rules: [{{{rule}}}]}}"));
    const BACKEND: &str = "backend: {service: {name: b, port: {number: 80}}}";
    let path = |path: &str| format!("http: {{paths: [{{{path}}}]}}");
    let good = path(&format!("path: /, {BACKEND}"));
    check(
        rule,
        &[
            ("host: A", "spec.rules[0].host: \"A\" is not a host name in lower case", "host: \"*.a.b\""),
            ("http: {}", "spec.rules[0].http.paths: must be set", &good),
            (
                &path(&format!("path: a, pathType: Prefix, {BACKEND}")),
                "spec.rules[0].http.paths[0].path: \"a\" must begin with '/'",
                &path(&format!("path: /a, pathType: Prefix, {BACKEND}")),
            ),
            (
                &path(&format!("path: /a//b, pathType: Exact, {BACKEND}")),
                "spec.rules[0].http.paths[0].path: \"/a//b\" must not contain \"//\"",
                &path(&format!("path: /a//b, {BACKEND}")),
            ),
            (
                &path("path: /"),
                "spec.rules[0].http.paths[0].backend: one of service and resource must be set",
                &good,
            ),
            (
                &path("path: /, backend: {resource: {kind: a, name: b}}"),
                "warning: spec.rules[0].http.paths[0].backend.resource: has no effect: only backends of kind Service are served",
                &good,
            ),
            (
                &path("path: /, backend: {service: {port: {number: 80}}}"),
                "spec.rules[0].http.paths[0].backend.service.name: must be set",
                &good,
            ),
            (
                &path("path: /, backend: {service: {name: b}}"),
                "spec.rules[0].http.paths[0].backend.service.port.number: 0 is not a port, must be 1 to 65535",
                &path("path: /, backend: {service: {name: b, port: {name: http}}}"),
            ),
            (
                &path("path: /, backend: {service: {name: b, port: {name: http, number: 80}}}"),
                "spec.rules[0].http.paths[0].backend.service.port: only one of name, number may be set",
                &good,
            ),
        ],
    );
    check(
        of("networking.k8s.io/v1", "Ingress"),
        &[(
            "spec: {}",
            "spec: one of defaultBackend and rules must be set",
            "spec: {defaultBackend: {service: {name: b, port: {number: 80}}}}",
        )],
    );
}
