//! Proxies that an object reaches, or the reasons why it reaches none.

use super::dropped;
use super::service::unseen;
use crate::plan::{Held, held};
use crate::resource::section;
use crate::subject::Subject;
use pilotfish_api::v1::{Dropped, Failure, Reached, WhyObject};
use pilotfish_model::{ClusterDomain, Hostname, Kind, ObjectKey, Service, World};
use pilotfish_translate::{EncodedResource, Snapshot, Translator};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of named proxies, and of resources for each.
const EXAMPLES: usize = 20;
const RESOURCES: usize = 20;
/// Maximum number of listed reasons.
const REASONS: usize = 20;
/// Maximum number of proxies that are checked for reasons: equal ones have equal reasons.
const ASKED: usize = 200;

/// Finds the proxies that an object reaches, by the origins of their resources, and the reasons of the
/// queries that leave out the others. `spec` is the object's content.
#[must_use]
pub fn why_object(translator: &Translator, key: &ObjectKey, spec: &Value, subjects: &[Subject]) -> WhyObject {
    let mut answer = WhyObject { object: key.to_string(), proxies: subjects.len(), ..WhyObject::default() };
    let mut known: HashMap<Vec<usize>, Vec<String>> = HashMap::new();
    let mut others = Vec::new();
    for (subject, held) in subjects.iter().zip(held(translator, subjects)) {
        // Proxies with equal views share their resources: these are searched once.
        let resources = known.entry(held.addresses()).or_insert_with(|| made_of(&held, key));
        if resources.is_empty() {
            others.push(subject);
            continue;
        }
        answer.reached += 1;
        if answer.examples.len() < EXAMPLES {
            answer.examples.push(Reached { proxy: subject.name.clone(), resources: resources.clone() });
        }
    }
    let snapshot = translator.snapshot();
    let mut reasons = faults(&snapshot, key);
    reasons.extend(hosts(&snapshot, translator.domain(), key, spec, &others));
    if subjects.is_empty() {
        reasons.push(dropped("proxies", "no proxy is connected to this replica"));
    }
    if reasons.is_empty() && answer.reached == 0 {
        reasons.push(nothing(key, subjects.len()));
    }
    reasons.truncate(REASONS);
    answer.reasons = reasons;
    answer
}

fn nothing(key: &ObjectKey, proxies: usize) -> Dropped {
    let selects = match key.kind {
        Kind::Sidecar
        | Kind::EnvoyFilter
        | Kind::AuthorizationPolicy
        | Kind::PeerAuthentication
        | Kind::RequestAuthentication
        | Kind::Telemetry
        | Kind::WasmPlugin
        | Kind::TrafficExtension
        | Kind::Gateway => {
            ": its selector and namespace choose none of them, or what they have does not depend on it"
        }
        _ => ": what they have does not depend on it",
    };
    dropped(key.to_string(), format!("nothing of {proxies} connected proxies is made of it{selects}"))
}

/// Resources of a proxy that an object contributed to.
fn made_of(held: &Held, key: &ObjectKey) -> Vec<String> {
    let is_of = |resource: &EncodedResource| {
        resource.provenance.iter().any(|origin| origin.as_object().is_some_and(|from| from.object == *key))
    };
    let mut names = Vec::new();
    for (ty, resources) in &held.of {
        let made = resources.values().filter(|resource| is_of(resource));
        names.extend(made.map(|resource| format!("{} {}", section(*ty), resource.name)));
    }
    names.truncate(RESOURCES);
    names
}

/// Parts of the object that translation left out, with the reasons.
fn faults(snapshot: &Snapshot<'_>, key: &ObjectKey) -> Vec<Dropped> {
    let refusals = snapshot.refusals();
    let own =
        refusals.iter().filter(|refusal| refusal.object.as_object().is_some_and(|from| from.object == *key));
    own.map(|refusal| dropped(format!("{key} {}", refusal.field).trim().to_owned(), refusal.fault.clone()))
        .collect()
}

/// Reasons why proxies do not see the object's hosts.
fn hosts(
    snapshot: &Snapshot<'_>,
    domain: &ClusterDomain,
    key: &ObjectKey,
    spec: &Value,
    others: &[&Subject],
) -> Vec<Dropped> {
    let mut reasons: BTreeMap<(String, String), usize> = BTreeMap::new();
    let world = snapshot.world();
    for name in names_of(world, key, spec) {
        let Some(host) = full(world, domain, key, &name) else {
            let hosts = world.services().map(|(key, _)| key.hostname.as_str());
            let near = Failure::unknown("host", &name, hosts).names;
            let near = if near.is_empty() {
                String::new()
            } else {
                format!("; the nearest are {}", near.join(", "))
            };
            *reasons.entry((format!("host {name}"), format!("no service has it{near}"))).or_default() += 1;
            continue;
        };
        for subject in others.iter().take(ASKED) {
            let seen = snapshot.host_seen(&Arc::new(subject.proxy.clone()), &host);
            for (service, why) in &seen.others {
                let words = unseen(&subject.proxy.namespace, service, why, &seen);
                *reasons.entry((format!("host {host}"), words)).or_default() += 1;
            }
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let told = |((what, why), count): ((String, String), usize)| {
        let proxies = if count > 1 { format!(" ({count} proxies)") } else { String::new() };
        dropped(what, format!("{why}{proxies}"))
    };
    reasons.into_iter().map(told).collect()
}

/// Hosts of an object: of services that it created, or that it names.
fn names_of(world: &World, key: &ObjectKey, spec: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match key.kind {
        Kind::DestinationRule => spec.get("host").and_then(text).into_iter().collect(),
        Kind::VirtualService => {
            spec.get("hosts").and_then(Value::as_array).into_iter().flatten().filter_map(text).collect()
        }
        _ => {
            let is_own = |service: &Arc<Service>| {
                service.provenance.as_object().is_some_and(|from| from.object == *key)
            };
            let services = world.services().flat_map(|(_, services)| services.iter());
            services.filter(|service| is_own(service)).map(|service| service.hostname.to_string()).collect()
        }
    }
}

/// Host of a service that an object refers to by this name, completed as in translation.
fn full(world: &World, domain: &ClusterDomain, key: &ObjectKey, name: &str) -> Option<Hostname> {
    let host = Hostname::parse(&domain.qualify(name, &key.namespace)).ok()?;
    let exists = world.services_of_host(&host).next().is_some();
    exists.then_some(host)
}
