//! Patches as they are written in objects, with their values read.

use super::listeners::filter_match;
use super::merge::Lists;
use super::value::parse;
use super::version::Versions;
use super::{judge, names};
use crate::engine::{Cx, Query, reference};
use pilotfish_config::Problem;
use pilotfish_config::networking::{
    ApplyTo, EnvoyConfigObjectMatch, EnvoyConfigObjectPatch, EnvoyFilter, PatchOperation,
};
use pilotfish_model::{Namespace, Object, Origin, Typed};
use pilotfish_proto::rules::Extent;
use prost::Message;
use prost_reflect::DynamicMessage;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A patch with its parsed value.
#[derive(Clone, PartialEq)]
pub(super) struct Patch {
    pub(super) apply_to: ApplyTo,
    pub(super) operation: PatchOperation,
    pub(super) matches: EnvoyConfigObjectMatch,
    /// The value; none for removals.
    pub(super) value: Option<DynamicMessage>,
    pub(super) object: Origin,
    /// The position in the object.
    pub(super) index: u32,
}

impl std::fmt::Debug for Patch {
    /// Without the value: descriptors lead to each other in circles.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} on {:?} of {}", self.operation, self.apply_to, self.object)
    }
}

impl Patch {
    /// The field of the object in which it is written.
    pub(super) fn field(&self) -> String {
        format!("spec.configPatches[{}]", self.index)
    }

    /// The value as its type.
    pub(super) fn value_as<M: Message + Default>(&self) -> Option<M> {
        M::decode(&*super::value::encode(self.value.as_ref()?)).ok()
    }

    /// `None` for a patch that does nothing: of no known kind, or whose value is malformed or nothing that
    /// Envoy takes.
    fn read(written: &EnvoyConfigObjectPatch, object: &Origin, index: u32) -> Option<Self> {
        let patch = written.patch.as_ref()?;
        let value = match (patch.operation, &patch.value) {
            (PatchOperation::Invalid, _) => return None,
            (PatchOperation::Remove, _) => None,
            (operation, value) => Some(read_value(written.apply_to, operation, value.as_ref()?)?.ok()?),
        };
        Some(Self {
            apply_to: written.apply_to,
            operation: effective(patch.operation, written.apply_to),
            matches: written.r#match.clone().unwrap_or_default(),
            value,
            object: object.clone(),
            index,
        })
    }
}

/// Reads the value of a patch; `None` for what is never patched, an error for what the patch is left out for.
fn read_value(
    apply_to: ApplyTo,
    operation: PatchOperation,
    value: &serde_json::Value,
) -> Option<Result<DynamicMessage, String>> {
    let type_name = type_of(apply_to)?;
    let read = parse(type_name, value).map_err(|error| format!("is no {type_name}: {error}"));
    let extent = if Lists::of(operation).is_some() { Extent::Part } else { Extent::Whole };
    Some(read.and_then(|message| match judge::check(&message, extent) {
        Ok(()) => Ok(message),
        Err(fault) => Err(format!("is nothing that Envoy takes: {fault}")),
    }))
}

/// An insertion into what has no order adds, as istiod has it.
fn effective(operation: PatchOperation, apply_to: ApplyTo) -> PatchOperation {
    match operation.is_insertion() && !apply_to.has_order() {
        true => PatchOperation::Add,
        false => operation,
    }
}

/// Reasons for patches of an EnvoyFilter to have no effect: values that Envoy does not know or refuses,
/// expressions that do not compile. Each costs its patch alone, so these are warnings.
#[must_use]
pub fn check_object(object: &Object) -> Vec<Problem> {
    let Some(filter) = object.typed::<EnvoyFilter>() else { return Vec::new() };
    let patches = filter.config_patches.iter().enumerate();
    patches.flat_map(|(index, patch)| check_patch(&format!("spec.configPatches[{index}]"), patch)).collect()
}

