//! Policies of a listener that are weakened, found by the names of the rules in its RBAC filters.

use crate::resource::rule_name;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Effect of a policy's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Denies,
    Allows,
    /// Asks an external authorizer.
    Asks,
}

impl Effect {
    fn words(self) -> &'static str {
        match self {
            Self::Denies => "denies",
            Self::Allows => "allows",
            Self::Asks => "asks its external authorizer for",
        }
    }
}

/// Rules of a listener, by effect and policy.
#[derive(Debug, Default)]
struct Rules {
    of: BTreeMap<(Effect, String), BTreeSet<String>>,
    /// True if a filter denies requests that no rule allows.
    only_allowed: bool,
}

/// Dangers in a change of a listener's policies.
pub(super) fn dangers(name: &str, before: &Value, after: &Value) -> Vec<String> {
    let (mut old, mut new) = (Rules::default(), Rules::default());
    old.read(before);
    new.read(after);
    let mut found = Vec::new();
    if old.only_allowed && !new.only_allowed {
        found.push(format!("listener {name} lets through what no policy allows"));
    }
    for ((effect, policy), rules) in &old.of {
        // Fewer allow rules do not matter if all requests are allowed anyway.
        if *effect == Effect::Allows && !new.only_allowed {
            continue;
        }
        let left = new.of.get(&(*effect, policy.clone())).map_or(0, BTreeSet::len);
        let does = effect.words();
        if left == 0 {
            found.push(format!("{policy} {does} nothing any more on listener {name}"));
        } else if left < rules.len() {
            found.push(format!("{policy} {does} by {left} of {} rules on listener {name}", rules.len()));
        }
    }
    found
}

impl Rules {
    /// Collects the rules of all RBAC filters at any depth.
    fn read(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let ty = fields.get("@type").and_then(Value::as_str).unwrap_or_default();
                if ty.ends_with(".rbac.v3.RBAC") {
                    self.filter(value);
                } else {
                    fields.values().for_each(|value| self.read(value));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.read(item)),
            _ => {}
        }
    }

    fn filter(&mut self, filter: &Value) {
        if let Some(rules) = filter.get("rules") {
            // Proto JSON omits the first value of an enum.
            match rules.get("action").and_then(Value::as_str).unwrap_or("ALLOW") {
                "DENY" => self.add(Effect::Denies, rules),
                "ALLOW" => {
                    self.only_allowed = true;
                    self.add(Effect::Allows, rules);
                }
                _ => {}
            }
        }
        // Dry-run rules have another prefix.
        let prefix = filter.get("shadow_rules_stat_prefix").and_then(Value::as_str).unwrap_or_default();
        if let Some(rules) = filter.get("shadow_rules").filter(|_| prefix == "istio_ext_authz_") {
            self.add(Effect::Asks, rules);
        }
    }

    fn add(&mut self, effect: Effect, rules: &Value) {
        for rule in rules.get("policies").and_then(Value::as_object).into_iter().flat_map(|all| all.keys()) {
            let policy = rule_name(rule).map_or_else(|| rule.clone(), |(policy, _)| policy);
            self.of.entry((effect, policy)).or_default().insert(rule.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An action, and the rules of its filter.
    type Filter = (&'static str, &'static [&'static str]);

    /// A listener with a filter for each action, with these rules.
    fn listener(filters: &[Filter]) -> Value {
        let filter = |(action, names): &Filter| {
            let policies: BTreeMap<&str, Value> = names.iter().map(|name| (*name, json!({}))).collect();
            let mut config =
                json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"});
            match *action {
                "CUSTOM" => {
                    config["shadow_rules_stat_prefix"] = json!("istio_ext_authz_");
                    config["shadow_rules"] = json!({"action": "DENY", "policies": policies});
                }
                "ALLOW" => config["rules"] = json!({"policies": policies}),
                action => config["rules"] = json!({"action": action, "policies": policies}),
            }
            json!({"name": "envoy.filters.http.rbac", "typed_config": config})
        };
        let filters: Vec<Value> = filters.iter().map(filter).collect();
        json!({"filter_chains": [{"filters": [{"typed_config": {"http_filters": filters}}]}]})
    }

    const A0: &str = "ns[shop]-policy[a]-rule[0]";
    const A1: &str = "ns[shop]-policy[a]-rule[1]";
    const B0: &str = "ns[shop]-policy[b]-rule[0]";
    const C0: &str = "istio-ext-authz-ns[shop]-policy[c]-rule[0]";

    #[test]
    fn a_policy_that_does_less_is_a_danger_while_others_stay() {
        let deny = "AuthorizationPolicy shop/a denies nothing any more on listener x";
        let open = "listener x lets through what no policy allows";
        let table: &[(&[Filter], &[Filter], &[&str])] = &[
            (&[("DENY", &[A0, B0])], &[("DENY", &[B0])], &[deny]),
            (&[("DENY", &[A0]), ("ALLOW", &[B0])], &[("ALLOW", &[B0])], &[deny]),
            (&[("DENY", &[A0]), ("ALLOW", &[B0])], &[("DENY", &[A0])], &[open]),
            (
                &[("DENY", &[A0, A1])],
                &[("DENY", &[A0])],
                &["AuthorizationPolicy shop/a denies by 1 of 2 rules on listener x"],
            ),
            (
                &[("ALLOW", &[A0, B0])],
                &[("ALLOW", &[B0])],
                &["AuthorizationPolicy shop/a allows nothing any more on listener x"],
            ),
            (
                &[("CUSTOM", &[C0]), ("DENY", &[A0])],
                &[("DENY", &[A0])],
                &[
                    "AuthorizationPolicy shop/c asks its external authorizer for nothing any more on listener x",
                ],
            ),
            (&[("LOG", &[A0])], &[], &[]),
            (&[("DENY", &[A0])], &[("DENY", &[A0, A1, B0])], &[]),
            (&[], &[("ALLOW", &[A0])], &[]),
        ];
        for (before, after, want) in table {
            assert_eq!(dangers("x", &listener(before), &listener(after)), *want, "{before:?} {after:?}");
        }
    }
}
