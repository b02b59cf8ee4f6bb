//! The certificate authority of the mesh: its files or Secrets, the certificate that it signs for this
//! process, the service that signs for workloads, and the ConfigMaps with its roots.

mod files;
mod issuer;
pub(crate) mod messages;
mod processors;
pub(super) mod roots;
pub(crate) mod rotate;
mod secrets;
pub(crate) mod service;
pub(crate) mod signer;
mod source;
pub(super) mod trust_bundles;
mod view;

use super::polled_files::{Outcome, PolledFiles};
use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::{CaSettings, CaSource, Settings};
use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use files::{AuthorityFiles, AuthorityTexts};
use issuer::Issuer;
use pilotfish_admin::Metrics;
use pilotfish_ca::{Lifetimes, Rotation, Serving};
use pilotfish_kube_writer::signing_requests::SigningRequests;
use pilotfish_runtime::FileReader;
use rustls::sign::CertifiedKey;
pub(crate) use secrets::{WorkloadSecrets, WorkloadSecretsHook};
pub(crate) use service::CaService;
use signer::ClusterSigner;
use source::{AuthoritySecrets, AuthoritySource};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use trust_bundles::TrustBundles;

/// Validity of this process's own certificate, which is replaced after half of it.
const SERVING: Duration = Duration::from_secs(24 * 3600);

/// Pause after a failed try to reach the next stage of a rotation.
const ROTATION_RETRY: Duration = Duration::from_secs(60);

/// The authority in force.
pub(crate) struct Ca {
    authority: ArcSwap<Issuer>,
    /// Signer that has the key, if it is not this process.
    signer: Option<ClusterSigner>,
    /// Roots in PEM, for those that follow them.
    roots: watch::Sender<Arc<str>>,
    /// Roots of other trust domains.
    bundles: Arc<TrustBundles>,
    /// Certificate of this process, if the authority signs one.
    serving: Option<Arc<Serving>>,
    lifetimes: Lifetimes,
    standing: ArcSwap<Standing>,
    /// Files or Secrets, for rotations.
    source: AuthoritySource,
    /// DNS names and addresses of this process.
    names: BTreeSet<String>,
    metrics: Arc<Metrics>,
}

