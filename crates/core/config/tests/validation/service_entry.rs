//! ServiceEntry and WorkloadEntry.

use super::{check, spec_of};

const API: &str = "networking.istio.io/v1";

#[test]
fn service_entries() {
    check(
        spec_of(API, "ServiceEntry"),
        &[
            ("resolution: NONE", "spec.hosts: must be set", "hosts: [a.b]"),
            ("hosts: [\"*\"]", "spec.hosts[0]: \"*\" cannot be the host of a service", "hosts: [\"*.b\"]"),
            (
                "hosts: [\"a*\"]",
                "spec.hosts[0]: \"a*\" is not a host name: \"a*\" is not a DNS label or a wildcard",
                "hosts: [a]",
            ),
            (
                "hosts: [\"*a.b\"]",
                "warning: spec.hosts[0]: \"*a.b\" has a wildcard for a part of a label",
                "hosts: [\"*.a.b\"]",
            ),
            (
                "hosts: [a.b], addresses: [1.2.3.4/99]",
                "spec.addresses[0]: \"1.2.3.4/99\" is not an IP address or a CIDR block",
                "hosts: [a.b], addresses: [1.2.3.0/24, 1.2.3.4]",
            ),
            (
                "hosts: [a.b], addresses: [1.2.3.0/24], resolution: DNS",
                "spec.addresses[0]: a CIDR block is only allowed for resolution NONE and STATIC",
                "hosts: [a.b], addresses: [1.2.3.0/24], resolution: STATIC, endpoints: [{address: 1.1.1.1}]",
            ),
            (
                "hosts: [a.b], ports: [{number: 1, name: x}, {number: 2, name: x}]",
                "spec.ports[1].name: is the same as that of item 0, must be unique",
                "hosts: [a.b], ports: [{number: 1, name: x, targetPort: 8}, {number: 2, name: y, targetPort: 8}]",
            ),
            (
                "hosts: [a.b], ports: [{number: 1, name: x}, {number: 1, name: y}]",
                "spec.ports[1].number: is the same as that of item 0, must be unique",
                "hosts: [a.b], ports: [{number: 1, name: x}]",
            ),
            (
                "hosts: [a.b], ports: [{number: 99999, name: x}]",
                "spec.ports[0].number: 99999 is not a port, must be 1 to 65535",
                "hosts: [a.b], ports: [{number: 9999, name: x}]",
            ),
            (
                "hosts: [a.b], ports: [{number: 1, name: x, targetPort: 65536}]",
                "spec.ports[0].targetPort: 65536 is not a port, must be 1 to 65535",
                "hosts: [a.b], ports: [{number: 1, name: x, targetPort: 65535}]",
            ),
            (
                "hosts: [a.b], ports: [{number: 1}]",
                "spec.ports[0].name: must be set",
                "hosts: [a.b], ports: [{number: 1, name: X}]",
            ),
            (
                "hosts: [a.b], ports: [{number: 1, name: x, protocol: FTP}]",
                "warning: spec.ports[0].protocol: \"FTP\" is unknown to this version: it counts as not set (did you mean \"HTTP\"?)",
                "hosts: [a.b], ports: [{number: 1, name: x, protocol: http2}]",
            ),
            (
                "hosts: [a.b], resolution: STATIC, workloadSelector: {labels: {a: b}}, endpoints: [{address: 1.1.1.1}]",
                "spec.workloadSelector: must not be set beside endpoints",
                "hosts: [a.b], resolution: STATIC, workloadSelector: {labels: {a: b}}",
            ),
            (
                "hosts: [a.b], resolution: STATIC, workloadSelector: {labels: {\"\": b}}",
                "spec.workloadSelector.labels: the key of a label is empty",
                "hosts: [a.b], resolution: STATIC, workloadSelector: {labels: {a: \"\"}}",
            ),
            (
                "hosts: [a.b], workloadSelector: {labels: {a: b}}",
                "warning: spec.workloadSelector: has an effect with resolution STATIC only",
                "hosts: [a.b]",
            ),
            (
                "hosts: [a.b], endpoints: [{address: 1.1.1.1}]",
                "spec.endpoints: must not be set for resolution NONE",
                "hosts: [a.b], resolution: STATIC",
            ),
            (
                "hosts: [a.b], resolution: STATIC, endpoints: [{address: x.y}]",
                "spec.endpoints[0].address: \"x.y\" is not an IP address, as resolution STATIC needs",
                "hosts: [a.b], resolution: STATIC, endpoints: [{address: \"::1\"}]",
            ),
            (
                "hosts: [a.b, \"*.b\"], resolution: DNS",
                "warning: spec.hosts[1]: \"*.b\" cannot be looked up: nothing is reached unless endpoints are set",
                "hosts: [\"*.b\"], resolution: DNS, endpoints: [{address: a.b}]",
            ),
            (
                "hosts: [a.b], resolution: DNS_ROUND_ROBIN, endpoints: [{address: x.y}, {address: y.z}]",
                "spec.endpoints: resolution DNS_ROUND_ROBIN allows one endpoint at most",
                "hosts: [a.b], resolution: DNS_ROUND_ROBIN, endpoints: [{address: x.y}]",
            ),
            (
                "hosts: [a.b], resolution: DNS, endpoints: [{address: \"unix:///a\"}]",
                "spec.endpoints[0].address: \"unix:///a\" is not an IP address or a host name",
                "hosts: [a.b], resolution: DNS, endpoints: [{address: 1.1.1.1}]",
            ),
            (
                "hosts: [a.b], resolution: DYNAMIC_DNS",
                "spec.hosts[0]: must begin with '*' for resolution DYNAMIC_DNS",
                "hosts: [\"*.b\"], resolution: DYNAMIC_DNS, ports: [{number: 443, name: tls, protocol: TLS}]",
            ),
            (
                "hosts: [\"*.b\"], resolution: DYNAMIC_DNS, addresses: [1.1.1.1]",
                "warning: spec.addresses: are not needed for resolution DYNAMIC_DNS, Istio refuses the object",
                "hosts: [\"*.b\"], resolution: DYNAMIC_DNS",
            ),
            (
                "hosts: [\"*.b\"], resolution: DYNAMIC_DNS, ports: [{number: 443, name: x, protocol: TCP}]",
                "warning: spec.ports[0].protocol: is not HTTP, HTTP2, GRPC or TLS, as resolution DYNAMIC_DNS needs: connections are closed, Istio refuses the object",
                "hosts: [\"*.b\"], resolution: DYNAMIC_DNS, ports: [{number: 443, name: x, protocol: GRPC}]",
            ),
            (
                "hosts: [\"*.b\"], resolution: DNS_ROUND_ROBIN",
                "warning: spec.hosts[0]: \"*.b\" cannot be looked up: nothing is reached unless endpoints are set",
                "hosts: [\"*.b\"], resolution: STATIC",
            ),
            (
                "hosts: [a.b, b.c], resolution: STATIC, ports: [{number: 1, name: x, protocol: TCP}]",
                "warning: spec.ports[0].protocol: several hosts cannot be told apart on a port that is neither HTTP nor TLS",
                "hosts: [a.b, b.c], resolution: STATIC, ports: [{number: 1, name: x, protocol: TLS}]",
            ),
            (
                "hosts: [a.b], exportTo: [\"~\", x]",
                "warning: spec.exportTo[0]: \"~\" is meant to be alone",
                "hosts: [a.b], exportTo: [\"~\"]",
            ),
        ],
    );
}

