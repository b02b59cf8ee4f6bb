//! The other kinds of `networking.istio.io`, WasmPlugin and TrafficExtension.

use super::{check, spec_of};

const API: &str = "networking.istio.io/v1";

#[test]
fn workload_groups_and_proxy_configs() {
    check(
        spec_of(API, "WorkloadGroup"),
        &[
            ("metadata: {}", "spec.template: must be set", "template: {}"),
            (
                "template: {}, metadata: {labels: {a: \"b c\"}}",
                "spec.metadata.labels[a]: \"b c\" is not the value of a label",
                "template: {}, metadata: {labels: {a: b}}",
            ),
            (
                "template: {ports: {http: 0}}",
                "spec.template.ports[http]: 0 is not a port, must be 1 to 65535",
                "template: {ports: {http: 1}}",
            ),
            (
                "template: {}, probe: {}",
                "spec.probe: one of httpGet, tcpSocket, exec and grpc must be set",
                "template: {}, probe: {grpc: {port: 1}}",
            ),
            (
                "template: {}, probe: {exec: {command: [a]}, tcpSocket: {port: 1}}",
                "spec.probe: only one of tcpSocket, exec may be set",
                "template: {}, probe: {tcpSocket: {port: 1}}",
            ),
            (
                "template: {}, probe: {exec: {}}",
                "spec.probe.exec.command: must be set",
                "template: {}, probe: {exec: {command: [a]}}",
            ),
            (
                "template: {}, probe: {tcpSocket: {port: 65536}}",
                "spec.probe.tcpSocket.port: 65536 is not a port, must be 1 to 65535",
                "template: {}, probe: {tcpSocket: {port: 65535}}",
            ),
            (
                "template: {}, probe: {httpGet: {port: 80, scheme: http}}",
                "spec.probe.httpGet.scheme: \"http\" is not HTTP or HTTPS",
                "template: {}, probe: {httpGet: {port: 80, scheme: HTTP}}",
            ),
            (
                "template: {}, probe: {httpGet: {port: 80, httpHeaders: [{name: \"**\"}]}}",
                "spec.probe.httpGet.httpHeaders[0].name: \"**\" is not the name of a header",
                "template: {}, probe: {httpGet: {port: 80, httpHeaders: [{name: a}]}}",
            ),
            (
                "template: {}, probe: {periodSeconds: -1, grpc: {port: 1}}",
                "spec.probe.periodSeconds: -1 is negative",
                "template: {}, probe: {periodSeconds: 1, grpc: {port: 1}}",
            ),
        ],
    );
    check(
        spec_of("networking.istio.io/v1beta1", "ProxyConfig"),
        &[("concurrency: -1", "spec.concurrency: -1 is negative", "concurrency: 0")],
    );
}

