//! The IP families of a proxy, and the addresses that it binds for want of its own.

use super::Proxy;
use std::net::IpAddr;

/// The IP families of a proxy's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IpFamilies {
    /// IPv4 alone; also for a proxy without any address.
    #[default]
    V4,
    /// IPv6 alone.
    V6,
    /// Both.
    Dual,
}

impl IpFamilies {
    /// The families of a proxy's addresses.
    #[must_use]
    pub(crate) fn of(proxy: &Proxy) -> Self {
        match (proxy.ipv4(), proxy.ipv6()) {
            (true, true) => Self::Dual,
            (false, true) => Self::V6,
            _ => Self::V4,
        }
    }

    /// Whether redirected connections of both families reach a proxy. With istiod they do where its `ISTIO_DUAL_STACK` is set; here a
    /// proxy asks for it (`DUAL_STACK`), as those do that Pilotfish injects.
    #[must_use]
    pub(crate) fn both_redirected(proxy: &Proxy) -> bool {
        Self::of(proxy) == Self::Dual && proxy.meta_flag("DUAL_STACK")
    }

    /// The addresses that stand for "every address", the primary one first.
    #[must_use]
    pub(crate) fn wildcards(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["0.0.0.0"],
            Self::V6 => &["::"],
            Self::Dual => &["0.0.0.0", "::"],
        }
    }

    /// The loopback addresses, the primary one first.
    #[must_use]
    pub(crate) fn loopbacks(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["127.0.0.1"],
            Self::V6 => &["::1"],
            Self::Dual => &["127.0.0.1", "::1"],
        }
    }

    /// Whether an address or range is of these families; a name is of none.
    pub(crate) fn has(self, address: &str) -> bool {
        let text = address.split('/').next().unwrap_or(address);
        match text.parse::<IpAddr>() {
            Ok(ip) => self == Self::Dual || ip.is_ipv6() == (self == Self::V6),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IpFamilies;

    #[test]
    fn families_are_distinguished() {
        assert!(IpFamilies::V4.has("10.0.0.0/8") && !IpFamilies::V4.has("fd00::1"));
        assert!(IpFamilies::V6.has("fd00::/64") && IpFamilies::Dual.has("10.0.0.1"));
        assert!(!IpFamilies::Dual.has("not an address"));
    }
}
