//! Views: for each resource type, the facets of a proxy on which its resources may depend.
//!
//! Proxies with equal views get equal resources, so a resource is generated once per view, not per proxy. The
//! view's constructor leaves facets that the configuration does not use at their defaults; it may read the
//! world to find out.

use crate::engine::memo::Query;
use crate::engine::{ByContent, Cx, EncodedResource, Refusal, ResourceBatch, ResourceBatchKey, Shared};
use crate::envoy::ClusterName;
use crate::envoy_filter::{Layer, Subject};
use crate::proxy::Proxy;
use crate::translator::budget::{ViewBudget, by_weight};
use crate::xds::cds::ClusterView;
use crate::xds::ecds::ExtensionView;
use crate::xds::eds::{self, EndpointView};
use crate::xds::lds::ListenerView;
use crate::xds::nds::NameTableView;
use crate::xds::rds::{self, RouteView};
use crate::xds::sds::SecretView;
use pilotfish_proto::ResourceType;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One proxy's view of one resource type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum View {
    Cluster(ClusterView),
    Endpoint(EndpointView),
    /// Listeners, and the patches over them.
    Listener(ListenerView, Layer),
    /// Route configurations, and the patches over them.
    Route(RouteView, Layer),
    Secret(SecretView),
    /// Extension configurations, and those that patches add.
    Extension(ExtensionView, Layer),
    NameTable(NameTableView),
}

impl View {
    #[must_use]
    pub(crate) fn resource_type(&self) -> ResourceType {
        match self {
            Self::Cluster(_) => ResourceType::Cluster,
            Self::Endpoint(_) => ResourceType::Endpoint,
            Self::Listener(..) => ResourceType::Listener,
            Self::Route(..) => ResourceType::Route,
            Self::Secret(_) => ResourceType::Secret,
            Self::Extension(..) => ResourceType::ExtensionConfig,
            Self::NameTable(_) => ResourceType::NameTable,
        }
    }

    /// Returns the views of a proxy; types without a view are not served to it. Several views of one type are
    /// parts: the first one that has a name takes precedence, and the part that most proxies share comes
    /// last.
    fn all(cx: &Cx<'_>, proxy: &Proxy) -> Vec<Self> {
        let mut views: Vec<Self> = ClusterView::of(cx, proxy).into_iter().map(Self::Cluster).collect();
        views.extend(EndpointView::of(cx, proxy).map(Self::Endpoint));
        let layer = Layer::of(cx, proxy, Subject::Listener);
        let listeners = ListenerView::of(cx, proxy).into_iter();
        views.extend(listeners.map(|view| Self::Listener(view, layer.clone())));
        let others = [
            RouteView::of(cx, proxy).map(|view| Self::Route(view, Layer::of(cx, proxy, Subject::Route))),
            SecretView::of(cx, proxy).map(Self::Secret),
            ExtensionView::of(cx, proxy)
                .map(|view| Self::Extension(view, Layer::of(cx, proxy, Subject::Extension))),
            NameTableView::of(cx, proxy).map(Self::NameTable),
        ];
        views.extend(others.into_iter().flatten());
        views
    }

    /// Returns the batches of a type that the proxy subscribes to as a whole, in sending order. `None` for
    /// types (and clients) that subscribe by name.
    fn batch_keys(&self, cx: &Cx<'_>) -> Option<Vec<ResourceBatchKey>> {
        match self {
            Self::Cluster(view) => view.batch_keys(cx),
            Self::Listener(view, layer) => {
                let mut batch_keys = view.batch_keys(cx)?;
                if view.has_added() {
                    batch_keys.extend(layer.batch_keys());
                }
                Some(batch_keys)
            }
            Self::NameTable(view) => view.batch_keys(cx),
            Self::Endpoint(_) | Self::Route(..) | Self::Secret(_) | Self::Extension(..) => None,
        }
    }

    /// Returns true if mesh-wide settings affect the batch: timeouts, logs, retries, localities. Resources
    /// that patches add, secrets, extension configurations and name tables do not depend on them.
    fn follows_mesh(&self, batch_key: &ResourceBatchKey) -> bool {
        match self {
            Self::Cluster(_) | Self::Endpoint(_) | Self::Listener(..) | Self::Route(..) => {
                *batch_key != ResourceBatchKey::Added
            }
            Self::Secret(_) | Self::Extension(..) | Self::NameTable(_) => false,
        }
    }

    fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        match self {
            Self::Cluster(view) => view.generate(cx, batch_key),
            Self::Endpoint(view) => view.generate(cx, batch_key),
            Self::Listener(_, layer) if *batch_key == ResourceBatchKey::Added => layer.added_listeners(cx),
            Self::Listener(view, layer) => layer.listeners(cx, batch_key, view.generate(cx, batch_key)),
            Self::Route(view, layer) => layer.routes(cx, view.generate(cx, batch_key)),
            Self::Secret(view) => view.generate(cx, batch_key),
            Self::Extension(view, layer) => layer.extensions(cx, batch_key, view.generate(cx, batch_key)),
            Self::NameTable(view) => view.generate(cx, batch_key),
        }
    }
}

/// Condition under which no resource has a name.
pub(crate) enum Absence {
    /// In every world, because of the form of the name.
    Always,
    /// While no service has that host and port, or no rule of the view the subset.
    While(ClusterName),
}

