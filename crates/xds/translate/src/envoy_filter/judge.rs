//! Checks for values that Envoy would reject: in patches before they are applied, and in the patched
//! resource. Only the patch that makes a resource invalid is left out, because Envoy would reject the whole
//! resource.

use super::parse::Patch;
use super::{Patched, value};
use pilotfish_config::{refused_by_lua, refused_by_re2};
use pilotfish_proto::rules::{self, Extent, Fault};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Applies patches, except those that make the message invalid for Envoy.
///
/// If the message is valid with all patches, that is the result. Otherwise they are tried in halves, down to
/// single ones, each on top of the accepted ones. If the message is invalid even without patches, all are
/// kept.
pub(super) fn apply<M: Message + Name + Clone>(
    patches: &[Arc<Patch>],
    message: M,
    patched: &mut Patched,
    apply: impl Fn(&[Arc<Patch>], M, &mut Patched) -> Option<M>,
) -> Option<M> {
    let mut by = Patched::default();
    let result = apply(patches, message.clone(), &mut by);
    let fault = result.as_ref().filter(|_| !by.is_empty()).and_then(fault_of);
    if fault.is_none() || fault_of(&message).is_some() {
        patched.join(by);
        return result;
    }
    let try_all = |patches: &[Arc<Patch>]| {
        let tried = apply(patches, message.clone(), &mut Patched::default());
        tried.as_ref().and_then(fault_of)
    };
    let mut sieve = Sieve { good: Vec::with_capacity(patches.len()), refused: 0, try_all: &try_all };
    sieve.halves(patches, patched);
    let good = sieve.good;
    apply(&good, message, patched)
}

/// The most refused patches of one message; the rest is left out untried.
const MOST_REFUSED: usize = 64;

/// Finds the valid patches. A valid half is accepted as a whole, so that a few invalid ones among thousands
/// need few trials.
struct Sieve<'a> {
    good: Vec<Arc<Patch>>,
    refused: usize,
    /// Returns the fault of the message after these patches, if any.
    try_all: &'a dyn Fn(&[Arc<Patch>]) -> Option<Fault>,
}

impl Sieve<'_> {
    fn sift(&mut self, patches: &[Arc<Patch>], patched: &mut Patched) {
        if patches.is_empty() {
            return;
        }
        if self.refused >= MOST_REFUSED {
            patches.iter().for_each(|patch| patched.untried(patch, MOST_REFUSED));
            return;
        }
        let before = self.good.len();
        self.good.extend(patches.iter().cloned());
        let Some(fault) = (self.try_all)(&self.good) else { return };
        self.good.truncate(before);
        if let [patch] = patches {
            self.refused += 1;
            patched.without(patch, &fault);
        } else {
            self.halves(patches, patched);
        }
    }

    fn halves(&mut self, patches: &[Arc<Patch>], patched: &mut Patched) {
        let (first, second) = patches.split_at(patches.len() / 2);
        self.sift(first, patched);
        self.sift(second, patched);
    }
}

fn fault_of<M: Message + Name>(message: &M) -> Option<Fault> {
    check(&value::decode(&M::full_name(), &message.encode_to_vec())?, Extent::Whole).err()
}

/// Checks a message, or a part of one, against the rules of Envoy.
///
/// # Errors
/// With the first fault.
pub(super) fn check(message: &DynamicMessage, extent: Extent) -> Result<(), Fault> {
    rules::check(message, extent, &|message| meaning(message, extent))
}

/// Checks constraints of Envoy that are not among the rules in its `.proto` files.
fn meaning(message: &DynamicMessage, extent: Extent) -> Option<String> {
    let is_whole = extent == Extent::Whole;
    match message.descriptor().full_name() {
        "envoy.config.listener.v3.Listener" if is_whole => listener(message),
        "envoy.config.listener.v3.Filter" if is_whole => filter(message, "network"),
        "envoy.config.listener.v3.ListenerFilter" if is_whole => filter(message, "listener"),
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter" if is_whole => {
            filter(message, "http")
        }
        "envoy.config.route.v3.RouteConfiguration" if is_whole => domains(message),
        "envoy.type.matcher.v3.RegexMatcher" => {
            let regex = text(message, "regex");
            refused_by_re2(&regex).map(|why| format!("{regex:?} is no regular expression: {why}"))
        }
        "envoy.extensions.filters.http.lua.v3.Lua" => scripts(message),
        _ => None,
    }
}

