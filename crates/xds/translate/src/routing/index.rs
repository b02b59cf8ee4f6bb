//! Index of the virtual services by gateway and by the namespaces that see them.

use super::ir::{ServerHost, VirtualServiceHeader, VirtualServiceId, VirtualServiceIr, WrittenHosts};
use super::virtual_service;
use crate::engine::{Cx, Query};
use crate::routing::gateway_api::ApiVirtualServices;
use crate::routing::ingress::IngressVirtualServices;
use crate::services::host_index::HostIndex;
use pilotfish_config::networking::VirtualService;
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All virtual services, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AllVirtualServices;

impl Query for AllVirtualServices {
    type Output = Vec<Arc<VirtualServiceHeader>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut headers: Vec<Arc<VirtualServiceHeader>> = cx
            .objects::<VirtualService>()
            .filter_map(|object| virtual_service::header(&object, cx.domain()))
            .map(Arc::new)
            .collect();
        headers.extend(cx.get(&IngressVirtualServices).values().map(|(header, _)| header.clone()));
        headers.extend(cx.get(&ApiVirtualServices).values().map(|(header, _)| header.clone()));
        headers.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        headers
    }
}

/// Virtual services by gateway and visibility.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VirtualServiceIndex;

/// Virtual services of each gateway.
type ByGateway = BTreeMap<Arc<str>, Vec<Arc<VirtualServiceHeader>>>;

#[derive(Debug, Default, PartialEq)]
struct Index {
    /// Virtual services for their own namespace.
    private: BTreeMap<Namespace, ByGateway>,
    /// Virtual services exported to a namespace by name.
    exported: BTreeMap<Namespace, ByGateway>,
    public: ByGateway,
}

impl Query for VirtualServiceIndex {
    type Output = Index;

    fn compute(&self, cx: &Cx<'_>) -> Index {
        let mesh = cx.mesh();
        let default = mesh.default_virtual_service_export_to.iter().map(String::as_str);
        let default = ExportTo::parse(default, &".".into());
        let mut index = Index::default();
        for header in cx.get(&AllVirtualServices).iter() {
            let own = &header.id.namespace;
            let export_to = if header.export_to == ExportTo::Unset { &default } else { &header.export_to };
            match export_to {
                ExportTo::Unset | ExportTo::Public => add(&mut index.public, header),
                ExportTo::Nobody => {}
                ExportTo::Namespaces(namespaces) => {
                    for namespace in namespaces.iter() {
                        let is_own = namespace == own || namespace.as_str() == ".";
                        let (map, to) =
                            if is_own { (&mut index.private, own) } else { (&mut index.exported, namespace) };
                        add(map.entry(to.clone()).or_default(), header);
                    }
                }
            }
        }
        index
    }
}

fn add(rules: &mut ByGateway, header: &Arc<VirtualServiceHeader>) {
    for gateway in &header.gateways {
        let list = rules.entry(gateway.clone()).or_default();
        if list.last().is_none_or(|last| last.id != header.id) {
            list.push(header.clone());
        }
    }
}

/// The virtual services behind a gateway that a namespace sees: its own private ones, then those exported to
/// it, then the public ones, each in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualServicesFor {
    /// Namespace of the clients.
    pub namespace: Namespace,
    /// The gateway as `namespace/name`, or [`MESH`](super::ir::MESH).
    pub gateway: Arc<str>,
}

impl Query for VirtualServicesFor {
    type Output = Arc<[Arc<VirtualServiceHeader>]>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let index = cx.get(&VirtualServiceIndex);
        let of = |map: &BTreeMap<Namespace, ByGateway>| {
            map.get(&self.namespace).and_then(|rules| rules.get(&self.gateway)).cloned().unwrap_or_default()
        };
        let public = index.public.get(&self.gateway).cloned().unwrap_or_default();
        of(&index.private).into_iter().chain(of(&index.exported)).chain(public).collect()
    }
}

/// The virtual services of [`VirtualServicesFor`], indexed by host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualServicesByHost(pub VirtualServicesFor);

/// The answer to [`VirtualServicesByHost`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HostedVirtualServices {
    list: Arc<[Arc<VirtualServiceHeader>]>,
    by_host: HostIndex,
}

impl HostedVirtualServices {
    /// Returns the virtual services that have hosts in common with a server, in order of precedence. The
    /// common host of an overlapping pair is the narrower one.
    pub(crate) fn meeting(
        &self,
        server: &[ServerHost],
        written: &WrittenHosts,
    ) -> impl Iterator<Item = (&Arc<VirtualServiceHeader>, BTreeSet<Hostname>)> {
        let mut common: BTreeMap<usize, BTreeSet<Hostname>> = BTreeMap::new();
        let mut add = |server: &ServerHost, positions: &[usize], theirs: &Hostname, host: &Hostname| {
            for position in positions {
                let meets = |header: &Arc<VirtualServiceHeader>| {
                    server.is_for(&header.id.namespace)
                        && written.agree(&server.host, &header.written, theirs)
                };
                if self.list.get(*position).is_some_and(meets) {
                    common.entry(*position).or_default().insert(host.clone());
                }
            }
        };
        for ours in server {
            let (above, below) = (self.by_host.above(&ours.host), self.by_host.below(&ours.host));
            above.for_each(|(theirs, positions)| add(ours, positions, theirs, &ours.host));
            below.for_each(|(theirs, positions)| add(ours, positions, theirs, theirs));
        }
        common.into_iter().filter_map(|(position, hosts)| Some((self.list.get(position)?, hosts)))
    }
}

