//! Reconciler of certificates and webhook configurations.
//!
//! ```text
//!  Secret pilotfish-webhook-certificate ◀── shared by replicas ──▶ need / make (pure)
//!        │                                       │
//!        ▼                                       ▼
//!  caBundle, failurePolicy of the configurations   the certificate that is served, swapped while running
//! ```
//!
//! Each reconciliation reads the whole state; watches and the clock only trigger it. So missed events are
//! harmless, and of two concurrent replicas, one finds the work done.

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
use pilotfish_admission::TokenBucket;
use pilotfish_kube::request::BACKOFF;
use pilotfish_model::Revision;
use pilotfish_runtime::{Backoff, Jitter};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Interval of reconciliations without a trigger.
const RESYNC: Duration = Duration::from_secs(60);
/// Maximum number of reconciliations without a pause: each writes one object. More mean that another
/// controller reverts the writes.
const RECONCILES_AT_ONCE: usize = 8;
/// Time to collect triggers before a reconciliation.
const GATHER: Duration = Duration::from_millis(100);
/// Burst of writes: several times those of a start, a rotation and a repair together. The limit bounds a
/// conflict with another writer, such as a process with other settings, or a tool that restores a previous
/// state.
const BURST: u32 = 20;
/// Minimum interval of writes after the burst.
const PERIOD: Duration = Duration::from_secs(10);
/// Timeout of a reconciliation.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);

/// Conversion from the API server's time to the time for certificates.
pub type Clock = Arc<dyn Fn(SystemTime) -> SystemTime + Send + Sync>;

/// Settings of the webhook registration.
#[derive(Clone)]
pub struct WebhookControllerSettings {
    /// Revision: each has its own Secret and configurations.
    pub revision: Revision,
    /// Namespace of the Secret, and of the object that probes whether the API server calls this process.
    pub namespace: String,
    /// DNS names and IP addresses under which API servers call this process.
    pub names: BTreeSet<String>,
    /// URL for API servers outside of the cluster's network, `https://HOST:PORT` without a path. Only one
    /// process can have it.
    pub url: Option<String>,
    pub lifetimes: CertificateLifetimes,
    /// Source of time for validity and renewal of certificates.
    pub clock: Clock,
}

/// Controller of certificates and configurations, as described in the module.
pub struct WebhookController {
    client: Client,
    settings: WebhookControllerSettings,
    certificates: Arc<Certificates>,
    /// Certificates that the server uses; `None` before the first step.
    serving: Option<Material>,
    /// Last logged error, to log each one once.
    reported: Option<String>,
    limiter: TokenBucket,
    /// True if the throttling has been logged.
    throttled: bool,
    /// Names of tags whose configurations cannot be written, which has been logged.
    denied_tags: BTreeSet<String>,
}

/// Result of a reconciliation.
enum Reconciliation {
    /// The state is as desired.
    Done,
    /// An object was written; the next reconciliation checks the result at once.
    Again,
}

impl WebhookController {
    /// Creates a controller that sets the certificates in `certificates`.
    #[must_use]
    pub fn new(client: Client, settings: WebhookControllerSettings, certificates: Arc<Certificates>) -> Self {
        Self {
            client,
            settings,
            certificates,
            serving: None,
            reported: None,
            limiter: TokenBucket::new(BURST, PERIOD),
            throttled: false,
            denied_tags: BTreeSet::new(),
        }
    }

    /// Runs until `stop` is set, and then releases the webhooks: with a URL of this process, objects are no
    /// longer checked.
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

    /// Remaining pause after too many writes.
    fn throttle(&mut self) -> Duration {
        let hold = self.limiter.wait(Instant::now());
        if !hold.is_zero() && !self.throttled {
            tracing::warn!(
                secret = self.settings.revision.name_of(SECRET),
                configurations = ?[VALIDATOR, INJECTOR].map(|base| self.settings.revision.name_of(base)),
                "another controller changes the webhooks' Secret or configurations; throttling our writes"
            );
        }
        self.throttled = !hold.is_zero();
        hold
    }

