//! Handling of a connection at its destination: transport and policies of the endpoint's sidecar.

use super::authorization::{self, Decided};
use super::chain::{chains_for_port, choose, is_for_tls, terminates_tls};
use super::cluster::Connection;
use super::{Found, Next, Walk, Way, step, text};
use crate::subject::sidecar;
use pilotfish_api::counted;
use pilotfish_api::v1::{Step, Verdict, Why};
use pilotfish_model::{Kind, Origin, TlsMode, Workload};
use pilotfish_proto::ResourceType;
use pilotfish_translate::{Client, Proxy, ProxyKind};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of endpoints whose sidecars are evaluated: those of one service are mostly alike.
const LOOKED_AT: usize = 16;
const VIRTUAL_INBOUND: &str = "virtualInbound";

/// Transports that an inbound listener accepts on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Takes {
    plaintext: bool,
    tls: bool,
}

/// Result for the request at one endpoint.
struct Arrived {
    step: Option<Step>,
    /// Outcome, if it is refused there.
    end: Option<String>,
}

/// Sidecar of an endpoint.
struct Side {
    name: String,
    workload: Arc<Workload>,
    listener: Found,
}

impl Walk<'_> {
    /// Evaluates the inbound listeners of endpoints with a sidecar.
    pub(super) fn inbound(
        &self,
        way: &Way,
        cluster: &Found,
        endpoints: &[(String, u64, bool)],
        answer: &mut Why,
    ) -> Next<()> {
        let looked_at = endpoints.len().min(LOOKED_AT);
        let mut arrived = Vec::new();
        for (address, port, mtls) in endpoints.iter().take(looked_at) {
            if let Some(side) = self.side(address, *port) {
                let connection = Connection::of(&cluster.json, *mtls, way.as_http, self.proxy.istio_filters);
                arrived.push(self.arrives(way, &side, (address, *port), &connection, cluster));
            }
        }
        let ended = arrived.iter().filter(|one| one.end.is_some()).count();
        let (ends, goes): (Vec<Arrived>, Vec<Arrived>) =
            arrived.into_iter().partition(|one| one.end.is_some());
        if let Some(first) = ends.into_iter().next() {
            let mut at = first.step.unwrap_or_default();
            if ended == looked_at {
                answer.steps.push(at);
                return Next::End(first.end.unwrap_or_default());
            }
            at.verdict = Verdict::Doubtful;
            at.text += &format!("; so it is at {ended} of {}", counted(looked_at, "endpoint"));
            answer.steps.push(at);
            return Next::On(());
        }
        let mut steps: Vec<Step> = goes.into_iter().filter_map(|one| one.step).collect();
        let doubtful = steps.iter().position(|step| step.verdict == Verdict::Doubtful).unwrap_or(0);
        if doubtful < steps.len() {
            answer.steps.push(steps.swap_remove(doubtful));
        }
        Next::On(())
    }

    /// Evaluates the request at one sidecar.
    fn arrives(
        &self,
        way: &Way,
        side: &Side,
        (address, port): (&str, u64),
        connection: &Connection,
        cluster: &Found,
    ) -> Arrived {
        let refused = |text: String, outcome: String| {
            let mut at = step("other side", Verdict::Ends, format!("{address}:{port}"), text);
            at.decided_by = self.policies(&side.workload);
            let rules = cluster.made_by.iter().filter(|by| by.starts_with("DestinationRule"));
            at.decided_by.extend(rules.cloned());
            Arrived { step: Some(at), end: Some(outcome) }
        };
        let name = &side.name;
        let takes = takes(&side.listener.json, port);
        if !(if connection.tls { takes.tls } else { takes.plaintext }) {
            let (needs, sends) =
                if connection.tls { ("plaintext", "TLS") } else { ("mutual TLS", "plaintext") };
            let text = format!(
                "the sidecar of {name} takes {needs} only on port {port}, and this proxy sends {sends}"
            );
            return refused(text, format!("503: {name} refuses the connection, which is in {sends}"));
        }
        let Some(chain) = choose(&side.listener.json, &connection.arriving(address, port)).0 else {
            let text =
                format!("no filter chain of the sidecar of {name} takes such a connection on port {port}");
            return refused(text, format!("503: {name} closes the connection"));
        };
        let socket = chain.get("transport_socket");
        let asks = socket.and_then(|socket| socket.pointer("/typed_config/require_client_certificate"));
        if asks.and_then(Value::as_bool) == Some(true) && connection.is_of_mesh.is_none() {
            let text = format!(
                "the sidecar of {name} asks for a certificate on port {port}, and this proxy shows none"
            );
            return refused(text, format!("503: {name} refuses the connection, which is no mutual TLS"));
        }
        let arrival = self.at_endpoint(way, connection, chain, (address, port));
        let whose = format!("the sidecar of {name}");
        match authorization::decide(chain, &arrival, &whose, &side.listener.made_by) {
            Some(Decided { step, end }) => Arrived { step: Some(step), end },
            None => Arrived { step: None, end: None },
        }
    }

    /// Sidecar of the workload with an address, and its listener for a port: the connected one, or else the
    /// expected one.
    fn side(&self, address: &str, port: u64) -> Option<Side> {
        let key = self.world().workloads_at(address).next()?;
        let workload = self.world().workload(key)?.clone();
        let connected = self.connected(&workload);
        if connected.is_none() && workload.tls_mode != TlsMode::Istio {
            return None;
        }
        let proxy = connected.or_else(|| sidecar(&workload))?;
        let client = self.translator.connect(proxy);
        let listener = self.inbound_listener(&client, address, port)?;
        let name = format!("{}.{}", workload.key.name, workload.key.namespace);
        Some(Side { name, workload, listener })
    }

    /// Connected sidecar of a workload.
    fn connected(&self, workload: &Workload) -> Option<Proxy> {
        let is_own = |proxy: &&Arc<Proxy>| {
            proxy.kind == ProxyKind::Sidecar
                && proxy.name == workload.key.name
                && proxy.namespace == workload.key.namespace
                && proxy.cluster == workload.key.cluster
        };
        self.translator.proxies().values().find(is_own).map(|proxy| Proxy::clone(proxy))
    }

    /// Listener for connections to a port: one that binds it, or else the one for redirected connections.
    fn inbound_listener(&self, client: &Client, address: &str, port: u64) -> Option<Found> {
        let bound = [format!("{address}_{port}"), format!("0.0.0.0_{port}"), format!("::_{port}")];
        let named = |name: &str| self.named_of(client, ResourceType::Listener, name);
        let inbound = |found: &Found| text(&found.json, "/traffic_direction") == "INBOUND";
        bound.iter().filter_map(|name| named(name)).find(inbound).or_else(|| named(VIRTUAL_INBOUND))
    }

    /// PeerAuthentications that apply to a workload.
    fn policies(&self, workload: &Workload) -> Vec<String> {
        let all = self.snapshot().policies_on(&workload.key.namespace, &workload.labels);
        let is_of_peers = |policy: &&Origin| {
            policy.as_object().is_some_and(|from| from.object.kind == Kind::PeerAuthentication)
        };
        all.iter().filter(is_of_peers).map(ToString::to_string).collect()
    }
}

fn takes(listener: &Value, port: u64) -> Takes {
    let mut takes = Takes::default();
    for chain in chains_for_port(listener, port) {
        takes.tls |= terminates_tls(chain);
        takes.plaintext |= !is_for_tls(chain);
    }
    takes
}
