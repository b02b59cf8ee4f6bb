//! Detection of requests from this machine, for pages that are for its users only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for the addresses from which users of this machine connect. Other addresses of 127.0.0.0/8 do not
/// count: proxies connect from them for remote clients, as Istio's inbound passthrough does from 127.0.0.6.
#[must_use]
pub fn is_this_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

/// True for the name (in lower case) of a header that proxies add: the client of such a request may be
/// remote.
#[must_use]
pub fn is_forwarding_header(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-forwarded-for",
        "true-client-ip",
        "cf-connecting-ip",
    ];
    const PREFIXES: [&str; 2] = ["x-forwarded-", "x-envoy-"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_usual_loopback_addresses_are_of_this_machine() {
        for (address, is) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.6", false),
            ("127.0.0.2", false),
            ("127.255.255.254", false),
            ("::ffff:127.0.0.6", false),
            ("10.0.0.1", false),
            ("::", false),
            ("0.0.0.0", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_this_machine(address.parse().unwrap()), is, "{address}");
        }
    }

    #[test]
    fn headers_of_proxies_are_known() {
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-forwarded-client-cert",
            "forwarded",
            "via",
            "x-real-ip",
            "x-envoy-external-address",
            "x-envoy-internal",
            "x-envoy-peer-metadata",
            "x-envoy-original-dst-host",
        ] {
            assert!(is_forwarding_header(name), "{name}");
        }
        for name in ["host", "accept", "authorization", "x-request-id", "user-agent", "x-envoy"] {
            assert!(!is_forwarding_header(name), "{name}");
        }
    }
}
