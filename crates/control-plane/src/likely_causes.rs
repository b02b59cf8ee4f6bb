//! Objects behind the resources that a proxy refuses, in the order of their likelihood to be the cause.
//!
//! A resource is made of many objects. Objects that changed since the last accepted revision come first.
//! Within each group, kinds whose content is passed to Envoy nearly unchanged, such as EnvoyFilters, come
//! first. Services and endpoints come last: they are in nearly all resources, and rarely the cause.

use crate::control::Shared;
use pilotfish_model::{Kind, ObjectKey, Origin};
use pilotfish_translate::{Snapshot, ViewId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Refusal of resources by a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a, N> {
    /// View of the proxy for the type.
    pub view: ViewId,
    /// Names of the refused resources.
    pub names: &'a [N],
    /// Newest revision that the proxy has accepted.
    pub after: u64,
    /// Revision of the refused response.
    pub until: u64,
    /// Error message of the proxy.
    pub reason: &'a str,
}

/// Part of Envoy's error message if another process on its machine uses the port: no object is the cause.
const PORT_IN_USE: &str = "Address already in use";

/// True if the machine of the proxy, and no object, is the cause of the refusal.
fn is_of_machine(reason: &str) -> bool {
    reason.contains(PORT_IN_USE)
}

/// Returns the objects behind the refused resources, the most likely cause first.
pub fn of<N: AsRef<str>>(refused: &Refused<'_, N>, snapshot: &Snapshot<'_>, shared: &Shared) -> Vec<String> {
    if is_of_machine(refused.reason) {
        return Vec::new();
    }
    let resources = refused.names.iter().filter_map(|name| snapshot.get(refused.view, name.as_ref()));
    let origins: BTreeSet<Origin> =
        resources.flat_map(|resource| resource.provenance.iter().cloned().collect::<Vec<_>>()).collect();
    let keys = origins.iter().filter_map(|origin| Some(&origin.as_object()?.object)).collect();
    let changed = shared.revisions_of(&keys);
    ranked(&origins, &changed, (refused.after, refused.until))
}

/// Formats objects in one line: `EnvoyFilter shop/bad and 3 others`. Empty without objects.
pub fn in_words(objects: &[String]) -> String {
    pilotfish_api::causes(objects, |first, others| format!("{first} and {others}"))
}

/// Returns the names of the origins, the most likely cause first. `changed` has the revisions of recent
/// changes. Objects that changed after the first revision, and up to the second, are new in the refused
/// resources.
fn ranked(
    origins: &BTreeSet<Origin>,
    changed: &BTreeMap<ObjectKey, u64>,
    (after, until): (u64, u64),
) -> Vec<String> {
    let mut ranked: Vec<_> = origins
        .iter()
        .map(|origin| {
            let key = origin.as_object().map(|reference| &reference.object);
            let revision = key.and_then(|key| changed.get(key)).copied().unwrap_or(0);
            let is_new = after < revision && revision <= until;
            (!is_new, key.map_or(LAST, |key| rank(key.kind)), Reverse(revision), origin.to_string())
        })
        .collect();
    ranked.sort();
    ranked.dedup_by(|one, other| one.3 == other.3);
    ranked.into_iter().map(|(.., name)| name).collect()
}

/// Rank of origins that are not objects.
const LAST: u8 = 9;

/// Returns the rank of a kind: the lower, the more of its content is passed to Envoy unchanged.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::EnvoyFilter => 0,
        Kind::WasmPlugin | Kind::TrafficExtension => 1,
        Kind::Telemetry => 2,
        Kind::VirtualService
        | Kind::HttpRoute
        | Kind::GrpcRoute
        | Kind::TcpRoute
        | Kind::TlsRoute
        | Kind::Ingress => 3,
        Kind::DestinationRule | Kind::BackendTlsPolicy => 4,
        Kind::RequestAuthentication | Kind::AuthorizationPolicy | Kind::PeerAuthentication => 5,
        Kind::Gateway
        | Kind::KubernetesGateway
        | Kind::ListenerSet
        | Kind::Sidecar
        | Kind::ProxyConfig
        | Kind::ServiceEntry
        | Kind::Secret
        | Kind::ConfigMap => 6,
        Kind::MeshConfig | Kind::MeshNetworks => 7,
        Kind::Service
        | Kind::EndpointSlice
        | Kind::Pod
        | Kind::Node
        | Kind::Namespace
        | Kind::IngressClass
        | Kind::WorkloadEntry
        | Kind::WorkloadGroup
        | Kind::GatewayClass
        | Kind::ReferenceGrant
        | Kind::ServiceExport
        | Kind::ServiceImport => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Provider, ShardKey};
    use pilotfish_translate::Translator;

    #[test]
    fn a_port_that_another_process_has_suspects_no_object() {
        let bind =
            "Error adding/updating listener(s) 0.0.0.0_80: cannot bind '0.0.0.0:80': Address already in use";
        assert!(is_of_machine(bind));
        assert!(!is_of_machine("Error adding/updating listener(s) 0.0.0.0_80: error adding filter"));
        let (snapshots, shared) = (Translator::new(), Shared::default());
        let refused: Refused<'_, &str> =
            Refused { view: ViewId(0), names: &["0.0.0.0_80"], after: 0, until: 1, reason: bind };
        assert!(of(&refused, &snapshots.snapshot(), &shared).is_empty());
    }

    fn key(kind: Kind, name: &str) -> ObjectKey {
        ObjectKey::new(kind, "shop", name)
    }

    fn ranked_names(keys: &[ObjectKey], changed: &[(&ObjectKey, u64)], since: (u64, u64)) -> Vec<String> {
        let origins = keys.iter().map(|key| Origin::object(key.clone(), "Kubernetes")).collect();
        let changed = changed.iter().map(|(key, revision)| ((*key).clone(), *revision)).collect();
        ranked(&origins, &changed, since)
    }

    #[test]
    fn kinds_that_are_passed_on_come_before_services() {
        let kinds = [
            Kind::AuthorizationPolicy,
            Kind::DestinationRule,
            Kind::EndpointSlice,
            Kind::EnvoyFilter,
            Kind::Service,
            Kind::Telemetry,
            Kind::VirtualService,
            Kind::WasmPlugin,
        ];
        let keys = kinds.map(|kind| key(kind, "a"));
        let names = ranked_names(&keys, &[], (0, 9));
        let kinds: Vec<&str> = names.iter().filter_map(|name| name.split(' ').next()).collect();
        assert_eq!(
            kinds,
            [
                "EnvoyFilter",
                "WasmPlugin",
                "Telemetry",
                "VirtualService",
                "DestinationRule",
                "AuthorizationPolicy",
                "EndpointSlice",
                "Service"
            ]
        );
    }

    #[test]
    fn what_changed_since_the_proxy_was_content_comes_first() {
        let (old, new, route) =
            (key(Kind::EnvoyFilter, "old"), key(Kind::EnvoyFilter, "new"), key(Kind::VirtualService, "web"));
        let keys = [old.clone(), new.clone(), route.clone()];
        let first = |changed: &[(&ObjectKey, u64)], since| ranked_names(&keys, changed, since).remove(0);
        assert_eq!(
            first(&[(&route, 7)], (6, 7)),
            "VirtualService shop/web",
            "it is the only one that changed"
        );
        assert_eq!(first(&[(&route, 7), (&new, 7)], (6, 7)), "EnvoyFilter shop/new");
        assert_eq!(
            first(&[(&route, 8)], (6, 7)),
            "EnvoyFilter shop/new",
            "what changed later is not refused"
        );
        assert_eq!(first(&[(&route, 5), (&new, 3), (&old, 4)], (6, 7)), "EnvoyFilter shop/old", "the newest");
    }

    #[test]
    fn of_hundreds_of_objects_the_suspect_is_first() {
        let mut keys: Vec<ObjectKey> = (0..500).map(|n| key(Kind::Service, &format!("a-{n:03}"))).collect();
        keys.push(key(Kind::WasmPlugin, "z"));
        let mut names = ranked_names(&keys, &[], (0, 1));
        assert_eq!(in_words(&names), "WasmPlugin shop/z and 500 others");
        names.truncate(2);
        assert_eq!(in_words(&names), "WasmPlugin shop/z and 1 other");
        assert_eq!((in_words(&names[..1]), in_words(&[])), ("WasmPlugin shop/z".to_owned(), String::new()));
    }

    #[test]
    fn entries_of_registries_come_last() {
        let shard = ShardKey::new(Provider::new(7, "invented"), "east");
        let origins = [Origin::registered(shard, "a"), Origin::object(key(Kind::Service, "z"), "Kubernetes")];
        let names = ranked(&origins.into_iter().collect(), &BTreeMap::new(), (0, 1));
        assert_eq!(names[0], "Service shop/z");
    }
}
