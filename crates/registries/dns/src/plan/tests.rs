use super::*;
use crate::name::Kind;
use proptest::prelude::*;

const TTL: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn question(text: &str) -> Question {
    let (kind, of) = text.split_once(' ').expect("KIND NAME");
    let kind = match kind {
        "SRV" => Kind::Srv,
        "A" => Kind::A,
        _ => Kind::Aaaa,
    };
    Question { name: name(of), kind }
}

fn srv(targets: &[(u16, &str)]) -> Records {
    let srv = |(priority, target): &(u16, &str)| Srv {
        priority: *priority,
        weight: 0,
        port: 80,
        target: name(target),
    };
    Records::Srv(targets.iter().map(srv).collect())
}

fn addresses(list: &[&str]) -> Records {
    Records::Addresses(list.iter().map(|ip| ip.parse().expect("an IP")).collect())
}

/// A plan, its time, and what it asked.
struct Scene {
    plan: Plan,
    now: Instant,
    start: Instant,
}

impl Scene {
    fn new(names: &str) -> Self {
        Self::with(names, Family::Ipv4, Vec::new())
    }

    fn with(names: &str, family: Family, found: FoundByEntry) -> Self {
        let start = Instant::now();
        let options =
            PlanOptions { family, min_ttl: Duration::from_secs(5), max_ttl: Duration::from_secs(300) };
        let entries: Arc<[Entry]> = Entry::parse_list(names).expect("names").into();
        Self { plan: Plan::new(&entries, options, found, start), now: start, start }
    }

    /// What is to be asked now.
    fn due(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.plan.pop_due(self.now)).map(|question| question.to_string()).collect()
    }

    /// When something is due next, in seconds from the start.
    fn next(&self) -> Option<u64> {
        self.plan.next_due().map(|at| at.duration_since(self.start).as_secs())
    }

    fn answer(&mut self, asked: &str, records: Records) -> Vec<usize> {
        self.answer_for(asked, records, TTL)
    }

    fn answer_for(&mut self, asked: &str, records: Records, ttl: Duration) -> Vec<usize> {
        self.plan.answered(&question(asked), records, ttl, self.now).into_iter().collect()
    }

    fn fail(&mut self, asked: &str) -> Vec<usize> {
        self.plan.failed(&question(asked), "SERVFAIL", self.now).into_iter().collect()
    }

    /// What is found for an entry, as addresses; `None` when nothing is known.
    fn found(&self, entry: usize) -> Option<Vec<String>> {
        let found = self.plan.found()[entry].as_ref()?;
        Some(found.iter().map(|found| found.address.to_string()).collect())
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn some(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|&text| text.to_owned()).collect())
}

