//! AuthorizationPolicy for proxyless gRPC servers, which support only filters that deny or allow.

use super::condition::Untested;
use super::rbac::HTTP;
use super::rule::Model;
use super::trust_domain::TrustDomains;
use super::{Subject, matchers};
use crate::engine::{Cx, reference};
use crate::envoy::filters;
use pilotfish_config::security::{AuthorizationAction, AuthorizationPolicy};
use pilotfish_model::{Origin, Typed};
use pilotfish_proto::envoy::config::rbac::v3::permission::Rule;
use pilotfish_proto::envoy::config::rbac::v3::{Permission, Rbac, rbac::Action};
use pilotfish_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use pilotfish_proto::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use prost::Message;

/// Returns the filters for a server, and the policies that they come from. Trust domain aliases are ignored;
/// a dry-run policy is enforced.
pub(in crate::policy::security) fn of(cx: &Cx<'_>, subject: &Subject) -> (Vec<HttpFilter>, Vec<Origin>) {
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
    // Policies that allow nothing deny everything.
    let mut used = false;
    for policy in policies {
        used |= action == Action::Allow;
        for (index, rule) in policy.rules.iter().enumerate() {
            let model = Model::read(rule, policy.namespace(), &TrustDomains::as_written(), untested);
            let Some(Ok(mut found)) = model.map(|model| model.policy(false, untested)) else { continue };
            found.permissions.iter_mut().for_each(write_out_templates);
            rbac.policies.insert(format!("{}-{}-{index}", policy.namespace(), policy.name()), found);
        }
    }
    let config = HttpRbac { rules: Some(rbac), ..Default::default() };
    used |= config.rules.as_ref().is_some_and(|rbac| !rbac.policies.is_empty());
    used.then(|| filters::http(name, &config))
}

/// gRPC rejects the whole listener for a path template, but supports regular expressions.
fn write_out_templates(permission: &mut Permission) {
    match &mut permission.rule {
        Some(Rule::AndRules(set) | Rule::OrRules(set)) => set.rules.iter_mut().for_each(write_out_templates),
        Some(Rule::NotRule(inner)) => write_out_templates(inner),
        Some(Rule::UriTemplate(template)) => {
            let config = template.typed_config.as_ref();
            let read = config.and_then(|any| UriTemplateMatchConfig::decode(&*any.value).ok());
            let regex = regex_of_template(&read.unwrap_or_default().path_template);
            permission.rule = Some(Rule::UrlPath(matchers::path_by(matchers::regex(regex))));
        }
        _ => {}
    }
}

/// `*` matches one element of the path, `**` any number.
fn regex_of_template(template: &str) -> String {
    let element = |element: &str| match element {
        "*" => "[^/]+".to_owned(),
        "**" => ".*".to_owned(),
        text => regex::escape(text),
    };
    template.split('/').map(element).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::rbac::v3::permission::Set;

    #[test]
    fn a_template_is_a_regular_expression() {
        let templates = [("/*/none", "/[^/]+/none"), ("/a.b/**", r"/a\.b/.*"), ("/**/x/*", "/.*/x/[^/]+")];
        for (template, regex) in templates {
            assert_eq!(regex_of_template(template), regex);
        }
    }

    #[test]
    fn policies_that_allow_nothing_deny_everything() {
        let policy = crate::testing::object("shop", "nothing", AuthorizationPolicy::default());
        let policy: Typed<AuthorizationPolicy> = policy.typed().unwrap();
        assert!(filter(HTTP, Action::Allow, std::iter::once(&policy)).is_some());
        assert!(filter(HTTP, Action::Allow, std::iter::empty()).is_none());
        assert!(filter(HTTP, Action::Deny, std::iter::once(&policy)).is_none());
    }

    #[test]
    fn templates_are_found_at_any_depth() {
        let template = matchers::path_template("/{*}/none").map(Rule::UriTemplate);
        let leaf = Permission { rule: template };
        let not = Permission { rule: Some(Rule::NotRule(Box::new(leaf))) };
        let mut all = Permission { rule: Some(Rule::OrRules(Set { rules: vec![not] })) };
        write_out_templates(&mut all);
        let path = matchers::path_by(matchers::regex("/[^/]+/none"));
        let leaf = Permission { rule: Some(Rule::UrlPath(path)) };
        let not = Permission { rule: Some(Rule::NotRule(Box::new(leaf))) };
        assert_eq!(all.rule, Some(Rule::OrRules(Set { rules: vec![not] })));
    }
}
