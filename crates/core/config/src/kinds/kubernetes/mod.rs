//! Kubernetes' own kinds: the fields that matter here, with the API server's defaults applied.
//!
//! The types have the fields and JSON forms of <https://kubernetes.io/docs/reference/kubernetes-api/>; fields
//! that nothing here reads are left out and ignored on reading. In what is written by hand, Services,
//! EndpointSlices and Ingresses, they are [`Unread`](crate::Unread), so that a typing error is distinguished
//! from them.
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

use pilotfish_model::{Kind, ObjectMeta};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Empty annotations, shared by all objects of the kinds whose annotations are not read.
fn no_annotations() -> Arc<BTreeMap<String, String>> {
    static NONE: LazyLock<Arc<BTreeMap<String, String>>> = LazyLock::new(Arc::default);
    NONE.clone()
}

/// Drops the metadata that nothing reads of the kinds of which large clusters have very many. Of owners, only
/// a Pod's first one is read.
fn trim(meta: &mut ObjectMeta) {
    meta.annotations = no_annotations();
    meta.uid = Arc::default();
    let is_pod = meta.key.kind == Kind::Pod;
    if meta.owners.len() > usize::from(is_pod) {
        meta.owners = meta.owners.iter().take(usize::from(is_pod)).cloned().collect();
    }
}

pub use endpoint_slice::*;
pub use ingress::*;
pub use multicluster::*;
pub use node::*;
pub use pod::*;
pub use secret::*;
pub use service::*;
