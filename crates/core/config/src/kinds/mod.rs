//! The kinds that are read, by API group: their types, and the table that ties each kind to its type.

mod common;
pub(crate) mod content;
pub mod extensions;
pub mod gateway_api;
mod json;
pub mod kubernetes;
pub mod mesh;
pub(crate) mod message;
pub mod networking;
pub mod security;
pub mod telemetry;

pub use common::{
    Base64, Duration, IntOrString, LabelSelector, LabelSelectorOperator, LabelSelectorRequirement,
    PolicyTargetReference, StringMatch, Unread, WorkloadMode, WorkloadSelector, takes_part,
};
pub use content::{KindVisitor, Place, validate, visit_kind};
pub use json::{object_of, spec_json, whole_spec_json};
