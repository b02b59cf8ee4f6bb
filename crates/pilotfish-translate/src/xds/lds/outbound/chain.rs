//! A filter chain of an outbound listener, before it is known which others it shares the listener with.

use crate::envoy::dubbo::{self, Call};
use crate::envoy::filters::{PLAINTEXT_HTTP, PLAINTEXT_HTTP10, RAW_BUFFER};
use pilotfish_model::Origin;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::{CidrRange, Metadata};
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What a chain takes: whether HTTP only, the server names, the addresses.
pub(super) type Conditions = (bool, BTreeSet<String>, BTreeSet<String>);

/// A filter chain, and what it takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chain {
    /// Whether it takes clear-text HTTP only.
    pub(super) http: bool,
    /// The addresses and ranges that it is for; empty for all.
    pub(super) ranges: Vec<String>,
    /// The server names that it is for; empty for all.
    pub(super) server_names: Vec<String>,
    pub(super) filters: Vec<Filter>,
    /// Where calls of Dubbo go, by their interface: then this is what the filters do, after those that are there.
    pub(super) calls: Vec<Call>,
    /// The VirtualService that it comes from.
    pub(super) metadata: Option<Metadata>,
    /// What made it, besides the service.
    pub(super) provenance: Vec<Origin>,
}

/// How long a TLS handshake, or the wait for the first bytes, may take.
const CONNECT_TIMEOUT_SECONDS: i64 = 15;

impl Chain {
    /// What it takes. Envoy refuses two chains for exactly the same connections.
    pub(super) fn conditions(&self) -> Conditions {
        let set = |list: &[String]| list.iter().cloned().collect();
        (self.http, set(&self.server_names), set(&self.ranges))
    }

    /// Whether it matches SNI, which needs the TLS inspector.
    pub(super) fn needs_sni(&self) -> bool {
        !self.server_names.is_empty()
    }

    /// The chain as Envoy has it. `unknown` is the cluster for calls of Dubbo that no service takes.
    pub(super) fn build(mut self, http10: bool, unknown: Option<&str>) -> FilterChain {
        if !self.calls.is_empty() {
            let calls = std::mem::take(&mut self.calls);
            self.filters.push(dubbo::proxy("outbound_dubbo", calls, unknown));
        }
        FilterChain {
            filter_chain_match: self.matches(http10),
            filters: self.filters,
            metadata: self.metadata,
            transport_socket_connect_timeout: Some(Duration { seconds: CONNECT_TIMEOUT_SECONDS, nanos: 0 }),
            ..Default::default()
        }
    }

    fn matches(&self, http10: bool) -> Option<FilterChainMatch> {
        let mut found = FilterChainMatch::default();
        // A name that stands for every host is no condition.
        if !self.server_names.iter().any(|name| name == "*") {
            found.server_names.clone_from(&self.server_names);
            found.server_names.sort();
            found.server_names.dedup();
        }
        let ranges: BTreeSet<&String> = self.ranges.iter().collect();
        found.prefix_ranges = ranges.into_iter().filter_map(|text| range(text)).collect();
        if self.http {
            let alpn: &[&str] = if http10 { &PLAINTEXT_HTTP10 } else { &PLAINTEXT_HTTP };
            found.application_protocols = alpn.iter().map(|name| (*name).to_owned()).collect();
            RAW_BUFFER.clone_into(&mut found.transport_protocol);
        }
        (found != FilterChainMatch::default()).then_some(found)
    }
}

/// An address or range; `None` for one that covers everything or is none.
fn range(text: &str) -> Option<CidrRange> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let ip: IpAddr = address.parse().ok()?;
    if ip.is_unspecified() && length.is_none_or(|length| length == 0) {
        return None;
    }
    let whole = if ip.is_ipv4() { 32 } else { 128 };
    Some(CidrRange { address_prefix: address.to_owned(), prefix_len: Some(length.unwrap_or(whole)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let table = [
            ("10.0.0.1", Some(("10.0.0.1", 32))),
            ("10.0.0.0/8", Some(("10.0.0.0", 8))),
            ("2001:db8::1", Some(("2001:db8::1", 128))),
            ("0.0.0.0", None),
            ("0.0.0.0/0", None),
            ("host", None),
        ];
        for (text, want) in table {
            let got = range(text);
            let got = got.as_ref().map(|r| (r.address_prefix.as_str(), r.prefix_len.unwrap_or(0)));
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn a_name_for_every_host_is_no_condition() {
        let chain = Chain { server_names: vec!["a.com".into(), "*".into()], ..Chain::default() };
        assert_eq!(chain.matches(false), None);
    }
}
