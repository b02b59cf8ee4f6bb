//! Queries about services that several resources share.

pub(crate) mod alias;
pub(crate) mod cluster_local;
pub(crate) mod host_index;
pub(crate) mod networks;
pub(crate) mod service_address;
pub(crate) mod short_name;