fn check_patch(path: &str, written: &EnvoyConfigObjectPatch) -> Vec<Problem> {
    let mut problems = Vec::new();
    let patch = written.patch.as_ref().filter(|patch| patch.operation != PatchOperation::Remove);
    let read = patch.and_then(|patch| read_value(written.apply_to, patch.operation, patch.value.as_ref()?));
    match read {
        Some(Err(error)) => {
            let message = format!("{error}; the patch is left out");
            problems.push(Problem::doubt(&format!("{path}.patch.value"), message));
        }
        Some(Ok(value)) if goes_behind_router(written, &value) => {
            let message =
                "puts a filter behind the router, which must be the last one: Envoy refuses the listener";
            problems.push(Problem::doubt(&format!("{path}.patch.operation"), message));
        }
        _ => {}
    }
    let version = written.r#match.as_ref().and_then(|matches| matches.proxy.as_ref());
    if let Some(Err(error)) = version.map(|proxy| Versions::compile(&proxy.proxy_version)) {
        let message = format!("{error}; the patch is left out");
        problems.push(Problem::doubt(&format!("{path}.match.proxy.proxyVersion"), message));
    }
    problems
}

/// The filter that ends each list of HTTP filters.
const ROUTER: &str = "envoy.filters.http.router";

/// True if an HTTP filter is inserted after the router filter, which must be the last one.
fn goes_behind_router(written: &EnvoyConfigObjectPatch, value: &DynamicMessage) -> bool {
    let operation = written.patch.as_ref().map(|patch| patch.operation);
    let listener = written.r#match.as_ref().and_then(|matches| matches.listener.as_ref());
    let sub_filter = filter_match(listener).and_then(|filter| filter.sub_filter.as_ref());
    let after = sub_filter.is_none_or(|filter| names::matches(&filter.name, ROUTER));
    let is_last = match operation {
        Some(PatchOperation::Add) => true,
        Some(PatchOperation::InsertAfter) => after,
        _ => false,
    };
    let own = value.get_field_by_name("name");
    let is_router =
        own.is_some_and(|name| name.as_str().is_some_and(|name| names::canonical(name) == ROUTER));
    written.apply_to == ApplyTo::HttpFilter && is_last && !is_router
}

/// The message that values of patches on something are.
fn type_of(apply_to: ApplyTo) -> Option<&'static str> {
    Some(match apply_to {
        ApplyTo::Listener => "envoy.config.listener.v3.Listener",
        ApplyTo::ListenerFilter => "envoy.config.listener.v3.ListenerFilter",
        ApplyTo::FilterChain => "envoy.config.listener.v3.FilterChain",
        ApplyTo::NetworkFilter => "envoy.config.listener.v3.Filter",
        ApplyTo::HttpFilter => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        ApplyTo::RouteConfiguration => "envoy.config.route.v3.RouteConfiguration",
        ApplyTo::VirtualHost => "envoy.config.route.v3.VirtualHost",
        ApplyTo::HttpRoute => "envoy.config.route.v3.Route",
        ApplyTo::Cluster => "envoy.config.cluster.v3.Cluster",
        ApplyTo::ExtensionConfig => "envoy.config.core.v3.TypedExtensionConfig",
        ApplyTo::Bootstrap | ApplyTo::Invalid => return None,
    })
}

/// The patches of a namespace's objects, by object and position; those that cannot be read are not there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PatchesIn(pub(super) Namespace);

impl Query for PatchesIn {
    type Output = BTreeMap<(Arc<str>, u32), Arc<Patch>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let objects: Vec<Typed<EnvoyFilter>> = cx.objects_in(&self.0);
        let mut out = BTreeMap::new();
        for object in &objects {
            let origin = reference(object);
            for (index, written) in (0..).zip(&object.config_patches) {
                if let Some(patch) = Patch::read(written, &origin, index) {
                    out.insert((object.key().name.clone(), index), Arc::new(patch));
                }
            }
        }
        out
    }
}
