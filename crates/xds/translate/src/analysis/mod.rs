//! Analysis: valid objects with references to missing objects, or without effect, under the codes of
//! `istioctl analyze`.
//!
//! ```text
//! worlds ─▶ Analyzer (a memo of its own) ─ roots: FindingsOf(object) ─▶ findings by object
//!                                           └─ the queries that routes, clusters and listeners are made by
//! ```
//!
//! It uses the queries that generate proxies' resources, so that both agree on what is missing. The findings
//! of each object are one query: a change recomputes only the findings that depend on it. The memo is
//! separate from the one that serves proxies and is used in idle time, so analysis never delays proxies.
//!
//! Missing objects are reported only where all objects of the kind are known. Files may hold a part of the
//! configuration ([`Completeness::Partly`]), and workloads may be known to their proxies alone, so selectors
//! are checked only where workloads are known.

mod claims;
mod clients;
mod code;
mod conditions;
mod destination;
mod destination_rule;
mod effect;
mod envoy_filter;
mod finding;
mod gateway;
mod hosts;
mod jwt_claims;
mod mesh;
mod mtls;
mod namespaced;
mod namespaces;
mod policies;
mod redirects;
mod services;
mod shadow;
#[cfg(test)]
mod tests;
mod virtual_service;
mod workloads;

pub use code::{Code, Level};
pub use finding::Finding;

use crate::engine::memo::{Current, Memo};
use crate::engine::{Cx, Query, TranslationSettings};
use crate::routing::gateway_api::StatusView;
use crate::routing::header_of;
use claims::Claims;
use finding::Report;
use pilotfish_config::extensions::{TrafficExtension, WasmPlugin};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{
    DestinationRule, EnvoyFilter, Gateway, ServiceEntry, Sidecar, VirtualService,
};
use pilotfish_config::security::{AuthorizationPolicy, PeerAuthentication, RequestAuthentication};
use pilotfish_config::status::Controllers;
use pilotfish_config::telemetry::Telemetry;
use pilotfish_model::{
    ChangeSet, ClusterId, Fact, Kind, KindSpec, Object, ObjectKey, Typed, World, WorldWriter,
};
use services::ServiceFindings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Completeness of the known objects of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Completeness {
    /// All of it: what is not there is missing.
    #[default]
    Whole,
    /// Perhaps only a part: something is missing only where the like of it is there, or where a name is
    /// nearly one that is.
    Partly,
}

/// Completeness of services and Secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    /// Services of all registries.
    pub services: Completeness,
    pub secrets: Completeness,
}

/// Settings on which findings depend, in addition to the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Setting {
    known: Known,
    status: StatusView,
}

/// Kinds whose objects are analysed one by one.
const KINDS: [Kind; 22] = [
    Kind::VirtualService,
    Kind::DestinationRule,
    Kind::Gateway,
    Kind::ServiceEntry,
    Kind::Sidecar,
    Kind::EnvoyFilter,
    Kind::AuthorizationPolicy,
    Kind::PeerAuthentication,
    Kind::RequestAuthentication,
    Kind::Telemetry,
    Kind::WasmPlugin,
    Kind::TrafficExtension,
    Kind::GatewayClass,
    Kind::KubernetesGateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::BackendTlsPolicy,
    Kind::MeshConfig,
    Kind::Service,
];

/// Follows worlds and keeps what is found in the newest one.
pub struct Analyzer {
    memo: Memo,
    setting: Arc<Setting>,
    /// True once a world has been analysed.
    has_world: bool,
    /// The findings of each object that has some. Those of Services are under the first key of their kind.
    found: BTreeMap<ObjectKey, Arc<Vec<Finding>>>,
    rooted: BTreeSet<ObjectKey>,
    services: Arc<Vec<Finding>>,
    claims: Claims,
    /// Conflicts between VirtualServices with the same host.
    conflicts: BTreeMap<ObjectKey, Vec<Finding>>,
}

impl Analyzer {
    /// Creates an analyzer of an empty world, without findings.
    #[must_use]
    pub fn new(
        settings: impl Into<TranslationSettings>,
        cluster: ClusterId,
        controllers: Controllers,
        known: Known,
    ) -> Self {
        let status = StatusView { cluster, controllers, deploys: false };
        Self {
            memo: Memo::with_settings(settings.into()),
            setting: Arc::new(Setting { known, status }),
            has_world: false,
            found: BTreeMap::new(),
            rooted: BTreeSet::new(),
            services: Arc::default(),
            claims: Claims::default(),
            conflicts: BTreeMap::new(),
        }
    }

