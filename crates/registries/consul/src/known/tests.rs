use super::*;
use crate::mapping::tests::{entry, mapping};

fn names(text: &str) -> BTreeSet<Arc<str>> {
    text.split_whitespace().map(Arc::from).collect()
}

fn about(no_leader: bool, incomplete: bool) -> About {
    About { index: 7, no_leader, incomplete, ..About::default() }
}

const GOOD: (bool, bool) = (false, false);
const NO_LEADER: (bool, bool) = (true, false);
const INCOMPLETE: (bool, bool) = (false, true);

#[test]
fn what_takes_nothing_away_is_believed_and_what_does_must_be_sure() {
    // Answers one after the other: the names, what the headers say, and what becomes of it: the names that
    // are gone, or the doubt.
    type Step = (&'static str, (bool, bool), Result<&'static str, Doubt>);
    let histories: [&[Step]; 8] = [
        &[("a b", GOOD, Ok("")), ("a", GOOD, Ok("b")), ("", GOOD, Ok("a"))],
        &[
            ("a b", GOOD, Ok("")),
            ("a", NO_LEADER, Err(Doubt::NoLeader)),
            ("a b c", NO_LEADER, Ok("")),
            ("a", GOOD, Ok("b c")),
        ],
        &[("a b", GOOD, Ok("")), ("a", INCOMPLETE, Err(Doubt::Incomplete)), ("a b", INCOMPLETE, Ok(""))],
        // A token that never showed everything: a part may go, all of it never.
        &[
            ("a b", INCOMPLETE, Ok("")),
            ("a", INCOMPLETE, Ok("b")),
            ("", INCOMPLETE, Err(Doubt::Incomplete)),
            ("", GOOD, Ok("a")),
        ],
        &[("", INCOMPLETE, Err(Doubt::Incomplete)), ("a", INCOMPLETE, Ok(""))],
        &[("", NO_LEADER, Err(Doubt::NoLeader)), ("", GOOD, Ok(""))],
        &[("a", NO_LEADER, Ok("")), ("", NO_LEADER, Err(Doubt::NoLeader))],
        &[("a", INCOMPLETE, Ok("")), ("a b", GOOD, Ok("")), ("a", INCOMPLETE, Err(Doubt::Incomplete))],
    ];
    for history in histories {
        let mut known = Known::new(mapping(), &[None]);
        for (step, (given, (no_leader, incomplete), want)) in history.iter().enumerate() {
            let gone = known.set_names(0, names(given), about(*no_leader, *incomplete));
            let gone = gone.map(|gone| gone.into_iter().collect::<BTreeSet<_>>());
            assert_eq!(gone, want.map(names), "step {step} of {history:?}");
        }
    }
}

#[test]
fn instances_follow_the_same_rules() {
    let mut known = Known::new(mapping(), &[None]);
    let web: Arc<str> = "web".into();
    assert_eq!(
        known.set(0, &web, vec![entry("n1", "web-1")], about(false, false)),
        Ok(false),
        "it is not listed"
    );
    known.set_names(0, names("web"), about(false, false)).unwrap();
    let both = || vec![entry("n1", "web-1"), entry("n2", "web-2")];
    assert_eq!(known.set(0, &web, both(), about(false, false)), Ok(true));
    assert_eq!(
        known.set(0, &web, both().into_iter().rev().collect(), about(false, false)),
        Ok(false),
        "the order is nothing"
    );
    for given in [NO_LEADER, INCOMPLETE] {
        let one = known.set(0, &web, vec![entry("n1", "web-1")], about(given.0, given.1));
        assert!(one.is_err(), "{given:?}");
    }
    assert_eq!(known.tell(&web).set[0].instances.len(), 2, "what is doubted changes nothing");
    assert_eq!(known.on_node(0, "n2"), std::slice::from_ref(&web));
    assert_eq!(known.set(0, &web, Vec::new(), about(false, false)), Ok(true));
    let told = known.tell(&web);
    assert_eq!((told.set[0].instances.len(), told.set[0].ports.len()), (0, 1), "empty, with its port");
    known.set_names(0, names(""), about(false, false)).unwrap();
    assert_eq!(known.tell(&web), Told { set: Vec::new(), removed: vec![web.clone()] });
    assert_eq!(known.tell(&web), Told::default());
}

#[test]
fn a_service_of_two_data_centres_is_one_until_both_have_lost_it() {
    let mut known = Known::new(mapping(), &[Some("dc1".into()), Some("dc2".into())]);
    let web: Arc<str> = "web".into();
    for datacenter in [0, 1] {
        known.set_names(datacenter, names("web"), about(false, false)).unwrap();
        let mut entry = entry("n1", "web-1");
        entry.node.datacenter = format!("dc{}", datacenter + 1);
        entry.service.address = format!("10.{datacenter}.0.1");
        known.set(datacenter, &web, vec![entry], about(false, false)).unwrap();
    }
    let told = known.tell_all();
    assert_eq!((told.len(), told[0].instances.len()), (1, 2));
    let regions: Vec<_> =
        told[0].instances.iter().map(|instance| instance.locality.region.to_string()).collect();
    assert_eq!(regions, ["dc1", "dc2"]);
    assert_eq!(known.set_names(1, names(""), about(false, false)), Ok(vec![web.clone()]));
    assert_eq!(known.tell(&web).set[0].instances.len(), 1);
}
