//! Header operations.

use pilotfish_config::networking::{HeaderOperations, Headers};
use pilotfish_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use pilotfish_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use pilotfish_proto::envoy::config::route::v3::Route;
use std::collections::BTreeMap;

/// Header operations in Envoy's form. The host is separate, because Envoy does not treat it as a header.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) request_add: Vec<HeaderValueOption>,
    pub(super) request_remove: Vec<String>,
    pub(super) response_add: Vec<HeaderValueOption>,
    pub(super) response_remove: Vec<String>,
    /// The host that is set; empty for none.
    pub(super) authority: String,
}

impl Operations {
    pub(super) fn of(headers: Option<&Headers>) -> Self {
        let Some(headers) = headers else { return Self::default() };
        let (request, response) = (headers.request.as_ref(), headers.response.as_ref());
        Self {
            request_add: request.map(added).unwrap_or_default(),
            request_remove: request.map(removed).unwrap_or_default(),
            response_add: response.map(added).unwrap_or_default(),
            response_remove: response.map(removed).unwrap_or_default(),
            authority: request.map(authority).unwrap_or_default(),
        }
    }

    /// Appends the operations to those of a route.
    pub(super) fn add_to(self, route: &mut Route) {
        route.request_headers_to_add.extend(self.request_add);
        route.request_headers_to_remove.extend(self.request_remove);
        route.response_headers_to_add.extend(self.response_add);
        route.response_headers_to_remove.extend(self.response_remove);
    }
}

/// Returns true for headers that Envoy refuses to change.
fn is_reserved(name: &str) -> bool {
    name.starts_with(':') || name.eq_ignore_ascii_case("host")
}

fn added(operations: &HeaderOperations) -> Vec<HeaderValueOption> {
    let set = options(&operations.set, HeaderAppendAction::OverwriteIfExistsOrAdd);
    set.chain(options(&operations.add, HeaderAppendAction::AppendIfExistsOrAdd)).collect()
}

fn options(
    headers: &BTreeMap<String, String>,
    action: HeaderAppendAction,
) -> impl Iterator<Item = HeaderValueOption> {
    headers.iter().filter(|(name, _)| !is_reserved(name)).map(move |(name, value)| HeaderValueOption {
        header: Some(HeaderValue { key: name.clone(), value: value.clone(), ..Default::default() }),
        append_action: action.into(),
        ..Default::default()
    })
}

fn removed(operations: &HeaderOperations) -> Vec<String> {
    operations.remove.iter().filter(|name| !is_reserved(name)).cloned().collect()
}

/// The host that `set`, else `add`, names.
fn authority(operations: &HeaderOperations) -> String {
    let is_host = |name: &str| name.eq_ignore_ascii_case("host") || name == ":authority";
    let of = |headers: &BTreeMap<String, String>| {
        headers
            .iter()
            .find(|(name, value)| is_host(name) && !value.is_empty())
            .map(|(_, value)| value.clone())
    };
    of(&operations.set).or_else(|| of(&operations.add)).unwrap_or_default()
}
