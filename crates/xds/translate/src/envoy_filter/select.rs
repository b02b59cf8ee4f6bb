//! Selection of the patches that apply to a proxy.

use super::parse::{Patch, PatchesIn};
use super::version::Versions;
use crate::engine::{Cx, Query, Refusal};
use crate::policy::attachment::GATEWAY_NAME;
use crate::proxy::Proxy;
use crate::proxy::locality::ProxyLocality;
use pilotfish_config::networking::{ApplyTo, EnvoyFilter, ProxyMatch};
use pilotfish_model::{ClusterId, Kind, Labels, Namespace, ObjectKey, Origin, Typed, label_subset};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kind of resources that patches are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Cluster,
    /// Listeners, with the routes inside of inbound ones.
    Listener,
    Route,
    Extension,
}

impl Subject {
    fn has(self, apply_to: ApplyTo) -> bool {
        let in_routes =
            matches!(apply_to, ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute);
        match self {
            Self::Cluster => apply_to == ApplyTo::Cluster,
            Self::Extension => apply_to == ApplyTo::ExtensionConfig,
            Self::Route => in_routes,
            Self::Listener => {
                in_routes
                    || matches!(
                        apply_to,
                        ApplyTo::Listener
                            | ApplyTo::ListenerFilter
                            | ApplyTo::FilterChain
                            | ApplyTo::NetworkFilter
                            | ApplyTo::HttpFilter
                    )
            }
        }
    }
}

/// The patches for a proxy, in the order of application: a facet of views. Proxies with the same patches are
/// equal, whatever labels and metadata selected them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Patches {
    keys: Arc<[Key]>,
    /// The first patch beyond a limit.
    left_out: Option<Key>,
}

/// The most patches on one type of a proxy's resources (limit `proxy-patches`).
pub(crate) const MAX_PATCHES: usize = 4_096;
/// The most bytes of their values (limit `proxy-patches-bytes`).
pub(crate) const MAX_PATCH_BYTES: usize = 4 << 20;

/// A patch by its object and its index there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: Namespace,
    object: Arc<str>,
    index: u32,
}

impl Patches {
    /// The patches for a kind of resources of a proxy.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy, target: Subject) -> Self {
        let root: Namespace = cx.mesh().root_namespace.as_str().into();
        let mut namespaces = vec![root.clone()];
        if proxy.namespace != root {
            namespaces.push(proxy.namespace.clone());
        }
        let sets: Vec<_> = namespaces.iter().map(|namespace| cx.get(&FiltersIn(namespace.clone()))).collect();
        if sets.iter().all(|set| set.is_empty()) {
            return Self::default();
        }
        let labels = ProxyLocality::of(cx, proxy).labels;
        let mut filters: Vec<&Filter> =
            sets.iter().flat_map(|set| set.iter()).filter(|filter| filter.selects(proxy, &labels)).collect();
        // The sort is stable: within a namespace they are in order of precedence already, and the root
        // namespace comes first.
        filters.sort_by_key(|filter| filter.priority);
        let held = filters.iter().flat_map(|filter| {
            let hold = filter.patches.iter().filter(|patch| target.has(patch.apply_to));
            let hold = hold.filter(|patch| patch.proxy.as_ref().is_none_or(|matches| matches.hold(proxy)));
            hold.map(move |patch| (*filter, patch))
        });
        let mut bytes = MAX_PATCH_BYTES;
        let mut fits = |(_, patch): &(&Filter, &Candidate)| {
            let left = bytes.checked_sub(patch.bytes);
            bytes = left.unwrap_or(bytes);
            left.is_some()
        };
        let mut left_out = None;
        let kept: Vec<_> = held
            .enumerate()
            .filter(|(place, it)| {
                let fits = *place < MAX_PATCHES && fits(it);
                if !fits {
                    left_out.get_or_insert_with(|| key(it));
                }
                fits
            })
            .map(|(_, it)| key(&it))
            .collect();
        Self { keys: kept.into(), left_out }
    }

    /// Refusal for the first patch beyond the limits on number and size of patches, if there is one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let Key { namespace, object, index } = self.left_out.as_ref()?;
        let key = ObjectKey::new(Kind::EnvoyFilter, namespace.clone(), object.clone());
        let fault = format!(
            "a proxy would have more than {MAX_PATCHES} patches (limit proxy-patches) or {MAX_PATCH_BYTES} \
             bytes of them (limit proxy-patches-bytes) on one type: this one is left out there, and others \
             that come later"
        );
        Some(Refusal {
            object: Origin::object(key, ClusterId::default()),
            field: format!("spec.configPatches[{index}]"),
            fault,
        })
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the patches, without those that cannot be parsed.
    pub(super) fn load(&self, cx: &Cx<'_>) -> Vec<Arc<Patch>> {
        let mut sets = BTreeMap::new();
        let patches = self.keys.iter().filter_map(|key| {
            let set = sets.entry(&key.namespace).or_insert_with(|| cx.get(&PatchesIn(key.namespace.clone())));
            set.get(&(key.object.clone(), key.index)).cloned()
        });
        patches.collect()
    }
}

