//! AuthorizationPolicy as filters. Policies with an external authorizer come first, then what is only logged,
//! what is denied, what is allowed.

mod condition;
mod external;
pub(super) mod grpc;
mod identity;
mod matchers;
mod rbac;
mod rule;
mod trust_domain;

use super::{Filters, Subject};
use crate::engine::{Cx, reference};
use external::Authorizer;
use pilotfish_config::security::{AuthorizationAction, AuthorizationPolicy};
use pilotfish_model::Typed;
use pilotfish_proto::envoy::config::rbac::v3::rbac::Action;
use rbac::{Protocol, Rules};
use std::collections::BTreeMap;
use trust_domain::TrustDomains;

/// The filters of the policies that concern a subject.
pub(super) fn of(cx: &Cx<'_>, subject: &Subject) -> Filters {
    let policies = subject.policies::<AuthorizationPolicy>(cx);
    let mut filters = Filters { provenance: policies.iter().map(reference).collect(), ..Filters::default() };
    let domains = TrustDomains::of(cx);
    let with = |action| policies.iter().filter(move |policy| policy.action == action).collect::<Vec<_>>();
    external_authorization(cx, &with(AuthorizationAction::Custom), &domains, &mut filters);
    let actions = [
        (AuthorizationAction::Audit, Action::Log),
        (AuthorizationAction::Deny, Action::Deny),
        (AuthorizationAction::Allow, Action::Allow),
    ];
    for (written, action) in actions {
        let policies = with(written);
        if policies.is_empty() {
            continue;
        }
        let rules = |protocol| Rules::build(&policies, action, protocol, &domains, "");
        filters.decide_http.push(rules(Protocol::Http).http_filter());
        filters.decide_tcp.push(rules(Protocol::Tcp).tcp_filter());
    }
    filters
}

/// Policies with an external authorizer (`CUSTOM`), by provider. Their rules only mark requests for it.
/// Without such a provider, or with several for one workload, the marked requests are denied.
fn external_authorization(
    cx: &Cx<'_>,
    policies: &[&Typed<AuthorizationPolicy>],
    domains: &TrustDomains,
    filters: &mut Filters,
) {
    let mut by_provider: BTreeMap<&str, Vec<&Typed<AuthorizationPolicy>>> = BTreeMap::new();
    for policy in policies {
        let name = policy.provider.as_ref().map_or("", |provider| provider.name.as_str());
        by_provider.entry(name).or_default().push(policy);
    }
    let is_only = by_provider.len() == 1;
    for (provider, policies) in by_provider {
        let mark = format!("{}-", external::mark(provider));
        let rules = |protocol| Rules::build(&policies, Action::Deny, protocol, domains, &mark);
        let Some(authorizer) = is_only.then(|| Authorizer::find(cx, provider)).flatten() else {
            filters.external_http.push(rules(Protocol::Http).without_authorizer().http_filter());
            filters.external_tcp.push(rules(Protocol::Tcp).without_authorizer().tcp_filter());
            continue;
        };
        filters.external_http.push(rules(Protocol::Http).marking().http_filter());
        filters.external_http.push(authorizer.http);
        if let Some(tcp) = authorizer.tcp {
            filters.external_tcp.push(rules(Protocol::Tcp).marking().tcp_filter());
            filters.external_tcp.push(tcp);
        }
    }
}
