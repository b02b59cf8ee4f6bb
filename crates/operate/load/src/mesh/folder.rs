//! Files of the mesh, and their changes.
//!
//! There are few large files, three for each namespace, and a separate file for each object that a round
//! changes. A change is written next to its file first, so that the measurement only includes the rename.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use super::objects;
use super::world::{Pod, Sizes, namespace_name};

/// Kind of a change in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edit {
    /// An endpoint of a service that all proxies see.
    EndpointOfAll,
    /// An endpoint of a service in a namespace with a Sidecar.
    EndpointOfSome,
    /// Weights and a header in the VirtualService of a service that all proxies see.
    Routes,
    /// The DestinationRule of a service that all proxies see.
    DestinationRule,
    /// The Sidecar of one namespace.
    Sidecar,
    /// Adds a service that all proxies see.
    ServiceAdded,
    /// Removes the service that [`Self::ServiceAdded`] added.
    ServiceRemoved,
    /// The AuthorizationPolicy of one namespace.
    NamespacePolicy,
    /// The AuthorizationPolicy of one workload.
    WorkloadPolicy,
    /// The PeerAuthentication of one namespace.
    PeerAuthentication,
    /// The access log setting of the mesh: affects every listener.
    MeshAccessLog,
    /// The connect timeout of the mesh: affects every cluster.
    MeshConnectTimeout,
}

/// Directory with the mesh.
pub struct Folder {
    sizes: Sizes,
    folder: PathBuf,
    mesh_config: PathBuf,
    /// Rounds that the mesh's settings are from: access log and connect timeout.
    settings: Mutex<[usize; 2]>,
}

pub enum Prepared {
    /// A new file replaces another one.
    Replace {
        new: PathBuf,
        /// File that is replaced.
        path: PathBuf,
    },
    /// A file is removed.
    Remove(PathBuf),
}

impl Prepared {
    /// Makes the change.
    ///
    /// # Errors
    /// If the file cannot be replaced.
    pub fn commit(self) -> Result<()> {
        match self {
            Self::Replace { new, path } => {
                fs::rename(&new, &path).with_context(|| format!("cannot replace {}", path.display()))
            }
            Self::Remove(path) => {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
            }
        }
    }
}

