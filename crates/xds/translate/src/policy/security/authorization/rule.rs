//! One rule of a policy: one of its sources does one of its operations, and all its conditions hold.

use super::condition::{
    Condition, PermissionAttribute, PrincipalAttribute, Untestable, Untested, identifier, rule,
};
use super::trust_domain::TrustDomains;
use pilotfish_config::security::{Condition as When, Operation, Rule, Source};
use pilotfish_model::Namespace;
use pilotfish_proto::envoy::config::rbac::v3::{Permission, Policy, Principal, permission, principal};

/// The conditions of a rule, sorted into what is done and by whom. Each inner list must hold as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    permissions: Vec<Vec<Condition<PermissionAttribute>>>,
    principals: Vec<Vec<Condition<PrincipalAttribute>>>,
}

impl Model {
    /// Reads a rule of a policy of that namespace; `None` when a condition is about an unknown attribute and
    /// must not be left out.
    pub(super) fn read(
        rule: &Rule,
        namespace: &Namespace,
        domains: &TrustDomains,
        untested: Untested,
    ) -> Option<Self> {
        let mut permissions = Vec::new();
        let mut principals = Vec::new();
        for when in &rule.when {
            match attribute(&when.key, namespace) {
                Some(Attribute::Permission(attribute)) => {
                    permissions.extend(condition(attribute, &when.values, &when.not_values))
                }
                Some(Attribute::Principal(attribute)) => principals.extend(of_when(attribute, when, domains)),
                None if untested == Untested::IsLeftOut => {}
                None => return None,
            }
        }
        let from = rule.from.iter().map(|from| match &from.source {
            Some(source) => {
                of_source(source, namespace, domains).into_iter().chain(principals.clone()).collect()
            }
            None => principals.clone(),
        });
        let to = rule.to.iter().map(|to| match &to.operation {
            Some(operation) => of_operation(operation).into_iter().chain(permissions.clone()).collect(),
            None => permissions.clone(),
        });
        let or = |list: Vec<_>, all| if list.is_empty() { vec![all] } else { list };
        let to = to.collect::<Vec<Vec<Condition<PermissionAttribute>>>>();
        let from = from.collect::<Vec<Vec<Condition<PrincipalAttribute>>>>();
        Some(Self {
            permissions: if to.is_empty() { vec![permissions] } else { to },
            principals: or(from, principals),
        })
    }

    /// The policy as Envoy has it.
    pub(super) fn policy(&self, streams: bool, untested: Untested) -> Result<Policy, Untestable> {
        let permissions: Result<Vec<_>, _> =
            self.permissions.iter().map(|all| permission_of(all, streams, untested)).collect();
        let principals: Result<Vec<_>, _> =
            self.principals.iter().map(|all| principal_of(all, streams, untested)).collect();
        Ok(Policy { permissions: permissions?, principals: principals?, ..Default::default() })
    }
}

fn permission_of(
    all: &[Condition<PermissionAttribute>],
    streams: bool,
    untested: Untested,
) -> Result<Permission, Untestable> {
    let mut rules = Vec::new();
    for condition in all {
        rules.extend(condition.permissions(streams, untested)?);
    }
    if rules.is_empty() {
        rules.push(rule(permission::Rule::Any(true)));
    }
    Ok(rule(permission::Rule::AndRules(permission::Set { rules })))
}

fn principal_of(
    all: &[Condition<PrincipalAttribute>],
    streams: bool,
    untested: Untested,
) -> Result<Principal, Untestable> {
    let mut ids = Vec::new();
    for condition in all {
        ids.extend(condition.principals(streams, untested)?);
    }
    if ids.is_empty() {
        ids.push(identifier(principal::Identifier::Any(true)));
    }
    Ok(identifier(principal::Identifier::AndIds(principal::Set { ids })))
}

/// The policy of a policy object without rules: nothing matches it.
pub(super) fn never() -> Policy {
    let permission = rule(permission::Rule::Any(true));
    let principal = identifier(principal::Identifier::Any(true));
    Policy {
        permissions: vec![rule(permission::Rule::NotRule(Box::new(permission)))],
        principals: vec![identifier(principal::Identifier::NotId(Box::new(principal)))],
        ..Default::default()
    }
}

fn condition<T>(attribute: T, values: &[String], not_values: &[String]) -> Option<Condition<T>> {
    let any = !values.is_empty() || !not_values.is_empty();
    any.then(|| Condition { attribute, values: values.to_vec(), not_values: not_values.to_vec() })
}

