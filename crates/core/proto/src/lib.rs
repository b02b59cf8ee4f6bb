//! The messages that go over the wire: Envoy's API as Rust types, resource types with their order, Istio's
//! own filter messages, and descriptors for everything that is only known at run time.
//!
//! The Rust types are generated at build time from `descriptors/envoy.fds.gz` (see `pilotfish-protogen`). Map
//! fields are `BTreeMap`s, wrapper messages (`UInt32Value`) are `Option`s of the plain type, so encoding is
//! deterministic.

mod any;
mod descriptors;
pub mod istio;
pub mod istio_api;
mod resource_type;
pub mod rules;

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/types.rs"));
}

pub use any::{PREFIX, TypedStruct, any, config_any, typed_struct};
pub use descriptors::{FromJsonError, JsonError, from_json, pool, to_json};
pub use generated::*;
pub use prost_types::value::Kind as ValueKind;
pub use prost_types::{Any, Duration, ListValue, Struct, Value};
pub use resource_type::ResourceType;
