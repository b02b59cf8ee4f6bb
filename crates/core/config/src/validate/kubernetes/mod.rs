//! Checks of Kubernetes' own kinds, and of `multicluster.x-k8s.io`.

pub(super) mod core;
pub(super) mod ingress;
