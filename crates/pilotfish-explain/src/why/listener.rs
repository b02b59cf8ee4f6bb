//! Which listener and filter chain of a proxy take a connection, as Envoy chooses them.

use super::authorization;
use super::{Found, LISTED, Next, Walk, Way, dropped, list, number, step, text};
use pilotfish_api::v1::{Dropped, Step, Verdict};
use pilotfish_model::{Hostname, LabelMap};
use pilotfish_proto::ResourceType;
use pilotfish_translate::{GatewaySelection, InterceptionMode};
use serde_json::Value;
use std::net::IpAddr;

/// What a filter chain does with a connection.
pub(super) enum Chosen {
    /// It reads HTTP, with these routes.
    Http(Found),
    /// It passes bytes on to one of these clusters, by weight.
    Clusters(Vec<(String, u64)>),
}

const VIRTUAL_OUTBOUND: &str = "virtualOutbound";
const VIRTUAL_INBOUND: &str = "virtualInbound";
const HTTP: &str = "envoy.filters.network.http_connection_manager";
const TCP: &str = "envoy.filters.network.tcp_proxy";

impl Walk<'_> {
    pub(super) fn listener(&self, way: &Way, steps: &mut Vec<Step>) -> Next<Chosen> {
        let all = self.all(ResourceType::Listener);
        let at_port = |listener: &&Found| {
            number(&listener.json, "/address/socket_address/port_value") == u64::from(way.port)
        };
        let listeners: Vec<&Found> =
            all.iter().filter(|listener| &*listener.name != VIRTUAL_INBOUND).collect();
        let own = |listener: &&Found| {
            let address = text(&listener.json, "/address/socket_address/address");
            at_port(listener) && way.addresses.iter().any(|own| own == address)
        };
        let any = |listener: &&Found| {
            let address = text(&listener.json, "/address/socket_address/address");
            at_port(listener) && (matches!(address, "0.0.0.0" | "::") || self.is_router())
        };
        // Without interception, programs send to the proxy itself.
        let is_direct = self.proxy.interception == InterceptionMode::None;
        let direct = |listener: &&Found| {
            let address = text(&listener.json, "/address/socket_address/address");
            is_direct && at_port(listener) && matches!(address, "127.0.0.1" | "::1")
        };
        let first = |which: &dyn Fn(&&Found) -> bool| listeners.iter().copied().find(which);
        let found = first(&own).or_else(|| first(&any)).or_else(|| first(&direct));
        let fallback = || listeners.iter().copied().find(|listener| &*listener.name == VIRTUAL_OUTBOUND);
        let Some(listener) = found.or_else(fallback) else {
            let ports: Vec<String> = listeners
                .iter()
                .map(|listener| number(&listener.json, "/address/socket_address/port_value").to_string())
                .collect();
            let known = if ports.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", ports.join(", "))
            };
            let text = format!("no listener takes connections on port {}; {known}", way.port);
            let mut ends = step("listener", Verdict::Ends, "", text);
            if self.is_router() {
                ends.others = self.other_gateways(way.port);
            }
            steps.push(ends);
            return Next::End(format!("the connection is refused: nothing listens on port {}", way.port));
        };
        let mut at = step("listener", Verdict::Ok, listener.name.to_string(), "");
        at.text = if &*listener.name == VIRTUAL_OUTBOUND {
            at.verdict = Verdict::Doubtful;
            "no listener is for this address, so it takes the way of unknown traffic".to_owned()
        } else {
            format!("{}:{}", text(&listener.json, "/address/socket_address/address"), way.port)
        };
        // A listener for all of a port is made by all services of that port.
        at.decided_by = listener.made_by.iter().take(3).cloned().collect();
        steps.push(at);
        self.chain(way, listener, steps)
    }

    /// The gateways with a server on a port that this proxy does not have.
    fn other_gateways(&self, port: u32) -> Vec<Dropped> {
        let considered = self.snapshot().gateways_considered(self.proxy);
        let others = considered.all.iter().filter(|gateway| !gateway.has && gateway.ports.contains(&port));
        let told = others.map(|gateway| {
            let names: Vec<String> = gateway.objects.iter().map(ToString::to_string).collect();
            dropped(names.join(", "), unselected(&gateway.selection, &considered.labels))
        });
        told.take(LISTED).collect()
    }

    fn chain(&self, way: &Way, listener: &Found, steps: &mut Vec<Step>) -> Next<Chosen> {
        let mut others: Vec<Dropped> = Vec::new();
        let mut best: Option<(Rank, &Value)> = None;
        for chain in list(&listener.json, "/filter_chains") {
            match rank(chain, way) {
                Ok(rank) if best.as_ref().is_none_or(|(held, _)| rank > *held) => best = Some((rank, chain)),
                Ok(_) => others.push(dropped(chain_name(chain), "a more specific chain takes it")),
                Err(why) => others.push(dropped(chain_name(chain), why)),
            }
        }
        let default = listener.json.get("default_filter_chain");
        let Some(chain) = best.map(|(_, chain)| chain).or(default) else {
            let mut ends = step("filter chain", Verdict::Ends, "", "no filter chain matches the connection");
            ends.others = others;
            steps.push(ends);
            return Next::End("the connection is closed: no filter chain matches it".to_owned());
        };
        let mut at = step("filter chain", Verdict::Ok, text(chain, "/name"), "");
        let result = self.filter(way, chain, &mut at);
        // Chains of other addresses say nothing.
        at.others = others.into_iter().filter(|other| other.why != OTHER_ADDRESS).collect();
        steps.push(at);
        match self.policies_of_gateway(way, listener, chain, steps) {
            Some(outcome) => Next::End(outcome),
            None => result,
        }
    }

    /// What the policies of a gateway say of a request from outside; the outcome where they refuse it. Sidecars have none for what goes out.
    fn policies_of_gateway(
        &self,
        way: &Way,
        listener: &Found,
        chain: &Value,
        steps: &mut Vec<Step>,
    ) -> Option<String> {
        if !self.is_router() {
            return None;
        }
        let port = number(&listener.json, "/address/socket_address/port_value");
        let arrival = self.at_gateway(way, chain, port);
        let decided = authorization::decide(chain, &arrival, "this gateway", &listener.made_by)?;
        steps.push(decided.step);
        decided.end
    }

    /// What the last filter of a chain does.
    fn filter(&self, way: &Way, chain: &Value, at: &mut Step) -> Next<Chosen> {
        for filter in list(chain, "/filters") {
            match text(filter, "/name") {
                HTTP => {
                    let config = &filter["typed_config"];
                    let name = text(config, "/rds/route_config_name");
                    if name.is_empty() {
                        at.text = "reads HTTP, with routes of its own".to_owned();
                        let json = config.get("route_config").cloned().unwrap_or_default();
                        return Next::On(Chosen::Http(Found {
                            name: "inline".into(),
                            json,
                            made_by: Vec::new(),
                        }));
                    }
                    at.text = format!("reads HTTP, with routes {name}");
                    return match self.named(ResourceType::Route, name) {
                        Some(routes) => Next::On(Chosen::Http(routes)),
                        None => {
                            at.verdict = Verdict::Ends;
                            Next::End(format!("404: the proxy has no routes {name}"))
                        }
                    };
                }
                TCP => {
                    let config = &filter["typed_config"];
                    at.text = "passes bytes on, without looking at requests".to_owned();
                    if way.is_http() && way.request.path != "/" {
                        at.verdict = Verdict::Doubtful;
                    }
                    return Next::On(Chosen::Clusters(clusters_of(config)));
                }
                _ => {}
            }
        }
        at.verdict = Verdict::Ends;
        at.text = "no filter passes the connection on".to_owned();
        Next::End("the connection is closed: no filter passes it on".to_owned())
    }
}

