//! Addresses of a service that a proxy connects to.

use crate::engine::{Cx, Query};
use crate::proxy::{IpFamilies, Proxy};
use pilotfish_model::{ClusterId, Resolution, Service};
use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// Automatically allocated addresses that a proxy resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Automatic {
    /// None: it does not answer DNS queries of its workload.
    No,
    /// Addresses that are stored in the status of ServiceEntries (`DNS_CAPTURE`).
    Stored,
    /// Also those that are computed from names (`DNS_AUTO_ALLOCATE` as well).
    All,
}

impl Automatic {
    fn of(proxy: &Proxy) -> Self {
        match (proxy.meta_flag("DNS_CAPTURE"), proxy.meta_flag("DNS_AUTO_ALLOCATE")) {
            (false, _) => Self::No,
            (true, false) => Self::Stored,
            (true, true) => Self::All,
        }
    }
}

/// Properties of a proxy on which the addresses of services depend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AddressView {
    /// Its cluster, in which services have other addresses; `None` if no service has an address of that
    /// cluster.
    pub cluster: Option<ClusterId>,
    pub families: IpFamilies,
    /// True if connections to addresses of both families are redirected to it.
    pub both_redirected: bool,
    pub automatic: Automatic,
}

impl AddressView {
    /// The view of a proxy.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        Self {
            cluster: cx.get(&ClustersWithAddresses).get(&proxy.cluster).cloned(),
            families: IpFamilies::of(proxy),
            both_redirected: IpFamilies::both_redirected(proxy),
            automatic: Automatic::of(proxy),
        }
    }

    /// Returns true if the proxy resolves the automatically allocated addresses of this service.
    fn resolves(&self, service: &Service) -> bool {
        match self.automatic {
            Automatic::No => false,
            Automatic::Stored => service.auto_addresses_stored,
            Automatic::All => true,
        }
    }

    /// The addresses that a service has in its cluster.
    fn own<'a>(&self, service: &'a Service) -> &'a [Arc<str>] {
        self.cluster.as_ref().and_then(|cluster| service.addresses.get(cluster)).map_or(&[], |list| list)
    }

    /// The address of a service: an IP address, a range, or [`Service::UNSPECIFIED`].
    #[must_use]
    pub(crate) fn primary(&self, service: &Service) -> Arc<str> {
        if let Some(address) = self.own(service).iter().find(|address| self.families.has(address)) {
            return address.clone();
        }
        if self.resolves(service) && &*service.default_address == Service::UNSPECIFIED {
            let [v4, v6] = &service.auto_addresses;
            if self.families != IpFamilies::V6 && !v4.is_empty() {
                return v4.clone();
            }
            if self.families != IpFamilies::V4 && !v6.is_empty() {
                return v6.clone();
            }
        }
        service.default_address.clone()
    }

    /// Returns the proxy's cluster if the Service is headless there and has an address in another cluster:
    /// its names resolve to its endpoints.
    #[must_use]
    pub(crate) fn headless_in(&self, service: &Service) -> Option<&ClusterId> {
        let has_address = service.resolution == Resolution::ClientSideLB
            && service
                .addresses
                .values()
                .flat_map(|list| list.iter())
                .any(|own| &**own != Service::UNSPECIFIED);
        let is_unspecified = self.own(service).iter().any(|address| &**address == Service::UNSPECIFIED);
        self.cluster.as_ref().filter(|_| has_address && is_unspecified)
    }

    /// All addresses of a service: of both families where connections to both reach the proxy, else of one.
    #[must_use]
    pub(crate) fn all(&self, service: &Service) -> Vec<Arc<str>> {
        let own = self.own(service);
        let listed: Vec<Arc<str>> = if own.is_empty() && self.resolves(service) {
            service.auto_addresses.iter().filter(|address| !address.is_empty()).cloned().collect()
        } else {
            own.to_vec()
        };
        let fitting = self.fitting(&listed);
        if !fitting.is_empty() {
            return fitting;
        }
        match service.addresses.is_empty() {
            true => vec![service.default_address.clone()],
            false => self.fitting(std::slice::from_ref(&service.default_address)),
        }
    }

    /// The addresses besides the first.
    #[must_use]
    pub(crate) fn extra(&self, service: &Service) -> Vec<Arc<str>> {
        self.all(service).into_iter().skip(1).collect()
    }

    /// Returns the addresses that the proxy can use. With two families of which one is redirected, those of
    /// the first address's family.
    fn fitting(&self, addresses: &[Arc<str>]) -> Vec<Arc<str>> {
        let families = match (self.families, addresses.first()) {
            (IpFamilies::Dual, _) if self.both_redirected => IpFamilies::Dual,
            (IpFamilies::Dual, Some(first)) if is_v6(first) => IpFamilies::V6,
            (IpFamilies::Dual, Some(_)) => IpFamilies::V4,
            (families, _) => families,
        };
        addresses.iter().filter(|address| families.has(address)).cloned().collect()
    }
}

