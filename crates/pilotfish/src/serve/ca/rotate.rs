//! Beginning of a rotation, by those who may write the file or the Secret of the authority.

use super::files::AuthorityFiles;
use super::source::{AuthoritySecrets, AuthoritySource};
use anyhow::{Context, Result};
use pilotfish_control_plane::control::time;
use pilotfish_kube::client::Client;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Begins a rotation of the self-signed authority in this folder, and returns the end of its first stage.
///
/// # Errors
/// When it cannot be read or written, or is being rotated.
pub(crate) async fn file(folder: &Path, overlap: Duration, now: SystemTime) -> Result<String> {
    begin(&AuthoritySource::Files(AuthorityFiles::kept_in(folder)), overlap, now).await
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
    begin(&AuthoritySource::Secrets(AuthoritySecrets::existing(client, namespace)), overlap, now).await
}

async fn begin(source: &AuthoritySource, overlap: Duration, now: SystemTime) -> Result<String> {
    let begun = source.change(|state| Ok(Some(state.begin(overlap, now)?))).await?;
    let rotation = begun.and_then(|state| state.rotation).context("the rotation has not begun")?;
    Ok(time(rotation.until))
}
