//! TLS of a listener, terminated or passed through: its certificates, and the authorities that
//! clients are checked against.
//!
//! A listener whose certificate or authorities cannot be used is not served: one that is served asks of its
//! clients what the Gateway asks of them.

use super::listeners::Fault;
use super::owners::ListenerOwner;
use super::{REF_NOT_PERMITTED, grants};
use crate::credentials::{AuthoritiesIn, BUILT_IN, CA_SUFFIX, KeyPairIn};
use crate::engine::Cx;
use pilotfish_config::gateway_api::{
    FrontendTlsValidation, FrontendValidationMode, Listener, ListenerTls, ObjectReference,
    SecretObjectReference, TERMINATE_MODE, TlsMode, is_auto_passthrough,
};
use pilotfish_config::networking::{ServerTlsMode, ServerTlsSettings};
use pilotfish_model::{Kind, Namespace, ObjectKey};

/// The reason for a certificate that cannot be used.
const BAD_CERTIFICATE: &str = "InvalidCertificateRef";
/// The reason for authorities that cannot be used.
const BAD_AUTHORITY: &str = "InvalidCACertificateRef";
/// Certificates of one listener, as in Istio: one for each type of key.
const MOST_CERTIFICATES: usize = 2;

/// Sets whether clients need a certificate that the authorities know. The option of the listener counts
/// before the mode of the validation, and then no certificate of others is taken.
fn set_client_mode(option: &str, mode: FrontendValidationMode, out: &mut ServerTlsSettings) {
    if matches!(out.mode, ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual) && !option.is_empty() {
        return;
    }
    let falls_back = mode == FrontendValidationMode::AllowInsecureFallback;
    out.mode = if falls_back { ServerTlsMode::OptionalMutual } else { ServerTlsMode::Mutual };
    out.insecure_skip_verify = falls_back.then_some(true);
}

/// The settings of a listener that is served, and what is wrong with it all the same.
pub(super) type Served = (ServerTlsSettings, Option<Fault>);

/// The settings of a listener with TLS.
///
/// # Errors
/// When a certificate or authorities that it needs cannot be used.
pub(super) fn settings(
    cx: &Cx<'_>,
    owner: &ListenerOwner,
    listener: &Listener,
    tls: &ListenerTls,
) -> Result<Served, Fault> {
    let mut out = ServerTlsSettings::default();
    if tls.mode == TlsMode::Passthrough {
        let between_networks = is_auto_passthrough(&owner.meta().labels, listener);
        out.mode = if between_networks { ServerTlsMode::AutoPassthrough } else { ServerTlsMode::Passthrough };
        return Ok((out, None));
    }
    let terminate_mode = tls.options.get(TERMINATE_MODE).map_or("", String::as_str);
    out.mode = match terminate_mode {
        "MUTUAL" => ServerTlsMode::Mutual,
        "OPTIONAL_MUTUAL" => ServerTlsMode::OptionalMutual,
        "ISTIO_MUTUAL" => ServerTlsMode::IstioMutual,
        _ => ServerTlsMode::Simple,
    };
    if out.mode == ServerTlsMode::IstioMutual {
        // Certificates and authorities are the mesh's.
        return Ok((out, None));
    }
    out.cipher_suites = tls.cipher_suites();
    let fault = if terminate_mode == "ISTIO_SIMPLE" {
        BUILT_IN.clone_into(&mut out.credential_name);
        None
    } else {
        certificates(cx, owner, tls, &mut out)?
    };
    if let Some((by, validation)) = client_validation(owner, listener, tls) {
        set_client_mode(terminate_mode, validation.mode, &mut out);
        out.ca_cert_credential_name = authority(cx, by, validation)?;
        return Ok((out, fault));
    }
    match fault {
        // Clients would be checked by authorities that stand beside the certificate that cannot be used.
        Some(fault) if out.mode != ServerTlsMode::Simple && out.credential_name == BUILT_IN => Err(fault),
        fault => Ok((out, fault)),
    }
}

/// A listener of a protocol with TLS that does not say how.
pub(super) fn absent(protocol: &str) -> Fault {
    let message =
        format!("a listener of protocol {protocol} needs tls, with a certificate or mode Passthrough");
    Fault::reference(BAD_CERTIFICATE, message)
}

/// Sets the certificates. One of two may be unusable: the other is served if it is the first of them, else
/// the workload's.
fn certificates(
    cx: &Cx<'_>,
    owner: &ListenerOwner,
    tls: &ListenerTls,
    out: &mut ServerTlsSettings,
) -> Result<Option<Fault>, Fault> {
    let named = tls.certificate_refs.as_slice();
    if named.len() > MOST_CERTIFICATES {
        let message = format!(
            "tls.certificateRefs names {} certificates, at most {MOST_CERTIFICATES} can be served",
            named.len()
        );
        return Err(Fault::reference(BAD_CERTIFICATE, message));
    }
    let found: Vec<_> = named.iter().map(|secret| certificate(cx, owner, secret)).collect();
    let fault = found.iter().find_map(|found| found.as_ref().err().cloned());
    let names: Vec<String> = found.iter().flatten().cloned().collect();
    match (names.as_slice(), fault) {
        ([], None) => {
            let message = "tls.certificateRefs names no certificate".to_owned();
            Err(Fault::reference(BAD_CERTIFICATE, message))
        }
        ([], Some(fault)) => Err(fault),
        ([_], Some(fault)) if matches!(found.first(), Some(Err(_))) => {
            BUILT_IN.clone_into(&mut out.credential_name);
            let message = format!("{}; clients see the certificate of the router's workload", fault.message);
            Ok(Some(Fault { message, ..fault }))
        }
        ([only], fault) => {
            out.credential_name.clone_from(only);
            Ok(fault)
        }
        (_, fault) => {
            out.credential_names = names;
            Ok(fault)
        }
    }
}

