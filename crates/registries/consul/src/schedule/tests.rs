use super::*;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A Consul that answers as its documentation says, without a network: what waits is answered when its time
/// is over.
struct Simulation {
    schedule: Schedule,
    start: Instant,
    now: Instant,
    /// Open questions, by when they are answered.
    open: Vec<(Instant, Question)>,
    most_open: usize,
    asked: BTreeMap<Ask, Vec<Duration>>,
    index: u64,
}

impl Simulation {
    fn new(services: usize, open: usize) -> Self {
        let now = Instant::now();
        let limits = Limits { open, datacenters: 1, wait: MINUTE };
        let schedule = Schedule::new(limits, Jitter::seeded(7), now);
        let mut simulation = Self {
            schedule,
            start: now,
            now,
            open: Vec::new(),
            most_open: 0,
            asked: BTreeMap::new(),
            index: 100,
        };
        simulation.ask();
        let names = (0..services).map(|number| format!("s{number:04}").into()).collect();
        simulation.schedule.list(0, &names, now);
        simulation.run(Duration::from_millis(1));
        simulation
    }

    fn ask(&mut self) -> Vec<Ask> {
        let mut asks = Vec::new();
        while let Some(question) = self.schedule.next(self.now) {
            let at = if question.index > 0 { self.now + question.wait } else { self.now };
            asks.push(question.ask.clone());
            self.asked.entry(question.ask.clone()).or_default().push(self.now - self.start);
            self.open.push((at, question));
            self.check();
        }
        self.most_open = self.most_open.max(self.open.len());
        asks
    }

    /// No service has two questions at a time, as answers could come in the wrong order.
    fn check(&self) {
        let current = self.open.iter().filter(|(_, question)| self.schedule.is_current(question));
        let services: Vec<&Key> = current.filter_map(|(_, question)| question.ask.service()).collect();
        let distinct: BTreeSet<&Key> = services.iter().copied().collect();
        assert_eq!(services.len(), distinct.len(), "{:?}", self.open);
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.ask();
            let answer = self.open.iter().map(|(at, _)| *at).min();
            let next = answer.into_iter().chain(self.schedule.wake(self.now)).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            while let Some(at) = self.open.iter().position(|(at, _)| *at <= self.now) {
                let (_, question) = self.open.remove(at);
                self.schedule.answered(&question, self.index, self.now);
            }
        }
        self.now = end;
    }

    /// Ends a question that waits, with a higher index.
    fn wake(&mut self, is: impl Fn(&Ask) -> bool) {
        self.index += 1;
        let at = self.open.iter().position(|(_, question)| is(&question.ask)).expect("it is open");
        let (_, question) = self.open.remove(at);
        assert_eq!(self.schedule.answered(&question, self.index, self.now), Moved::On);
    }

    fn count(&self, is: impl Fn(&Ask) -> bool) -> usize {
        self.asked.iter().filter(|(ask, _)| is(ask)).map(|(_, times)| times.len()).sum()
    }
}

fn key(name: &str) -> Key {
    Key { datacenter: 0, name: name.into() }
}

#[test]
fn every_service_is_watched_where_there_is_a_place_for_each() {
    let mut simulation = Simulation::new(10, 64);
    assert!(simulation.schedule.is_loaded() && !simulation.schedule.takes_turns());
    assert_eq!(simulation.open.len(), 11, "ten services and their list: {:?}", simulation.open);
    assert!(simulation.open.iter().all(|(_, question)| question.index == 100));
    simulation.asked.clear();
    simulation.run(MINUTE * 10);
    let asked = simulation.count(|_| true);
    assert!(
        (110..=130).contains(&asked),
        "one for each service and two for the list, in each of ten minutes: {asked}"
    );
    simulation.wake(|ask| *ask == Ask::Watch(key("s0003")));
    assert_eq!(simulation.ask(), [Ask::Watch(key("s0003"))], "at once, and nothing else");
}

#[test]
fn with_fewer_places_than_services_they_take_turns_at_a_bounded_cost() {
    let mut simulation = Simulation::new(1000, 64);
    assert!(simulation.schedule.is_loaded() && simulation.schedule.takes_turns());
    simulation.asked.clear();
    simulation.run(MINUTE * 10);
    let asked = simulation.count(|_| true);
    assert!(asked <= 2 * 1001 * 10, "{asked} questions in ten quiet minutes");
    assert!(simulation.most_open <= 64, "{}", simulation.most_open);
    assert_eq!(
        simulation.count(|ask| matches!(ask, Ask::Fetch(_) | Ask::Probe(_))),
        0,
        "nothing out of turn"
    );
    for number in 0..1000 {
        let times = &simulation.asked[&Ask::Watch(key(&format!("s{number:04}")))];
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several turns");
        assert!(longest <= MINUTE + Duration::from_secs(10), "s{number}: {longest:?}");
        assert!(times.len() >= 9, "s{number} had {} turns", times.len());
    }
}

