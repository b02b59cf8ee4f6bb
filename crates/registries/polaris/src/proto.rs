//! The messages and fields of Polaris' `v1.PolarisGRPC/Discover` that reading needs. Numbers are those of
//! `request.proto`, `response.proto`, `service.proto` and `model.proto` in Polaris' specification. Scalars
//! are wrapper messages, so that an absent value differs from zero.

use std::collections::HashMap;

/// Type of a `DiscoverRequest` or `DiscoverResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Kind {
    Unknown = 0,
    /// The instances of a service.
    Instance = 1,
    /// The services of a namespace.
    Services = 6,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DiscoverRequest {
    #[prost(enumeration = "Kind", tag = "1")]
    pub(crate) r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) service: Option<Service>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DiscoverResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) code: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub(crate) info: Option<String>,
    #[prost(enumeration = "Kind", tag = "3")]
    pub(crate) r#type: i32,
    #[prost(message, optional, tag = "4")]
    pub(crate) service: Option<Service>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) instances: Vec<Instance>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) services: Vec<Service>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Service {
    #[prost(message, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub(crate) namespace: Option<String>,
    #[prost(map = "string, string", tag = "3")]
    pub(crate) metadata: HashMap<String, String>,
    #[prost(message, optional, tag = "15")]
    pub(crate) revision: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Instance {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub(crate) host: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(crate) port: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub(crate) protocol: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub(crate) version: Option<String>,
    #[prost(message, optional, tag = "9")]
    pub(crate) weight: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) healthy: Option<bool>,
    #[prost(message, optional, tag = "12")]
    pub(crate) isolate: Option<bool>,
    #[prost(message, optional, tag = "13")]
    pub(crate) location: Option<Location>,
    #[prost(map = "string, string", tag = "14")]
    pub(crate) metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Location {
    #[prost(message, optional, tag = "1")]
    pub(crate) region: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub(crate) zone: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) campus: Option<String>,
}