/// Returns the validation of clients' certificates: of the listener, else of the Gateway for its port, else
/// for all ports. An entry for the port replaces the Gateway's default even if it demands nothing. The object
/// that has it comes with it.
fn client_validation<'a>(
    owner: &'a ListenerOwner,
    listener: &Listener,
    tls: &'a ListenerTls,
) -> Option<(&'a ObjectKey, &'a FrontendTlsValidation)> {
    let of_gateway = || {
        let frontend = owner.gateway.spec.tls.as_ref()?.frontend.as_ref()?;
        let of_port = frontend.per_port.iter().find(|port| port.port == listener.port);
        let settings = match of_port {
            Some(of_port) => of_port.tls.as_ref(),
            None => frontend.default.as_ref(),
        };
        Some((owner.gateway.key(), settings?.validation.as_ref()?))
    };
    tls.frontend_validation.as_ref().map(|validation| (owner.key(), validation)).or_else(of_gateway)
}

/// The name of a certificate's secret, if it is there and the listener's owner may use it.
fn certificate(cx: &Cx<'_>, owner: &ListenerOwner, secret: &SecretObjectReference) -> Result<String, Fault> {
    let own = owner.namespace();
    let namespace = secret.namespace.as_deref().map_or_else(|| own.clone(), Namespace::from);
    let name = format!("{namespace}/{}", secret.name);
    if secret.kind != "Secret" || !secret.group.is_empty() {
        let message =
            format!("a certificate is a Secret, {name} is a {:?} of group {:?}", secret.kind, secret.group);
        return Err(Fault::reference(BAD_CERTIFICATE, message));
    }
    let kind = owner.key().kind;
    if !grants::allows(cx, (kind.name(), own), ("", "Secret", &namespace, &secret.name)) {
        return Err(not_granted(kind, "Secret", &name));
    }
    let found = cx.get(&KeyPairIn { namespace, name: secret.name.as_str().into() });
    match &*found {
        Ok(()) => Ok(format!("kubernetes-gateway://{name}")),
        Err(why) => Err(Fault::reference(BAD_CERTIFICATE, format!("Secret {name} {why}"))),
    }
}

/// The name of the authorities' certificates, if they are there and the object that names them may use them.
/// Like istiod, one reference is taken.
fn authority(cx: &Cx<'_>, by: &ObjectKey, validation: &FrontendTlsValidation) -> Result<String, Fault> {
    let [named] = validation.ca_certificate_refs.as_slice() else {
        let message = format!(
            "the validation of clients names {} objects with authorities, one can be served",
            validation.ca_certificate_refs.len()
        );
        return Err(Fault::reference(BAD_AUTHORITY, message));
    };
    let own = &by.namespace;
    let namespace = named.namespace.as_deref().map_or_else(|| own.clone(), Namespace::from);
    let name = format!("{namespace}/{}", named.name);
    let (kind, scheme) = kind_of(named, &name)?;
    if !grants::allows(cx, (by.kind.name(), own), ("", kind.name(), &namespace, &named.name)) {
        return Err(not_granted(by.kind, kind.name(), &name));
    }
    let found = cx.get(&AuthoritiesIn { kind, namespace, name: named.name.as_str().into() });
    match &*found {
        Ok(()) => Ok(format!("{scheme}://{name}{CA_SUFFIX}")),
        Err(why) => Err(Fault::reference(BAD_AUTHORITY, format!("{} {name} {why}", kind.name()))),
    }
}

/// The kind of an object with authorities, and the scheme of its name.
fn kind_of(named: &ObjectReference, name: &str) -> Result<(Kind, &'static str), Fault> {
    match (named.group.as_str(), named.kind.as_str()) {
        ("", "ConfigMap") => Ok((Kind::ConfigMap, "configmap")),
        ("", "Secret") => Ok((Kind::Secret, "kubernetes-gateway")),
        (group, kind) => {
            let message =
                format!("authorities are a ConfigMap or a Secret, {name} is a {kind:?} of group {group:?}");
            Err(Fault::reference("InvalidCACertificateKind", message))
        }
    }
}

fn not_granted(by: Kind, kind: &str, name: &str) -> Fault {
    Fault::reference(REF_NOT_PERMITTED, format!("no ReferenceGrant lets this {by} use the {kind} {name}"))
}

#[cfg(test)]
mod tests;
