//! AuthorizationPolicy: rules for allowed and denied requests.

use crate::kinds::message::{enumeration, kind, message};
use crate::{PolicyTargetReference, WorkloadSelector};

kind!(AuthorizationPolicy = AuthorizationPolicy;);

message! {
/// Rules, and the action on requests that match one.
pub struct AuthorizationPolicy {
    pub selector: Option<WorkloadSelector>,
    pub target_ref: Option<PolicyTargetReference>,
    pub target_refs: Vec<PolicyTargetReference>,
    pub rules: Vec<Rule>,
    pub action: AuthorizationAction,
    pub provider: Option<AuthorizationProvider>,
}

/// The extension provider that decides, for `CUSTOM`.
pub struct AuthorizationProvider {
    pub name: String,
}

/// Matches if a source, an operation and all conditions match; an empty list matches always.
pub struct Rule {
    pub from: Vec<From>,
    pub to: Vec<To>,
    pub when: Vec<Condition>,
}

pub struct From {
    pub source: Option<Source>,
}

/// Attributes of a client; all lists that are set must match.
pub struct Source {
    pub principals: Vec<String>,
    pub not_principals: Vec<String>,
    pub request_principals: Vec<String>,
    pub not_request_principals: Vec<String>,
    pub namespaces: Vec<String>,
    pub not_namespaces: Vec<String>,
    pub trust_domains: Vec<String>,
    pub not_trust_domains: Vec<String>,
    pub service_accounts: Vec<String>,
    pub not_service_accounts: Vec<String>,
    pub ip_blocks: Vec<String>,
    pub not_ip_blocks: Vec<String>,
    pub remote_ip_blocks: Vec<String>,
    pub not_remote_ip_blocks: Vec<String>,
}

pub struct To {
    pub operation: Option<Operation>,
}

/// Attributes of a request; all lists that are set must match.
pub struct Operation {
    pub hosts: Vec<String>,
    pub not_hosts: Vec<String>,
    pub ports: Vec<String>,
    pub not_ports: Vec<String>,
    pub methods: Vec<String>,
    pub not_methods: Vec<String>,
    pub paths: Vec<String>,
    pub not_paths: Vec<String>,
}

/// A condition on an attribute, for example `request.headers[x-user]`.
pub struct Condition {
    pub key: String,
    pub values: Vec<String>,
    pub not_values: Vec<String>,
}
}

enumeration! {
/// Action on requests that match a rule.
pub enum AuthorizationAction {
    #[default]
    Allow,
    Deny,
    Audit,
    Custom,
}
}
