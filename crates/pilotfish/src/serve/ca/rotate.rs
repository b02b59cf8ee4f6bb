//! Beginning of a rotation: by those who may write the file or the Secret of the authority, or by a request
//! to the admin API.

use super::files::AuthorityFiles;
use super::source::{AuthoritySecrets, AuthoritySource};
use super::{Ca, view};
use anyhow::{Context, Result};
use pilotfish_admin_state::{AuthorityOperations, Rotating};
use pilotfish_api::v1::{CaRotation, CertificateAuthority};
use pilotfish_control_plane::control::time;
use pilotfish_kube::client::Client;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Begins a rotation of the self-signed authority in this folder, and returns the end of its first stage.
///
/// # Errors
/// When it cannot be read or written, or is being rotated.
pub(crate) async fn file(folder: &Path, overlap: Duration, now: SystemTime) -> Result<String> {
    let source = AuthoritySource::Files(AuthorityFiles::kept_in(folder));
    Ok(begin(&source, overlap, now).await?.until)
}

/// Begins a rotation of the self-signed authority of a cluster, and returns the end of its first stage.
///
/// # Errors
/// As [`file`], and when the cluster has a plug-in authority.
pub(crate) async fn secret(
    client: Client,
    namespace: &str,
    overlap: Duration,
    now: SystemTime,
) -> Result<String> {
    let source = AuthoritySource::Secrets(AuthoritySecrets::existing(client, namespace));
    Ok(begin(&source, overlap, now).await?.until)
}

impl AuthorityOperations for Ca {
    fn view(&self) -> CertificateAuthority {
        view::view(&self.authority.load(), &self.standing.load(), self.metrics.ca.signed.get())
    }

    fn rotate(&self, overlap: Duration) -> Rotating<'_> {
        Box::pin(async move {
            let begun = begin(&self.source, overlap, SystemTime::now()).await;
            begun.map_err(|error| format!("{error:#}"))
        })
    }
}

async fn begin(source: &AuthoritySource, overlap: Duration, now: SystemTime) -> Result<CaRotation> {
    let begun = source.change(|state| Ok(Some(state.begin(overlap, now)?))).await?;
    let rotation = begun.and_then(|state| state.rotation).context("the rotation has not begun")?;
    Ok(CaRotation { stage: rotation.stage().to_owned(), until: time(rotation.until) })
}
