//! Creation of ServiceExports for all Services of all clusters (Istio's `ENABLE_MCS_AUTO_EXPORT`), by the
//! leading replica.
//!
//! A Service is exported once, unless it has an export already or its host is local to its cluster. A deleted
//! export is not created again until the Service is.

use crate::control::{Follower, Shared};
use pilotfish_config::mesh::ClusterLocal;
use pilotfish_kube::client::Client;
use pilotfish_kube::remote::RemoteClients;
use pilotfish_kube_writer::lease::Leadership;
use pilotfish_kube_writer::service_exports::{Exported, export};
use pilotfish_model::ClusterDomain;
use pilotfish_model::{ChangeSet, ClusterId, Fact, Kind, Resolution, ServiceKey, World};
use pilotfish_runtime::BackoffPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Number of attempts for an export.
const TRIES: u32 = 5;
/// Pauses between attempts, without jitter because only one replica exports.
const BACKOFF: BackoffPolicy =
    BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(60)).with_jitter(0.0);
/// Pause between two exports, which limits them to 50 per second.
const BETWEEN: Duration = Duration::from_millis(20);

/// Service in a cluster.
type Target = (ServiceKey, ClusterId);

/// Exporter of Services, for the leading replica.
pub struct ServiceExporter {
    /// Client of the cluster of this control plane, and its id.
    pub client: Client,
    pub cluster: ClusterId,
    /// Clients of the other clusters.
    pub remote: RemoteClients,
    /// Domain of the host names of Services.
    pub domain: ClusterDomain,
    pub shared: Arc<Shared>,
}

impl ServiceExporter {
    /// Exports Services in each term of leadership. Does not return.
    pub async fn run(self, mut leadership: Leadership) {
        loop {
            leadership.gained().await;
            let mut term = leadership.clone();
            tokio::select! {
                () = self.export_all(self.shared.follow(), &leadership) => {}
                () = term.lost() => {}
            }
        }
    }

    async fn export_all(&self, mut follower: Follower, leadership: &Leadership) {
        let mut queue = ExportQueue::new(self.domain.clone());
        loop {
            let next = queue.next();
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                (world, changes) = follower.next() => queue.advance(&world, &changes, Instant::now()),
                () = due => {
                    if let Some(target) = queue.due(Instant::now()) {
                        if !leadership.leads() {
                            return;
                        }
                        let result = self.export(&target).await;
                        queue.done(target, result, Instant::now());
                    }
                }
            }
        }
    }

    async fn export(&self, (key, cluster): &Target) -> Result<Exported, String> {
        let client = match *cluster == self.cluster {
            true => Some(self.client.clone()),
            false => self.remote.of(cluster.as_str()),
        };
        let client = client.ok_or_else(|| "the cluster is not read now".to_owned())?;
        let Some(name) = object_name(key) else { return Ok(Exported::NoService) };
        export(&client, key.namespace.as_str(), name).await.map_err(|error| error.to_string())
    }
}

/// Returns the name of the Service, which is the first label of its host.
fn object_name(key: &ServiceKey) -> Option<&str> {
    key.hostname.as_str().split('.').next()
}

/// Queue of exports, and the Services that are done: a state machine without IO.
struct ExportQueue {
    domain: ClusterDomain,
    /// Hosts that are local to each cluster.
    local: ClusterLocal,
    started: bool,
    /// Time of the next attempt, and number of previous ones.
    waiting: BTreeMap<Target, (Instant, u32)>,
    agenda: BTreeSet<(Instant, Target)>,
    /// Services that were exported, or given up.
    done: BTreeSet<Target>,
    not_before: Option<Instant>,
}

impl ExportQueue {
    fn new(domain: ClusterDomain) -> Self {
        let (waiting, agenda, done) = Default::default();
        Self {
            domain,
            local: ClusterLocal::default(),
            started: false,
            waiting,
            agenda,
            done,
            not_before: None,
        }
    }

    /// Applies a world and its differences from the previous one.
    fn advance(&mut self, world: &World, changes: &ChangeSet, now: Instant) {
        let is_mesh = |fact: &Fact| matches!(fact, Fact::Object(key) if key.kind == Kind::MeshConfig);
        if !std::mem::replace(&mut self.started, true) || changes.facts.iter().any(is_mesh) {
            self.local = ClusterLocal::in_world(world, &self.domain);
            world.services().for_each(|(key, _)| self.check(world, key, now));
            return;
        }
        for fact in &changes.facts {
            if let Fact::Service(key) = fact {
                self.check(world, key, now);
            }
        }
    }

