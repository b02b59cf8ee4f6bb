//! DestinationRule.

use super::{check, spec_of};

const API: &str = "networking.istio.io/v1";

#[test]
fn destination_rules() {
    check(
        spec_of(API, "DestinationRule"),
        &[
            ("subsets: []", "spec.host: must be set", "host: a"),
            (
                "host: a_b",
                "spec.host: \"a_b\" is not a host name: \"a_b\" is not a DNS label or a wildcard",
                "host: \"*.a.com\"",
            ),
            (
                "host: a, subsets: [{name: x}, {name: x}]",
                "spec.subsets[1].name: is the same as that of item 0, must be unique",
                "host: a, subsets: [{name: x}, {name: y}]",
            ),
            (
                "host: a, subsets: [{labels: {v: v1}}]",
                "spec.subsets[0].name: must be set",
                "host: a, subsets: [{name: x}]",
            ),
            (
                "host: a, subsets: [{name: x, labels: {v: \"a b\"}}]",
                "spec.subsets[0].labels[v]: \"a b\" is not the value of a label",
                "host: a, subsets: [{name: x, labels: {v: a.b}}]",
            ),
            (
                "host: a, workloadSelector: {matchLabels: {a: \"b*\"}}",
                "spec.workloadSelector.matchLabels[a]: wildcards are not supported in selectors",
                "host: a, workloadSelector: {matchLabels: {a: b}}",
            ),
            (
                "host: a, workloadSelector: {matchLabels: {a: b}}, exportTo: [team]",
                "warning: spec.exportTo: has no effect, a workloadSelector is for the own namespace",
                "host: a, workloadSelector: {matchLabels: {a: b}}, exportTo: [shop]",
            ),
            (
                "host: a, workloadSelector: {}",
                "warning: spec.workloadSelector: has no labels, so it selects every workload of the namespace",
                "host: a",
            ),
        ],
    );
}

#[test]
fn traffic_policies() {
    let of = |policy: &str| spec_of(API, "DestinationRule")(&format!("host: a, trafficPolicy: {{{policy}}}"));
    const GOOD: &str = "loadBalancer: {simple: RANDOM}";
    check(
        of,
        &[
            ("", "warning: spec.trafficPolicy: is empty", GOOD),
            (
                "portLevelSettings: [{port: {number: 80}}]",
                "warning: spec.trafficPolicy.portLevelSettings[0]: is empty, set one of loadBalancer, connectionPool, \
             outlierDetection and tls",
                "portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}]",
            ),
            (
                "portLevelSettings: [{tls: {mode: SIMPLE}}]",
                "spec.trafficPolicy.portLevelSettings[0].port: must be set",
                "portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}]",
            ),
            (
                "portLevelSettings: [{port: {number: 80}, tls: {}}, {port: {number: 80}, tls: {}}]",
                "warning: spec.trafficPolicy.portLevelSettings[1].port.number: is the same as that of item 0, only one has an effect",
                "portLevelSettings: [{port: {number: 80}, tls: {}}, {port: {number: 81}, tls: {}}]",
            ),
            (
                "tunnel: {protocol: GET, targetHost: a.b, targetPort: 80}",
                "spec.trafficPolicy.tunnel.protocol: \"GET\" is not CONNECT or POST",
                "tunnel: {protocol: CONNECT, targetHost: a.b, targetPort: 80}",
            ),
            (
                "tunnel: {targetHost: \"*.b\", targetPort: 80}",
                "spec.trafficPolicy.tunnel.targetHost: \"*.b\" is not an IP address or a host name",
                "tunnel: {targetHost: 1.2.3.4, targetPort: 80}",
            ),
            (
                "tunnel: {targetHost: a.b}",
                "spec.trafficPolicy.tunnel.targetPort: 0 is not a port, must be 1 to 65535",
                "tunnel: {targetHost: a.b, targetPort: 80}",
            ),
            (
                "tunnel: {targetHost: a.b, targetPort: 80}, proxyProtocol: {}",
                "warning: spec.trafficPolicy.proxyProtocol: is not meant to be set beside tunnel",
                "proxyProtocol: {version: V2}",
            ),
            (
                "retryBudget: {percent: 101}",
                "spec.trafficPolicy.retryBudget.percent: 101 is not a percentage, must be 0 to 100",
                "retryBudget: {percent: 20}",
            ),
            (
                "connectionPool: {}",
                "warning: spec.trafficPolicy.connectionPool: is empty, set one of tcp and http",
                "connectionPool: {tcp: {maxConnections: 1}}",
            ),
            (
                "connectionPool: {tcp: {maxConnections: -1}}",
                "spec.trafficPolicy.connectionPool.tcp.maxConnections: -1 is negative",
                "connectionPool: {tcp: {idleTimeout: 0s}}",
            ),
            (
                "connectionPool: {tcp: {connectTimeout: 0s}}",
                "spec.trafficPolicy.connectionPool.tcp.connectTimeout: must be at least 1ms",
                "connectionPool: {tcp: {connectTimeout: 1s}}",
            ),
            (
                "connectionPool: {tcp: {tcpKeepalive: {time: 1us}}}",
                "spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.time: must be at least 1ms",
                "connectionPool: {tcp: {tcpKeepalive: {time: 1s}}}",
            ),
            (
                "connectionPool: {http: {http2MaxRequests: -1}}",
                "spec.trafficPolicy.connectionPool.http.http2MaxRequests: -1 is negative",
                "connectionPool: {http: {http2MaxRequests: 1}}",
            ),
            (
                "connectionPool: {http: {useClientProtocol: true, h2UpgradePolicy: UPGRADE}}",
                "warning: spec.trafficPolicy.connectionPool.http.useClientProtocol: is not meant to be set beside h2UpgradePolicy \
             UPGRADE",
                "connectionPool: {http: {useClientProtocol: true}}",
            ),
            (
                "outlierDetection: {failurePercentageThreshold: 101}",
                "spec.trafficPolicy.outlierDetection.failurePercentageThreshold: 101 is not a percentage, must be 0 to 100",
                "outlierDetection: {failurePercentageThreshold: 85}",
            ),
            (
                "outlierDetection: {maxEjectionPercent: 101}",
                "spec.trafficPolicy.outlierDetection.maxEjectionPercent: 101 is not a percentage, must be 0 to 100",
                "outlierDetection: {maxEjectionPercent: 100}",
            ),
            (
                "outlierDetection: {interval: 0s}",
                "spec.trafficPolicy.outlierDetection.interval: must be at least 1ms",
                "outlierDetection: {interval: 1s}",
            ),
            (
                "outlierDetection: {consecutiveErrors: 1}",
                "warning: spec.trafficPolicy.outlierDetection.consecutiveErrors: is no longer used, set consecutiveGatewayErrors or \
             consecutive5xxErrors",
                "outlierDetection: {consecutive5xxErrors: 1}",
            ),
            (
                "outlierDetection: {consecutiveLocalOriginFailures: 1}",
                "warning: spec.trafficPolicy.outlierDetection.consecutiveLocalOriginFailures: has no effect without \
             splitExternalLocalOriginErrors",
                "outlierDetection: {consecutiveLocalOriginFailures: 1, splitExternalLocalOriginErrors: true}",
            ),
        ],
    );
}

