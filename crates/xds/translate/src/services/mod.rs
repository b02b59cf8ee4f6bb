//! Queries about services that several resources share.

pub(crate) mod alias;
pub(crate) mod client_endpoints;
pub(crate) mod cluster_local;
pub(crate) mod host_index;
mod namespace_labels;
pub(crate) mod networks;
pub(crate) mod service_address;
pub(crate) mod short_name;

pub(crate) use namespace_labels::labels_of_namespace;
