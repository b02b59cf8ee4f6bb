//! Services and instances of Nacos: the messages of its servers and clients, and the names of hosts.

mod instance;
mod names;
mod payload;
mod service;

pub use instance::{CLUSTER_LABEL, DEFAULT_CLUSTER, MAX_WEIGHT, grpc_port, protocol};
pub use names::{
    DEFAULT_GROUP, DEFAULT_HOST, DEFAULT_NAMESPACE, HostPattern, SEPARATOR, plain_name, split_name,
};
pub use payload::{Metadata, Payload, PayloadError};
pub use service::{Host, SUCCESS, ServiceInfo, UNREGISTERED, nullable};
