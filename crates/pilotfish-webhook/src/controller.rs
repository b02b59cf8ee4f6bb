//! Keeps certificates and webhook configurations as they ought to be, for as long as the process runs.
//!
//! ```text
//!  Secret pilotfish-webhook-certificate ◀── shared by replicas ──▶ need / make (pure)
//!        │                                       │
//!        ▼                                       ▼
//!  caBundle, failurePolicy of the configurations   the certificate that is served, swapped while running
//! ```
//!
//! Each reconciliation reads everything; watches and the clock only trigger it. So missed events do not matter, and two
//! replicas that do the same at a time find each other's work done.

use crate::certificate::{CertificateLifetimes, Material, Need, certified, make, need};
use crate::clock;
use crate::error::StepError;
use crate::probe;
use crate::registration::{
    DesiredWebhook, INJECTOR, Policy, VALIDATOR, Webhook, all_fail, injecting, mutating, patch, validating,
};
use crate::server::{Certificates, stopped};
use crate::store::{self, SECRET};
use crate::watch as object_watch;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchParams};
use kube::{Client, Resource, ResourceExt};
use pilotfish_kube::request::BACKOFF;
use pilotfish_model::Revision;
use pilotfish_source::{Backoff, Jitter, RateLimiter};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How often everything is reconciled without a trigger.
const RESYNC: Duration = Duration::from_secs(60);
/// Reconciliations without a pause: each writes one object. More mean that another controller reverts the writes.
const RECONCILES_AT_ONCE: usize = 8;
/// How long signs that something changed are gathered.
const GATHER: Duration = Duration::from_millis(100);
/// Writes that may come at once: all that a start, a rotation and a repair write together, several times over. So who writes the
/// opposite of what we write, another process with other settings or a tool that puts back what it knows, is answered, but not
/// for ever as fast as both can.
const BURST: u32 = 20;
/// How soon there may be another write after that.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a round may take.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for certificates, out of that of the API server.
pub type Clock = Arc<dyn Fn(SystemTime) -> SystemTime + Send + Sync>;

/// How webhooks are registered.
#[derive(Clone)]
pub struct WebhookControllerSettings {
    /// The revision: each has a Secret and configurations of its own.
    pub revision: Revision,
    /// The namespace of the Secret, and of the object that probes whether the API server calls us.
    pub namespace: String,
    /// What API servers call us: DNS names and IP addresses.
    pub names: BTreeSet<String>,
    /// Where API servers outside of the cluster's network reach us, `https://HOST:PORT` without a path. Only one process can be there.
    pub url: Option<String>,
    /// How long certificates hold.
    pub lifetimes: CertificateLifetimes,
    /// The time, out of that of the API server.
    pub clock: Clock,
}

/// See the module's description.
pub struct WebhookController {
    client: Client,
    settings: WebhookControllerSettings,
    certificates: Arc<Certificates>,
    /// What is served.
    serving: Option<Material>,
    /// The error that was logged last.
    reported: Option<String>,
    limiter: RateLimiter,
    /// Whether the throttling was logged.
    throttled: bool,
    /// Configurations of tags that may not be written, which was logged.
    denied_tags: BTreeSet<String>,
}

/// What a round came to.
enum Reconciliation {
    /// All is as it ought to be.
    Done,
    /// Something was written; the next round checks the result at once.
    Again,
}

impl WebhookController {
    /// A controller that gives certificates to `certificates`.
    #[must_use]
    pub fn new(client: Client, settings: WebhookControllerSettings, certificates: Arc<Certificates>) -> Self {
        Self {
            client,
            settings,
            certificates,
            serving: None,
            reported: None,
            limiter: RateLimiter::new(BURST, PERIOD),
            throttled: false,
            denied_tags: BTreeSet::new(),
        }
    }

