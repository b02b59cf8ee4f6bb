//! Routes that are encoded when they are generated: as messages they take ten times the memory, and a virtual
//! service may have very many.

use super::budget::MAX_ROUTE_BYTES;
use super::matches::takes_everything;
use crate::engine::Shared;
use bytes::Bytes;
use pilotfish_proto::envoy::config::route::v3::{Route, VirtualHost};
use prost::Message;
use prost::encoding::message;

/// The number of `VirtualHost.routes`.
const ROUTES: u32 = 3;

/// The routes of a virtual service, up to the first that matches every request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EncodedRoutes {
    /// Concatenated `VirtualHost` fields. Shared by the clients for which they are equal.
    fields: Bytes,
    count: usize,
    /// Offset of the route that matches every request, if there is one: it is the last.
    open: Option<usize>,
    /// True if they exceed the size limit of a route configuration. Then no routes are stored.
    is_too_large: bool,
}

impl EncodedRoutes {
    /// Number of the routes.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Size in bytes; `usize::MAX` if they are too large.
    pub(super) fn bytes(&self) -> usize {
        if self.is_too_large { usize::MAX } else { self.fields.len() }
    }

    /// All of them, as fields of a `VirtualHost`.
    pub(super) fn all(&self) -> Bytes {
        self.fields.clone()
    }

    /// Returns the routes without the one that matches every request, and that one.
    pub(super) fn split(&self) -> (Bytes, Bytes) {
        let open = self.open.unwrap_or(self.fields.len());
        (self.fields.slice(..open), self.fields.slice(open..))
    }

    /// Shares the allocation with equal routes.
    pub(super) fn shared(self, shared: &Shared) -> Self {
        Self { fields: shared.routes(self.fields), ..self }
    }
}

/// Encodes routes one by one.
#[derive(Debug, Default)]
pub(super) struct RoutesEncoder {
    fields: Vec<u8>,
    count: usize,
    open: Option<usize>,
    is_too_large: bool,
}

impl RoutesEncoder {
    /// Adds a route. Returns false if later routes are useless: this one matches every request, or the size
    /// limit is exceeded.
    pub(super) fn add(&mut self, route: &Route) -> bool {
        let start = self.fields.len();
        message::encode(ROUTES, route, &mut self.fields);
        self.count += 1;
        self.is_too_large = self.fields.len() > MAX_ROUTE_BYTES;
        if route.r#match.as_ref().is_some_and(takes_everything) {
            self.open = Some(start);
        }
        self.open.is_none() && !self.is_too_large
    }

    pub(super) fn finish(self) -> EncodedRoutes {
        let Self { fields, count, open, is_too_large } = self;
        if is_too_large {
            return EncodedRoutes { count, is_too_large, ..EncodedRoutes::default() };
        }
        EncodedRoutes { fields: fields.into_boxed_slice().into(), count, open, is_too_large }
    }
}

/// One route, as a field of a `VirtualHost`. A large mesh has a virtual host with one route for each service.
pub(super) fn one(route: &Route) -> Bytes {
    let mut fields = Vec::with_capacity(message::encoded_len(ROUTES, route));
    message::encode(ROUTES, route, &mut fields);
    fields.into()
}

/// The routes of which these are the fields.
pub(super) fn decode(fields: &[u8]) -> Vec<Route> {
    VirtualHost::decode(fields).expect("routes are decoded that were encoded here").routes
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::route::v3::RouteMatch;
    use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;

    fn route(name: &str, prefix: &str) -> Route {
        let path_specifier = Some(PathSpecifier::Prefix(prefix.to_owned()));
        let r#match = Some(RouteMatch { path_specifier, ..RouteMatch::default() });
        Route { name: name.to_owned(), r#match, ..Route::default() }
    }

    fn names(fields: &[u8]) -> Vec<String> {
        decode(fields).into_iter().map(|route| route.name).collect()
    }

    #[test]
    fn what_takes_every_request_is_the_last_and_apart() {
        let mut encoder = RoutesEncoder::default();
        assert!(encoder.add(&route("a", "/a")) && encoder.add(&route("b", "/b")));
        assert!(!encoder.add(&route("all", "/")), "nothing behind it is ever used");
        let routes = encoder.finish();
        let (first, last) = routes.split();
        assert_eq!((names(&first), names(&last)), (vec!["a".into(), "b".into()], vec!["all".into()]));
        assert_eq!((routes.count(), names(&routes.all())), (3, vec!["a".into(), "b".into(), "all".into()]));
        assert_eq!(routes.bytes(), first.len() + last.len());
    }

    #[test]
    fn none_is_kept_of_more_than_there_may_be() {
        let mut encoder = RoutesEncoder::default();
        let large = route(&"x".repeat(MAX_ROUTE_BYTES / 2), "/a");
        assert!(encoder.add(&large));
        assert!(!encoder.add(&large), "nothing has room for the next");
        let routes = encoder.finish();
        assert_eq!((routes.bytes(), routes.all().len()), (usize::MAX, 0));
        assert!(routes.count() > 0, "they are there, and refused");
    }
}
