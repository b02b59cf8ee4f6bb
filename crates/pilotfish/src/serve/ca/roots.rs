//! ConfigMap with the mesh's roots in each namespace, written by the leading replica.

use super::Ca;
use super::trust_bundles::{Bundles, FurtherRoots};
use crate::serve::elections::elected;
use crate::serve::sources::Sources;
use crate::serve::status::touches_namespaces;
use crate::serve::subsystem::Subsystem;
use crate::settings::Settings;
use anyhow::Result;
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_config::takes_part;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::with_mesh;
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::ca_roots::{DesiredRoots, RootsWriter};
use pilotfish_kube_writer::lease::{Leadership, LeaseSettings};
use pilotfish_model::{ClusterId, Kind, World};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// Lease of the replica that writes the ConfigMaps.
const LEASE: &str = "pilotfish-ca-leader";
/// Namespaces that never have the ConfigMap, as in istiod.
const IGNORED: [&str; 3] = ["kube-node-lease", "kube-public", "local-path-storage"];

/// Returns the subsystem that writes the ConfigMaps while this replica leads; `None` if no cluster is read.
pub(in crate::serve) fn subsystem(
    settings: &Settings,
    sources: &Sources,
    ca: &Arc<Ca>,
    shared: &Arc<Shared>,
    recorder: &Arc<PrometheusRecorder>,
) -> Option<Subsystem> {
    let (client, _) = sources.clients()?;
    let work = RootsWork {
        client: client.clone(),
        cluster: settings.registries.settings.cluster.clone(),
        ca: ca.clone(),
        shared: shared.clone(),
        recorder: recorder.clone(),
    };
    // All revisions share the ConfigMaps, so they share the Lease as well.
    let lease = LeaseSettings::new(settings.sources.root_namespace.as_str(), LEASE);
    Some(elected("writing the mesh's roots", client, lease, |leadership| work.run(leadership)))
}

/// Writer of the ConfigMaps, for the leading replica.
struct RootsWork {
    client: Client,
    cluster: ClusterId,
    ca: Arc<Ca>,
    shared: Arc<Shared>,
    recorder: Arc<PrometheusRecorder>,
}

impl RootsWork {
    /// Writes in each term of leadership.
    async fn run(self, mut leadership: Leadership) -> Result<()> {
        loop {
            leadership.gained().await;
            let (sender, desired) = watch::channel(DesiredRoots::default());
            let (client, cluster) = (self.client.clone(), self.cluster.to_string());
            let writer = RootsWriter::new(client, cluster, self.recorder.clone(), leadership.clone());
            tokio::select! {
                () = writer.run(desired) => {}
                () = self.follow(&sender) => {}
            }
        }
    }

    /// Publishes the roots and namespaces of each world and authority. Does not return.
    async fn follow(&self, sender: &watch::Sender<DesiredRoots>) {
        let (mut follower, mut roots) = (self.shared.follow(), self.ca.follow());
        let mut bundles = self.ca.bundles().follow();
        let mut newest: Option<Arc<World>> = None;
        loop {
            tokio::select! {
                (world, changes) = follower.next() => {
                    let is_relevant = newest.is_none() || touches_namespaces(&changes);
                    newest = Some(world);
                    if !is_relevant {
                        continue;
                    }
                }
                // The senders live as long as the authority.
                Ok(()) = roots.changed(), if newest.is_some() => {}
                Ok(()) = bundles.changed(), if newest.is_some() => {}
            }
            if let Some(world) = &newest {
                let own = roots.borrow_and_update().clone();
                let read = bundles.borrow_and_update().clone();
                let Some(desired) = desired(&own, world, &read) else { continue };
                sender.send_if_modified(|before| {
                    let differs = *before != desired;
                    *before = desired;
                    differs
                });
            }
        }
    }
}

/// Returns the roots of the authority and of the mesh's `caCertificates`, and the namespaces of the mesh;
/// `None` while a trust bundle is being read for the first time.
fn desired(own: &str, world: &World, bundles: &Bundles) -> Option<DesiredRoots> {
    let (roots, _) = FurtherRoots::of(world, bundles)?.joined(own);
    let namespaces: BTreeSet<Arc<str>> = with_mesh(world, |mesh| {
        let takes_part = |name: &str, labels| takes_part(&mesh.discovery_selectors, name, Some(labels));
        world
            .objects(Kind::Namespace)
            .filter(|object| {
                let name = object.key().name.as_ref();
                !IGNORED.contains(&name) && takes_part(name, &object.meta.labels)
            })
            .map(|object| Arc::from(object.key().name.as_ref()))
            .collect()
    });
    Some(DesiredRoots { roots: roots.into(), namespaces })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_ca::SelfSigned;
    use pilotfish_registry::testing::Scene;
    use std::time::SystemTime;

    #[test]
    fn namespaces_that_take_part_get_all_roots_of_the_mesh() {
        let now = SystemTime::now();
        let (own, other) = (SelfSigned::create(now).unwrap(), SelfSigned::create(now).unwrap());
        let mut scene = Scene::default();
        let namespace = |name: &str, labels: &str| {
            format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n---\n"
            )
        };
        let all = ["shop", "kube-public", "kube-system", "kube-node-lease", "local-path-storage"];
        let objects: String = all.iter().map(|name| namespace(name, "")).collect();
        scene.apply(&(objects + &namespace("bank", "mesh: 'yes'"))).unwrap();
        scene.settle();
        let found = desired(&own.certificate, &scene.world(), &Bundles::new()).unwrap();
        assert!(*found.roots == own.certificate);
        assert_eq!(found.namespaces, ["bank", "kube-system", "shop"].map(Arc::from).into());

        let pem = |text: &str| serde_json::json!({"pem": text});
        let mesh = serde_json::json!({
            "caCertificates": [pem(&other.certificate), pem("odd")],
            "discoverySelectors": [{"matchLabels": {"mesh": "yes"}}],
        });
        scene.set_mesh(&mesh.to_string()).unwrap();
        scene.settle();
        let found = desired(&own.certificate, &scene.world(), &Bundles::new()).unwrap();
        assert_eq!(*found.roots, format!("{}{}", own.certificate, other.certificate));
        assert_eq!(found.namespaces, [Arc::from("bank")].into());
    }
}
