//! The certificate authority of a mesh: reads its key and certificates, checks certificate requests, and
//! signs workload certificates for SPIFFE identities that clients proved.
//!
//! No IO and no clock: callers read files and pass the time. A request says which key is certified, and
//! nothing else: identity, validity and usage are the authority's.
//!
//! ```text
//! AuthorityPem ─ from_pem ─▶ Authority ─ sign(CertificateRequest, WorkloadId, lifetime) ─▶ chain in PEM
//!       ▲
//! SelfSigned ─ create
//! ```

mod authority;
mod bundle;
mod error;
mod external;
mod issued;
mod key;
mod lifetime;
mod request;
mod revocation;
mod rotation;
mod self_signed;
mod serving;
#[cfg(test)]
mod tests;
mod verification;
mod workload_key;

pub use authority::{Authority, AuthorityPem, CertificateInfo, CertificateRole, WorkloadCertificate};
pub use bundle::{SpiffeBundle, join_roots};
pub use error::{AuthorityError, BundleError, IssuedError, RequestError, SignError};
pub use external::ExternalAuthority;
pub use issued::{IssuedCertificate, first_expiry};
pub use lifetime::Lifetimes;
pub use request::{CertificateRequest, MAX_REQUEST_BYTES};
pub use rotation::{RootState, Rotation, RotationStage};
pub use self_signed::SelfSigned;
pub use serving::Serving;
pub use workload_key::WorkloadKey;
