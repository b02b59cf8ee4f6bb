//! Recorded cases beside each other in one world: a case changes what another's proxies get only where it
//! may, and the way from one case to the other and back leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::indexing_slicing, reason = "JSON answers null for what is not there")]

mod history;
mod mixture;

use history::{Dice, Run};
use mixture::{Footprint, Party, beyond_what_is_seen};
use pilotfish_compare::{Comparison, Difference};
use pilotfish_model::Object;
use pilotfish_testkit::cases::{Case, translator};
use pilotfish_testkit::oracle::{cases_folder, dumps};
use pilotfish_translate::Proxy;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Mixtures of each property. `PILOTFISH_MIXTURES` runs more of them.
const MIXTURES: u64 = 20;
/// Ways from one case to another and back; each is about as much work as several mixtures.
const WAYS: u64 = 5;

static PARTIES: LazyLock<Vec<Party>> =
    LazyLock::new(|| Case::all(&cases_folder()).unwrap().into_iter().map(Party::of).collect());

fn rounds(few: u64) -> u64 {
    let asked = std::env::var("PILOTFISH_MIXTURES").ok().and_then(|n| n.parse::<u64>().ok());
    asked.map_or(few, |asked| asked * few / MIXTURES)
}

/// A case, and one or two others that are apart from it and from each other.
fn chosen(
    dice: &mut Dice,
    fits: impl Fn(&Footprint, &Footprint) -> bool,
) -> (&'static Party, Vec<&'static Party>) {
    let parties = &*PARTIES;
    loop {
        let one = &parties[dice.roll(parties.len())];
        let mut others: Vec<&Party> = Vec::new();
        let wanted = 1 + dice.roll(2);
        for _ in 0..20 {
            let other = &parties[dice.roll(parties.len())];
            let is_apart = |it: &&Party| it.footprint.is_apart_from(&other.footprint);
            if fits(&one.footprint, &other.footprint) && others.iter().all(is_apart) {
                others.push(other);
            }
            if others.len() == wanted {
                return (one, others);
            }
        }
        if !others.is_empty() {
            return (one, others);
        }
    }
}

/// What the proxies of a case get in a world of its objects and more.
fn get(party: &Party, more: impl IntoIterator<Item = Object>) -> BTreeMap<String, Value> {
    let objects = party.objects.iter().cloned().chain(more);
    dumps(&party.case, &translator(objects), false).unwrap()
}

fn expect_none(differences: &[Difference], one: &Party, proxy: &str, others: &[&Party], seed: u64) {
    let lines: Vec<String> = differences
        .iter()
        .map(|it| {
            format!("{} {}: {}: alone {:?}, mixed {:?}", it.kind, it.resource, it.field, it.want, it.got)
        })
        .collect();
    let others: Vec<&str> = others.iter().map(|other| &*other.case.name).collect();
    assert!(
        lines.is_empty(),
        "seed {seed}: {}/{proxy} beside {others:?}:\n{}",
        one.case.name,
        lines.join("\n")
    );
}

#[test]
fn neighbours_that_export_nothing_change_nothing() {
    for seed in 1..=rounds(MIXTURES) {
        let (one, others) = chosen(&mut Dice::new(seed), Footprint::is_apart_from);
        let (alone, mixed) = (get(one, []), get(one, others.iter().flat_map(|other| other.private())));
        for (proxy, alone) in &alone {
            let found = Comparison::of(alone, &mixed[proxy]);
            expect_none(&found.differences, one, proxy, &others, seed);
        }
    }
}

#[test]
fn neighbours_add_what_proxies_see_of_them_and_change_nothing_else() {
    let fits =
        |one: &Footprint, other: &Footprint| one.is_apart_from(other) && one.has_other_hosts_than(other);
    for seed in 1..=rounds(MIXTURES) {
        let (one, others) = chosen(&mut Dice::new(seed), fits);
        let (alone, mixed) = (get(one, []), get(one, others.iter().flat_map(|other| other.objects.clone())));
        let footprints: Vec<&Footprint> = others.iter().map(|other| &other.footprint).collect();
        for (proxy, alone) in &alone {
            let found = beyond_what_is_seen(alone, &mixed[proxy], &footprints);
            expect_none(&found, one, proxy, &others, seed);
        }
    }
}

/// Leads the world from the objects of one case to those of another, object by object in random order.
fn lead(run: &mut Run, dice: &mut Dice, from: &Party, to: &Party, context: &str) {
    let mut steps: Vec<(bool, &Object)> = from.objects.iter().map(|object| (false, object)).collect();
    steps.extend(to.objects.iter().map(|object| (true, object)));
    while !steps.is_empty() {
        for _ in 0..=dice.roll(5) {
            if steps.is_empty() {
                break;
            }
            let (is_there, object) = steps.swap_remove(dice.roll(steps.len()));
            let of_other = |party: &Party| party.objects.iter().any(|it| it.key() == object.key());
            match is_there {
                true => run.scene.apply_object(object.clone()),
                // The other case has an object of that name, which comes or came.
                false if of_other(to) => {}
                false => run.scene.delete(object.key().clone()),
            }
        }
        run.ask();
        run.publish();
        run.ask();
        if dice.roll(4) == 0 {
            run.check(context);
        }
    }
    run.check(context);
}

#[test]
fn the_way_from_one_case_to_another_and_back_leaves_nothing_behind() {
    for seed in 1..=rounds(WAYS) {
        let mut dice = Dice::new(seed);
        let (one, other) = (&PARTIES[dice.roll(PARTIES.len())], &PARTIES[dice.roll(PARTIES.len())]);
        let context = format!("seed {seed}: {} to {} and back", one.case.name, other.case.name);
        let mut run = Run::new();
        one.objects.iter().for_each(|object| run.scene.apply_object(object.clone()));
        for entry in one.case.proxies.iter().chain(&other.case.proxies) {
            run.clients.push(run.translator.connect(Proxy::from_node(&entry.node()).unwrap()));
        }
        run.publish();
        run.ask();
        let before = dumps(&one.case, &run.translator, false).unwrap();
        lead(&mut run, &mut dice, one, other, &context);
        lead(&mut run, &mut dice, other, one, &context);
        assert!(before == dumps(&one.case, &run.translator, false).unwrap(), "{context}: something stayed");
    }
}

#[test]
fn most_cases_have_neighbours() {
    let has = |fits: &dyn Fn(&Footprint, &Footprint) -> bool| {
        let with = |one: &&Party| PARTIES.iter().any(|other| fits(&one.footprint, &other.footprint));
        PARTIES.iter().filter(with).count()
    };
    let apart = has(&Footprint::is_apart_from);
    let with_other_hosts = has(&|one, other| one.is_apart_from(other) && one.has_other_hosts_than(other));
    assert!(apart > 150 && with_other_hosts > 100, "{apart} and {with_other_hosts} of {}", PARTIES.len());
}
