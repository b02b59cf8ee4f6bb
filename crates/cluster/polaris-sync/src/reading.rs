//! Reads of the server's content.

use crate::client::Client;
use crate::codes::{Failure, FailureClass, NO_SERVICE, UNCHANGED, is_done};
use crate::reconcile::{
    Actual, ActualAlias, ActualInstance, ActualService, AliasKey, Call, InstanceKey, Place, Plan, ServiceKey,
    Text,
};
use crate::target::{BATCH, CLUSTER, CONTROLLER, HIDDEN, PLATFORM, PolarisTarget, SOURCE};
use crate::wire::{Alias, Answer, Instance, Service};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pages of one list: ten million elements.
const MAX_PAGES: usize = 100_000;
/// Maximum number of hosts in one query: the URL length is limited.
const MAX_HOSTS: usize = 40;

/// Returns a path with an escaped query.
fn path(base: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    format!("{base}?{}", query.finish())
}

/// Reads all pages of a list. `pairs` must not be empty, nor have an empty value: the server refuses that.
async fn pages<T>(
    client: &Client,
    operation: &'static str,
    base: &str,
    pairs: &[(&str, &str)],
    take: impl Fn(Answer) -> Vec<T>,
) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    let limit = BATCH.to_string();
    for page in 0..MAX_PAGES {
        let offset = (page * BATCH).to_string();
        let mut query = pairs.to_vec();
        query.extend([("offset", offset.as_str()), ("limit", limit.as_str())]);
        let answer = client.query(operation, &path(base, &query)).await?;
        let amount = answer.amount;
        let found = take(answer);
        let is_last = found.is_empty() || page * BATCH + found.len() >= amount;
        all.extend(found);
        if is_last {
            return Ok(all);
        }
    }
    Err(Failure::new(FailureClass::Refused, format_args!("{base} has more than {MAX_PAGES} pages")))
}

/// Reads all our instances, and the services of these namespaces. The server scans all its instances for each
/// page.
///
/// # Errors
/// When a read fails: an incomplete result would look like missing instances.
pub(crate) async fn everything(
    client: &Client,
    target: &PolarisTarget,
    namespaces: &BTreeSet<Text>,
    previous: &Actual,
) -> Result<Actual, Failure> {
    let mut actual = without_instances(client, target, namespaces).await?;
    let values = format!("{CONTROLLER},{}", target.cluster());
    for key in [SOURCE, PLATFORM] {
        let keys = format!("{key},{CLUSTER}");
        let pairs = [("keys", keys.as_str()), ("values", values.as_str())];
        let own = pages(client, "read_instances", "/naming/v1/instances", &pairs, |answer| answer.instances)
            .await?;
        for instance in own {
            if let Some((key, mut instance)) = instance_of(instance) {
                keep_hidden(&mut instance, previous.instance(&key));
                actual.set_instance(&key, Some(instance));
            }
        }
    }
    Ok(actual)
}

/// Reads the instances of these services into `actual` with Discover, which the server answers from its
/// cache, and with a few bytes if the revision equals that in `revisions`. Keeps `revisions` up to date.
/// Returns the services that were read.
///
/// # Errors
/// When something cannot be read. `actual` and `revisions` have the services that were read until then.
pub(crate) async fn discover(
    client: &Client,
    services: BTreeSet<ServiceKey>,
    revisions: &mut BTreeMap<ServiceKey, Text>,
    actual: &mut Actual,
) -> Result<BTreeSet<ServiceKey>, Failure> {
    let mut read = BTreeSet::new();
    let questions = services.into_iter().map(|key| {
        let revision = revisions.get(&key).cloned();
        async move {
            let asked = json!({
                "type": "INSTANCE",
                "service": {"namespace": key.namespace, "name": key.name, "revision": revision},
            });
            let answer = client.call("discover", Method::POST, "/v1/Discover", Some(&asked)).await?;
            Ok::<_, Failure>((key, answer))
        }
    });
    let questions: Vec<_> = questions.collect();
    let mut answers = stream::iter(questions).buffer_unordered(Client::CONCURRENCY);
    while let Some(answered) = answers.next().await {
        let (key, answer) = answered?;
        if answer.code == UNCHANGED {
            continue;
        }
        // A missing service has no instances.
        if !is_done(answer.code) && answer.code != NO_SERVICE {
            return Err(Failure::of_code(answer.code, &answer.info));
        }
        read.insert(key.clone());
        let previous = actual.instances.remove(&key).unwrap_or_default();
        // For an alias, Discover returns the instances of its service.
        for (found, mut instance) in answer.instances.into_iter().filter_map(instance_of) {
            if found.service == key {
                instance.metadata.retain(|name, _| !HIDDEN.contains(&&**name));
                keep_hidden(&mut instance, previous.get(&found.place));
                actual.set_instance(&found, Some(instance));
            }
        }
        match answer.service.map(|service| service.revision).filter(|revision| !revision.is_empty()) {
            Some(revision) => drop(revisions.insert(key, revision)),
            None => drop(revisions.remove(&key)),
        }
    }
    Ok(read)
}

