//! Messages of Istio's own Envoy extensions and of its agent. Few and small, so they are declared by hand.

/// Configuration of `istio.alpn` (`istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig`): ALPN of
/// upstream TLS connections, by the protocol of the upstream connection.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlpnFilterConfig {
    /// One entry for each upstream protocol.
    #[prost(message, repeated, tag = "1")]
    pub alpn_override: Vec<AlpnOverride>,
}

/// ALPN protocols for one upstream protocol.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlpnOverride {
    #[prost(enumeration = "UpstreamProtocol", tag = "1")]
    pub upstream_protocol: i32,
    /// ALPN protocols offered in place of those of the cluster's TLS context.
    #[prost(string, repeated, tag = "2")]
    pub alpn_override: Vec<String>,
}

/// Protocol of an upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum UpstreamProtocol {
    Http10 = 0,
    Http11 = 1,
    Http2 = 2,
}

impl ::prost::Name for AlpnFilterConfig {
    const NAME: &'static str = "FilterConfig";
    const PACKAGE: &'static str = "istio.envoy.config.filter.http.alpn.v2alpha1";
}

/// Configuration of `istio.stats` (`stats.PluginConfig`): metrics of Istio's Envoy, with their tags.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct PluginConfig {
    /// Disables the fallback to the request's host for an unknown destination.
    #[prost(bool, tag = "6")]
    pub disable_host_header_fallback: bool,
    /// Interval of reports for an open TCP connection; 15 s if unset.
    #[prost(message, optional, tag = "7")]
    pub tcp_reporting_duration: Option<crate::Duration>,
    #[prost(message, repeated, tag = "8")]
    pub metrics: Vec<MetricConfig>,
    #[prost(message, repeated, tag = "9")]
    pub definitions: Vec<MetricDefinition>,
    #[prost(enumeration = "Reporter", tag = "10")]
    pub reporter: i32,
    /// Time until a scope of metrics is replaced; 24 h if unset.
    #[prost(message, optional, tag = "11")]
    pub rescoping_duration: Option<crate::Duration>,
    /// Time until a replaced scope is dropped; 15 s if unset.
    #[prost(message, optional, tag = "12")]
    pub scope_grace_period_duration: Option<crate::Duration>,
}

/// Change of one metric, or of all.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MetricConfig {
    /// Tags to add or replace, with their expressions.
    #[prost(btree_map = "string, string", tag = "1")]
    pub dimensions: ::std::collections::BTreeMap<String, String>,
    /// Name of the metric; empty for all.
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, repeated, tag = "3")]
    pub tags_to_remove: Vec<String>,
    /// Condition, which Envoy ignores.
    #[prost(string, tag = "4")]
    pub r#match: String,
    /// True to disable the metric.
    #[prost(bool, tag = "5")]
    pub drop: bool,
}

/// A metric in addition to Istio's own.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MetricDefinition {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Expression for its value.
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

/// Reporting side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum Reporter {
    /// Derived from the direction of the listener.
    Unspecified = 0,
    /// The server side, as for waypoints.
    ServerGateway = 1,
}

impl ::prost::Name for PluginConfig {
    const NAME: &'static str = "PluginConfig";
    const PACKAGE: &'static str = "stats";
}

/// Name table for the DNS proxy of Istio's agent (`istio.networking.nds.v1.NameTable`).
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct NameTable {
    /// Entries by host name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub table: ::std::collections::BTreeMap<String, NameInfo>,
}

#[derive(Clone, PartialEq, ::prost::Message)]
pub struct NameInfo {
    #[prost(string, repeated, tag = "1")]
    pub ips: Vec<String>,
    /// Registry: `Kubernetes` or `External`.
    #[prost(string, tag = "2")]
    pub registry: String,
    /// Short name, for Kubernetes.
    #[prost(string, tag = "3")]
    pub shortname: String,
    /// Namespace of the service; empty outside of Kubernetes.
    #[prost(string, tag = "4")]
    pub namespace: String,
}

impl ::prost::Name for NameTable {
    const NAME: &'static str = "NameTable";
    const PACKAGE: &'static str = "istio.networking.nds.v1";
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::{BASE64_STANDARD, Engine};
    use prost::Message;

    /// What an istiod sends for a Telemetry that changes, drops and extends metrics.
    const STATS: &str = "MAE6AggPQjoKHAoMcmVxdWVzdF9ob3N0EgxyZXF1ZXN0Lmhvc3QSDnJlcXVlc3RzX3RvdGFsGgpzb3VyY2VfYXBwQiES\
        HXJlcXVlc3RfZHVyYXRpb25fbWlsbGlzZWNvbmRzKAFCLhIcdGNwX2Nvbm5lY3Rpb25zX29wZW5lZF90b3RhbBoOcmVzcG9uc2VfZmxhZ3NCGwoO\
        CgR0ZWFtEgYnYmx1ZScSCW15X21ldHJpYw==";
    const ALPN: &str = "CiESDmlzdGlvLWh0dHAvMS4wEgVpc3RpbxIIaHR0cC8xLjAKIwgBEg5pc3Rpby1odHRwLzEuMRIFaXN0aW8SCGh0dHAv\
        MS4xChcIAhIIaXN0aW8taDISBWlzdGlvEgJoMg==";

    #[test]
    fn recorded_messages_are_understood_and_written_alike() {
        let bytes = BASE64_STANDARD.decode(STATS).unwrap();
        let stats = PluginConfig::decode(&bytes[..]).unwrap();
        assert!(stats.disable_host_header_fallback);
        assert_eq!(stats.tcp_reporting_duration.as_ref().unwrap().seconds, 15);
        let names: Vec<_> = stats.metrics.iter().map(|metric| (metric.name.as_str(), metric.drop)).collect();
        assert_eq!(names[0], ("requests_total", false));
        assert_eq!(names[1], ("request_duration_milliseconds", true));
        assert_eq!(stats.metrics[0].tags_to_remove, ["source_app"]);
        assert_eq!(stats.metrics[3].dimensions["team"], "'blue'");
        assert_eq!(stats.encode_to_vec(), bytes);

        let bytes = BASE64_STANDARD.decode(ALPN).unwrap();
        let alpn = AlpnFilterConfig::decode(&bytes[..]).unwrap();
        assert_eq!(alpn.alpn_override[2].upstream_protocol(), UpstreamProtocol::Http2);
        assert_eq!(alpn.encode_to_vec(), bytes);
    }
}
