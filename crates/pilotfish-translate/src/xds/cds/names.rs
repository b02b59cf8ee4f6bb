//! Names of clusters. Envoy's statistics, SNI and many tools take them apart again.

/// The cluster for a service port and subset: `outbound|80|v1|web.shop.svc.cluster.local`.
#[must_use]
pub(crate) fn outbound_name(port: u32, subset: &str, host: &str) -> String {
    format!("outbound|{port}|{subset}|{host}")
}

/// The same as a DNS name: the SNI of mutual TLS, and the name of clusters that are chosen by SNI.
#[must_use]
pub(crate) fn sni_name(port: u32, subset: &str, host: &str) -> String {
    format!("outbound_.{port}_.{subset}_.{host}")
}

/// The cluster for a port of the workload: `inbound|8080||`.
#[must_use]
pub(crate) fn inbound_name(port: u32) -> String {
    format!("inbound|{port}||")
}

/// What stands between a cluster's name and the rest of a statistic's name, so that dots in the name do no harm.
const STATISTICS_END: char = ';';

/// The name in statistics.
pub(super) fn stat_name(name: &str) -> String {
    format!("{name}{STATISTICS_END}")
}
