//! Envoy's choice of a filter chain for a connection.
//!
//! Envoy checks one criterion after the other: port, address, server name, transport, application protocol.
//! For each it takes the most specific matching value and keeps only chains with that value for the next
//! criterion: it does not backtrack.

use super::{dropped, list, number, text};
use pilotfish_api::v1::Dropped;
use serde_json::Value;
use std::net::IpAddr;

/// Properties of a connection that a listener matches on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arriving<'a> {
    pub(super) port: u64,
    /// Destination addresses, any of which is possible.
    pub(super) addresses: Vec<IpAddr>,
    /// True if the connection uses TLS.
    pub(super) tls: bool,
    /// Possible server names of TLS.
    pub(super) server_names: Vec<&'a str>,
    /// Application protocols, in order.
    pub(super) alpn: Vec<&'a str>,
}

/// Reason for chains with other addresses.
pub(super) const OTHER_ADDRESS: &str = "it is for other addresses";

/// Chain that takes a connection; `None` if the connection is closed. Also returns the other chains, with the
/// reasons why they do not match.
pub(super) fn choose<'a>(listener: &'a Value, arriving: &Arriving<'_>) -> (Option<&'a Value>, Vec<Dropped>) {
    let mut left: Vec<&Value> = list(listener, "/filter_chains").collect();
    let mut others = Vec::new();
    let criteria: [fn(&Value, &Arriving<'_>) -> Fit; 5] = [port, address, server_name, transport, protocol];
    for criterion in criteria {
        narrow(&mut left, &mut others, |chain| criterion(&chain["filter_chain_match"], arriving));
    }
    // Envoy rejects listeners in which several remain.
    let chosen = left.first().copied();
    (chosen.or_else(|| listener.get("default_filter_chain")), others)
}

/// Chains for a port: its own, or else those for all ports.
pub(super) fn chains_for_port(listener: &Value, at: u64) -> Vec<&Value> {
    let mut left = list(listener, "/filter_chains").collect();
    let arriving = Arriving { port: at, ..Arriving::default() };
    narrow(&mut left, &mut Vec::new(), |chain| port(&chain["filter_chain_match"], &arriving));
    left
}

/// True if a chain is for TLS only: it terminates TLS, or matches on a server name or the TLS transport.
pub(super) fn is_for_tls(chain: &Value) -> bool {
    terminates_tls(chain)
        || list(chain, "/filter_chain_match/server_names").next().is_some()
        || text(chain, "/filter_chain_match/transport_protocol") == "tls"
}

pub(super) fn terminates_tls(chain: &Value) -> bool {
    text(chain, "/transport_socket/name").contains("tls")
}

/// Specificity of a matching value, 0 for an unset one; or the reason of a mismatch.
type Fit = Result<usize, String>;

/// Keeps the chains with the most specific matching value.
fn narrow<'a>(left: &mut Vec<&'a Value>, others: &mut Vec<Dropped>, fit: impl Fn(&'a Value) -> Fit) {
    let fits: Vec<(&Value, Fit)> = left.drain(..).map(|chain| (chain, fit(chain))).collect();
    let best = fits.iter().filter_map(|(_, fit)| fit.as_ref().ok()).max().copied();
    for (chain, fit) in fits {
        match fit {
            Ok(rank) if Some(rank) == best => left.push(chain),
            Ok(_) => others.push(dropped(named(chain), "a more specific chain takes it")),
            Err(why) => others.push(dropped(named(chain), why)),
        }
    }
}

fn port(wanted: &Value, arriving: &Arriving<'_>) -> Fit {
    match number(wanted, "/destination_port") {
        0 => Ok(0),
        port if port == arriving.port => Ok(1),
        port => Err(format!("it is for port {port}")),
    }
}

fn address(wanted: &Value, arriving: &Arriving<'_>) -> Fit {
    let ranges = list(wanted, "/prefix_ranges").filter_map(|range| {
        Some((text(range, "/address_prefix").parse().ok()?, number(range, "/prefix_len")))
    });
    let ranges: Vec<(IpAddr, u64)> = ranges.collect();
    let has = |(prefix, length): &&(IpAddr, u64)| {
        arriving.addresses.iter().any(|own| covers(*prefix, *length, *own))
    };
    match ranges.iter().filter(has).map(|(_, length)| *length).max() {
        Some(length) => Ok(usize::try_from(length).unwrap_or_default()),
        // Matches all addresses.
        None if ranges.is_empty() => Ok(0),
        None => Err(OTHER_ADDRESS.to_owned()),
    }
}

fn server_name(wanted: &Value, arriving: &Arriving<'_>) -> Fit {
    let names: Vec<&str> = list(wanted, "/server_names").filter_map(Value::as_str).collect();
    if names.is_empty() {
        return Ok(0);
    }
    let rank = |name: &&str| {
        let suffix = name.strip_prefix('*');
        arriving.server_names.iter().find_map(|own| match suffix {
            None => own.eq_ignore_ascii_case(name).then_some(usize::MAX),
            Some(suffix) => {
                own.to_ascii_lowercase().ends_with(&suffix.to_ascii_lowercase()).then_some(name.len())
            }
        })
    };
    let best = names.iter().filter_map(rank).max().filter(|_| arriving.tls);
    best.ok_or_else(|| format!("it is for TLS to {}", names.join(", ")))
}

fn transport(wanted: &Value, arriving: &Arriving<'_>) -> Fit {
    let own = if arriving.tls { "tls" } else { "raw_buffer" };
    match text(wanted, "/transport_protocol") {
        "" => Ok(0),
        transport if transport == own => Ok(1),
        transport => Err(format!("it is for {transport}, and this connection is {own}")),
    }
}

fn protocol(wanted: &Value, arriving: &Arriving<'_>) -> Fit {
    let protocols: Vec<&str> = list(wanted, "/application_protocols").filter_map(Value::as_str).collect();
    if protocols.is_empty() {
        return Ok(0);
    }
    let place = arriving.alpn.iter().position(|own| protocols.contains(own));
    // Protocols that come first in the client's list win.
    let rank = place.map(|place| arriving.alpn.len() - place);
    rank.ok_or_else(|| format!("it is for {}", protocols.join(", ")))
}

/// Readable name of a chain.
fn named(chain: &Value) -> String {
    match text(chain, "/name") {
        "" => "another filter chain".to_owned(),
        name => name.to_owned(),
    }
}

/// True if an address is in the range.
pub(super) fn covers(prefix: IpAddr, length: u64, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((a, family), (b, other)) = (bits(prefix), bits(address));
    let length = u32::try_from(length).unwrap_or(128).min(128);
    family == other && (length == 0 || (a ^ b).leading_zeros() >= length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chosen(chains: &[(&str, Value)], arriving: &Arriving<'_>) -> String {
        let chains: Vec<Value> =
            chains.iter().map(|(name, wanted)| json!({"name": name, "filter_chain_match": wanted})).collect();
        let listener = json!({"filter_chains": chains});
        choose(&listener, arriving).0.map(|chain| text(chain, "/name").to_owned()).unwrap_or_default()
    }

    fn tls<'a>(names: &[&'a str]) -> Arriving<'a> {
        Arriving { port: 443, tls: true, server_names: names.to_vec(), ..Arriving::default() }
    }

    #[test]
    fn a_whole_server_name_goes_before_the_longest_ending() {
        let chains = [
            ("all", json!({})),
            ("wide", json!({"server_names": ["*.com"]})),
            ("near", json!({"server_names": ["*.example.com"]})),
            ("own", json!({"server_names": ["other.com", "a.example.com"]})),
        ];
        for (name, expected) in [
            ("a.example.com", "own"),
            ("A.Example.com", "own"),
            ("b.example.com", "near"),
            ("x.com", "wide"),
            ("y.org", "all"),
        ] {
            assert_eq!(chosen(&chains, &tls(&[name])), expected, "{name}");
        }
        assert_eq!(chosen(&chains, &Arriving::default()), "all", "without TLS there is no name");
    }

    #[test]
    fn a_criterion_that_was_decided_is_not_tried_again() {
        let at =
            |last: u8| Arriving { port: 80, addresses: vec![[10, 0, 0, last].into()], ..Arriving::default() };
        let range = |length: u64| json!([{"address_prefix": "10.0.0.1", "prefix_len": length}]);
        let chains = [
            ("address", json!({"prefix_ranges": range(32), "transport_protocol": "tls"})),
            ("network", json!({"prefix_ranges": range(24)})),
        ];
        assert_eq!(chosen(&chains, &at(2)), "network");
        assert_eq!(chosen(&chains, &at(1)), "", "the address is decided before the transport is looked at");
        let chains =
            [("port", json!({"destination_port": 80, "transport_protocol": "tls"})), ("all", json!({}))];
        assert_eq!(chosen(&chains, &at(1)), "", "so is the port");
        let mut listener = json!({"filter_chains": [{"filter_chain_match": chains[0].1}]});
        listener["default_filter_chain"] = json!({"name": "default"});
        let (chain, others) = choose(&listener, &at(1));
        assert_eq!((text(chain.unwrap(), "/name"), others.len()), ("default", 1));
    }

    #[test]
    fn the_first_protocol_that_has_a_chain_is_taken() {
        let chains = [
            ("http", json!({"application_protocols": ["http/1.1", "h2c"]})),
            ("mesh", json!({"application_protocols": ["istio", "istio-http/1.1"]})),
            ("bytes", json!({})),
        ];
        for (alpn, expected) in [
            (&["http/1.1"][..], "http"),
            (&["istio-http/1.1", "http/1.1"], "mesh"),
            (&["h2", "http/1.1"], "http"),
            (&["h2"], "bytes"),
            (&[], "bytes"),
        ] {
            assert_eq!(
                chosen(&chains, &Arriving { alpn: alpn.to_vec(), ..Arriving::default() }),
                expected,
                "{alpn:?}"
            );
        }
    }
}
