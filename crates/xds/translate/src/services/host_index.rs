//! An index of hosts and wildcards, for lookups by overlap without a scan.

use pilotfish_model::Hostname;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Hosts, with the positions of the items that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostIndex {
    positions: BTreeMap<Hostname, Vec<usize>>,
    /// The wildcards by the suffix after the star.
    wildcards: BTreeMap<Box<str>, Hostname>,
    /// The hosts by their reversed text, so that all hosts below a wildcard are adjacent.
    backwards: BTreeMap<Vec<u8>, Hostname>,
}

impl HostIndex {
    /// Adds a host of the item at a position.
    pub(crate) fn add(&mut self, host: &Hostname, position: usize) {
        let held = self.positions.entry(host.clone()).or_insert_with(|| {
            self.backwards.insert(backwards(host.as_str()), host.clone());
            if let Some(end) = host.as_str().strip_prefix('*') {
                self.wildcards.insert(end.into(), host.clone());
            }
            Vec::new()
        });
        if held.last() != Some(&position) {
            held.push(position);
        }
    }

    /// Returns true if exactly this host is indexed.
    #[must_use]
    pub(crate) fn has(&self, host: &str) -> bool {
        self.positions.contains_key(host)
    }

    /// Returns true if the host, or a wildcard that covers it, is indexed.
    #[must_use]
    pub(crate) fn covers(&self, host: &Hostname) -> bool {
        self.has("*") || self.above(host).next().is_some()
    }

    /// Returns true if an indexed host or wildcard overlaps with this one.
    #[must_use]
    pub(crate) fn meets(&self, host: &Hostname) -> bool {
        self.covers(host) || self.below(host).next().is_some()
    }

    /// Returns the indexed entries for the host itself and for wildcards that cover it, the longest first.
    pub(crate) fn above<'a>(&'a self, host: &Hostname) -> impl Iterator<Item = (&'a Hostname, &'a [usize])> {
        let own = self.positions.get_key_value(host).into_iter();
        let ends = if self.wildcards.is_empty() { None } else { Some(ends_above(host)) };
        let wildcards = ends.into_iter().flatten().filter_map(|end| self.wildcards.get(end));
        let wildcards = wildcards.filter_map(|wildcard| self.positions.get_key_value(wildcard));
        own.chain(wildcards).map(|(host, positions)| (host, positions.as_slice()))
    }

    /// Returns the hosts that a wildcard covers, without itself, in no useful order; nothing for a host that
    /// is no wildcard.
    pub(crate) fn below<'a>(&'a self, host: &Hostname) -> impl Iterator<Item = (&'a Hostname, &'a [usize])> {
        let end = host.as_str().strip_prefix('*').map(backwards);
        let own = host.clone();
        let found = end.into_iter().flat_map(|end| {
            let from = self.backwards.range((Bound::Included(end.clone()), Bound::Unbounded));
            from.take_while(move |(text, _)| text.starts_with(&end)).map(|(_, host)| host)
        });
        let others = found.filter(move |host| **host != own);
        others.filter_map(|host| Some((host, self.positions.get(host)?.as_slice())))
    }

    /// Returns the positions of the items with a host that overlaps with this one, sorted.
    #[must_use]
    pub(crate) fn meeting(&self, host: &Hostname) -> BTreeSet<usize> {
        self.above(host)
            .chain(self.below(host))
            .flat_map(|(_, positions)| positions.iter().copied())
            .collect()
    }
}

fn backwards(text: &str) -> Vec<u8> {
    text.bytes().rev().collect()
}

/// Returns the suffixes, after the star, of the wildcards that cover a host, the longest first. A wildcard
/// does not cover itself.
fn ends_above(host: &Hostname) -> impl Iterator<Item = &str> {
    let text = host.as_str();
    // For a wildcard `*.a.b`, the first suffix is `.b`.
    let skip = usize::from(host.is_wildcard());
    let dots = text.match_indices('.').skip(skip);
    dots.filter_map(move |(at, _)| text.get(at..)).chain((text != "*").then_some(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(texts: &[String]) -> Vec<Hostname> {
        texts.iter().filter_map(|text| Hostname::parse(text).ok()).collect()
    }

    fn index(hosts: &[Hostname]) -> HostIndex {
        let mut index = HostIndex::default();
        hosts.iter().enumerate().for_each(|(position, host)| index.add(host, position));
        index
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_finds_what_a_look_at_each_host_finds(
            texts in proptest::collection::vec("(\\*|(\\*\\.)?[ab](\\.[ab]){0,3})", 0..12),
            asked in "(\\*|(\\*\\.)?[ab](\\.[ab]){0,3})",
        ) {
            let (all, asked) = (hosts(&texts), Hostname::parse(&asked).unwrap());
            let index = index(&all);
            let which = |test: &dyn Fn(&Hostname) -> bool| -> BTreeSet<usize> {
                all.iter().enumerate().filter(|(_, host)| test(host)).map(|(position, _)| position).collect()
            };
            let positions = |found: Vec<(&Hostname, &[usize])>| -> BTreeSet<usize> {
                found.into_iter().flat_map(|(_, positions)| positions.iter().copied()).collect()
            };
            prop_assert_eq!(index.meeting(&asked), which(&|host| host.matches(&asked)));
            prop_assert_eq!(positions(index.above(&asked).collect()), which(&|host| asked.is_subset_of(host)));
            let below = which(&|host| *host != asked && host.is_subset_of(&asked));
            prop_assert_eq!(positions(index.below(&asked).collect()), below);
            prop_assert_eq!(index.covers(&asked), all.iter().any(|host| asked.is_subset_of(host)));
            prop_assert_eq!(index.meets(&asked), all.iter().any(|host| host.matches(&asked)));
        }
    }
}
