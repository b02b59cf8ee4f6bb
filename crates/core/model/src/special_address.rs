//! Addresses that do not identify one machine to others.
//!
//! If a service had such an address, clients, gateways and health checks would connect to themselves, to
//! their neighbours, or to cloud services that trust the machine they run on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Cloud services for the machine itself, besides the link-local ones: Alibaba, Azure, Oracle.
const CLOUD_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
/// Cloud services over IPv6: AWS has metadata, DNS, time and Pod identities below `fd00:ec2::/32`, Google
/// metadata below `fd20:ce::/64`.
const CLOUD_V6: [(u128, u32); 2] = [(0xfd00_0ec2_u128 << 96, 32), (0xfd20_00ce_u128 << 96, 64)];

/// Reason why an address does not identify one machine to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialAddress {
    /// An address of the machine itself.
    Loopback,
    /// The network segment, and the metadata service of most clouds (169.254.169.254).
    LinkLocal,
    /// Cloud services for the machine itself, at other addresses.
    Cloud,
    /// A multicast group of machines.
    Multicast,
    /// All machines of the segment.
    Broadcast,
    /// No machine: `::` and 0.0.0.0/8.
    Unspecified,
}

impl SpecialAddress {
    /// Reason why the address is special; `None` for one that a machine can have. IPv6 addresses that lead to
    /// an IPv4 address count as that one.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => Self::of_v6(v6),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        let kinds = [
            (address.octets()[0] == 0, Self::Unspecified),
            (address.is_loopback(), Self::Loopback),
            (address.is_link_local(), Self::LinkLocal),
            (address.is_multicast(), Self::Multicast),
            (address.is_broadcast(), Self::Broadcast),
            (CLOUD_V4.contains(&address), Self::Cloud),
        ];
        kinds.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        let bits = address.to_bits();
        let in_cloud = CLOUD_V6.iter().any(|(prefix, length)| (bits ^ prefix) >> (128 - length) == 0);
        let kinds = [
            (address.is_unspecified(), Self::Unspecified),
            (address.is_loopback(), Self::Loopback),
            (address.is_unicast_link_local(), Self::LinkLocal),
            (address.is_multicast(), Self::Multicast),
            (in_cloud, Self::Cloud),
        ];
        let own = kinds.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind);
        own.or_else(|| embedded_v4(address).and_then(Self::of_v4)).or_else(|| of_local_nat64(address))
    }
}

/// Address that a connection to this one reaches: the embedded IPv4 address of an IPv6 address, if there is
/// one.
#[must_use]
pub fn destination_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if !v6.is_loopback() && !v6.is_unspecified() => {
            embedded_v4(v6).map_or(address, IpAddr::V4)
        }
        other => other,
    }
}

/// IPv4 address that an IPv6 address leads to.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let [a, b, c, ..] = address.segments();
    let v4 =
        |shift: u32| Some(Ipv4Addr::from_bits(u32::try_from((bits >> shift) & 0xffff_ffff).unwrap_or(0)));
    match (bits >> 96, bits >> 32) {
        // Mapped (::ffff:0:0/96), translated (::ffff:0:0:0/96, RFC 7915) and compatible (::/96).
        (_, 0xffff | 0xffff_0000 | 0) => v4(0),
        // NAT64 with its well-known prefix (64:ff9b::/96, RFC 6052).
        (_, high) if high == 0x0064_ff9b << 64 => v4(0),
        // NAT64 with prefixes of the site's own (64:ff9b:1::/48, RFC 8215).
        _ if (a, b, c) == (0x64, 0xff9b, 1) => v4(0),
        // 6to4 (2002::/16).
        _ if a == 0x2002 => v4(80),
        // Teredo (2001::/32): the client's address, inverted.
        (0x2001_0000, _) => v4(0).map(|client| Ipv4Addr::from_bits(!client.to_bits())),
        _ => None,
    }
}

/// Checks an address below 64:ff9b:1::/48 for the shorter prefixes of RFC 6052, which place the IPv4 address
/// around the bits 64 to 71. A prefix of 96 bits has zeros there, which match no network.
fn of_local_nat64(address: Ipv6Addr) -> Option<SpecialAddress> {
    let [0x00, 0x64, 0xff, 0x9b, 0x00, 0x01, a, b, _, c, d, e, f, ..] = address.octets() else { return None };
    let shorter = [[a, b, c, d], [b, c, d, e], [c, d, e, f]];
    let mut kinds = shorter.into_iter().filter_map(|octets| SpecialAddress::of_v4(octets.into()));
    kinds.find(|kind| *kind != SpecialAddress::Unspecified)
}

