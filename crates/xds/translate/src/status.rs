//! Status of all objects that have one: follows the worlds and returns the changed statuses.
//!
//! It has a memo of its own, separate from the one that serves proxies: only one replica writes status, and
//! computing it never delays proxies. A change costs only the affected statuses.

use crate::engine::memo::Memo;
use crate::engine::{Cx, Query, TranslationSettings};
use crate::routing::gateway_api::{ApiStatus, KINDS, StatusView};
use crate::routing::ingress::IngressStatus;
use pilotfish_config::gateway_api::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, ListenerSet, TcpRoute, TlsRoute,
};
use pilotfish_config::status::{Controllers, Status};
use pilotfish_model::{ChangeSet, ClusterId, Kind, KindSpec, ObjectKey, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kinds whose status is written: those of the Gateway API, and Ingress.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    KINDS.into_iter().chain([Kind::Ingress]).collect()
}

/// Computes statuses, see the module's description.
pub struct StatusTranslator {
    memo: Memo,
    query: Statuses,
    known: Arc<BTreeMap<ObjectKey, Arc<Status>>>,
}

impl StatusTranslator {
    /// Starts with an empty world, for the objects of that cluster that belong to these controllers.
    #[must_use]
    pub fn new(
        settings: impl Into<TranslationSettings>,
        cluster: ClusterId,
        controllers: Controllers,
    ) -> Self {
        let query = Statuses { of: StatusView { cluster, controllers, deploys: false } };
        Self { memo: Memo::with_settings(settings.into()), query, known: Arc::default() }
    }

    /// Reports parameters of Gateways that cannot be used, if Deployments of Gateways are made.
    #[must_use]
    pub fn with_deployments(mut self, deploys: bool) -> Self {
        self.query.of.deploys = deploys;
        self
    }

    /// Advances to a world that differs by `changes` from the previous one, and returns the changed statuses.
    /// `None` is for objects that were deleted, or whose status another controller writes now.
    pub fn advance(
        &mut self,
        world: Arc<World>,
        changes: &ChangeSet,
    ) -> Vec<(ObjectKey, Option<Arc<Status>>)> {
        let (current, _) = self.memo.advance(world, changes);
        let (statuses, node) = self.memo.get(&current, &self.query);
        // A root is not swept.
        self.memo.set_root(node);
        drop(current);
        let before = std::mem::replace(&mut self.known, statuses.clone());
        self.memo.sweep_if_due();
        if Arc::ptr_eq(&before, &statuses) {
            return Vec::new();
        }
        let gone = before.keys().filter(|key| !statuses.contains_key(*key)).map(|key| (key.clone(), None));
        let differs = |(key, status): &(&ObjectKey, &Arc<Status>)| before.get(*key) != Some(*status);
        let new = statuses.iter().filter(differs).map(|(key, status)| (key.clone(), Some(status.clone())));
        gone.chain(new).collect()
    }
}

/// The status of every object that has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Statuses {
    of: StatusView,
}

impl Query for Statuses {
    type Output = BTreeMap<ObjectKey, Arc<Status>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let keys = keys::<GatewayClass>(cx)
            .chain(keys::<Gateway>(cx))
            .chain(keys::<ListenerSet>(cx))
            .chain(keys::<HttpRoute>(cx))
            .chain(keys::<GrpcRoute>(cx))
            .chain(keys::<TcpRoute>(cx))
            .chain(keys::<TlsRoute>(cx))
            .chain(keys::<BackendTlsPolicy>(cx));
        let mut out = BTreeMap::new();
        for key in keys {
            let status = cx.get(&ApiStatus { key: key.clone(), of: self.of.clone() });
            if let Some(status) = status.as_ref() {
                out.insert(key, status.clone());
            }
        }
        let ingresses = cx.get(&IngressStatus { cluster: self.of.cluster.clone() });
        let status = Arc::new(ingresses.1.clone());
        out.extend(ingresses.0.iter().map(|key| (key.clone(), status.clone())));
        out
    }
}