impl View {
    /// Returns the condition under which no resource has a name. It depends on the name alone, so that
    /// nothing has to be computed or stored for it. Returns `None` for names that may have a resource.
    pub(super) fn absence(&self, name: &str) -> Option<Absence> {
        match self {
            Self::Endpoint(view) if view.names_own_workload(name) => None,
            Self::Endpoint(_) => Some(ClusterName::parse(name).map_or(Absence::Always, Absence::While)),
            // A patch may add something to any route configuration.
            Self::Route(view, layer) if layer.is_empty() => {
                view.is_meaningless(name).then_some(Absence::Always)
            }
            _ => None,
        }
    }

    /// Returns the empty resource for a name that no resource has.
    pub(super) fn placeholder(&self, name: &str) -> Option<EncodedResource> {
        match self {
            Self::Endpoint(_) => Some(eds::empty(&name.into())),
            Self::Route(..) => Some(rds::empty(&name.into())),
            _ => None,
        }
    }
}

/// A view as part of queries, hashed once for its many results.
pub(crate) type SharedView = ByContent<View>;

/// The views of one proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ViewsOf(pub(crate) Arc<Proxy>);

impl Query for ViewsOf {
    type Output = Vec<SharedView>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let shared = |view: View| {
            let view = cx.shared().value(Arc::new(view));
            SharedView::new(view.clone(), &*view)
        };
        View::all(cx, &self.0).into_iter().map(shared).collect()
    }
}

/// The resources of one batch for one view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Generate {
    pub(crate) view: SharedView,
    pub(crate) batch_key: ResourceBatchKey,
}

impl Query for Generate {
    type Output = ResourceBatch;

    fn compute(&self, cx: &Cx<'_>) -> ResourceBatch {
        let mut batch = self.view.generate(cx, &self.batch_key);
        let mesh = if self.view.follows_mesh(&self.batch_key) { cx.mesh_origin() } else { None };
        if let Some(mesh) = mesh {
            let resources = batch.resources.into_iter().map(|resource| resource.made_by(&mesh));
            batch.resources = resources.collect();
        }
        batch
    }

    fn share(batch: ResourceBatch, shared: &Shared) -> ResourceBatch {
        shared.batch(batch)
    }

    fn weight(batch: &ResourceBatch) -> usize {
        batch.resources.iter().map(|resource| resource.body.len()).sum()
    }

    fn reconcile(old: Option<&ResourceBatch>, new: ResourceBatch, revision: u64) -> ResourceBatch {
        ResourceBatch::reconcile(old, new, revision)
    }
}

/// The batches of a view that is subscribed as a whole, in sending order; `None` for a view that is
/// subscribed by name. Separate from [`IndexOf`], so that the batches can be computed in parallel before the
/// index needs them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchKeysOf(pub(crate) SharedView);

impl Query for BatchKeysOf {
    type Output = Option<Arc<[ResourceBatchKey]>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        self.0.batch_keys(cx).map(Arc::from)
    }
}

/// Query for the resource names of a view that is subscribed as a whole, with the batch of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IndexOf(pub(crate) SharedView);

/// The answer to [`IndexOf`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    /// Names in the order in which they are sent.
    pub(crate) names: Arc<[Arc<str>]>,
    /// The batch of each name. If two batches have the same name, the first one takes precedence.
    pub(crate) batch_of: BTreeMap<Arc<str>, ResourceBatchKey>,
    /// All batches, also those without resources.
    pub(crate) batch_keys: Arc<[ResourceBatchKey]>,
    /// Refusals for batches beyond the limits.
    pub(crate) refused: Arc<[Refusal]>,
}

impl IndexOf {
    /// Returns the batches within the limits of a proxy, and the refusal for the others.
    fn affordable<'k>(
        &self,
        cx: &Cx<'_>,
        batch_keys: &'k [ResourceBatchKey],
    ) -> (HashMap<&'k ResourceBatchKey, Arc<ResourceBatch>>, Option<Refusal>) {
        let mut budget = ViewBudget::default();
        let mut batches = HashMap::with_capacity(batch_keys.len());
        for batch_key in by_weight(batch_keys) {
            let batch = cx.get(&Generate { view: self.0.clone(), batch_key: batch_key.clone() });
            if !budget.take(&batch) {
                let refused = budget.refusal(&batch, batch_keys.len() - batches.len());
                return (batches, refused);
            }
            batches.insert(batch_key, batch);
        }
        (batches, None)
    }
}

impl Query for IndexOf {
    /// `None` for a view whose resources are subscribed by name.
    type Output = Option<Index>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let batch_keys = Option::as_ref(&*cx.get(&BatchKeysOf(self.0.clone()))).cloned()?;
        let (batches, refused) = self.affordable(cx, &batch_keys);
        let mut names = Vec::new();
        let mut batch_of = BTreeMap::new();
        for (batch_key, batch) in batch_keys.iter().filter_map(|key| batches.get_key_value(key)) {
            for resource in &batch.resources {
                if let Entry::Vacant(free) = batch_of.entry(resource.name.clone()) {
                    free.insert((*batch_key).clone());
                    names.push(resource.name.clone());
                }
            }
        }
        let kept = batch_keys.iter().filter(|key| batches.contains_key(*key)).cloned();
        let batch_keys = if batches.len() == batch_keys.len() { batch_keys.clone() } else { kept.collect() };
        Some(Index { names: names.into(), batch_of, batch_keys, refused: refused.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests;
