//! Messages that `istioctl` reads: the fields that it uses of `envoy/service/status/v3/csds.proto` and
//! `envoy/admin/v3/config_dump_shared.proto`.

use pilotfish_proto::Any;
use pilotfish_proto::envoy::config::core::v3::Node;
use prost::Message;

/// Message `envoy.service.status.v3.ClientConfig`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ClientConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) node: Option<Node>,
    #[prost(message, repeated, tag = "3")]
    pub(super) generic_xds_configs: Vec<GenericXdsConfig>,
}

/// Message `envoy.service.status.v3.ClientConfig.GenericXdsConfig`, as far as used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GenericXdsConfig {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(message, optional, tag = "5")]
    pub(super) last_updated: Option<Timestamp>,
    #[prost(enumeration = "ConfigStatus", tag = "6")]
    pub(super) config_status: i32,
    #[prost(message, optional, tag = "8")]
    pub(super) error_state: Option<UpdateFailureState>,
}

/// Enum `envoy.service.status.v3.ConfigStatus`, as far as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub(super) enum ConfigStatus {
    Unknown = 0,
    Synced = 1,
    NotSent = 2,
    Stale = 3,
    Error = 4,
}

/// Message `envoy.admin.v3.UpdateFailureState`, error details only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateFailureState {
    #[prost(message, optional, tag = "2")]
    pub(super) last_update_attempt: Option<Timestamp>,
    #[prost(string, tag = "3")]
    pub(super) details: String,
}

/// Message `google.protobuf.Timestamp`, for prost.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// Resource of a dump with its version: the common first two fields of `DynamicCluster`,
/// `DynamicRouteConfig`, `DynamicEndpointConfig` and `DynamicListenerState`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Versioned {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, optional, tag = "2")]
    pub(super) resource: Option<Any>,
}

/// Message `envoy.admin.v3.ListenersConfigDump.DynamicListener`, active state only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DynamicListener {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) active_state: Option<Versioned>,
}

/// `envoy.admin.v3.ClustersConfigDump`, `RoutesConfigDump` and `EndpointsConfigDump`, whose lists have the
/// same number.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigDump {
    #[prost(message, repeated, tag = "3")]
    pub(super) dynamic: Vec<Versioned>,
}

/// Message `envoy.admin.v3.ListenersConfigDump`, dynamic listeners only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListenersConfigDump {
    #[prost(message, repeated, tag = "3")]
    pub(super) dynamic_listeners: Vec<DynamicListener>,
}
