//! RequestAuthentication: accepted JSON web tokens.

use crate::kinds::message::{enumeration, kind, message};
use crate::{Duration, PolicyTargetReference, WorkloadSelector};

kind!(RequestAuthentication = RequestAuthentication;);

message! {
/// Tokens that the selected workloads accept.
pub struct RequestAuthentication {
    pub selector: Option<WorkloadSelector>,
    pub target_ref: Option<PolicyTargetReference>,
    pub target_refs: Vec<PolicyTargetReference>,
    pub jwt_rules: Vec<JwtRule>,
    /// True for the closed form of a policy with unreadable issuers or token locations: every request is
    /// refused.
    #[serde(skip)]
    pub closed: bool,
}

/// An issuer, with the location of its keys and of the token.
pub struct JwtRule {
    pub issuer: String,
    pub audiences: Vec<String>,
    #[serde(alias = "jwks_uri")]
    pub jwks_uri: String,
    pub jwks: String,
    pub from_headers: Vec<JwtHeader>,
    pub from_params: Vec<String>,
    pub from_cookies: Vec<String>,
    pub output_payload_to_header: String,
    pub forward_original_token: bool,
    pub output_claim_to_headers: Vec<ClaimToHeader>,
    pub timeout: Option<Duration>,
    pub space_delimited_claims: Vec<String>,
    /// Requirement for the token; a field of Istio 1.32.
    pub presence: JwtPresence,
    /// True for the closed form of a rule that cannot be used: every token is refused.
    #[serde(skip)]
    pub closed: bool,
}

/// A header with the token behind a prefix.
pub struct JwtHeader {
    pub name: String,
    pub prefix: String,
}

/// Claim that is copied to a header.
pub struct ClaimToHeader {
    pub header: String,
    pub claim: String,
}
}

enumeration! {
/// Requirement for the token of a rule (`presence`).
pub enum JwtPresence {
    #[default]
    Optional,
    Required,
}
}
