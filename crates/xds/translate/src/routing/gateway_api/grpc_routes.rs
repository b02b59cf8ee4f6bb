//! GRPCRoute: conversion of its rules.

use super::backends::{Malformed, Problem};
use super::request_rules::{RequestRule, RuleParts, values};
use pilotfish_config::StringMatch;
use pilotfish_config::gateway_api::{GrpcMethodMatch, GrpcRouteMatch, GrpcRouteRule, MatchType};
use pilotfish_config::networking::HttpMatchRequest;

impl RequestRule for GrpcRouteRule {
    fn parts(&self) -> RuleParts<'_> {
        RuleParts { name: self.name.as_ref(), filters: &self.filters, backends: &self.backend_refs }
    }

    fn requests(&self) -> Result<Vec<HttpMatchRequest>, Malformed> {
        self.matches.iter().map(request).collect()
    }
}

fn request(condition: &GrpcRouteMatch) -> Result<HttpMatchRequest, Malformed> {
    Ok(HttpMatchRequest {
        uri: condition.method.as_ref().map(path).transpose()?,
        headers: values(&condition.headers),
        ..HttpMatchRequest::default()
    })
}

fn malformed<T>(message: &str) -> Result<T, Malformed> {
    Err(Malformed(Problem::new("InvalidConfiguration", message)))
}

/// A call of `method` of `service` is a request for `/service/method`.
fn path(called: &GrpcMethodMatch) -> Result<StringMatch, Malformed> {
    let has_slash = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('/'));
    if has_slash(&called.service) || has_slash(&called.method) {
        return malformed("a service or method of a match has a slash");
    }
    Ok(match (called.r#type, &called.service, &called.method) {
        (_, None, None) => return malformed("a match of methods names neither service nor method"),
        (_, None, Some(method)) => StringMatch::Regex(format!("/[^/]+/{method}")),
        (MatchType::Exact, Some(service), None) => StringMatch::Prefix(format!("/{service}/")),
        (MatchType::Exact, Some(service), Some(method)) => StringMatch::Exact(format!("/{service}/{method}")),
        (MatchType::RegularExpression, Some(service), None) => StringMatch::Regex(format!("/{service}/.+")),
        (MatchType::RegularExpression, Some(service), Some(method)) => {
            StringMatch::Regex(format!("/{service}/{method}"))
        }
    })
}
