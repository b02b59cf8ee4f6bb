//! Envoy's RBAC filters.

use crate::call::Call;
use crate::matchers::{Metadata, header, items, metadata, only, range, string, template};
use serde_json::Value;

/// What the rules are asked about.
pub(crate) struct Subject<'a> {
    pub(crate) call: &'a Call,
    pub(crate) metadata: &'a Metadata,
}

impl Subject<'_> {
    /// Whether the rules of a filter let the call through; no rules let everything through.
    pub(crate) fn passes(&self, rules: &Value) -> bool {
        let denies = match rules["action"].as_str() {
            None | Some("ALLOW") => false,
            Some("DENY") => true,
            Some("LOG") => return true,
            Some(other) => panic!("no action {other} is known"),
        };
        !rules.is_object() || self.matched(rules).is_some() != denies
    }

    /// The name of the first policy that matches.
    pub(crate) fn matched<'v>(&self, rules: &'v Value) -> Option<&'v str> {
        let mut policies = rules["policies"].as_object().into_iter().flatten();
        let matches = |policy: &Value| {
            items(policy, "permissions").any(|one| self.permission(one))
                && items(policy, "principals").any(|one| self.principal(one))
        };
        policies.find(|(_, policy)| matches(policy)).map(|(name, _)| name.as_str())
    }

    fn permission(&self, permission: &Value) -> bool {
        let request = self.call.http.as_ref();
        let (kind, value) = only(permission);
        match kind {
            "any" => value == &Value::Bool(true),
            "and_rules" => items(value, "rules").all(|one| self.permission(one)),
            "or_rules" => items(value, "rules").any(|one| self.permission(one)),
            "not_rule" => !self.permission(value),
            "header" => request.is_some_and(|request| header(value, request)),
            "url_path" => request.is_some_and(|request| string(&value["path"], path(request.path))),
            "uri_template" => {
                let written = value["typed_config"]["path_template"].as_str().expect("a template");
                request.is_some_and(|request| template(written, path(request.path)))
            }
            "destination_ip" => range(value, self.call.destination),
            "destination_port" => value.as_u64() == Some(self.call.port.into()),
            "requested_server_name" => {
                string(value, self.call.tls.as_ref().map_or("", |tls| tls.server_name.as_str()))
            }
            "metadata" => metadata(value, self.metadata),
            other => panic!("no permission {other} is known"),
        }
    }

    fn principal(&self, principal: &Value) -> bool {
        let request = self.call.http.as_ref();
        let (kind, value) = only(principal);
        match kind {
            "any" => value == &Value::Bool(true),
            "and_ids" => items(value, "ids").all(|one| self.principal(one)),
            "or_ids" => items(value, "ids").any(|one| self.principal(one)),
            "not_id" => !self.principal(value),
            "authenticated" => {
                let name = self.call.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
                name.is_some_and(|name| string(&value["principal_name"], name))
            }
            "direct_remote_ip" => range(value, self.call.source),
            "remote_ip" => range(value, self.call.remote),
            "header" => request.is_some_and(|request| header(value, request)),
            "metadata" => metadata(value, self.metadata),
            other => panic!("no principal {other} is known"),
        }
    }
}

fn path(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}
