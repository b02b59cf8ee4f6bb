//! Configuration: the typed content of Istio's and Kubernetes' kinds, reading them from YAML, and watching files.

mod common;
pub mod extensions;
pub mod gateway_api;
pub mod kubernetes;
pub mod mesh;
mod message;
pub mod networking;
pub mod security;
pub mod telemetry;

pub use common::{
    Base64, Duration, IntOrString, LabelSelector, LabelSelectorOperator, LabelSelectorRequirement,
    PolicyTargetReference, StringMatch, WorkloadMode, WorkloadSelector,
};
