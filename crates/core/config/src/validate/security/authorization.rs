//! AuthorizationPolicy.

use crate::path::Path;
use crate::problem::Checker;
use crate::security::{
    AuthorizationAction, AuthorizationPolicy, Condition, From, Operation, Rule, Source, To,
};
use crate::validate::fields::names::{each, ip_or_cidr, is_port, quoted};
use crate::validate::fields::selectors::{self, Targets};
use crate::validate::limits;
use pilotfish_model::ObjectMeta;

pub(in crate::validate) fn check(
    policy: &AuthorizationPolicy,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    if !limits::authorization_policy(policy, at, checker) {
        return;
    }
    let targets = Targets {
        selector: policy.selector.as_ref(),
        target_ref: policy.target_ref.as_ref(),
        target_refs: &policy.target_refs,
    };
    selectors::targets(&targets, at, checker);
    provider(policy, at, checker);
    let never = matches!(policy.action, AuthorizationAction::Deny | AuthorizationAction::Custom);
    if never && policy.rules.is_empty() {
        let message = "must be set, without rules the policy matches nothing";
        checker.error_with_hint(&at.field("rules"), message, "[{}] matches every request".to_owned());
    }
    each(&policy.rules, &at.field("rules"), checker, |value, at, checker| {
        rule(value, policy.action, at, checker);
    });
}

fn provider(policy: &AuthorizationPolicy, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("provider");
    match (&policy.provider, policy.action) {
        (None, AuthorizationAction::Custom) => checker.error(&at, "must be set for action CUSTOM"),
        (Some(provider), AuthorizationAction::Custom) if provider.name.is_empty() => {
            checker.error(&at.field("name"), "must be set");
        }
        (Some(_), action) if action != AuthorizationAction::Custom => {
            checker.warning(&at, "has an effect for action CUSTOM only");
        }
        _ => {}
    }
}

pub(in crate::validate) fn rule(
    rule: &Rule,
    action: AuthorizationAction,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    let custom = action == AuthorizationAction::Custom;
    each(&rule.from, &at.field("from"), checker, |value, at, checker| from(value, custom, at, checker));
    each(&rule.to, &at.field("to"), checker, to);
    each(&rule.when, &at.field("when"), checker, |value, at, checker| condition(value, custom, at, checker));
    if action == AuthorizationAction::Deny && is_http_only(rule) {
        let message =
            "has attributes of HTTP alone, so it denies all traffic to TCP ports, set ports as well";
        checker.warning(at, message);
    }
}

pub(in crate::validate) fn from(from: &From, custom: bool, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("source");
    match &from.source {
        None => checker.error(&at, "must be set"),
        Some(value) => source(value, custom, &at, checker),
    }
}

pub(in crate::validate) fn to(to: &To, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("operation");
    match &to.operation {
        None => checker.error(&at, "must be set"),
        Some(value) => operation(value, &at, checker),
    }
}

/// True if no condition of the rule can be checked on a TCP connection.
fn is_http_only(rule: &Rule) -> bool {
    let sources = rule.from.iter().filter_map(|from| from.source.as_ref());
    let tcp_source = |source: &Source| {
        let lists = [
            &source.principals,
            &source.not_principals,
            &source.namespaces,
            &source.not_namespaces,
            &source.trust_domains,
            &source.not_trust_domains,
            &source.service_accounts,
            &source.not_service_accounts,
            &source.ip_blocks,
            &source.not_ip_blocks,
            &source.remote_ip_blocks,
            &source.not_remote_ip_blocks,
        ];
        lists.into_iter().any(|list| !list.is_empty())
    };
    let tcp_from = sources.clone().any(tcp_source);
    let mut operations = rule.to.iter().filter_map(|to| to.operation.as_ref()).peekable();
    if operations.peek().is_none() {
        return sources.count() > 0 && !tcp_from;
    }
    operations.all(|operation| operation.ports.is_empty() && operation.not_ports.is_empty())
}