impl fmt::Display for SpecialAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Cloud => "an address of clouds' own services",
            Self::Multicast => "a multicast address",
            Self::Broadcast | Self::Unspecified => "no address of one machine",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<SpecialAddress> {
        SpecialAddress::of(text.parse().unwrap())
    }

    const SPECIAL: [(&str, SpecialAddress); 16] = [
        ("127.0.0.1", SpecialAddress::Loopback),
        ("127.0.0.6", SpecialAddress::Loopback),
        ("127.255.255.254", SpecialAddress::Loopback),
        ("169.254.169.254", SpecialAddress::LinkLocal),
        ("169.254.170.2", SpecialAddress::LinkLocal),
        ("169.254.0.1", SpecialAddress::LinkLocal),
        ("224.0.0.1", SpecialAddress::Multicast),
        ("239.255.255.250", SpecialAddress::Multicast),
        ("255.255.255.255", SpecialAddress::Broadcast),
        ("0.0.0.0", SpecialAddress::Unspecified),
        ("0.0.0.1", SpecialAddress::Unspecified),
        ("0.1.2.3", SpecialAddress::Unspecified),
        ("100.100.100.200", SpecialAddress::Cloud),
        ("168.63.129.16", SpecialAddress::Cloud),
        ("192.0.0.192", SpecialAddress::Cloud),
        ("0.255.255.255", SpecialAddress::Unspecified),
    ];

    #[test]
    fn special_addresses_of_ipv4_are_special_in_every_notation_of_ipv6() {
        for (text, kind) in SPECIAL {
            assert_eq!(of(text), Some(kind), "{text}");
            let v4: Ipv4Addr = text.parse().unwrap();
            let [a, b, c, d] = v4.octets().map(u128::from);
            let low = u128::from(v4.to_bits());
            let prefix = |high: u128| (high << 96) | low;
            let local = 0x0064_ff9b_0001_u128 << 80;
            let forms = [
                0xffff_0000_0000 | low,
                0xffff_0000_0000_0000 | low,
                prefix(0x0064_ff9b),
                local | low,
                local | (0xabcd << 64) | low,
                (0x2002_u128 << 112) | (low << 80) | 1,
                (0x2001_u128 << 112) | u128::from(!v4.to_bits()),
            ];
            for form in forms.map(Ipv6Addr::from_bits) {
                assert_eq!(SpecialAddress::of(form.into()), Some(kind), "{text} as {form}");
                assert_eq!(destination_of(form.into()), IpAddr::V4(v4), "{form}");
            }
            // Around the reserved bits 64 to 71 of RFC 6052; no network can be told from zeros.
            if kind != SpecialAddress::Unspecified {
                let shorter = [
                    local | (a << 72) | (b << 64) | (c << 48) | (d << 40),
                    local | (a << 64) | (b << 48) | (c << 40) | (d << 32),
                    local | (a << 48) | (b << 40) | (c << 32) | (d << 24),
                ];
                for form in shorter.map(Ipv6Addr::from_bits) {
                    assert!(SpecialAddress::of(form.into()).is_some(), "{text} as {form}");
                }
            }
        }
    }

    #[test]
    fn special_addresses_of_ipv6() {
        for (text, kind) in [
            ("::1", SpecialAddress::Loopback),
            ("::127.0.0.1", SpecialAddress::Loopback),
            ("::", SpecialAddress::Unspecified),
            ("fe80::1", SpecialAddress::LinkLocal),
            ("febf:ffff::1", SpecialAddress::LinkLocal),
            ("ff02::1", SpecialAddress::Multicast),
            ("ff0e::101", SpecialAddress::Multicast),
            ("fd00:ec2::254", SpecialAddress::Cloud),
            ("fd00:ec2::23", SpecialAddress::Cloud),
            ("fd00:ec2:0:0:1::1", SpecialAddress::Cloud),
            ("fd20:ce::254", SpecialAddress::Cloud),
        ] {
            assert_eq!(of(text), Some(kind), "{text}");
        }
    }

    #[test]
    fn addresses_of_machines_are_not_special() {
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.2.7",
            "100.64.0.1",
            "203.0.113.1",
            "240.0.0.1",
            "1.0.0.0",
            "2001:db8::1",
            "2600:1f18::1",
            "fd00::1",
            "fd00:ec3::254",
            "fd20:cf::254",
            "fec0::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "64:ff9b:1:abcd::a00:1",
            "2002:a00:1::1",
            "2002:c000:0201::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        let same: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(destination_of(same), same);
        assert_eq!(destination_of("::1".parse().unwrap()), "::1".parse::<IpAddr>().unwrap());
    }
}
