//! Measures how long a change of one namespace takes to a proxy beside what other namespaces do.
//!
//! Messages arrive by a clock that goes on by the time that steps take, so that a long step delays what
//! arrives meanwhile, as on the thread of the loop.
#![allow(clippy::print_stdout, reason = "it prints figures")]

use super::*;
use bytes::Bytes;
use pilotfish_bench::{fleet::node, session::Session};
use pilotfish_config::networking::{Resolution, ServicePort, WorkloadEntry};
use pilotfish_xds::{PeerInfo, Protocol, Stream};
use std::collections::VecDeque;

/// Time between two changes of the honest namespace, and between two rounds of the others.
const PERIOD: Duration = Duration::from_millis(100);
/// Changes of the honest namespace.
const CHANGES: usize = 10;
const HONEST: &str = "honest";
const TENANT: &str = "tenant";

/// ServiceEntry for the proxies of its own namespace.
struct Written<'a> {
    namespace: &'a str,
    name: String,
    hosts: usize,
    ports: u32,
    endpoints: usize,
    /// Part of the names of its hosts.
    host_version: usize,
    /// Part of the addresses of its endpoints.
    version: usize,
}

impl Written<'_> {
    fn event(&self) -> SourceEvent {
        let Self { namespace, name, version, host_version, .. } = self;
        let port = |number| ServicePort {
            number,
            name: format!("tcp-{number}"),
            protocol: "TCP".to_owned(),
            ..ServicePort::default()
        };
        let endpoint = |n: usize| WorkloadEntry {
            address: format!("10.{}.{}.{}", version / 250 % 250, version % 250, n % 250),
            ..WorkloadEntry::default()
        };
        let spec = ServiceEntry {
            hosts: (0..self.hosts).map(|n| format!("h{n}.v{host_version}.{name}.{namespace}.io")).collect(),
            ports: (1..=self.ports).map(port).collect(),
            resolution: Resolution::Static,
            endpoints: (0..self.endpoints).map(endpoint).collect(),
            export_to: vec![".".to_owned()],
            ..ServiceEntry::default()
        };
        let key = ObjectKey::new(ServiceEntry::KIND, *namespace, &**name);
        SourceEvent::Apply(Object::new(ObjectMeta::of(key), spec))
    }
}

/// Events of one round of the other namespaces.
type Round = Box<dyn Fn(usize) -> Vec<SourceEvent>>;

/// Connected proxy.
struct Proxy {
    stream: Arc<parking_lot::Mutex<Stream<Resources>>>,
    session: Session,
}

impl Proxy {
    fn connect(case: &Case, index: usize, namespace: &str) -> Self {
        let stream = case.control.outputs.fanout.open(Protocol::Delta, PeerInfo::default());
        let mut proxy = Self { stream, session: Session::new(node(index, namespace)) };
        for request in proxy.session.start() {
            proxy.stream.lock().on_message(&request, case.now.instant).unwrap();
        }
        proxy.exchange(case.now.instant, |_| None);
        assert!(proxy.session.synced());
        proxy
    }

    /// Acknowledges responses until there are no more. Returns the largest result of `find` in one of them.
    fn exchange(&mut self, now: Instant, find: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        let (mut found, mut requests) = (None, Vec::new());
        let mut stream = self.stream.lock();
        while let Some(response) = stream.poll_response(now) {
            let message = Bytes::from(response.concat()).slice(5..);
            found = found.max(find(&message));
            self.session.response(&message, &mut requests).unwrap();
            for request in std::mem::take(&mut requests) {
                stream.on_message(&request, now).unwrap();
            }
        }
        found
    }
}

/// Processor time of this thread: what else the machine does does not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Durations in milliseconds.
fn figures(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len() - 1));
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1_000.0);
    format!("{:8.1} {:8.1} {:8.1}", ms(at(50)), ms(at(99)), ms(times.last()))
}

fn honest(version: usize) -> SourceEvent {
    let name = "web-0".to_owned();
    let (namespace, host_version) = (HONEST, 0);
    Written { namespace, name, hosts: 1, ports: 1, endpoints: 5, host_version, version }.event()
}

/// Message on its way.
struct Arrival {
    at: Instant,
    events: Vec<SourceEvent>,
    /// Text by which the honest proxy is to know it.
    text: Option<Vec<u8>>,
}

fn arrivals(start: Instant, round: &Round) -> VecDeque<Arrival> {
    let pair = |n: usize| {
        let at = start + PERIOD * u32::try_from(n).unwrap();
        let version = n + 1;
        let text = format!("10.{}.{}.4", version / 250, version % 250).into_bytes();
        let others = Arrival { at, events: round(n), text: None };
        [others, Arrival { at: at + PERIOD / 2, events: vec![honest(version)], text: Some(text) }]
    };
    (0..CHANGES).flat_map(pair).collect()
}

/// A step of the loop, with the longest time of its parts: messages, backlog, publication, what is left.
fn step(
    case: &mut Case,
    messages: Vec<Vec<SourceEvent>>,
    parts: &mut [Duration; 4],
) -> (Option<Instant>, Duration) {
    let mut times = vec![cpu_time()];
    for events in messages {
        let batch = SourceBatch { events, problems: None };
        case.control
            .handle(ControlMessage::Batch { feed: FEED.into(), source: FILES.into(), batch }, case.now);
    }
    times.push(cpu_time());
    case.control.work(case.now.instant);
    times.push(cpu_time());
    case.control.publish(case.now.instant);
    times.push(cpu_time());
    let next = case.control.step(None, case.now);
    times.push(cpu_time());
    for (part, pair) in parts.iter_mut().zip(times.windows(2)) {
        *part = (*part).max(pair[1].saturating_sub(pair[0]));
    }
    (next, times[4].saturating_sub(times[0]))
}

