//! `security.istio.io`: authentication and authorization of clients. v1 and v1beta1 are read alike.
//!
//! The types have the fields, names and proto JSON forms of
//! <https://istio.io/latest/docs/reference/config/security/>.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Istio's API reference, linked above"
)]

mod authorization_policy;
mod peer_authentication;
mod request_authentication;

pub use authorization_policy::*;
pub use peer_authentication::*;
pub use request_authentication::*;
