//! Answers of `/api/v1`.

use super::config_page::ConfigPage;
use super::proxies::{REFUSALS, add_objects, add_sharers, find, proxy};
use super::{AdminState, AuthorityOperations, changes, history, overview, plan, unconnected, waiting};
use pilotfish_admin::{Abandoned, ConfigAsked, HistoryQuery, Operations, WaitFor, WhyQuery};
use pilotfish_api::v1::{
    Acknowledgement, CaRotation, CertificateAuthority, Change, ChangeProgress, Dropped, Failure, FailureKind,
    GuardAcceptance, History, LogFilter, MemoryKind, NamespaceMap, NodeRequest, Overview, Plan, PlanRequest,
    Proxy, ProxyConfig, ServiceDetail, ServiceMap, ServiceRow, State, Status, Why, WhyEndpoint, WhyObject,
};
use pilotfish_control_plane::record::Recordable;
use pilotfish_explain as explain;
use pilotfish_kube_writer::lease::replica_name;
use pilotfish_log::LogControl;
use pilotfish_model::{Kind, ObjectKey, ServiceKey, World};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_registry::ReadObject;
use pilotfish_translate::{EncodedResource, ViewId};
use pilotfish_xds::{Names, TypeStatus};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Accepted overlaps of a rotation.
const OVERLAPS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3_650 * 24 * 3_600);

impl Operations for AdminState {
    fn overview(&self) -> Overview {
        overview::overview(self)
    }

    fn status(&self) -> Status {
        overview::status(self)
    }

    fn changes(&self) -> Vec<ChangeProgress> {
        changes::newest(self.shared.history())
    }

    fn proxies(&self) -> Vec<Proxy> {
        let (current, connections) = self.fanout.acknowledgements();
        let mut named = 0;
        let one = |connection: &pilotfish_xds::ConnectionStatus| {
            let mut proxy = proxy(connection, current);
            // Only some proxies get their objects in the list; the answer for one proxy always has them.
            if proxy.state == State::Rejected && named < REFUSALS {
                named += 1;
                add_objects(&mut proxy, connection, &self.translator.snapshot(), &self.shared);
            }
            proxy
        };
        let mut all: Vec<Proxy> = connections.iter().map(one).collect();
        all.sort_by(|a, b| (&a.name, &a.connection).cmp(&(&b.name, &b.connection)));
        all
    }

    fn proxy(&self, name: &str) -> Result<Proxy, Failure> {
        let (current, connections) = self.fanout.acknowledgements();
        let connection = find(&connections, name)?;
        let mut proxy = proxy(connection, current);
        add_sharers(&mut proxy, connection, &connections);
        add_objects(&mut proxy, connection, &self.translator.snapshot(), &self.shared);
        Ok(proxy)
    }

    fn replica(&self) -> String {
        replica_name()
    }

    fn acknowledgement(&self, what: &WaitFor) -> Result<Acknowledgement, Failure> {
        waiting::acknowledgement(self, what)
    }

    fn proxy_config(&self, proxy: &str, asked: &ConfigAsked) -> Result<ProxyConfig, Failure> {
        let connections = self.fanout.connections();
        let connection = find(&connections, proxy)?;
        let held = asked.at.map(|revision| history::held_at(self, connection, revision)).transpose()?;
        let revision = asked.at.unwrap_or_else(|| self.fanout.revision());
        let mut page = ConfigPage::new(connection.proxy_name().to_owned(), revision, asked);
        for (ty, status) in &connection.types {
            let section = explain::section(*ty);
            if asked.section.is_some_and(|wanted| wanted != section) {
                continue;
            }
            let all: Vec<EncodedResource> = match &held {
                Some(held) => held.of.get(ty).map(|of| of.values().cloned().collect()).unwrap_or_default(),
                None => self.sent(status),
            };
            page.add(section, all.iter());
        }
        Ok(page.finish())
    }

    fn node_config(&self, request: NodeRequest, abandoned: &Abandoned) -> Result<ProxyConfig, Failure> {
        unconnected::of_node(self, &request, abandoned)
    }

    fn plan(&self, request: PlanRequest, abandoned: &Abandoned) -> Result<Plan, Failure> {
        plan::of_running(self, &request, abandoned)
    }

    fn why(&self, query: &WhyQuery) -> Result<Why, Failure> {
        let request = explain::Request::parse(&query.to, &query.path, &query.method, &query.headers)?;
        let (mut answer, connected) = match query.at {
            Some(revision) => {
                let world = self.shared.history().world_at(revision)?;
                let then = history::translator_of(self, world.clone());
                let (proxy, connected) = self.proxy_of(&query.proxy, query.gateway, &world)?;
                // The states of registries are not kept in the history.
                (explain::why(&then, &proxy, &request, &[])?, connected)
            }
            None => {
                let (proxy, connected) = self.proxy_of(&query.proxy, query.gateway, &self.shared.world())?;
                (explain::why(&self.translator, &proxy, &request, &self.shared.registries())?, connected)
            }
        };
        answer.connected = connected;
        Ok(answer)
    }