impl Folder {
    /// Writes the mesh into a folder, and its settings beside it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(folder: &Path, mesh_config: &Path, sizes: Sizes) -> Result<Self> {
        sizes.check()?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let this = Self {
            sizes,
            folder: folder.to_owned(),
            mesh_config: mesh_config.to_owned(),
            settings: Mutex::default(),
        };
        let mut cluster = objects::root_namespace();
        cluster.extend((0..sizes.nodes()).map(|node| objects::node(&sizes, node)));
        // Its name sorts first: commands that apply files in order need namespaces first.
        this.write("cluster.yaml", &cluster)?;
        for namespace in 0..sizes.namespaces {
            let [core, endpoints, settings] = this.namespace(namespace);
            let name = namespace_name(namespace);
            this.write(&format!("{name}.yaml"), &core)?;
            this.write(&format!("{name}-endpoints.yaml"), &endpoints)?;
            this.write(&format!("{name}-istio.yaml"), &settings)?;
        }
        for edit in Edit::LASTING {
            this.prepare(edit, 0)?.commit()?;
        }
        Ok(this)
    }

    /// Sizes of the mesh.
    #[must_use]
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The three files of a namespace, without the objects that rounds change.
    fn namespace(&self, namespace: usize) -> [String; 3] {
        let sizes = &self.sizes;
        let services = || (namespace..sizes.services).step_by(sizes.namespaces);
        let mut core = objects::namespace(namespace);
        core.extend(services().map(|service| objects::service(sizes, service)));
        let pods = services().flat_map(|service| (service..sizes.pods).step_by(sizes.services));
        core.extend(pods.map(|index| objects::pod(sizes, &sizes.pod(index))));
        let moved = [self.of_all(), self.of_some()];
        let endpoints = services()
            .filter(|service| !moved.contains(service))
            .map(|service| objects::slice(sizes, service, None))
            .collect();
        let mut settings = String::new();
        for service in services().filter(|service| *service != self.routed()) {
            if sizes.has_routes(service) {
                settings += &objects::virtual_service(sizes, service, 0);
                settings += &objects::destination_rule(sizes, service, 0);
            }
            if sizes.has_policy(service) {
                settings += &objects::workload_policy(sizes, service, 0);
            }
        }
        if sizes.has_sidecar(namespace) && namespace != self.scoped() {
            settings += &objects::sidecar(namespace, 0);
        }
        let entries = (namespace..sizes.entries).step_by(sizes.namespaces);
        settings.extend(entries.map(|entry| objects::service_entry(sizes, entry)));
        [core, endpoints, settings]
    }

    /// Service whose routes are changed, in the namespace that all proxies see.
    #[must_use]
    pub fn routed(&self) -> usize {
        0
    }

    /// Service whose endpoint change all proxies see.
    #[must_use]
    pub fn of_all(&self) -> usize {
        self.sizes.namespaces
    }

    /// Namespace whose Sidecar is changed; without Sidecars the last one.
    #[must_use]
    pub fn scoped(&self) -> usize {
        self.sizes.namespaces - 1
    }

    /// Service whose endpoint change is seen by the proxies of its own namespace and by those without a
    /// Sidecar.
    #[must_use]
    pub fn of_some(&self) -> usize {
        self.sizes.namespaces + self.scoped()
    }

    /// Namespace whose policies are changed.
    #[must_use]
    pub fn guarded(&self) -> usize {
        1
    }

    /// Number of proxies that a change concerns.
    #[must_use]
    pub fn concerned(&self, edit: Edit) -> usize {
        let sizes = &self.sizes;
        match edit {
            Edit::EndpointOfSome => sizes.seeing(self.scoped()),
            Edit::Sidecar => sizes.pods_in(self.scoped()),
            Edit::NamespacePolicy | Edit::PeerAuthentication => sizes.pods_in(self.guarded()),
            Edit::WorkloadPolicy => sizes.pods_of(self.routed()),
            Edit::EndpointOfAll
            | Edit::Routes
            | Edit::DestinationRule
            | Edit::ServiceAdded
            | Edit::ServiceRemoved
            | Edit::MeshAccessLog
            | Edit::MeshConnectTimeout => sizes.pods,
        }
    }

    /// Writes the files of a change without applying it. Each round is different.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn prepare(&self, edit: Edit, round: usize) -> Result<Prepared> {
        let sizes = &self.sizes;
        let text = match edit {
            Edit::EndpointOfAll => objects::slice(sizes, self.of_all(), Some(round)),
            Edit::EndpointOfSome => objects::slice(sizes, self.of_some(), Some(20_000 + round)),
            Edit::Routes => objects::virtual_service(sizes, self.routed(), round),
            Edit::DestinationRule => objects::destination_rule(sizes, self.routed(), round),
            Edit::Sidecar => objects::sidecar(self.scoped(), round),
            Edit::ServiceAdded => objects::added_service(sizes, round),
            Edit::ServiceRemoved => return Ok(Prepared::Remove(self.folder.join("change-added.yaml"))),
            Edit::NamespacePolicy => objects::namespace_policy(self.guarded(), round),
            Edit::WorkloadPolicy => objects::workload_policy(sizes, self.routed(), round),
            Edit::PeerAuthentication => objects::peer_authentication(self.guarded(), round),
            Edit::MeshAccessLog => return self.prepare_mesh(0, round),
            Edit::MeshConnectTimeout => return self.prepare_mesh(1, round),
        };
        prepare(&self.folder.join(edit.file()), &text)
    }

    fn prepare_mesh(&self, setting: usize, round: usize) -> Result<Prepared> {
        let mut settings = self.settings.lock();
        if let Some(setting) = settings.get_mut(setting) {
            *setting = round;
        }
        let [access_log, connect_timeout] = *settings;
        prepare(&self.mesh_config, &objects::mesh_config(access_log, connect_timeout))
    }

    /// Writes additional Pods with their own endpoints, without applying them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn further(&self, file: &str, pods: &[Pod]) -> Result<Prepared> {
        let mut text = String::new();
        for pod in pods {
            text += &objects::pod(&self.sizes, pod);
            text += &objects::further_slice(&self.sizes, pod);
        }
        prepare(&self.folder.join(file), &text)
    }

    /// Change that removes a file again.
    #[must_use]
    pub fn without(&self, file: &str) -> Prepared {
        Prepared::Remove(self.folder.join(file))
    }

    /// Writes a file unless it exists: a server may be reading the directory.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        if fs::read(&path).is_ok_and(|known| known == text.as_bytes()) {
            return Ok(());
        }
        prepare(&path, text)?.commit()
    }
}

