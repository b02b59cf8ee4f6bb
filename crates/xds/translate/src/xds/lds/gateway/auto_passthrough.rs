//! AUTO_PASSTHROUGH: mutual TLS connections from other networks, forwarded to the cluster that their SNI
//! names.

use super::Builder;
use super::chain::Chain;
use crate::envoy::sni_name;
use crate::envoy::stat_name::{self, Names};
use crate::policy::destination_rule::{MergedDestinationRule, destination_rule_for};
use crate::routing::gateway::MergedServer;
use crate::scope::ServicesOf;
use crate::xds::lds::tcp_proxy::{Stream, TcpDestination};
use pilotfish_model::{Hostname, Port, Service};

/// The ALPN protocols of the mesh's mutual TLS.
const MESH_ALPN: [&str; 5] = ["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// Returns a chain for each port of each mesh service that the server's hosts cover, and for each of its
/// subsets.
pub(super) fn chains(builder: &Builder<'_>, server: &MergedServer) -> Vec<Chain> {
    let services = builder.cx.get(&ServicesOf(builder.view.base.scope.clone()));
    let covered = |host: &Hostname| {
        server.hosts.is_empty() || server.hosts.iter().any(|ours| host.is_subset_of(&ours.host))
    };
    let mut out = Vec::new();
    for service in services.list.iter().filter(|service| !service.mesh_external && covered(&service.hostname))
    {
        let key = service.key();
        let base = &builder.view.base;
        let rule = destination_rule_for(builder.cx, &base.scope.namespace, &key, &base.labels);
        for port in service.tcp_ports() {
            out.push(chain(builder, service, port, rule.as_deref(), ""));
            let subsets = rule.iter().flat_map(|rule| &rule.subsets);
            out.extend(subsets.map(|subset| chain(builder, service, port, rule.as_deref(), &subset.name)));
        }
    }
    out
}

fn chain(
    builder: &Builder<'_>,
    service: &Service,
    port: &Port,
    rule: Option<&MergedDestinationRule>,
    subset: &str,
) -> Chain {
    let cluster = sni_name(port.number, subset, service.hostname.as_str());
    let names = Names {
        host: service.hostname.as_str(),
        service: Some((&service.name, &service.namespace, service.has_short_name)),
        subset,
        port: port.number,
        port_name: &port.name,
        target_port: 0,
    };
    let pattern = builder.cx.mesh().outbound_cluster_stat_name.clone();
    let stream = Stream {
        destination: TcpDestination::Cluster(cluster.clone()),
        stat_prefix: stat_name::of(&pattern, &cluster, &names),
        protocol: port.protocol,
        idle_timeout: &builder.view.base.idle_timeout,
        rule,
        subset,
        access_log: &builder.policies.logs.tcp,
    };
    let of_rule = rule.iter().flat_map(|rule| rule.provenance.iter().cloned());
    // Access is checked by the proxy that terminates the connection.
    Chain {
        server_names: vec![cluster],
        protocols: MESH_ALPN.map(str::to_owned).to_vec(),
        filters: builder.policies.tcp_metrics().chain(stream.filters()).collect(),
        provenance: std::iter::once(service.provenance.clone()).chain(of_rule).collect(),
        ..Chain::default()
    }
}