#[test]
fn load_balancers() {
    let of = |balancer: &str| {
        let policy = format!("outlierDetection: {{}}, loadBalancer: {{{balancer}}}");
        spec_of(API, "DestinationRule")(&format!("host: a, trafficPolicy: {{{policy}}}"))
    };
    const AT: &str = "spec.trafficPolicy.loadBalancer";
    let at = |rest: &str| format!("{AT}.{rest}");
    let warned = |rest: &str| format!("warning: {AT}.{rest}");
    check(
        of,
        &[
            (
                "simple: RANDOM, consistentHash: {useSourceIp: true}",
                "spec.trafficPolicy.loadBalancer: only one of simple, consistentHash may be set",
                "consistentHash: {useSourceIp: true}",
            ),
            (
                "consistentHash: {useSourceIp: true, httpHeaderName: a}",
                &at("consistentHash: only one of httpHeaderName, useSourceIp may be set"),
                "consistentHash: {httpHeaderName: a}",
            ),
            (
                "consistentHash: {ringHash: {}, maglev: {}}",
                &at("consistentHash: only one of ringHash, maglev may be set"),
                "consistentHash: {ringHash: {}}",
            ),
            (
                "consistentHash: {httpCookie: {ttl: 1s}}",
                &at("consistentHash.httpCookie.name: must be set"),
                "consistentHash: {httpCookie: {name: a, ttl: 0s}}",
            ),
            (
                "consistentHash: {maglev: {tableSize: 100}}",
                &at("consistentHash.maglev.tableSize: 100 is not a prime number"),
                "consistentHash: {maglev: {tableSize: 101}}",
            ),
            (
                "consistentHash: {maglev: {tableSize: 5000011}}",
                &at("consistentHash.maglev.tableSize: 5000011 is too large, must be below 5000011"),
                "consistentHash: {maglev: {}}",
            ),
            (
                "consistentHash: {minimumRingSize: 10}",
                &warned("consistentHash.minimumRingSize: is deprecated, use ringHash.minimumRingSize"),
                "consistentHash: {ringHash: {minimumRingSize: 10}}",
            ),
            ("warmup: {minimumPercent: 5}", &at("warmup.duration: must be set"), "warmup: {duration: 1s}"),
            (
                "warmup: {duration: 1s, minimumPercent: 150}",
                &at("warmup.minimumPercent: 150 is not a percentage, must be 0 to 100"),
                "warmup: {duration: 1s, minimumPercent: 10}",
            ),
            (
                "warmup: {duration: 1s, aggression: 0}",
                &at("warmup.aggression: 0 is not above 0"),
                "warmup: {duration: 1s, aggression: 0.01}",
            ),
            (
                "localityLbSetting: {distribute: [{from: a, to: {a: 50, b: 40}}]}",
                &at("localityLbSetting.distribute[0].to: the percentages add up to 90, not to 100"),
                "localityLbSetting: {distribute: [{from: a, to: {a: 60, b: 40}}]}",
            ),
            (
                "localityLbSetting: {distribute: [{from: a, to: {a: 100, b: 0}}]}",
                &at("localityLbSetting.distribute[0].to[b]: 0 is not a percentage, must be 1 to 100"),
                "localityLbSetting: {distribute: [{from: a, to: {a: 99, \"*\": 1}}]}",
            ),
            (
                "localityLbSetting: {distribute: [{from: a, to: {b/*: 50, b/c: 50}}]}",
                &at("localityLbSetting.distribute[0].to[b/c]: \"b/c\" overlaps with another locality"),
                "localityLbSetting: {distribute: [{from: a, to: {b/c: 50, b/d/*: 50}}]}",
            ),
            (
                "localityLbSetting: {distribute: [{from: \"a*b\", to: {a: 100}}]}",
                &at(
                    "localityLbSetting.distribute[0].from: \"a*b\" is not a locality: '*' is only allowed at the end",
                ),
                "localityLbSetting: {distribute: [{from: a/*, to: {a: 100}}, {from: \"*\", to: {a: 100}}]}",
            ),
            (
                "localityLbSetting: {distribute: [{from: a//b, to: {a: 100}}]}",
                &at(
                    "localityLbSetting.distribute[0].from: \"a//b\" is not a locality: region, zone and subzone must not be empty",
                ),
                "localityLbSetting: {distribute: [{from: a/b/c, to: {a: 100}}]}",
            ),
            (
                "localityLbSetting: {failover: [{from: a, to: a}]}",
                &at("localityLbSetting.failover[0]: from and to are the same region \"a\""),
                "localityLbSetting: {failover: [{from: a, to: b}]}",
            ),
            (
                "localityLbSetting: {failover: [{from: a/b, to: c}]}",
                &at(
                    "localityLbSetting.failover[0].from: \"a/b\" is not a region, zones and wildcards are not supported here",
                ),
                "localityLbSetting: {failoverPriority: [topology.kubernetes.io/zone]}",
            ),
            (
                "localityLbSetting: {failover: [{from: a, to: b}], failoverPriority: [topology.kubernetes.io/zone=x]}",
                &at(
                    "localityLbSetting.failoverPriority[0]: \"topology.kubernetes.io/zone=x\" must not be set beside failover",
                ),
                "localityLbSetting: {failover: [{from: a, to: b}], failoverPriority: [version]}",
            ),
            (
                "localityLbSetting: {failover: [{from: a, to: b}], distribute: [{from: a, to: {a: 100}}]}",
                &warned("localityLbSetting.failover: has no effect beside distribute"),
                "localityLbSetting: {distribute: [{from: a, to: {a: 100}}]}",
            ),
        ],
    );
    check(
        spec_of(API, "DestinationRule"),
        &[(
            "host: a, trafficPolicy: {loadBalancer: {localityLbSetting: {failover: [{from: a, to: b}]}}}",
            &warned("localityLbSetting: needs outlierDetection, or no endpoint ever counts as failed"),
            "host: a, trafficPolicy: {loadBalancer: {localityLbSetting: {enabled: false}}}",
        )],
    );
}