/// The clusters in which services have addresses of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClustersWithAddresses;

impl Query for ClustersWithAddresses {
    type Output = BTreeSet<ClusterId>;

    fn compute(&self, cx: &Cx<'_>) -> BTreeSet<ClusterId> {
        let mut clusters = BTreeSet::new();
        for service in cx.services().flat_map(|(_, services)| services.iter()) {
            for cluster in service.addresses.keys() {
                if !clusters.contains(cluster) {
                    clusters.insert(cluster.clone());
                }
            }
        }
        clusters
    }
}

fn is_v6(address: &str) -> bool {
    address.split('/').next().unwrap_or(address).parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 45 of Istio 1.31.
    #[test]
    fn cluster_addresses_of_both_families_count_where_both_are_redirected() {
        let (v4, v6) = ("10.0.0.1", "fd00::1");
        let of = |families, both_redirected, listed: &[&str]| {
            let cluster = Some(ClusterId::from("c"));
            let view = AddressView { cluster, families, both_redirected, automatic: Automatic::No };
            let service = crate::testing::service("a", "ns").with(|service| {
                let listed = listed.iter().map(|address| Arc::from(*address)).collect();
                service.addresses = [(ClusterId::from("c"), listed)].into();
            });
            let all = view.all(&service.0);
            assert_eq!(view.primary(&service.0), all[0]);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(IpFamilies::Dual, true, &[v4, v6]), [v4, v6]);
        assert_eq!(of(IpFamilies::Dual, true, &[v6, v4]), [v6, v4]);
        assert_eq!(of(IpFamilies::Dual, true, &[v6]), [v6]);
        assert_eq!(of(IpFamilies::Dual, false, &[v4, v6]), [v4]);
        assert_eq!(of(IpFamilies::Dual, false, &[v6, v4]), [v6]);
        assert_eq!(of(IpFamilies::V4, false, &[v6, v4]), [v4]);
        assert_eq!(of(IpFamilies::V6, false, &[v4, v6]), [v6]);
    }

    #[test]
    fn addresses_in_the_status_need_no_more_than_captured_dns() {
        let of = |automatic, auto_addresses_stored| {
            let view = AddressView {
                cluster: Some("c".into()),
                families: IpFamilies::V4,
                both_redirected: false,
                automatic,
            };
            let service = crate::testing::service("a", "ns").with(|service| {
                service.auto_addresses = ["240.240.0.1".into(), "2001:2::1".into()];
                service.auto_addresses_stored = auto_addresses_stored;
            });
            let (primary, all) = (view.primary(&service.0), view.all(&service.0));
            assert_eq!(all, std::slice::from_ref(&primary), "one family, one address");
            primary.to_string()
        };
        for (automatic, stored, expected) in [
            (Automatic::No, true, Service::UNSPECIFIED),
            (Automatic::Stored, true, "240.240.0.1"),
            (Automatic::Stored, false, Service::UNSPECIFIED),
            (Automatic::All, false, "240.240.0.1"),
            (Automatic::All, true, "240.240.0.1"),
        ] {
            assert_eq!(of(automatic, stored), expected, "{automatic:?} {stored}");
        }
    }
}