#[test]
fn sidecars() {
    check(
        spec_of(API, "Sidecar"),
        &[
            (
                "",
                "warning: spec: is empty, set ingress, egress, outboundTrafficPolicy or inboundConnectionPool",
                "egress: [{hosts: [\"./*\"]}]",
            ),
            ("egress: [{}]", "spec.egress[0].hosts: must be set", "egress: [{hosts: [\"*/*\"]}]"),
            (
                "egress: [{hosts: [a.b]}]",
                "spec.egress[0].hosts[0]: \"a.b\" is not of the form namespace/host (for example \"*/a.b\")",
                "egress: [{hosts: [\"*/a.b\"]}]",
            ),
            (
                "egress: [{hosts: [x_y/a.b]}]",
                "spec.egress[0].hosts[0]: \"x_y\" is not a namespace, \"*\", \".\" or \"~\"",
                "egress: [{hosts: [\"~/*\"]}]",
            ),
            (
                "egress: [{hosts: [./a]}]",
                "warning: spec.egress[0].hosts[0]: \"a\" is a short name, the full name is needed here",
                "egress: [{hosts: [./a.b]}]",
            ),
            (
                "egress: [{hosts: [./a.b, shop/a.b]}]",
                "warning: spec.egress[0].hosts[1]: \"shop/a.b\" is covered by another host",
                "egress: [{hosts: [./a.b, team/a.b]}]",
            ),
            (
                "egress: [{hosts: [\"*/*\", team/a.b]}]",
                "warning: spec.egress[0].hosts: \"*/*\" selects everything, other hosts have no effect",
                "egress: [{hosts: [\"*/*\"]}]",
            ),
            (
                "egress: [{hosts: [./*]}, {port: {number: 80, protocol: HTTP, name: x}, hosts: [./*]}]",
                "warning: spec.egress[0].port: is not set, which is meant for the last listener, as it takes all traffic",
                "egress: [{port: {number: 80, protocol: HTTP, name: x}, hosts: [./*]}, {hosts: [./*]}]",
            ),
            (
                "egress: [{port: {number: 80}, hosts: [./*]}, {port: {number: 80}, hosts: [./*]}]",
                "warning: spec.egress[1].port.number: is the same as that of item 0, only one has an effect",
                "egress: [{port: {number: 80}, hosts: [./*]}, {port: {number: 81}, hosts: [./*]}]",
            ),
            (
                "egress: [{port: {protocol: HTTP}, hosts: [./*]}]",
                "spec.egress[0].port.number: must be set, unless bind is a unix:// socket",
                "egress: [{port: {protocol: HTTP}, bind: \"unix:///a\", hosts: [./*]}]",
            ),
            (
                "egress: [{port: {protocol: HTTP}, bind: \"unix:///a\", captureMode: IPTABLES, hosts: [./*]}]",
                "spec.egress[0].captureMode: IPTABLES is not possible for a Unix domain socket",
                "egress: [{port: {protocol: HTTP}, bind: \"unix:///a\", captureMode: NONE, hosts: [./*]}]",
            ),
            (
                "egress: [{port: {number: 80}, bind: a, hosts: [./*]}]",
                "spec.egress[0].bind: \"a\" is not an IP address",
                "egress: [{port: {number: 80}, bind: 127.0.0.1, hosts: [./*]}]",
            ),
            ("ingress: [{}]", "spec.ingress[0].port: must be set", "ingress: [{port: {number: 80}}]"),
            (
                "ingress: [{port: {number: 80, protocol: FTP}}]",
                "warning: spec.ingress[0].port.protocol: \"FTP\" is unknown to this version: it counts as not set (did you mean \"HTTP\"?)",
                "ingress: [{port: {number: 80, protocol: TCP}}]",
            ),
            (
                "ingress: [{port: {number: 80}, defaultEndpoint: \"10.0.0.1:80\"}]",
                "spec.ingress[0].defaultEndpoint: \"10.0.0.1:80\" is not an endpoint of the workload (127.0.0.1:PORT, 0.0.0.0:PORT, \
             [::1]:PORT, [::]:PORT or unix:///PATH)",
                "ingress: [{port: {number: 80}, defaultEndpoint: \"[::1]:80\"}]",
            ),
            (
                "ingress: [{port: {number: 80}, defaultEndpoint: \"127.0.0.1:x\"}]",
                "spec.ingress[0].defaultEndpoint: \"127.0.0.1:x\" is not an endpoint of the workload (127.0.0.1:PORT, 0.0.0.0:PORT, \
             [::1]:PORT, [::]:PORT or unix:///PATH)",
                "ingress: [{port: {number: 80}, defaultEndpoint: \"127.0.0.1:80\"}]",
            ),
            (
                "ingress: [{port: {number: 80, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: a}}]",
                "warning: spec.ingress[0].tls.credentialName: has no effect on sidecars",
                "ingress: [{port: {number: 80, protocol: HTTPS}, tls: {mode: SIMPLE, privateKey: /k, serverCertificate: /c}}]",
            ),
            (
                "ingress: [{port: {number: 80, protocol: TCP}, connectionPool: {http: {maxRetries: 1}}}]",
                "warning: spec.ingress[0].connectionPool.http: has no effect, the protocol of the port is not HTTP",
                "ingress: [{port: {number: 80, protocol: HTTP}, connectionPool: {http: {maxRetries: 1}}}]",
            ),
            (
                "inboundConnectionPool: {http: {maxRetries: -1}}",
                "spec.inboundConnectionPool.http.maxRetries: -1 is negative",
                "inboundConnectionPool: {http: {maxRetries: 1}}",
            ),
            (
                "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a.b}}",
                "spec.outboundTrafficPolicy.egressProxy.port: must be set",
                "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a.b, port: {number: 80}}}",
            ),
            (
                "outboundTrafficPolicy: {mode: REGISTRY_ONLY, egressProxy: {host: a.b, port: {number: 80}}}",
                "warning: spec.outboundTrafficPolicy.egressProxy: has no effect, mode is not ALLOW_ANY",
                "outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
            ),
            (
                "egress: [{hosts: [./*]}], workloadSelector: {labels: {a: \"*\"}}",
                "spec.workloadSelector.labels[a]: wildcards are not supported in selectors",
                "egress: [{hosts: [./*]}], workloadSelector: {labels: {a: b}}",
            ),
        ],
    );
}