    fn service_detail(&self, key: &ServiceKey, row: ServiceRow) -> ServiceDetail {
        explain::service(&self.translator, key, row, &self.proxies_by_namespace())
    }

    fn namespace_map(&self) -> NamespaceMap {
        explain::namespaces(&self.translator, &self.proxies_by_namespace())
    }

    fn service_map(&self, namespace: &str) -> ServiceMap {
        explain::service_map(&self.translator, namespace)
    }

    fn history(&self, query: &HistoryQuery) -> Result<History, Failure> {
        history::changes(self, query)
    }

    fn change(&self, revision: u64) -> Result<Change, Failure> {
        history::change(self, revision)
    }

    fn record(&self, from: Option<u64>) -> Result<Vec<u8>, Failure> {
        let proxies = self.translator.proxies();
        let connections = self.fanout.connections();
        let recordable = |connection: &pilotfish_xds::ConnectionStatus| {
            Some(Recordable {
                subject: plan::subject(&proxies, connection)?,
                node: Arc::new(Node::clone(&connection.node)),
                identities: connection.peer.identities.clone(),
            })
        };
        let proxies =
            connections.iter().filter(|connection| !connection.types.is_empty()).filter_map(recordable);
        pilotfish_control_plane::record::write(
            self.shared.history(),
            &self.translator,
            proxies.collect(),
            from,
        )
    }

    fn memory(&self) -> Vec<MemoryKind> {
        super::memory::kinds(self)
    }

    fn log(&self) -> Result<LogFilter, Failure> {
        let control = log_control()?;
        Ok(LogFilter { filter: control.current(), configured: control.configured().to_owned() })
    }

    fn set_log(&self, filter: &str) -> Result<LogFilter, Failure> {
        let control = log_control()?;
        let filter = if filter.is_empty() { control.configured() } else { filter };
        control.set(filter).map_err(|error| {
            let failure = Failure::new(FailureKind::Invalid, format!("{error:#}"));
            failure.hint("debug is a filter, and so is info,pilotfish_xds=debug")
        })?;
        self.log()
    }

    fn accept_loss(&self, source: &str) -> Result<GuardAcceptance, Failure> {
        if self.shared.accept_loss(source) {
            tracing::info!(source, "an operator accepts what the guard holds back");
            return Ok(GuardAcceptance { source: source.to_owned() });
        }
        let failure = Failure::new(FailureKind::NotFound, format!("{source:?} holds nothing back"));
        Err(failure.hint("pilotfish registries --status names what is held back, and where"))
    }

    fn certificate_authority(&self) -> Result<CertificateAuthority, Failure> {
        Ok(authority(self)?.view())
    }

    async fn rotate_ca(&self, overlap: Duration) -> Result<CaRotation, Failure> {
        if !OVERLAPS.contains(&overlap) {
            let error =
                format!("the overlap of {} s is not between a minute and ten years", overlap.as_secs());
            return Err(Failure::new(FailureKind::Invalid, error));
        }
        let begun = authority(self)?.rotate(overlap).await;
        begun.map_err(|reason| {
            let failure = Failure::new(FailureKind::Unavailable, format!("no rotation has begun: {reason}"));
            failure.hint("pilotfish ca status shows the authority, and a rotation that is under way")
        })
    }

    fn why_endpoint(&self, address: &str) -> Result<WhyEndpoint, Failure> {
        explain::why_endpoint(&self.shared.world(), &self.shared.registries(), address)
    }

    fn why_object(&self, object: &str) -> Result<WhyObject, Failure> {
        let key = object_key(object)?;
        let world = self.shared.world();
        let name = key.to_string();
        let wrong: Vec<Dropped> = self
            .shared
            .problems()
            .iter()
            .filter(|report| report.object.as_ref() == Some(&key))
            .map(|report| Dropped { what: name.clone(), why: report.to_string() })
            .collect();
        if world.object(&key).is_none()
            && wrong.is_empty()
            && let ReadObject::Unknown(near) = waiting::read(self, &key)?
        {
            return Err(waiting::unknown(object, &near));
        }
        let spec = world.object(&key).map(pilotfish_config::spec_json).unwrap_or_default();
        let mut answer = explain::why_object(&self.translator, &key, &spec, &plan::subjects(self));
        answer.reasons.splice(0..0, wrong);
        Ok(answer)
    }
}

