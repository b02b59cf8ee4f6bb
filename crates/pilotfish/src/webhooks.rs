//! The webhooks of a cluster: settings, and the tasks that run them.

use crate::bootstrap::PodTarget;
use crate::inject::{authorities_of, injector};
use crate::recorder::Counted;
use anyhow::{Context, Result};
use pilotfish_admin::Metrics;
use pilotfish_kube::client::{self, ClientSettings};
use pilotfish_webhook::inject::Injector;
use pilotfish_webhook::{
    Bound, Certificates, Observer, Terms, Validator, WebhookController, WebhookControllerSettings,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the webhooks of a Service answer after they were told to stop: so long may API servers still be sent here.
const LAST_CALL: Duration = Duration::from_secs(3);

/// How long a process that has no certificate yet is not ready because of that. Without a right to have one it serves proxies all the same.
const PATIENCE: Duration = Duration::from_secs(30);

/// What webhooks get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Where API servers ask.
    pub address: SocketAddr,
    /// The Service through which they do, `NAME.NAMESPACE`.
    pub service: String,
    /// Where they do instead, `https://HOST:PORT`.
    pub url: Option<String>,
    /// The namespace of the Secret with the certificates.
    pub namespace: String,
    /// The template of sidecars; `None` for the default.
    pub template: Option<PathBuf>,
    /// Values of the template.
    pub values: BTreeMap<String, String>,
    /// How sidecars reach Pilotfish.
    pub sidecars: Sidecars,
    /// Where they do, HOST:PORT.
    pub xds_address: String,
    /// The cluster that they are in.
    pub cluster_id: String,
}

/// How injected sidecars reach Pilotfish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sidecars {
    /// In plaintext.
    Plain,
    /// Over TLS, with the authorities in this file.
    ByAuthorities(PathBuf),
    /// Over TLS, with the authorities that the webhooks keep.
    ByKeptAuthorities,
}

impl WebhookSettings {
    /// Where sidecars find Pilotfish.
    fn target(&self, certificates: Arc<Certificates>) -> Result<PodTarget> {
        let target = PodTarget::new(&self.xds_address, &self.cluster_id)?;
        Ok(match &self.sidecars {
            Sidecars::Plain => target,
            Sidecars::ByAuthorities(path) => target.over_tls(authorities_of("--injection-xds-ca", path)?),
            // There are some before an API server can ask for a sidecar: it checks our certificate by them.
            Sidecars::ByKeptAuthorities => target.over_tls(Arc::new(move || {
                certificates.authorities().map(|kept| kept.as_str().to_owned()).unwrap_or_default()
            })),
        })
    }

    /// The names that the certificate must have.
    fn names(&self) -> BTreeSet<String> {
        let host = self.url.as_deref().and_then(url_host).map(str::to_owned);
        // API servers use the second for Services.
        let names = [self.service.clone(), format!("{}.svc", self.service)];
        names.into_iter().chain(host).collect()
    }
}

/// The host of `https://HOST[:PORT]`; `None` when it is no such address, or has a path.
#[must_use]
pub fn url_host(url: &str) -> Option<&str> {
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

/// What the admin API tells of webhooks.
pub struct WebhookView {
    certificates: Arc<Certificates>,
    patient_until: Instant,
    template: String,
}

impl WebhookView {
    /// Whether API servers that are sent here would meet a door without a certificate, which passes soon.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        !self.certificates.is_served() && Instant::now() < self.patient_until
    }

    /// The template of sidecars.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.template
    }
}

/// Webhooks that have their address and do not answer yet.
pub struct Webhooks {
    bound: Bound,
    controller: WebhookController,
    injector: Injector,
    observer: Arc<dyn Observer>,
    last_call: Duration,
}

impl Webhooks {
    /// Takes the address.
    ///
    /// # Errors
    /// When it is taken, or there is no such cluster.
    pub async fn bind(
        settings: &WebhookSettings,
        cluster: &ClientSettings,
        metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        let bound = Bound::bind(settings.address).await.context("hint: --webhook-address")?;
        let target = settings.target(bound.certificates())?;
        let injector = injector(settings.template.as_deref(), settings.values.clone(), target)?;
        let client = client::connect(cluster).await.context("--kubernetes")?;
        let last_call = if settings.url.is_some() { Duration::ZERO } else { LAST_CALL };
        let controller = WebhookControllerSettings {
            namespace: settings.namespace.clone(),
            names: settings.names(),
            url: settings.url.clone(),
            terms: Terms::default(),
            clock: Arc::new(|now| now),
        };
        let controller = WebhookController::new(client, controller, bound.certificates());
        Ok(Self { bound, controller, injector, observer: Arc::new(Counted(metrics.clone())), last_call })
    }

    /// What the admin API tells of them.
    #[must_use]
    pub fn view(&self) -> WebhookView {
        WebhookView {
            certificates: self.bound.certificates(),
            patient_until: Instant::now() + PATIENCE,
            template: self.injector.template().to_owned(),
        }
    }

    /// Where API servers ask.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// The certificate that is kept for the Service's names.
    #[must_use]
    pub fn certificates(&self) -> Arc<Certificates> {
        self.bound.certificates()
    }

    /// Runs until told to stop. The tasks end when they are done; none ends before.
    #[must_use]
    pub fn start(self, stop: &watch::Receiver<bool>) -> JoinSet<()> {
        let validator = Validator::new(vec![pilotfish_translate::envoy_filter::check_object]);
        let router = pilotfish_webhook::router(validator, self.injector, &self.observer);
        let mut tasks = JoinSet::new();
        // What is registered is let go before the server ends, so that nobody is sent to a closed door.
        let (closing, close) = watch::channel(false);
        let stop = stop.clone();
        let (controller, last_call) = (self.controller, self.last_call);
        tasks.spawn(async move {
            controller.run(stop).await;
            tokio::time::sleep(last_call).await;
            closing.send_replace(true);
        });
        tasks.spawn(self.bound.run(router, close));
        tasks
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
    fn a_door_without_a_certificate_is_not_waited_for_for_ever() {
        let view = |patience| WebhookView {
            certificates: Arc::default(),
            patient_until: Instant::now() + patience,
            template: String::new(),
        };
        assert!(view(PATIENCE).is_starting());
        assert!(!view(Duration::ZERO).is_starting());
    }

    #[test]
    fn a_certificate_has_the_names_that_api_servers_use() {
        let settings = WebhookSettings {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
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
        assert_eq!(names, ["127.0.0.1", "pilotfish.istio-system", "pilotfish.istio-system.svc"]);
    }
}
