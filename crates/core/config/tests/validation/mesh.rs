//! MeshConfig and MeshNetworks.

use super::check_mesh;
use pilotfish_config::MeshFile;

#[test]
fn mesh_config() {
    check_mesh(
        MeshFile::Config,
        &[
            (
                "proxyListenPort: 0",
                "proxyListenPort: 0 is not a port, must be 1 to 65535",
                "proxyListenPort: 15001",
            ),
            ("connectTimeout: 0s", "connectTimeout: must be at least 1ms", "connectTimeout: 1h"),
            ("connectTimeout: 2h", "connectTimeout: must be at most 1h", "connectTimeout: 10s"),
            (
                "protocolDetectionTimeout: 1us",
                "protocolDetectionTimeout: must be at least 1ms",
                "protocolDetectionTimeout: 0s",
            ),
            (
                "trustDomain: a_b",
                "trustDomain: \"a_b\" is not a trust domain, it must be a DNS name",
                "trustDomain: cluster.local",
            ),
            (
                "trustDomainAliases: [\"\"]",
                "trustDomainAliases[0]: \"\" is not a trust domain, it must be a DNS name",
                "trustDomainAliases: [a.b]",
            ),
            (
                "caCertificates: [{pem: odd}]",
                "warning: caCertificates[0].pem: is left out: it is not PEM, -----BEGIN ...----- and base64",
                "caCertificates: [{pem: '-----BEGIN CERTIFICATE----- AAAA -----END CERTIFICATE-----'}]",
            ),
            (
                "caCertificates: [{spiffeBundleUrl: 'ftp://a/b'}]",
                "warning: caCertificates[0].spiffeBundleUrl: is left out: it is not a URL, https://HOST/PATH",
                "caCertificates: [{spiffeBundleUrl: 'https://other.org/bundle'}]",
            ),
            (
                "caCertificates: [{pem: '-----BEGIN A----- AAAA -----END A-----', spiffeBundleUrl: 'https://a'}]",
                "caCertificates[0]: only one of pem, spiffeBundleUrl may be set",
                "caCertificates: []",
            ),
            (
                "caCertificates: [{}]",
                "warning: caCertificates[0]: has no effect: set pem or spiffeBundleUrl",
                "caCertificates: [{spiffeBundleUrl: 'https://a'}]",
            ),
            (
                "caCertificates: [{spiffeBundleUrl: 'https://a', trustDomains: [a]}]",
                "warning: caCertificates[0].trustDomains: has no effect: the roots are trusted for all trust domains",
                "caCertificates: [{spiffeBundleUrl: 'https://a', trustDomains: []}]",
            ),
            ("rootNamespace: a.b", "rootNamespace: \"a.b\" is not a namespace", "rootNamespace: a-b"),
            (
                "outboundTrafficPolicy: {mode: ALLOW_ANY, tls: {mode: SIMPLE}}",
                "warning: outboundTrafficPolicy.tls: has no effect, mode is not ALLOW_ANY_DYNAMIC_DNS",
                "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, sni: a.b}}",
            ),
            (
                "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, credentialName: x}}",
                "warning: outboundTrafficPolicy.tls.credentialName: is not handed out to sidecars: requests to unknown hosts go out in plaintext",
                "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, credentialName: \"configmap://x\"}}",
            ),
            (
                "serviceSettings: [{hosts: [\"a*b\"]}]",
                "serviceSettings[0].hosts[0]: \"a*b\" is not a host name: \"a*b\" is not a DNS label or a wildcard",
                "serviceSettings: [{hosts: [\"*.a\"]}]",
            ),
            (
                "discoverySelectors: [{matchExpressions: [{key: a, operator: In}]}]",
                "discoverySelectors[0].matchExpressions[0].values: must be set for In and NotIn",
                "discoverySelectors: [{matchExpressions: [{key: a, operator: Exists}]}]",
            ),
            (
                "serviceScopeConfigs: [{namespaceSelector: {matchLabels: {\"a b\": c}}}]",
                "serviceScopeConfigs[0].namespaceSelector.matchLabels[a b]: \"a b\" is not the key of a label",
                "serviceScopeConfigs: [{namespaceSelector: {matchLabels: {a: c}}}]",
            ),
            (
                "defaultServiceExportTo: [\"*\", a]",
                "warning: defaultServiceExportTo: \"*\" decides alone, else \"~\": the other values have no effect",
                "defaultServiceExportTo: [\"~\"]",
            ),
            (
                "localityLbSetting: {failover: [{from: a, to: b}], failoverPriority: [topology.kubernetes.io/region]}",
                "localityLbSetting.failoverPriority[0]: \"topology.kubernetes.io/region\" must not be set beside failover",
                "localityLbSetting: {failover: [{from: a, to: b}]}",
            ),
            (
                "meshMTLS: {ecdhCurves: [P-256]}",
                "meshMTLS.ecdhCurves: is not supported, use tlsDefaults",
                "tlsDefaults: {ecdhCurves: [P-256]}",
            ),
            (
                "tlsDefaults: {ecdhCurves: [P-1]}",
                "warning: tlsDefaults.ecdhCurves[0]: \"P-1\" is not a curve that Envoy knows",
                "tlsDefaults: {ecdhCurves: [X25519]}",
            ),
            (
                "defaultHttpRetryPolicy: {attempts: -1}",
                "defaultHttpRetryPolicy.attempts: -1 is negative",
                "defaultHttpRetryPolicy: {attempts: 1}",
            ),
            (
                "defaultInboundHttpRetryPolicy: {attempts: 1, perTryTimeout: 1s}",
                "warning: defaultInboundHttpRetryPolicy.perTryTimeout: has no effect: inbound routes have one endpoint",
                "defaultInboundHttpRetryPolicy: {attempts: 1, retryOn: 5xx, backoff: 1s}",
            ),
            (
                "defaultInboundHttpRetryPolicy: {attempts: -1}",
                "defaultInboundHttpRetryPolicy.attempts: -1 is negative",
                "defaultInboundHttpRetryPolicy: {}",
            ),
            (
                "trustDomian: a",
                "warning: trustDomian: unknown to this version: it is ignored (did you mean \"trustDomain\"?)",
                "trust_domain: a",
            ),
        ],
    );
}

