//! Injector of sidecars that connect to Pilotfish: template, values and authorities.

use crate::bootstrap::{AuthoritiesNow, PodTarget};
use anyhow::{Context, Result};
use pilotfish_identity::{Authorities, Pem};
use pilotfish_webhook::inject::{DEFAULT_TEMPLATE, Injector};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Audience of the tokens that Istio's agents and injected sidecars have.
pub const AUDIENCE: &str = "istio-ca";

/// Template value with the audience of sidecars' tokens.
pub const TOKEN_AUDIENCE: &str = "tokenAudience";

/// Template value that is set if sidecars take the certificates of their workloads from Pilotfish.
const WORKLOAD_CERTIFICATES: &str = "workloadCertificates";

/// Reads the certificate authorities of a file, which must have at least one.
///
/// # Errors
/// When the file cannot be read or has none.
pub fn authorities_of(name: &str, path: &Path) -> Result<AuthoritiesNow> {
    let origin = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} {origin}"))?;
    Authorities::from_pem(&[Pem { origin: &origin, text: text.as_bytes() }]).context(name.to_owned())?;
    Ok(Arc::new(move || text.clone()))
}

/// Returns an injector of sidecars that connect to `target`.
///
/// # Errors
/// When the template cannot be read, or is wrong.
pub fn injector(
    template: Option<&Path>,
    mut values: BTreeMap<String, String>,
    target: PodTarget,
) -> Result<Injector> {
    if target.has_certificates() {
        values.entry(WORKLOAD_CERTIFICATES.to_owned()).or_insert_with(|| "ads".to_owned());
    }
    let text = match template {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("--template {}", path.display()))?
        }
        None => DEFAULT_TEMPLATE.to_owned(),
    };
    Ok(Injector::new(&text, values, Arc::new(move |workload| target.bootstrap(workload)))?)
}