/// State of the authority for operators.
#[derive(Clone, Default)]
struct Standing {
    /// File or Secret of the certificate that signs, or the signer.
    source: String,
    /// Stage of a rotation, and its end.
    rotation: Option<(&'static str, SystemTime)>,
    /// Reason why the newest key and certificates are not in force.
    failure: Option<String>,
}

impl Standing {
    fn of(texts: &AuthorityTexts, signer: Option<&ClusterSigner>) -> Self {
        let rotation = texts.rotation().map(|rotation| (rotation.stage(), rotation.until));
        let source = match signer {
            Some(signer) => format!("signer {}, with the roots in {}", signer.name(), texts.origin()),
            None => texts.origin().to_owned(),
        };
        Self { source, rotation, failure: None }
    }
}

/// Reloading of the authority's files or Secrets, and replacement of this process's certificate.
pub(crate) struct CaReload {
    ca: Arc<Ca>,
    source: AuthoritySource,
    state: PolledFiles<AuthorityTexts>,
    /// Time at which the certificate in force is replaced.
    renew: SystemTime,
    /// Time of the next try to reach the next stage of a rotation.
    retry: SystemTime,
    /// Number of polls in a row that found no lists of revoked certificates in place of those in force.
    without_lists: u32,
}

impl Ca {
    /// Opens the authority; `None` if it is off. A self-signed one is created if there is none yet.
    ///
    /// # Errors
    /// When its files or Secrets cannot be used or created.
    pub(crate) async fn open(
        settings: &Settings,
        sources: &Sources,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<(Arc<Self>, CaReload)>> {
        let Some(own) = &settings.ca else { return Ok(None) };
        let now = SystemTime::now();
        let mut signer = None;
        let source = match &own.source {
            CaSource::SelfSigned(folder) => {
                AuthoritySource::Files(AuthorityFiles::self_signed(folder, now).context("--data-dir")?)
            }
            CaSource::Files(folder) => AuthoritySource::Files(AuthorityFiles::Folder(folder.clone())),
            CaSource::Secret => {
                let (client, _) = sources.clients().context("--ca secret: no cluster is read")?;
                let secrets = AuthoritySecrets::open(client, &settings.sources.root_namespace, now).await;
                AuthoritySource::Secrets(secrets.context("--ca secret")?)
            }
            CaSource::Signer { name, roots } => {
                let (client, _) = sources.clients().context("--ca-signer: no cluster is read")?;
                signer = Some(ClusterSigner::new(SigningRequests::new(client, name.clone())));
                AuthoritySource::Files(AuthorityFiles::Roots(roots.clone()))
            }
        };
        Self::with_source(settings, own, (source, signer), metrics, now).await.map(Some)
    }

    /// Opens the authority of a source.
    async fn with_source(
        settings: &Settings,
        own: &CaSettings,
        (mut source, signer): (AuthoritySource, Option<ClusterSigner>),
        metrics: &Arc<Metrics>,
        now: SystemTime,
    ) -> Result<(Arc<Self>, CaReload)> {
        let texts = source.read(&FileReader::default()).await.context("--ca")?;
        let authority = texts.authority(now).context("--ca")?;
        let names = names(settings);
        let serving = authority.server(&names, SERVING, now)?;
        let ca = Self {
            roots: watch::Sender::new(authority.roots_pem().into()),
            bundles: Arc::new(TrustBundles::new(metrics.clone())),
            authority: ArcSwap::from_pointee(authority),
            serving: serving.map(|serving| Arc::new(Serving::new(serving))),
            lifetimes: own.lifetimes,
            standing: ArcSwap::from_pointee(Standing::of(&texts, signer.as_ref())),
            signer,
            source: source.clone(),
            names,
            metrics: metrics.clone(),
        };
        ca.note_state(&texts, None, None, now);
        let ca = Arc::new(ca);
        let (state, renew) = (PolledFiles::new(texts), now + SERVING / 2);
        let reload = CaReload { ca: ca.clone(), source, state, renew, retry: now, without_lists: 0 };
        Ok((ca, reload))
    }

    /// Returns the roots in PEM.
    pub(crate) fn roots_pem(&self) -> String {
        self.authority.load().roots_pem()
    }

    /// Returns the roots in PEM, and the lists of revoked certificates.
    pub(crate) fn trusted_pem(&self) -> (String, Option<String>) {
        let authority = self.authority.load();
        (authority.roots_pem(), authority.revocations_pem().map(str::to_owned))
    }

    /// Returns the roots in PEM, now and when they change.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<str>> {
        self.roots.subscribe()
    }

    /// Returns the roots of other trust domains.
    pub(crate) fn bundles(&self) -> &Arc<TrustBundles> {
        &self.bundles
    }

    /// Returns the certificate of this process, if the authority signs one.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        self.serving.clone()
    }

    /// Puts an authority in force, and replaces this process's certificate by one of it.
    fn put_in_force(&self, authority: Issuer, now: SystemTime) -> Result<()> {
        let serving = authority.server(&self.names, SERVING, now)?;
        let roots: Arc<str> = authority.roots_pem().into();
        self.authority.store(Arc::new(authority));
        self.roots.send_if_modified(|before| std::mem::replace(before, roots.clone()) != roots);
        self.replace_serving(serving);
        Ok(())
    }

    fn replace_serving(&self, certificate: Option<CertifiedKey>) {
        if let Some((serving, certificate)) = self.serving.as_ref().zip(certificate) {
            serving.replace(certificate);
        }
    }

    /// Replaces this process's certificate.
    fn renew(&self, now: SystemTime) -> Result<()> {
        self.replace_serving(self.authority.load().server(&self.names, SERVING, now)?);
        Ok(())
    }

