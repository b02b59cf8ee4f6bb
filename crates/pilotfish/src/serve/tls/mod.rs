//! Listeners with TLS: their certificates, from files or from the webhooks, and tokens that API servers
//! review.

mod files;

use super::ca::CaService;
use super::polled_files::{Outcome, POLL_INTERVAL, PolledFiles};
use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use super::webhooks::Webhooks;
use crate::settings::{CertificateSource, Settings, TlsSettings};
use anyhow::{Context, Result};
pub(crate) use files::Files;
use files::Texts;
use pilotfish_admin::IntGauge;
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::resources::TokenAuthenticator;
use pilotfish_identity::{Authenticator, ServerCertificate, Tls};
use pilotfish_kube::remote::RemoteClients;
use pilotfish_kube::token_review::TokenReviewer;
use pilotfish_kube_writer::auto_registration::WorldNow;
use pilotfish_runtime::FileReader;
use pilotfish_xds::{Recorder, TlsListenerConfig, UnaryMethod};
use std::sync::Arc;

/// Reloading of the certificates of a listener.
pub(crate) struct Reload {
    /// Name of the listener, for logs.
    listener: &'static str,
    files: Files,
    state: PolledFiles<Texts>,
    tls: Arc<Tls>,
    /// 1 while the files cannot be used.
    refused: IntGauge,
    kept: Option<ServerCertificate>,
}

/// Returns TLS with the files. `kept` is the certificate if none is configured in files.
///
/// # Errors
/// When the files cannot be used.
pub(crate) fn of_files(
    listener: &'static str,
    files: Files,
    kept: Option<ServerCertificate>,
    alpn: &'static [&'static str],
    refused: IntGauge,
) -> Result<(Arc<Tls>, Reload)> {
    let texts = files.read()?;
    let (certificate, authorities) = texts.material(kept.as_ref())?;
    let tls = Arc::new(Tls::new(certificate, authorities, alpn)?);
    Ok((tls.clone(), Reload { listener, files, state: PolledFiles::new(texts), tls, refused, kept }))
}

/// Returns the secure listener, if it is enabled, with the reloading of its certificates.
///
/// # Errors
/// When the files cannot be used.
pub(crate) fn open(
    settings: &Settings,
    sources: &Sources,
    (service, webhooks): (Option<Arc<CaService>>, Option<&Webhooks>),
    shared: &Arc<Shared>,
    recorder: &Arc<PrometheusRecorder>,
    jwt: &[Arc<dyn Authenticator>],
) -> Result<Option<(TlsListenerConfig, Reload)>> {
    let Some(secure) = &settings.tls else { return Ok(None) };
    let ca = service.as_ref().map(|service| service.ca());
    let kept = match &secure.certificate {
        CertificateSource::Files { .. } => None,
        CertificateSource::Webhooks => {
            let webhooks = webhooks.context("--secure-xds-address: no webhooks that keep a certificate")?;
            Some(ServerCertificate::resolved_by(webhooks.certificates()))
        }
        CertificateSource::Authority => {
            let own = ca.and_then(|ca| ca.serving());
            let own = own.context("--secure-xds-address: no certificate authority that signs one")?;
            Some(ServerCertificate::resolved_by(own))
        }
    };
    let files = Files::of(&secure.certificate, &secure.authorities).with_authority(ca.cloned());
    let refused = recorder.metrics().secure.files_refused.clone();
    let (tls, reload) = of_files("xDS", files, kept, pilotfish_xds::ALPN, refused)?;
    let reviews = authenticators(secure, settings, sources, shared, recorder.clone());
    // Offline before a request to an API server.
    let authenticators = jwt.iter().cloned().chain(reviews).collect();
    let methods = service.into_iter().map(|service| service as Arc<dyn UnaryMethod>).collect();
    Ok(Some((TlsListenerConfig { address: secure.address, tls, authenticators, methods }, reload)))
}

fn authenticators(
    secure: &TlsSettings,
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
    recorder: Arc<dyn Recorder>,
) -> Vec<Arc<dyn Authenticator>> {
    let Some((client, remote)) = sources.clients() else { return Vec::new() };
    let own = (settings.registries.settings.cluster.to_string().into(), client);
    let reviewer = TokenReviewer::new(own, remote, secure.audiences.clone());
    let world = world_of(shared);
    vec![Arc::new(TokenAuthenticator::new(reviewer, world, Some(recorder)))]
}

/// Returns the authenticator of service accounts of the own cluster; `None` if no cluster is read.
pub(crate) fn own_accounts(
    audiences: Vec<String>,
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
) -> Option<Arc<dyn Authenticator>> {
    let (client, _) = sources.clients()?;
    let own = (settings.registries.settings.cluster.to_string().into(), client);
    let reviewer = TokenReviewer::new(own, RemoteClients::default(), audiences);
    Some(Arc::new(TokenAuthenticator::new(reviewer, world_of(shared), None)))
}

fn world_of(shared: &Arc<Shared>) -> WorldNow {
    let shared = shared.clone();
    Arc::new(move || shared.world())
}

impl Reload {
    /// Returns the subsystem that reloads until the process ends.
    pub(crate) fn subsystem(self) -> Subsystem {
        let name = format!("reloading TLS files of {}", self.listener);
        Subsystem::new(name, StopOrder::Abort).task(|_| async {
            self.run().await;
            Ok(())
        })
    }

    /// Polls the files, and puts valid contents in force. Does not return.
    async fn run(self) {
        let Self { listener, files, mut state, tls, refused, kept } = self;
        let reader = FileReader::default();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let own = files.clone();
            let read = reader.run(move || own.read()).await;
            let read = read.unwrap_or_else(|error| Err(anyhow::anyhow!("reading files: {error}")));
            let outcome = state.step(read.map_err(|error| format!("{error:#}")), |pems| {
                let (certificate, authorities) = pems.material(kept.as_ref())?;
                tls.replace(certificate, authorities).map_err(Into::into)
            });
            match outcome {
                Outcome::Unchanged => {}
                Outcome::Reloaded => tracing::info!("new TLS files are in force for {listener}"),
                Outcome::Failed(reason) => {
                    tracing::error!(
                        reason,
                        "TLS files of {listener} cannot be used; those before stay in force"
                    );
                }
            }
            refused.set(i64::from(state.is_failing()));
        }
    }
}