    /// Runs until `stop` is set, and then releases the webhooks: with a URL of its own, objects pass from then on.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let (wakes, mut woken) = mpsc::channel(1);
        let mut watches = JoinSet::new();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let named = |base: &str| object_watch::named(&self.settings.revision.name_of(base));
        let tags = WatchParams::default().labels(&self.settings.revision.tag_selector());
        watches.spawn(object_watch::watch(secrets, named(SECRET), wakes.clone()));
        watches.spawn(object_watch::watch(self.validators(), named(VALIDATOR), wakes.clone()));
        watches.spawn(object_watch::watch(self.injectors(), named(INJECTOR), wakes.clone()));
        watches.spawn(object_watch::watch(self.injectors(), tags, wakes));
        let mut backoff = Backoff::new(BACKOFF, Jitter::default());
        let mut at_once = 0;
        loop {
            tokio::select! {
                () = sleep(self.throttle()) => {}
                () = stopped(&mut stop) => break,
            }
            let wait = match self.reconcile().await {
                Ok(Reconciliation::Again) if at_once < RECONCILES_AT_ONCE => {
                    at_once += 1;
                    continue;
                }
                Ok(Reconciliation::Again) => backoff.wait(),
                Ok(Reconciliation::Done) => {
                    backoff.reset();
                    RESYNC
                }
                Err(error) => {
                    self.report(&error);
                    backoff.wait()
                }
            };
            at_once = 0;
            tokio::select! {
                () = sleep(wait) => {}
                Some(()) = woken.recv() => sleep(GATHER).await,
                () = stopped(&mut stop) => break,
            }
        }
        drop(watches);
        self.release().await;
    }

    /// How long nothing is written because too much was.
    fn throttle(&mut self) -> Duration {
        let hold = self.limiter.wait(Instant::now());
        if !hold.is_zero() && !self.throttled {
            tracing::warn!(
                secret = self.settings.revision.name_of(SECRET),
                configurations = ?[VALIDATOR, INJECTOR].map(|base| self.settings.revision.name_of(base)),
                "another controller writes to the webhooks' Secret or configurations; from now on they are restored more slowly"
            );
        }
        self.throttled = !hold.is_zero();
        hold
    }

    async fn reconcile(&mut self) -> Result<Reconciliation, StepError> {
        let round = async {
            let Some(material) = self.material().await? else { return Ok(Reconciliation::Again) };
            // First the API server trusts the authorities, then their certificate is served.
            let policy = self.register(&material, Policy::Careful).await;
            self.serve(material)?;
            policy
        };
        match timeout(RECONCILE_TIMEOUT, round).await {
            Ok(Ok(round)) => {
                if self.reported.take().is_some() {
                    tracing::info!("webhooks are as they ought to be again");
                }
                Ok(round)
            }
            // Somebody else was first, so there is something new to see.
            Ok(Err(error)) if error.is_conflict() => Ok(Reconciliation::Again),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StepError::local(
                "keeping webhooks",
                format!("no end within {} s", RECONCILE_TIMEOUT.as_secs()),
            )),
        }
    }

    fn report(&mut self, error: &StepError) {
        let text = error.to_string();
        if self.reported.as_ref() != Some(&text) {
            tracing::warn!(reason = text, "webhooks are not as they ought to be; trying again");
            self.reported = Some(text);
        }
    }

    /// The time for certificates.
    async fn now(&self) -> SystemTime {
        let theirs = clock::of_api_server(&self.client).await;
        (self.settings.clock)(theirs.unwrap_or_else(SystemTime::now))
    }

    fn validators(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    fn injectors(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// What the Secret holds, when that is good; otherwise it is written.
    async fn material(&mut self) -> Result<Option<Material>, StepError> {
        let WebhookControllerSettings { namespace, names, lifetimes, revision, .. } = &self.settings.clone();
        let secret_name = revision.name_of(SECRET);
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let fail = |error| StepError::request("reading the Secret with certificates of webhooks", error);
        let secret = api.get_opt(&secret_name).await.map_err(fail)?;
        let (now, before) = (self.now().await, secret.as_ref().map(store::material));
        let need = match &before {
            Some(before) => need(before, names, lifetimes, now),
            None => Need::Everything("there is none yet".into()),
        };
        let (what, why) = match &need {
            Need::Nothing => return Ok(before),
            Need::Certificate(why) => ("certificate", why),
            Need::Authority(why) => ("authority", why),
            Need::Everything(why) => ("authority and certificate", why),
        };
        tracing::info!(what, reason = why, "renewing certificates of webhooks");
        let made = make(before.as_ref(), &need, names, lifetimes, now);
        let made = made.map_err(|error| StepError::local("making certificates", error.to_string()))?;
        self.limiter.take(Instant::now());
        store::write(&api, &secret_name, secret, &made).await?;
        Ok(None)
    }

    fn serve(&mut self, material: Material) -> Result<(), StepError> {
        if self.serving.as_ref() == Some(&material) {
            return Ok(());
        }
        let certified =
            certified(&material).map_err(|why| StepError::local("serving the certificate", why))?;
        self.certificates.set(certified, material.authorities.clone());
        tracing::info!("a certificate of webhooks is served");
        self.serving = Some(material);
        Ok(())
    }

    /// Brings the configurations to the desired state. A missing configuration is no error: it may be made later.
    async fn register(&mut self, material: &Material, policy: Policy) -> Result<Reconciliation, StepError> {
        let injectors = self.injectors();
        let injector = injectors.get_opt(&self.settings.revision.name_of(INJECTOR)).await;
        let injector = injector
            .map_err(|error| StepError::request("reading the MutatingWebhookConfiguration", error))?;
        if let Some(injector) = injector {
            // Whether Pods may start without a sidecar is up to the author of the configuration.
            let wanted = (material, "/inject", Policy::Written);
            self.amend(&injectors, &injector, &mutating(&injector), wanted).await?;
        }
        self.register_tags(material).await?;
        self.register_validator(material, policy).await
    }

    /// Brings the configurations of tags to the desired state, as far as they may be written: `istioctl tag set` copies the authorities
    /// of today.
    async fn register_tags(&mut self, material: &Material) -> Result<(), StepError> {
        let api = self.injectors();
        let list = api.list(&ListParams::default().labels(&self.settings.revision.tag_selector())).await;
        let list = match list.map_err(|error| StepError::request("reading the configurations of tags", error))
        {
            Ok(list) => list,
            // The log has that already: the control loop follows tags as well.
            Err(error) if error.is_denied() => return Ok(()),
            Err(error) => return Err(error),
        };
        self.denied_tags.retain(|name| list.iter().any(|tag| tag.name_any() == *name));
        for tag in list {
            let wanted = (material, "/inject", Policy::Written);
            match self.amend(&api, &tag, &injecting(&tag), wanted).await {
                Err(error) if error.is_denied() => self.report_tag(&tag.name_any(), &error),
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn report_tag(&mut self, name: &str, error: &StepError) {
        if self.denied_tags.insert(name.to_owned()) {
            tracing::warn!(
                name,
                reason = %error,
                "the authorities in this tag's configuration are out of date and may not be replaced: Pods of the tag are not \
                 created; name the tag in the chart (revisionTags), or run `istioctl tag set` again with --overwrite"
            );
        }
    }

    /// Brings the validator to the desired state, and makes it strict once it is proven to be called.
    async fn register_validator(
        &mut self,
        material: &Material,
        policy: Policy,
    ) -> Result<Reconciliation, StepError> {
        let validator = self.validators().get_opt(&self.settings.revision.name_of(VALIDATOR)).await;
        let validator = validator
            .map_err(|error| StepError::request("reading the ValidatingWebhookConfiguration", error))?;
        let Some(validator) = validator else { return Ok(Reconciliation::Done) };
        let webhooks = validating(&validator);
        let (api, path) = (self.validators(), "/validate");
        if self.amend(&api, &validator, &webhooks, (material, path, policy)).await? {
            return Ok(Reconciliation::Again);
        }
        // Proven is proven by what is served: the very first certificate is served after this round.
        if policy != Policy::Careful || all_fail(&webhooks) {
            return Ok(Reconciliation::Done);
        }
        if self.serving.is_none() {
            return Ok(Reconciliation::Again);
        }
        let WebhookControllerSettings { namespace, revision, .. } = &self.settings;
        probe::refuses(&self.client, namespace, revision, &webhooks).await?;
        tracing::info!(
            "the API server calls this webhook: from now on it refuses objects that no webhook can check"
        );
        self.amend(&api, &validator, &webhooks, (material, path, Policy::Fail)).await?;
        Ok(Reconciliation::Again)
    }

    /// Patches a configuration where it is not as wanted.
    async fn amend<K>(
        &mut self,
        api: &Api<K>,
        configuration: &K,
        webhooks: &[Webhook<'_>],
        (material, path, policy): (&Material, &str, Policy),
    ) -> Result<bool, StepError>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let url = self.settings.url.as_ref().map(|base| format!("{base}{path}"));
        let wanted = DesiredWebhook { authorities: &material.authorities, url: url.as_deref(), policy };
        let (name, version) = (configuration.name_any(), configuration.meta().resource_version.as_deref());
        let Some(patch) = patch(webhooks, version, &wanted) else { return Ok(false) };
        self.limiter.take(Instant::now());
        api.patch(&name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
            .map_err(|error| StepError::request("writing a webhook configuration", error))?;
        tracing::info!(name, "amended a webhook configuration");
        Ok(true)
    }

    /// With an address of our own there is no other replica that could answer. Behind a Service others may, and an operator who removes the last
    /// one removes the configuration as well.
    async fn release(&mut self) {
        let (Some(_), Some(material)) = (&self.settings.url, self.serving.clone()) else { return };
        match timeout(RECONCILE_TIMEOUT, self.register(&material, Policy::Ignore)).await {
            Ok(Ok(_)) => tracing::info!("objects pass unchecked until a webhook answers again"),
            Ok(Err(error)) => tracing::warn!(%error, "objects are refused until a webhook answers again"),
            Err(_) => {
                tracing::warn!("objects are refused until a webhook answers again: the API server is silent")
            }
        }
    }
}
