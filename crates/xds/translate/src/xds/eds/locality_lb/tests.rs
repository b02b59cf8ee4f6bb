use super::super::group::Host;
use super::*;
use crate::testing::{endpoint, labels};
use pilotfish_model::Labels;
use pilotfish_model::topology;
use std::sync::Arc;

fn member(weight: u32, labels: Labels) -> Member {
    let host = Host::Workload(Arc::new(endpoint("10.0.0.1", 80, "http")));
    Member { labels, mtls: false, weight, host }
}

/// A group whose one endpoint has that weight.
fn group(locality: &str, weight: u32) -> Group {
    let members = vec![member(weight, Labels::default())];
    Group { locality: Locality::parse(locality), weight: Some(weight), priority: 0, members }
}

fn at(locality: &str) -> ClientLocality {
    ClientLocality { locality: Locality::parse(locality), ..ClientLocality::default() }
}

fn priorities(groups: &[Group]) -> Vec<u32> {
    groups.iter().map(|group| group.priority).collect()
}

#[test]
fn shares_are_rounded_up_and_divided_by_weight() {
    let to = [("eu/eu-1/*", 70), ("eu/eu-2", 20), ("us", 10)];
    let to = to.into_iter().map(|(to, share)| (to.to_owned(), share)).collect();
    let balance = Balance::Shares(vec![("eu/*".to_owned(), to)]);
    let all = || {
        vec![
            group("asia", 5),
            group("eu/eu-1/a", 2),
            group("eu/eu-1/b", 1),
            group("eu/eu-2", 1),
            group("us/x", 9),
        ]
    };
    let mut groups = all();
    apply(&mut groups, &balance, &at("eu/eu-1/a"), true);
    let weights: Vec<_> = groups.iter().map(|group| group.weight.unwrap()).collect();
    assert_eq!(weights, [5, 47, 24, 20, 10]);
    let left: Vec<_> = groups.iter().map(|group| group.members.len()).collect();
    assert_eq!(left, [0, 1, 1, 1, 1]);
    let mut groups = all();
    apply(&mut groups, &balance, &at("us/x"), true);
    assert_eq!(groups, all(), "no share is for clients there");
}

#[test]
fn the_distance_is_compared_part_by_part() {
    let regions = vec![("eu".to_owned(), "us".to_owned())];
    let all = || {
        vec![
            group("eu/1/a", 1),
            group("eu/1/b", 1),
            group("eu/2/a", 1),
            group("us/1/a", 1),
            group("ap/1/a", 1),
        ]
    };
    type Row<'a> = (&'a str, &'a [(String, String)], [u32; 5]);
    let table: &[Row<'_>] = &[
        ("eu/1/a", &[], [0, 1, 2, 3, 3]),
        ("eu/1/a", &regions, [0, 1, 2, 3, 4]),
        ("us/1/a", &regions, [1, 1, 1, 0, 1]),
        ("", &[], [0, 0, 0, 0, 0]),
    ];
    for (own, regions, want) in table {
        let mut groups = all();
        let balance = Balance::Priorities { labels: vec![], distance: true, regions: regions.to_vec() };
        apply(&mut groups, &balance, &at(own), true);
        assert_eq!(priorities(&groups), want, "{own} {regions:?}");
    }
}

/// Rule 7 of Istio 1.31, for clusters that hold their endpoints.
#[test]
fn labels_split_a_group() {
    let cell = |cell: &str, version: &str| labels(&[("cell", cell), ("version", version)]);
    let mut one = group("eu", 0);
    one.members = vec![member(1, cell("a", "v1")), member(4, cell("a", "v2")), member(2, cell("b", "v2"))];
    let keys = ["cell", "version=v2"].map(str::to_owned).to_vec();
    let balance = Balance::Priorities { labels: keys, distance: false, regions: vec![] };
    let client_locality = ClientLocality { labels: labels(&[("cell", "a")]), ..ClientLocality::default() };
    let mut groups = vec![one.clone()];
    apply(&mut groups, &balance, &client_locality, true);
    let split: Vec<_> = groups.iter().map(|group| (group.priority, group.weight.unwrap())).collect();
    assert_eq!(split, [(0, 4), (1, 1), (2, 2)]);
    // Clusters that hold their endpoints do not know their labels.
    let mut groups = vec![one.clone()];
    apply(&mut groups, &balance, &client_locality, false);
    assert_eq!(groups, [one]);
}

