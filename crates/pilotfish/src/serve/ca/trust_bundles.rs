//! Roots that workloads trust beside those of the authority: `caCertificates` of MeshConfig, as certificates
//! or as addresses of SPIFFE bundles.

use crate::serve::subsystem::{StopOrder, Subsystem};
use anyhow::Result;
use pilotfish_admin::Metrics;
use pilotfish_ca::{SpiffeBundle, join_roots};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_connect::{DocumentClient, document_address};
use pilotfish_control_plane::control::{Follower, Shared};
use pilotfish_control_plane::with_mesh;
use pilotfish_model::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// Maximum number of addresses: each is read at an interval.
const MOST: usize = 64;
/// Maximum size of all further roots in bytes: they are in each proxy, and in a ConfigMap of each namespace.
const LARGEST: usize = 512 << 10;
/// Interval at which bundles without a hint are read (SPIFFE Trust Domain and Bundle, section 4.1.2).
const INTERVAL: Duration = Duration::from_secs(300);
/// Shortest interval, whatever a bundle says, and the interval of tries after a failure.
const SHORTEST: Duration = Duration::from_secs(60);
/// Longest interval, whatever a bundle says.
const LONGEST: Duration = Duration::from_secs(1800);

/// Bundles by their address.
pub(super) type Bundles = BTreeMap<String, Bundle>;

/// State of one address after the first try to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bundle {
    /// Roots of the last successful read, in PEM; empty if all are revoked.
    roots: Option<Arc<str>>,
    is_failing: bool,
}

/// Bundles that are read again and again. Until a read succeeds, the roots before stay in force.
pub(crate) struct TrustBundles {
    read: watch::Sender<Arc<Bundles>>,
    metrics: Arc<Metrics>,
}

/// Roots beside those of the authority, with their positions in `caCertificates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FurtherRoots {
    texts: Vec<(usize, Arc<str>)>,
    /// Positions that would exceed the limits.
    left_out: Vec<usize>,
}

impl FurtherRoots {
    /// Returns the further roots of a world; `None` while a bundle is being read for the first time.
    pub(super) fn of(world: &World, bundles: &Bundles) -> Option<Self> {
        with_mesh(world, |mesh| {
            let (followed, mut found, mut size) = (addresses(mesh), Self::default(), 0);
            for (index, data) in mesh.ca_certificates.iter().enumerate() {
                let text = match (&data.pem, &data.spiffe_bundle_url) {
                    (Some(pem), _) => Some(Arc::from(pem.as_str())),
                    (None, Some(address)) if followed.contains(address.as_str()) => {
                        bundles.get(address)?.roots.clone().filter(|text| !text.is_empty())
                    }
                    (None, Some(_)) => {
                        found.left_out.push(index);
                        None
                    }
                    (None, None) => None,
                };
                let Some(text) = text else { continue };
                let after = size + text.len();
                if after > LARGEST {
                    found.left_out.push(index);
                } else {
                    size = after;
                    found.texts.push((index, text));
                }
            }
            Some(found)
        })
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Joins them to the roots of the authority. Also returns the positions in `caCertificates` that cannot
    /// be used.
    pub(super) fn joined(&self, own: &str) -> (String, Vec<usize>) {
        let further = self.texts.iter().map(|(_, text)| &**text);
        let (roots, unusable) = join_roots([own].into_iter().chain(further));
        // The first text is that of the authority.
        let unusable = unusable.into_iter().filter_map(|position| self.texts.get(position.checked_sub(1)?));
        let mut unusable: Vec<_> = unusable.map(|(index, _)| *index).chain(self.left_out.clone()).collect();
        unusable.sort_unstable();
        (roots, unusable)
    }
}

/// Returns the addresses of bundles that are read.
fn addresses(mesh: &MeshConfig) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for data in mesh.ca_certificates.iter().filter(|data| data.pem.is_none()) {
        if found.len() < MOST {
            found.extend(data.spiffe_bundle_url.as_deref());
        }
    }
    found
}