#[test]
fn envoy_filters() {
    let of = |patch: &str| {
        spec_of("networking.istio.io/v1alpha3", "EnvoyFilter")(&format!("configPatches: [{{{patch}}}]"))
    };
    const MERGE: &str = "patch: {operation: MERGE, value: {a: b}}";
    let patch = |fields: &str| format!("{fields}, {MERGE}");
    let chain = |filter: &str| {
        patch(&format!(
            "applyTo: HTTP_FILTER, match: {{listener: {{filterChain: {{filter: {{{filter}}}}}}}}}"
        ))
    };
    let good = patch("applyTo: CLUSTER");
    check(
        of,
        &[
            (MERGE, "spec.configPatches[0].applyTo: must be set", &good),
            ("applyTo: CLUSTER", "spec.configPatches[0].patch: must be set", &good),
            (
                "applyTo: CLUSTER, patch: {value: {}}",
                "spec.configPatches[0].patch.operation: must be set",
                &good,
            ),
            (
                "applyTo: CLUSTER, patch: {operation: ADD}",
                "spec.configPatches[0].patch.value: must be set, unless operation is REMOVE",
                "applyTo: CLUSTER, patch: {operation: REMOVE}",
            ),
            (
                "applyTo: CLUSTER, patch: {operation: ADD, value: [a]}",
                "spec.configPatches[0].patch.value: must be an object with fields",
                "applyTo: CLUSTER, patch: {operation: ADD, value: {a: [b]}}",
            ),
            (
                "applyTo: CLUSTER, patch: {operation: REMOVE, value: {}}",
                "warning: spec.configPatches[0].patch.value: is not used, as operation is REMOVE",
                "applyTo: CLUSTER, patch: {operation: REMOVE}",
            ),
            (
                "applyTo: CLUSTER, patch: {operation: INSERT_FIRST, value: {}}",
                "warning: spec.configPatches[0].patch.operation: means ADD here, only filters and routes have an order",
                "applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {}}",
            ),
            (
                &patch("applyTo: CLUSTER, match: {listener: {}}"),
                "warning: spec.configPatches[0].match.listener: does not fit applyTo, a match on cluster is needed",
                &patch("applyTo: CLUSTER, match: {cluster: {}}"),
            ),
            (
                &patch("applyTo: HTTP_ROUTE, match: {cluster: {}}"),
                "warning: spec.configPatches[0].match.cluster: does not fit applyTo, a match on routeConfiguration is needed",
                &patch("applyTo: HTTP_ROUTE, match: {routeConfiguration: {}}"),
            ),
            (
                &patch("applyTo: CLUSTER, match: {cluster: {}, listener: {}}"),
                "spec.configPatches[0].match: only one of listener, cluster may be set",
                &good,
            ),
            (
                &patch("applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, waypoint: {}}"),
                "spec.configPatches[0].match.waypoint: must only be set for context WAYPOINT",
                &patch("applyTo: HTTP_FILTER, match: {context: WAYPOINT, waypoint: {}}"),
            ),
            (
                &patch("applyTo: HTTP_FILTER, match: {context: WAYPOINT, listener: {}}"),
                "spec.configPatches[0].match.listener: must be a match on waypoint for context WAYPOINT",
                &patch("applyTo: HTTP_FILTER, match: {context: GATEWAY, listener: {}}"),
            ),
            (
                &chain("subFilter: {name: a}"),
                "warning: spec.configPatches[0].match.listener.filterChain.filter.name: is not set, so nothing matches",
                &chain("name: envoy.filters.network.http_connection_manager, subFilter: {name: a}"),
            ),
            (
                &chain("name: envoy.filters.network.tcp_proxy, subFilter: {name: a}"),
                "warning: spec.configPatches[0].match.listener.filterChain.filter.name: should be \
             envoy.filters.network.http_connection_manager beside subFilter",
                &chain("name: envoy.filters.network.tcp_proxy"),
            ),
            (
                &chain("name: envoy.router"),
                "warning: spec.configPatches[0].match.listener.filterChain.filter.name: \"envoy.router\" is an old name, write \
             \"envoy.filters.http.router\"",
                &chain("name: envoy.filters.http.router"),
            ),
        ],
    );
    check(
        spec_of("networking.istio.io/v1alpha3", "EnvoyFilter"),
        &[(
            "workloadSelector: {labels: {a: b}}, targetRefs: [{kind: Service, name: a}]",
            "spec: only one of workloadSelector, targetRefs may be set",
            "targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]",
        )],
    );
}

