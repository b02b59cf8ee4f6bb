//! Egress listeners of a scope: their imports, and the policy for traffic to unknown hosts.

use super::{Scope, ServiceIn, cluster_host};
use crate::engine::{Cx, Query};
use crate::envoy::{DnsCache, outbound_name};
use crate::proxy::{Proxy, ProxyKind};
use crate::services::alias;
use crate::services::host_index::HostIndex;
use pilotfish_config::mesh;
use pilotfish_config::networking::{
    CaptureMode, IstioEgressListener, OutboundTrafficPolicyMode, Port as ListenerPort,
};
use pilotfish_model::{Hostname, Namespace, PortId, Protocol};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An egress listener: of a Sidecar, or the default one, which imports everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Egress {
    /// Its port; `None` for all ports of its services.
    pub port: Option<EgressPort>,
    /// The bind address; empty for the services' own addresses.
    pub bind: Arc<str>,
    /// Capture of its traffic: by redirection, or by binding the port.
    pub capture: CaptureMode,
    pub imports: Imports,
}

/// The port of an egress listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressPort {
    /// The number; 0 for a Unix socket.
    pub number: u32,
    pub protocol: Protocol,
    pub name: Arc<str>,
}

impl Egress {
    /// The port that services must have to be imported; `None` when every service is.
    #[must_use]
    pub(crate) fn matched_port(&self) -> Option<PortId> {
        let port = self.port.as_ref()?;
        let id = PortId { number: port.number, transport: port.protocol.transport() };
        (port.number != 0 && port.protocol != Protocol::HttpProxy).then_some(id)
    }
}

/// Hosts by the namespace that they are imported from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// Hosts imported from every namespace.
    everywhere: Option<HostIndex>,
    /// Hosts imported from one namespace.
    by_namespace: BTreeMap<Namespace, HostIndex>,
    /// Hosts left out, by namespace; `*` for all.
    excluded: BTreeMap<Namespace, HostIndex>,
}

impl Imports {
    /// Everything that is visible.
    #[must_use]
    pub(crate) fn everything() -> Self {
        Self::parse(["*/*"], &Namespace::default())
    }

    /// Parses `namespace/host` entries; `own` replaces `.`. Malformed entries import nothing.
    pub(crate) fn parse<'a>(entries: impl IntoIterator<Item = &'a str>, own: &Namespace) -> Self {
        let mut out = Self::default();
        for entry in entries {
            let Some((namespace, host)) = entry.split_once('/') else { continue };
            let Ok(host) = Hostname::parse(host) else { continue };
            let (namespace, target) = match namespace {
                "~" if host.as_str() == "*" => continue,
                "~" => ("*", &mut out.excluded),
                "*" => {
                    out.everywhere.get_or_insert_default().add(&host, 0);
                    continue;
                }
                _ => match namespace.strip_prefix('~') {
                    Some(namespace) => (namespace, &mut out.excluded),
                    None => (namespace, &mut out.by_namespace),
                },
            };
            let namespace = if namespace == "." { own.clone() } else { namespace.into() };
            target.entry(namespace).or_default().add(&host, 0);
        }
        out
    }

    /// Returns true if all visible services and VirtualServices are imported.
    #[must_use]
    pub(crate) fn is_everything(&self) -> bool {
        let all = |hosts: &HostIndex| hosts.has("*");
        self.everywhere.as_ref().is_some_and(all) && self.excluded.is_empty()
    }

    /// Returns true if a service with that namespace and host is imported.
    #[must_use]
    pub(crate) fn has_service(&self, namespace: &Namespace, host: &Hostname) -> bool {
        self.any(namespace, |hosts| hosts.covers(host)) && !self.excludes(namespace, host)
    }

    /// Returns true if a VirtualService of that namespace is imported for one of its hosts.
    #[must_use]
    pub(crate) fn has_rule_host(&self, namespace: &Namespace, host: &Hostname) -> bool {
        self.any(namespace, |hosts| hosts.meets(host)) && !self.excludes(namespace, host)
    }

    fn any(&self, namespace: &Namespace, test: impl Fn(&HostIndex) -> bool) -> bool {
        self.by_namespace.get(namespace).is_some_and(&test) || self.everywhere.as_ref().is_some_and(&test)
    }

    fn excludes(&self, namespace: &Namespace, host: &Hostname) -> bool {
        let excluded = [self.excluded.get(namespace), self.excluded.get("*")];
        excluded.into_iter().flatten().any(|hosts| hosts.covers(host))
    }
}

/// The egress listeners of a scope, in the order written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EgressOf(pub Scope);

impl Query for EgressOf {
    type Output = Vec<Egress>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Egress> {
        let everything = || vec![Egress { imports: Imports::everything(), ..Egress::default() }];
        let Some(sidecar) = self.0.sidecar_object(cx) else { return everything() };
        if sidecar.egress.is_empty() {
            return everything();
        }
        sidecar.egress.iter().map(|listener| egress(listener, &self.0.namespace)).collect()
    }
}

fn egress(listener: &IstioEgressListener, own: &Namespace) -> Egress {
    Egress {
        port: listener.port.as_ref().map(port),
        bind: listener.bind.as_str().into(),
        capture: listener.capture_mode,
        imports: Imports::parse(listener.hosts.iter().map(String::as_str), own),
    }
}

