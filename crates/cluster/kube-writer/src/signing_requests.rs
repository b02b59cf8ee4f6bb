//! CertificateSigningRequests: certificates that an external signer of a cluster issues.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pilotfish_kube::request::{RequestError, within};
use pilotfish_runtime::{ErrorClass, one_line};
use std::time::Duration;

/// Start of the names of requests.
const PREFIX: &str = "pilotfish-workload-";
/// Label of requests, and its value.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "pilotfish");
/// Usages of workload certificates, as istiod requests them.
const USAGES: [&str; 4] = ["digital signature", "key encipherment", "server auth", "client auth"];
/// Shortest validity that API servers accept, in seconds.
const SHORTEST: u64 = 600;
/// Reason of the approval.
const REASON: &str = "ProvenIdentity";
/// Timeout of one request to the API server.
const ANSWER: Duration = Duration::from_secs(10);

/// State of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SigningState {
    /// Not approved, or not signed yet.
    Pending,
    /// Certificates in PEM.
    Signed(String),
    /// Denied by an approver, or failed at the signer, with its message.
    Refused(String),
}

/// Client of one signer.
#[derive(Clone)]
pub struct SigningRequests {
    api: Api<CertificateSigningRequest>,
    signer: String,
}

impl SigningRequests {
    #[must_use]
    pub fn new(client: Client, signer: String) -> Self {
        Self { api: Api::all(client), signer }
    }

    /// Name of the signer, such as `clusterissuers.cert-manager.io/mesh`.
    #[must_use]
    pub fn signer(&self) -> &str {
        &self.signer
    }

    /// Creates a request for a certificate request in PEM, and returns its name.
    ///
    /// # Errors
    /// When the API server does not answer or refuses.
    pub async fn create(&self, request: &str, lifetime: Duration) -> Result<String, RequestError> {
        let object = object(&self.signer, request, lifetime);
        let created = within(ANSWER, self.api.create(&PostParams::default(), &object)).await?;
        created.metadata.name.ok_or_else(|| RequestError::rejected("the created object has no name"))
    }

    /// Approves a request. Returns false without the right to: then somebody else has to.
    ///
    /// # Errors
    /// When the API server does not answer or refuses for another reason.
    pub async fn approve(&self, name: &str) -> Result<bool, RequestError> {
        let approval = serde_json::json!({"status": {"conditions": [condition("Approved")]}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(approval));
        match within(ANSWER, self.api.patch_approval(name, &params, &patch)).await {
            Ok(_) => Ok(true),
            Err(error) if error.class == ErrorClass::Denied => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the state of a request.
    ///
    /// # Errors
    /// When the API server does not answer, or the request was deleted.
    pub async fn state(&self, name: &str) -> Result<SigningState, RequestError> {
        let found = within(ANSWER, self.api.get(name)).await?;
        state(found.status.unwrap_or_default())
    }

    /// Deletes a request; one that is deleted already is no error.
    ///
    /// # Errors
    /// When the API server does not answer or refuses.
    pub async fn delete(&self, name: &str) -> Result<(), RequestError> {
        match within(ANSWER, self.api.delete(name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            Err(error) if error.class == ErrorClass::Gone => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn object(signer: &str, request: &str, lifetime: Duration) -> CertificateSigningRequest {
    let (label, value) = LABEL;
    let seconds = lifetime.as_secs().max(SHORTEST);
    CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(PREFIX.to_owned()),
            labels: Some([(label.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.as_bytes().to_vec()),
            signer_name: signer.to_owned(),
            expiration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

fn condition(type_: &str) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(REASON.to_owned()),
        message: Some("The workload proved the identity in the request to Pilotfish".to_owned()),
        ..CertificateSigningRequestCondition::default()
    }
}

fn state(status: CertificateSigningRequestStatus) -> Result<SigningState, RequestError> {
    let conditions = status.conditions.unwrap_or_default();
    let refused =
        conditions.into_iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(CertificateSigningRequestCondition { type_, reason, message, .. }) = refused {
        let texts = [Some(type_), reason, message].into_iter().flatten().filter(|text| !text.is_empty());
        return Ok(SigningState::Refused(one_line(&texts.collect::<Vec<_>>().join(": "))));
    }
    match status.certificate {
        Some(certificate) if !certificate.0.is_empty() => String::from_utf8(certificate.0)
            .map(SigningState::Signed)
            .map_err(|_| RequestError::rejected("the signed certificate is no text")),
        _ => Ok(SigningState::Pending),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_named_labelled_and_for_workloads() {
        let object = object("example.com/mesh", "pem", Duration::from_secs(3600));
        assert_eq!(object.metadata.generate_name.as_deref(), Some("pilotfish-workload-"));
        assert_eq!(object.metadata.labels.unwrap()["app.kubernetes.io/managed-by"], "pilotfish");
        assert_eq!(object.spec.request.0, b"pem");
        assert_eq!(object.spec.usages.unwrap(), USAGES);
        for (lifetime, expected) in [(1, 600), (600, 600), (601, 601), (u64::MAX, i32::MAX)] {
            let object = self::object("a", "b", Duration::from_secs(lifetime));
            assert_eq!(object.spec.expiration_seconds, Some(expected));
        }
    }

    #[test]
    fn refusals_count_before_certificates() {
        let status = |conditions: &[&str], certificate: &[u8]| CertificateSigningRequestStatus {
            conditions: Some(conditions.iter().map(|type_| condition(type_)).collect()),
            certificate: Some(ByteString(certificate.to_vec())),
        };
        for (conditions, certificate, expected) in [
            (&[][..], &b""[..], SigningState::Pending),
            (&["Approved"], b"", SigningState::Pending),
            (&["Approved"], b"pem", SigningState::Signed("pem".into())),
        ] {
            assert_eq!(state(status(conditions, certificate)), Ok(expected));
        }
        for refusal in ["Denied", "Failed"] {
            let refused = state(status(&["Approved", refusal], b"pem")).unwrap();
            let SigningState::Refused(reason) = refused else { panic!("{refused:?}") };
            assert!(reason.starts_with(&format!("{refusal}: ProvenIdentity: ")), "{reason}");
        }
        assert!(state(status(&[], &[0xff])).is_err());
        assert_eq!(state(CertificateSigningRequestStatus::default()), Ok(SigningState::Pending));
    }
}
