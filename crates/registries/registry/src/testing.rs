//! Worlds made of YAML or objects in one call, for the tests of this crate and of those that read worlds.

use crate::{AggregateController, AggregateSettings, Input, LiveSettings, RegistrySettings, RegistryTable};
use pilotfish_config::{Limits, MeshFile, ReadFile, SourceEvent, read, read_mesh_file};
use pilotfish_model::{Object, ObjectKey, Provider, ShardKey, World, WorldWriter};
use std::sync::Arc;

/// The provider of Kubernetes, as the default table has it.
pub const KUBERNETES: Provider = Provider::new(0, "Kubernetes");
/// The provider of ServiceEntries, as the default table has it.
pub const EXTERNAL: Provider = Provider::new(1, "ServiceEntry");

/// A Service `web` in the namespace `shop`, with one Pod, which is its one endpoint and ready.
pub const SHOP: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}}
spec: {serviceAccountName: web, containers: [{name: app, image: x}]}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], \
         conditions: [{type: Ready, status: \"True\"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}, \
            targetRef: {kind: Pod, name: web-0, namespace: shop}}]
";

/// The name of the one source that feeds the controllers of this module.
pub const SOURCE: &str = "test";

/// A text that holds something else than valid objects.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// The objects of a YAML text.
///
/// # Errors
/// When anything in it was refused or is of an unknown kind.
pub fn objects(text: &str) -> Result<Vec<Object>, Unreadable> {
    taken(read("test.yaml", text.as_bytes(), &Limits::default()))
}

fn mesh_objects(which: MeshFile, text: Option<&str>) -> Result<Vec<Object>, Unreadable> {
    let Some(text) = text else { return Ok(Vec::new()) };
    taken(read_mesh_file(which, "mesh.yaml", text.as_bytes(), &Limits::default()))
}

fn taken(file: ReadFile) -> Result<Vec<Object>, Unreadable> {
    if let Some(refused) = file.rejected.first() {
        return Err(Unreadable(format!("{refused:?}")));
    }
    if let Some((kind, _)) = file.ignored.first_key_value() {
        return Err(Unreadable(format!("objects of the kind {kind} are not read")));
    }
    Ok(file.objects.into_iter().map(|read| read.object).collect())
}

/// The world of some YAML with MeshConfig and MeshNetworks, with all registries in sync: cluster
/// `Kubernetes`, domain `cluster.local`.
///
/// # Errors
/// When anything in the texts was refused.
pub fn world_from_yaml(
    text: &str,
    mesh: Option<&str>,
    networks: Option<&str>,
) -> Result<Arc<World>, Unreadable> {
    let mut all = mesh_objects(MeshFile::Config, mesh)?;
    all.extend(mesh_objects(MeshFile::Networks, networks)?);
    all.extend(objects(text)?);
    Ok(world_from_objects(all))
}

/// The world of some objects, with all registries in sync.
#[must_use]
pub fn world_from_objects(objects: impl IntoIterator<Item = Object>) -> Arc<World> {
    let mut scene = Scene::new();
    for object in objects {
        scene.apply_object(object);
    }
    scene.world()
}

/// A controller with the registries that read objects and the writer behind it: objects in, worlds out.
pub struct Scene {
    /// The controller, for what the scene does not offer itself.
    pub controller: AggregateController,
    feed: Arc<str>,
    writer: WorldWriter,
    world: Arc<World>,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// The Kubernetes and the ServiceEntry registry of the cluster `Kubernetes`, in sync, without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::with(&RegistrySettings::default())
    }

    /// Returns an empty scene with other settings.
    #[must_use]
    pub fn with(settings: &RegistrySettings) -> Self {
        let of_controller = AggregateSettings::default();
        let feed = of_controller.config_feed.clone();
        let mut controller = AggregateController::new(of_controller);
        controller.add_source(&feed, SOURCE);
        for (provider, registry) in RegistryTable::default().iter() {
            if let Input::Objects(new) = registry.input {
                controller.add_registry(new(provider, settings.clone()), &feed);
            }
        }
        let mut scene = Self { controller, feed, writer: WorldWriter::new(), world: Arc::default() };
        scene.send(SourceEvent::Listed);
        scene
    }

    /// Sends an event of the source.
    pub fn send(&mut self, event: SourceEvent) {
        if let Err(error) = self.controller.source_event(&self.feed, SOURCE, event) {
            tracing::error!(%error, "the feed of the test scene is unknown");
        }
    }

    /// Adds or changes an object.
    pub fn apply_object(&mut self, object: Object) {
        self.send(SourceEvent::Apply(object));
    }

    /// Adds or changes all objects of a YAML text.
    ///
    /// # Errors
    /// When anything in the text was refused.
    pub fn apply(&mut self, text: &str) -> Result<(), Unreadable> {
        for object in objects(text)? {
            self.apply_object(object);
        }
        Ok(())
    }

    /// Sets MeshConfig.
    ///
    /// # Errors
    /// When the text was refused.
    pub fn set_mesh(&mut self, text: &str) -> Result<(), Unreadable> {
        for object in mesh_objects(MeshFile::Config, Some(text))? {
            self.apply_object(object);
        }
        Ok(())
    }

    /// Sets MeshNetworks.
    ///
    /// # Errors
    /// When the text was refused.
    pub fn set_networks(&mut self, text: &str) -> Result<(), Unreadable> {
        for object in mesh_objects(MeshFile::Networks, Some(text))? {
            self.apply_object(object);
        }
        Ok(())
    }

    /// Takes an object away.
    pub fn delete(&mut self, key: ObjectKey) {
        self.send(SourceEvent::Delete(key));
    }

    /// The world as it is now.
    pub fn world(&mut self) -> Arc<World> {
        self.settle();
        self.world.clone()
    }

    /// Applies the inputs to the world, and returns the changes.
    pub fn settle(&mut self) -> pilotfish_model::ChangeSet {
        for update in self.controller.settle() {
            self.writer.apply(update);
        }
        match self.writer.publish() {
            Some((world, changes)) => {
                self.world = world;
                changes
            }
            None => pilotfish_model::ChangeSet::default(),
        }
    }
}

/// Returns the settings of a live registry for `--registry NAME=ADDRESS?OPTIONS`.
#[must_use]
pub fn live_settings(provider: &'static str, address: &str, options: &[(&str, &str)]) -> LiveSettings {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    LiveSettings {
        shard: ShardKey::new(Provider::new(2, provider), "c"),
        address: address.to_owned(),
        options: options.collect(),
        registry: RegistrySettings::default(),
    }
}
