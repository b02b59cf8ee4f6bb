//! Remote clusters and the actions for reading them: a state machine without IO.
//!
//! Inputs are only noted; [`RemoteClusters::settle`] then returns the actions for all of them at once. A
//! cluster belongs to one Secret, or one file: to the one that it belongs to already, else to the oldest that
//! claims it with a kubeconfig that can be used.
//!
//! Each connection to a cluster with one kubeconfig is a [`ClusterGeneration`] with its own number. A changed
//! kubeconfig starts a second generation; the first stays in force until the second has a complete list.

use super::folder::{File, Files};
use super::kubeconfig::{self, InsecureOptions, KubeconfigError};
use kube::config::Kubeconfig;
use pilotfish_config::kubernetes::Secret;
use pilotfish_config::{Effective, Problem, ProblemReport, Severity};
use pilotfish_model::{ObjectKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// One reading of a cluster, with one kubeconfig and from one start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterGeneration {
    /// Id of the cluster.
    pub cluster: Arc<str>,
    /// Number that is unique among all generations of all clusters, and grows.
    pub number: u64,
}

impl fmt::Display for ClusterGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.cluster, self.number)
    }
}

/// Action on the tasks that read clusters.
#[derive(Clone)]
pub(super) enum Action {
    /// Start a generation, beside the old one if the cluster is read already.
    Open(ClusterGeneration, Arc<Kubeconfig>),
    /// Stop a generation; another one of the same cluster stays.
    Close(ClusterGeneration),
    /// Stop all generations of a cluster and remove its content.
    Remove(Arc<str>, Vec<ClusterGeneration>),
}

/// Entry of a Secret, or file, for one cluster.
struct Claim {
    text: Arc<[u8]>,
    kubeconfig: Result<Arc<Kubeconfig>, KubeconfigError>,
}

/// Source of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    Secret(ObjectKey),
    /// Path of a file.
    File(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(key) => key.fmt(f),
            Self::File(path) => path.fmt(f),
        }
    }
}

/// The content of one Secret or file.
struct Claims {
    created: i64,
    claims: BTreeMap<Arc<str>, Claim>,
}

/// A cluster that is read.
struct Cluster {
    owner: Origin,
    text: Arc<[u8]>,
    /// Number of the generation in force.
    serving: u64,
    /// Number of the generation that replaces it with its first complete list.
    coming: Option<u64>,
}

/// State machine of the remote clusters.
pub(super) struct RemoteClusters {
    /// Id of the cluster that holds the Secrets; entries for it are ignored.
    own: Arc<str>,
    allowed: InsecureOptions,
    claims: BTreeMap<Origin, Claims>,
    /// Problems of objects that cannot be read as Secrets.
    unreadable: BTreeMap<ObjectKey, (Vec<Problem>, Effective)>,
    clusters: BTreeMap<Arc<str>, Cluster>,
    dirty: BTreeSet<Arc<str>>,
    generations: u64,
}

impl RemoteClusters {
    pub(super) fn new(own: Arc<str>, allowed: InsecureOptions) -> Self {
        Self {
            own,
            allowed,
            claims: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            clusters: BTreeMap::new(),
            dirty: BTreeSet::new(),
            generations: 0,
        }
    }

    /// Notes a new or changed Secret.
    pub(super) fn apply(&mut self, secret: &Typed<Secret>) {
        self.unreadable.remove(secret.key());
        let origin = Origin::Secret(secret.key().clone());
        let data = secret.data.iter().map(|(id, value)| (id.as_str().into(), Ok(value.0.as_slice())));
        self.claim(origin, secret.meta().created, data);
    }

    /// Replaces the set of files with kubeconfigs.
    pub(super) fn set_files(&mut self, files: &Files) {
        let is_gone = |origin: &Origin| matches!(origin, Origin::File(path) if !files.contains_key(path));
        let gone: Vec<Origin> = self.claims.keys().filter(|origin| is_gone(origin)).cloned().collect();
        gone.iter().for_each(|origin| drop(self.forget(origin)));
        for (path, File { cluster, content }) in files {
            let content = content.as_deref().map_err(|reason| KubeconfigError::Unreadable(reason.clone()));
            self.claim(Origin::File(path.clone()), 0, [(cluster.clone(), content)].into_iter());
        }
    }

