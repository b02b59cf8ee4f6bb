//! Discovery: which kinds an API server serves, and where.
//!
//! An API server that has just started answers before it knows all that it has: for a moment its list of groups is short, with a
//! status of 200, and the right to something is denied because no role was read yet. Taking that at its word would take away every
//! object of the missing kinds. So a kind that is missing from the list counts as missing only when its own path answers 404, which an
//! API server answers only once all its paths are known (503 until then).

use super::kinds::{Kinds, ResourceQuery, paths};
use super::unserved::{UnservedKind, unserved_kinds};
use crate::request::{RequestError, within};
use crate::watch::Resource;
use futures::future::{join_all, join3};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use pilotfish_model::Kind;
use pilotfish_source::{Classify, ErrorClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a right must have been denied before it counts as taken away.
const CERTAIN: Duration = Duration::from_secs(30);

/// The outcome of a discovery.
pub(super) struct Discovered {
    /// Where each kind is served.
    pub(super) resources: BTreeMap<Kind, Resource>,
    /// The kinds of `known` that are served no longer.
    pub(super) gone: BTreeSet<Kind>,
    /// Whether Secrets of all namespaces may be read; `None` when the review failed.
    pub(super) all_secrets: Option<bool>,
    /// Whether ConfigMaps of all namespaces may be read; `None` when the review failed.
    pub(super) all_config_maps: Option<bool>,
    /// Whether the mesh-wide settings are read.
    pub(super) mesh: bool,
    /// Reviews of rights that failed.
    pub(super) unreviewed: Vec<Unreviewed>,
    /// Kinds that belong to Istio or the Gateway API and are not served; none of a remote cluster, whose configuration is not read.
    pub(super) unserved: Vec<UnservedKind>,
}

/// A review of a right that failed: whether the right is there stays unknown until the next discovery.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{objects}: {error}")]
pub(super) struct Unreviewed {
    /// What Pilotfish wants to read, in words.
    objects: &'static str,
    /// Why there is no verdict.
    error: RequestError,
}

impl Classify for Unreviewed {
    fn class(&self) -> ErrorClass {
        self.error.class()
    }
}

impl Discovered {
    /// Whether any of Istio's own kinds is served.
    pub(super) fn has_istio(&self) -> bool {
        self.resources.keys().any(|kind| kind.group().ends_with(".istio.io"))
    }
}

/// What to discover.
pub(super) struct Discovery {
    pub(super) client: Client,
    pub(super) kinds: Kinds,
    pub(super) root_namespace: Arc<str>,
    pub(super) mesh_config_map: Arc<str>,
    pub(super) secrets: Rights,
    pub(super) config_maps: Rights,
    /// Whether the mesh-wide settings are read already, or have to be.
    pub(super) mesh: bool,
    /// Where kinds are read now; `None` before the first discovery.
    pub(super) known: Option<BTreeMap<Kind, Resource>>,
}

/// What is known of the right to read Secrets, or ConfigMaps, of all namespaces. It is given by a role of its own that can be left
/// out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rights {
    /// Whether the last review allowed it; before the first one, the watch itself reports what is wrong.
    denied: bool,
    /// Since when it has been denied although it was given before.
    doubted: Option<Instant>,
}

impl Rights {
    pub(super) fn all(self) -> bool {
        !self.denied
    }

    /// Handles an answer. A right that was there is gone when it was denied for a while: an API server that starts denies
    /// everything until it has read its roles. `first`: nothing is read yet that could be taken away.
    pub(super) fn answered(&mut self, allowed: Option<bool>, first: bool, now: Instant) {
        match allowed {
            None => {}
            Some(true) => *self = Self::default(),
            Some(false) if self.denied => {}
            Some(false) => {
                let since = *self.doubted.get_or_insert(now);
                self.denied = first || now.duration_since(since) >= CERTAIN;
            }
        }
    }
}