#[test]
fn default_proxy_config() {
    let config = |field: &str| format!("defaultConfig: {{{field}}}");
    let rules = [
        ("drainDuration: 1.5s", "defaultConfig.drainDuration: must be whole seconds", "drainDuration: 2s"),
        (
            "discoveryAddress: istiod",
            "defaultConfig.discoveryAddress: \"istiod\" is not an address like host:15012",
            "discoveryAddress: \"istiod.istio-system.svc:15012\"",
        ),
        (
            "statusPort: 70000",
            "defaultConfig.statusPort: 70000 is not a port, must be 1 to 65535",
            "statusPort: 15020",
        ),
        ("concurrency: -1", "defaultConfig.concurrency: -1 is negative", "concurrency: 0"),
        (
            "serviceCluster: \"\"",
            "defaultConfig: one of serviceCluster and tracingServiceName must be set",
            "tracingServiceName: CANONICAL_NAME_ONLY",
        ),
        (
            "controlPlaneAuthPolicy: INHERIT",
            "defaultConfig.controlPlaneAuthPolicy: must be NONE or MUTUAL_TLS",
            "controlPlaneAuthPolicy: NONE",
        ),
        (
            "tracing: {zipkin: {address: a}}",
            "defaultConfig.tracing.zipkin.address: \"a\" is not an address like host:15012",
            "tracing: {zipkin: {address: \"$(HOST_IP):9411\"}}",
        ),
        (
            "tracing: {lightstep: {address: \"a:1\"}}",
            "defaultConfig.tracing.lightstep.accessToken: must be set",
            "tracing: {lightstep: {address: \"a:1\", accessToken: b}}",
        ),
        (
            "tracing: {sampling: 101}",
            "defaultConfig.tracing.sampling: 101 is not a percentage, must be 0 to 100",
            "tracing: {sampling: 1}",
        ),
        (
            "privateKeyProvider: {qat: {}}",
            "defaultConfig.privateKeyProvider.qat.pollDelay: must be set and not be 0",
            "privateKeyProvider: {qat: {pollDelay: 1ms}}",
        ),
        (
            "proxyStatsMatcher: {inclusionRegexps: [\"(\"]}",
            "defaultConfig.proxyStatsMatcher.inclusionRegexps[0]: \"(\" is not a regular expression of RE2: missing closing )",
            "proxyStatsMatcher: {inclusionRegexps: [\"a.*\"]}",
        ),
        (
            "envoyAccessLogService: {address: a}",
            "defaultConfig.envoyAccessLogService.address: \"a\" is not an address like host:15012",
            "envoyAccessLogService: {address: \"[::1]:80\"}",
        ),
    ];
    for (bad, message, good) in rules {
        check_mesh(MeshFile::Config, &[(&config(bad), message, &config(good))]);
    }
}

