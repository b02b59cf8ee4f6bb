//! References to secrets in the configuration.

use super::SecretRef;
use crate::credentials::{CA_SUFFIX, with_ca_suffix};
use crate::engine::{Cx, Query};
use crate::routing::gateway::GatewayOf;
use crate::routing::ir::GatewayId;
use pilotfish_config::networking::{ClientTlsSettings, DestinationRule, ServerTlsSettings};
use pilotfish_model::{Kind, Namespace};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Query for the secrets that gateways refer to, for a router of a namespace, with the objects that may have
/// the grant. Secrets in other namespaces, and references in the form of the Gateway API, count only if a
/// Gateway of the router's namespace has them, or a ListenerSet of such a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NamedByGateways {
    pub(super) namespace: Namespace,
    pub(super) gateways: Arc<[GatewayId]>,
}

/// Kinds and namespaces of objects that refer to a secret.
type Referrers = BTreeSet<(Kind, Namespace)>;

impl Query for NamedByGateways {
    type Output = HashMap<SecretRef, Referrers>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut named: Self::Output = HashMap::new();
        for id in self.gateways.iter() {
            let gateway = cx.get(&GatewayOf(id.clone()));
            let Some(gateway) = gateway.as_ref() else { continue };
            let is_of_api = matches!(id.source, Kind::KubernetesGateway | Kind::ListenerSet);
            let is_own = is_of_api && gateway.routers == self.namespace;
            // Authorities in a server of a ListenerSet may be its Gateway's.
            let referrers =
                [(id.source, id.namespace.clone()), (Kind::KubernetesGateway, gateway.routers.clone())];
            let names = gateway.servers.iter().filter_map(|server| server.tls.as_ref()).flat_map(names_of);
            let found = names.flat_map(|name| secrets(&name, &self.namespace));
            for secret in found.filter(|wanted| is_own || !matches!(wanted, SecretRef::GatewaySecret { .. }))
            {
                named.entry(secret).or_default().extend(referrers.iter().cloned());
            }
        }
        named
    }
}

/// Query for the secrets that DestinationRules refer to, for a proxy of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NamedByRules(pub(super) Namespace);

impl Query for NamedByRules {
    type Output = HashSet<SecretRef>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let names = cx.get(&RuleCredentials);
        names.iter().flat_map(|name| secrets(name, &self.0)).collect()
    }
}

/// Query for the credential names in all DestinationRules, of which few have any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RuleCredentials;

impl Query for RuleCredentials {
    type Output = HashSet<Arc<str>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        cx.objects::<DestinationRule>()
            .flat_map(|rule| {
                let subsets = rule.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
                let policies = rule.traffic_policy.iter().chain(subsets);
                let settings = policies.flat_map(|policy| {
                    policy
                        .tls
                        .iter()
                        .chain(policy.port_level_settings.iter().filter_map(|port| port.tls.as_ref()))
                });
                settings.flat_map(credentials_of).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// The credential of a client, and authorities that come on their own.
fn credentials_of(tls: &ClientTlsSettings) -> impl Iterator<Item = Arc<str>> {
    let own = Some(tls.credential_name.as_str()).filter(|name| !name.is_empty()).map(Arc::from);
    let authorities = Some(tls.ca_cert_credential_name.as_str()).filter(|name| !name.is_empty());
    own.into_iter().chain(authorities.map(|name| Arc::from(with_ca_suffix(name))))
}

/// The credentials of a server, and authorities that come on their own.
fn names_of(tls: &ServerTlsSettings) -> impl Iterator<Item = String> {
    let own = std::iter::once(&tls.credential_name).chain(&tls.credential_names).cloned();
    let authorities = Some(&tls.ca_cert_credential_name).filter(|name| !name.is_empty());
    own.filter(|name| !name.is_empty()).chain(authorities.map(|name| with_ca_suffix(name)))
}

/// Returns the secrets that a credential name permits: the one of that name, and its CA certificates.
fn secrets(name: &str, own: &Namespace) -> impl Iterator<Item = SecretRef> + use<> {
    let name = if name.contains("://") { name.to_owned() } else { format!("kubernetes://{name}") };
    let authorities = (!name.ends_with(CA_SUFFIX)).then(|| format!("{name}{CA_SUFFIX}"));
    let own = own.clone();
    [Some(name), authorities].into_iter().flatten().filter_map(move |name| SecretRef::parse(&name, &own))
}