    fn claim<'a>(
        &mut self,
        origin: Origin,
        created: i64,
        kubeconfigs: impl Iterator<Item = (Arc<str>, Result<&'a [u8], KubeconfigError>)>,
    ) {
        let mut before = self.forget(&origin);
        let mut claims = BTreeMap::new();
        for (id, text) in kubeconfigs.filter(|(id, _)| **id != *self.own) {
            let known = before.as_mut().and_then(|before| before.claims.remove(&id));
            let claim = match text {
                Ok(text) => known
                    .filter(|known| *known.text == *text && known.kubeconfig.is_ok())
                    .unwrap_or_else(|| Claim {
                        text: text.into(),
                        kubeconfig: kubeconfig::read(text, &self.allowed).map(Arc::new),
                    }),
                Err(error) => Claim { text: Arc::default(), kubeconfig: Err(error) },
            };
            self.dirty.insert(id.clone());
            claims.insert(id, claim);
        }
        self.claims.insert(origin, Claims { created, claims });
    }

    /// Notes a Secret that cannot be read; its last good content stays in force.
    pub(super) fn refuse(&mut self, key: ObjectKey, problems: Vec<Problem>, last_good: bool) {
        let effective = if last_good { Effective::LastGood } else { Effective::Dropped };
        self.unreadable.insert(key, (problems, effective));
    }

    /// Notes a deleted Secret.
    pub(super) fn delete(&mut self, key: &ObjectKey) {
        self.unreadable.remove(key);
        self.forget(&Origin::Secret(key.clone()));
    }

    fn forget(&mut self, origin: &Origin) -> Option<Claims> {
        let before = self.claims.remove(origin)?;
        self.dirty.extend(before.claims.keys().cloned());
        Some(before)
    }

    /// True if the generation is in force or is to replace the one in force.
    pub(super) fn is_current(&self, generation: &ClusterGeneration) -> bool {
        let cluster = self.clusters.get(&generation.cluster);
        cluster
            .is_some_and(|cluster| [Some(cluster.serving), cluster.coming].contains(&Some(generation.number)))
    }

    /// Puts a generation with its first complete list in force; returns the end of the one that it replaces.
    pub(super) fn listed(&mut self, generation: &ClusterGeneration) -> Option<Action> {
        let cluster = self.clusters.get_mut(&generation.cluster)?;
        if cluster.coming != Some(generation.number) {
            return None;
        }
        cluster.coming = None;
        let old = std::mem::replace(&mut cluster.serving, generation.number);
        Some(Action::Close(ClusterGeneration { cluster: generation.cluster.clone(), number: old }))
    }

    /// Replaces a generation whose task failed by a new one; the content of the failed one stays until then.
    pub(super) fn broke(&mut self, generation: &ClusterGeneration) -> Vec<Action> {
        let Some(cluster) = self.clusters.get(&generation.cluster) else { return Vec::new() };
        let newest = cluster.coming.unwrap_or(cluster.serving);
        let claim = self.claims.get(&cluster.owner).and_then(|all| all.claims.get(&generation.cluster));
        match claim.map(|claim| claim.kubeconfig.clone()) {
            Some(Ok(kubeconfig)) if newest == generation.number => self.open(&generation.cluster, kubeconfig),
            _ => Vec::new(),
        }
    }

