//! Filter chains of one listener that would match the same connections. Envoy rejects a listener with such
//! chains as a whole; here the first one takes precedence, and a later one keeps the conditions that only it
//! has.

use crate::engine::Refusal;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::core::v3::CidrRange;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch};
use prost::Message;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// One condition of a chain, in full: the conditions that are no lists, address range, protocol, server name.
type Key = (Vec<u8>, String, String, String);

/// The most server names times address ranges of a chain (limit `chain-conditions`). A chain with more is
/// left out.
pub(crate) const MAX_CHAIN_CONDITIONS: usize = 100_000;

/// Returns the chains of a listener without the conditions that earlier ones match, and refusals for chains
/// with too many conditions. Each chain is given with the objects that it comes from.
pub(super) fn first_wins(
    chains: impl IntoIterator<Item = (FilterChain, Vec<Origin>)>,
) -> (Vec<FilterChain>, Vec<Refusal>) {
    let (mut taken, mut kept, mut refused) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (mut chain, objects) in chains {
        let is_left = match &mut chain.filter_chain_match {
            None => true,
            Some(condition) if conditions(condition) > MAX_CHAIN_CONDITIONS => {
                refused.extend(objects.into_iter().map(refusal));
                false
            }
            Some(condition) => keep_new(condition, &mut taken),
        };
        if is_left {
            kept.push(chain);
        }
    }
    (kept, refused)
}

/// Returns the number of server names times address ranges times protocols.
fn conditions(condition: &FilterChainMatch) -> usize {
    let all = [&condition.server_names, &condition.application_protocols].map(|list| list.len().max(1));
    all.into_iter().fold(condition.prefix_ranges.len().max(1), usize::saturating_mul)
}

fn refusal(object: Origin) -> Refusal {
    let fault = format!(
        "a filter chain would have more than {MAX_CHAIN_CONDITIONS} server names times address ranges (limit \
         chain-conditions): it is left out"
    );
    Refusal { object, field: String::new(), fault }
}

/// Removes the conditions in `taken` from `condition`, and adds the rest to `taken`. Returns true if any are
/// left.
fn keep_new(condition: &mut FilterChainMatch, taken: &mut BTreeSet<Key>) -> bool {
    let rest = FilterChainMatch {
        prefix_ranges: Vec::new(),
        server_names: Vec::new(),
        application_protocols: Vec::new(),
        ..condition.clone()
    };
    let rest = rest.encode_to_vec();
    let protocols = or_any(condition.application_protocols.clone());
    let names = |condition: &FilterChainMatch| {
        or_any(condition.server_names.iter().map(|name| name.to_ascii_lowercase()).collect())
    };
    let has = |taken: &BTreeSet<Key>, range: &str, name: &str| {
        protocols.iter().any(|protocol| {
            taken.contains(&(rest.clone(), range.to_owned(), protocol.clone(), name.to_owned()))
        })
    };
    let mut seen = BTreeSet::new();
    let (all, had_any) = (names(condition), !condition.prefix_ranges.is_empty());
    condition.prefix_ranges.retain(|range| {
        let text = range_text(range);
        !all.iter().all(|name| has(taken, &text, name)) && seen.insert(text)
    });
    if had_any && condition.prefix_ranges.is_empty() {
        return false;
    }
    let was_named = !condition.server_names.is_empty();
    let ranges_left = or_any(condition.prefix_ranges.iter().map(range_text).collect());
    condition.server_names.retain(|name| {
        let name = name.to_ascii_lowercase();
        !ranges_left.iter().any(|range| has(taken, range, &name)) && seen.insert(name)
    });
    if was_named && condition.server_names.is_empty() {
        return false;
    }
    let keys: Vec<Key> = ranges_left
        .iter()
        .flat_map(|range| names(condition).into_iter().map(move |name| (range.clone(), name)))
        .flat_map(|(range, name)| {
            let key = |protocol: &String| (rest.clone(), range.clone(), protocol.clone(), name.clone());
            protocols.iter().map(key).collect::<Vec<_>>()
        })
        .collect();
    if keys.iter().any(|key| taken.contains(key)) {
        return false;
    }
    taken.extend(keys);
    true
}

