//! Listener filters that detect the properties by which inbound filter chains are selected.

use crate::envoy::filters::{self, PLAINTEXT_HTTP10, TLS};
use crate::proxy::InterceptionMode;
use pilotfish_proto::envoy::config::listener::v3::listener_filter_chain_match_predicate::{MatchSet, Rule};
use pilotfish_proto::envoy::config::listener::v3::{
    FilterChain, ListenerFilter, ListenerFilterChainMatchPredicate as Predicate,
};
use pilotfish_proto::envoy::r#type::v3::Int32Range;
use std::collections::BTreeMap;

/// Inspectors that a port needs.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    tls: bool,
    http: bool,
}

/// The listener filters for these chains.
pub(super) fn of(chains: &[FilterChain], interception: InterceptionMode, bound: bool) -> Vec<ListenerFilter> {
    let mut needs: BTreeMap<u32, Needs> = BTreeMap::new();
    for found in chains.iter().filter_map(|chain| chain.filter_chain_match.as_ref()) {
        let at = needs.entry(found.destination_port.unwrap_or(0)).or_default();
        at.tls |= found.transport_protocol == TLS;
        at.http |= found.application_protocols.iter().any(|p| PLAINTEXT_HTTP10.contains(&p.as_str()));
    }
    let mut out = Vec::with_capacity(4);
    if !bound {
        out.push(filters::original_destination());
        if interception == InterceptionMode::Tproxy {
            out.push(filters::original_source());
        }
    }
    if needs.values().any(|needs| needs.tls) {
        let disabled = without_tls(&needs);
        out.push(ListenerFilter { filter_disabled: disabled, ..filters::tls_inspector() });
    }
    if needs.values().any(|needs| needs.http) {
        let disabled = any_of(&ports(&needs, |_, needs| !needs.http));
        out.push(ListenerFilter { filter_disabled: disabled, ..filters::http_inspector() });
    }
    out
}

/// Returns the predicate for ports where the TLS inspector is disabled. If unknown ports need the inspector,
/// the predicate lists single ports; otherwise it is the negation of a list.
fn without_tls(needs: &BTreeMap<u32, Needs>) -> Option<Predicate> {
    let by_default = needs.get(&0).is_some_and(|needs| needs.tls);
    let listed = any_of(&ports(needs, |port, needs| port != 0 && needs.tls != by_default))?;
    Some(if by_default { listed } else { Predicate { rule: Some(Rule::NotMatch(Box::new(listed))) } })
}

fn ports(needs: &BTreeMap<u32, Needs>, keep: impl Fn(u32, &Needs) -> bool) -> Vec<u32> {
    needs.iter().filter(|(port, needs)| keep(**port, needs)).map(|(port, _)| *port).collect()
}

fn any_of(ports: &[u32]) -> Option<Predicate> {
    let range = |port: &u32| {
        let start = i32::try_from(*port).ok()?;
        Some(Predicate { rule: Some(Rule::DestinationPortRange(Int32Range { start, end: start + 1 })) })
    };
    let mut rules: Vec<Predicate> = ports.iter().filter_map(range).collect();
    match rules.len() {
        0 | 1 => rules.pop(),
        _ => Some(Predicate { rule: Some(Rule::OrMatch(MatchSet { rules })) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::listener::v3::FilterChainMatch;

    fn chain(port: Option<u32>, transport: &str, alpn: &[&str]) -> FilterChain {
        let found = FilterChainMatch {
            destination_port: port,
            transport_protocol: transport.to_owned(),
            application_protocols: alpn.iter().map(|p| (*p).to_owned()).collect(),
            ..Default::default()
        };
        FilterChain { filter_chain_match: Some(found), ..Default::default() }
    }

    #[test]
    fn ports_that_need_no_inspector_are_taken_out() {
        let chains = [chain(None, TLS, &[]), chain(Some(80), TLS, &[]), chain(Some(90), "raw_buffer", &[])];
        let filters = of(&chains, InterceptionMode::Redirect, false);
        let names: Vec<&str> = filters.iter().map(|f| f.name.rsplit('.').next().unwrap()).collect();
        assert_eq!(names, ["original_dst", "tls_inspector"]);
        let want = Some(Rule::DestinationPortRange(Int32Range { start: 90, end: 91 }));
        assert_eq!(filters[1].filter_disabled.clone().unwrap().rule, want);
    }

    #[test]
    fn ports_that_alone_need_an_inspector_are_taken_in() {
        let chains = [chain(None, "raw_buffer", &[]), chain(Some(80), TLS, &["h2c"])];
        let filters = of(&chains, InterceptionMode::Redirect, true);
        let [tls, http] = filters.as_slice() else { panic!("{filters:?}") };
        let rule = |filter: &ListenerFilter| filter.filter_disabled.clone().unwrap().rule.unwrap();
        let Rule::NotMatch(inner) = rule(tls) else { panic!("{tls:?}") };
        assert_eq!(inner.rule, Some(Rule::DestinationPortRange(Int32Range { start: 80, end: 81 })));
        // For HTTP the ports without need are listed, unknown ones as port 0.
        assert_eq!(rule(http), Rule::DestinationPortRange(Int32Range { start: 0, end: 1 }));
    }
}