    /// Returns the actions for everything noted since the last call.
    pub(super) fn settle(&mut self) -> Vec<Action> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().flat_map(|id| self.settle_cluster(&id)).collect()
    }

    fn settle_cluster(&mut self, id: &Arc<str>) -> Vec<Action> {
        let Some((owner, claim)) = self.owner(id) else {
            return self.clusters.remove(id).map(|cluster| remove(id, &cluster)).into_iter().collect();
        };
        let (owner, text, kubeconfig) = (owner.clone(), claim.text.clone(), claim.kubeconfig.clone());
        let known = self.clusters.get_mut(id);
        // The owner of a running cluster may have got a kubeconfig that is refused: the cluster is read on
        // with the old one.
        let Ok(kubeconfig) = kubeconfig else { return Vec::new() };
        match known {
            Some(cluster) => {
                cluster.owner = owner;
                if cluster.text == text {
                    return Vec::new();
                }
                cluster.text = text;
            }
            None => {
                let serving = self.generations + 1;
                self.clusters.insert(id.clone(), Cluster { owner, text, serving, coming: None });
                self.generations = serving;
                return vec![Action::Open(
                    ClusterGeneration { cluster: id.clone(), number: serving },
                    kubeconfig,
                )];
            }
        }
        self.open(id, kubeconfig)
    }

    /// Starts another generation of a cluster that is read.
    fn open(&mut self, id: &Arc<str>, kubeconfig: Arc<Kubeconfig>) -> Vec<Action> {
        let Some(cluster) = self.clusters.get_mut(id) else { return Vec::new() };
        self.generations += 1;
        let generation = |number| ClusterGeneration { cluster: id.clone(), number };
        // A generation that never came into force is superseded: it must not block the new one.
        let given_up = cluster.coming.replace(self.generations).map(|old| Action::Close(generation(old)));
        let open = Action::Open(generation(self.generations), kubeconfig);
        std::iter::once(open).chain(given_up).collect()
    }

    /// Returns the Secret or file that a cluster belongs to; `None` without a claim with a usable kubeconfig.
    fn owner(&self, id: &Arc<str>) -> Option<(&Origin, &Claim)> {
        let claims = self.claims.iter().filter_map(|(origin, all)| {
            let claim = all.claims.get(id)?;
            Some((origin, all.created, claim))
        });
        let current = self.clusters.get(id).map(|cluster| &cluster.owner);
        let best = claims
            .filter(|(key, _, claim)| Some(*key) == current || claim.kubeconfig.is_ok())
            .min_by_key(|(key, created, _)| (Some(*key) != current, *created, *key));
        best.map(|(key, _, claim)| (key, claim))
    }

    /// Returns the current problems of the Secrets or files. `cluster` is the origin of Secrets in the
    /// reports.
    pub(super) fn problems(&self, cluster: &Arc<str>) -> Vec<ProblemReport> {
        let report = |origin: &Origin, severity, path: String, message, hint, effective| {
            let (file, object, path) = match origin {
                Origin::Secret(key) => (cluster.clone(), Some(key.clone()), path),
                Origin::File(path) => (path.clone(), None, String::new()),
            };
            ProblemReport {
                severity,
                file,
                document: 0,
                line: 0,
                object,
                revision: None,
                path,
                message,
                count: None,
                hint,
                effective,
            }
        };
        let mut reports = Vec::new();
        for (key, (problems, effective)) in &self.unreadable {
            reports.extend(problems.iter().map(|problem| {
                let (path, message) = (problem.path.to_string(), problem.message.clone());
                let origin = Origin::Secret(key.clone());
                report(&origin, problem.severity, path, message, problem.hint.clone(), *effective)
            }));
        }
        for (key, id, claim) in self.all_claims() {
            let path = format!("data[{id}]");
            let owner = self.clusters.get(id).map(|cluster| &cluster.owner);
            if let Err(error) = &claim.kubeconfig {
                let effective = if owner == Some(key) { Effective::LastGood } else { Effective::Dropped };
                let message = error.to_string();
                reports.push(report(key, Severity::Error, path, message, error.hint(), effective));
            } else if let Some(owner) = owner.filter(|owner| *owner != key) {
                let message = format!("the cluster belongs to {owner} already; this kubeconfig is ignored");
                reports.push(report(key, Severity::Warning, path, message, None, Effective::Dropped));
            }
        }
        reports
    }

    fn all_claims(&self) -> impl Iterator<Item = (&Origin, &Arc<str>, &Claim)> {
        self.claims
            .iter()
            .flat_map(|(origin, all)| all.claims.iter().map(move |(id, claim)| (origin, id, claim)))
    }
}

fn remove(id: &Arc<str>, cluster: &Cluster) -> Action {
    let numbers = [Some(cluster.serving), cluster.coming];
    let generations =
        numbers.into_iter().flatten().map(|number| ClusterGeneration { cluster: id.clone(), number });
    Action::Remove(id.clone(), generations.collect())
}
