//! Discovery of the kinds that an API server serves, and of their paths.
//!
//! An API server that has just started answers before it has loaded everything: for a moment its list of
//! groups is short, with a status of 200, and rights are denied because no role was read yet. Trusting these
//! answers would remove every object of the missing kinds. So a missing kind counts as gone only when its own
//! path answers 404, which an API server answers only once all its paths are known (503 until then).

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
use pilotfish_runtime::{Classify, ErrorClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(20);
/// Time for which a right must be denied before it counts as revoked.
const CERTAIN: Duration = Duration::from_secs(30);

/// Result of a discovery.
pub(super) struct Discovered {
    /// The resource of each kind that is served.
    pub(super) resources: BTreeMap<Kind, Resource>,
    /// The kinds of `known` that are no longer served.
    pub(super) gone: BTreeSet<Kind>,
    /// True if Secrets of all namespaces may be read; `None` if the review failed.
    pub(super) all_secrets: Option<bool>,
    /// True if ConfigMaps of all namespaces may be read; `None` if the review failed.
    pub(super) all_config_maps: Option<bool>,
    /// True if the mesh-wide settings are read.
    pub(super) mesh: bool,
    /// Reviews of rights that failed.
    pub(super) unreviewed: Vec<Unreviewed>,
    /// Kinds of Istio or the Gateway API that are not read; empty for a remote cluster, whose configuration
    /// is not read.
    pub(super) unserved: Vec<UnservedKind>,
}

/// A failed review of a right. The right stays unknown until the next discovery.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{objects}: {error}")]
pub(super) struct Unreviewed {
    /// The objects that Pilotfish asked to read, in words.
    objects: &'static str,
    /// Error of the review.
    error: RequestError,
}

impl Classify for Unreviewed {
    fn class(&self) -> ErrorClass {
        self.error.class()
    }
}

impl Discovered {
    /// True if any of Istio's own kinds is served.
    pub(super) fn has_istio(&self) -> bool {
        self.resources.keys().any(|kind| kind.group().ends_with(".istio.io"))
    }
}

/// A discovery of kinds and rights at an API server.
pub(super) struct Discovery {
    pub(super) client: Client,
    pub(super) kinds: Kinds,
    pub(super) root_namespace: Arc<str>,
    pub(super) mesh_config_map: Arc<str>,
    pub(super) secrets: Rights,
    pub(super) config_maps: Rights,
    /// True if the mesh-wide settings are already read, or are required.
    pub(super) mesh: bool,
    /// The resources that are read now, by kind; `None` before the first discovery.
    pub(super) known: Option<BTreeMap<Kind, Resource>>,
}

/// State of the right to read Secrets, or ConfigMaps, of all namespaces. It is granted by a separate role,
/// which is optional.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rights {
    /// True if the last review denied it. Before the first review it is false, and the watch reports any
    /// error.
    denied: bool,
    /// Start of a denial that is too recent to count as revoked.
    doubted: Option<Instant>,
}

impl Rights {
    pub(super) fn all(self) -> bool {
        !self.denied
    }

    /// Applies the result of a review. A right that was granted counts as revoked only after [`CERTAIN`]: a
    /// starting API server denies everything until it has read its roles. With `first`, nothing is read yet,
    /// and a denial counts at once.
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
    /// Requests the served kinds, and reviews the rights to read them.
    ///
    /// # Errors
    /// If the API server does not list its groups, or does not confirm that a missing kind is gone.
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
                // The watch continues until the API server confirms that the kind is gone.
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
                "API discovery omits kinds that may still be served; their watches continue"
            );
        }
        let unserved = if self.kinds == Kinds::All { unserved_kinds(&groups) } else { Vec::new() };
        Ok(Discovered { resources, gone, all_secrets, all_config_maps, mesh, unreviewed, unserved })
    }

    /// Reviews the rights that decide what is read, concurrently.
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
                // A remote cluster's ConfigMaps are not read: services and endpoints do not derive from them.
                Kinds::Discovery => Ok(false),
            }
        };
        let mesh = async {
            match self.mesh {
                true => Ok(true),
                // A remote cluster's account that was created for another control plane may lack this right,
                // so readiness does not depend on it.
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

    /// Confirms that the kind is not served: its own paths are answered with 404, or with 403.
    ///
    /// # Errors
    /// If the kind is served, or a request fails.
    async fn is_gone(&self, kind: Kind, paths: &[String]) -> Result<(), String> {
        for path in paths {
            let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new());
            let request = request.map_err(|error| error.to_string())?;
            match within(ANSWER, self.client.request_text(request)).await {
                // Without the right to read the path, only the list is decisive. Bad credentials (401) prove
                // nothing.
                Err(error) if matches!(error.status, Some(403 | 404)) => {}
                Ok(_) => return Err(format!("{kind} is served, but API discovery omits it")),
                Err(error) => return Err(format!("cannot check if {kind} is served: {error}")),
            }
        }
        Ok(())
    }

    /// Reviews the right to list objects: the one with that name in the root namespace, or those of all
    /// namespaces. `objects` names them in messages.
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

/// Results of reviewing rights; see [`Discovered`].
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
