//! Networks of clients, for limits by address.

use std::net::{IpAddr, Ipv6Addr};

/// The /64 prefix of an IPv6 address, which is assigned to one site.
const SITE: u128 = !0 << 64;

/// Returns the address range of one client: an IPv4 address, or the /64 network of an IPv6 address. An
/// IPv4-mapped IPv6 address counts as IPv4.
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
