//! Registries with a source of their own: the trait and settings of sources, and the batches that they send.
//!
//! ```text
//! product ◀─ its protocol ─▶ LiveSource ── RegistryBatch, health ──▶ RegistrySender ── merged ─┐
//!                                               AggregateController ◀── control loop ◀─────────┘
//! ```
//!
//! A source sends complete values: all instances of a service, never a difference. Content and health are
//! separate: a source that cannot reach its product reports the failure and sends no content, so the content
//! sent before stays in force; only a batch removes content. The sender neither blocks nor queues: batches
//! that the control loop has not taken yet are merged by key, so a source that is faster than the loop costs
//! no more memory than its distinct content.

use crate::catalog::{GUARD_OPTION, GUARD_WAIT_OPTION};
use crate::registry::RegistryUpdate;
use crate::report::SourceReport;
use crate::settings::RegistrySettings;
use crate::table::RegistryType;
use pilotfish_model::{Endpoint, NetworkGateway, Service, ServiceKey, ShardKey, Workload, WorkloadKey};
use pilotfish_runtime::{
    CoalescingReceiver, CoalescingSender, GuardSettings, OptionValues, OptionsError, coalescer,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Source of services, endpoints and workloads over the protocol of its product.
pub trait LiveSource: Send {
    /// Reads the product and sends its content until the task is dropped. The source reconnects with backoff;
    /// returning is a defect, which ends the process.
    fn run(self: Box<Self>, sender: RegistrySender) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Settings of a live registry: one `--registry NAME[/INSTANCE]=ADDRESS[?OPTION=VALUE&...]`.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// Shard of the registry: its provider, the cluster of its workloads and its instance.
    pub shard: ShardKey,
    /// Address of the product, as written after the `=`, without options.
    pub address: String,
    /// Options. A source takes those that it knows.
    pub options: OptionValues,
    /// Settings common to all registries.
    pub registry: RegistrySettings,
}

impl LiveSettings {
    /// Removes and parses a duration above zero: `500ms`, `10s`, `1m30s`.
    pub fn parse_duration(&mut self, option: &str, mistakes: &mut Vec<String>) -> Option<Duration> {
        self.options.parse(option, mistakes, |text| {
            pilotfish_duration::parse_above_zero(text).map_err(|error| error.to_string())
        })
    }

    /// Removes and parses `guard` and `guardWait`, with the settings of all registries as defaults. `wait` is
    /// the product's own default.
    pub fn parse_guard(&mut self, wait: Option<Duration>, mistakes: &mut Vec<String>) -> GuardSettings {
        let of_all = self.registry.guard;
        let share = self.options.parse(GUARD_OPTION.name, mistakes, GuardSettings::parse_share);
        let given = self.parse_duration(GUARD_WAIT_OPTION.name, mistakes);
        GuardSettings {
            share: share.unwrap_or(of_all.share),
            wait: given.or(wait).unwrap_or(of_all.wait),
            ..of_all
        }
    }

    /// Checks that no option is left.
    ///
    /// # Errors
    /// With one line for each option that the source did not take.
    pub fn finish(self, entry: &RegistryType) -> Result<(), OptionsError> {
        let known: Vec<&str> = entry.all_options().map(|option| option.name).collect();
        let list = format!("pilotfish registries {}", entry.name.to_ascii_lowercase());
        let unknown = |option| pilotfish_config::unknown_name("option", option, &known, &list);
        let mistakes: Vec<String> = self.options.names().map(unknown).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(OptionsError(mistakes)) }
    }
}

/// Content of a live source: complete values by key, for its own shard.
#[derive(Clone, Debug, Default)]
pub struct RegistryBatch {
    complete: bool,
    services: BTreeMap<ServiceKey, Arc<[Arc<Service>]>>,
    endpoints: BTreeMap<ServiceKey, Option<Arc<[Arc<Endpoint>]>>>,
    workloads: BTreeMap<WorkloadKey, Option<Arc<Workload>>>,
    gateways: Option<Arc<[NetworkGateway]>>,
}

impl RegistryBatch {
    /// Returns an empty batch that stands for everything in the registry: keys that it lacks are removed.
    #[must_use]
    pub fn complete() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// Returns an empty batch for some keys; all others stay unchanged.
    #[must_use]
    pub fn partial() -> Self {
        Self::default()
    }

    /// Sets the service of a host and namespace.
    pub fn set_service(&mut self, service: impl Into<Arc<Service>>) {
        let service = service.into();
        let key = service.key();
        self.services.insert(key, Arc::from([service]));
    }

    /// Removes a service with its endpoints.
    pub fn remove_service(&mut self, key: &ServiceKey) {
        self.services.insert(key.clone(), Arc::from([]));
        self.endpoints.insert(key.clone(), None);
    }

    /// Sets all endpoints of the registry for a service. An empty list is a service without endpoints.
    pub fn set_endpoints(&mut self, key: ServiceKey, endpoints: impl Into<Arc<[Arc<Endpoint>]>>) {
        self.endpoints.insert(key, Some(endpoints.into()));
    }

