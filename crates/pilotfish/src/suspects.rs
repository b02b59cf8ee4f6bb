//! Which objects made what a proxy refuses: the one that is most likely wrong comes first.
//!
//! A resource is made of many objects. One that changed since the proxy last accepted something is suspected first; of those, and of the
//! others, one of a kind whose content goes to Envoy nearly as it is written, as that of EnvoyFilters does. Services and endpoints are in
//! nearly all resources, and seldom wrong.

use crate::control::Shared;
use pilotfish_model::{Kind, ObjectKey, Origin};
use pilotfish_translate::{Snapshot, ViewId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a proxy refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused<'a, N> {
    /// What it sees of the type.
    pub(crate) view: ViewId,
    /// The resources.
    pub(crate) names: &'a [N],
    /// The newest revision that it has accepted.
    pub(crate) after: u64,
    /// The revision of the response that it refuses.
    pub(crate) until: u64,
    /// Reason that the proxy gives.
    pub(crate) reason: &'a str,
}

/// Reason of Envoy where another process on its machine has the port: no object is wrong.
const PORT_IN_USE: &str = "Address already in use";

/// Returns true if the machine of the proxy causes the refusal, and no object does.
fn is_of_machine(reason: &str) -> bool {
    reason.contains(PORT_IN_USE)
}

/// The objects that made what is refused, the most suspect first.
pub(crate) fn of<N: AsRef<str>>(
    refused: &Refused<'_, N>,
    snapshot: &Snapshot<'_>,
    shared: &Shared,
) -> Vec<String> {
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

/// Objects in one line: `EnvoyFilter shop/bad and 3 others`. Empty where there are none.
pub(crate) fn in_words(objects: &[String]) -> String {
    pilotfish_cli::causes(objects, |first, others| format!("{first} and {others}"))
}

/// Origins by name, the most suspect first. `changed`: since when those that changed lately are as they are. What changed behind the first
/// revision, and up to the second, is new in what is refused.
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

/// The rank of what is no object.
const LAST: u8 = 9;

/// How far a kind is from what Envoy reads: the lower, the more of it is passed on as it is written.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::EnvoyFilter => 0,
        Kind::WasmPlugin => 1,
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
