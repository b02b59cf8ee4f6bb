//! AuthorizationPolicy.

use super::{Refused, Scope, Trust, has_only, items, known_part, part, plain};
use crate::security::{AuthorizationAction as Action, AuthorizationPolicy, AuthorizationProvider, Rule};
use crate::validate::limits;
use crate::validate::security::authorization::{condition, from, rule, to};
use crate::yaml::Node;

impl AuthorizationPolicy {
    /// Closes the parts of the policy that cannot be used.
    pub(crate) fn closed(refused: &Refused<'_>) -> Option<Self> {
        let Refused { spec, trust, .. } = *refused;
        let scope = Scope::of(spec);
        let fields = [&Scope::FIELDS[..], &["rules", "action", "provider"]].concat();
        let is_whole = has_only(spec, &fields) && scope.as_ref().is_some_and(|scope| scope.is_whole);
        // A policy whose action is not known may have been one that denies.
        let action = plain::<Option<Action>>(spec.get("action")).map(Option::unwrap_or_default);
        let rules = match action {
            Some(Action::Allow) if trust == Trust::Parts && is_whole => allowing(spec),
            // An empty ALLOW policy admits only requests that other policies allow, also for workloads that
            // were not selected.
            Some(Action::Allow) => Vec::new(),
            Some(action) if trust == Trust::Parts && spec.is_mapping() => excluding(spec, action),
            _ => vec![Rule::default()],
        };
        // Usable parts may still exceed a limit together.
        let rules = match action {
            _ if !limits::has_too_many_values(&rules) => rules,
            Some(Action::Allow) => Vec::new(),
            _ => vec![Rule::default()],
        };
        let Scope { selector, target_ref, target_refs, .. } = scope.unwrap_or_default();
        // Without a name, or with an unknown one, there is no provider, and requests for it are denied.
        let provider: Option<AuthorizationProvider> =
            known_part(spec.get("provider"), |_, _, _| {}).and_then(|known| known.value);
        let action = action.unwrap_or(Action::Deny);
        Some(Self { selector, target_ref, target_refs, rules, action, provider })
    }
}

/// The rules that can be used as they are written.
fn allowing(spec: &Node) -> Vec<Rule> {
    let usable = |node| part(Some(node), |value, at, checker| rule(value, Action::Allow, at, checker));
    items(spec.get("rules")).unwrap_or_default().iter().filter_map(usable).collect()
}

/// The rules with their known conditions; without a usable list, one that matches everything.
fn excluding(spec: &Node, action: Action) -> Vec<Rule> {
    let rules = items(spec.get("rules")).unwrap_or_default();
    if rules.is_empty() {
        return vec![Rule::default()];
    }
    let widened = rules.iter().map(|node| (node, widened(node, action)));
    // An audit of every request has no information on the intended ones, and is not needed for protection.
    let says_nothing = |node: &Node, rule: &Rule| {
        action == Action::Audit
            && *rule == Rule::default()
            && !(node.is_mapping() && node.entries().is_empty())
    };
    widened.filter(|(node, rule)| !says_nothing(node, rule)).map(|(_, rule)| rule).collect()
}

/// Returns a rule that matches at least the intended requests: it keeps the known conditions. A list of
/// alternatives without any known condition may always match.
fn widened(node: &Node, action: Action) -> Rule {
    let custom = action == Action::Custom;
    let when = items(node.get("when")).unwrap_or_default().iter();
    Rule {
        from: all(node.get("from"), |node| {
            known_part(Some(node), |value, at, checker| from(value, custom, at, checker))
                .map(|known| known.value)
        }),
        to: all(node.get("to"), |node| known_part(Some(node), to).map(|known| known.value)),
        when: when
            .filter_map(|node| part(Some(node), |value, at, checker| condition(value, custom, at, checker)))
            .collect(),
    }
}

/// All items, or none when one of them cannot be used: an empty list is no condition.
fn all<T>(node: Option<&Node>, read: impl Fn(&Node) -> Option<T>) -> Vec<T> {
    let read: Option<Vec<T>> = items(node).unwrap_or_default().iter().map(read).collect();
    read.unwrap_or_default()
}