    pub fn set_workload(&mut self, workload: impl Into<Arc<Workload>>) {
        let workload = workload.into();
        self.workloads.insert(workload.key.clone(), Some(workload));
    }

    pub fn remove_workload(&mut self, key: WorkloadKey) {
        self.workloads.insert(key, None);
    }

    /// Sets all gateways between networks of the registry.
    pub fn set_gateways(&mut self, gateways: impl Into<Arc<[NetworkGateway]>>) {
        self.gateways = Some(gateways.into());
    }

    /// True if the batch changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { complete, services, endpoints, workloads, gateways } = self;
        !complete && services.is_empty() && endpoints.is_empty() && workloads.is_empty() && gateways.is_none()
    }

    /// True if the batch stands for everything in the registry.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Adds a later batch: its values replace those of the same key.
    pub fn merge(&mut self, later: Self) {
        if later.complete {
            *self = later;
            return;
        }
        self.services.extend(later.services);
        self.endpoints.extend(later.endpoints);
        self.workloads.extend(later.workloads);
        self.gateways = later.gateways.or_else(|| self.gateways.take());
    }

    /// True if the batch has a value for the key. The caller knows the keys of the registry.
    pub(crate) fn names_service(&self, key: &ServiceKey) -> bool {
        self.services.contains_key(key)
    }

    pub(crate) fn names_endpoints(&self, key: &ServiceKey) -> bool {
        self.endpoints.contains_key(key)
    }

    pub(crate) fn names_workload(&self, key: &WorkloadKey) -> bool {
        self.workloads.contains_key(key)
    }

    /// Converts the batch to updates of a registry.
    pub(crate) fn into_updates(self) -> impl Iterator<Item = RegistryUpdate> {
        let none: Arc<[NetworkGateway]> = Arc::default();
        let gateways = self.gateways.or_else(|| self.complete.then_some(none));
        self.services
            .into_iter()
            .map(|(key, services)| RegistryUpdate::Services(key, services))
            .chain(self.endpoints.into_iter().map(|(key, list)| RegistryUpdate::Endpoints(key, list)))
            .chain(self.workloads.into_iter().map(|(key, workload)| RegistryUpdate::Workload(key, workload)))
            .chain(gateways.into_iter().map(RegistryUpdate::Gateways))
    }
}

/// Content and health that a live source sent since the last read. Content applies first.
#[derive(Clone, Debug, Default)]
pub struct LiveInput {
    pub batch: Option<RegistryBatch>,
    /// True once the source has sent its complete content, even if it failed later, because readiness needs
    /// complete content only once.
    pub synced: bool,
    /// Reason why the source cannot read its product at present. Content sent before stays in force.
    pub failure: Option<Arc<str>>,
}

impl LiveInput {
    fn set_synced(&mut self) {
        self.synced = true;
        self.failure = None;
    }
}

/// Sending half for a live source. Sending never waits; clones send for the same registry.
#[derive(Clone)]
pub struct RegistrySender {
    input: CoalescingSender<(), LiveInput>,
    report: SourceReport,
}

/// Receiving half for the control loop.
pub struct RegistryReceiver {
    input: CoalescingReceiver<(), LiveInput>,
    report: SourceReport,
}

/// Returns a sender and its receiver.
#[must_use]
pub fn channel() -> (RegistrySender, RegistryReceiver) {
    let (sender, receiver) = coalescer();
    let report = SourceReport::default();
    (RegistrySender { input: sender, report: report.clone() }, RegistryReceiver { input: receiver, report })
}

impl RegistrySender {
    /// Sends content. After the first complete batch the registry is in sync.
    pub fn send(&self, batch: RegistryBatch) {
        let complete = batch.is_complete();
        self.put(|input| {
            match &mut input.batch {
                Some(pending) => pending.merge(batch),
                None => input.batch = Some(batch),
            }
            if complete {
                input.set_synced();
            }
        });
    }

    /// Reports that the complete content was sent in partial batches, or that a failure is over.
    pub fn synced(&self) {
        self.put(LiveInput::set_synced);
    }

    /// Reports that the product cannot be read, with the reason in one line without secrets.
    pub fn failed(&self, reason: impl Into<Arc<str>>) {
        self.put(|input| input.failure = Some(reason.into()));
    }

    /// Returns the report of the source's state.
    #[must_use]
    pub fn report(&self) -> &SourceReport {
        &self.report
    }

    fn put(&self, change: impl FnOnce(&mut LiveInput)) {
        // The receiver is gone only when the process stops, and with it the source.
        self.input.update((), |pending| {
            let mut input = pending.unwrap_or_default();
            change(&mut input);
            Some(input)
        });
    }
}

impl RegistryReceiver {
    /// Waits until there is input, without taking it, so that later input is merged with it. Returns `false`
    /// if no sender is left and there is no input.
    pub async fn wait(&mut self) -> bool {
        self.input.wait().await
    }