/// An empty list does not restrict.
fn or_any(list: Vec<String>) -> Vec<String> {
    if list.is_empty() { vec![String::new()] } else { list }
}

/// Returns the range with its host bits zeroed.
fn range_text(range: &CidrRange) -> String {
    let length = range.prefix_len.unwrap_or_default();
    match range.address_prefix.parse() {
        Ok(IpAddr::V4(ip)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or_default();
            format!("{}/{length}", IpAddr::V4((u32::from(ip) & mask).into()))
        }
        Ok(IpAddr::V6(ip)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or_default();
            format!("{}/{length}", IpAddr::V6((u128::from(ip) & mask).into()))
        }
        Err(_) => format!("{}/{length}", range.address_prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(name: &str, ranges: &[&str], names: &[&str]) -> FilterChain {
        let range = |text: &&str| {
            let (address, length) = text.split_once('/').unwrap();
            CidrRange { address_prefix: address.to_owned(), prefix_len: length.parse().ok() }
        };
        FilterChain {
            name: name.to_owned(),
            filter_chain_match: Some(FilterChainMatch {
                prefix_ranges: ranges.iter().map(range).collect(),
                server_names: names.iter().map(|name| (*name).to_owned()).collect(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn unnamed(chains: Vec<FilterChain>) -> impl Iterator<Item = (FilterChain, Vec<Origin>)> {
        chains.into_iter().map(|chain| (chain, Vec::new()))
    }

    fn left(chains: Vec<FilterChain>) -> Vec<String> {
        let show = |chain: FilterChain| {
            let condition = chain.filter_chain_match.unwrap_or_default();
            let ranges: Vec<String> = condition.prefix_ranges.iter().map(range_text).collect();
            format!("{} {} {}", chain.name, ranges.join(","), condition.server_names.join(","))
        };
        first_wins(unnamed(chains)).0.into_iter().map(show).collect()
    }

    #[test]
    fn what_an_earlier_chain_matches_is_taken() {
        let names = vec![chain("a", &[], &["x"]), chain("b", &[], &["X", "y"]), chain("c", &[], &["y"])];
        assert_eq!(left(names), ["a  x", "b  y"]);
        let ranges = vec![
            chain("a", &["10.1.0.0/8", "10.2.0.0/8"], &[]),
            chain("b", &["10.3.0.0/8", "11.0.0.0/8"], &[]),
        ];
        assert_eq!(left(ranges), ["a 10.0.0.0/8 ", "b 11.0.0.0/8 "]);
        assert_eq!(left(vec![chain("a", &["::1/0"], &[]), chain("b", &["::2/0"], &[])]), ["a ::/0 "]);
        assert_eq!(left(vec![chain("a", &[], &[]), chain("b", &[], &[])]), ["a  "]);
    }

    #[test]
    fn chains_that_differ_stay() {
        let narrow = vec![
            chain("a", &["10.0.0.0/8"], &["x"]),
            chain("b", &["10.0.0.0/8"], &[]),
            chain("c", &[], &["x"]),
        ];
        assert_eq!(left(narrow), ["a 10.0.0.0/8 x", "b 10.0.0.0/8 ", "c  x"]);
        let mut port = chain("b", &[], &["x"]);
        port.filter_chain_match.as_mut().unwrap().destination_port = Some(1);
        assert_eq!(left(vec![chain("a", &[], &["x"]), port]), ["a  x", "b  x"]);
    }

    #[test]
    fn a_chain_with_too_many_conditions_is_left_out_and_the_others_stay() {
        let names: Vec<String> = (0..=MAX_CHAIN_CONDITIONS / 2).map(|n| format!("h{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ranges = ["10.0.0.0/8", "11.0.0.0/8"];
        let at_the_limit = chain("a", &ranges, &names[1..]);
        let beyond = chain("b", &ranges, &names);
        let (chains, _) = first_wins(unnamed(vec![beyond, at_the_limit, chain("c", &[], &["x"])]));
        let left: Vec<_> = chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(left, ["a", "c"]);
    }
}
