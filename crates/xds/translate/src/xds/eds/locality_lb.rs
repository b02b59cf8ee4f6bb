//! Locality load balancing: shares, or priorities by labels and by distance.

use super::client_locality::ClientLocality;
use super::group::{Group, Member};
use super::service_rule::Balance;
use pilotfish_model::{Locality, topology};
use std::collections::{BTreeMap, BTreeSet};

/// Number of priorities by distance: same sub-zone, zone, region, region that takes over, any other.
const DISTANCES: u32 = 5;

/// Number of steps between regions: own, the one that takes over, any other.
const REGION_STEPS: u32 = 3;

/// Spreads groups over localities by the settings of a rule. With `by_labels`, priorities compare the labels
/// of endpoints.
pub(super) fn apply(
    groups: &mut Vec<Group>,
    balance: &Balance,
    client_locality: &ClientLocality,
    by_labels: bool,
) {
    match balance {
        Balance::Even => {}
        Balance::Shares(shares) => distribute(groups, shares, &client_locality.locality),
        Balance::Regions { labels, takes_over } => {
            if by_labels {
                rank_by_labels(groups, labels, client_locality);
            }
            for group in groups.iter_mut() {
                let step = region_step(&client_locality.locality, &group.locality, takes_over);
                group.priority = group.priority * REGION_STEPS + step;
            }
            compact(groups);
        }
        Balance::Priorities { labels, distance, regions } => {
            if by_labels {
                rank_by_labels(groups, labels, client_locality);
            }
            if *distance {
                for group in groups.iter_mut() {
                    let step = distance_of(&client_locality.locality, &group.locality, regions);
                    group.priority = group.priority * DISTANCES + step;
                }
                compact(groups);
            }
        }
    }
}

/// Splits groups by how far labels agree, and ranks the parts.
fn rank_by_labels(groups: &mut Vec<Group>, labels: &[String], client_locality: &ClientLocality) {
    if labels.is_empty() || groups.is_empty() {
        return;
    }
    let split = groups.iter().flat_map(|group| split_by_labels(group, labels, client_locality));
    *groups = split.collect();
    compact(groups);
}

/// 0 for the own region, 1 for the one that takes over from it, 2 for others.
fn region_step(own: &Locality, other: &Locality, takes_over: &[(String, String)]) -> u32 {
    if own.region == other.region {
        return 0;
    }
    let next = takes_over.iter().find(|(from, _)| **from == *own.region);
    if next.is_some_and(|(_, to)| **to == *other.region) { 1 } else { 2 }
}

/// Gives localities their share of 100, divided by weight where a share is for several. Localities without a
/// share are left without endpoints.
fn distribute(groups: &mut [Group], shares: &[(String, BTreeMap<String, u32>)], own: &Locality) {
    let Some((_, to)) = shares.iter().find(|(from, _)| locality_matches(own, from)) else { return };
    let mut open: BTreeSet<usize> = (0..groups.len()).collect();
    for (pattern, share) in to {
        let matches =
            |index: &usize| groups.get(*index).is_some_and(|g| locality_matches(&g.locality, pattern));
        let matched: Vec<usize> = open.iter().copied().filter(matches).collect();
        let weight = |group: &Group| u64::from(group.weight.unwrap_or(1));
        let total: u64 = matched.iter().filter_map(|index| groups.get(*index)).map(weight).sum();
        for index in matched {
            open.remove(&index);
            let Some(group) = groups.get_mut(index).filter(|_| *share > 0 && total > 0) else { continue };
            let part = (weight(group) * u64::from(*share)).div_ceil(total);
            group.weight = Some(u32::try_from(part).unwrap_or(u32::MAX));
        }
    }
    for index in open {
        if let Some(group) = groups.get_mut(index) {
            group.members.clear();
        }
    }
}

/// True if a locality matches `region/zone/sub_zone`, where parts at the end may be absent or `*`.
fn locality_matches(locality: &Locality, pattern: &str) -> bool {
    let mut parts = pattern.splitn(3, '/');
    let region = parts.next().unwrap_or_default();
    let any = |part: Option<&str>, value: &str| {
        part.is_none_or(|part| part.is_empty() || part == "*" || part == value)
    };
    (region == "*" || region == &*locality.region)
        && any(parts.next(), &locality.zone)
        && any(parts.next(), &locality.sub_zone)
}

/// Splits a group by how far its endpoints' labels agree with the proxy's.
fn split_by_labels(group: &Group, labels: &[String], client_locality: &ClientLocality) -> Vec<Group> {
    let mut by_priority: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
    for member in &group.members {
        by_priority.entry(label_priority(member, labels, client_locality)).or_default().push(member.clone());
    }
    let split = by_priority.into_iter().map(|(priority, members)| {
        let mut part = Group { priority, members, ..group.clone() };
        part.weight = Some(part.sum());
        part
    });
    split.collect()
}

/// 0 when all labels agree; the earlier the first one that does not, the lower the priority. A network that
/// stands first is preferred: endpoints of others come after all of its own, in the order of the other
/// labels.
fn label_priority(member: &Member, labels: &[String], client_locality: &ClientLocality) -> u32 {
    let differs = |label: &String| {
        let (key, own) = match label.split_once('=') {
            Some((key, value)) => (key, value),
            None => (label.as_str(), client_locality.labels.get(label).unwrap_or_default()),
        };
        member.labels.get(key).unwrap_or_default() != own
    };
    let (raised, compared) = match labels {
        [network, rest @ ..] if network == topology::NETWORK => {
            (usize::from(differs(network)) * labels.len(), rest)
        }
        _ => (0, labels),
    };
    let first = compared.iter().position(differs).unwrap_or(compared.len());
    u32::try_from(raised + compared.len() - first).unwrap_or(u32::MAX)
}

/// 0 for the same sub-zone, 1 for the same zone, 2 for the same region, 3 for others; 4 for regions that do
/// not take over, where a region is named that does.
fn distance_of(own: &Locality, other: &Locality, regions: &[(String, String)]) -> u32 {
    if own.region != other.region {
        let takes_over = regions.iter().find(|(from, _)| **from == *own.region);
        return if takes_over.is_some_and(|(_, to)| **to != *other.region) { 4 } else { 3 };
    }
    match (own.zone == other.zone, own.sub_zone == other.sub_zone) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => 2,
    }
}

/// Numbers the priorities in use from 0 without gaps, as Envoy wants them.
fn compact(groups: &mut [Group]) {
    let used: BTreeSet<u32> = groups.iter().map(|group| group.priority).collect();
    let number: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
    for group in groups {
        group.priority = number.get(&group.priority).copied().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests;