fn text(message: &DynamicMessage, field: &str) -> String {
    message
        .get_field_by_name(field)
        .and_then(|value| value.as_str().map(ToOwned::to_owned))
        .unwrap_or_default()
}

fn list(message: &DynamicMessage, field: &str) -> Vec<Value> {
    message
        .get_field_by_name(field)
        .and_then(|value| value.as_list().map(<[Value]>::to_vec))
        .unwrap_or_default()
}

fn listener(message: &DynamicMessage) -> Option<String> {
    if message.has_field_by_name("api_listener") || message.has_field_by_name("internal_listener") {
        return None;
    }
    if !message.has_field_by_name("address") {
        return Some("has no address".to_owned());
    }
    let chains = list(message, "filter_chains");
    let has_chain = !chains.is_empty() || message.has_field_by_name("default_filter_chain");
    if !has_chain && !message.has_field_by_name("udp_listener_config") {
        return Some("has no filter chains".to_owned());
    }
    // With a matcher, chains are selected by their names.
    if message.has_field_by_name("filter_chain_matcher") {
        return None;
    }
    let mut known = BTreeSet::new();
    let chains = chains.iter().filter_map(Value::as_message);
    let repeated = chains.into_iter().find(|chain| {
        let criteria = chain.get_field_by_name("filter_chain_match");
        let criteria = criteria.and_then(|criteria| criteria.as_message().map(value::encode));
        !known.insert(criteria.unwrap_or_default())
    });
    repeated.map(|chain| {
        format!("has two filter chains for the same connections, the second one {:?}", text(chain, "name"))
    })
}

/// Returns the fault of a filter without a configuration, or with one for another kind of filter.
fn filter(message: &DynamicMessage, place: &str) -> Option<String> {
    let is_set = |field: &str| message.has_field_by_name(field);
    let name = text(message, "name");
    if is_set("config_discovery") || is_set("is_optional") {
        return None;
    }
    if !is_set("typed_config") {
        return Some(format!(
            "the filter {name:?} has no configuration: neither typed_config nor config_discovery"
        ));
    }
    let config = message.get_field_by_name("typed_config")?.as_message()?.clone();
    let kind = kind_of(&config);
    let group = kind.strip_prefix("envoy.extensions.filters.")?.split('.').next()?;
    let fits = group == place || (place, group) == ("listener", "udp");
    let is_known = ["http", "network", "listener", "udp"].contains(&group);
    (is_known && !fits).then(|| format!("the filter {name:?} is of {kind}, which is no {place} filter"))
}

/// Returns the type of a configuration; for a `TypedStruct`, the type that it contains.
fn kind_of(config: &DynamicMessage) -> String {
    let last = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
    let outer = last(&text(config, "type_url"));
    let inner = rules::opened(config).filter(|_| outer.ends_with(".TypedStruct"));
    inner.map_or(outer, |inner| last(&text(&inner, "type_url")))
}

/// Returns the fault of a domain that several virtual hosts have.
fn domains(message: &DynamicMessage) -> Option<String> {
    let mut known = BTreeSet::new();
    for host in list(message, "virtual_hosts").iter().filter_map(Value::as_message) {
        for domain in list(host, "domains").iter().filter_map(Value::as_str) {
            if !known.insert(domain.to_ascii_lowercase()) {
                return Some(format!(
                    "the domain {domain:?} of virtual host {:?} is there twice",
                    text(host, "name")
                ));
            }
        }
    }
    None
}

/// Returns the fault of a Lua script that does not compile.
fn scripts(message: &DynamicMessage) -> Option<String> {
    let inline = |source: &DynamicMessage| text(source, "inline_string");
    let default = message.get_field_by_name("default_source_code");
    let default = default.and_then(|source| source.as_message().map(inline));
    let named = message.get_field_by_name("source_codes");
    let mut named: Vec<_> = named.iter().flat_map(|codes| codes.as_map()).flatten().collect();
    named.sort_by_key(|(key, _)| *key);
    let named = named.into_iter().filter_map(|(_, source)| source.as_message().map(inline));
    let all = [text(message, "inline_code")].into_iter().chain(default).chain(named);
    all.filter(|code| !code.is_empty())
        .find_map(|code| refused_by_lua(&code))
        .map(|why| format!("a script does not compile: {why}"))
}
