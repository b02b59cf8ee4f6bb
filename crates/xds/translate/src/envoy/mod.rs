//! Parts of Envoy's configuration that resources of several types, and policies, use.

mod cluster_name;
pub(crate) mod dubbo;
mod duration;
mod dynamic_forward_proxy;
pub(crate) mod filters;
pub(crate) mod header_case;
pub(crate) mod metadata;
mod range;
pub(crate) mod stat_name;
mod traffic_class;

pub(crate) use cluster_name::{
    ALLOW_ANY_DYNAMIC_DNS, BLACK_HOLE, ClusterName, EXTERNAL_SECRETS, INBOUND_PASSTHROUGH, NOWHERE,
    PASSTHROUGH, inbound_name, outbound_name, port_number, sni_name,
};
pub(crate) use duration::duration;
pub(crate) use dynamic_forward_proxy::DnsCache;
pub(crate) use range::range;
pub(crate) use traffic_class::TrafficClass;