#[test]
fn extension_providers_are_only_warned_about() {
    check_mesh(
        MeshFile::Config,
        &[
            (
                "extensionProviders: [{name: a, zipkin: {service: a.b}}]",
                "warning: extensionProviders[0].zipkin.port: 0 is not a port, must be 1 to 65535",
                "extensionProviders: [{name: a, zipkin: {service: a.b, port: 80}}]",
            ),
            (
                "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: a_b, port: 80}}]",
                "warning: extensionProviders[0].envoyExtAuthzGrpc.service: \"a_b\" is not a service, host or namespace/host",
                "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: ns/a.b, port: 80}}]",
            ),
            (
                "extensionProviders: [{name: a}]",
                "warning: extensionProviders[0]: is of no kind that is known",
                "extensionProviders: [{name: a, prometheus: {}}]",
            ),
            (
                "extensionProviders: [{name: a, prometheus: {}, stackdriver: {}}]",
                "warning: extensionProviders[0]: only one of stackdriver, prometheus may be set",
                "extensionProviders: [{name: a, stackdriver: {}}]",
            ),
            (
                "extensionProviders: [{prometheus: {}}]",
                "warning: extensionProviders[0].name: is not set, so nothing can use the provider",
                "extensionProviders: [{name: a, prometheus: {}}]",
            ),
            (
                "extensionProviders: [{name: a, prometheus: {}}, {name: a, stackdriver: {}}]",
                "warning: extensionProviders[1].name: \"a\" is the name of another provider as well",
                "extensionProviders: [{name: a, prometheus: {}}, {name: b, stackdriver: {}}]",
            ),
            (
                "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: a.b, port: 80, statusOnError: \"99\"}}]",
                "warning: extensionProviders[0].envoyExtAuthzHttp.statusOnError: \"99\" is not the status of an answer, 200 to 599",
                "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: a.b, port: 80, statusOnError: \"503\"}}]",
            ),
            (
                "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: a.b, port: 80, pathPrefix: a}}]",
                "warning: extensionProviders[0].envoyExtAuthzHttp.pathPrefix: must begin with '/'",
                "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: a.b, port: 80, pathPrefix: /a}}]",
            ),
        ],
    );
}

#[test]
fn mesh_networks() {
    let network = |part: &str| format!("networks: {{n: {{{part}}}}}");
    let rules = [
        (
            "endpoints: [{fromCidr: 1.2.3.4/33}]",
            "networks[n].endpoints[0].fromCidr: \"1.2.3.4/33\" is not an IP address or a CIDR block",
            "endpoints: [{fromCidr: 1.2.3.4/32}]",
        ),
        (
            "endpoints: [{fromRegistry: a_b}]",
            "networks[n].endpoints[0].fromRegistry: \"a_b\" is not the name of a registry",
            "endpoints: [{fromRegistry: Kubernetes}]",
        ),
        (
            "endpoints: [{fromRegistry: a, fromCidr: 1.2.3.4}]",
            "networks[n].endpoints[0]: only one of fromCidr, fromRegistry may be set",
            "endpoints: [{fromCidr: 1.2.3.4}]",
        ),
        (
            "gateways: [{address: 1.2.3.4}]",
            "networks[n].gateways[0].port: 0 is not a port, must be 1 to 65535",
            "gateways: [{address: 1.2.3.4, port: 15443}]",
        ),
        (
            "gateways: [{address: \"*.a\", port: 1}]",
            "networks[n].gateways[0].address: \"*.a\" is not an IP address or a host name",
            "gateways: [{address: a.b, port: 1}]",
        ),
        (
            "gateways: [{registryServiceName: a_b, port: 1}]",
            "networks[n].gateways[0].registryServiceName: \"a_b\" is not a host name: \"a_b\" is not a DNS label",
            "gateways: [{registryServiceName: a.b, port: 1}]",
        ),
    ];
    for (bad, message, good) in rules {
        check_mesh(MeshFile::Networks, &[(&network(bad), message, &network(good))]);
    }
}
