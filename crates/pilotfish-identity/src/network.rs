//! Where a client is, as far as limits by address go.

use std::net::{IpAddr, Ipv6Addr};

/// The bits of an IPv6 address that are given to one site: whoever has one address of a network has all of it.
const SITE: u128 = !0 << 64;

/// What addresses share that one client may have: an IPv4 address is by itself, and one of IPv6 stands for the 64 bits that begin it. An IPv4 address
/// that is written as one of IPv6 is an IPv4 address.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & SITE).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one() {
        let of = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1");
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    }
}