    /// From now on so much is known. Findings change with the next world.
    pub fn set_known(&mut self, known: Known) {
        if known != self.setting.known {
            let setting = Setting { known, status: self.setting.status.clone() };
            for object in std::mem::take(&mut self.rooted) {
                self.memo.unroot(&FindingsOf { object, setting: self.setting.clone() });
            }
            self.setting = Arc::new(setting);
            self.found.clear();
            (self.claims, self.conflicts) = (Claims::default(), BTreeMap::new());
            self.has_world = false;
        }
    }

    /// Follows to a world that differs by `changes` from the one before. Returns whether findings may differ.
    pub fn advance(&mut self, world: &Arc<World>, changes: &ChangeSet) -> bool {
        let (current, touched) = self.memo.advance(world.clone(), changes);
        let mut due: BTreeSet<ObjectKey> = BTreeSet::new();
        due.extend(
            touched.iter().filter_map(|root| root.query::<FindingsOf>()).map(|query| query.object.clone()),
        );
        // Without a world before, every object counts as changed.
        let mut differs = !self.has_world;
        if std::mem::replace(&mut self.has_world, true) {
            due.extend(changes.facts.iter().filter_map(|fact| match fact {
                Fact::Object(key) if is_looked_at(key.kind) => Some(key.clone()),
                _ => None,
            }));
        } else {
            let all = KINDS.iter().filter(|kind| is_looked_at(**kind));
            due.extend(all.flat_map(|kind| world.objects(*kind)).map(|object| object.key().clone()));
        }
        for object in &due {
            let query = FindingsOf { object: object.clone(), setting: self.setting.clone() };
            if world.object(object).is_none() {
                self.memo.unroot(&query);
                self.rooted.remove(object);
                differs |= self.found.remove(object).is_some();
                continue;
            }
            let (findings, node) = self.memo.get(&current, &query);
            if self.rooted.insert(object.clone()) {
                self.memo.set_root(node);
            }
            let before = match findings.is_empty() {
                true => self.found.remove(object),
                false => self.found.insert(object.clone(), findings.clone()),
            };
            differs |= before.map_or(!findings.is_empty(), |before| before != findings);
        }
        let (services, node) = self.memo.get(&current, &ServiceFindings);
        self.memo.set_root(node);
        drop(current);
        differs |= self.follow_claims(world, &due);
        differs |= *services != *self.services;
        self.services = services;
        self.memo.sweep_if_due();
        differs
    }

    /// Follows the hosts of VirtualServices that may differ. Returns whether something else is found of some.
    fn follow_claims(&mut self, world: &World, due: &BTreeSet<ObjectKey>) -> bool {
        let mut hosts = BTreeSet::new();
        let mut concerned = BTreeSet::new();
        for key in due.iter().filter(|key| key.kind == Kind::VirtualService) {
            let object = world.typed::<VirtualService>(&key.namespace, &key.name);
            let header = object.and_then(|object| header_of(&object, self.memo.domain()));
            hosts.extend(self.claims.set(key, header));
            concerned.insert(key.clone());
        }
        concerned.extend(self.claims.of_hosts(&hosts));
        let mut differs = false;
        for key in concerned {
            let found = self.claims.findings(&key);
            let before = match found.is_empty() {
                true => self.conflicts.remove(&key),
                false => self.conflicts.insert(key, found.clone()),
            };
            differs |= before.unwrap_or_default() != found;
        }
        differs
    }

