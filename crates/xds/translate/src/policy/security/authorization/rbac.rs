//! The rules of several policies as one filter that allows, denies or logs.

use super::condition::Untested;
use super::rule::{Model, never};
use super::trust_domain::TrustDomains;
use crate::envoy::filters;
use pilotfish_config::security::AuthorizationPolicy;
use pilotfish_model::Typed;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::config::rbac::v3::{Policy, Rbac, rbac::Action};
use pilotfish_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use pilotfish_proto::envoy::extensions::filters::network::rbac::v3::Rbac as TcpRbac;

/// Names of the filters, which other filters use to read their decisions.
pub(super) const HTTP: &str = "envoy.filters.http.rbac";
/// As above, for streams.
pub(super) const TCP: &str = "envoy.filters.network.rbac";
/// Prefix of statistics on streams.
pub(super) const TCP_STATS: &str = "tcp.";
/// Prefix of the results of rules with an external authorizer.
pub(super) const MARKED: &str = "istio_ext_authz_";

/// Annotation of a dry-run policy, which is evaluated and not enforced.
const DRY_RUN: &str = "istio.io/dry-run";

/// Protocol of the traffic that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Tcp,
}

/// The configuration of one filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    enforced: Option<Rbac>,
    /// Shadow rules, evaluated without effect.
    tried: Option<Rbac>,
    /// Prefix of shadow results.
    prefix: &'static str,
}

impl Rules {
    /// The rules of policies with one action.
    pub(super) fn build(
        policies: &[&Typed<AuthorizationPolicy>],
        action: Action,
        protocol: Protocol,
        domains: &TrustDomains,
        mark: &str,
    ) -> Self {
        let mut rules = Self::default();
        for policy in policies {
            let on_trial = is_on_trial(policy);
            let target = if on_trial { &mut rules.tried } else { &mut rules.enforced };
            let rbac = target.get_or_insert_with(|| Rbac { action: action.into(), ..Default::default() });
            rbac.policies.extend(of_policy(policy, action, protocol, domains, mark));
        }
        let denies = rules.tried.as_ref().is_some_and(|rbac| rbac.action == i32::from(Action::Deny));
        rules.prefix = if denies { "istio_dry_run_deny_" } else { "istio_dry_run_allow_" };
        rules
    }

    /// Makes all rules shadow rules, for the ext_authz filter.
    pub(super) fn marking(self) -> Self {
        Self { enforced: None, tried: self.enforced, prefix: MARKED }
    }

    /// Denies requests for a missing external authorizer.
    pub(super) fn without_authorizer(self) -> Self {
        let mut denied = self.enforced.unwrap_or_default();
        denied.action = Action::Deny.into();
        let renamed = std::mem::take(&mut denied.policies).into_iter();
        denied.policies =
            renamed.map(|(name, policy)| (format!("{name}-deny-due-to-bad-CUSTOM-action"), policy)).collect();
        Self { enforced: Some(denied), tried: None, prefix: "" }
    }

    /// As a filter for requests.
    pub(super) fn http_filter(self) -> HttpFilter {
        let config = HttpRbac {
            rules: self.enforced,
            shadow_rules: self.tried,
            shadow_rules_stat_prefix: self.prefix.to_owned(),
            ..Default::default()
        };
        filters::http(HTTP, &config)
    }

    /// As a filter for streams.
    pub(super) fn tcp_filter(self) -> Filter {
        let config = TcpRbac {
            rules: self.enforced,
            shadow_rules: self.tried,
            shadow_rules_stat_prefix: self.prefix.to_owned(),
            stat_prefix: TCP_STATS.to_owned(),
            ..Default::default()
        };
        filters::network(TCP, &config)
    }
}

fn is_on_trial(policy: &Typed<AuthorizationPolicy>) -> bool {
    let written = policy.meta().annotations.get(DRY_RUN).map_or("", String::as_str);
    matches!(written, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Returns the rules of one policy by name, without rules that cannot be evaluated.
fn of_policy(
    policy: &Typed<AuthorizationPolicy>,
    action: Action,
    protocol: Protocol,
    domains: &TrustDomains,
    mark: &str,
) -> Vec<(String, Policy)> {
    let name =
        |index: usize| format!("{mark}ns[{}]-policy[{}]-rule[{index}]", policy.namespace(), policy.name());
    if policy.rules.is_empty() {
        return vec![(name(0), never())];
    }
    let untested = if action == Action::Allow { Untested::DropsRule } else { Untested::IsLeftOut };
    let rules = policy.rules.iter().enumerate().filter_map(|(index, rule)| {
        let model = Model::read(rule, policy.namespace(), domains, untested)?;
        Some((name(index), model.policy(protocol == Protocol::Tcp, untested).ok()?))
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::yaml;
    use pilotfish_model::Update;

    fn custom(name: &str, dry_run: &str) -> Typed<AuthorizationPolicy> {
        let text = format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
             metadata: {{name: {name}, namespace: shop, annotations: {{{DRY_RUN}: \"{dry_run}\"}}}}\n\
             spec: {{action: CUSTOM, provider: {{name: p}}, rules: [{{to: [{{operation: {{paths: [/admin]}}}}]}}]}}\n"
        );
        let Some(Update::Object(object)) = yaml(&text).pop() else { panic!("{text}") };
        object.typed().unwrap()
    }

    /// Rule E3 of Istio 1.31: istiod enforces rules of a dry run with an external authorizer by denying.
    #[test]
    fn dry_run_of_an_external_authorizer_neither_asks_it_nor_denies() {
        let (tried, enforced) = (custom("tried", "true"), custom("enforced", "false"));
        let build = |policies: &[&Typed<AuthorizationPolicy>]| {
            Rules::build(policies, Action::Deny, Protocol::Http, &TrustDomains::as_written(), "p-")
        };
        let names = |rbac: Option<Rbac>| -> Vec<String> {
            rbac.into_iter().flat_map(|rbac| rbac.policies.into_keys()).collect()
        };
        let asked = build(&[&tried, &enforced]).marking();
        assert_eq!(names(asked.enforced), [""; 0]);
        assert_eq!(names(asked.tried), ["p-ns[shop]-policy[enforced]-rule[0]"]);
        for (policies, denied) in [(vec![&tried, &enforced], 1), (vec![&tried], 0)] {
            let rules = build(&policies).without_authorizer();
            assert_eq!((names(rules.enforced).len(), rules.tried), (denied, None));
        }
    }
}
