//! Webhooks of a cluster: settings and subsystem.

use super::ca::Ca;
use super::subsystem::{StopOrder, Subsystem, with_flag};
use crate::settings::Settings;
use anyhow::{Context, Result};
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_admin_state::WebhookView;
use pilotfish_config::ObjectCheck;
use pilotfish_control_plane::followers::Analysis;
use pilotfish_kube::client;
use pilotfish_model::{Object, Revision};
use pilotfish_node::bootstrap::PodTarget;
use pilotfish_node::injection::{authorities_of, injector};
use pilotfish_translate::Level;
use pilotfish_webhook::inject::Injector;
use pilotfish_webhook::{
    Bound, CertificateLifetimes, Certificates, Observer, Validator, WebhookController,
    WebhookControllerSettings,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Time for which webhooks behind a Service answer after the stop signal, because API servers may still
/// connect here.
const LAST_CALL: Duration = Duration::from_secs(3);

/// Settings of the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookSettings {
    /// Address to listen on.
    pub(crate) address: SocketAddr,
    /// Service of the webhooks, `NAME.NAMESPACE`.
    pub(crate) service: String,
    /// URL of the webhooks in place of the Service, `https://HOST:PORT`.
    pub(crate) url: Option<String>,
    /// Revision, of which the tags do not matter here.
    pub(crate) revision: Revision,
    /// Namespace of the Secret with the certificates.
    pub(crate) namespace: String,
    /// Template of sidecars; `None` for the default.
    pub(crate) template: Option<PathBuf>,
    /// Values of the template.
    pub(crate) values: BTreeMap<String, String>,
    /// Transport between sidecars and Pilotfish.
    pub(crate) sidecars: Sidecars,
    /// Address of Pilotfish for sidecars, `HOST:PORT`.
    pub(crate) xds_address: String,
    /// Id of the sidecars' cluster.
    pub(crate) cluster_id: String,
}

/// Transport between injected sidecars and Pilotfish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sidecars {
    /// Plaintext gRPC, without authorities.
    Plain,
    /// TLS, with the authorities in this file.
    ByAuthorities(PathBuf),
    /// TLS, with the authorities of the webhooks' Secret.
    ByKeptAuthorities,
}

impl WebhookSettings {
    /// Returns the address and transport for sidecars.
    fn target(&self, certificates: Arc<Certificates>, ca: Option<Arc<Ca>>) -> Result<PodTarget> {
        let target = PodTarget::new(&self.xds_address, &self.cluster_id)?;
        Ok(match &self.sidecars {
            Sidecars::Plain => target,
            Sidecars::ByAuthorities(path) => target.over_tls(authorities_of("--injection-xds-ca", path)?),
            // The authorities exist before the first injection, because API servers verify the webhooks'
            // certificate with them.
            Sidecars::ByKeptAuthorities => target.over_tls(Arc::new(move || {
                let kept =
                    certificates.authorities().map(|kept| kept.as_str().to_owned()).unwrap_or_default();
                // With an authority of its own, Pilotfish's certificate for sidecars is signed by that.
                kept + &ca.as_ref().map(|ca| ca.roots_pem()).unwrap_or_default()
            })),
        })
    }

    /// Returns the names of the webhooks' certificate.
    fn names(&self) -> BTreeSet<String> {
        let host = self.url.as_deref().and_then(url_host).map(str::to_owned);
        // `istioctl tag set` writes configurations that name istiod's Service of the revision.
        let istiod = format!("istiod-{}.{}", self.revision.label(), self.namespace);
        // API servers use the names below `svc` for Services.
        let names = [self.service.clone(), istiod].map(|name| [format!("{name}.svc"), name]);
        names.into_iter().flatten().chain(host).collect()
    }
}

/// Returns the host of `https://HOST[:PORT]`; `None` for other texts, and with a path.
#[must_use]
pub(crate) fn url_host(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("https://")?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<IpAddr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port_is_good =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    (port_is_good && !host.is_empty() && host.chars().all(known)).then_some(host)
}

/// Webhooks with a bound address that do not answer yet.
pub(crate) struct Webhooks {
    bound: Bound,
    controller: WebhookController,
    injector: Injector,
    target: PodTarget,
    observer: Arc<dyn Observer>,
    analysis: Arc<Analysis>,
    revision: watch::Receiver<Revision>,
    last_call: Duration,
}