    /// All findings in the newest world.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let of_objects = self.found.values().flat_map(|findings| findings.iter());
        of_objects.chain(self.conflicts.values().flatten()).chain(self.services.iter())
    }

    /// Returns the findings that an object would have if it were applied, and restores the state before.
    #[must_use]
    pub fn findings_of(&mut self, world: &Arc<World>, object: Object) -> Vec<Finding> {
        if !is_looked_at(object.key().kind) {
            return Vec::new();
        }
        let key = object.key().clone();
        let header =
            object.typed::<VirtualService>().and_then(|object| header_of(&object, self.memo.domain()));
        let conflicts = header.map(|header| self.claims.supposed(&key, &header)).unwrap_or_default();
        let mut writer = WorldWriter::at(world);
        writer.apply(pilotfish_model::Update::Object(object));
        let query = FindingsOf { object: key, setting: self.setting.clone() };
        let of = |memo: &Memo, current: &Current| Vec::clone(&memo.get(current, &query).0);
        let Some((supposed, changes)) = writer.publish() else {
            let found = of(&self.memo, &self.memo.read());
            return found.into_iter().chain(conflicts).collect();
        };
        let (current, before) = self.memo.advance(supposed, &changes);
        let found = of(&self.memo, &current);
        drop(current);
        let (current, after) = self.memo.advance(world.clone(), &changes);
        // Only what is fresh is reported as touched by the next world.
        for query in before.iter().chain(&after).filter_map(|root| root.query::<FindingsOf>()) {
            self.memo.get(&current, query);
        }
        self.memo.get(&current, &ServiceFindings);
        drop(current);
        found.into_iter().chain(conflicts).collect()
    }

    /// Number of computed results since the start; tests use it to see which results a change recomputes.
    #[must_use]
    pub fn computed(&self) -> u64 {
        self.memo.computed()
    }

    /// Number of results in the memo.
    #[must_use]
    pub fn results(&self) -> usize {
        self.memo.len()
    }
}

/// Services are looked at all together.
fn is_looked_at(kind: Kind) -> bool {
    kind != Kind::Service && KINDS.contains(&kind)
}

/// Query for the findings of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FindingsOf {
    object: ObjectKey,
    setting: Arc<Setting>,
}

impl Query for FindingsOf {
    type Output = Vec<Finding>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Finding> {
        let mut report = Report::new(cx, &self.object);
        self.check(&mut report);
        report.finish()
    }
}

impl FindingsOf {
    fn check(&self, report: &mut Report<'_, '_>) {
        let known = self.setting.known;
        match self.object.kind {
            Kind::VirtualService => self.with::<VirtualService>(report, |report, object| {
                virtual_service::check(report, known, object);
                jwt_claims::check(report, object);
                shadow::check(report, object);
            }),
            Kind::DestinationRule => self.with::<DestinationRule>(report, |report, object| {
                destination_rule::check(report, known, object);
            }),
            Kind::Gateway => {
                self.with::<Gateway>(report, |report, object| gateway::check(report, known, object));
            }
            Kind::ServiceEntry => self.with::<ServiceEntry>(report, services::check_entry),
            Kind::Sidecar => self.with::<Sidecar>(report, |report, object| {
                namespaced::check_sidecar(report, known, object);
            }),
            Kind::EnvoyFilter => {
                self.with::<EnvoyFilter>(report, |report, object| envoy_filter::check(report, object));
            }
            Kind::AuthorizationPolicy => self.with::<AuthorizationPolicy>(report, |report, object| {
                policies::check(report, object);
                policies::check_authorization(report, object);
            }),
            Kind::PeerAuthentication => self.with::<PeerAuthentication>(report, |report, object| {
                policies::check(report, object);
                mtls::check_policy(report, object);
            }),
            Kind::RequestAuthentication => self.with::<RequestAuthentication>(report, policies::check),
            Kind::WasmPlugin => self.with::<WasmPlugin>(report, policies::check),
            Kind::TrafficExtension => self.with::<TrafficExtension>(report, policies::check),
            Kind::Telemetry => self.with::<Telemetry>(report, |report, object| {
                policies::check(report, object);
                namespaced::check_telemetry(report, object);
            }),
            Kind::MeshConfig => {
                self.with::<MeshConfig>(report, |report, object| mesh::check(report, known, object));
            }
            Kind::HttpRoute => {
                conditions::check(report, &self.setting.status);
                redirects::check_http_route(report);
            }
            _ => conditions::check(report, &self.setting.status),
        }
    }

    /// Looks at the object, if it is there.
    fn with<'a, 'c, T: KindSpec>(
        &self,
        report: &mut Report<'a, 'c>,
        check: impl FnOnce(&mut Report<'a, 'c>, &Typed<T>),
    ) {
        if let Some(object) = report.cx.object::<T>(&self.object.namespace, &self.object.name) {
            check(report, &object);
        }
    }
}
