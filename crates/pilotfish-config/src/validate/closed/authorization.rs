//! AuthorizationPolicy.

use super::{Refused, Scope, has_only, items, part, plain};
use crate::security::{AuthorizationAction as Action, AuthorizationPolicy, AuthorizationProvider, Rule};
use crate::validate::limits;
use crate::validate::security::authorization::{condition, from, rule, to};
use crate::yaml::Node;
use serde::de::DeserializeOwned;

impl AuthorizationPolicy {
    /// The policy with what cannot be used closed.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let Refused { spec, trust, .. } = *refused;
        let scope = Scope::of(spec);
        let fields = [&Scope::FIELDS[..], &["rules", "action", "provider"]].concat();
        let known = trust.parts_if(has_only(spec, &fields));
        // A policy whose action is not known may have been one that denies.
        let action = plain::<Option<Action>>(spec.get("action")).map(Option::unwrap_or_default);
        let rules = match action {
            Some(Action::Allow) if known && scope.is_some() => allowing(spec),
            // Allowing nothing leaves what other policies allow, for workloads that this one was not for as well.
            Some(Action::Allow) => Vec::new(),
            Some(action) if known => excluding(spec, action),
            _ => vec![Rule::default()],
        };
        // Parts that can be used may still be too many together.
        let rules = match action {
            _ if !limits::has_too_many_values(&rules) => rules,
            Some(Action::Allow) => Vec::new(),
            _ => vec![Rule::default()],
        };
        let Scope { selector, target_ref, target_refs } = scope.unwrap_or_default();
        // Without a name, or with an unknown one, there is no provider, and what would be sent to it is denied.
        let provider: Option<AuthorizationProvider> = plain(spec.get("provider")).unwrap_or_default();
        let action = action.unwrap_or(Action::Deny);
        Some(Self { selector, target_ref, target_refs, rules, action, provider })
    }
}

/// The rules that can be used as they are written.
fn allowing(spec: &Node) -> Vec<Rule> {
    let usable = |node| part(Some(node), |value, at, checker| rule(value, Action::Allow, at, checker));
    items(spec.get("rules")).unwrap_or_default().iter().filter_map(usable).collect()
}

/// The rules without the conditions that cannot be used; without a usable list, one that matches everything.
fn excluding(spec: &Node, action: Action) -> Vec<Rule> {
    let rules = items(spec.get("rules")).unwrap_or_default();
    if rules.is_empty() {
        return vec![Rule::default()];
    }
    rules.iter().map(|rule| widened(rule, action)).collect()
}

/// A rule that matches at least what was meant: a list of alternatives of which one is unknown may hold always.
fn widened(node: &Node, action: Action) -> Rule {
    let custom = action == Action::Custom;
    let when = items(node.get("when")).unwrap_or_default().iter();
    Rule {
        from: all(node.get("from"), |node| {
            part(Some(node), |value, at, checker| from(value, custom, at, checker))
        }),
        to: all(node.get("to"), |node| part(Some(node), to)),
        when: when
            .filter_map(|node| part(Some(node), |value, at, checker| condition(value, custom, at, checker)))
            .collect(),
    }
}

/// All items, or none when one of them cannot be used: an empty list is no condition.
fn all<T: DeserializeOwned>(node: Option<&Node>, read: impl Fn(&Node) -> Option<T>) -> Vec<T> {
    let read: Option<Vec<T>> = items(node).unwrap_or_default().iter().map(read).collect();
    read.unwrap_or_default()
}
