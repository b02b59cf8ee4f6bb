//! Pieces of Envoy's configuration that resources of several types, and policies, are built from.

pub(crate) mod header_case;
pub(crate) mod metadata;
pub(crate) mod stat_name;
