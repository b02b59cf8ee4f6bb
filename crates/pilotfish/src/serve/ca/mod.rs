//! The certificate authority of the mesh: its files, the certificate that it signs for this process, and the
//! service that signs for workloads.

mod files;
pub(crate) mod service;

use super::polled_files::{Outcome, POLL_INTERVAL, PolledFiles};
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::{CaSource, Settings};
use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use files::{AuthorityFiles, AuthorityTexts};
use pilotfish_admin::Metrics;
use pilotfish_ca::{Authority, Lifetimes, Serving};
use pilotfish_runtime::FileReader;
pub(crate) use service::CaService;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Validity of this process's own certificate, which is replaced after half of it.
const SERVING: Duration = Duration::from_secs(24 * 3600);

/// The authority in force.
pub(crate) struct Ca {
    authority: ArcSwap<Authority>,
    serving: Arc<Serving>,
    lifetimes: Lifetimes,
    /// DNS names and addresses of this process.
    names: BTreeSet<String>,
    metrics: Arc<Metrics>,
}

/// Reloading of the authority's files, and replacement of this process's certificate.
pub(crate) struct CaReload {
    ca: Arc<Ca>,
    files: AuthorityFiles,
    state: PolledFiles<AuthorityTexts>,
    /// Time at which the certificate in force is replaced.
    renew: SystemTime,
}

impl Ca {
    /// Opens the authority; `None` if it is off. A self-signed one is created if its file does not exist.
    ///
    /// # Errors
    /// When its files cannot be used or created.
    pub(crate) fn open(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Option<(Arc<Self>, CaReload)>> {
        let Some(own) = &settings.ca else { return Ok(None) };
        let now = SystemTime::now();
        let files = match &own.source {
            CaSource::SelfSigned(folder) => AuthorityFiles::self_signed(folder, now).context("--data-dir")?,
            CaSource::Files(folder) => AuthorityFiles::Folder(folder.clone()),
        };
        let texts = files.read().context("--ca")?;
        let authority = texts.authority(now).context("--ca")?;
        let names = names(settings);
        let serving = authority.server(&names, SERVING, now).context("the certificate of this process")?;
        let ca = Self {
            authority: ArcSwap::from_pointee(authority),
            serving: Arc::new(Serving::new(serving)),
            lifetimes: own.lifetimes,
            names,
            metrics: metrics.clone(),
        };
        ca.note_expiry(now);
        let ca = Arc::new(ca);
        let reload =
            CaReload { ca: ca.clone(), files, state: PolledFiles::new(texts), renew: now + SERVING / 2 };
        Ok(Some((ca, reload)))
    }

    /// Returns the roots in PEM.
    pub(crate) fn roots_pem(&self) -> String {
        self.authority.load().roots_pem()
    }

    /// Returns the certificate of this process, which the authority signs.
    pub(crate) fn serving(&self) -> Arc<Serving> {
        self.serving.clone()
    }

    /// Puts an authority in force, and replaces this process's certificate by one of it.
    fn put_in_force(&self, authority: Authority, now: SystemTime) -> Result<()> {
        let serving = authority.server(&self.names, SERVING, now)?;
        self.authority.store(Arc::new(authority));
        self.serving.replace(serving);
        Ok(())
    }

    /// Replaces this process's certificate.
    fn renew(&self, now: SystemTime) -> Result<()> {
        self.serving.replace(self.authority.load().server(&self.names, SERVING, now)?);
        Ok(())
    }

    fn note_expiry(&self, now: SystemTime) {
        let authority = self.authority.load();
        self.metrics.ca.set_expiry(authority.root_expires(), authority.expires(), now);
    }
}

impl CaReload {
    /// Returns the subsystem that reloads and renews until the process ends.
    pub(crate) fn subsystem(mut self) -> Subsystem {
        Subsystem::new("the certificate authority", StopOrder::Abort).task(|_| async move {
            let reader = FileReader::default();
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                let files = self.files.clone();
                let read = reader.run(move || files.read()).await;
                let read = read.unwrap_or_else(|error| Err(anyhow::anyhow!("reading files: {error}")));
                self.step(read, SystemTime::now());
            }
        })
    }

    /// Puts changed files in force, and replaces this process's certificate when it is time.
    fn step(&mut self, read: Result<AuthorityTexts>, now: SystemTime) {
        let ca = self.ca.clone();
        let outcome = self.state.step(read.map_err(|error| format!("{error:#}")), |texts| {
            ca.put_in_force(texts.authority(now)?, now)
        });
        match outcome {
            Outcome::Unchanged => {}
            Outcome::Reloaded => {
                tracing::info!("new files of the certificate authority are in force");
                self.renew = now + SERVING / 2;
            }
            Outcome::Failed(reason) => tracing::error!(
                reason,
                "files of the certificate authority cannot be used; those before stay in force"
            ),
        }
        if now >= self.renew {
            match ca.renew(now) {
                Ok(()) => self.renew = now + SERVING / 2,
                Err(error) => {
                    tracing::error!(
                        %error,
                        "the certificate of the secure port cannot be renewed; the next try is in a minute"
                    );
                    self.renew = now + Duration::from_secs(60);
                }
            }
        }
        ca.metrics.ca.files_refused.set(i64::from(self.state.is_failing()));
        ca.note_expiry(now);
    }
}

/// Returns the DNS names and addresses by which clients reach this process: those of istiod's Services and of
/// Pilotfish's, and of this machine.
fn names(settings: &Settings) -> BTreeSet<String> {
    let sources = &settings.sources;
    let namespace = &sources.root_namespace;
    let services = ["istiod".to_owned(), "istio-pilot".into(), "pilotfish".into()];
    let of_revision = ["istiod", "pilotfish"].map(|name| sources.revision.name_of(name));
    let services = services.into_iter().chain(of_revision).map(|name| format!("{name}.{namespace}"));
    let services = services.chain(settings.webhooks.iter().map(|webhooks| webhooks.service.clone()));
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let bound = settings.tls.iter().map(|tls| tls.address.ip()).filter(|ip: &IpAddr| !ip.is_unspecified());
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_dns = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let machine = Some(machine).filter(|name| !name.is_empty() && name.chars().all(is_dns));
    services
        .flat_map(|name| [format!("{name}.svc"), name])
        .chain(local)
        .chain(bound.map(|ip| ip.to_string()))
        .chain(machine)
        .collect()
}

#[cfg(test)]
mod tests;