#[test]
fn a_change_of_health_between_turns_is_fetched_at_once() {
    let mut simulation = Simulation::new(1000, 64);
    let is_watched = |simulation: &Simulation, name: &str| {
        simulation.open.iter().any(|(_, question)| question.ask == Ask::Watch(key(name)))
    };
    simulation.run(MINUTE);
    let names: Vec<String> = (0..1000).map(|number| format!("s{number:04}")).collect();
    let closed = names.iter().find(|name| !is_watched(&simulation, name)).expect("most are not watched");
    let open = names.iter().find(|name| is_watched(&simulation, name)).expect("some are watched");
    for name in [closed, open] {
        simulation.schedule.touch(&key(name), simulation.now);
    }
    assert_eq!(simulation.ask(), [Ask::Fetch(key(closed))], "the watch of the other will tell");
    // It changes again before the answer: it is asked again after it.
    simulation.schedule.touch(&key(closed), simulation.now);
    assert_eq!(simulation.ask(), []);
    simulation.wake(|ask| *ask == Ask::Fetch(key(closed)));
    assert_eq!(simulation.ask(), [Ask::Fetch(key(closed))]);
}

#[test]
fn a_sweep_probes_every_service_that_is_not_watched_and_fetches_what_differs() {
    let mut simulation = Simulation::new(1000, 64);
    simulation.run(MINUTE);
    simulation.asked.clear();
    simulation.schedule.sweep(0);
    simulation.run(Duration::from_millis(10));
    let probes = simulation.count(|ask| matches!(ask, Ask::Probe(_)));
    assert!((900..1000).contains(&probes), "{probes}");
    assert_eq!(simulation.count(|ask| matches!(ask, Ask::Fetch(_))), 0, "no index differs");

    // The next one comes no sooner than the rate allows, and then it does.
    simulation.schedule.sweep(0);
    simulation.index += 1;
    simulation.run(Duration::from_millis(1500));
    assert_eq!(simulation.count(|ask| matches!(ask, Ask::Probe(_))), probes);
    simulation.run(Duration::from_secs(1));
    let fetches = simulation.count(|ask| matches!(ask, Ask::Fetch(_)));
    assert!((900..1000).contains(&fetches), "what has another index is fetched: {fetches}");
    assert!(simulation.most_open <= 64);
}

#[test]
fn services_that_change_are_watched_all_the_time_and_the_others_still_have_turns() {
    let mut simulation = Simulation::new(1000, 64);
    simulation.run(MINUTE);
    let places = simulation.schedule.limits.places();
    for number in 0..places {
        simulation.schedule.changed(&key(&format!("s{number:04}")), simulation.now);
    }
    simulation.run(MINUTE * 2);
    let is_watched = |number: usize| {
        let name = key(&format!("s{number:04}"));
        simulation.open.iter().any(|(_, question)| question.ask == Ask::Watch(name.clone()))
    };
    let watched = (places - places / 2..places).filter(|number| is_watched(*number)).count();
    assert_eq!(watched, places / 2, "the last to change, for as many as may be");
    simulation.asked.clear();
    simulation.run(MINUTE * 5);
    let turns =
        simulation.asked.iter().filter(|(ask, times)| matches!(ask, Ask::Watch(_)) && times.len() >= 4);
    assert_eq!(turns.count(), 1000);
    assert!(simulation.count(|_| true) <= 2 * 1001 * 5 && simulation.most_open <= 64);
}

#[test]
fn a_service_that_changes_again_waits_neither_for_late_turns_nor_for_probes() {
    // So many that turns are always late.
    let mut simulation = Simulation::new(5000, 64);
    simulation.run(MINUTE);
    let (watch, lively) = (Ask::Watch(key("s0007")), key("s0007"));
    simulation.schedule.changed(&lively, simulation.now);
    simulation.run(Duration::from_secs(1));
    for _ in 0..5 {
        simulation.schedule.sweep(0);
        simulation.wake(|ask| *ask == watch);
        assert_eq!(simulation.ask().first(), Some(&watch), "its place is its own");
        simulation.run(Duration::from_secs(1));
    }
}

#[test]
fn services_are_read_after_the_checks_when_they_take_turns() {
    let now = Instant::now();
    let limits = Limits { open: 16, datacenters: 1, wait: MINUTE };
    let mut schedule = Schedule::new(limits, Jitter::seeded(1), now);
    let names = schedule.next(now).expect("the list first");
    assert_eq!(schedule.next(now), None, "there is nothing to ask for yet");
    schedule.list(0, &(0..100).map(|number| format!("s{number}").into()).collect(), now);
    schedule.answered(&names, 9, now);
    let questions: Vec<Question> = std::iter::from_fn(|| schedule.next(now)).collect();
    let asks: Vec<Ask> = questions.iter().map(|question| question.ask.clone()).collect();
    let checks = CheckState::ALL.map(|state| Ask::Checks(0, state));
    assert_eq!(asks, [vec![Ask::Names(0)], checks.to_vec()].concat());
    for question in questions.iter().filter(|question| matches!(question.ask, Ask::Checks(..))) {
        schedule.answered(question, 9, now);
    }
    let asks: Vec<Ask> = std::iter::from_fn(|| schedule.next(now)).map(|question| question.ask).collect();
    assert_eq!(asks.iter().filter(|ask| matches!(ask, Ask::Watch(_))).count(), limits.places());
}

