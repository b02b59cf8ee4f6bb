//! Hash policies: the part of a request that selects the endpoint.

use crate::envoy::duration;
use pilotfish_config::networking::{ConsistentHashLb, HttpCookie};
use pilotfish_proto::envoy::config::route::v3::route_action::HashPolicy;
use pilotfish_proto::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier, QueryParameter,
};

/// The policy of consistent hashing; `None` when no key is named.
pub(super) fn hash_policy(hash: &ConsistentHashLb) -> Option<HashPolicy> {
    let specifier = if let Some(name) = &hash.http_header_name {
        PolicySpecifier::Header(Header { header_name: name.clone(), ..Default::default() })
    } else if let Some(named) = &hash.http_cookie {
        PolicySpecifier::Cookie(cookie(named))
    } else if let Some(source_ip) = hash.use_source_ip {
        PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip })
    } else if let Some(name) = &hash.http_query_parameter_name {
        PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
    } else {
        return None;
    };
    Some(HashPolicy { policy_specifier: Some(specifier), ..Default::default() })
}

fn cookie(cookie: &HttpCookie) -> Cookie {
    let attributes = cookie.attributes.iter();
    Cookie {
        name: cookie.name.clone(),
        path: cookie.path.clone(),
        ttl: cookie.ttl.map(duration),
        attributes: attributes
            .map(|attribute| CookieAttribute { name: attribute.name.clone(), value: attribute.value.clone() })
            .collect(),
    }
}