/// Keeps written metadata that the server does not return.
fn keep_hidden(instance: &mut ActualInstance, previous: Option<&ActualInstance>) {
    for key in HIDDEN {
        if let Some((key, value)) = previous.and_then(|previous| previous.metadata.get_key_value(key)) {
            instance.metadata.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Reads namespaces, aliases, and the services of these namespaces.
///
/// # Errors
/// See [`everything`].
pub(crate) async fn without_instances(
    client: &Client,
    target: &PolarisTarget,
    namespaces: &BTreeSet<Text>,
) -> Result<Actual, Failure> {
    let mut actual = Actual::default();
    let known =
        pages(client, "read_namespaces", "/naming/v1/namespaces", &[], |answer| answer.namespaces).await?;
    actual.namespaces = known.into_iter().map(|namespace| namespace.name).collect();
    let wanted: Vec<Text> = namespaces.intersection(&actual.namespaces).cloned().collect();
    let lists = stream::iter(wanted).map(|namespace| async move {
        let pairs = [("namespace", &*namespace)];
        pages(client, "read_services", "/naming/v1/services", &pairs, |answer| answer.services).await
    });
    let lists: Vec<Vec<Service>> = lists.buffer_unordered(Client::CONCURRENCY).try_collect().await?;
    actual.services = lists.into_iter().flatten().map(service).collect();
    let aliases =
        pages(client, "read_aliases", "/naming/v1/service/aliases", &[], |answer| answer.aliases).await?;
    actual.aliases = aliases.into_iter().map(|alias| alias_of(alias, target)).collect();
    Ok(actual)
}

/// Objects that a plan changes, to be read before it is executed.
#[derive(Default)]
pub(crate) struct Touched {
    services: BTreeSet<ServiceKey>,
    aliases: BTreeSet<AliasKey>,
    instances: BTreeMap<ServiceKey, BTreeSet<Place>>,
}

impl Touched {
    /// Instances that a plan creates; all else was just read.
    pub(crate) fn new_instances(plan: &Plan) -> Self {
        let mut this = Self::default();
        for call in plan.calls() {
            if let Call::CreateInstances(writes) = call {
                writes.iter().for_each(|write| this.instance(&write.key));
            }
        }
        this
    }

    /// All objects of a plan.
    pub(crate) fn all(plan: &Plan) -> Self {
        let mut this = Self::default();
        for call in plan.calls() {
            match call {
                Call::CreateServices(writes) | Call::UpdateServices(writes) => {
                    this.services.extend(writes.iter().map(|write| write.key.clone()));
                }
                Call::CreateAlias(alias, _) | Call::UpdateAlias(alias, _) => {
                    this.aliases.insert(alias.clone());
                    // The name of an alias may be taken by a service.
                    this.services.insert(alias.0.clone());
                }
                Call::DeleteAliases(aliases) => this.aliases.extend(aliases.iter().cloned()),
                Call::CreateInstances(writes) | Call::UpdateInstances(writes) => {
                    writes.iter().for_each(|write| this.instance(&write.key));
                }
                Call::RetireInstances(all) => all.iter().for_each(|one| this.instance(&one.key)),
                Call::DeleteInstances(keys) => keys.iter().for_each(|key| this.instance(key)),
                Call::CreateNamespaces(_) => {}
            }
        }
        this
    }

    fn instance(&mut self, key: &InstanceKey) {
        self.instances.entry(key.service.clone()).or_default().insert(key.place.clone());
    }

    /// Reads the objects into `actual`.
    pub(crate) async fn refresh(
        &self,
        client: &Client,
        target: &PolarisTarget,
        actual: &mut Actual,
    ) -> Result<(), Failure> {
        let services = stream::iter(self.services.iter().cloned()).map(|key| read_service(client, key));
        let services: Vec<_> = services.buffer_unordered(Client::CONCURRENCY).try_collect().await?;
        for (key, found) in services {
            match found {
                Some(found) => drop(actual.services.insert(key, found)),
                None => drop(actual.services.remove(&key)),
            }
        }
        for alias in &self.aliases {
            actual.aliases.remove(alias);
            let pairs = [("alias", &*alias.0.name), ("alias_namespace", &*alias.0.namespace)];
            let found =
                pages(client, "read_aliases", "/naming/v1/service/aliases", &pairs, |answer| answer.aliases);
            let found = found.await?.into_iter().map(|found| alias_of(found, target));
            actual.aliases.extend(found.filter(|(name, _)| name == alias));
        }
        let instances = self.instances.clone().into_iter();
        let instances = stream::iter(instances).map(|(service, places)| read_places(client, service, places));
        let instances: Vec<_> = instances.buffer_unordered(Client::CONCURRENCY).try_collect().await?;
        for (key, mut found) in instances.into_iter().flatten() {
            if let Some(found) = &mut found {
                keep_hidden(found, actual.instance(&key));
            }
            actual.set_instance(&key, found);
        }
        Ok(())
    }
}

async fn read_service(
    client: &Client,
    key: ServiceKey,
) -> Result<(ServiceKey, Option<ActualService>), Failure> {
    let pairs = [("namespace", &*key.namespace), ("name", &*key.name)];
    let found =
        pages(client, "read_services", "/naming/v1/services", &pairs, |answer| answer.services).await?;
    let found = found.into_iter().map(service).find(|(known, _)| *known == key).map(|(_, found)| found);
    Ok((key, found))
}

/// Reads the instances at these places: `None` for an empty place.
async fn read_places(
    client: &Client,
    key: ServiceKey,
    places: BTreeSet<Place>,
) -> Result<Vec<(InstanceKey, Option<ActualInstance>)>, Failure> {
    let hosts: BTreeSet<&str> = places.iter().map(|place| &*place.host).collect();
    let hosts: Vec<&str> = hosts.into_iter().collect();
    let of_service = [("namespace", &*key.namespace), ("service", &*key.name)];
    let read = async |pairs: &[(&str, &str)]| {
        pages(client, "read_instances", "/naming/v1/instances", pairs, |answer| answer.instances).await
    };
    let found: Vec<Instance> = if hosts.len() > MAX_HOSTS {
        read(&of_service).await?
    } else {
        let hosts = hosts.join(",");
        read(&[of_service[0], of_service[1], ("host", &hosts)]).await?
    };
    let mut found: BTreeMap<InstanceKey, ActualInstance> =
        found.into_iter().filter_map(instance_of).collect();
    let keys = places.iter().map(|place| InstanceKey::new(key.clone(), place.clone()));
    Ok(keys.map(|key| found.remove_entry(&key).map_or((key, None), |(key, one)| (key, Some(one)))).collect())
}

fn service(found: Service) -> (ServiceKey, ActualService) {
    // The server adds the ports of instances, some of them twice.
    let ports = found.ports.split(',').filter_map(|port| port.trim().parse().ok()).collect();
    let key = ServiceKey::new(found.namespace, found.name);
    (key, ActualService { metadata: found.metadata, ports, owners: found.owners })
}

fn alias_of(found: Alias, target: &PolarisTarget) -> (AliasKey, ActualAlias) {
    let is_of_controller = &*found.owners == CONTROLLER;
    let is_ours = is_of_controller && found.comment == target.alias_comment();
    // The original controller sets no comment; an alias with another comment belongs to another cluster.
    let is_adoptable = is_ours || is_of_controller && found.comment.is_empty();
    let service = ServiceKey::new(found.namespace, found.service);
    let name = AliasKey(ServiceKey::new(found.alias_namespace, found.alias));
    (name, ActualAlias { service, is_ours, is_adoptable })
}

fn instance_of(found: Instance) -> Option<(InstanceKey, ActualInstance)> {
    let place = Place::new(found.host, found.port?);
    let key = InstanceKey::new(ServiceKey::new(found.namespace, found.service), place);
    let ttl = found.health_check.and_then(|check| check.heartbeat?.ttl);
    let instance = ActualInstance {
        protocol: found.protocol,
        version: found.version,
        weight: found.weight,
        healthy: found.healthy,
        isolated: found.isolate,
        ttl,
        metadata: found.metadata,
        revision: found.revision,
    };
    Some((key, instance))
}
