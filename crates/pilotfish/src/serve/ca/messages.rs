//! Messages of `istio.v1.auth.IstioCertificateService`.

use prost::Message;

/// Path of the only method.
pub(crate) const CREATE_CERTIFICATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";

/// Request of `CreateCertificate` (`istio.v1.auth.IstioCertificateRequest`).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct IstioCertificateRequest {
    /// Certificate request in PEM.
    #[prost(string, tag = "1")]
    pub(crate) csr: String,
    /// Requested validity in seconds.
    #[prost(int64, tag = "3")]
    pub(crate) validity_duration: i64,
    #[prost(message, optional, tag = "4")]
    pub(crate) metadata: Option<prost_types::Struct>,
}

/// Response of `CreateCertificate` (`istio.v1.auth.IstioCertificateResponse`).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct IstioCertificateResponse {
    /// Certificates in PEM, the leaf first and all roots in the last text.
    #[prost(string, repeated, tag = "1")]
    pub(crate) cert_chain: Vec<String>,
}
