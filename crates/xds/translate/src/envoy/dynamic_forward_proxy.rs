//! Dynamic forward proxies: Envoy looks up the host that a request or a TLS connection names.
//!
//! A filter looks the name up before the cluster is used, and leaves the addresses in a DNS cache that both
//! name. Envoy refuses two caches of one name with different settings.

use super::filters;
use crate::proxy::{IpFamilies, Proxy};
use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::cluster::v3::cluster::{CustomClusterType, DnsLookupFamily};
use pilotfish_proto::envoy::config::core::v3::{
    Address, SocketAddress, TypedExtensionConfig, address, socket_address,
};
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::{
    ClusterConfig, cluster_config,
};
use pilotfish_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use pilotfish_proto::envoy::extensions::filters::http::dynamic_forward_proxy::v3 as http_filter;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use pilotfish_proto::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3 as sni_filter;
use pilotfish_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Name of the cache for hosts without a service.
const UNKNOWN_HOSTS: &str = "allow_any_dfp_dns_cache";
/// Hosts in that cache at the same time: clients choose the names.
const MAX_UNKNOWN_HOSTS: u32 = 1024;
/// Address of the agent's DNS proxy, unless the proxy's metadata has another.
const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15053);

/// Settings of a DNS cache (`DnsCacheConfig`), equal in the cluster and the filters that share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DnsCache {
    name: Arc<str>,
    family: DnsLookupFamily,
    /// The DNS server; `None` for those of the machine.
    resolver: Option<SocketAddr>,
    max_hosts: Option<u32>,
}

impl DnsCache {
    /// The cache for a wildcard host with resolution `DYNAMIC_DNS`.
    pub(crate) fn of_host(host: &str, families: IpFamilies, both_redirected: bool) -> Self {
        Self {
            name: format!("{host}_dfp_dns_cache").into(),
            family: lookup_family(families, both_redirected),
            resolver: None,
            max_hosts: None,
        }
    }

    /// The cache of a proxy for hosts without a service (`ALLOW_ANY_DYNAMIC_DNS`).
    pub(crate) fn of_unknown_hosts(proxy: &Proxy) -> Self {
        Self {
            name: UNKNOWN_HOSTS.into(),
            family: lookup_family(IpFamilies::of(proxy), IpFamilies::both_redirected(proxy)),
            resolver: proxy.meta_flag("DNS_CAPTURE").then(|| agent(proxy.meta("DNS_PROXY_ADDR"))),
            max_hosts: Some(MAX_UNKNOWN_HOSTS),
        }
    }

    fn config(&self) -> DnsCacheConfig {
        DnsCacheConfig {
            name: self.name.to_string(),
            dns_lookup_family: self.family as i32,
            max_hosts: self.max_hosts,
            typed_dns_resolver_config: self.resolver.map(resolver),
            ..DnsCacheConfig::default()
        }
    }

    /// The type of the cluster with this cache. `insecure` permits TLS that does not take server name and
    /// accepted names from the host of the request.
    pub(crate) fn cluster_type(&self, insecure: bool) -> CustomClusterType {
        let config = ClusterConfig {
            allow_insecure_cluster_options: insecure,
            cluster_implementation_specifier: Some(
                cluster_config::ClusterImplementationSpecifier::DnsCacheConfig(self.config()),
            ),
            ..ClusterConfig::default()
        };
        CustomClusterType {
            name: "envoy.clusters.dynamic_forward_proxy".to_owned(),
            typed_config: config_any(&config),
        }
    }

    /// The filter that looks up the hosts of requests.
    pub(crate) fn http_filter(&self) -> HttpFilter {
        let cache = http_filter::filter_config::ImplementationSpecifier::DnsCacheConfig(self.config());
        let config = http_filter::FilterConfig {
            implementation_specifier: Some(cache),
            ..http_filter::FilterConfig::default()
        };
        filters::http("envoy.filters.http.dynamic_forward_proxy", &config)
    }

    /// The filter that looks up the server names of connections, which go to that port.
    pub(crate) fn sni_filter(&self, port: u32) -> Filter {
        let config = sni_filter::FilterConfig {
            dns_cache_config: Some(self.config()),
            port_specifier: Some(sni_filter::filter_config::PortSpecifier::PortValue(port)),
            ..sni_filter::FilterConfig::default()
        };
        filters::network("envoy.extensions.filters.network.sni_dynamic_forward_proxy", &config)
    }
}

/// Families of the addresses that are looked up: of both only if connections of both are redirected.
fn lookup_family(families: IpFamilies, both_redirected: bool) -> DnsLookupFamily {
    match families {
        IpFamilies::V6 => DnsLookupFamily::V6Only,
        IpFamilies::Dual if both_redirected => DnsLookupFamily::All,
        IpFamilies::V4 | IpFamilies::Dual => DnsLookupFamily::V4Only,
    }
}

/// Parses the address of the agent's DNS proxy, `localhost` included.
fn agent(written: &str) -> SocketAddr {
    let parsed = match written.strip_prefix("localhost:") {
        Some(port) => port.parse().map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)).ok(),
        None => written.parse().ok(),
    };
    parsed.unwrap_or(AGENT)
}

fn resolver(server: SocketAddr) -> TypedExtensionConfig {
    let server = SocketAddress {
        address: server.ip().to_string(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(server.port().into())),
        ..SocketAddress::default()
    };
    let config = CaresDnsResolverConfig {
        resolvers: vec![Address { address: Some(address::Address::SocketAddress(server)) }],
        ..CaresDnsResolverConfig::default()
    };
    TypedExtensionConfig {
        name: "envoy.network.dns_resolver.cares".to_owned(),
        typed_config: config_any(&config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_family_are_looked_up_unless_both_are_redirected() {
        for (families, both_redirected, want) in [
            (IpFamilies::V4, false, DnsLookupFamily::V4Only),
            (IpFamilies::V6, false, DnsLookupFamily::V6Only),
            (IpFamilies::Dual, false, DnsLookupFamily::V4Only),
            (IpFamilies::Dual, true, DnsLookupFamily::All),
        ] {
            assert_eq!(lookup_family(families, both_redirected), want, "{families:?} {both_redirected}");
        }
    }

    #[test]
    fn the_dns_proxy_of_the_agent_is_at_the_address_in_the_metadata() {
        for (written, want) in [
            ("localhost:15053", "127.0.0.1:15053"),
            ("localhost:5353", "127.0.0.1:5353"),
            ("127.0.0.5:53", "127.0.0.5:53"),
            ("[::1]:15053", "[::1]:15053"),
            ("", "127.0.0.1:15053"),
            ("localhost", "127.0.0.1:15053"),
            ("127.0.0.1", "127.0.0.1:15053"),
            ("dns.example:53", "127.0.0.1:15053"),
            ("localhost:port", "127.0.0.1:15053"),
        ] {
            assert_eq!(agent(written).to_string(), want, "{written:?}");
        }
    }
}
