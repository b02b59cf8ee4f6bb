//! Envoy's choice of a proxy's listener and filter chain for a connection.

use super::authorization;
use super::chain::{Arriving, OTHER_ADDRESS, choose, is_for_tls, terminates_tls};
use super::{Found, LISTED, Next, Walk, Way, dropped, list, number, step, text};
use pilotfish_api::v1::{Dropped, Step, Verdict};
use pilotfish_model::{Hostname, LabelMap};
use pilotfish_proto::ResourceType;
use pilotfish_translate::{GatewaySelection, InterceptionMode};
use serde_json::Value;

/// Handling of a connection by a filter chain.
pub(super) enum Chosen {
    /// Reads HTTP, with this route configuration.
    Http(Found),
    /// Forwards bytes to one of these clusters, by weight.
    Clusters(Vec<(String, u64)>),
}

const VIRTUAL_OUTBOUND: &str = "virtualOutbound";
const HTTP: &str = "envoy.filters.network.http_connection_manager";
const TCP: &str = "envoy.filters.network.tcp_proxy";
/// Protocols that Envoy detects in plaintext HTTP.
const PLAIN_HTTP: &[&str] = &["http/1.1"];
/// ALPN of HTTP clients in TLS.
const HTTP_IN_TLS: &[&str] = &["h2", "http/1.1"];