#[test]
fn workloads() {
    check(
        spec_of(API, "WorkloadEntry"),
        &[
            (
                "labels: {}",
                "spec.address: must be set, or network for one behind a gateway",
                "address: 1.1.1.1",
            ),
            (
                "network: n",
                "warning: spec.address: is not set, the gateway of the network is used",
                "network: n, address: a.b",
            ),
            ("address: a_b", "spec.address: \"a_b\" is not an IP address or a host name", "address: a-b"),
            (
                "address: \"a.b:80\"",
                "spec.address: \"a.b:80\" is not an IP address or a host name",
                "address: \"::1\"",
            ),
            (
                "address: \"unix://relative\"",
                "spec.address: \"relative\" is not the absolute path of a socket",
                "address: \"unix:///absolute\"",
            ),
            (
                "address: \"unix:///dir/\"",
                "spec.address: \"/dir/\" is not the absolute path of a socket",
                "address: \"unix://@abstract\"",
            ),
            (
                "address: \"unix://@a\", ports: {http: 80}",
                "spec.ports: must not be set for a Unix domain socket",
                "address: 1.1.1.1, ports: {http: 80}",
            ),
            (
                "address: 1.1.1.1, ports: {http: 99999}",
                "spec.ports[http]: 99999 is not a port, must be 1 to 65535",
                "address: 1.1.1.1, ports: {http: 9999}",
            ),
            (
                "address: 1.1.1.1, ports: {\"@\": 80}",
                "spec.ports[@]: \"@\" is not a port name: 1 to 63 letters, digits and '-', not '-' at the ends",
                "address: 1.1.1.1, ports: {a: 80}",
            ),
            (
                "address: 1.1.1.1, labels: {\"a/b/c\": d}",
                "spec.labels[a/b/c]: \"a/b/c\" is not the key of a label",
                "address: 1.1.1.1, labels: {a/b: d}",
            ),
        ],
    );
    let entry = "hosts: [a.b], resolution: STATIC, ports: [{number: 1, name: x}]";
    let with =
        |endpoint: &str| spec_of(API, "ServiceEntry")(&format!("{entry}, endpoints: [{{{endpoint}}}]"));
    check(
        with,
        &[(
            "address: 1.1.1.1, ports: {y: 80}",
            "warning: spec.endpoints[0].ports[y]: has no effect, the ServiceEntry has no port of this name",
            "address: 1.1.1.1, ports: {x: 80}",
        )],
    );
    check(
        spec_of(API, "ServiceEntry"),
        &[(
            "hosts: [a.b], resolution: STATIC, endpoints: [{address: \"unix:///a\"}]",
            "warning: spec.endpoints[0].address: a Unix domain socket is meant for a ServiceEntry with one port",
            "hosts: [a.b], resolution: STATIC, ports: [{number: 1, name: x}], endpoints: [{address: \"unix:///a\"}]",
        )],
    );
}
