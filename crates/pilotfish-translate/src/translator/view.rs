//! Views: for each resource type, the facets of a proxy that its resources may depend on, and nothing else.
//!
//! Proxies with equal views get equal resources, so a resource is generated once per view, not per proxy. A facet that no
//! configuration makes use of is left at its default by the view's constructor, which may read the world to find out.

use crate::engine::memo::Query;
use crate::engine::{Batch, Cx};
use crate::envoy_filter::{Layer, Subject};
use crate::proxy::Proxy;
use crate::xds::cds::ClusterView;
use crate::xds::ecds::ExtensionView;
use crate::xds::eds::EndpointView;
use crate::xds::lds::ListenerView;
use crate::xds::nds::NameTableView;
use crate::xds::rds::RouteView;
use crate::xds::sds::SecretView;
use pilotfish_model::ServiceKey;
use pilotfish_proto::ResourceType;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// One proxy's view of one resource type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// Clusters.
    Cluster(ClusterView),
    /// Load assignments.
    Endpoint(EndpointView),
    /// Listeners, and the patches over them.
    Listener(ListenerView, Layer),
    /// Route configurations, and the patches over them.
    Route(RouteView, Layer),
    /// Secrets.
    Secret(SecretView),
    /// Extension configurations, and those that patches add.
    Extension(ExtensionView, Layer),
    /// The name table.
    NameTable(NameTableView),
}

/// What is generated together: as large as needed to see conflicts, as small as possible to follow a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Unit {
    /// The resources that do not come from services.
    Static,
    /// The resources of one service.
    Service(ServiceKey),
    /// The resources for traffic out of the proxy on one port; 0 for Unix sockets.
    Port(u32),
    /// The resources for traffic to the proxy's own workload.
    Inbound,
    /// The resources that EnvoyFilters add.
    Added,
    /// The one resource of that name, for types that are asked for by name.
    Named(Arc<str>),
}

impl View {
    /// The resource type.
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

    /// The views of a proxy; a type without one is not served to it.
    fn all(cx: &Cx<'_>, proxy: &Proxy) -> Vec<Self> {
        let views = [
            ClusterView::of(cx, proxy).map(Self::Cluster),
            EndpointView::of(cx, proxy).map(Self::Endpoint),
            ListenerView::of(cx, proxy)
                .map(|view| Self::Listener(view, Layer::of(cx, proxy, Subject::Listener))),
            RouteView::of(cx, proxy).map(|view| Self::Route(view, Layer::of(cx, proxy, Subject::Route))),
            SecretView::of(cx, proxy).map(Self::Secret),
            ExtensionView::of(cx, proxy)
                .map(|view| Self::Extension(view, Layer::of(cx, proxy, Subject::Extension))),
            NameTableView::of(cx, proxy).map(Self::NameTable),
        ];
        views.into_iter().flatten().collect()
    }

    /// For types that a proxy takes as a whole: the units of the whole set, in the order in which they are sent. `None`
    /// for types (and clients) that ask by name.
    fn units(&self, cx: &Cx<'_>) -> Option<Vec<Unit>> {
        match self {
            Self::Cluster(view) => view.units(cx),
            Self::Listener(view, layer) => {
                let mut units = view.units(cx)?;
                units.extend(layer.units());
                Some(units)
            }
            Self::NameTable(view) => view.units(cx),
            Self::Endpoint(_) | Self::Route(..) | Self::Secret(_) | Self::Extension(..) => None,
        }
    }

    fn generate(&self, cx: &Cx<'_>, unit: &Unit) -> Batch {
        match self {
            Self::Cluster(view) => view.generate(cx, unit),
            Self::Endpoint(view) => view.generate(cx, unit),
            Self::Listener(_, layer) if *unit == Unit::Added => layer.added_listeners(cx),
            Self::Listener(view, layer) => layer.listeners(cx, unit, view.generate(cx, unit)),
            Self::Route(view, layer) => layer.routes(cx, view.generate(cx, unit)),
            Self::Secret(view) => view.generate(cx, unit),
            Self::Extension(view, layer) => layer.extensions(cx, unit, view.generate(cx, unit)),
            Self::NameTable(view) => view.generate(cx, unit),
        }
    }
}

/// The views of one proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ViewsOf(pub(crate) Arc<Proxy>);

impl Query for ViewsOf {
    type Output = Vec<Arc<View>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        View::all(cx, &self.0).into_iter().map(Arc::new).collect()
    }
}

/// The resources of one unit for one view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Generate {
    pub(crate) view: Arc<View>,
    pub(crate) unit: Unit,
}

impl Query for Generate {
    type Output = Batch;

    fn compute(&self, cx: &Cx<'_>) -> Batch {
        self.view.generate(cx, &self.unit)
    }

    fn reconcile(old: Option<&Batch>, new: Batch, revision: u64) -> Batch {
        Batch::reconcile(old, new, revision)
    }
}

/// Which resources a view that is taken as a whole has, and which unit holds each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IndexOf(pub(crate) Arc<View>);

/// The answer to [`IndexOf`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    /// Names in the order in which they are sent.
    pub(crate) names: Arc<[Arc<str>]>,
    /// The unit that holds a name. Where two make the same name, the first one has it.
    pub(crate) unit_of: BTreeMap<Arc<str>, Unit>,
    /// All units, also those without resources.
    pub(crate) units: Vec<Unit>,
}

impl Query for IndexOf {
    /// `None` for a view whose resources are asked for by name.
    type Output = Option<Index>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let units = self.0.units(cx)?;
        let mut names = Vec::new();
        let mut unit_of = BTreeMap::new();
        for unit in &units {
            let batch = cx.get(&Generate { view: self.0.clone(), unit: unit.clone() });
            for resource in &batch.resources {
                if let Entry::Vacant(free) = unit_of.entry(resource.name.clone()) {
                    free.insert(unit.clone());
                    names.push(resource.name.clone());
                }
            }
        }
        Some(Index { names: names.into(), unit_of, units })
    }
}

#[cfg(test)]
mod tests;
