//! `pilotfish certificates`: obtains the certificate of a workload from the authority of a mesh, and renews
//! it.

mod args;
mod client;
mod folder;
mod schedule;

pub(crate) use args::Certificates;

use anyhow::{Context, Result};
use client::{AuthorityClient, Failure};
use folder::OutputFolder;
use pilotfish_ca::IssuedCertificate;
use pilotfish_control_plane::control::time;
use schedule::Schedule;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Longest sleep before the clock is read again, which may be set meanwhile.
const CHECK: Duration = Duration::from_secs(30);

impl Certificates {
    /// Obtains and renews certificates until `stop` resolves.
    ///
    /// # Errors
    /// When a flag or the folder cannot be used, or the first certificate is refused.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) -> Result<ExitCode> {
        let client = self.client()?;
        let folder = OutputFolder::open(&self.output_dir)?;
        tokio::pin!(stop);
        if self.once {
            tokio::select! {
                done = once(&client, &folder) => done?,
                () = &mut stop => {}
            }
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            done = keep(&client, &folder) => done?,
            () = &mut stop => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn once(client: &AuthorityClient, folder: &OutputFolder) -> Result<()> {
    let certificate = renew(client, folder).await.map_err(|failure| error(&failure))?;
    tracing::info!(
        identity = certificate.identity,
        expires = time(certificate.expires),
        "obtained a certificate"
    );
    Ok(())
}

/// Renews the certificate in the folder. Does not return, unless the first one is refused.
async fn keep(client: &AuthorityClient, folder: &OutputFolder) -> Result<()> {
    let mut expires = None;
    let mut schedule = Schedule::default();
    match folder.kept(client.identity(), SystemTime::now()) {
        Ok(Some(kept)) => {
            schedule.obtained(kept.obtained, kept.certificate.expires);
            expires = Some(kept.certificate.expires);
            let (identity, expires) = (kept.certificate.identity, time(kept.certificate.expires));
            tracing::info!(identity, expires, "the certificate in the folder is valid");
        }
        Ok(None) => {}
        Err(error) => {
            let reason = format!("{error:#}");
            tracing::warn!(reason, "the certificate in the folder cannot be used; a new one is requested");
        }
    }
    loop {
        wait_until(schedule.due()).await;
        match renew(client, folder).await {
            Ok(certificate) => {
                schedule.obtained(SystemTime::now(), certificate.expires);
                expires = Some(certificate.expires);
                let (identity, expires) = (certificate.identity, time(certificate.expires));
                tracing::info!(identity, expires, renewal = time(schedule.due()), "obtained a certificate");
            }
            Err(failure) if expires.is_none() && failure.is_permanent => return Err(error(&failure)),
            Err(failure) => {
                let wait = schedule.failed(SystemTime::now());
                tracing::warn!(
                    reason = failure.reason,
                    expires = expires.map(time),
                    next_try = %format_args!("in {} s", wait.as_secs().max(1)),
                    "no certificate was obtained; the files stay as they are"
                );
            }
        }
    }
}

/// Obtains a certificate and writes it.
async fn renew(client: &AuthorityClient, folder: &OutputFolder) -> Result<IssuedCertificate, Failure> {
    let (key, certificate) = client.obtain().await?;
    let written = folder.replace(&key, &certificate).context("writing to --output-dir");
    written.map_err(|error| Failure::permanent(&error))?;
    Ok(certificate)
}

fn error(failure: &Failure) -> anyhow::Error {
    anyhow::anyhow!("no certificate was obtained: {}", failure.reason)
}

async fn wait_until(due: SystemTime) {
    while let Ok(left) = due.duration_since(SystemTime::now())
        && !left.is_zero()
    {
        tokio::time::sleep(left.min(CHECK)).await;
    }
}
