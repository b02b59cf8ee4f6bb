//! Services that a namespace may see (`exportTo`), before any Sidecar.

use crate::engine::{Cx, Query};
use crate::services::labels_of_namespace;
use pilotfish_config::mesh::{EntryVisibility, ServiceEntryMatchingRule};
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace, Service, ServiceKey};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The mesh-wide default for services without `exportTo`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DefaultServiceExport;

impl Query for DefaultServiceExport {
    type Output = ExportTo;

    fn compute(&self, cx: &Cx<'_>) -> ExportTo {
        let mesh = cx.mesh();
        ExportTo::parse(mesh.default_service_export_to.iter().map(String::as_str), &".".into())
    }
}

/// True if a namespace may see a service.
#[must_use]
pub(crate) fn is_visible(cx: &Cx<'_>, service: &Service, from: &Namespace) -> bool {
    effective_export(cx, service).visible_to(from, &ExportTo::Public)
}

/// Returns the visibility of a service: its own, else the mesh's default. A ServiceEntry's is cut down to the
/// mesh's `serviceEntryVisibility` for its namespace.
fn effective_export<'a>(cx: &Cx<'_>, service: &'a Service) -> Cow<'a, ExportTo> {
    let home = &service.namespace;
    let export_to = match &service.export_to {
        ExportTo::Unset => Cow::Owned(with_home(&cx.get(&DefaultServiceExport), home)),
        written => Cow::Borrowed(written),
    };
    let is_entry = service.provenance.as_object().is_some_and(|key| key.object.kind == Kind::ServiceEntry);
    if !is_entry {
        return export_to;
    }
    match *cx.get(&EntryVisibilityOf(home.clone())) {
        EntryVisibility::Unspecified | EntryVisibility::Public => export_to,
        EntryVisibility::Namespace if export_to.visible_to(home, &ExportTo::Public) => {
            Cow::Owned(ExportTo::namespaces([home.clone()]))
        }
        EntryVisibility::Namespace | EntryVisibility::None => Cow::Owned(ExportTo::Nobody),
    }
}

/// The mesh's default for services of a namespace, which `.` stands for.
fn with_home(default: &ExportTo, home: &Namespace) -> ExportTo {
    let ExportTo::Namespaces(namespaces) = default else { return default.clone() };
    let to = |namespace: &Namespace| if namespace.as_str() == "." { home } else { namespace }.clone();
    ExportTo::namespaces(namespaces.iter().map(to))
}

/// The farthest that ServiceEntries of a namespace are seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EntryVisibilityOf(Namespace);

impl Query for EntryVisibilityOf {
    type Output = EntryVisibility;

    fn compute(&self, cx: &Cx<'_>) -> EntryVisibility {
        let mesh = cx.mesh();
        let Some(settings) = mesh.service_entry_visibility.as_ref().filter(|it| it.apply_to_sidecars) else {
            return EntryVisibility::Public;
        };
        let labels = labels_of_namespace(cx, &self.0);
        let matches = |rule: &ServiceEntryMatchingRule| {
            rule.namespace_selector.as_ref().is_some_and(|selector| selector.matches(&labels))
        };
        let policy = settings.policies.iter().find(|policy| policy.matching_rules.iter().all(matches));
        policy.map_or(settings.default_visibility, |policy| policy.visibility)
    }
}

/// All services by who may see them, each list in order of precedence: the oldest first, then by name and
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ByVisibility;

#[derive(Debug, Default, PartialEq)]
struct Visibility {
    public: Arc<[Arc<Service>]>,
    exported: BTreeMap<Namespace, Arc<[Arc<Service>]>>,
    /// By the namespace that they belong to, and may not be seen from.
    hidden_at_home: BTreeMap<Namespace, Arc<[Arc<Service>]>>,
}

impl Query for ByVisibility {
    type Output = Visibility;

    fn compute(&self, cx: &Cx<'_>) -> Visibility {
        Visibility::of(cx, cx.services().flat_map(|(_, services)| services.iter().cloned()).collect())
    }
}

impl Visibility {
    fn of(cx: &Cx<'_>, mut all: Vec<Arc<Service>>) -> Self {
        // Stable: services of one key keep the order of the registries.
        all.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        let mut public = Vec::new();
        let mut exported: BTreeMap<Namespace, Vec<Arc<Service>>> = BTreeMap::new();
        let mut hidden_at_home: BTreeMap<Namespace, Vec<Arc<Service>>> = BTreeMap::new();
        for service in all {
            let home = &service.namespace;
            match effective_export(cx, &service).into_owned() {
                ExportTo::Unset | ExportTo::Public => public.push(service),
                ExportTo::Nobody => hidden_at_home.entry(home.clone()).or_default().push(service),
                ExportTo::Namespaces(to) => {
                    if !to.contains(home) {
                        hidden_at_home.entry(home.clone()).or_default().push(service.clone());
                    }
                    for namespace in to.iter() {
                        exported.entry(namespace.clone()).or_default().push(service.clone());
                    }
                }
            }
        }
        let shared = |lists: BTreeMap<Namespace, Vec<Arc<Service>>>| {
            lists.into_iter().map(|(namespace, list)| (namespace, list.into())).collect()
        };
        Self { public: public.into(), exported: shared(exported), hidden_at_home: shared(hidden_at_home) }
    }

    fn visible_to(&self, namespace: &Namespace) -> VisibleServices {
        let exported = self.exported.get(namespace).cloned().unwrap_or_default();
        VisibleServices { exported, public: self.public.clone() }
    }

    fn hidden_in(&self, namespace: &Namespace) -> Arc<[Arc<Service>]> {
        self.hidden_at_home.get(namespace).cloned().unwrap_or_default()
    }
}

/// The services of one host: those that a namespace may see, and those of its own that it may not see.
pub(super) fn services_of_host(
    cx: &Cx<'_>,
    host: &Hostname,
    from: &Namespace,
) -> (VisibleServices, Arc<[Arc<Service>]>) {
    let keys = cx.namespaces_of(host).into_iter();
    let keys = keys.map(|namespace| ServiceKey { hostname: host.clone(), namespace });
    let services = keys.filter_map(|key| cx.services_of(&key)).flat_map(|services| services.to_vec());
    let visibility = Visibility::of(cx, services.collect());
    (visibility.visible_to(from), visibility.hidden_in(from))
}

/// The services that a namespace may see: those exported to it by name, then the public ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VisibleTo(pub Namespace);

/// The answer to [`VisibleTo`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VisibleServices {
    exported: Arc<[Arc<Service>]>,
    public: Arc<[Arc<Service>]>,
}

impl VisibleServices {
    /// The services in order of precedence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.exported.iter().chain(self.public.iter())
    }
}

impl Query for VisibleTo {
    type Output = VisibleServices;

    fn compute(&self, cx: &Cx<'_>) -> VisibleServices {
        cx.get(&ByVisibility).visible_to(&self.0)
    }
}

/// The services of a namespace that it may not see itself, in order of precedence: exported to others only,
/// or to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HiddenAtHome(pub(super) Namespace);

impl Query for HiddenAtHome {
    type Output = Arc<[Arc<Service>]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.get(&ByVisibility).hidden_in(&self.0)
    }
}
