//! Decisions of a filter chain's policies: its RBAC filters, external authorizers and JWT filters, in the
//! order in which Envoy runs them.

use super::arrival::{Arrival, Token, http_of};
use super::rbac::{self, Truth};
use super::{dropped, list, step, text};
use crate::resource::rule_name;
use pilotfish_api::v1::{Dropped, Step, Verdict};
use serde_json::Value;

/// Prefix of the metadata keys by which rules with an external authorizer trigger its filter.
const MARKED: &str = "istio_ext_authz_";

/// Decision of a chain's policies.
pub(super) struct Decided {
    pub(super) step: Step,
    /// Outcome, if they deny.
    pub(super) end: Option<String>,
}

/// Evaluates the policies of a filter chain; `None` if it has none. `whose` describes the owner of the chain,
/// and `made_by` lists the objects that made the listener.
pub(super) fn decide(
    chain: &Value,
    arrival: &Arrival<'_>,
    whose: &str,
    made_by: &[String],
) -> Option<Decided> {
    let mut judge = Judge::of(arrival, made_by);
    let network = list(chain, "/filters").filter_map(|filter| filter.get("typed_config"));
    let manager = http_of(chain);
    let http = manager.into_iter().flat_map(|manager| list(manager, "/http_filters"));
    let http = http.filter_map(|filter| filter.get("typed_config"));
    for config in network.chain(http) {
        judge.filter(config);
        if judge.refused.is_some() {
            break;
        }
    }
    judge.seen.then(|| judge.decided(whose))
}

struct Judge<'a> {
    arrival: &'a Arrival<'a>,
    made_by: &'a [String],
    /// True once a filter with policies was found.
    seen: bool,
    /// Rules whose requests are, or may be, sent to an external authorizer.
    marked: Vec<String>,
    allowed: Vec<String>,
    doubts: Vec<String>,
    by: Vec<String>,
    others: Vec<Dropped>,
    /// Reason of the denial, and its HTTP status.
    refused: Option<(String, u16)>,
}

impl<'a> Judge<'a> {
    fn of(arrival: &'a Arrival<'a>, made_by: &'a [String]) -> Self {
        Self {
            arrival,
            made_by,
            seen: false,
            marked: Vec::new(),
            allowed: Vec::new(),
            doubts: Vec::new(),
            by: Vec::new(),
            others: Vec::new(),
            refused: None,
        }
    }

    fn filter(&mut self, config: &Value) {
        let ty = text(config, "/@type");
        if ty.ends_with(".rbac.v3.RBAC") {
            self.seen = true;
            self.tried(config);
            self.enforced(config);
        } else if ty.ends_with(".ext_authz.v3.ExtAuthz") {
            self.seen = true;
            self.authorizer(config);
        } else if ty.ends_with(".jwt_authn.v3.JwtAuthentication") {
            self.seen = true;
            self.tokens(config);
        }
    }

    /// Evaluates shadow rules: those that mark requests for an external authorizer, and dry-run rules.
    fn tried(&mut self, config: &Value) {
        let Some(rules) = config.get("shadow_rules") else { return };
        let marks = text(config, "/shadow_rules_stat_prefix") == MARKED;
        for (name, policy) in policies(rules) {
            if !marks {
                self.others.push(dropped(words(name), "it is only tried (istio.io/dry-run)"));
                continue;
            }
            match rbac::policy(policy, self.arrival) {
                truth @ Truth::No(_) => self.others.push(dropped(words(name), truth.reason())),
                Truth::Yes | Truth::Depends(_) => {
                    self.marked.push(words(name));
                    self.by.push(policy_of(name));
                }
            }
        }
    }

    fn enforced(&mut self, config: &Value) {
        let Some(rules) = config.get("rules") else { return };
        // Proto JSON omits the first value of an enum.
        match rules.get("action").and_then(Value::as_str).unwrap_or("ALLOW") {
            "DENY" => self.deny(rules),
            "ALLOW" => self.allow(rules),
            _ => {}
        }
    }

    fn deny(&mut self, rules: &Value) {
        for (name, policy) in policies(rules) {
            match rbac::policy(policy, self.arrival) {
                Truth::Yes => {
                    let bad = name.ends_with("-deny-due-to-bad-CUSTOM-action");
                    let why = if bad { ", since its external authorizer is not known" } else { "" };
                    self.by = vec![policy_of(name)];
                    self.refused = Some((format!("{} denies it{why}", words(name)), 403));
                    return;
                }
                Truth::Depends(on) => {
                    self.doubts.push(format!("{} denies it, depending on {on}", words(name)));
                    self.by.push(policy_of(name));
                }
                truth @ Truth::No(_) => self.others.push(dropped(words(name), truth.reason())),
            }
        }
    }