    /// Notes the state for operators, with the reason why newer texts are not in force. Lists of revoked
    /// certificates that are missing, or expire while they are in force, are a failure as well.
    fn note_state(
        &self,
        texts: &AuthorityTexts,
        refused: Option<String>,
        missing: Option<String>,
        now: SystemTime,
    ) {
        let expired = || self.authority.load().check_revocations(now).err().map(|error| error.to_string());
        let is_logged = refused.is_some();
        let failure = match (refused, missing) {
            (Some(refused), Some(missing)) => Some(format!("{refused}; {missing}")),
            (refused, missing) => refused.or(missing),
        };
        let failure = failure.or_else(expired);
        if let Some(reason) = &failure
            && !is_logged
            && self.standing.load().failure.as_ref() != Some(reason)
        {
            tracing::error!(reason, "the revocation lists before stay in force");
        }
        self.metrics.ca.files_refused.set(i64::from(failure.is_some()));
        let standing = Standing::of(texts, self.signer.as_ref());
        self.standing.store(Arc::new(Standing { failure, ..standing }));
        let (root, signing) = self.authority.load().expiry();
        self.metrics.ca.set_expiry(root, signing, now);
    }
}

impl CaReload {
    /// Returns the subsystem that reloads and renews until the process ends.
    pub(crate) fn subsystem(mut self) -> Subsystem {
        Subsystem::new("the certificate authority", StopOrder::Abort).task(|_| async move {
            let reader = FileReader::default();
            loop {
                tokio::time::sleep(self.source.interval()).await;
                let now = SystemTime::now();
                self.advance(now).await;
                let read = self.source.read(&reader).await;
                self.step(read, now);
            }
        })
    }

    /// Begins the next stage of a rotation when it is time. Another replica may be faster: then its stage is
    /// read.
    async fn advance(&mut self, now: SystemTime) {
        let rotation = self.state.in_force().rotation();
        if rotation.is_none_or(|rotation| now < rotation.until.max(self.retry)) {
            return;
        }
        match self.source.change(|state| Ok(state.advance(now)?)).await {
            Ok(None) => {}
            Ok(Some(state)) => {
                let stage = state.rotation.as_ref().map_or("none", Rotation::stage);
                tracing::info!(stage, "the rotation of the root has reached its next stage");
            }
            Err(error) => {
                self.retry = now + ROTATION_RETRY;
                tracing::warn!(
                    reason = %format!("{error:#}"),
                    "the rotation of the root cannot reach its next stage; the next try is in a minute"
                );
            }
        }
    }

    /// Puts changed key and certificates in force, and replaces this process's certificate when it is time.
    fn step(&mut self, read: Result<AuthorityTexts>, now: SystemTime) {
        let ca = self.ca.clone();
        let (read, is_kept, missing) = self.with_lists(read, now);
        let outcome = self.state.step(read.map_err(|error| format!("{error:#}")), |texts| {
            let authority = texts.authority(now)?;
            // Kept lists are in force, expired or not.
            if !is_kept {
                authority.check_revocations(now)?;
            }
            ca.put_in_force(authority, now)
        });
        match outcome {
            Outcome::Unchanged => {}
            Outcome::Reloaded => {
                tracing::info!("new key and certificates of the certificate authority are in force");
                self.renew = now + SERVING / 2;
            }
            Outcome::Failed(reason) => tracing::error!(
                reason,
                "key and certificates of the certificate authority cannot be used; those before stay in force"
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
        ca.note_state(self.state.in_force(), self.state.failure().map(str::to_owned), missing, now);
    }

    /// Keeps the lists of revoked certificates in force if the texts have none, and returns whether it did.
    /// Also returns the reason for operators when that has lasted for two polls, because files may be written
    /// in place.
    fn with_lists(
        &mut self,
        read: Result<AuthorityTexts>,
        now: SystemTime,
    ) -> (Result<AuthorityTexts>, bool, Option<String>) {
        let Ok(mut texts) = read else { return (read, false, None) };
        let mut kept = texts.keep_revocations(self.state.in_force()).map(|path| {
            format!("{path} is missing: a list without entries, or a restart, ends the revocations")
        });
        if kept.is_some()
            && texts != *self.state.in_force()
            && texts.end_revocations(&self.ca.authority.load(), now)
        {
            kept = None;
        }
        let is_kept = kept.is_some();
        self.without_lists = if is_kept { self.without_lists.saturating_add(1) } else { 0 };
        (Ok(texts), is_kept, kept.filter(|_| self.without_lists > 1))
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
    let bound = settings.tls.iter().map(|tls| tls.address.ip());
    let bound = bound.chain(settings.admin.secure.iter().map(|secure| secure.address.ip()));
    let bound = bound.filter(|ip: &IpAddr| !ip.is_unspecified());
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
