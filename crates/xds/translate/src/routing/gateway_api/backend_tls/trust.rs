//! CA certificates of a BackendTLSPolicy, as TLS settings of a DestinationRule.

use crate::credentials::{AuthoritiesIn, Unusable};
use crate::engine::Cx;
use crate::routing::gateway_api::listeners::Fault;
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS};
use pilotfish_config::gateway_api::{BackendTlsPolicy, SYSTEM_AUTHORITIES};
use pilotfish_config::networking::{ClientTlsMode, ClientTlsSettings};
use pilotfish_model::{Kind, Typed};

/// Credential of a policy with unusable CA certificates. No secret has this name: a proxy with it waits, and
/// its connections fail with `Secret is not supplied by SDS`.
pub(crate) const UNUSABLE: &str = "invalid://";

/// Returns the TLS settings of a policy. If its CA certificates are unusable, their credential does not
/// exist.
pub(super) fn settings(cx: &Cx<'_>, policy: &Typed<BackendTlsPolicy>) -> ClientTlsSettings {
    let validation = &policy.spec.validation;
    let name = |name: &pilotfish_config::gateway_api::SubjectAltName| match name.r#type.as_str() {
        "URI" => name.uri.clone(),
        _ => name.hostname.clone(),
    };
    ClientTlsSettings {
        mode: ClientTlsMode::Simple,
        sni: validation.hostname.clone(),
        subject_alt_names: validation.subject_alt_names.iter().map(name).collect(),
        credential_name: credential(cx, policy).unwrap_or_else(|_| UNUSABLE.to_owned()),
        ..ClientTlsSettings::default()
    }
}

/// Returns the credential name of the CA certificates; empty for those of the proxy's system.
///
/// # Errors
/// If they are unusable, with the fault of the policy or of the referenced object.
pub(super) fn credential(cx: &Cx<'_>, policy: &Typed<BackendTlsPolicy>) -> Result<String, Fault> {
    let invalid = |message: String| Fault { condition: ACCEPTED, reason: "Invalid", message };
    if let Some(reason) = &policy.refused {
        return Err(invalid(reason.clone()));
    }
    let validation = &policy.spec.validation;
    match validation.well_known_ca_certificates.as_deref().filter(|name| !name.is_empty()) {
        Some(SYSTEM_AUTHORITIES) => return Ok(String::new()),
        // istiod falls back to the system's CA certificates here, although the policy asks for others.
        Some(other) => {
            return Err(invalid(format!(
                "the authorities {other:?} are not known, only {SYSTEM_AUTHORITIES:?}"
            )));
        }
        None => {}
    }
    let Some(first) = validation.ca_certificate_refs.first() else {
        return Err(invalid("the policy names no authorities".to_owned()));
    };
    let namespace = policy.namespace();
    let fault = |reason, message| Err(Fault { condition: RESOLVED_REFS, reason, message });
    let name = &first.name;
    if !matches!((first.group.as_str(), first.kind.as_str()), ("" | "core", "ConfigMap")) {
        let message =
            format!("authorities are a ConfigMap, {name:?} is a {:?} of group {:?}", first.kind, first.group);
        return fault("InvalidKind", message);
    }
    let authorities =
        AuthoritiesIn { kind: Kind::ConfigMap, namespace: namespace.clone(), name: name.as_str().into() };
    match &*cx.get(&authorities) {
        Err(unusable @ (Unusable::Absent | Unusable::NoAuthorities)) => {
            fault("InvalidCACertificateRef", format!("ConfigMap {namespace}/{name} {unusable}"))
        }
        // Invalid certificates are sent as well, as by istiod: the proxy rejects them and keeps waiting for
        // valid ones.
        Ok(()) | Err(_) => Ok(format!("configmap://{namespace}/{name}")),
    }
}