impl Discovery {
    /// Asks the API server for the kinds that it serves, and for the rights to read them.
    ///
    /// # Errors
    /// When the API server does not list its groups, or does not say for sure that a missing kind is gone.
    pub(super) async fn run(mut self) -> Result<Discovered, String> {
        let groups = within(ANSWER, self.client.list_api_groups_aggregated()).await;
        let groups = groups.map_err(|error| error.to_string())?;
        let Reviewed { all_secrets, all_config_maps, mesh, unreviewed } = self.review_rights().await;
        let first = self.known.is_none();
        self.secrets.answered(all_secrets, first, Instant::now());
        self.config_maps.answered(all_config_maps, first, Instant::now());
        let wanted = ResourceQuery {
            kinds: self.kinds,
            root_namespace: &self.root_namespace,
            mesh_config_map: &self.mesh_config_map,
            all_secrets: self.secrets.all(),
            all_config_maps: self.config_maps.all(),
            mesh,
        };
        let mut resources = wanted.resources(&groups);
        let missing: Vec<(Kind, Vec<String>)> = match &self.known {
            Some(known) => {
                let missing = known.iter().filter(|(kind, _)| !resources.contains_key(kind));
                missing.map(|(kind, resource)| (*kind, vec![resource.path.clone()])).collect()
            }
            None => {
                let all = Kind::ALL.iter().copied().filter(|kind| self.kinds.includes(*kind));
                all.filter(|kind| !resources.contains_key(kind)).map(|kind| (kind, paths(kind))).collect()
            }
        };
        let verdicts = join_all(missing.iter().map(|(kind, paths)| self.is_gone(*kind, paths))).await;
        let (mut gone, mut kept) = (BTreeSet::new(), Vec::new());
        for ((kind, _), verdict) in missing.iter().zip(verdicts) {
            match (verdict, self.known.as_ref().and_then(|known| known.get(kind))) {
                (Ok(()), _) => drop(gone.insert(*kind)),
                // It stays as it is until the API server is sure.
                (Err(reason), Some(resource)) => {
                    kept.push(reason);
                    resources.insert(*kind, resource.clone());
                }
                (Err(reason), None) => return Err(reason),
            }
        }
        if let Some(reason) = kept.first() {
            tracing::info!(
                kinds = kept.len(),
                reason,
                "kinds are missing from the list of groups, and read on"
            );
        }
        let unserved = if self.kinds == Kinds::All { unserved_kinds(&groups) } else { Vec::new() };
        Ok(Discovered { resources, gone, all_secrets, all_config_maps, mesh, unreviewed, unserved })
    }

    /// Reviews the rights that decide what is read, all at a time.
    async fn review_rights(&self) -> Reviewed {
        let all_secrets = async {
            match self.kinds.includes(Kind::Secret) {
                true => self.may_list("Secrets of all namespaces", "secrets", None).await,
                false => Ok(false),
            }
        };
        let all_config_maps = async {
            match self.kinds {
                Kinds::All => self.may_list("ConfigMaps of all namespaces", "configmaps", None).await,
                // Of a remote cluster only what services and endpoints are made of is read.
                Kinds::Discovery => Ok(false),
            }
        };
        let mesh = async {
            match self.mesh {
                true => Ok(true),
                // Readers of remote clusters that were made for other control planes may not read them; they are not waited for.
                false => self.may_list("mesh config", "configmaps", Some(&self.mesh_config_map)).await,
            }
        };
        let (all_secrets, all_config_maps, mesh) = join3(all_secrets, all_config_maps, mesh).await;
        let mut unreviewed = Vec::new();
        let mut known = |review: Result<bool, Unreviewed>| review.map_err(|why| unreviewed.push(why)).ok();
        let (all_secrets, all_config_maps) = (known(all_secrets), known(all_config_maps));
        let mesh = known(mesh).unwrap_or(false);
        Reviewed { all_secrets, all_config_maps, mesh, unreviewed }
    }

    /// Whether the API server answers 404 at the kind's own paths.
    async fn is_gone(&self, kind: Kind, paths: &[String]) -> Result<(), String> {
        for path in paths {
            let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new());
            let request = request.map_err(|error| error.to_string())?;
            match within(ANSWER, self.client.request_text(request)).await {
                // Without the right to read the path, only the list counts. Bad credentials (401) prove nothing.
                Err(error) if matches!(error.status, Some(403 | 404)) => {}
                Ok(_) => return Err(format!("{kind} is served, and missing from the list of groups")),
                Err(error) => return Err(format!("whether there is {kind}: {error}")),
            }
        }
        Ok(())
    }

    /// Whether objects may be read: the one of that name in the root namespace, or those of all namespaces. `objects` names them
    /// for people.
    async fn may_list(
        &self,
        objects: &'static str,
        resource: &str,
        name: Option<&str>,
    ) -> Result<bool, Unreviewed> {
        let attributes = ResourceAttributes {
            resource: Some(resource.into()),
            name: name.map(str::to_owned),
            namespace: name.map(|_| self.root_namespace.to_string()),
            verb: Some("list".into()),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = within(ANSWER, reviews.create(&PostParams::default(), &review)).await;
        let answer = answer.map_err(|error| Unreviewed { objects, error })?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// What reviews of rights said; see [`Discovered`].
struct Reviewed {
    all_secrets: Option<bool>,
    all_config_maps: Option<bool>,
    mesh: bool,
    unreviewed: Vec<Unreviewed>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_gone_when_it_was_denied_for_a_while() {
        let mut rights = Rights::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        rights.answered(Some(true), true, at(0));
        rights.answered(Some(false), false, at(1));
        assert!(rights.all(), "an API server that starts denies everything");
        rights.answered(Some(true), false, at(2));
        rights.answered(Some(false), false, at(60));
        rights.answered(None, false, at(85));
        rights.answered(Some(false), false, at(89));
        assert!(rights.all());
        rights.answered(Some(false), false, at(90));
        assert!(!rights.all());
        rights.answered(None, false, at(91));
        assert!(!rights.all(), "no answer is no right");
        rights.answered(Some(true), false, at(92));
        assert!(rights.all());
    }

    #[test]
    fn what_was_never_given_is_not_waited_for() {
        let mut rights = Rights::default();
        assert!(rights.all(), "before it is known, the watch reports what is wrong");
        rights.answered(Some(false), true, Instant::now());
        assert!(!rights.all());
    }
}
