//! Whose certificates a policy accepts, as the TLS settings of a DestinationRule.

use crate::credentials::{AuthoritiesIn, Unusable};
use crate::engine::Cx;
use crate::routing::gateway_api::listeners::Fault;
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS};
use pilotfish_config::gateway_api::{BackendTlsPolicy, SYSTEM_AUTHORITIES};
use pilotfish_config::networking::{ClientTlsMode, ClientTlsSettings};
use pilotfish_model::{Kind, Typed};

/// The credential of a policy whose authorities cannot be used. No secret has this name: a proxy with it waits, and its
/// connections fail with `Secret is not supplied by SDS`.
pub(crate) const UNUSABLE: &str = "invalid://";

/// The settings of a policy; with a credential that nobody serves where its authorities cannot be used.
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

/// The name of the authorities' certificates; empty for those that the proxy's system trusts.
///
/// # Errors
/// Why none can be used: a fault of the policy, or of what it refers to.
pub(super) fn credential(cx: &Cx<'_>, policy: &Typed<BackendTlsPolicy>) -> Result<String, Fault> {
    let invalid = |message: String| Fault { condition: ACCEPTED, reason: "Invalid", message };
    if let Some(reason) = &policy.refused {
        return Err(invalid(reason.clone()));
    }
    let validation = &policy.spec.validation;
    match validation.well_known_ca_certificates.as_deref().filter(|name| !name.is_empty()) {
        Some(SYSTEM_AUTHORITIES) => return Ok(String::new()),
        // istiod goes on with those of the system: other ones than were asked for.
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
        // What is no certificate is sent all the same, as from istiod: the proxy refuses it and goes on waiting.
        Ok(()) | Err(_) => Ok(format!("configmap://{namespace}/{name}")),
    }
}
