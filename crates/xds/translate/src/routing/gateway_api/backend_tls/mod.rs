//! BackendTLSPolicies, as DestinationRules.
//!
//! ```text
//! policy ─▶ trust: authorities, or the reason for none ───────┐
//!    └────▶ targets: a Service or ServiceEntry, optional port ─┼─▶ oldest policy by target and port
//!                                                              └─▶ a DestinationRule by host of a target
//! ```
//!
//! The rules go where those that are written go (`policy::destination_rule`), and count as older than all of
//! them, as in istiod.
//!
//! A policy whose authorities cannot be used still makes a rule, with the credential [`UNUSABLE`]: nobody
//! serves it, so no connection succeeds. istiod does so for gateways, and gives sidecars plaintext, which is
//! what the policy was to prevent.

mod outcome;
mod target;
mod trust;

pub(super) use outcome::{PolicyOutcome, PolicyOutcomeOf, TargetOutcome};
pub(crate) use trust::UNUSABLE;

use super::MADE;
use crate::engine::{Cx, Query, reference};
use pilotfish_config::gateway_api::BackendTlsPolicy;
use pilotfish_config::networking::{
    ClientTlsSettings, DestinationRule, PortSelector, PortTrafficPolicy, TrafficPolicy,
};
use pilotfish_model::{Hostname, KindSpec, Namespace, Object, ObjectKey, ObjectMeta, Origin, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;
use target::{Target, TargetId};

/// A DestinationRule that was made of policies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MadeRule {
    /// The host that it is for, in full.
    pub(crate) host: Hostname,
    pub(crate) rule: Typed<DestinationRule>,
    /// The policies that it was made of.
    pub(crate) provenance: Vec<Origin>,
}

/// The DestinationRules of a namespace that are made of policies, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MadeRulesIn(pub(crate) Namespace);

impl Query for MadeRulesIn {
    type Output = Vec<MadeRule>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<MadeRule> {
        let attached = cx.get(&AttachedPoliciesIn(self.0.clone()));
        let mut rules: Vec<MadeRule> = Vec::new();
        for target in attached.values() {
            let policy = target.traffic_policy();
            rules.extend(target.target.hosts.iter().filter_map(|host| {
                let name = rule_name(&target.target.id, host);
                let parsed = Hostname::parse(host).ok()?;
                Some(MadeRule {
                    rule: made_rule(&self.0, &name, host, policy.clone())?,
                    host: parsed,
                    provenance: target.provenance.clone(),
                })
            }));
        }
        rules.sort_by(|a, b| a.rule.name().cmp(b.rule.name()));
        rules
    }
}

/// The name that istiod gives it, which proxies see in metadata.
fn rule_name(id: &TargetId, host: &str) -> String {
    match id {
        TargetId::Service(name) => format!("{name}~{MADE}"),
        TargetId::ServiceEntry(name) => format!("{name}~{}~{MADE}", host.replace('.', "-")),
    }
}

fn made_rule(
    namespace: &Namespace,
    name: &str,
    host: &str,
    policy: TrafficPolicy,
) -> Option<Typed<DestinationRule>> {
    let key = ObjectKey::new(DestinationRule::KIND, namespace.clone(), name);
    let content =
        DestinationRule { host: host.to_owned(), traffic_policy: Some(policy), ..DestinationRule::default() };
    Object::new(ObjectMeta::of(key), content).typed()
}

/// Targets of the policies of a namespace, each with the policies that count there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedPoliciesIn(Namespace);

/// A target and the policies that count there: for each port, and for all ports, the oldest.
#[derive(Clone, Debug, PartialEq)]
struct AttachedTarget {
    target: Target,
    whole: Option<Attached>,
    /// By number of the port.
    ports: BTreeMap<u32, Attached>,
    provenance: Vec<Origin>,
}

/// The settings of the policy that counts, and its name.
#[derive(Clone, Debug, PartialEq)]
struct Attached {
    policy: Arc<str>,
    tls: ClientTlsSettings,
}

impl AttachedTarget {
    fn traffic_policy(&self) -> TrafficPolicy {
        let of_port = |(number, attached): (&u32, &Attached)| PortTrafficPolicy {
            port: Some(PortSelector { number: *number }),
            tls: Some(attached.tls.clone()),
            ..PortTrafficPolicy::default()
        };
        TrafficPolicy {
            tls: self.whole.as_ref().map(|attached| attached.tls.clone()),
            port_level_settings: self.ports.iter().map(of_port).collect(),
            ..TrafficPolicy::default()
        }
    }

    /// The policy that counts for a port, or for all of them.
    fn winner(&self, port: Option<u32>) -> Option<&Attached> {
        match port {
            Some(port) => self.ports.get(&port),
            None => self.whole.as_ref(),
        }
    }

    /// Attaches a policy where no older one is.
    fn attach(&mut self, port: Option<u32>, policy: &Typed<BackendTlsPolicy>, tls: &ClientTlsSettings) {
        if self.winner(port).is_some() {
            return;
        }
        let attached = Attached { policy: policy.name().into(), tls: tls.clone() };
        match port {
            Some(port) => drop(self.ports.insert(port, attached)),
            None => self.whole = Some(attached),
        }
        let origin = reference(policy);
        if !self.provenance.contains(&origin) {
            self.provenance.push(origin);
        }
    }
}

impl Query for AttachedPoliciesIn {
    type Output = BTreeMap<TargetId, AttachedTarget>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut policies = cx.objects_in::<BackendTlsPolicy>(&self.0);
        policies.retain(|policy| !is_ignored(policy.meta()));
        policies.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        let mut out: Self::Output = BTreeMap::new();
        for policy in &policies {
            let tls = trust::settings(cx, policy);
            for reference in &policy.spec.target_refs {
                let Ok((target, port)) = target::resolve(cx, &self.0, reference) else { continue };
                let entry = out.entry(target.id.clone()).or_insert_with(|| AttachedTarget {
                    target,
                    whole: None,
                    ports: BTreeMap::new(),
                    provenance: Vec::new(),
                });
                entry.attach(port, policy, &tls);
            }
        }
        out
    }
}

/// The annotation of a policy that is as good as none.
const IGNORED: &str = "istio.io/ignore-policy-attachment";

/// True for a policy that does nothing, not even against others for its targets.
fn is_ignored(policy: &ObjectMeta) -> bool {
    policy.annotations.get(IGNORED).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests;
