//! Kubernetes' own kinds: the fields that matter here, with the API server's defaults applied.
//!
//! The types have the fields and JSON forms of <https://kubernetes.io/docs/reference/kubernetes-api/>; fields that
//! nothing here reads are left out and ignored on reading.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Kubernetes' API reference, linked above"
)]

mod endpoint_slice;
mod ingress;
mod multicluster;
mod node;
mod pod;
mod secret;
mod service;

pub use endpoint_slice::*;
pub use ingress::*;
pub use multicluster::*;
pub use node::*;
pub use pod::*;
pub use secret::*;
pub use service::*;
