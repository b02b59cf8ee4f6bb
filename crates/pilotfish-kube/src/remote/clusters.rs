//! Which remote clusters there are, and what must happen so that they are read: a state machine without IO.
//!
//! Inputs are only noted; [`RemoteClusters::settle`] then returns the actions for all of them at once. A cluster belongs to one
//! Secret, or one file: to the one that it belongs to already, else to the oldest that claims it with a kubeconfig that can be used.
//!
//! Each way of generation a cluster is a [`ClusterGeneration`] with a number of its own. A changed kubeconfig makes a second one beside the
//! first, which serves on until the second has a complete list.

use super::folder::{File, Files};
use super::kubeconfig::{self, InsecureOptions, KubeconfigError};
use kube::config::Kubeconfig;
use pilotfish_config::kubernetes::Secret;
use pilotfish_config::{Effective, Problem, ProblemReport, Severity};
use pilotfish_model::{ObjectKey, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// One way of generation a cluster: with one kubeconfig, from one start on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterGeneration {
    /// The cluster's id.
    pub cluster: Arc<str>,
    /// Counts all generations of all clusters.
    pub number: u64,
}

impl fmt::Display for ClusterGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.cluster, self.number)
    }
}

/// What must happen.
#[derive(Clone)]
pub(super) enum Action {
    /// A cluster is read from now on. If it is read already, this is beside the old generation.
    Open(ClusterGeneration, Arc<Kubeconfig>),
    /// A generation is over; another one of the same cluster stays.
    Close(ClusterGeneration),
    /// A cluster is gone, with its generations.
    Remove(Arc<str>, Vec<ClusterGeneration>),
}

/// The entry of a Secret for one cluster.
struct Claim {
    text: Arc<[u8]>,
    kubeconfig: Result<Arc<Kubeconfig>, KubeconfigError>,
}

/// Where a kubeconfig comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A Secret.
    Secret(ObjectKey),
    /// A file, by its path.
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
    /// The generation that is in force.
    serving: u64,
    /// The generation that will take its place.
    coming: Option<u64>,
}

/// See the module's description.
pub(super) struct RemoteClusters {
    /// The id of the cluster that holds the Secrets.
    own: Arc<str>,
    allowed: InsecureOptions,
    claims: BTreeMap<Origin, Claims>,
    /// Problems of Secrets that are not even that.
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

    /// A Secret appeared or changed.
    pub(super) fn apply(&mut self, secret: &Typed<Secret>) {
        self.unreadable.remove(secret.key());
        let origin = Origin::Secret(secret.key().clone());
        let data = secret.data.iter().map(|(id, value)| (id.as_str().into(), Ok(value.0.as_slice())));
        self.claim(origin, secret.meta().created, data);
    }

    /// These are all files with kubeconfigs.
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

    /// A Secret cannot be read; its last good content stays in force.
    pub(super) fn refuse(&mut self, key: ObjectKey, problems: Vec<Problem>, last_good: bool) {
        let effective = if last_good { Effective::LastGood } else { Effective::Dropped };
        self.unreadable.insert(key, (problems, effective));
    }

    /// A Secret is gone.
    pub(super) fn delete(&mut self, key: &ObjectKey) {
        self.unreadable.remove(key);
        self.forget(&Origin::Secret(key.clone()));
    }

    fn forget(&mut self, origin: &Origin) -> Option<Claims> {
        let before = self.claims.remove(origin)?;
        self.dirty.extend(before.claims.keys().cloned());
        Some(before)
    }

    /// Whether a generation is in force, or will be.
    pub(super) fn is_current(&self, generation: &ClusterGeneration) -> bool {
        let cluster = self.clusters.get(&generation.cluster);
        cluster
            .is_some_and(|cluster| [Some(cluster.serving), cluster.coming].contains(&Some(generation.number)))
    }

    /// A generation has its first complete list: the one that it was to replace is over.
    pub(super) fn listed(&mut self, generation: &ClusterGeneration) -> Option<Action> {
        let cluster = self.clusters.get_mut(&generation.cluster)?;
        if cluster.coming != Some(generation.number) {
            return None;
        }
        cluster.coming = None;
        let old = std::mem::replace(&mut cluster.serving, generation.number);
        Some(Action::Close(ClusterGeneration { cluster: generation.cluster.clone(), number: old }))
    }

    /// A generation broke down. Another one begins beside what is left of it.
    pub(super) fn broke(&mut self, generation: &ClusterGeneration) -> Vec<Action> {
        let Some(cluster) = self.clusters.get(&generation.cluster) else { return Vec::new() };
        let newest = cluster.coming.unwrap_or(cluster.serving);
        let claim = self.claims.get(&cluster.owner).and_then(|all| all.claims.get(&generation.cluster));
        match claim.map(|claim| claim.kubeconfig.clone()) {
            Some(Ok(kubeconfig)) if newest == generation.number => self.open(&generation.cluster, kubeconfig),
            _ => Vec::new(),
        }
    }

    /// What must happen for all that was noted.
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
        // What is refused changes nothing; the owner of a cluster that runs may have become such a one.
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

    /// Opens another generation of a cluster that is read.
    fn open(&mut self, id: &Arc<str>, kubeconfig: Arc<Kubeconfig>) -> Vec<Action> {
        let Some(cluster) = self.clusters.get_mut(id) else { return Vec::new() };
        self.generations += 1;
        let generation = |number| ClusterGeneration { cluster: id.clone(), number };
        // One that never came into force blocks no other, and is not needed any more.
        let given_up = cluster.coming.replace(self.generations).map(|old| Action::Close(generation(old)));
        let open = Action::Open(generation(self.generations), kubeconfig);
        std::iter::once(open).chain(given_up).collect()
    }

    /// What a cluster belongs to. `None` when nothing claims it, or nothing with a kubeconfig that can be used.
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

    /// Everything that is wrong with the Secrets or files now. `cluster` is where Secrets come from.
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
