use super::*;
use crate::Networks;
use pilotfish_registration::{CheckKind, Port, Registration, RegistrationPort};
use std::num::NonZeroU16;

const SECOND: Duration = Duration::from_secs(1);

fn check(port: Option<u16>) -> Check {
    Check {
        kind: CheckKind::Tcp,
        port: port.and_then(NonZeroU16::new),
        interval: 10 * SECOND,
        timeout: SECOND,
        healthy_threshold: 2,
        unhealthy_threshold: 2,
    }
}

fn instance(id: &str, address: &str, checks: Vec<Check>) -> Arc<Record> {
    let mut given = Registration::new("default", "web", id);
    given.addresses = vec!["10.0.0.1".to_owned()];
    given.ports = vec![RegistrationPort { number: 80, ..Default::default() }];
    let mut instance = given.validate("cluster.local").unwrap();
    // As another version may have stored it: registration refuses special addresses.
    instance.addresses = vec![address.parse().unwrap()];
    let port = |number| Port {
        number: NonZeroU16::new(number).unwrap(),
        service_port: NonZeroU16::new(number).unwrap(),
        name: "".into(),
        protocol: "".into(),
    };
    instance.ports = vec![port(80), port(81)];
    instance.checks = checks;
    record(instance, 1)
}

fn record(instance: Instance, revision: u64) -> Arc<Record> {
    let state = RecordState::Serving;
    Arc::new(Record { instance: Arc::new(instance), owner: "me".into(), revision, created: 1, state })
}

fn schedule(checks: usize, address_checks: usize, at_once: usize) -> Schedule {
    let settings = CheckSettings { checks, address_checks, at_once, networks: Networks::default() };
    Schedule::new(settings, Jitter::seeded(7))
}

/// Runs everything that is due, with the same result. Returns the targets and what is told.
fn run(schedule: &mut Schedule, now: Instant, outcome: &Outcome) -> (Vec<String>, Vec<Verdict>) {
    let (mut targets, mut told) = (Vec::new(), Vec::new());
    while let Some(probe) = schedule.start(now) {
        targets.push(probe.target.to_string());
        told.extend(schedule.finish(probe.ticket, outcome.clone(), now));
    }
    (targets, told)
}

fn verdict(id: &str, failure: Option<&str>) -> Verdict {
    Verdict { key: InstanceKey::new("default", "web", id), revision: 1, failure: failure.map(Into::into) }
}

#[test]
fn checks_go_to_own_ports_and_are_told_when_they_turn() {
    let (mut schedule, mut now) = (schedule(9, 9, 9), Instant::now());
    assert_eq!(schedule.set(instance("a", "10.0.0.1", vec![check(None), check(Some(81))]), now), None);
    now += SECOND;
    let bad: Outcome = Err("the connection was refused".into());
    let (mut targets, told) = run(&mut schedule, now, &bad);
    targets.sort();
    assert_eq!(
        (targets, told),
        (vec!["10.0.0.1:80".into(), "10.0.0.1:81".into()], vec![]),
        "one is not enough"
    );
    now += 11 * SECOND;
    let wanted = vec![verdict("a", Some("TCP check: the connection was refused"))];
    assert_eq!(run(&mut schedule, now, &bad).1, wanted, "told once, though both fail");
    assert_eq!(schedule.failing(), 1);
    for wanted in [vec![], vec![verdict("a", None)]] {
        now += 11 * SECOND;
        assert_eq!(run(&mut schedule, now, &Ok(())).1, wanted);
    }
    now += 11 * SECOND;
    assert_eq!(run(&mut schedule, now, &Ok(())).1, []);
    assert_eq!(schedule.failing(), 0);
}

#[test]
fn times_follow_the_interval() {
    let (mut schedule, begin) = (schedule(9, 9, 9), Instant::now());
    schedule.set(instance("a", "10.0.0.1", vec![check(None)]), begin);
    let first = schedule.next().unwrap();
    assert!(first <= begin + SECOND);
    assert!(schedule.start(begin).is_none() || first == begin);
    let mut now = first;
    for _ in 0..20 {
        let probe = schedule.start(now).unwrap();
        assert!(schedule.next().is_none(), "one check does not run beside itself");
        schedule.finish(probe.ticket, Ok(()), now);
        let next = schedule.next().unwrap();
        let waited = next - now;
        assert!(
            (Duration::from_millis(9_500)..=Duration::from_millis(10_500)).contains(&waited),
            "{waited:?}"
        );
        now = next;
    }
}

