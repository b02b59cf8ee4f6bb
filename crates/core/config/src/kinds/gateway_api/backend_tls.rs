//! BackendTLSPolicy: TLS from gateways and sidecars to the endpoints of a Service.

use super::ObjectReference;
use crate::kinds::message::{kind, message};
use crate::validate::Refused;
use crate::yaml::Node;
use std::collections::BTreeMap;

kind!(BackendTlsPolicy = BackendTlsPolicy;);

/// The one value of `wellKnownCACertificates` that is known: the authorities that the proxy's system trusts.
pub const SYSTEM_AUTHORITIES: &str = "System";

message! {
/// TLS settings for connections to the endpoints of its targets.
pub struct BackendTlsPolicy {
    pub spec: BackendTlsPolicySpec,
    /// Reason why the object was refused, if it was. It then applies to its targets only and lets nothing
    /// pass: traffic that was to be protected by TLS must not be sent in plaintext because of a mistake.
    #[serde(skip)]
    pub refused: Option<String>,
}

/// `spec` of a BackendTLSPolicy.
pub struct BackendTlsPolicySpec {
    pub target_refs: Vec<PolicyTargetReference>,
    pub validation: BackendTlsValidation,
    pub options: BTreeMap<String, String>,
}

/// An object of the policy's namespace, or one of its ports.
pub struct PolicyTargetReference {
    pub group: String,
    pub kind: String,
    pub name: String,
    /// Name of a port; `None` for all ports.
    pub section_name: Option<String>,
}

/// Authorities and names that the certificate of an endpoint is checked against.
pub struct BackendTlsValidation {
    #[serde(rename = "caCertificateRefs")]
    pub ca_certificate_refs: Vec<ObjectReference>,
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<String>,
    /// The SNI, and the name that a certificate must have where `subjectAltNames` names no others.
    pub hostname: String,
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A name that a certificate may have.
pub struct SubjectAltName {
    pub r#type: String,
    pub hostname: String,
    pub uri: String,
}
}

impl PolicyTargetReference {
    /// The port's name; `None` for all ports.
    #[must_use]
    pub fn section(&self) -> Option<&str> {
        self.section_name.as_deref().filter(|name| !name.is_empty())
    }
}

impl BackendTlsPolicy {
    /// Closed form of a refused policy: it denies traffic to the targets that can be read.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let targets = refused.spec.get("targetRefs")?;
        let target = |node: &Node| {
            let text = |name| node.get(name).and_then(Node::text).map(str::to_owned);
            Some(PolicyTargetReference {
                group: text("group").unwrap_or_default(),
                kind: text("kind")?,
                name: text("name")?,
                section_name: text("sectionName"),
            })
        };
        let target_refs: Vec<_> = targets.items().iter().filter_map(target).collect();
        let spec = BackendTlsPolicySpec { target_refs, ..BackendTlsPolicySpec::default() };
        let is_for_something = !spec.target_refs.is_empty();
        is_for_something.then(|| Self { spec, refused: Some(refused.reason.clone()) })
    }
}