    fn allow(&mut self, rules: &Value) {
        let mut missed = Vec::new();
        let mut perhaps = Vec::new();
        for (name, policy) in policies(rules) {
            match rbac::policy(policy, self.arrival) {
                Truth::Yes => {
                    self.allowed.push(format!("{} allows it", words(name)));
                    self.by.push(policy_of(name));
                    return;
                }
                Truth::Depends(on) => perhaps.push((name, on)),
                truth @ Truth::No(_) => missed.push((name, truth.reason())),
            }
        }
        self.by.extend(perhaps.iter().map(|(name, _)| policy_of(name)));
        let only = |(name, on): &(&str, String)| format!("{} allows it, depending on {on}", words(name));
        let only: Vec<String> = perhaps.iter().map(only).collect();
        if only.is_empty() {
            self.by = missed.iter().map(|(name, _)| policy_of(name)).collect();
            self.refused = Some(("no rule of those that allow takes it".to_owned(), 403));
        } else {
            self.doubts.push(format!("nothing else allows it: {}", only.join(", ")));
        }
        self.others.extend(missed.into_iter().map(|(name, why)| dropped(words(name), why)));
    }

    fn authorizer(&mut self, config: &Value) {
        let always = config.get("filter_enabled_metadata").is_none();
        if always {
            self.doubts.push("an external authorizer decides on all".to_owned());
        } else if !self.marked.is_empty() {
            self.doubts.push(format!("the external authorizer of {} decides", self.marked.join(", ")));
        }
    }

    fn tokens(&mut self, config: &Value) {
        let by = || self.made_by.iter().filter(|by| by.starts_with("RequestAuthentication")).cloned();
        let required = list(config, "/rules").filter_map(|rule| rule.get("requires")).any(is_required);
        if self.arrival.token == Token::Perhaps {
            let by: Vec<String> = by().collect();
            self.by.extend(by);
            self.doubts.push("401 unless its token is valid".to_owned());
        } else if required {
            self.by = by().collect();
            self.refused = Some(("it has no token, and one is required".to_owned(), 401));
        }
    }

    fn decided(mut self, whose: &str) -> Decided {
        self.by.sort();
        self.by.dedup();
        let (verdict, text, end) = match (self.refused, self.doubts.is_empty()) {
            (Some((why, status)), _) => {
                let answer = match self.arrival.request {
                    Some(_) => status.to_string(),
                    None => "the connection is closed".to_owned(),
                };
                let end = format!("{answer}: {whose} refuses it: {why}");
                (Verdict::Ends, why, Some(end))
            }
            (None, false) => (Verdict::Doubtful, self.doubts.join("; "), None),
            (None, true) if self.allowed.is_empty() => (Verdict::Ok, "no policy denies it".to_owned(), None),
            (None, true) => (Verdict::Ok, self.allowed.join(", "), None),
        };
        let mut step = step("authorization", verdict, whose, text);
        step.decided_by = self.by;
        step.others = self.others;
        Decided { step, end }
    }
}

/// Rules of a filter, in the order in which Envoy evaluates them.
fn policies(rules: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = rules.get("policies").and_then(Value::as_object);
    all.into_iter().flatten().map(|(name, policy)| (name.as_str(), policy))
}

/// Readable name of a rule.
fn words(name: &str) -> String {
    rule_name(name).map_or_else(|| name.to_owned(), |(policy, place)| format!("rules[{place}] of {policy}"))
}

fn policy_of(name: &str) -> String {
    rule_name(name).map_or_else(|| name.to_owned(), |(policy, _)| policy)
}

/// True if a request without a token violates the requirement.
fn is_required(requires: &Value) -> bool {
    let Some((kind, inner)) = requires.as_object().and_then(|fields| fields.iter().next()) else {
        return false;
    };
    match kind.as_str() {
        "provider_name" | "provider_and_audiences" => true,
        "requires_any" => list(inner, "/requirements").all(is_required),
        "requires_all" => list(inner, "/requirements").any(is_required),
        _ => false,
    }
}