#[test]
fn the_first_label_that_differs_decides() {
    let place = |network: &str, region: &str| {
        member(1, labels(&[(topology::NETWORK, network), (topology::REGION, region)]))
    };
    let mut one = group("", 0);
    one.members = vec![place("n1", "eu"), place("n1", "us"), place("n2", "eu"), place("n2", "us")];
    let keys = [topology::NETWORK, topology::REGION].map(str::to_owned).to_vec();
    let balance = Balance::Priorities { labels: keys, distance: false, regions: vec![] };
    let own = labels(&[(topology::NETWORK, "n1"), (topology::REGION, "eu")]);
    let mut groups = vec![one];
    apply(&mut groups, &balance, &ClientLocality { labels: own, ..ClientLocality::default() }, true);
    let split: Vec<_> = groups
        .iter()
        .map(|group| (group.priority, group.members[0].labels.get(topology::REGION).unwrap()))
        .collect();
    // Rule 6 of Istio 1.31: another network comes last, in the order of the other labels.
    assert_eq!(split, [(0, "eu"), (1, "us"), (2, "eu"), (3, "us")]);
}

/// Rule E1 of Istio 1.31: istiod ends if endpoints of a DNS cluster are in several localities.
#[test]
fn labels_rank_each_locality_by_itself() {
    let cell = |cell: &str| member(1, labels(&[("cell", cell)]));
    let (mut east, mut west) = (group("eu/1", 1), group("us/1", 1));
    east.members = vec![cell("a"), cell("b")];
    west.members = vec![cell("b"), cell("a"), cell("b")];
    let balance = Balance::Priorities { labels: vec!["cell".to_owned()], distance: false, regions: vec![] };
    let client_locality = ClientLocality { labels: labels(&[("cell", "a")]), ..ClientLocality::default() };
    let mut groups = vec![east, west];
    apply(&mut groups, &balance, &client_locality, true);
    let ranked =
        groups.iter().map(|group| (group.locality.region.to_string(), group.priority, group.members.len()));
    let expected = [("eu", 0, 1), ("eu", 1, 1), ("us", 0, 1), ("us", 1, 2)];
    let expected = expected.map(|(region, priority, members)| (region.to_owned(), priority, members));
    assert_eq!(ranked.collect::<Vec<_>>(), expected);
}

#[test]
fn labels_come_before_the_distance() {
    let mut near = group("eu/1", 1);
    near.members = vec![member(1, labels(&[("cell", "b")]))];
    let mut far = group("us/1", 1);
    far.members = vec![member(1, labels(&[("cell", "a")])), member(1, labels(&[("cell", "b")]))];
    let balance = Balance::Priorities { labels: vec!["cell".to_owned()], distance: true, regions: vec![] };
    let client_locality = ClientLocality { labels: labels(&[("cell", "a")]), ..at("eu/1") };
    let mut groups = vec![near, far];
    apply(&mut groups, &balance, &client_locality, true);
    assert_eq!(priorities(&groups), [1, 0, 2]);
}

/// Rule 20 of Istio 1.31: labels rank first, then the own region, the one that takes over, all others.
#[test]
fn regions_rank_localities_within_labels() {
    let takes_over = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect::<Vec<_>>()
    };
    let to_us = [("eu", "us"), ("eu", "asia")];
    for (own, regions, expected) in [
        // Groups of eu/1, eu/2, us/1, asia/1.
        ("eu/1", &[][..], [0, 0, 1, 1]),
        ("eu/1", &to_us, [0, 0, 1, 2]),
        ("us/1", &to_us, [1, 1, 0, 1]),
        ("", &to_us, [0, 0, 0, 0]),
        ("africa", &[("africa", "asia")], [1, 1, 1, 0]),
    ] {
        let balance = Balance::Regions { labels: Vec::new(), takes_over: takes_over(regions) };
        let mut groups = ["eu/1", "eu/2", "us/1", "asia/1"].map(|locality| group(locality, 1)).to_vec();
        apply(&mut groups, &balance, &at(own), true);
        assert_eq!(priorities(&groups), expected, "{own} {regions:?}");
    }
    let version = |value: &str| labels(&[("version", value)]);
    let mixed = |locality: &str| Group {
        members: vec![member(1, version("v1")), member(1, version("v2"))],
        ..group(locality, 2)
    };
    let client = ClientLocality { labels: version("v1"), ..at("eu/1") };
    let balance = Balance::Regions { labels: vec!["version".to_owned()], takes_over: Vec::new() };
    let mut groups = vec![mixed("eu/1"), mixed("us/1")];
    apply(&mut groups, &balance, &client, true);
    assert_eq!(priorities(&groups), [0, 2, 1, 3], "own label and region, own label, own region, neither");
}
