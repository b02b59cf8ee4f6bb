//! Routes of TCP and TLS in a VirtualService, and routes that others hide.

use super::virtual_service::{API, check_specs};
use super::{check, spec_of};

#[test]
fn tcp_and_tls_routes() {
    const TO: &str = "route: [{destination: {host: b}}]";
    let tcp =
        |fields: &str| spec_of(API, "VirtualService")(&format!("hosts: [a], tcp: [{{{fields}, {TO}}}]"));
    check(
        tcp,
        &[
            (
                "match: [{destinationSubnets: [10.0.0.0/33]}]",
                "spec.tcp[0].match[0].destinationSubnets[0]: \"10.0.0.0/33\" is not an IP address or a CIDR block",
                "match: [{destinationSubnets: [10.0.0.0/8, \"2001:db8::/32\", 1.2.3.4]}]",
            ),
            (
                "match: [{sourceSubnet: a}]",
                "spec.tcp[0].match[0].sourceSubnet: \"a\" is not an IP address or a CIDR block",
                "match: [{sourceSubnet: 10.0.0.0/8}]",
            ),
            (
                "match: [{port: 70000}]",
                "spec.tcp[0].match[0].port: 70000 is not a port, must be 1 to 65535",
                "match: [{port: 70}]",
            ),
        ],
    );
    check_specs(&[(
        "hosts: [a], tcp: [{match: [{port: 80}]}]",
        "spec.tcp[0].route: must be set",
        &format!("hosts: [a], tcp: [{{{TO}}}]"),
    )]);
    let tls = |fields: &str| {
        spec_of(API, "VirtualService")(&format!("hosts: [\"*.a.com\"], tls: [{{{fields}, {TO}}}]"))
    };
    const GOOD: &str = "match: [{sniHosts: [x.a.com, \"*.b.a.com\"]}]";
    check(
        tls,
        &[
            ("match: []", "spec.tls[0].match: a route of TLS connections needs a match with sniHosts", GOOD),
            ("match: [{port: 443}]", "spec.tls[0].match[0].sniHosts: must be set", GOOD),
            (
                "match: [{sniHosts: [a_b]}]",
                "spec.tls[0].match[0].sniHosts[0]: \"a_b\" is not a host name: \"a_b\" is not a DNS label or a wildcard",
                GOOD,
            ),
            (
                "match: [{sniHosts: [b.com]}]",
                "warning: spec.tls[0].match[0].sniHosts[0]: \"b.com\" is not covered by the hosts of the VirtualService",
                GOOD,
            ),
            (
                "match: [{sniHosts: [1.2.3.4]}]",
                "warning: spec.tls[0].match[0].sniHosts[0]: is an IP address, which few clients send as SNI",
                GOOD,
            ),
        ],
    );
    check_specs(&[(
        "hosts: [a], gateways: [gw], tls: [{match: [{sniHosts: [outbound_.x_._.a]}], route: [{destination: {host: b}}]}]",
        "spec.tls[0].match[0].sniHosts[0]: \"outbound_.x_._.a\" is not a host name: \"outbound_\" is not a DNS label or a \
         wildcard",
        "hosts: [outbound_.80_._.a.b], gateways: [gw], tls: [{match: [{sniHosts: [outbound_.80_._.a.b]}], route: \
         [{destination: {host: b}}]}]",
    )]);
}