#[test]
fn client_tls() {
    let of =
        |tls: &str| spec_of(API, "DestinationRule")(&format!("host: a, trafficPolicy: {{tls: {{{tls}}}}}"));
    const AT: &str = "warning: spec.trafficPolicy.tls";
    check(
        of,
        &[
            (
                "mode: MUTUAL, clientCertificate: /c",
                &format!("{AT}.privateKey: is not set, mode MUTUAL needs it, or credentialName instead"),
                "mode: MUTUAL, clientCertificate: /c, privateKey: /k",
            ),
            (
                "mode: SIMPLE, credentialName: a, caCertificates: /c",
                &format!("{AT}.caCertificates: has no effect beside credentialName"),
                "mode: SIMPLE, credentialName: a",
            ),
            (
                "mode: ISTIO_MUTUAL, caCertCredentialName: a",
                &format!(
                    "{AT}.caCertCredentialName: has no effect, as the mode is neither SIMPLE nor MUTUAL"
                ),
                "mode: SIMPLE, caCertCredentialName: a",
            ),
            (
                "mode: SIMPLE, insecureSkipVerify: true, subjectAltNames: [a]",
                &format!("{AT}.subjectAltNames: has no effect beside insecureSkipVerify"),
                "mode: SIMPLE, insecureSkipVerify: true",
            ),
        ],
    );
}