fn measure(title: &str, first: Vec<SourceEvent>, round: &Round) {
    let mut case = Case::new();
    let base = (0..200).map(|n| {
        let name = format!("web-{n}");
        Written { namespace: HONEST, name, hosts: 1, ports: 1, endpoints: 5, host_version: 0, version: 0 }
            .event()
    });
    case.send(base.chain(first).chain([SourceEvent::Listed]).collect());
    let (mut proxy, mut other) = (Proxy::connect(&case, 0, HONEST), Proxy::connect(&case, 1, TENANT));
    case.after(1_000);
    let mut arrivals = arrivals(case.now.instant, round);
    let (mut steps, mut latencies, mut parts) = (Vec::new(), Vec::new(), [Duration::ZERO; 4]);
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut next: Option<Instant> = None;
    while let Some(at) = arrivals.front().map(|arrival| arrival.at).into_iter().chain(next).min() {
        case.now.instant = case.now.instant.max(at);
        let mut messages = Vec::new();
        while let Some(Arrival { at, events, text }) =
            arrivals.pop_front_if(|next| next.at <= case.now.instant)
        {
            messages.push(events);
            waiting.extend(text.map(|text| (at, text)));
        }
        let (due, took) = step(&mut case, messages, &mut parts);
        next = due;
        steps.push(took);
        case.now.instant += took;
        let polled = cpu_time();
        // The newest version stands for those before it.
        let newest = proxy.exchange(case.now.instant, |message| {
            waiting.iter().rposition(|(_, text)| message.windows(text.len()).any(|window| window == text))
        });
        let polled = cpu_time().saturating_sub(polled);
        let come = waiting.drain(..newest.map_or(0, |newest| newest + 1));
        latencies.extend(come.map(|(at, _)| case.now.instant + polled - at));
        other.exchange(case.now.instant, |_| None);
    }
    assert_eq!(latencies.len(), CHANGES, "all changes came");
    println!(
        "{title:34} {} |{} |{:6} | {parts:.1?}",
        figures(latencies),
        figures(steps.clone()),
        steps.len()
    );
}

/// A namespace with so many entries, of which ten get other endpoints and hosts.
fn tenant(
    entries: usize,
    hosts: usize,
    ports: u32,
    endpoints: usize,
    renames: bool,
) -> (Vec<SourceEvent>, Round) {
    let entry = move |n: usize, version: usize| {
        let host_version = if renames { version } else { 0 };
        let name = format!("e{n:02}");
        Written { namespace: TENANT, name, hosts, ports, endpoints, host_version, version }.event()
    };
    let first = (0..entries).map(|n| entry(n, 0)).collect();
    (first, Box::new(move |version| (0..entries.min(10)).map(|n| entry(n, version + 1)).collect()))
}

#[test]
#[ignore = "measures: cargo test -p pilotfish-control-plane --lib delays -- --ignored --nocapture"]
fn delays_of_an_honest_namespace() {
    let only = std::env::var("DELAYS").unwrap_or_default();
    println!(
        "{:34} {:>26} |{:>26} | steps | longest messages, backlog, publication, rest",
        "", "change p50/p99/max ms", "step p50/p99/max ms"
    );
    let case = |title: &str, (first, round): (Vec<SourceEvent>, Round)| {
        if title.contains(&only) {
            measure(title, first, &round);
        }
    };
    case("alone", (Vec::new(), Box::new(|_| Vec::new())));
    case("60 x 400 x 20 x 24", tenant(60, 400, 20, 24, false));
    case("60 x 400 x 1 x 1", tenant(60, 400, 1, 1, false));
    case("60 x 400 x 1 x 1 renamed", tenant(60, 400, 1, 1, true));
    let (first, round) = tenant(60, 400, 1, 1, false);
    let recovered: Round = Box::new(move |n| round(n).into_iter().chain([SourceEvent::Recovered]).collect());
    case("60 x 400 x 1 x 1 and Recovered", (first, recovered));
    case("1 x 10000 x 1 x 1", tenant(1, 10_000, 1, 1, false));
    case("1 x 10000 x 1 x 1 renamed", tenant(1, 10_000, 1, 1, true));
}

#[test]
#[ignore = "measures: cargo test -p pilotfish-control-plane --lib delays -- --ignored --nocapture"]
fn delays_by_a_copy_for_a_plan() {
    let mut case = Case::new();
    let service = |n: usize| {
        let name = format!("web-{n}");
        Written { namespace: HONEST, name, hosts: 1, ports: 2, endpoints: 5, host_version: 0, version: 0 }
            .event()
    };
    case.send((0..10_000).map(service).chain([SourceEvent::Listed]).collect());
    let times = (0..20).map(|_| {
        let began = cpu_time();
        let fork = case.control.fork();
        let took = cpu_time() - began;
        drop(fork);
        took
    });
    println!("copy for a plan, 10,000 services: {}", figures(times.collect()));
}
