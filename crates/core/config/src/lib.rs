//! Configuration: types for Istio's and Kubernetes' kinds, decoding from YAML and JSON, validation, and the
//! batches of sources of objects.

mod inert;
mod kinds;
mod path;
mod problem;
mod read;
mod source;
pub mod status;
mod unknown;
mod validate;
mod yaml;

pub use kinds::{
    Base64, Duration, IntOrString, KindVisitor, LabelSelector, LabelSelectorOperator,
    LabelSelectorRequirement, Place, PolicyTargetReference, StringMatch, Unread, WorkloadMode,
    WorkloadSelector, extensions, gateway_api, kubernetes, mesh, networking, object_of, security, spec_json,
    takes_part, telemetry, validate, visit_kind, whole_spec_json,
};
pub use path::FieldPath;
pub use problem::{ObjectCheck, Problem, Severity, did_you_mean, nearest, unknown_name};
pub use read::{
    Limits, MeshFile, ReadFile, ReadObject, Rejected, Served, belongs_to_mesh, is_object_name, lines_of,
    read, read_checked, read_live, read_mesh_file, served,
};
pub use source::{Effective, ProblemReport, SourceBatch, SourceEvent, SourceProblems, is_unserved};
pub use unknown::{About, UNKNOWN_RULES, UnknownRule};
pub use validate::{MAX_REGEX_BYTES, OBJECT_LIMITS, ObjectLimit, is_regex, refused_by_lua, refused_by_re2};