impl Webhooks {
    /// Binds the address; `None` if webhooks are disabled.
    ///
    /// # Errors
    /// When the address is taken, or there is no cluster.
    pub(crate) async fn bind(
        settings: &Settings,
        recorder: &Arc<PrometheusRecorder>,
        analysis: &Arc<Analysis>,
        revision: &watch::Sender<Revision>,
        ca: Option<&Arc<Ca>>,
    ) -> Result<Option<Self>> {
        let Some((settings, cluster)) = settings.webhooks.as_ref().zip(settings.sources.kubernetes.as_ref())
        else {
            return Ok(None);
        };
        let bound = Bound::bind(settings.address).await;
        let bound = bound.map_err(|error| with_flag(error, "--webhook-address"))?;
        let bound = bound.with_observer(recorder.clone());
        let target = settings.target(bound.certificates(), ca.cloned())?;
        let target = target.with_certificates(ca.is_some());
        let injector = injector(settings.template.as_deref(), settings.values.clone(), target.clone())?;
        let injector = injector.with_revision(&settings.revision);
        let client = client::connect(cluster).await.context("--kubernetes")?;
        let last_call = if settings.url.is_some() { Duration::ZERO } else { LAST_CALL };
        let controller = WebhookControllerSettings {
            revision: settings.revision.clone(),
            namespace: settings.namespace.clone(),
            names: settings.names(),
            url: settings.url.clone(),
            lifetimes: CertificateLifetimes::default(),
            clock: Arc::new(|now| now),
        };
        let controller = WebhookController::new(client, controller, bound.certificates());
        let (observer, analysis, revision) = (recorder.clone(), analysis.clone(), revision.subscribe());
        Ok(Some(Self { bound, controller, injector, target, observer, analysis, revision, last_call }))
    }

    /// Returns the view for the admin API.
    #[must_use]
    pub(crate) fn view(&self) -> WebhookView {
        WebhookView::new(self.bound.certificates(), self.injector.template().to_owned())
    }

    /// Returns the address and transport of Pilotfish for Envoys of Pods.
    #[must_use]
    pub(crate) fn target(&self) -> PodTarget {
        self.target.clone()
    }

    /// Returns the bound address.
    #[must_use]
    pub(crate) fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// Returns the certificates for the Service's names.
    #[must_use]
    pub(crate) fn certificates(&self) -> Arc<Certificates> {
        self.bound.certificates()
    }

    /// Returns the subsystem. It answers for a while after the stop signal, until the registration is
    /// withdrawn, so that API servers do not connect to a closed port.
    pub(crate) fn subsystem(self) -> Subsystem {
        let analysis = self.analysis;
        let warnings = move |object: &Object| {
            let found = analysis.of_object(object).into_iter();
            let found = found.filter(|finding| finding.code.level() == Level::Warning);
            found.map(|finding| finding.as_problem()).collect()
        };
        let checks: Vec<ObjectCheck> = vec![pilotfish_translate::check_object];
        let revision = self.revision;
        let validator = Validator::new(checks).with_analysis(Arc::new(warnings));
        let validator = validator.with_revision(Arc::new(move || revision.borrow().clone()));
        let router = pilotfish_webhook::router(validator, self.injector, &self.observer);
        let (close, closed) = watch::channel(false);
        let (controller, last_call, bound) = (self.controller, self.last_call, self.bound);
        Subsystem::new("the webhooks", StopOrder::First)
            .task(move |stop| async move {
                controller.run(stop.into_receiver()).await;
                tokio::time::sleep(last_call).await;
                close.send_replace(true);
                Ok(())
            })
            .task(|_| async {
                bound.run(router, closed).await;
                Ok(())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_https_with_a_host_and_no_path() {
        for (url, host) in [
            ("https://127.0.0.1:15017", Some("127.0.0.1")),
            ("https://pilotfish.example.com", Some("pilotfish.example.com")),
            ("https://[::1]:15017", Some("::1")),
            ("http://127.0.0.1:15017", None),
            ("https://127.0.0.1:15017/validate", None),
            ("https://127.0.0.1:port", None),
            ("https://[a]:1", None),
            ("https://", None),
        ] {
            assert_eq!(url_host(url), host, "{url}");
        }
    }

    #[test]
    fn a_certificate_has_the_names_that_api_servers_use() {
        let settings = WebhookSettings {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            revision: Revision::named("canary"),
            service: "pilotfish.istio-system".into(),
            url: Some("https://127.0.0.1:15017".into()),
            namespace: "istio-system".into(),
            template: None,
            values: BTreeMap::new(),
            sidecars: Sidecars::Plain,
            xds_address: "pilotfish.istio-system.svc:15010".into(),
            cluster_id: "Kubernetes".into(),
        };
        let names: Vec<_> = settings.names().into_iter().collect();
        let expected = [
            "127.0.0.1",
            "istiod-canary.istio-system",
            "istiod-canary.istio-system.svc",
            "pilotfish.istio-system",
            "pilotfish.istio-system.svc",
        ];
        assert_eq!(names, expected);
    }
}