    /// Returns the report of the source's state.
    #[must_use]
    pub fn report(&self) -> &SourceReport {
        &self.report
    }

    /// Takes the input since the last call; `None` if there is none.
    pub fn take(&mut self) -> Option<LiveInput> {
        self.input.take().into_values().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Hostname, Provider};
    use pilotfish_runtime::OptionSpec;

    fn key(host: &str) -> ServiceKey {
        ServiceKey { hostname: Hostname::parse(host).unwrap(), namespace: "ns".into() }
    }

    fn names(batch: &RegistryBatch) -> Vec<String> {
        batch
            .endpoints
            .iter()
            .map(|(key, list)| format!("{}{}", key.hostname, if list.is_some() { "" } else { "-" }))
            .collect()
    }

    #[test]
    fn what_was_not_taken_is_merged() {
        let (sender, mut receiver) = channel();
        assert!(receiver.take().is_none());
        for round in 0..3 {
            let mut batch = RegistryBatch::partial();
            batch.set_endpoints(key("same"), Vec::new());
            batch.set_endpoints(key(&format!("only-{round}")), Vec::new());
            sender.send(batch);
        }
        let mut last = RegistryBatch::partial();
        last.remove_service(&key("same"));
        sender.send(last);
        sender.failed("gone");
        let input = receiver.take().unwrap();
        assert_eq!(names(&input.batch.unwrap()), ["only-0", "only-1", "only-2", "same-"]);
        assert_eq!((input.synced, input.failure), (false, Some("gone".into())));
        sender.synced();
        let input = receiver.take().unwrap();
        assert_eq!((input.synced, input.failure), (true, None));
    }

    #[test]
    fn a_complete_batch_replaces_what_waits_and_says_that_it_is_in_sync() {
        let (sender, mut receiver) = channel();
        let mut partial = RegistryBatch::partial();
        partial.set_endpoints(key("old"), Vec::new());
        sender.send(partial);
        let mut complete = RegistryBatch::complete();
        complete.set_endpoints(key("new"), Vec::new());
        sender.send(complete);
        let mut later = RegistryBatch::partial();
        later.set_endpoints(key("later"), Vec::new());
        sender.send(later);
        let input = receiver.take().unwrap();
        let batch = input.batch.unwrap();
        assert!(batch.is_complete());
        assert_eq!(
            (names(&batch), input.synced, input.failure),
            (vec!["later".to_owned(), "new".to_owned()], true, None)
        );
    }

    #[test]
    fn a_failure_right_after_a_complete_batch_does_not_hide_that_it_was_complete() {
        let (sender, mut receiver) = channel();
        sender.failed("refused");
        sender.send(RegistryBatch::complete());
        sender.failed("connection reset");
        let input = receiver.take().unwrap();
        assert!(input.batch.is_some() && input.synced);
        assert_eq!(input.failure.as_deref(), Some("connection reset"));
    }

    fn settings(options: &[(&str, &str)]) -> LiveSettings {
        LiveSettings {
            shard: ShardKey::new(Provider::new(2, "lines"), "c"),
            address: "tcp://localhost:7000".into(),
            options: options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            registry: RegistrySettings::default(),
        }
    }

    #[test]
    fn guard_of_a_registry_is_its_own_then_its_products_then_that_of_all() {
        let seconds = Duration::from_secs;
        for (options, product, share, wait) in [
            (&[][..], None, Some(30), 7),
            (&[], Some(seconds(90)), Some(30), 90),
            (&[("guard", "80%"), ("guardWait", "3s")], Some(seconds(90)), Some(80), 3),
            (&[("guard", "off")], None, None, 7),
        ] {
            let mut settings = settings(options);
            let of_all = GuardSettings { share: Some(30), wait: seconds(7), ..GuardSettings::default() };
            settings.registry.guard = of_all;
            let guard = settings.parse_guard(product, &mut Vec::new());
            assert_eq!(guard, GuardSettings { share, wait: seconds(wait), ..of_all }, "{options:?}");
            assert_eq!(settings.options, OptionValues::default());
        }
        let mut mistakes = Vec::new();
        settings(&[("guard", "on"), ("guardWait", "0s")]).parse_guard(None, &mut mistakes);
        assert_eq!(
            mistakes,
            ["guard=on: not a share in percent from 1 to 99, nor off", "guardWait=0s: not above zero"]
        );
    }

    #[test]
    fn options_that_no_source_knows_are_mistakes() {
        let settings = settings(&[("namespace", "a"), ("namspace", "b")]);
        let mut taken = settings.clone();
        assert_eq!(taken.options.take("namespace").as_deref(), Some("a"));
        const OPTIONS: &[&[OptionSpec]] = &[&[OptionSpec { name: "namespace", value: "NAME", about: "" }]];
        let entry = RegistryType { options: OPTIONS, ..crate::KUBERNETES };
        assert_eq!(
            taken.finish(&entry).unwrap_err().to_string(),
            "there is no option \"namspace\" (did you mean \"namespace\"?)"
        );
    }
}
