//! Certificate authority of the mesh: `/api/v1/ca`.

use serde::{Deserialize, Serialize};

/// The certificate authority in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateAuthority {
    /// File or Secret of the certificate that signs.
    pub source: String,
    /// Reason why newer key and certificates are not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Rotation of the root that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<CaRotation>,
    /// Number of certificates that this process has signed.
    pub signed: u64,
    /// The certificate that signs, its chain, and the roots.
    pub certificates: Vec<CaCertificate>,
    /// Certificates that workloads trust, in PEM.
    pub roots: String,
}

/// Rotation of a root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotation {
    /// `distributing`: the new root is trusted and the old one signs; `overlapping`: the other way round.
    pub stage: String,
    /// End of the stage, in RFC 3339.
    pub until: String,
}

/// Request for a rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationRequest {
    /// Longest validity of workload certificates that were or will be signed, in seconds: the duration of
    /// each stage.
    pub overlap_seconds: u64,
}

/// Part of a certificate in an authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CaRole {
    #[default]
    Signing,
    Chain,
    Root,
}

/// A certificate of the authority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaCertificate {
    pub role: CaRole,
    pub subject: String,
    /// Serial number in hexadecimal digits.
    pub serial: String,
    /// Expiry in RFC 3339.
    pub expires: String,
}
