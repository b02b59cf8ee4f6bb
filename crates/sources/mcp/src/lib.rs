//! MCP over xDS: Istio's configuration as resources of an ordinary ADS stream.
//!
//! ```text
//!  another control plane ──▶ client ── SourceBatch ──▶ the configuration feed
//!  World ──▶ Catalogue of resources ──▶ the xDS server ──▶ another control plane
//! ```
//!
//! A type URL identifies a kind (`networking.istio.io/v1/ServiceEntry`); a resource is a [`Resource`] whose
//! body is the kind's protobuf message. Content is parsed from the JSON form of that message, by the parser
//! for files, so that the same checks apply.

mod client;
mod kinds;
mod resource;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use client::MCP;
pub use kinds::{KINDS, MESH_CONFIG, McpKind};
pub use resource::{Metadata, Resource, ResourceError, body_to_json, json_to_body};
pub use server::{Catalogue, Difference, ServedResource};
