//! Workloads to which a policy applies: those that its selector matches, or the gateways that it targets.

use crate::proxy::selectors::Selectors;
use pilotfish_config::extensions::{TrafficExtension, WasmPlugin};
use pilotfish_config::security::{AuthorizationPolicy, PeerAuthentication, RequestAuthentication};
use pilotfish_config::telemetry::Telemetry;
use pilotfish_config::{PolicyTargetReference, WorkloadSelector};
use pilotfish_model::{KindSpec, LabelMap, Namespace, Typed, label_subset};

/// Label of a gateway with the name of its Gateway object.
pub(crate) const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Common interface of the policy kinds for workloads.
pub(crate) trait Policy: KindSpec {
    /// The workloads by label; `None` for all.
    fn selector(&self) -> Option<&WorkloadSelector>;

    /// Target references. With any, the selector is ignored.
    fn targets(&self) -> impl Iterator<Item = &PolicyTargetReference>;

    /// Returns true if the policy has target references.
    fn is_attached(&self) -> bool {
        self.targets().next().is_some()
    }

    /// Adds the labels on which the policy's workloads depend.
    fn add_to(&self, selectors: &mut Selectors) {
        if self.is_attached() {
            selectors.add_key(GATEWAY_NAME);
        } else {
            selectors.extend(self.selector().map(|selector| &selector.match_labels));
        }
    }
}

/// Returns true if a policy, which must be of the root namespace or the workload's own, applies to a
/// workload. Of target references, only Gateways of the Gateway API in the same namespace are supported here.
pub(crate) fn concerns<T: Policy>(policy: &Typed<T>, namespace: &Namespace, labels: &LabelMap) -> bool {
    applies(&**policy, policy.namespace(), namespace, labels)
}

/// Returns true if a policy of the namespace `from` applies to a workload, as in [`concerns`].
pub(crate) fn applies<T: Policy>(
    policy: &T,
    from: &Namespace,
    namespace: &Namespace,
    labels: &LabelMap,
) -> bool {
    if !policy.is_attached() {
        return policy.selector().is_none_or(|selector| label_subset(&selector.match_labels, labels));
    }
    let Some(gateway) = labels.get(GATEWAY_NAME) else { return false };
    let here = |target: &PolicyTargetReference| {
        from == namespace && (target.namespace.is_empty() || *namespace == target.namespace.as_str())
    };
    policy.targets().any(|target| {
        target.group == GATEWAY_GROUP && target.kind == "Gateway" && target.name == *gateway && here(target)
    })
}

macro_rules! attachable {
    ($($type:ty),*) => {$(
        impl Policy for $type {
            fn selector(&self) -> Option<&WorkloadSelector> {
                self.selector.as_ref()
            }

            fn targets(&self) -> impl Iterator<Item = &PolicyTargetReference> {
                self.target_refs.iter().chain(&self.target_ref)
            }
        }
    )*};
}

attachable!(AuthorizationPolicy, RequestAuthentication, Telemetry, WasmPlugin);

impl Policy for TrafficExtension {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn targets(&self) -> impl Iterator<Item = &PolicyTargetReference> {
        self.target_refs.iter()
    }
}

impl Policy for PeerAuthentication {
    fn selector(&self) -> Option<&WorkloadSelector> {
        self.selector.as_ref()
    }

    fn targets(&self) -> impl Iterator<Item = &PolicyTargetReference> {
        std::iter::empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{labels, object};

    fn policy(
        namespace: &str,
        selector: Option<&[(&str, &str)]>,
        targets: &[(&str, &str)],
    ) -> Typed<Telemetry> {
        let selector = selector.map(|pairs| WorkloadSelector { match_labels: (&*labels(pairs)).into() });
        let targets = targets.iter().map(|(kind, name)| PolicyTargetReference {
            group: GATEWAY_GROUP.into(),
            kind: (*kind).into(),
            name: (*name).into(),
            ..Default::default()
        });
        let spec = Telemetry { selector, target_refs: targets.collect(), ..Default::default() };
        object(namespace, "t", spec).typed().unwrap()
    }

    #[test]
    fn a_policy_concerns_what_it_selects_or_is_attached_to() {
        let web = labels(&[("app", "web")]);
        let gateway = labels(&[("app", "web"), (GATEWAY_NAME, "front")]);
        let app: &[(&str, &str)] = &[("app", "web")];
        for (policy, of_web, of_gateway) in [
            (policy("shop", None, &[]), true, true),
            (policy("shop", Some(app), &[]), true, true),
            (policy("shop", Some(&[("app", "db")]), &[]), false, false),
            (policy("shop", None, &[("Gateway", "front")]), false, true),
            (policy("shop", None, &[("Gateway", "back"), ("Gateway", "front")]), false, true),
            (policy("shop", None, &[("Service", "front")]), false, false),
            (policy("shop", Some(app), &[("Gateway", "back")]), false, false),
            (policy("root", None, &[("Gateway", "front")]), false, false),
        ] {
            assert_eq!(concerns(&policy, &"shop".into(), &web), of_web, "{policy:?}");
            assert_eq!(concerns(&policy, &"shop".into(), &gateway), of_gateway, "{policy:?}");
        }
    }

    #[test]
    fn attached_policies_match_the_name_of_the_gateway() {
        let gateway = labels(&[("app", "web"), (GATEWAY_NAME, "front")]);
        let counting = |policy: &Typed<Telemetry>| {
            let mut selectors = Selectors::default();
            policy.add_to(&mut selectors);
            selectors.of(&gateway)
        };
        assert_eq!(counting(&policy("shop", Some(&[("app", "web")]), &[])), *labels(&[("app", "web")]));
        let attached = policy("shop", Some(&[("app", "web")]), &[("Gateway", "front")]);
        assert_eq!(counting(&attached), *labels(&[(GATEWAY_NAME, "front")]));
    }
}
