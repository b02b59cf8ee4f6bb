//! Cluster names, which Envoy's statistics, SNI and many tools parse: `outbound|port|subset|host`, and
//! `outbound_.port_.subset_.host` for clusters that are chosen by SNI.

use pilotfish_model::Hostname;

/// Cluster for traffic that is dropped.
pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";
/// Cluster for traffic to its original destination.
pub(crate) const PASSTHROUGH: &str = "PassthroughCluster";
/// Cluster for requests to hosts without a service, which the proxy looks up.
pub(crate) const ALLOW_ANY_DYNAMIC_DNS: &str = "AllowAnyDynamicDNSCluster";
/// Cluster of the SDS server at a socket beside a router.
pub(crate) const EXTERNAL_SECRETS: &str = "sds-external";
/// Cluster for traffic to ports of the workload without a service.
pub(crate) const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";

/// A host that no service can have, whose clusters are without endpoints.
pub(crate) const NOWHERE: &str = "nowhere.invalid";

/// The cluster for a service port and subset: `outbound|80|v1|web.shop.svc.cluster.local`.
#[must_use]
pub(crate) fn outbound_name(port: u32, subset: &str, host: &str) -> String {
    format!("outbound|{port}|{subset}|{host}")
}

/// The DNS form of the cluster name: the SNI of mutual TLS, and the name of clusters that are chosen by SNI.
#[must_use]
pub(crate) fn sni_name(port: u32, subset: &str, host: &str) -> String {
    format!("outbound_.{port}_.{subset}_.{host}")
}

/// The cluster for a port of the workload: `inbound|8080||`.
#[must_use]
pub(crate) fn inbound_name(port: u32) -> String {
    format!("inbound|{port}||")
}

/// Parses a port in its canonical form. Others (`080`, `+80`) are rejected, because clients could invent very
/// many names for each port.
#[must_use]
pub(crate) fn port_number(text: &str) -> Option<u32> {
    let is_plain = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    text.parse().ok().filter(|_| is_plain)
}

/// The parts of the name of an outbound cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterName {
    /// True for a cluster that is chosen by SNI (AUTO_PASSTHROUGH).
    pub sni_dnat: bool,
    pub port: u32,
    /// The subset; empty for all endpoints.
    pub subset: String,
    pub host: Hostname,
}

impl ClusterName {
    /// Reads a cluster name; `None` for any other name.
    #[must_use]
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (sni_dnat, separator, rest) = match name.strip_prefix("outbound|") {
            Some(rest) => (false, "|", rest),
            None => (true, "_.", name.strip_prefix("outbound_.")?),
        };
        let mut parts = rest.splitn(3, separator);
        let (port, subset, host) = (parts.next()?, parts.next()?, parts.next()?);
        let (port, host) = (port_number(port)?, Hostname::parse(host).ok()?);
        Some(Self { sni_dnat, port, subset: subset.to_owned(), host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_both_forms() {
        let parse =
            |name| ClusterName::parse(name).map(|c| (c.sni_dnat, c.port, c.subset, c.host.to_string()));
        let some = |sni, subset: &str| Some((sni, 80, subset.to_owned(), "a.b".to_owned()));
        assert_eq!(parse("outbound|80||a.b"), some(false, ""));
        assert_eq!(parse("outbound|80|v1|a.b"), some(false, "v1"));
        assert_eq!(parse("outbound_.80_.v1_.a.b"), some(true, "v1"));
        for wrong in [
            "",
            "outbound|80|a.b",
            "outbound|x||a.b",
            "outbound|080||a.b",
            "outbound|+80||a.b",
            "inbound|80||",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        for wrong in ["outbound|80||", "BlackHoleCluster"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