fn keys<'a, T: KindSpec>(cx: &'a Cx<'_>) -> impl Iterator<Item = ObjectKey> + 'a {
    cx.objects::<T>().map(|object| object.key().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{line, object, yaml};
    use pilotfish_config::gateway_api::HttpRoute;
    use pilotfish_model::{KubernetesAttributes, Port, Protocol, ShardKey, Update, WorldWriter};

    const API: &str = "gateway.networking.k8s.io/v1";

    fn route(name: &str, parent: &str) -> Vec<Update> {
        let spec = format!(
            "{{parentRefs: [{{name: {parent}}}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}"
        );
        yaml(&line(API, "HTTPRoute", "shop", name, &spec))
    }

    /// The names of what differs after these updates.
    fn step(
        translator: &mut StatusTranslator,
        writer: &mut WorldWriter,
        updates: Vec<Update>,
    ) -> Vec<String> {
        updates.into_iter().for_each(|update| writer.apply(update));
        let Some((world, changes)) = writer.publish() else { return Vec::new() };
        let differs = translator.advance(world, &changes).into_iter();
        differs.map(|(key, status)| format!("{key}{}", if status.is_some() { "" } else { " gone" })).collect()
    }

    #[test]
    fn a_change_reports_only_what_differs() {
        let mut translator =
            StatusTranslator::new(TranslationSettings::default(), "Kubernetes".into(), Controllers::Both);
        let mut writer = WorldWriter::new();
        let listener = "{gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}";
        let gateway = yaml(&line(API, "Gateway", "shop", "gw", listener));
        assert_eq!(step(&mut translator, &mut writer, gateway), ["Gateway shop/gw"]);
        let both = ["Gateway shop/gw", "HTTPRoute shop/a"];
        assert_eq!(step(&mut translator, &mut writer, route("a", "gw")), both, "one more is attached");
        assert_eq!(
            step(&mut translator, &mut writer, route("b", "other")),
            ["HTTPRoute shop/b"],
            "it may have had a status"
        );
        let service = crate::testing::service("web", "shop").update();
        assert_eq!(
            step(&mut translator, &mut writer, vec![service]),
            ["HTTPRoute shop/a"],
            "its backend is there"
        );
        let unrelated = object("shop", "x", pilotfish_config::networking::VirtualService::default());
        assert!(step(&mut translator, &mut writer, vec![Update::Object(unrelated)]).is_empty());
        let gone = ObjectKey::new(HttpRoute::KIND, "shop", "a");
        let differs = step(&mut translator, &mut writer, vec![Update::RemoveObject(gone)]);
        assert_eq!(differs, ["HTTPRoute shop/a gone", "Gateway shop/gw"]);
    }

    /// Each step of a load balancer that comes up changes the status of its Gateway once.
    #[test]
    fn a_gateway_that_comes_up_is_written_once_for_each_step() {
        let mut translator =
            StatusTranslator::new(TranslationSettings::default(), "Kubernetes".into(), Controllers::Both);
        let mut writer = WorldWriter::new();
        let listener = "{gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}";
        let service = |address: &[&str], node_local: bool| {
            let addresses: Arc<[Arc<str>]> = address.iter().map(|address| Arc::from(*address)).collect();
            let known = (!addresses.is_empty()).then(|| ("Kubernetes".into(), addresses));
            crate::testing::service("gw-istio", "shop").with(|service| {
                service.ports = Arc::from([Port {
                    number: 80,
                    name: "http".into(),
                    protocol: Protocol::Http,
                    target_port: None,
                }]);
                service.kubernetes = Some(Arc::new(KubernetesAttributes {
                    service_type: "LoadBalancer".into(),
                    external_addresses: known.into_iter().collect(),
                    node_local,
                    ..KubernetesAttributes::default()
                }));
            })
        };
        let endpoints = |addresses: &[&str]| {
            let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
            let all =
                addresses.iter().map(|address| Arc::new(crate::testing::endpoint(address, 8080, "http")));
            vec![Update::Endpoints(service(&[], false).key(), shard, all.collect())]
        };
        let service = |address: &[&str], node_local| vec![service(address, node_local).update()];
        for (what, updates, writes) in [
            ("the Gateway", yaml(&line(API, "Gateway", "shop", "gw", listener)), 1),
            ("a Service without endpoints", service(&[], false), 1),
            ("another traffic policy", service(&[], true), 0),
            ("the first endpoint", endpoints(&["10.0.0.1"]), 1),
            ("another endpoint", endpoints(&["10.0.0.1", "10.0.0.2"]), 0),
            ("the address", service(&["192.0.2.1"], true), 1),
            ("a rolling update", endpoints(&["10.0.0.3"]), 0),
            ("the same again", service(&["192.0.2.1"], false), 0),
        ] {
            let found = step(&mut translator, &mut writer, updates);
            assert_eq!(found, vec!["Gateway shop/gw"; writes], "{what}");
        }
    }

    #[test]
    fn incremental_equals_from_scratch() {
        let mut translator =
            StatusTranslator::new(TranslationSettings::default(), "Kubernetes".into(), Controllers::Both);
        let mut writer = WorldWriter::new();
        let listener = "{gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}";
        let steps = [
            route("a", "gw"),
            yaml(&line(API, "Gateway", "shop", "gw", listener)),
            vec![crate::testing::service("web", "shop").update()],
            route("a", "other"),
            route("c", "gw"),
        ];
        for updates in steps {
            step(&mut translator, &mut writer, updates);
        }
        let mut new =
            StatusTranslator::new(TranslationSettings::default(), "Kubernetes".into(), Controllers::Both);
        new.advance(Arc::new(writer.world().clone()), &ChangeSet::default());
        assert_eq!(translator.known, new.known);
        assert_eq!(translator.known.len(), 3);
    }
}