#[test]
fn what_fails_is_asked_again_later_and_from_the_beginning() {
    let mut simulation = Simulation::new(1, 64);
    let ask = Ask::Watch(key("s0000"));
    let mut waits = Vec::new();
    for _ in 0..10 {
        let at = simulation.open.iter().position(|(_, question)| question.ask == ask).expect("it is open");
        let (_, question) = simulation.open.remove(at);
        simulation.schedule.failed(&question, simulation.now);
        let before = simulation.now;
        loop {
            let asks = simulation.ask();
            if asks.contains(&ask) {
                break;
            }
            simulation.now = simulation.schedule.wake(simulation.now).expect("it will be asked again");
        }
        assert!(simulation.open.iter().any(|(_, question)| question.ask == ask && question.index == 0));
        waits.push(simulation.now - before);
    }
    assert!(waits[0] <= Duration::from_millis(250) && waits[9] >= Duration::from_secs(7), "{waits:?}");
    assert!(simulation.schedule.is_loaded(), "a service that fails does not hold up the others");
    simulation.run(Duration::from_secs(1));
    let at = simulation.open.iter().position(|(_, question)| question.ask == ask).expect("it is open");
    assert_eq!(simulation.open[at].1.index, 100, "and blocks again after a good answer");
}

#[test]
fn a_query_that_is_answered_again_and_again_is_slowed_down() {
    let mut simulation = Simulation::new(1, 64);
    let ask = Ask::Watch(key("s0000"));
    let (mut answers, end) = (0, simulation.now + Duration::from_secs(10));
    while simulation.now < end {
        simulation.ask();
        match simulation.open.iter().any(|(_, question)| question.ask == ask) {
            true => {
                simulation.wake(|open| *open == ask);
                answers += 1;
            }
            false => simulation.now = simulation.schedule.wake(simulation.now).expect("it goes on"),
        }
    }
    assert!((40..=70).contains(&answers), "{answers} in ten seconds");
}

#[test]
fn a_service_that_is_gone_is_not_asked_for() {
    let mut simulation = Simulation::new(100, 16);
    simulation.run(Duration::from_secs(5));
    let names: BTreeSet<Arc<str>> = ["s0001".into()].into();
    simulation.schedule.list(0, &names, simulation.now);
    simulation.schedule.touch(&key("s0002"), simulation.now);
    simulation.asked.clear();
    simulation.run(MINUTE * 3);
    let asked: Vec<_> = simulation.asked.keys().filter_map(Ask::service).collect();
    assert_eq!(asked, [&key("s0001")]);
    assert_eq!(simulation.schedule.open_watches, 1, "places of what is gone are free");
}

proptest! {
    #[test]
    fn whatever_happens_limits_hold_and_everything_is_asked_in_the_end(
        steps in proptest::collection::vec((0u8..8, 0usize..40, 1u64..20_000), 1..120),
    ) {
        let mut simulation = Simulation::new(40, 12);
        for (step, number, millis) in steps {
            let key = key(&format!("s{number:04}"));
            match step {
                0 => simulation.schedule.touch(&key, simulation.now),
                1 => simulation.schedule.sweep(0),
                2 => {
                    simulation.index += 1;
                    simulation.schedule.changed(&key, simulation.now);
                }
                3 => simulation.index = simulation.index.saturating_sub(5),
                4 => {
                    if !simulation.open.is_empty() {
                        let (_, question) = simulation.open.remove(number % simulation.open.len());
                        simulation.schedule.failed(&question, simulation.now);
                    }
                }
                5 => {
                    let names = (number..40).map(|number| format!("s{number:04}").into()).collect();
                    simulation.schedule.list(0, &names, simulation.now);
                    // Answers to what is not listed any more still come.
                }
                _ => simulation.run(Duration::from_millis(millis)),
            }
            simulation.ask();
            prop_assert!(simulation.open.len() <= 12);
        }
        let names = (0..40).map(|number| format!("s{number:04}").into()).collect();
        simulation.schedule.list(0, &names, simulation.now);
        simulation.asked.clear();
        simulation.run(MINUTE * 3);
        prop_assert_eq!(simulation.count(|ask| matches!(ask, Ask::Watch(_))) >= 40, true);
        let asked: BTreeSet<_> = simulation.asked.keys().filter_map(Ask::service).collect();
        prop_assert_eq!(asked.len(), 40);
    }
}