/// Returns the certificate authority.
fn authority(state: &AdminState) -> Result<&dyn AuthorityOperations, Failure> {
    state.ca.as_deref().ok_or_else(|| {
        let failure = Failure::new(FailureKind::NotFound, "no certificates are signed");
        failure.hint("pilotfish serve --ca names a certificate authority")
    })
}

fn log_control() -> Result<&'static LogControl, Failure> {
    let none = || Failure::new(FailureKind::Unavailable, "this process writes no log");
    pilotfish_log::control().ok_or_else(none)
}

impl AdminState {
    fn proxies_by_namespace(&self) -> explain::ProxyCounts {
        let mut counts = explain::ProxyCounts::new();
        for connection in self.fanout.acknowledgements().1 {
            if let Some((_, namespace)) = connection.proxy_name().rsplit_once('.') {
                *counts.entry(namespace.to_owned()).or_default() += 1;
            }
        }
        counts
    }

    /// Finds a proxy by name. The result is true for a connected proxy, else false with the sidecar or
    /// gateway of the workload of that name.
    fn proxy_of(
        &self,
        wanted: &str,
        is_gateway: bool,
        world: &World,
    ) -> Result<(Arc<pilotfish_translate::Proxy>, bool), Failure> {
        let connections = self.fanout.acknowledgements().1;
        let connection = match find(&connections, wanted) {
            Ok(connection) => connection,
            Err(failure) if failure.kind == FailureKind::NotFound => {
                let proxy = explain::proxy_named(world, wanted, is_gateway);
                return proxy.map(|proxy| (Arc::new(proxy), false)).ok_or(failure);
            }
            Err(failure) => return Err(failure),
        };
        Ok((history::proxy_of(self, connection)?, true))
    }

    /// Returns the resources of a type that a client has, in the order of their names. The snapshot is
    /// released between resources if the next world waits for it.
    fn sent(&self, status: &TypeStatus) -> Vec<EncodedResource> {
        let view = ViewId(status.view.0);
        let mut snapshot = self.translator.snapshot();
        let names = match &status.names {
            Names::Named(names) => names.iter().cloned().collect(),
            Names::Wildcard => {
                while !snapshot.prepare(view) {
                    drop(snapshot);
                    snapshot = self.translator.snapshot();
                }
                snapshot.names(view)
            }
        };
        let mut found = Vec::new();
        for name in names.iter() {
            found.extend(snapshot.get(view, name));
            if snapshot.is_waited_for() {
                drop(snapshot);
                snapshot = self.translator.snapshot();
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

/// True for kinds from which registries make services, endpoints and workloads.
pub(super) fn is_of_registries(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Service | Kind::EndpointSlice | Kind::Pod | Kind::Node | Kind::Namespace | Kind::WorkloadEntry
    )
}

/// Formats a key as `VirtualService/shop/catalog`.
pub(super) fn slashed(key: &ObjectKey) -> String {
    if key.namespace.is_empty() {
        format!("{}/{}", key.kind, key.name)
    } else {
        format!("{}/{}/{}", key.kind, key.namespace, key.name)
    }
}

/// Parses `VirtualService/shop/catalog`. If kinds of two API groups share a name (`Gateway`), Istio's is
/// meant unless the group follows it: `Gateway.gateway.networking.k8s.io/shop/edge`.
pub fn object_key(text: &str) -> Result<ObjectKey, Failure> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, namespace, name] => (*kind, *namespace, *name),
        [kind, name] => (*kind, "", *name),
        _ => {
            let failure = Failure::new(FailureKind::Invalid, format!("{text:?} is no object"));
            return Err(
                failure.hint("objects are written as KIND/NAMESPACE/NAME, as in VirtualService/shop/catalog")
            );
        }
    };
    let (word, group) = kind.split_once('.').map_or((kind, None), |(word, group)| (word, Some(group)));
    let is_meant = |kind: &Kind| {
        (kind.name().eq_ignore_ascii_case(word) || kind.plural().eq_ignore_ascii_case(word))
            && group.is_none_or(|group| kind.group() == group)
    };
    let found = Kind::ALL.iter().copied().find(is_meant);
    let unknown = || Failure::unknown("kind", kind, Kind::ALL.iter().map(|kind| kind.name()));
    Ok(ObjectKey::new(found.ok_or_else(unknown)?, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_by_kind_namespace_and_name() {
        for (text, kind) in [
            ("VirtualService/shop/a", Kind::VirtualService),
            ("virtualservices/shop/a", Kind::VirtualService),
            ("gateway/shop/a", Kind::Gateway),
        ] {
            assert_eq!(object_key(text), Ok(ObjectKey::new(kind, "shop", "a")), "{text}");
        }
        assert_eq!(object_key("VirtualServce/shop/a").unwrap_err().names, ["VirtualService"]);
        assert_eq!(object_key("a").unwrap_err().kind, FailureKind::Invalid);
    }
}
