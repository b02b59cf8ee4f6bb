//! AuthorizationPolicy for gRPC servers without a proxy, which know filters that deny or allow, and nothing else.

use super::Subject;
use super::condition::Untested;
use super::rbac::HTTP;
use super::rule::Model;
use super::trust_domain::TrustDomains;
use crate::lds::filters;
use crate::{Cx, reference};
use pilotfish_config::security::{AuthorizationAction, AuthorizationPolicy};
use pilotfish_model::{ObjectRef, Typed};
use pilotfish_proto::envoy::config::rbac::v3::{Rbac, rbac::Action};
use pilotfish_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

/// The filters of the policies that concern a server, and the policies. Identities stand for themselves alone, whatever aliases
/// the trust domain has; a policy on trial counts like any other.
pub(in crate::security) fn of(cx: &Cx<'_>, subject: &Subject) -> (Vec<HttpFilter>, Vec<ObjectRef>) {
    let policies = subject.policies::<AuthorizationPolicy>(cx);
    let with = |action| policies.iter().filter(move |policy| policy.action == action);
    let deny = filter(&format!("{HTTP}.DENY"), Action::Deny, with(AuthorizationAction::Deny));
    let allow = filter(HTTP, Action::Allow, with(AuthorizationAction::Allow));
    let provenance = policies.iter().map(reference).collect();
    (deny.into_iter().chain(allow).collect(), provenance)
}

fn filter<'a>(
    name: &str,
    action: Action,
    policies: impl Iterator<Item = &'a Typed<AuthorizationPolicy>>,
) -> Option<HttpFilter> {
    let untested = if action == Action::Allow { Untested::DropsRule } else { Untested::IsLeftOut };
    let mut rbac = Rbac { action: action.into(), ..Default::default() };
    for policy in policies {
        for (index, rule) in policy.rules.iter().enumerate() {
            let model = Model::read(rule, policy.namespace(), &TrustDomains::as_written());
            let Some(Ok(found)) = model.map(|model| model.policy(false, untested)) else { continue };
            rbac.policies.insert(format!("{}-{}-{index}", policy.namespace(), policy.name()), found);
        }
    }
    let config = HttpRbac { rules: Some(rbac), ..Default::default() };
    let used = config.rules.as_ref().is_some_and(|rbac| !rbac.policies.is_empty());
    used.then(|| filters::http(name, &config))
}
