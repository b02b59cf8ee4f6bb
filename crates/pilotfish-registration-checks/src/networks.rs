//! Which addresses checks may ask.

use ipnet::{IpNet, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses at which clouds tell a machine its credentials and that are not link-local: AWS over IPv6, Alibaba, Azure.
const METADATA: &[IpAddr] = &[
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Which addresses checks may ask. By default all but those that are special to the machine that asks: loopback, link-local,
/// multicast, broadcast, unspecified, and the metadata services of clouds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// These alone, where there are any.
    only: Vec<IpNet>,
    loopback: bool,
}

impl Networks {
    /// These networks alone, whatever is in them.
    #[must_use]
    pub const fn only(networks: Vec<IpNet>) -> Self {
        Self { only: networks, loopback: false }
    }

    /// The default and loopback: for a Pilotfish whose registration listens on loopback, so that all its clients are local anyway.
    #[must_use]
    pub const fn with_loopback() -> Self {
        Self { only: Vec::new(), loopback: true }
    }

    /// Reads networks or addresses, with commas between them: `10.0.0.0/8,fd00::/8,192.0.2.1`.
    ///
    /// # Errors
    /// With what is wrong, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let network = |text: &str| {
            let text = text.trim();
            let parsed: Option<IpNet> =
                text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
            parsed.ok_or_else(|| format!("{text:?} is no network such as 10.0.0.0/8"))
        };
        Ok(Self::only(text.split(',').map(network).collect::<Result<_, _>>()?))
    }

    /// Whether an address may be asked.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        // `::ffff:127.0.0.1` and `64:ff9b::7f00:1` lead to the same place as `127.0.0.1`.
        let address = behind_nat64(address.to_canonical());
        if !self.only.is_empty() {
            return self.only.iter().any(|network| network.contains(&address));
        }
        if address.is_loopback() {
            return self.loopback;
        }
        let is_special = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        !(is_special || address.is_unspecified() || address.is_multicast() || METADATA.contains(&address))
    }
}

/// The IPv4 address that an address of the well-known prefix of NAT64 (RFC 6052) leads to.
fn behind_nat64(address: IpAddr) -> IpAddr {
    const PREFIX: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
    match address {
        IpAddr::V6(v6) if PREFIX.contains(&v6) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_special_to_the_machine_are_not_asked() {
        let default = Networks::default();
        for address in ["10.0.0.1", "192.0.2.7", "2001:db8::1", "fd00::1", "64:ff9b::a00:1"] {
            assert!(default.allows(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "127.3.2.1",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
        ] {
            assert!(!default.allows(address.parse().unwrap()), "{address}");
        }
        assert!(Networks::with_loopback().allows("127.0.0.1".parse().unwrap()));
        assert!(!Networks::with_loopback().allows("169.254.169.254".parse().unwrap()));
    }

    #[test]
    fn networks_that_are_named_are_the_only_ones() {
        let networks = Networks::parse("10.0.0.0/8, 127.0.0.1,fd00::/8").unwrap();
        for (address, wanted) in [
            ("10.1.2.3", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("192.0.2.1", false),
            ("fd00::1", true),
        ] {
            assert_eq!(networks.allows(address.parse().unwrap()), wanted, "{address}");
        }
        assert_eq!(
            Networks::parse("10.0.0.0/99").unwrap_err(),
            "\"10.0.0.0/99\" is no network such as 10.0.0.0/8"
        );
        assert_eq!(Networks::parse("").unwrap_err(), "\"\" is no network such as 10.0.0.0/8");
    }
}
