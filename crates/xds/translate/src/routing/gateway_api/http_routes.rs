//! HTTPRoute: conversion of its rules.

use super::backends::Malformed;
use super::request_rules::{RequestRule, RuleParts, values};
use pilotfish_config::StringMatch;
use pilotfish_config::gateway_api::{
    HttpPathMatch, HttpRouteMatch, HttpRouteRetry, HttpRouteRule, PathMatchType,
};
use pilotfish_config::networking::{HttpMatchRequest, HttpRetry, HttpRoute};

impl RequestRule for HttpRouteRule {
    fn parts(&self) -> RuleParts<'_> {
        RuleParts { name: self.name.as_ref(), filters: &self.filters, backends: &self.backend_refs }
    }

    fn requests(&self) -> Result<Vec<HttpMatchRequest>, Malformed> {
        Ok(self.matches.iter().map(request).collect())
    }

    fn limit(&self, route: &mut HttpRoute) {
        route.retries = self.retry.as_ref().map(retries);
        let Some(timeouts) = &self.timeouts else { return };
        route.timeout = timeouts.request;
        match (&mut route.retries, timeouts.backend_request) {
            (Some(retries), Some(limit)) => retries.per_try_timeout = Some(limit),
            (None, Some(limit)) => route.timeout = Some(limit),
            (_, None) => {}
        }
    }
}

/// Connection errors are always retried, in addition to the listed codes.
fn retries(retry: &HttpRouteRetry) -> HttpRetry {
    let attempts = retry.attempts.unwrap_or(2);
    let codes = retry.codes.iter().map(ToString::to_string);
    let errors = ["connect-failure", "refused-stream", "unavailable", "cancelled"].map(str::to_owned);
    HttpRetry {
        attempts,
        retry_on: if attempts == 0 {
            String::new()
        } else {
            errors.into_iter().chain(codes).collect::<Vec<_>>().join(",")
        },
        backoff: retry.backoff,
        ..HttpRetry::default()
    }
}

fn request(condition: &HttpRouteMatch) -> HttpMatchRequest {
    HttpMatchRequest {
        uri: Some(path(&condition.path)),
        headers: values(&condition.headers),
        query_params: values(&condition.query_params),
        method: condition.method.clone().map(StringMatch::Exact),
        ..HttpMatchRequest::default()
    }
}

fn path(path: &HttpPathMatch) -> StringMatch {
    let value = &path.value;
    match path.r#type {
        PathMatchType::Exact => StringMatch::Exact(value.clone()),
        PathMatchType::RegularExpression => StringMatch::Regex(value.clone()),
        PathMatchType::PathPrefix if value == "/" => StringMatch::Prefix("/".to_owned()),
        PathMatchType::PathPrefix => StringMatch::Prefix(value.strip_suffix('/').unwrap_or(value).to_owned()),
    }
}
