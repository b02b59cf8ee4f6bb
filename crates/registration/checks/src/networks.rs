//! Networks that health checks may connect to.

use ipnet::IpNet;
use pilotfish_registration::{SpecialAddress, destination_of};
use std::net::IpAddr;

/// Networks that health checks may connect to. By default all addresses except special ones: loopback,
/// link-local, multicast, broadcast, unspecified, and the metadata services of clouds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// If not empty, only these networks are allowed.
    only: Vec<IpNet>,
    loopback: bool,
}

impl Networks {
    /// Allows only these networks, including special addresses in them.
    #[must_use]
    pub const fn only(networks: Vec<IpNet>) -> Self {
        Self { only: networks, loopback: false }
    }

    /// Allows the default and loopback: for a Pilotfish whose registration API listens on loopback, so that
    /// all its clients are local.
    #[must_use]
    pub const fn with_loopback() -> Self {
        Self { only: Vec::new(), loopback: true }
    }

    /// Parses networks or addresses, separated by commas: `10.0.0.0/8,fd00::/8,192.0.2.1`.
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

    /// True if checks may connect to the address.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        if !self.only.is_empty() {
            // `::ffff:127.0.0.1` and `64:ff9b::7f00:1` have the same destination as `127.0.0.1`.
            let address = destination_of(address);
            return self.only.iter().any(|network| network.contains(&address));
        }
        match SpecialAddress::of(address) {
            None => true,
            Some(SpecialAddress::Loopback) => self.loopback,
            Some(_) => false,
        }
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