fn source(source: &Source, custom: bool, at: &Path<'_>, checker: &mut Checker) {
    let by_certificate = [
        ("principals", &source.principals),
        ("notPrincipals", &source.not_principals),
        ("namespaces", &source.namespaces),
        ("notNamespaces", &source.not_namespaces),
        ("requestPrincipals", &source.request_principals),
        ("notRequestPrincipals", &source.not_request_principals),
    ];
    let accounts =
        [("serviceAccounts", &source.service_accounts), ("notServiceAccounts", &source.not_service_accounts)];
    let blocks = [
        ("ipBlocks", &source.ip_blocks),
        ("notIpBlocks", &source.not_ip_blocks),
        ("remoteIpBlocks", &source.remote_ip_blocks),
        ("notRemoteIpBlocks", &source.not_remote_ip_blocks),
    ];
    let domains = [("trustDomains", &source.trust_domains), ("notTrustDomains", &source.not_trust_domains)];
    for (field, list) in domains {
        each(list, &at.field(field), checker, |domain, at, checker| trust_domain(domain, at, checker));
    }
    let lists = by_certificate.iter().chain(&accounts).chain(&domains).chain(&blocks);
    some_list(lists.clone().copied(), at, checker);
    for (field, _) in by_certificate.iter().filter(|(_, list)| custom && !list.is_empty()) {
        checker.warning(&at.field(field), "is not supported for action CUSTOM");
    }
    for (field, list) in [("namespaces", &source.namespaces), ("notNamespaces", &source.not_namespaces)] {
        each(list, &at.field(field), checker, |namespace, at, checker| {
            let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'*');
            if !namespace.bytes().all(known) {
                let message =
                    format!("no namespace can be called {}, nor like that with *", quoted(namespace));
                checker.warning(at, message);
            }
        });
    }
    for (field, list) in blocks {
        each(list, &at.field(field), checker, |block, at, checker| {
            if !block.is_empty() {
                ip_or_cidr(block, at, checker);
            }
        });
    }
    service_accounts(source, at, checker);
}

/// A trust domain, perhaps with a `*` at one end.
fn trust_domain(domain: &str, at: &Path<'_>, checker: &mut Checker) {
    let stars = domain.matches('*').count();
    let at_an_end = domain.starts_with('*') || domain.ends_with('*');
    if domain.is_empty() || domain.contains('/') || stars > 1 || stars == 1 && !at_an_end {
        let message = format!("{} is not a trust domain, with at most one * at an end", quoted(domain));
        checker.error(at, message);
    }
}

fn service_accounts(source: &Source, at: &Path<'_>, checker: &mut Checker) {
    const MOST: usize = 16;
    const LONGEST: usize = 320;
    let sides = [
        (
            "serviceAccounts",
            &source.service_accounts,
            !source.principals.is_empty() || !source.namespaces.is_empty(),
        ),
        (
            "notServiceAccounts",
            &source.not_service_accounts,
            !source.not_principals.is_empty() || !source.not_namespaces.is_empty(),
        ),
    ];
    for (field, list, others) in sides {
        let at = at.field(field);
        if !list.is_empty() && others {
            checker.error(&at, "must not be set beside principals or namespaces");
        }
        if list.len() > MOST {
            checker.error(&at, format!("has {} items, at most {MOST} are allowed", list.len()));
        }
        each(list, &at, checker, |account, at, checker| {
            if account.len() > LONGEST || account.matches('/').count() > 1 || account.contains('*') {
                let message = format!("{} is not a service account, name or namespace/name", quoted(account));
                checker.error(at, message);
            }
        });
    }
}

fn operation(operation: &Operation, at: &Path<'_>, checker: &mut Checker) {
    let lists = [
        ("hosts", &operation.hosts),
        ("notHosts", &operation.not_hosts),
        ("ports", &operation.ports),
        ("notPorts", &operation.not_ports),
        ("methods", &operation.methods),
        ("notMethods", &operation.not_methods),
        ("paths", &operation.paths),
        ("notPaths", &operation.not_paths),
    ];
    some_list(lists.into_iter(), at, checker);
    for (field, list) in [("ports", &operation.ports), ("notPorts", &operation.not_ports)] {
        each(list, &at.field(field), checker, |text, at, checker| port(text, at, checker));
    }
    for (field, list) in [("paths", &operation.paths), ("notPaths", &operation.not_paths)] {
        each(list, &at.field(field), checker, |path, at, checker| {
            if let Some(why) = template_problem(path) {
                checker.error(at, format!("{} is not a path: {why}", quoted(path)));
            }
        });
    }
}

/// Reports when no list has items, and items that are empty.
fn some_list<'a>(
    lists: impl Iterator<Item = (&'a str, &'a Vec<String>)> + Clone,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    if lists.clone().all(|(_, list)| list.is_empty()) {
        checker.error(at, "is empty, at least one field must be set");
    }
    for (field, list) in lists {
        no_empty(list, &at.field(field), checker);
    }
}

fn no_empty(list: &[String], at: &Path<'_>, checker: &mut Checker) {
    each(list, at, checker, |item, at, checker| {
        if item.is_empty() {
            checker.error(at, "must not be empty");
        }
    });
}