/// Why a gateway is not for a router with these labels.
fn unselected(selection: &GatewaySelection, labels: &LabelMap) -> String {
    match selection {
        GatewaySelection::Labels(wanted) => {
            let Some((key, value)) =
                wanted.iter().find(|(key, value)| labels.get(key) != Some(value.as_str()))
            else {
                return "it is not for this proxy".to_owned();
            };
            let own = match labels.get(key) {
                Some(own) => format!("its label is {own}"),
                None => "it has no such label".to_owned(),
            };
            format!("its selector wants {key}={value} of this proxy, and {own}")
        }
        GatewaySelection::Services(hosts) if hosts.is_empty() => {
            "no Service is named by its addresses".to_owned()
        }
        GatewaySelection::Services(hosts) => {
            let hosts: Vec<&str> = hosts.iter().map(Hostname::as_str).collect();
            format!("it is for those that {} leads to, and this proxy is none of them", hosts.join(", "))
        }
    }
}

/// The cluster of an action, or the clusters by weight.
pub(super) fn clusters_of(config: &Value) -> Vec<(String, u64)> {
    match text(config, "/cluster") {
        "" => list(config, "/weighted_clusters/clusters")
            .map(|cluster| (text(cluster, "/name").to_owned(), number(cluster, "/weight")))
            .filter(|(_, weight)| *weight > 0)
            .collect(),
        cluster => vec![(cluster.to_owned(), 100)],
    }
}

