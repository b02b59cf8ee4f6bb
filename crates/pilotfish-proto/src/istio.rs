//! Messages of Istio's own Envoy extensions and of its agent. Few and small, so they are declared by hand.

/// Configuration of `istio.alpn` (`istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig`): which ALPN protocols an
/// upstream TLS connection offers, by the protocol of the upstream connection.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlpnFilterConfig {
    /// One entry for each upstream protocol.
    #[prost(message, repeated, tag = "1")]
    pub alpn_override: Vec<AlpnOverride>,
}

/// The protocols offered for one upstream protocol.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlpnOverride {
    /// The upstream protocol.
    #[prost(enumeration = "UpstreamProtocol", tag = "1")]
    pub upstream_protocol: i32,
    /// The protocols to offer.
    #[prost(string, repeated, tag = "2")]
    pub alpn_override: Vec<String>,
}

/// The protocol of an upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum UpstreamProtocol {
    /// HTTP/1.0.
    Http10 = 0,
    /// HTTP/1.1.
    Http11 = 1,
    /// HTTP/2.
    Http2 = 2,
}

impl ::prost::Name for AlpnFilterConfig {
    const NAME: &'static str = "FilterConfig";
    const PACKAGE: &'static str = "istio.envoy.config.filter.http.alpn.v2alpha1";
}

/// The table from which Istio's agent answers DNS (`istio.networking.nds.v1.NameTable`).
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct NameTable {
    /// By host name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub table: ::std::collections::BTreeMap<String, NameInfo>,
}

/// One host of the name table.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct NameInfo {
    /// The addresses.
    #[prost(string, repeated, tag = "1")]
    pub ips: Vec<String>,
    /// `Kubernetes` or `External`.
    #[prost(string, tag = "2")]
    pub registry: String,
    /// The short name, for Kubernetes.
    #[prost(string, tag = "3")]
    pub shortname: String,
    /// The namespace, for Kubernetes.
    #[prost(string, tag = "4")]
    pub namespace: String,
}

impl ::prost::Name for NameTable {
    const NAME: &'static str = "NameTable";
    const PACKAGE: &'static str = "istio.networking.nds.v1";
}
