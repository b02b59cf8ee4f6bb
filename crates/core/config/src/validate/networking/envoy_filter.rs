//! EnvoyFilter: combinations of apply-to, match and operation. The types of patch values, and regular
//! expressions of versions, are checked where patches are applied.

use crate::networking::{
    ApplyTo, EnvoyConfigObjectMatch, EnvoyConfigObjectPatch, EnvoyFilter, FilterMatch, ListenerMatch, Patch,
    PatchContext, PatchOperation,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::each;
use crate::validate::fields::selectors;
use crate::validate::fields::values::at_most_one;
use crate::validate::limits;
use pilotfish_model::ObjectMeta;

/// Both names of the HTTP connection manager.
const CONNECTION_MANAGER: [&str; 2] =
    ["envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"];

pub(in crate::validate) fn check(filter: &EnvoyFilter, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    if !limits::envoy_filter(filter, at, checker) {
        return;
    }
    let exclusive = [
        ("workloadSelector", filter.workload_selector.is_some()),
        ("targetRefs", !filter.target_refs.is_empty()),
    ];
    at_most_one(&exclusive, at, checker);
    if let Some(selector) = &filter.workload_selector {
        selectors::label_selector(selector, &at.field("workloadSelector"), checker);
    }
    selectors::target_references(&filter.target_refs, &at.field("targetRefs"), checker);
    each(&filter.config_patches, &at.field("configPatches"), checker, config_patch);
}

fn config_patch(patch: &EnvoyConfigObjectPatch, at: &Path<'_>, checker: &mut Checker) {
    if patch.apply_to == ApplyTo::Invalid {
        checker.error(&at.field("applyTo"), "must be set");
    }
    match &patch.patch {
        None => checker.error(&at.field("patch"), "must be set"),
        Some(change) => operation(change, patch.apply_to, &at.field("patch"), checker),
    }
    if let Some(condition) = &patch.r#match {
        matched(condition, patch.apply_to, &at.field("match"), checker);
    }
}

fn operation(patch: &Patch, apply_to: ApplyTo, at: &Path<'_>, checker: &mut Checker) {
    let (field, value) = (at.field("operation"), at.field("value"));
    match (&patch.value, patch.operation) {
        (_, PatchOperation::Invalid) => checker.error(&field, "must be set"),
        (None, PatchOperation::Remove) => {}
        (None, _) => checker.error(&value, "must be set, unless operation is REMOVE"),
        (Some(_), PatchOperation::Remove) => checker.warning(&value, "is not used, as operation is REMOVE"),
        (Some(content), _) if !content.is_object() => checker.error(&value, "must be an object with fields"),
        (Some(_), _) => {}
    }
    if patch.operation.is_insertion() && !apply_to.has_order() && apply_to != ApplyTo::Invalid {
        checker.warning(&field, "means ADD here, only filters and routes have an order");
    }
}

fn matched(value: &EnvoyConfigObjectMatch, apply_to: ApplyTo, at: &Path<'_>, checker: &mut Checker) {
    let objects = [
        ("listener", value.listener.is_some()),
        ("routeConfiguration", value.route_configuration.is_some()),
        ("cluster", value.cluster.is_some()),
        ("waypoint", value.waypoint.is_some()),
    ];
    at_most_one(&objects, at, checker);
    let wanted = match apply_to {
        ApplyTo::Listener
        | ApplyTo::FilterChain
        | ApplyTo::NetworkFilter
        | ApplyTo::HttpFilter
        | ApplyTo::ListenerFilter => "listener",
        ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => "routeConfiguration",
        ApplyTo::Cluster => "cluster",
        ApplyTo::Invalid | ApplyTo::ExtensionConfig | ApplyTo::Bootstrap => return,
    };
    let fits = |field: &str| field == wanted || (field == "waypoint" && wanted != "cluster");
    let several = objects.iter().filter(|(_, set)| *set).count() > 1;
    for (field, _) in objects.into_iter().filter(|(field, set)| *set && !several && !fits(field)) {
        checker.warning(&at.field(field), format!("does not fit applyTo, a match on {wanted} is needed"));
    }
    let for_waypoints = value.context == PatchContext::Waypoint;
    for (field, _) in
        objects.into_iter().filter(|(field, set)| *set && (*field == "waypoint") != for_waypoints)
    {
        let rule = if for_waypoints { "must be a match on waypoint for" } else { "must only be set for" };
        checker.error(&at.field(field), format!("{rule} context WAYPOINT"));
    }
    if let Some(listener) = &value.listener {
        listener_match(listener, apply_to, &at.field("listener"), checker);
    }
}