/// The conditions of an EnvoyFilter on proxies.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    namespace: Namespace,
    name: Arc<str>,
    priority: i32,
    selector: Option<BTreeMap<String, String>>,
    /// Names of targeted Gateways of the Gateway API; `None` without target references.
    gateways: Option<Vec<String>>,
    patches: Vec<Candidate>,
}

#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    index: u32,
    apply_to: ApplyTo,
    proxy: Option<Conditions>,
    /// Approximate size of its value in bytes.
    bytes: usize,
}

fn key((filter, patch): &(&Filter, &Candidate)) -> Key {
    Key { namespace: filter.namespace.clone(), object: filter.name.clone(), index: patch.index }
}

/// Returns the approximate size of a value in bytes.
fn weight(value: &serde_json::Value) -> usize {
    use serde_json::Value as Json;
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(weight).sum(),
        Json::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
    }
}

impl Filter {
    fn of(object: &Typed<EnvoyFilter>) -> Self {
        let is_gateway = |reference: &&pilotfish_config::PolicyTargetReference| reference.kind == "Gateway";
        let references = &object.target_refs;
        let gateways = references.iter().filter(is_gateway).map(|reference| reference.name.clone()).collect();
        let patches = (0..).zip(&object.config_patches).map(|(index, patch)| Candidate {
            index,
            apply_to: patch.apply_to,
            proxy: patch.r#match.as_ref().and_then(|m| m.proxy.as_ref()).map(Conditions::of),
            bytes: patch.patch.as_ref().and_then(|patch| patch.value.as_ref()).map_or(0, weight),
        });
        Self {
            namespace: object.namespace().clone(),
            name: object.key().name.clone(),
            priority: object.priority,
            selector: object.workload_selector.as_ref().map(|selector| selector.labels.clone()),
            gateways: (!references.is_empty()).then_some(gateways),
            patches: patches.collect(),
        }
    }

    fn selects(&self, proxy: &Proxy, labels: &Labels) -> bool {
        if let Some(gateways) = &self.gateways {
            let own = labels.get(GATEWAY_NAME);
            return self.namespace == proxy.namespace
                && own.is_some_and(|own| gateways.iter().any(|name| *name == *own));
        }
        self.selector.as_ref().is_none_or(|selector| label_subset(selector, labels))
    }
}

/// Conditions on a proxy, the regular expression compiled.
#[derive(Clone, Debug)]
struct Conditions {
    /// `None` for no condition, an error for an unusable one, which matches nothing.
    version: Option<Result<Versions, ()>>,
    written: ProxyMatch,
}

impl PartialEq for Conditions {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Conditions {
    fn of(written: &ProxyMatch) -> Self {
        let version = (!written.proxy_version.is_empty())
            .then(|| Versions::compile(&written.proxy_version).map_err(drop));
        Self { version, written: written.clone() }
    }

    fn hold(&self, proxy: &Proxy) -> bool {
        let version = proxy.meta("ISTIO_VERSION");
        let of_version = match &self.version {
            None => true,
            Some(Ok(versions)) => versions.has(version),
            Some(Err(())) => false,
        };
        of_version && self.written.metadata.iter().all(|(key, value)| proxy.has_meta(key, value))
    }
}

/// The EnvoyFilters of a namespace, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FiltersIn(Namespace);

impl Query for FiltersIn {
    type Output = Vec<Filter>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Filter> {
        let mut objects: Vec<Typed<EnvoyFilter>> = cx.objects_in(&self.0);
        objects.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        objects.iter().map(Filter::of).collect()
    }
}
