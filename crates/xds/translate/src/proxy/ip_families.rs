//! IP families of a proxy, and its wildcard and loopback addresses.

use super::Proxy;
use std::net::IpAddr;

/// The IP families of a proxy's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IpFamilies {
    /// IPv4 alone; also for a proxy without any address.
    #[default]
    V4,
    V6,
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

    /// Returns true if redirected connections of both families reach the proxy. With istiod they do if its
    /// `ISTIO_DUAL_STACK` is set; here the proxy's metadata asks for it (`DUAL_STACK`), as the metadata of
    /// injected proxies does.
    #[must_use]
    pub(crate) fn both_redirected(proxy: &Proxy) -> bool {
        Self::of(proxy) == Self::Dual && proxy.meta_flag("DUAL_STACK")
    }

    /// Returns the wildcard addresses, the primary one first.
    #[must_use]
    pub(crate) fn wildcards(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["0.0.0.0"],
            Self::V6 => &["::"],
            Self::Dual => &["0.0.0.0", "::"],
        }
    }

    /// Returns the loopback addresses, the primary one first.
    #[must_use]
    pub(crate) fn loopbacks(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["127.0.0.1"],
            Self::V6 => &["::1"],
            Self::Dual => &["127.0.0.1", "::1"],
        }
    }

    /// Returns true if an address or range is of these families; host names are of none.
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