impl Query for VirtualServicesByHost {
    type Output = HostedVirtualServices;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let list = Arc::clone(&*cx.get(&self.0));
        let mut by_host = HostIndex::default();
        for (position, header) in list.iter().enumerate() {
            header.hosts.iter().for_each(|host| by_host.add(host, position));
        }
        HostedVirtualServices { list, by_host }
    }
}

/// Query for a virtual service by its id; `None` if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualServiceOf(pub VirtualServiceId);

impl Query for VirtualServiceOf {
    type Output = Option<Arc<VirtualServiceIr>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        match self.0.source {
            Kind::HttpRoute | Kind::TcpRoute | Kind::TlsRoute => {
                cx.get(&ApiVirtualServices).get(&self.0).map(|(_, rule)| rule.clone())
            }
            Kind::Ingress => cx.get(&IngressVirtualServices).get(&self.0).map(|(_, rule)| rule.clone()),
            _ => {
                let object = cx.object::<VirtualService>(&self.0.namespace, &self.0.name)?;
                Some(Arc::new(virtual_service::read(cx, &object)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::ir::MESH;
    use crate::testing::{evaluate, line, yaml_world};
    use pilotfish_config::mesh::MeshConfig;
    use pilotfish_model::{Update, WorldWriter};

    #[test]
    fn the_narrower_host_is_common() {
        let rule = "{hosts: [a.com, x.net, \"*.org\", z.org], gateways: [edge/g], http: [{route: [{destination: {host: b.com}}]}]}";
        let all = ["shop", "other"]
            .map(|namespace| line("networking.istio.io/v1", "VirtualService", namespace, "rule", rule));
        let query = VirtualServicesFor { namespace: "edge".into(), gateway: "edge/g".into() };
        let found = evaluate(&yaml_world(&all.concat()), &VirtualServicesByHost(query));
        let server =
            ["*.com", "other/x.net", "y.org"].map(|text| ServerHost::parse(text, &"a".into()).unwrap());
        let names = |namespace: &str| -> Vec<String> {
            let of = |header: &VirtualServiceHeader| header.id.namespace == *namespace;
            let written = WrittenHosts::default();
            let mut met = found.meeting(&server, &written).filter(|(header, _)| of(header));
            met.next().map(|(_, hosts)| hosts.iter().map(ToString::to_string).collect()).unwrap_or_default()
        };
        assert_eq!(names("shop"), ["a.com", "y.org"]);
        assert_eq!(names("other"), ["a.com", "x.net", "y.org"]);
    }
    /// Number of virtual services of namespace `shop` that clients in `shop`, `partner` and `stranger` see.
    fn seen(default: &[&str], spec: &str) -> [usize; 3] {
        let mut writer = WorldWriter::new();
        let rule = line("networking.istio.io/v1", "VirtualService", "shop", "a", spec);
        crate::testing::yaml(&rule).into_iter().for_each(|update| writer.apply(update));
        let default_virtual_service_export_to = default.iter().map(ToString::to_string).collect();
        let mesh = MeshConfig { default_virtual_service_export_to, ..MeshConfig::default() };
        writer.apply(Update::Object(crate::testing::mesh(mesh)));
        let (world, _) = writer.publish().unwrap();
        ["shop", "partner", "stranger"].map(|client| {
            let query = VirtualServicesFor { namespace: client.into(), gateway: MESH.into() };
            evaluate(&world, &query).len()
        })
    }

    /// Rule 11 of Istio 1.31.
    #[test]
    fn default_export_of_virtual_services_may_name_namespaces() {
        const ROUTE: &str = "hosts: [catalog], http: [{route: [{destination: {host: catalog}}]}]";
        for (default, expected) in [
            (&["*"][..], [1, 1, 1]),
            (&["."], [1, 0, 0]),
            (&[".", "partner"], [1, 1, 0]),
            (&["partner"], [0, 1, 0]),
            (&["partner", "stranger"], [0, 1, 1]),
            (&["~"], [0, 0, 0]),
            (&["~", "*"], [1, 1, 1]),
        ] {
            assert_eq!(seen(default, &format!("{{{ROUTE}}}")), expected, "{default:?}");
            // An export of its own replaces the default.
            assert_eq!(
                seen(default, &format!("{{{ROUTE}, exportTo: [stranger]}}")),
                [0, 0, 1],
                "{default:?}"
            );
        }
    }
}