impl TrustBundles {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { read: watch::Sender::default(), metrics }
    }

    /// Returns the bundles that were read, now and when they change.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<Bundles>> {
        self.read.subscribe()
    }

    /// Returns the bundles that were read.
    pub(super) fn current(&self) -> Arc<Bundles> {
        self.read.borrow().clone()
    }

    /// Returns the subsystem that reads bundles until the process ends.
    pub(crate) fn subsystem(self: Arc<Self>, shared: &Shared) -> Subsystem {
        let follower = shared.follow();
        Subsystem::new("trust bundles", StopOrder::Abort).task(|_| self.run(follower))
    }

    /// Reads the bundles of each world. One address delays no other.
    async fn run(self: Arc<Self>, mut follower: Follower) -> Result<()> {
        let (mut tasks, mut running) = (JoinSet::new(), BTreeMap::<String, AbortHandle>::new());
        let (mut changed, mut reported) = (self.follow(), Vec::new());
        let mut newest: Option<Arc<World>> = None;
        loop {
            tokio::select! {
                (world, _) = follower.next() => {
                    let wanted = with_mesh(&world, |mesh| {
                        addresses(mesh).into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
                    });
                    for (_, task) in running.extract_if(.., |address, _| !wanted.contains(address)) {
                        task.abort();
                    }
                    self.update(|bundles| bundles.retain(|address, _| wanted.contains(address)));
                    for address in wanted {
                        let start = || tasks.spawn(self.clone().follow_address(address.clone()));
                        running.entry(address.clone()).or_insert_with(start);
                    }
                    newest = Some(world);
                }
                // The sender lives as long as this.
                Ok(()) = changed.changed() => {}
                Some(ended) = tasks.join_next() => match ended {
                    Err(error) if error.is_panic() => return Err(error.into()),
                    _ => continue,
                }
            }
            let bundles = changed.borrow_and_update().clone();
            let further = newest.as_ref().and_then(|world| FurtherRoots::of(world, &bundles));
            let unusable = further.map_or_else(Vec::new, |further| further.joined("").1);
            if unusable != reported && !unusable.is_empty() {
                tracing::warn!(
                    items = ?unusable,
                    "MeshConfig caCertificates: these have other things than certificates, or are too many or \
                     too large; they are left out of the roots"
                );
            }
            reported = unusable;
        }
    }

    /// Reads one address at its interval.
    async fn follow_address(self: Arc<Self>, address: String) {
        let source = document_address(&address).map(|target| (DocumentClient::new(&target, None), target));
        let mut is_failing = false;
        loop {
            let read = match &source {
                Ok((client, target)) => read(client.get(target, "").await),
                Err(reason) => Err(reason.clone()),
            };
            let wait = match read {
                Ok(SpiffeBundle { roots, refresh_hint }) => {
                    if is_failing {
                        tracing::info!(address, "a trust bundle is read again");
                    }
                    is_failing = false;
                    self.put(&address, Some(roots.into()));
                    refresh_hint.unwrap_or(INTERVAL).clamp(SHORTEST, LONGEST)
                }
                Err(reason) => {
                    if !is_failing {
                        let message =
                            "cannot read a trust bundle (spiffeBundleUrl); its roots before stay in force";
                        tracing::error!(address, reason, "{message}");
                    }
                    is_failing = true;
                    self.put(&address, None);
                    SHORTEST
                }
            };
            sleep(wait).await;
        }
    }

    /// Puts the result of a read in force; `None` if it failed.
    fn put(&self, address: &str, roots: Option<Arc<str>>) {
        self.update(|bundles| {
            let bundle = bundles.entry(address.to_owned()).or_default();
            bundle.is_failing = roots.is_none();
            if roots.is_some() {
                bundle.roots = roots;
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut Bundles)) {
        self.read.send_if_modified(|current| {
            let mut new = Bundles::clone(current);
            change(&mut new);
            if new == **current {
                return false;
            }
            let failing = new.values().filter(|bundle| bundle.is_failing).count();
            self.metrics.ca.bundles_failing.set(i64::try_from(failing).unwrap_or(i64::MAX));
            *current = Arc::new(new);
            true
        });
    }
}

fn read(text: Result<Vec<u8>, String>) -> Result<SpiffeBundle, String> {
    SpiffeBundle::parse(&text?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
