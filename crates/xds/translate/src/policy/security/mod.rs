//! Access control of workloads: AuthorizationPolicy and RequestAuthentication as filters.
//!
//! ```text
//! Subject (namespace, labels) ─▶ policies that select it ─▶ FiltersFor: for requests and for streams
//! ```

mod authorization;
mod jwt;
mod select;

pub(crate) use select::Subject;

use crate::engine::{Cx, Query};
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

/// The filters of policies for a gRPC server without a proxy, and the policies.
#[must_use]
pub(crate) fn grpc_filters(cx: &Cx<'_>, subject: &Subject) -> (Vec<HttpFilter>, Vec<Origin>) {
    authorization::grpc::of(cx, subject)
}

/// The filters that the policies of a subject put into its listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FiltersFor(pub Subject);

/// The answer to [`FiltersFor`]. Requests pass the filters in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filters {
    /// External authorization of requests (`CUSTOM`).
    pub external_http: Vec<HttpFilter>,
    /// Validation of JWTs, if any RequestAuthentication applies.
    pub authenticate: Option<HttpFilter>,
    pub decide_http: Vec<HttpFilter>,
    /// External authorization of connections (`CUSTOM`).
    pub external_tcp: Vec<Filter>,
    pub decide_tcp: Vec<Filter>,
    pub provenance: Vec<Origin>,
}

impl Query for FiltersFor {
    type Output = Filters;

    fn compute(&self, cx: &Cx<'_>) -> Filters {
        let authorization = authorization::of(cx, &self.0);
        let (authenticate, tokens) = jwt::of(cx, &self.0);
        let mut filters = authorization;
        filters.authenticate = authenticate;
        filters.provenance.extend(tokens);
        filters
    }
}