impl Edit {
    /// Changes of objects that exist from the beginning: all except for the added service.
    const LASTING: [Self; 9] = [
        Self::EndpointOfAll,
        Self::EndpointOfSome,
        Self::Routes,
        Self::DestinationRule,
        Self::Sidecar,
        Self::NamespacePolicy,
        Self::WorkloadPolicy,
        Self::PeerAuthentication,
        Self::MeshAccessLog,
    ];

    fn file(self) -> &'static str {
        match self {
            Self::EndpointOfAll => "change-endpoints-all.yaml",
            Self::EndpointOfSome => "change-endpoints-some.yaml",
            Self::Routes => "change-routes.yaml",
            Self::DestinationRule => "change-destination-rule.yaml",
            Self::Sidecar => "change-sidecar.yaml",
            Self::ServiceAdded | Self::ServiceRemoved => "change-added.yaml",
            Self::NamespacePolicy => "change-namespace-policy.yaml",
            Self::WorkloadPolicy => "change-workload-policy.yaml",
            Self::PeerAuthentication => "change-peer-authentication.yaml",
            Self::MeshAccessLog | Self::MeshConnectTimeout => "",
        }
    }

    /// Name of the change in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EndpointOfAll => "endpoint, seen by all",
            Self::EndpointOfSome => "endpoint, seen by some",
            Self::Routes => "VirtualService: weights, header",
            Self::DestinationRule => "DestinationRule",
            Self::Sidecar => "Sidecar of one namespace",
            Self::ServiceAdded => "Service added",
            Self::ServiceRemoved => "Service removed",
            Self::NamespacePolicy => "AuthorizationPolicy of a namespace",
            Self::WorkloadPolicy => "AuthorizationPolicy of a workload",
            Self::PeerAuthentication => "PeerAuthentication of a namespace",
            Self::MeshAccessLog => "MeshConfig: all listeners",
            Self::MeshConnectTimeout => "MeshConfig: all clusters",
        }
    }
}

fn prepare(path: &Path, text: &str) -> Result<Prepared> {
    // A server does not read the new file, since its name does not end in .yaml.
    let new = path.with_extension("new");
    write(&new, text)?;
    Ok(Prepared::Replace { new, path: path.to_owned() })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn small() -> Sizes {
        Sizes {
            services: 8,
            pods: 16,
            namespaces: 4,
            sidecars: 2,
            localities: 3,
            entries: 4,
            routes_every: 2,
            policies_every: 2,
        }
    }

    fn kinds(folder: &Path) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for file in fs::read_dir(folder).expect("readable").flatten() {
            let text = fs::read_to_string(file.path()).expect("readable");
            for kind in text.lines().filter_map(|line| line.strip_prefix("kind: ")) {
                *kinds.entry(kind.to_owned()).or_default() += 1;
            }
        }
        kinds
    }

    #[test]
    fn every_object_is_written_once() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("world");
        Folder::create(&folder, &temporary.path().join("mesh.yaml"), small()).expect("written");
        let found = kinds(&folder);
        let expected = [
            ("AuthorizationPolicy", 5),
            ("DestinationRule", 4),
            ("EndpointSlice", 8),
            ("Namespace", 5),
            ("Node", 3),
            ("PeerAuthentication", 1),
            ("Pod", 16),
            ("Service", 8),
            ("ServiceEntry", 4),
            ("Sidecar", 2),
            ("VirtualService", 4),
        ];
        assert_eq!(found, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    }

    #[test]
    fn a_service_comes_and_goes() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("world");
        let world = Folder::create(&folder, &temporary.path().join("mesh.yaml"), small()).expect("written");
        world.prepare(Edit::ServiceAdded, 1).expect("prepared").commit().expect("made");
        assert_eq!(kinds(&folder).get("Service"), Some(&9));
        world.prepare(Edit::ServiceRemoved, 1).expect("prepared").commit().expect("made");
        assert_eq!(kinds(&folder).get("Service"), Some(&8));
    }
}