fn port(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if !text.is_empty() && !text.parse().is_ok_and(is_port) {
        checker.error(at, format!("{} is not a port, must be 1 to 65535", quoted(text)));
    }
}

/// Returns the reason why the text is no path. `{*}` matches one segment and `{**}` all remaining ones.
fn template_problem(path: &str) -> Option<&'static str> {
    let is_template = path.contains("{*}") || path.contains("{**}");
    let mut rest_taken = false;
    for part in path.trim_matches('/').split('/') {
        match part {
            "{*}" | "{**}" if rest_taken => return Some("nothing with braces may follow {**}"),
            "{*}" => {}
            "{**}" => rest_taken = true,
            part if part.contains(['{', '}']) => return Some("{*} and {**} must be whole parts"),
            part if is_template && !part.bytes().all(is_path_byte) => {
                return Some("a part beside {*} must be plain text");
            }
            _ => {}
        }
    }
    None
}

fn is_path_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&c)
}

pub(in crate::validate) fn condition(
    condition: &Condition,
    custom: bool,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    let key = condition.key.as_str();
    let key_at = at.field("key");
    if key.is_empty() {
        return checker.error(&key_at, "must be set");
    }
    if condition.values.is_empty() && condition.not_values.is_empty() {
        checker.error(at, "one of values and notValues must be set");
    }
    let by_certificate = matches!(
        key,
        "source.namespace" | "source.principal" | "source.serviceAccount" | "source.trustDomain"
    );
    if custom && (by_certificate || key.starts_with("request.auth.")) {
        checker.warning(&key_at, format!("{} is not supported for action CUSTOM", quoted(key)));
    }
    let kind = attribute(key);
    match kind {
        Attribute::Unknown => {
            let known = PLAIN.iter().chain(&KEYED).map(|(name, _)| *name);
            let hint = crate::problem::did_you_mean(key, known.map(|name| name.trim_end_matches('[')));
            let message = format!("{} is not an attribute", quoted(key));
            checker.error_with_hint(&key_at, message, hint);
        }
        Attribute::BadKey => checker.error(&key_at, format!("{} must have the form name[key]", quoted(key))),
        _ => {}
    }
    for (field, list) in [("values", &condition.values), ("notValues", &condition.not_values)] {
        let at = at.field(field);
        no_empty(list, &at, checker);
        each(list, &at, checker, |value, at, checker| match kind {
            _ if value.is_empty() => {}
            Attribute::Ip => ip_or_cidr(value, at, checker),
            Attribute::Port => port(value, at, checker),
            Attribute::TrustDomain => trust_domain(value, at, checker),
            _ => {}
        });
    }
}

/// Type of an attribute's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Text,
    Ip,
    Port,
    TrustDomain,
    BadKey,
    Unknown,
}

const PLAIN: [(&str, Attribute); 12] = [
    ("source.ip", Attribute::Ip),
    ("remote.ip", Attribute::Ip),
    ("source.namespace", Attribute::Text),
    ("source.principal", Attribute::Text),
    ("source.serviceAccount", Attribute::Text),
    ("source.trustDomain", Attribute::TrustDomain),
    ("request.auth.principal", Attribute::Text),
    ("request.auth.audiences", Attribute::Text),
    ("request.auth.presenter", Attribute::Text),
    ("destination.ip", Attribute::Ip),
    ("destination.port", Attribute::Port),
    ("connection.sni", Attribute::Text),
];

/// Attributes with a key in brackets.
const KEYED: [(&str, Attribute); 3] = [
    ("request.headers", Attribute::Text),
    ("request.auth.claims", Attribute::Text),
    ("experimental.envoy.filters.", Attribute::Text),
];

/// The attributes, those with a key without it.
pub(crate) const ATTRIBUTES: [&str; 15] = {
    let mut names = [""; 15];
    let mut next = 0;
    while next < PLAIN.len() {
        names[next] = PLAIN[next].0;
        next += 1;
    }
    while next < names.len() {
        names[next] = KEYED[next - PLAIN.len()].0;
        next += 1;
    }
    names
};

/// True for an attribute of requests or connections that policies can use.
pub(crate) fn is_attribute(key: &str) -> bool {
    attribute(key) != Attribute::Unknown
}

fn attribute(key: &str) -> Attribute {
    if let Some((_, kind)) = PLAIN.iter().find(|(name, _)| *name == key) {
        return *kind;
    }
    if !KEYED.iter().any(|(name, _)| key.starts_with(name)) {
        return Attribute::Unknown;
    }
    let good = key.split_once('[').is_some_and(|(_, inside)| inside.len() > 1 && inside.ends_with(']'));
    if good { Attribute::Text } else { Attribute::BadKey }
}
