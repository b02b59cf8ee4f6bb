//! Checks of `security.istio.io`.

pub(super) mod authentication;
pub(super) mod authorization;