/// A chain that is not taken, in words.
fn chain_name(chain: &Value) -> String {
    match text(chain, "/name") {
        "" => "another filter chain".to_owned(),
        name => name.to_owned(),
    }
}

/// How specific the match of a chain is, in the order in which Envoy compares: port, address, server name, transport, application protocol.
type Rank = (bool, usize, usize, bool, bool);

const OTHER_ADDRESS: &str = "it is for other addresses";

fn rank(chain: &Value, way: &Way) -> Result<Rank, String> {
    let Some(wanted) = chain.get("filter_chain_match") else { return Ok(Rank::default()) };
    let port = number(wanted, "/destination_port");
    if port != 0 && port != u64::from(way.port) {
        return Err(format!("it is for port {port}"));
    }
    let ranges: Vec<(IpAddr, u64)> = list(wanted, "/prefix_ranges")
        .filter_map(|range| {
            Some((text(range, "/address_prefix").parse().ok()?, number(range, "/prefix_len")))
        })
        .collect();
    let covers = |(prefix, length): &&(IpAddr, u64)| {
        way.addresses.iter().filter_map(|own| own.parse().ok()).any(|own| covers(*prefix, *length, own))
    };
    let length = match ranges.iter().filter(covers).map(|(_, length)| *length).max() {
        Some(length) => usize::try_from(length).unwrap_or(0) + 1,
        None if ranges.is_empty() => 0,
        None => return Err(OTHER_ADDRESS.to_owned()),
    };
    let names: Vec<&str> = list(wanted, "/server_names").filter_map(Value::as_str).collect();
    let host = &way.request.host;
    let own_names: Vec<&str> =
        way.service.iter().map(|service| service.hostname.as_str()).chain([host.as_str()]).collect();
    let is_named = |name: &&&str| {
        own_names
            .iter()
            .any(|own| *own == **name || name.strip_prefix('*').is_some_and(|suffix| own.ends_with(suffix)))
    };
    let server = match names.iter().filter(is_named).map(|name| name.len()).max() {
        Some(length) if way.is_tls() => length,
        None if names.is_empty() => 0,
        _ => return Err(format!("it is for TLS to {}", names.join(", "))),
    };
    let transport = text(wanted, "/transport_protocol");
    let own_transport = if way.is_tls() { "tls" } else { "raw_buffer" };
    if !transport.is_empty() && transport != own_transport {
        return Err(format!("it is for {transport}, and this connection is {own_transport}"));
    }
    let protocols: Vec<&str> = list(wanted, "/application_protocols").filter_map(Value::as_str).collect();
    let is_http = protocols.iter().any(|protocol| matches!(*protocol, "http/1.1" | "h2c" | "http/1.0"));
    let takes = protocols.is_empty() || is_http && way.is_http();
    if !takes {
        return Err(format!("it is for {}", protocols.join(", ")));
    }
    Ok((port != 0, length, server, !transport.is_empty(), !protocols.is_empty()))
}

/// Whether a range of addresses has an address.
pub(super) fn covers(prefix: IpAddr, length: u64, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((a, family), (b, other)) = (bits(prefix), bits(address));
    let length = u32::try_from(length).unwrap_or(128).min(128);
    family == other && (length == 0 || (a ^ b).leading_zeros() >= length)
}