    fn check(&mut self, world: &World, key: &ServiceKey, now: Instant) {
        let services = world.services_of(key).map(|list| list.iter()).into_iter().flatten();
        let service = services
            .into_iter()
            .find(|service| service.kubernetes.is_some() && service.resolution != Resolution::Alias);
        let kubernetes = service.and_then(|service| service.kubernetes.as_deref());
        let hidden = kubernetes.map(|kubernetes| &kubernetes.confined_in_clusterset);
        // Hosts below clusterset.local are imports, not Services of the cluster.
        let is_own = object_name(key)
            .is_some_and(|name| *key.hostname.as_str() == *self.domain.service(name, &key.namespace));
        let is_own = is_own && !self.local.contains(&key.hostname);
        let hidden = hidden.filter(|_| is_own);
        let shards = world.endpoints_of(key).map(|all| &all.shards);
        let has = |cluster: &ClusterId| {
            service.is_some()
                && shards.is_some_and(|shards| shards.keys().any(|shard| shard.cluster == *cluster))
        };
        let first = (key.clone(), ClusterId::default());
        let of_key = |target: &&Target| target.0 == *key;
        let gone: Vec<Target> = self.done.range(first.clone()..).take_while(of_key).cloned().collect();
        gone.iter().filter(|(_, cluster)| !has(cluster)).for_each(|target| {
            self.done.remove(target);
        });
        let waiting: Vec<Target> =
            self.waiting.range(first..).map(|(target, _)| target).take_while(of_key).cloned().collect();
        for target in waiting {
            if hidden.is_none_or(|hidden| !hidden.contains(&target.1)) {
                self.forget(&target);
            }
        }
        for cluster in hidden.into_iter().flatten() {
            let target = (key.clone(), cluster.clone());
            if !self.done.contains(&target) && !self.waiting.contains_key(&target) {
                self.schedule(target, now, 0);
            }
        }
    }

    fn schedule(&mut self, target: Target, at: Instant, tries: u32) {
        self.waiting.insert(target.clone(), (at, tries));
        self.agenda.insert((at, target));
    }

    fn forget(&mut self, target: &Target) -> u32 {
        let Some((at, tries)) = self.waiting.remove(target) else { return 0 };
        self.agenda.remove(&(at, target.clone()));
        tries
    }

    /// Returns the time of the next export.
    fn next(&self) -> Option<Instant> {
        let (at, _) = self.agenda.first()?;
        Some(self.not_before.map_or(*at, |not_before| not_before.max(*at)))
    }

    /// Takes the Service that must be exported now. The caller must report the result with
    /// [`ExportQueue::done`].
    fn due(&mut self, now: Instant) -> Option<Target> {
        if self.next()? > now {
            return None;
        }
        self.not_before = Some(now + BETWEEN);
        self.agenda.first().map(|(_, target)| target.clone())
    }

    fn done(&mut self, target: Target, result: Result<Exported, String>, now: Instant) {
        let tries = self.forget(&target) + 1;
        let (key, cluster) = &target;
        match result {
            Ok(Exported::Made) => tracing::info!(%cluster, service = %key, "exported"),
            Ok(Exported::Known | Exported::NoService) => {}
            Err(_) if tries < TRIES => {
                return self.schedule(target, now + BACKOFF.wait(tries, 1.0), tries);
            }
            Err(reason) => {
                tracing::warn!(
                    %cluster, service = %key, reason,
                    "cannot be exported, given up after {TRIES} tries"
                );
            }
        }
        self.done.insert(target);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails this way")]
mod tests {
    use super::*;
    use pilotfish_model::ObjectKey;
    use pilotfish_registry::testing::Scene;
    use pilotfish_registry::{MultiClusterServices, RegistrySettings};

    fn scene() -> Scene {
        Scene::with(&RegistrySettings {
            multi_cluster_services: MultiClusterServices::Hosts,
            ..RegistrySettings::default()
        })
    }

    fn service(namespace: &str, name: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{clusterIP: 10.0.0.1, ports: [{{port: 80}}]}}\n---\n"
        )
    }

    struct Case {
        scene: Scene,
        queue: ExportQueue,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            let queue = ExportQueue::new(ClusterDomain::new("cluster.local"));
            Self { scene: scene(), queue, now: Instant::now() }
        }

        /// What is exported after this, with that result.
        fn exported(&mut self, result: &Result<Exported, String>) -> Vec<String> {
            let changes = self.scene.settle();
            let world = self.scene.world();
            self.queue.advance(&world, &changes, self.now);
            let mut names = Vec::new();
            for _ in 0..20 {
                self.now += Duration::from_secs(20);
                let Some(target) = self.queue.due(self.now) else { break };
                names.push(format!("{} in {}", target.0.hostname, target.1));
                self.queue.done(target, result.clone(), self.now);
            }
            names
        }
    }

    #[test]
    fn services_that_are_not_local_are_exported_once() {
        let mut case = Case::new();
        let made = Ok(Exported::Made);
        let of = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{name}.svc.cluster.local in Kubernetes")).collect()
        };
        case.scene.apply(&(service("shop", "a") + &service("kube-system", "dns"))).unwrap();
        assert_eq!(case.exported(&made), of(&["a.shop"]));
        assert!(case.exported(&made).is_empty());
        case.scene
            .apply("apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: b, namespace: shop}")
            .unwrap();
        case.scene.apply(&service("shop", "b")).unwrap();
        assert!(case.exported(&made).is_empty(), "it is exported");
        let a = ObjectKey::new(Kind::Service, "shop", "a");
        case.scene.delete(a);
        assert!(case.exported(&made).is_empty());
        case.scene.apply(&service("shop", "a")).unwrap();
        assert_eq!(case.exported(&made), of(&["a.shop"]), "it was created again");
        case.scene
            .set_mesh("serviceSettings: [{hosts: ['*.kube-system.svc.cluster.local'], settings: {clusterLocal: false}}]")
            .unwrap();
        assert_eq!(case.exported(&made), of(&["dns.kube-system"]), "it is local no longer");
    }

    #[test]
    fn what_fails_is_tried_five_times() {
        let mut case = Case::new();
        case.scene.apply(&service("shop", "a")).unwrap();
        assert_eq!(case.exported(&Err("no such kind".into())).len(), 5);
        assert!(case.exported(&Ok(Exported::Made)).is_empty());
    }
}
