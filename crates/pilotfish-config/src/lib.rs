//! Configuration: the typed content of Istio's and Kubernetes' kinds, reading them from YAML, and watching files.

mod common;
mod content;
pub mod crd;
pub mod extensions;
pub mod file;
pub mod gateway_api;
mod json;
pub mod kubernetes;
mod limits;
mod live;
pub mod mesh;
mod mesh_file;
mod message;
mod metadata;
pub mod networking;
mod path;
mod problem;
mod reader;
pub mod security;
mod source;
pub mod status;
pub mod telemetry;
mod timestamp;
mod validate;
mod yaml;

pub use common::{
    Base64, Duration, IntOrString, LabelSelector, LabelSelectorOperator, LabelSelectorRequirement,
    PolicyTargetReference, StringMatch, WorkloadMode, WorkloadSelector, takes_part,
};
pub use content::validate;
pub use json::spec_json;
pub use limits::Limits;
pub use live::{Served, read_live, served};
pub use mesh_file::{MeshFile, default_mesh_object, read_mesh_file};
pub use metadata::is_object_name;
pub use path::FieldPath;
pub use problem::{ObjectCheck, Problem, Severity};
pub use reader::{ReadFile, ReadObject, Refused, read};
pub use source::{InForce, ProblemReport, SourceBatch, SourceEvent, SourceProblems};