#[test]
fn services_lead_to_addresses() {
    let mut scene = Scene::new("_http._tcp.web");
    assert_eq!(scene.due(), ["SRV _http._tcp.web"]);
    assert_eq!(scene.answer("SRV _http._tcp.web", srv(&[(0, "a"), (0, "b")])), [] as [usize; 0]);
    assert!(!scene.plan.is_settled());
    assert_eq!(scene.due(), ["A a", "A b"]);
    assert_eq!(scene.answer("A a", addresses(&["10.0.0.1"])), [] as [usize; 0], "one is missing");
    assert_eq!(scene.answer("A b", addresses(&["10.0.0.2", "10.0.0.3"])), [0]);
    assert!(scene.plan.is_settled());
    assert_eq!(scene.found(0), some(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    let shares: Vec<_> =
        scene.plan.found()[0].iter().flat_map(|found| found.iter().map(|it| it.addresses)).collect();
    assert_eq!(shares, [1, 2, 2]);
}

#[test]
fn each_answer_holds_as_long_as_it_says_within_limits() {
    let mut scene = Scene::new("a:1,b:1,c:1");
    assert_eq!(scene.due(), ["A a", "A b", "A c"]);
    for (asked, ttl) in [("A a", 0), ("A b", 60), ("A c", 86_400)] {
        scene.answer_for(asked, addresses(&["10.0.0.1"]), Duration::from_secs(ttl));
    }
    assert_eq!((scene.due(), scene.next()), (vec![], Some(5)), "not before the least time");
    scene.pass(5);
    assert_eq!(scene.due(), ["A a"]);
    scene.answer_for("A a", addresses(&["10.0.0.1"]), Duration::from_secs(1000));
    scene.pass(55);
    assert_eq!((scene.due(), scene.next()), (vec!["A b".to_owned()], Some(300)), "not after the most");
}

#[test]
fn what_stays_is_no_change_and_what_differs_is_one() {
    let mut scene = Scene::new("web:80");
    scene.due();
    assert_eq!(scene.answer("A web", addresses(&["10.0.0.1"])), [0]);
    assert_eq!(scene.answer("A web", addresses(&["10.0.0.1"])), [] as [usize; 0]);
    assert_eq!(scene.answer("A web", addresses(&["10.0.0.2"])), [0]);
    assert_eq!(scene.answer("A web", addresses(&[])), [0], "that there is nothing is an answer");
    assert_eq!(scene.found(0), some(&[]));
}

#[test]
fn a_failure_takes_nothing_away_and_is_tried_again() {
    let mut scene = Scene::new("web:80");
    scene.due();
    scene.answer("A web", addresses(&["10.0.0.1"]));
    scene.pass(60);
    assert_eq!(scene.due(), ["A web"]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        assert_eq!(scene.fail("A web"), [] as [usize; 0]);
        let next = scene.plan.next_due().expect("it is tried again");
        waits.push(next.duration_since(scene.now));
        scene.now = next;
        assert_eq!(scene.due(), ["A web"]);
    }
    assert!(
        waits[0] <= Duration::from_secs(1) && waits.iter().all(|wait| *wait <= Duration::from_secs(10)),
        "{waits:?}"
    );
    assert!(waits[5] >= Duration::from_secs(5), "{waits:?}");
    assert_eq!(scene.plan.failure().as_deref(), Some("A web: SERVFAIL"));
    assert_eq!(scene.found(0), some(&["10.0.0.1"]));
    scene.answer("A web", addresses(&["10.0.0.2"]));
    assert_eq!((scene.plan.failure(), scene.found(0)), (None, some(&["10.0.0.2"])));
}

#[test]
fn a_name_that_was_never_answered_is_unknown_and_not_empty() {
    let mut scene = Scene::new("web:80");
    scene.due();
    assert_eq!(scene.fail("A web"), [] as [usize; 0]);
    assert!(scene.plan.is_settled() && !scene.plan.has_answers());
    assert_eq!(scene.found(0), None);
}

#[test]
fn targets_are_exchanged_when_the_new_ones_have_addresses() {
    let mut scene = Scene::new("_http._tcp.web");
    scene.due();
    scene.answer("SRV _http._tcp.web", srv(&[(0, "a")]));
    scene.due();
    scene.answer("A a", addresses(&["10.0.0.1"]));
    assert_eq!(scene.answer("SRV _http._tcp.web", srv(&[(0, "b")])), [] as [usize; 0]);
    assert_eq!((scene.due(), scene.found(0)), (vec!["A b".to_owned()], some(&["10.0.0.1"])));
    assert_eq!(scene.fail("A b"), [] as [usize; 0], "the only target cannot be asked for");
    assert_eq!(scene.found(0), some(&["10.0.0.1"]));
    assert_eq!(scene.answer("A b", addresses(&["10.0.0.2"])), [0]);
    assert_eq!(scene.found(0), some(&["10.0.0.2"]));
    // Nobody needs the old one any more.
    assert_eq!(scene.answer("A a", addresses(&["10.0.0.9"])), [] as [usize; 0]);
    scene.pass(60);
    assert_eq!(scene.due(), ["SRV _http._tcp.web", "A b"]);
}

#[test]
fn one_target_that_fails_costs_that_target() {
    let mut scene = Scene::new("_http._tcp.web");
    scene.due();
    scene.answer("SRV _http._tcp.web", srv(&[(0, "a"), (0, "b")]));
    scene.due();
    scene.fail("A a");
    assert_eq!(scene.answer("A b", addresses(&["10.0.0.2"])), [0]);
    assert_eq!(scene.found(0), some(&["10.0.0.2"]));
    assert_eq!(scene.answer("A a", addresses(&["10.0.0.1"])), [0]);
    assert_eq!(scene.found(0), some(&["10.0.0.1", "10.0.0.2"]));
}

#[test]
fn entries_share_questions() {
    let mut scene = Scene::new("_http._tcp.web,_grpc._tcp.web,a:1");
    assert_eq!(scene.due(), ["SRV _grpc._tcp.web", "SRV _http._tcp.web", "A a"]);
    scene.answer("SRV _http._tcp.web", srv(&[(0, "a")]));
    scene.answer("SRV _grpc._tcp.web", srv(&[(0, "a")]));
    assert_eq!(scene.due(), [""; 0], "it is asked for already");
    assert_eq!(scene.answer("A a", addresses(&["10.0.0.1"])), [0, 1, 2]);
    // One of them ends its use; the others keep it.
    assert_eq!(scene.answer("SRV _http._tcp.web", srv(&[])), [0]);
    assert_eq!(scene.answer("A a", addresses(&["10.0.0.2"])), [1, 2]);
}

#[test]
fn both_families_count_and_one_that_fails_does_not_hide_the_other() {
    let mut scene = Scene::with("web:80", Family::Both, Vec::new());
    assert_eq!(scene.due(), ["A web", "AAAA web"]);
    assert_eq!(scene.answer("A web", addresses(&["10.0.0.1"])), [] as [usize; 0]);
    assert_eq!(scene.fail("AAAA web"), [0]);
    assert_eq!(scene.found(0), some(&["10.0.0.1"]));
    assert_eq!(scene.answer("AAAA web", addresses(&["::1"])), [0]);
    assert_eq!(scene.found(0), some(&["10.0.0.1", "::1"]));

    let mut scene = Scene::with("web:80", Family::Both, Vec::new());
    scene.due();
    scene.fail("A web");
    assert_eq!(
        scene.answer("AAAA web", addresses(&[])),
        [] as [usize; 0],
        "there may be some of the other family"
    );
    assert_eq!(scene.found(0), None);
}

#[test]
fn what_was_found_before_stays_where_nothing_is_found() {
    let mut first = Scene::new("a:1,b:1");
    first.due();
    first.answer("A a", addresses(&["10.0.0.1"]));
    first.answer("A b", addresses(&["10.0.0.2"]));
    let mut second = Scene::with("a:1,b:1", Family::Ipv4, first.plan.found().clone());
    assert_eq!(second.due(), ["A a", "A b"], "all is asked again");
    assert_eq!(second.answer("A a", addresses(&["10.0.0.1"])), [] as [usize; 0]);
    second.fail("A b");
    assert!(second.plan.is_settled() && second.plan.has_answers());
    assert_eq!((second.found(0), second.found(1)), (some(&["10.0.0.1"]), some(&["10.0.0.2"])));
}

proptest! {
    /// Whatever happened before: when every question is answered from one world, that world is found.
    #[test]
    fn in_the_end_what_is_there_is_found(
        steps in prop::collection::vec((0usize..8, 0u8..4, any::<bool>()), 0..40),
        last in (0u8..4, 0u8..4, 0u8..4),
    ) {
        let mut scene = Scene::new("_x._tcp.web,_y._tcp.web,a:1");
        let targets = |which: u8| match which {
            0 => srv(&[]),
            1 => srv(&[(0, "a")]),
            2 => srv(&[(0, "b")]),
            _ => srv(&[(0, "a"), (1, "b")]),
        };
        let list = |which: u8| match which {
            0 => addresses(&[]),
            1 => addresses(&["10.0.0.1"]),
            2 => addresses(&["10.0.0.2"]),
            _ => addresses(&["10.0.0.1", "10.0.0.2"]),
        };
        let asked = ["SRV _x._tcp.web", "SRV _y._tcp.web", "A a", "A b"];
        for (which, value, fails) in steps {
            let asked = asked[which % 4];
            scene.due();
            match (fails, asked.starts_with('S')) {
                (true, _) => scene.fail(asked),
                (false, true) => scene.answer(asked, targets(value)),
                (false, false) => scene.answer(asked, list(value)),
            };
            scene.pass(1);
        }
        scene.answer("SRV _x._tcp.web", targets(last.0));
        scene.answer("SRV _y._tcp.web", targets(last.1));
        scene.answer("A a", list(last.2));
        scene.answer("A b", list(3 - last.2));
        prop_assert!(scene.plan.is_settled());
        prop_assert_eq!(scene.plan.failure(), None);
        let of = |records: Records| match records {
            Records::Addresses(list) => list.iter().map(ToString::to_string).collect::<Vec<_>>(),
            Records::Srv(_) => Vec::new(),
        };
        let (a, b) = (of(list(last.2)), of(list(3 - last.2)));
        let expected = |which: u8| match which {
            0 => vec![],
            1 => a.clone(),
            2 => b.clone(),
            _ => [a.clone(), b.clone()].concat(),
        };
        prop_assert_eq!(scene.found(0), Some(expected(last.0)));
        prop_assert_eq!(scene.found(1), Some(expected(last.1)));
        prop_assert_eq!(scene.found(2), Some(a.clone()));
        // Nothing is forgotten: every question that is needed comes again.
        scene.pass(1000);
        let mut needed = vec!["A a".to_owned()];
        if last.0 >= 2 || last.1 >= 2 {
            needed.push("A b".to_owned());
        }
        needed.extend(["SRV _x._tcp.web".to_owned(), "SRV _y._tcp.web".to_owned()]);
        let mut due = scene.due();
        due.sort();
        prop_assert_eq!(due, needed);
    }
}