impl Walk<'_> {
    /// Finds the listener that takes the connection.
    pub(super) fn listener(&self, way: &Way, steps: &mut Vec<Step>) -> Next<Found> {
        let mut listeners = self.all(ResourceType::Listener);
        listeners.retain(takes_connections_out);
        let at_port = |listener: &&Found| {
            number(&listener.json, "/address/socket_address/port_value") == u64::from(way.port)
        };
        let own = |listener: &&Found| {
            let address = text(&listener.json, "/address/socket_address/address");
            at_port(listener) && way.addresses.iter().any(|own| own == address)
        };
        let any = |listener: &&Found| {
            let address = text(&listener.json, "/address/socket_address/address");
            at_port(listener) && (matches!(address, "0.0.0.0" | "::") || self.is_router())
        };
        // Without interception, applications connect to the proxy itself.
        let is_direct = self.proxy.interception == InterceptionMode::None;
        let direct = |listener: &&Found| {
            let address = text(&listener.json, "/address/socket_address/address");
            is_direct && at_port(listener) && matches!(address, "127.0.0.1" | "::1")
        };
        let unknown = |listener: &&Found| &*listener.name == VIRTUAL_OUTBOUND;
        let first = |which: &dyn Fn(&&Found) -> bool| listeners.iter().position(|listener| which(&listener));
        let found =
            first(&own).or_else(|| first(&any)).or_else(|| first(&direct)).or_else(|| first(&unknown));
        let Some(found) = found else {
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
        let listener = listeners.swap_remove(found);
        let mut at = step("listener", Verdict::Ok, listener.name.to_string(), "");
        at.text = if &*listener.name == VIRTUAL_OUTBOUND {
            at.verdict = Verdict::Doubtful;
            "no listener is for this address, so it takes the way of unknown traffic".to_owned()
        } else {
            format!("{}:{}", text(&listener.json, "/address/socket_address/address"), way.port)
        };
        // A listener of a whole port is made by all services of that port.
        at.decided_by = listener.made_by.iter().take(3).cloned().collect();
        steps.push(at);
        Next::On(listener)
    }

    /// Client transport of this gateway if the request does not state it: TLS if the listener accepts nothing
    /// else. `None` for other proxies.
    pub(super) fn presumed_tls(&self, listener: &Found) -> Option<bool> {
        let mut chains = list(&listener.json, "/filter_chains").peekable();
        (self.is_router() && chains.peek().is_some()).then(|| chains.all(is_for_tls))
    }

    /// Gateways with a server on a port that this proxy lacks.
    fn other_gateways(&self, port: u32) -> Vec<Dropped> {
        let considered = self.snapshot().gateways_considered(self.proxy);
        let others = considered.all.iter().filter(|gateway| !gateway.has && gateway.ports.contains(&port));
        let told = others.map(|gateway| {
            let names: Vec<String> = gateway.objects.iter().map(ToString::to_string).collect();
            dropped(names.join(", "), unselected(&gateway.selection, &considered.labels))
        });
        told.take(LISTED).collect()
    }

    /// Finds the filter chain that takes the connection, and its action.
    pub(super) fn chain(&self, way: &Way, listener: &Found, steps: &mut Vec<Step>) -> Next<Chosen> {
        let (chain, others) = choose(&listener.json, &arriving(way));
        let Some(chain) = chain else {
            let mut ends = step("filter chain", Verdict::Ends, "", "no filter chain matches the connection");
            ends.others = others;
            steps.push(ends);
            return Next::End("the connection is closed: no filter chain matches it".to_owned());
        };
        let mut at = step("filter chain", Verdict::Ok, text(chain, "/name"), "");
        let result = match misunderstood(way, chain) {
            Some(text) => {
                at.verdict = Verdict::Ends;
                at.text = text.to_owned();
                Next::End(format!("the connection fails: {text}"))
            }
            None => self.filter(way, chain, &mut at),
        };
        // Chains for other addresses are irrelevant.
        at.others = others.into_iter().filter(|other| other.why != OTHER_ADDRESS).collect();
        steps.push(at);
        match self.policies_of_gateway(way, listener, chain, steps) {
            Some(outcome) => Next::End(outcome),
            None => result,
        }
    }

    /// Evaluates the policies of a gateway for a request from outside; returns the outcome if they deny it.
    /// Sidecars have none for outbound requests.
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

    /// Action of a chain's last filter.
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

/// Reason why a gateway does not select a router with these labels.
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

/// Cluster of an action, or its weighted clusters.
pub(super) fn clusters_of(config: &Value) -> Vec<(String, u64)> {
    match text(config, "/cluster") {
        "" => list(config, "/weighted_clusters/clusters")
            .map(|cluster| (text(cluster, "/name").to_owned(), number(cluster, "/weight")))
            .filter(|(_, weight)| *weight > 0)
            .collect(),
        cluster => vec![(cluster.to_owned(), 100)],
    }
}

/// True if a listener takes outbound TCP connections, unlike those for inbound traffic or UDP.
fn takes_connections_out(listener: &Found) -> bool {
    text(&listener.json, "/traffic_direction") != "INBOUND"
        && text(&listener.json, "/address/socket_address/protocol") != "UDP"
}

/// Connection of the application or the client, with the properties that a listener matches on.
fn arriving(way: &Way) -> Arriving<'_> {
    let host = way.request.host.as_str();
    let own = way.service.iter().map(|service| service.hostname.as_str());
    Arriving {
        port: u64::from(way.port),
        addresses: way.addresses.iter().filter_map(|own| own.parse().ok()).collect(),
        tls: way.is_tls(),
        server_names: own.chain([host]).collect(),
        alpn: match (way.is_http(), way.is_tls()) {
            (false, _) => Vec::new(),
            (true, false) => PLAIN_HTTP.to_vec(),
            (true, true) => HTTP_IN_TLS.to_vec(),
        },
    }
}

/// Reason why the two sides cannot communicate, if only one speaks TLS.
fn misunderstood(way: &Way, chain: &Value) -> Option<&'static str> {
    let reads_http = list(chain, "/filters").any(|filter| text(filter, "/name") == HTTP);
    match (way.is_tls(), terminates_tls(chain)) {
        (true, false) if reads_http => Some("the client speaks TLS, and the proxy reads HTTP on this port"),
        (false, true) => Some("the client speaks plaintext, and the proxy reads TLS on this port"),
        _ => None,
    }
}
