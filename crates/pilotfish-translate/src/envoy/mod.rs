//! Pieces of Envoy's configuration that resources of several types, and policies, are built from.

mod duration;
pub(crate) mod filters;
pub(crate) mod header_case;
mod listener_class;
pub(crate) mod metadata;
pub(crate) mod stat_name;

pub(crate) use duration::duration;
pub(crate) use listener_class::ListenerClass;