fn of_when(
    attribute: PrincipalAttribute,
    when: &When,
    domains: &TrustDomains,
) -> Option<Condition<PrincipalAttribute>> {
    match attribute {
        PrincipalAttribute::Principal => {
            condition(attribute, &domains.expand(&when.values), &domains.expand(&when.not_values))
        }
        PrincipalAttribute::TrustDomain => {
            condition(attribute, &domains.aliases(&when.values), &domains.aliases(&when.not_values))
        }
        _ => condition(attribute, &when.values, &when.not_values),
    }
}

fn of_source(
    source: &Source,
    namespace: &Namespace,
    domains: &TrustDomains,
) -> Vec<Condition<PrincipalAttribute>> {
    let accounts = PrincipalAttribute::ServiceAccount(namespace.clone());
    let conditions = [
        condition(
            PrincipalAttribute::Principal,
            &domains.expand(&source.principals),
            &domains.expand(&source.not_principals),
        ),
        condition(
            PrincipalAttribute::RequestPrincipal,
            &source.request_principals,
            &source.not_request_principals,
        ),
        condition(accounts, &source.service_accounts, &source.not_service_accounts),
        condition(
            PrincipalAttribute::TrustDomain,
            &domains.aliases(&source.trust_domains),
            &domains.aliases(&source.not_trust_domains),
        ),
        condition(PrincipalAttribute::Namespace, &source.namespaces, &source.not_namespaces),
        condition(PrincipalAttribute::RemoteIp, &source.remote_ip_blocks, &source.not_remote_ip_blocks),
        condition(PrincipalAttribute::SourceIp, &source.ip_blocks, &source.not_ip_blocks),
    ];
    conditions.into_iter().flatten().collect()
}

fn of_operation(operation: &Operation) -> Vec<Condition<PermissionAttribute>> {
    let conditions = [
        condition(PermissionAttribute::Host, &operation.hosts, &operation.not_hosts),
        condition(PermissionAttribute::Method, &operation.methods, &operation.not_methods),
        condition(PermissionAttribute::Path, &operation.paths, &operation.not_paths),
        condition(PermissionAttribute::DestinationPort, &operation.ports, &operation.not_ports),
    ];
    conditions.into_iter().flatten().collect()
}

enum Attribute {
    Permission(PermissionAttribute),
    Principal(PrincipalAttribute),
}

/// The attribute of a key such as `source.ip` or `request.headers[x-user]`.
fn attribute(key: &str, namespace: &Namespace) -> Option<Attribute> {
    let principal = |principal| Some(Attribute::Principal(principal));
    match key {
        "destination.ip" => return Some(Attribute::Permission(PermissionAttribute::DestinationIp)),
        "destination.port" => return Some(Attribute::Permission(PermissionAttribute::DestinationPort)),
        "connection.sni" => return Some(Attribute::Permission(PermissionAttribute::ServerName)),
        "source.ip" => return principal(PrincipalAttribute::SourceIp),
        "remote.ip" => return principal(PrincipalAttribute::RemoteIp),
        "source.namespace" => return principal(PrincipalAttribute::Namespace),
        "source.serviceAccount" => return principal(PrincipalAttribute::ServiceAccount(namespace.clone())),
        "source.trustDomain" => return principal(PrincipalAttribute::TrustDomain),
        "source.principal" => return principal(PrincipalAttribute::Principal),
        "request.auth.principal" => return principal(PrincipalAttribute::RequestPrincipal),
        "request.auth.audiences" => return principal(PrincipalAttribute::Audiences),
        "request.auth.presenter" => return principal(PrincipalAttribute::Presenter),
        _ => {}
    }
    if let Some(rest) = key.strip_prefix("experimental.").filter(|rest| rest.starts_with("envoy.filters.")) {
        let (filter, path) = rest.strip_suffix(']').unwrap_or(rest).split_once('[')?;
        return Some(Attribute::Permission(PermissionAttribute::FilterMetadata(
            filter.to_owned(),
            path.to_owned(),
        )));
    }
    if let Some(rest) = key.strip_prefix("request.headers") {
        let name = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
        return principal(PrincipalAttribute::Header(name.to_owned()));
    }
    let claims = key.strip_prefix("request.auth.claims")?;
    principal(PrincipalAttribute::Claim(nested(claims)?))
}

/// The names in `[a][b]`.
fn nested(text: &str) -> Option<Vec<String>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(inner.split("][").map(str::to_owned).collect())
}