    async fn reconcile(&mut self) -> Result<Reconciliation, StepError> {
        let round = async {
            let Some(material) = self.material().await? else { return Ok(Reconciliation::Again) };
            // Announces the authorities before their certificate is served.
            let policy = self.register(&material, Policy::Careful).await;
            self.serve(material)?;
            policy
        };
        match timeout(RECONCILE_TIMEOUT, round).await {
            Ok(Ok(round)) => {
                if self.reported.take().is_some() {
                    tracing::info!("webhooks are reconciled again");
                }
                Ok(round)
            }
            // Another replica was faster, so the new state has to be read.
            Ok(Err(error)) if error.is_conflict() => Ok(Reconciliation::Again),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StepError::local(
                "reconciling the webhooks",
                format!("timed out after {} s", RECONCILE_TIMEOUT.as_secs()),
            )),
        }
    }

    fn report(&mut self, error: &StepError) {
        let text = error.to_string();
        if self.reported.as_ref() != Some(&text) {
            tracing::warn!(reason = text, "cannot reconcile the webhooks; retrying");
            self.reported = Some(text);
        }
    }

    /// Current time for certificates.
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

    /// Certificates in the Secret, if they are valid; otherwise renews them.
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

    /// Patches the configurations to the desired state. Missing ones are no error: they may be created later.
    async fn register(&mut self, material: &Material, policy: Policy) -> Result<Reconciliation, StepError> {
        let injectors = self.injectors();
        let injector = injectors.get_opt(&self.settings.revision.name_of(INJECTOR)).await;
        let injector = injector
            .map_err(|error| StepError::request("reading the MutatingWebhookConfiguration", error))?;
        if let Some(injector) = injector {
            // The author of the configuration decides on the failure policy of injection.
            let wanted = (material, "/inject", Policy::Written);
            self.amend(&injectors, &injector, &mutating(&injector), wanted).await?;
        }
        self.register_tags(material).await?;
        self.register_validator(material, policy).await
    }

    /// Patches the configurations of tags to the desired state, as far as this is allowed: `istioctl tag set`
    /// copies the current authorities.
    async fn register_tags(&mut self, material: &Material) -> Result<(), StepError> {
        let api = self.injectors();
        let list = api.list(&ListParams::default().labels(&self.settings.revision.tag_selector())).await;
        let list = match list.map_err(|error| StepError::request("reading the configurations of tags", error))
        {
            Ok(list) => list,
            // Already logged: the control loop follows tags as well.
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
                "the authorities in this tag's configuration are out of date and may not be replaced: Pods \
                 of the tag are not created; name the tag in the chart (revisionTags), or run `istioctl tag \
                 set` again with --overwrite"
            );
        }
    }

    /// Patches the validator to the desired state, and sets `Fail` once the API server is proven to call it.
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
        // The proof needs a served certificate: the very first one is served after this reconciliation.
        if policy != Policy::Careful || all_fail(&webhooks) {
            return Ok(Reconciliation::Done);
        }
        if self.serving.is_none() {
            return Ok(Reconciliation::Again);
        }
        let WebhookControllerSettings { namespace, revision, .. } = &self.settings;
        probe::refuses(&self.client, namespace, revision, &webhooks).await?;
        tracing::info!("the API server calls this webhook: setting the failure policy Fail");
        self.amend(&api, &validator, &webhooks, (material, path, Policy::Fail)).await?;
        Ok(Reconciliation::Again)
    }

    /// Patches a configuration that differs from the desired state.
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
        tracing::info!(name, "patched a webhook configuration");
        Ok(true)
    }

    /// Sets `Ignore` if the configuration has the URL of this process, since no other replica can answer
    /// there. Behind a Service other replicas may answer, and an operator who removes the last one also
    /// removes the configuration.
    async fn release(&mut self) {
        let (Some(_), Some(material)) = (&self.settings.url, self.serving.clone()) else { return };
        match timeout(RECONCILE_TIMEOUT, self.register(&material, Policy::Ignore)).await {
            Ok(Ok(_)) => tracing::info!(
                "set the failure policy Ignore: objects are not checked until a webhook responds again"
            ),
            Ok(Err(error)) => {
                tracing::warn!(
                    %error,
                    "cannot set the failure policy Ignore: objects are refused until a webhook responds again"
                )
            }
            Err(_) => {
                tracing::warn!(
                    "setting the failure policy Ignore timed out: objects are refused until a webhook \
                     responds again"
                )
            }
        }
    }
}
