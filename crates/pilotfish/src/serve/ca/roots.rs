//! ConfigMap with the mesh's roots in each namespace, written by the leading replica.

use super::Ca;
use crate::serve::elections::elected;
use crate::serve::sources::Sources;
use crate::serve::status::touches_namespaces;
use crate::serve::subsystem::Subsystem;
use crate::settings::Settings;
use anyhow::Result;
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_ca::join_roots;
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
        let mut newest: Option<Arc<World>> = None;
        let mut reported = Vec::new();
        loop {
            tokio::select! {
                (world, changes) = follower.next() => {
                    let is_relevant = newest.is_none() || touches_namespaces(&changes);
                    newest = Some(world);
                    if !is_relevant {
                        continue;
                    }
                }
                // The sender lives as long as the authority.
                Ok(()) = roots.changed(), if newest.is_some() => {}
            }
            if let Some(world) = &newest {
                let own = roots.borrow_and_update().clone();
                let (desired, unusable) = desired(&own, world);
                if unusable != reported && !unusable.is_empty() {
                    tracing::warn!(
                        items = ?unusable,
                        "MeshConfig caCertificates: these have no certificate in `pem`, or other things than \
                         certificates; they are left out of the roots"
                    );
                }
                reported = unusable;
                sender.send_if_modified(|before| {
                    let differs = *before != desired;
                    *before = desired;
                    differs
                });
            }
        }
    }
}

/// Returns the roots of the authority and of the mesh's `caCertificates`, and the namespaces of the mesh.
/// Also returns the indices of `caCertificates` that cannot be used.
fn desired(own: &str, world: &World) -> (DesiredRoots, Vec<usize>) {
    with_mesh(world, |mesh| {
        let pems = mesh.ca_certificates.iter().enumerate();
        let pems = pems.filter_map(|(index, data)| Some((index, data.pem.as_deref()?)));
        let (indices, further): (Vec<usize>, Vec<&str>) = pems.unzip();
        let (roots, unusable) = join_roots([own].into_iter().chain(further));
        // The first text is that of the authority.
        let unusable = unusable.into_iter().filter_map(|position| indices.get(position.checked_sub(1)?));
        let unusable = unusable.copied().collect();
        let namespaces: BTreeSet<Arc<str>> = world
            .objects(Kind::Namespace)
            .filter(|object| {
                let name = object.key().name.as_ref();
                !IGNORED.contains(&name)
                    && takes_part(&mesh.discovery_selectors, name, Some(&object.meta.labels))
            })
            .map(|object| Arc::from(object.key().name.as_ref()))
            .collect();
        (DesiredRoots { roots: roots.into(), namespaces }, unusable)
    })
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
        let (found, unusable) = desired(&own.certificate, &scene.world());
        assert!(*found.roots == own.certificate && unusable.is_empty());
        assert_eq!(found.namespaces, ["bank", "kube-system", "shop"].map(Arc::from).into());

        let pem = |text: &str| serde_json::json!({"pem": text});
        let mesh = serde_json::json!({
            "caCertificates": [pem(&other.certificate), {"spiffeBundleUrl": "https://example.com"}, pem("odd")],
            "discoverySelectors": [{"matchLabels": {"mesh": "yes"}}],
        });
        scene.set_mesh(&mesh.to_string()).unwrap();
        scene.settle();
        let (found, unusable) = desired(&own.certificate, &scene.world());
        assert_eq!(unusable, [2]);
        assert_eq!(*found.roots, format!("{}{}", own.certificate, other.certificate));
        assert_eq!(found.namespaces, [Arc::from("bank")].into());
    }
}