#[test]
fn as_many_run_as_may() {
    let (mut schedule, now) = (schedule(99, 99, 2), Instant::now());
    for n in 1..=5 {
        schedule.set(instance(&n.to_string(), &format!("10.0.0.{n}"), vec![check(None)]), now);
    }
    let now = now + SECOND;
    let (first, second) = (schedule.start(now).unwrap(), schedule.start(now).unwrap());
    assert!(schedule.start(now).is_none() && schedule.next().is_none());
    schedule.finish(first.ticket, Ok(()), now);
    assert!(schedule.next().is_some_and(|next| next <= now));
    let third = schedule.start(now).unwrap();
    // One that is gone meanwhile frees its place, and its result is of no interest to the next of its name.
    schedule.remove(&second.ticket.key, now);
    schedule.set(
        instance(&second.ticket.key.id, "10.0.0.9", vec![Check { unhealthy_threshold: 1, ..check(None) }]),
        now,
    );
    assert_eq!(schedule.finish(second.ticket, Err("late".into()), now), None);
    assert_eq!((schedule.running(), schedule.failing()), (1, 0));
    assert_eq!(schedule.finish(third.ticket, Ok(()), now), None);
    assert_eq!(schedule.running(), 0);
}

#[test]
fn what_is_known_stays_while_the_checks_are_the_same() {
    let (mut schedule, mut now) = (schedule(9, 9, 9), Instant::now());
    let before = instance("a", "10.0.0.1", vec![Check { unhealthy_threshold: 1, ..check(None) }]);
    schedule.set(before.clone(), now);
    now += SECOND;
    assert_eq!(run(&mut schedule, now, &Err("x".into())).1, [verdict("a", Some("TCP check: x"))]);
    assert_eq!(schedule.set(before.clone(), now), None);
    let heavier = record(Instance { weight: 7, ..(*before.instance).clone() }, 2);
    let again = Verdict { revision: 2, ..verdict("a", Some("TCP check: x")) };
    assert_eq!((schedule.set(heavier, now), schedule.failing()), (Some(again), 1), "of the new revision");
    assert!(schedule.next().is_some_and(|next| next > now + 9 * SECOND), "it is not asked again at once");
    let moved = instance("a", "10.0.0.2", vec![check(None)]);
    assert_eq!((schedule.set(moved, now), schedule.failing()), (Some(verdict("a", None)), 0));
    assert_eq!(run(&mut schedule, now + SECOND, &Ok(())), (vec!["10.0.0.2:80".into()], vec![]));
    let draining = instance("a", "10.0.0.2", vec![check(None)]);
    let draining = Arc::new(Record { state: RecordState::Draining, ..(*draining).clone() });
    assert_eq!((schedule.set(draining, now), schedule.checks(), schedule.next()), (None, 0, None));
    schedule.set(before, now);
    let without = instance("a", "10.0.0.1", vec![]);
    assert_eq!((schedule.set(without, now), schedule.checks(), schedule.next()), (None, 0, None));
}

#[test]
fn limits_hold_and_who_waits_gets_the_place_of_who_goes() {
    let (mut schedule, now) = (schedule(4, 2, 9), Instant::now());
    for (id, address, checks) in [
        ("a", "10.0.0.1", 2),
        ("b", "10.0.0.1", 1),
        ("c", "10.0.0.2", 2),
        ("d", "10.0.0.3", 1),
        ("e", "169.254.169.254", 1),
        ("g", "10.0.0.1", 1),
    ] {
        schedule.set(instance(id, address, vec![check(None); checks]), now);
    }
    schedule.set(instance("f", "10.0.0.4", vec![check(Some(9))]), now);
    let refused = |schedule: &Schedule| {
        let mut refused: Vec<String> =
            schedule.refused().map(|(key, why)| format!("{} {why:?}", key.id)).collect();
        refused.sort();
        refused
    };
    assert_eq!(schedule.checks(), 4);
    assert_eq!(refused(&schedule), ["b AddressLimit", "d Limit", "e Address", "f Port", "g Limit"]);
    schedule.remove(&InstanceKey::new("default", "web", "c"), now);
    assert_eq!(schedule.checks(), 3);
    assert_eq!(refused(&schedule), ["b AddressLimit", "e Address", "f Port", "g AddressLimit"]);
    schedule.remove(&InstanceKey::new("default", "web", "a"), now);
    assert_eq!((schedule.checks(), refused(&schedule)), (3, vec!["e Address".into(), "f Port".to_owned()]));
    for id in ["b", "d", "e", "f", "g"] {
        schedule.remove(&InstanceKey::new("default", "web", id), now);
    }
    let Schedule { instances, due, addresses, waiting, waiting_of, checks, .. } = schedule;
    assert_eq!(
        (instances.len(), due.len(), addresses.len(), waiting.len(), waiting_of.len(), checks),
        (0, 0, 0, 0, 0, 0)
    );
}