#[test]
fn wasm_plugins() {
    let sum = "0123456789abcdef".repeat(4);
    check(
        spec_of("extensions.istio.io/v1alpha1", "WasmPlugin"),
        &[
            ("sha256: \"\"", "spec.url: must be set", "url: example.com/image:1"),
            (
                "url: \"fake://example.com\"",
                "spec.url: \"fake://example.com\" is not a URL with oci, http, https or file",
                "url: \"oci://example.com/image\"",
            ),
            (
                "url: \"a b\"",
                "spec.url: \"a b\" is not a URL with oci, http, https or file",
                "url: \"file:///opt/a.wasm\"",
            ),
            (
                "url: \"http://a/b\", sha256: foo",
                "spec.sha256: must be 64 digits of 0-9 and a-f",
                &format!("url: \"http://a/b\", sha256: \"{sum}\""),
            ),
            (
                "url: a, match: [{ports: [{number: 0}]}]",
                "spec.match[0].ports[0].number: 0 is not a port, must be 1 to 65535",
                "url: a, match: [{ports: [{number: 1}]}]",
            ),
            (
                "url: a, vmConfig: {env: [{name: a}, {name: a}]}",
                "spec.vmConfig.env[1].name: is the same as that of item 0, must be unique",
                "url: a, vmConfig: {env: [{name: a}, {name: b}]}",
            ),
            (
                "url: a, vmConfig: {env: [{value: x}]}",
                "spec.vmConfig.env[0].name: must be set",
                "url: a, vmConfig: {env: [{name: a, value: x}]}",
            ),
            (
                "url: a, vmConfig: {env: [{name: a, valueFrom: HOST, value: x}]}",
                "spec.vmConfig.env[0].value: must only be set for valueFrom INLINE",
                "url: a, vmConfig: {env: [{name: a, valueFrom: HOST}]}",
            ),
            (
                "url: a, selector: {matchLabels: {\"i*\": b}}",
                "spec.selector.matchLabels[i*]: wildcards are not supported in selectors",
                "url: a, selector: {matchLabels: {i: b}}",
            ),
            (
                &format!("url: a, pluginName: {}", "n".repeat(257)),
                "spec.pluginName: has more than 256 characters",
                &format!("url: a, pluginName: {}", "n".repeat(256)),
            ),
        ],
    );
}

/// Rule 34 of istiod 1.31.
#[test]
fn traffic_extensions() {
    let script = "function envoy_on_request(handle) end";
    let long = format!("--{}", "a".repeat(65_535));
    check(
        spec_of("extensions.istio.io/v1alpha1", "TrafficExtension"),
        &[
            ("phase: AUTHN", "spec: one of wasm and lua must be set", "wasm: {url: example.com/image:1}"),
            (
                "wasm: {url: a}, lua: {inlineCode: a}",
                "spec: one of wasm and lua must be set",
                &format!("lua: {{inlineCode: {script}}}"),
            ),
            (
                "wasm: {sha256: \"\"}",
                "spec.wasm.url: must be set",
                "wasm: {url: \"file:///a.wasm\", type: NETWORK}",
            ),
            (
                "wasm: {url: a, sha256: foo}",
                "spec.wasm.sha256: must be 64 digits of 0-9 and a-f",
                "wasm: {url: a, failStrategy: FAIL_OPEN}",
            ),
            (
                "wasm: {url: a, vmConfig: {env: [{name: a, valueFrom: HOST, value: b}]}}",
                "spec.wasm.vmConfig.env[0].value: must only be set for valueFrom INLINE",
                "wasm: {url: a, vmConfig: {env: [{name: a, valueFrom: HOST}]}}",
            ),
            ("lua: {}", "spec.lua.inlineCode: must be set", "lua: {inlineCode: return}"),
            (
                "lua: {inlineCode: function}",
                "spec.lua.inlineCode: does not compile: line 1: expected a name, not the end",
                "lua: {inlineCode: 'function f() end'}",
            ),
            (
                &format!("lua: {{inlineCode: {long}}}"),
                "spec.lua.inlineCode: has 65537 bytes, at most 65536 are allowed",
                &format!("lua: {{inlineCode: {}}}", &long[1..].replacen('-', "--", 1)[..65_536]),
            ),
            (
                "lua: {inlineCode: return}, match: [{ports: [{number: 0}]}]",
                "spec.match[0].ports[0].number: 0 is not a port, must be 1 to 65535",
                "lua: {inlineCode: return}, match: [{mode: CLIENT, ports: [{number: 80}]}]",
            ),
            (
                "lua: {inlineCode: return}, selector: {matchLabels: {a: b}}, targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]",
                "spec: only one of selector, targetRef and targetRefs may be set",
                "lua: {inlineCode: return}, targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]",
            ),
        ],
    );
}