fn listener_match(listener: &ListenerMatch, apply_to: ApplyTo, at: &Path<'_>, checker: &mut Checker) {
    let filter = listener.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref());
    let Some(filter) = filter else { return };
    let chain = at.field("filterChain");
    let at = chain.field("filter");
    if matches!(apply_to, ApplyTo::Listener | ApplyTo::FilterChain) {
        checker.warning(&at, "has no effect for this applyTo");
    }
    if filter.name.is_empty() {
        checker.warning(&at.field("name"), "is not set, so nothing matches");
    }
    deprecated_name(&filter.name, &at.field("name"), checker);
    sub_filter(filter, apply_to, &at, checker);
}

fn sub_filter(filter: &FilterMatch, apply_to: ApplyTo, at: &Path<'_>, checker: &mut Checker) {
    let Some(inner) = &filter.sub_filter else { return };
    let sub = at.field("subFilter");
    if apply_to != ApplyTo::HttpFilter {
        checker.warning(&sub, "has an effect for applyTo HTTP_FILTER only");
    } else if !filter.name.is_empty() && !CONNECTION_MANAGER.contains(&filter.name.as_str()) {
        let [manager, _] = CONNECTION_MANAGER;
        checker.warning(&at.field("name"), format!("should be {manager} beside subFilter"));
    }
    if inner.name.is_empty() {
        checker.warning(&sub.field("name"), "is not set, so nothing matches");
    }
    deprecated_name(&inner.name, &sub.field("name"), checker);
}

/// Warns of filter names from before Envoy's `envoy.filters` scheme.
fn deprecated_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    const RENAMED: [(&str, &str); 20] = [
        ("envoy.buffer", "envoy.filters.http.buffer"),
        ("envoy.client_ssl_auth", "envoy.filters.network.client_ssl_auth"),
        ("envoy.cors", "envoy.filters.http.cors"),
        ("envoy.csrf", "envoy.filters.http.csrf"),
        ("envoy.echo", "envoy.filters.network.echo"),
        ("envoy.ext_authz", "envoy.filters.http.ext_authz"),
        ("envoy.fault", "envoy.filters.http.fault"),
        ("envoy.grpc_http1_bridge", "envoy.filters.http.grpc_http1_bridge"),
        ("envoy.grpc_json_transcoder", "envoy.filters.http.grpc_json_transcoder"),
        ("envoy.grpc_web", "envoy.filters.http.grpc_web"),
        ("envoy.gzip", "envoy.filters.http.compressor"),
        ("envoy.health_check", "envoy.filters.http.health_check"),
        ("envoy.http_connection_manager", "envoy.filters.network.http_connection_manager"),
        ("envoy.ip_tagging", "envoy.filters.http.ip_tagging"),
        ("envoy.lua", "envoy.filters.http.lua"),
        ("envoy.mongo_proxy", "envoy.filters.network.mongo_proxy"),
        ("envoy.ratelimit", "envoy.filters.network.ratelimit"),
        ("envoy.redis_proxy", "envoy.filters.network.redis_proxy"),
        ("envoy.router", "envoy.filters.http.router"),
        ("envoy.tcp_proxy", "envoy.filters.network.tcp_proxy"),
    ];
    if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == name) {
        checker.warning(at, format!("{name:?} is an old name, write {new:?}"));
    }
}
