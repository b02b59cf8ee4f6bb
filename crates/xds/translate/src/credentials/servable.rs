//! Access to Secrets that may be served to proxies.

use crate::engine::Cx;
use pilotfish_config::kubernetes::{Secret, SecretType};
use pilotfish_model::{Namespace, Typed};

/// Returns a Secret, unless it belongs to a control plane or its type has no certificates for proxies.
pub(crate) fn secret(cx: &Cx<'_>, namespace: &Namespace, name: &str) -> Option<Typed<Secret>> {
    let secret = cx.object::<Secret>(namespace, name)?;
    let has_certificates = matches!(secret.content_type(), SecretType::Certificates | SecretType::Unknown);
    let is_closed = || Secret::is_of_control_plane(secret.meta(), &cx.mesh().root_namespace);
    if has_certificates && !is_closed() { Some(secret) } else { None }
}