fn port(port: &ListenerPort) -> EgressPort {
    EgressPort {
        number: port.number,
        protocol: Protocol::parse(&port.protocol),
        name: port.name.as_str().into(),
    }
}

/// Policy for traffic to hosts without a service (`outboundTrafficPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EgressPolicy {
    /// Traffic is passed to its original destination.
    AllowAny,
    /// Hosts of requests are looked up by the proxy; other traffic is passed to its original destination.
    AllowAnyDynamicDns,
    /// Traffic to such hosts is dropped.
    RegistryOnly,
    /// Traffic is sent to a service.
    Proxy(EgressProxy),
}

/// Destination of traffic to unknown hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressProxy {
    /// The host as written.
    pub host: Arc<str>,
    /// The subset; empty for none.
    pub subset: Arc<str>,
    pub port: u32,
}

impl EgressProxy {
    /// Its cluster, for clients of a scope.
    #[must_use]
    pub(crate) fn cluster(&self, cx: &Cx<'_>, scope: &Scope) -> String {
        let find = |host: &Hostname| Option::clone(&cx.get(&ServiceIn(scope.clone(), host.clone())));
        let (host, _) = alias::behind(cx, &self.host, find);
        outbound_name(self.port, &self.subset, &cluster_host(cx, scope, &host))
    }
}

/// The policy of a scope for traffic to unknown hosts: of its Sidecar, else of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutboundPolicyOf(pub Scope);

impl Query for OutboundPolicyOf {
    type Output = EgressPolicy;

    fn compute(&self, cx: &Cx<'_>) -> EgressPolicy {
        let sidecar = if self.0.kind == ProxyKind::Router { None } else { self.0.sidecar_object(cx) };
        let policy = sidecar.as_ref().and_then(|sidecar| sidecar.outbound_traffic_policy.as_ref());
        let Some(policy) = policy else { return of_mesh(cx.mesh().outbound_traffic_policy.mode) };
        match (&policy.egress_proxy, policy.mode) {
            (Some(proxy), OutboundTrafficPolicyMode::AllowAny) => EgressPolicy::Proxy(EgressProxy {
                host: proxy.host.as_str().into(),
                subset: proxy.subset.as_str().into(),
                port: proxy.port.as_ref().map_or(0, |port| port.number),
            }),
            (None, OutboundTrafficPolicyMode::AllowAny) => EgressPolicy::AllowAny,
            (_, OutboundTrafficPolicyMode::RegistryOnly) => EgressPolicy::RegistryOnly,
        }
    }
}

fn of_mesh(mode: mesh::OutboundTrafficPolicyMode) -> EgressPolicy {
    use mesh::OutboundTrafficPolicyMode as Mode;
    match mode {
        Mode::AllowAny => EgressPolicy::AllowAny,
        Mode::AllowAnyDynamicDns => EgressPolicy::AllowAnyDynamicDns,
        Mode::RegistryOnly => EgressPolicy::RegistryOnly,
    }
}

/// The DNS cache of a sidecar for hosts without a service; `None` unless it looks them up.
pub(crate) fn cache_of_unknown_hosts(cx: &Cx<'_>, scope: &Scope, proxy: &Proxy) -> Option<Arc<DnsCache>> {
    let looks_up = || *cx.get(&OutboundPolicyOf(scope.clone())) == EgressPolicy::AllowAnyDynamicDns;
    (proxy.kind == ProxyKind::Sidecar && looks_up()).then(|| Arc::new(DnsCache::of_unknown_hosts(proxy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_by_namespace() {
        let host = |text: &str| Hostname::parse(text).unwrap();
        let table: &[(&[&str], &str, &str, bool)] = &[
            (&["*/*"], "a", "x.com", true),
            (&["./*"], "own", "x.com", true),
            (&["./*"], "a", "x.com", false),
            (&["a/x.com"], "a", "x.com", true),
            (&["a/x.com"], "a", "y.com", false),
            (&["a/*.com"], "a", "y.com", true),
            (&["a/x.com"], "a", "*.com", false),
            (&["*/x.com"], "b", "x.com", true),
            (&["~/*"], "own", "x.com", false),
            (&["*/*", "~a/x.com"], "a", "x.com", false),
            (&["*/*", "~a/x.com"], "b", "x.com", true),
            (&["*/*", "~*/x.com"], "b", "x.com", false),
            (&["*/*", "~/x.com"], "b", "x.com", false),
            (&["*/*", "~/*"], "b", "x.com", true),
            (&["*/*", "!b/x.com"], "b", "x.com", true),
            (&["~b/x.com"], "a", "x.com", false),
            (&["no-slash"], "a", "x.com", false),
        ];
        for (entries, namespace, name, want) in table {
            let imports = Imports::parse(entries.iter().copied(), &"own".into());
            assert_eq!(
                imports.has_service(&(*namespace).into(), &host(name)),
                *want,
                "{entries:?} {namespace}/{name}"
            );
        }
    }

    #[test]
    fn a_rule_for_a_wildcard_is_imported_with_a_host_below_it() {
        let imports = Imports::parse(["a/x.com"], &"own".into());
        assert!(imports.has_rule_host(&"a".into(), &Hostname::parse("*.com").unwrap()));
        assert!(!imports.has_rule_host(&"a".into(), &Hostname::parse("y.com").unwrap()));
    }
}
