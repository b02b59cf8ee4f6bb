//! Properties of the whole way from objects to resources, over random histories of the recorded cases'
//! objects: what was computed step by step equals what is computed from scratch, byte for byte, and every
//! difference is reported.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod history;

use history::{Dice, Run};
use pilotfish_model::{Object, ObjectKey};
use pilotfish_testkit::cases::Case;
use pilotfish_testkit::oracle::cases_folder;
use pilotfish_translate::Proxy;
use std::collections::BTreeSet;

/// Histories, and steps of each. `PILOTFISH_HISTORIES` runs more of them.
const HISTORIES: u64 = 12;
const STEPS: usize = 30;

/// One random history: objects of a few cases come, change places with those of others, and go, while proxies
/// connect and leave.
fn history(cases: &[Case], seed: u64) {
    let mut dice = Dice::new(seed);
    let chosen: Vec<&Case> = (0..4).map(|_| &cases[dice.roll(cases.len())]).collect();
    let names: Vec<&str> = chosen.iter().map(|case| case.name.as_str()).collect();
    let pool: Vec<Object> = chosen.iter().flat_map(|case| case.objects().unwrap().objects).collect();
    let proxies: Vec<_> = chosen.iter().flat_map(|case| &case.proxies).collect();
    let mut run = Run::new();
    let mut there: BTreeSet<ObjectKey> = BTreeSet::new();
    for step in 0..STEPS {
        for _ in 0..=dice.roll(6) {
            let object = pool[dice.roll(pool.len())].clone();
            let gone = there.contains(object.key()) && dice.roll(3) == 0;
            if gone {
                there.remove(object.key());
                run.scene.delete(object.key().clone());
            } else {
                there.insert(object.key().clone());
                run.scene.apply_object(object);
            }
        }
        match dice.roll(4) {
            0 | 1 if run.clients.len() < 5 => {
                let proxy = Proxy::from_node(&proxies[dice.roll(proxies.len())].node()).unwrap();
                run.clients.push(run.translator.connect(proxy));
            }
            2 if run.clients.len() > 2 => drop(run.clients.swap_remove(dice.roll(run.clients.len()))),
            _ => {}
        }
        run.ask();
        run.publish();
        run.ask();
        if step % 3 == 2 {
            run.check(&format!("seed {seed}, step {step}, cases {names:?}"));
        }
    }
}

#[test]
fn step_by_step_equals_from_scratch_and_every_difference_is_reported() {
    let cases = Case::all(&cases_folder()).unwrap();
    let histories =
        std::env::var("PILOTFISH_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(HISTORIES);
    for seed in 1..=histories {
        history(&cases, seed);
    }
}
