//! Names of outbound clusters: `outbound|port|subset|host`, and `outbound_.port_.subset_.host` for clusters that are chosen
//! by SNI.

use pilotfish_model::Hostname;

/// What the name of an outbound cluster says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterName {
    /// Whether it is chosen by SNI (AUTO_PASSTHROUGH).
    pub sni_dnat: bool,
    /// The service port.
    pub port: u32,
    /// The subset; empty for all endpoints.
    pub subset: String,
    /// The service.
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
        let (port, host) = (port.parse().ok()?, Hostname::parse(host).ok()?);
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
        for wrong in
            ["", "outbound|80|a.b", "outbound|x||a.b", "inbound|80||", "outbound|80||", "BlackHoleCluster"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
