//! Allocation by table, and by random histories against an API server that lags.

use super::*;
use pilotfish_config::networking::Resolution;
use pilotfish_model::{Kind, LabelMap, ObjectMeta};
use proptest::prelude::*;
use serde_json::json;

/// What the API server has of an entry.
#[derive(Clone, Debug, Default)]
struct Stored {
    version: u64,
    created: i64,
    hosts: Vec<&'static str>,
    typed: Vec<&'static str>,
    refuses: bool,
    resolution: Resolution,
    addresses: Vec<HostAddress>,
}

impl Stored {
    fn of(created: i64, hosts: &[&'static str], addresses: &[(&str, &str)]) -> Self {
        let addresses = addresses
            .iter()
            .map(|(host, value)| HostAddress { host: (*host).into(), value: (*value).into() });
        Self {
            version: 1,
            created,
            hosts: hosts.to_vec(),
            resolution: Resolution::Static,
            addresses: addresses.collect(),
            ..Self::default()
        }
    }

    fn object(&self, name: &str) -> Object {
        let labels = self.refuses.then_some(("networking.istio.io/enable-autoallocate-ip", "False"));
        let labels: LabelMap = labels.into_iter().collect();
        let meta = ObjectMeta { created: self.created, labels: labels.into(), ..ObjectMeta::of(key(name)) };
        let entry = ServiceEntry {
            hosts: self.hosts.iter().map(|host| (*host).to_owned()).collect(),
            addresses: self.typed.iter().map(|address| (*address).to_owned()).collect(),
            resolution: self.resolution,
            ..ServiceEntry::default()
        };
        Object::new(meta, entry)
    }

    fn status(&self) -> Value {
        let address = |address: &HostAddress| json!({"host": address.host, "value": address.value});
        json!({"addresses": self.addresses.iter().map(address).collect::<Vec<_>>()})
    }

    /// The hosts that are to have addresses.
    fn eligible(&self) -> BTreeSet<&'static str> {
        let goes = !self.refuses && self.typed.is_empty() && self.resolution != Resolution::None;
        let kept =
            |host: &&&str| goes && (!host.starts_with('*') || self.resolution == Resolution::DynamicDns);
        self.hosts.iter().filter(kept).copied().collect()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::ServiceEntry, "ns", name)
}

fn receiver(allocator: &mut Allocator, name: &str, stored: &Stored) {
    allocator.stored(&key(name), Some(&stored.object(name)), &stored.status());
}

/// The changed addresses of each entry, as `name: host=address ...`.
fn settled(allocator: &mut Allocator) -> Vec<String> {
    let line = |(key, addresses): (ObjectKey, Vec<HostAddress>)| {
        let pairs = addresses.iter().map(|address| format!(" {}={}", address.host, address.value));
        format!("{}:{}", key.name, pairs.collect::<String>())
    };
    allocator.settle().into_iter().map(line).collect()
}

/// An allocator that knows these entries.
fn knows(entries: &[(&str, Stored)]) -> Allocator {
    let mut allocator = Allocator::new(AddressRanges::default());
    entries.iter().for_each(|(name, stored)| receiver(&mut allocator, name, stored));
    allocator.listed();
    allocator
}

#[test]
fn hosts_are_given_the_next_addresses_the_oldest_entry_first() {
    let entries = [
        ("b", Stored::of(1, &["b.com", "b.com", "*.b.com", "c.com"], &[])),
        ("a", Stored::of(2, &["a.com"], &[])),
    ];
    let mut allocator = Allocator::new(AddressRanges::default());
    receiver(&mut allocator, "a", &entries[1].1);
    assert!(settled(&mut allocator).is_empty(), "not before all are known");
    receiver(&mut allocator, "b", &entries[0].1);
    allocator.listed();
    let expected = [
        "b: b.com=240.240.0.1 b.com=2001:2::1 c.com=240.240.0.2 c.com=2001:2::2",
        "a: a.com=240.240.0.3 a.com=2001:2::3",
    ];
    assert_eq!(settled(&mut allocator), expected);
    assert!(settled(&mut allocator).is_empty(), "once");
}

#[test]
fn who_takes_none_is_given_none_and_loses_what_it_had() {
    let had = [("a.com", "240.240.0.9"), ("a.com", "2001:2::9")];
    let of = |change: fn(&mut Stored)| {
        let mut stored = Stored::of(1, &["a.com"], &had);
        change(&mut stored);
        stored
    };
    for (case, stored) in [
        ("own address", of(|stored| stored.typed = vec!["10.0.0.1"])),
        ("label", of(|stored| stored.refuses = true)),
        ("resolution", of(|stored| stored.resolution = Resolution::None)),
        ("wildcard", of(|stored| stored.hosts = vec!["*.a.com"])),
        ("other host", of(|stored| stored.hosts = vec!["*.b.com"])),
    ] {
        assert_eq!(settled(&mut knows(&[("a", stored.clone())])), ["a:"], "{case}");
        let never = Stored { addresses: Vec::new(), ..stored };
        assert!(settled(&mut knows(&[("a", never)])).is_empty(), "{case}");
    }
    let dynamic = Stored { resolution: Resolution::DynamicDns, ..Stored::of(1, &["*.a.com"], &[]) };
    assert_eq!(settled(&mut knows(&[("a", dynamic)])), ["a: *.a.com=240.240.0.1 *.a.com=2001:2::1"]);
}

#[test]
fn addresses_in_a_status_count_whichever_replica_wrote_them() {
    let complete = Stored::of(1, &["a.com"], &[("a.com", "240.240.7.7"), ("a.com", "2001:2::a:7")]);
    let by_hand = Stored::of(2, &["b.com"], &[("b.com", "10.9.8.7"), ("gone.com", "240.240.1.1")]);
    let mut allocator = knows(&[("a", complete), ("b", by_hand), ("c", Stored::of(3, &["c.com"], &[]))]);
    let expected = [
        "a: a.com=240.240.7.7 a.com=2001:2::a:7",
        "b: b.com=10.9.8.7 b.com=2001:2::a:8",
        "c: c.com=240.240.7.8 c.com=2001:2::a:9",
    ];
    assert_eq!(settled(&mut allocator), expected);
}

#[test]
fn the_older_one_keeps_an_address_and_people_win_over_everybody() {
    let same = [("x.com", "240.240.0.5"), ("x.com", "2001:2::5")];
    let (old, young) = (Stored::of(1, &["x.com"], &same), Stored::of(2, &["x.com"], &same));
    let mut allocator = knows(&[("old", old), ("young", young.clone())]);
    let first = ["old: x.com=240.240.0.5 x.com=2001:2::5", "young: x.com=240.240.0.6 x.com=2001:2::6"];
    assert_eq!(settled(&mut allocator), first);
    receiver(&mut allocator, "young", &young);
    assert!(settled(&mut allocator).is_empty(), "the write is under way");

    let typed = Stored { typed: vec!["240.240.0.5/32", "10.0.0.0/8"], ..Stored::of(9, &["y.com"], &[]) };
    receiver(&mut allocator, "typed", &typed);
    assert_eq!(settled(&mut allocator), ["old: x.com=2001:2::5 x.com=240.240.0.7"]);

    // An older one comes with what another controller gave it.
    receiver(&mut allocator, "oldest", &Stored::of(0, &["z.com"], &[("z.com", "240.240.0.6")]));
    let expected = ["oldest: z.com=240.240.0.6 z.com=2001:2::7", "young: x.com=2001:2::6 x.com=240.240.0.8"];
    assert_eq!(settled(&mut allocator), expected);
}

#[test]
fn two_hosts_of_one_entry_never_share() {
    let shared = Stored::of(1, &["b.com", "a.com"], &[("b.com", "240.240.0.5"), ("a.com", "240.240.0.5")]);
    let expected = ["a: b.com=240.240.0.6 b.com=2001:2::1 a.com=240.240.0.5 a.com=2001:2::2"];
    assert_eq!(settled(&mut knows(&[("a", shared)])), expected);
}

#[test]
fn an_address_that_was_given_up_rests_while_there_are_others() {
    let mut allocator =
        knows(&[("a", Stored::of(1, &["a.com"], &[])), ("b", Stored::of(2, &["b.com"], &[]))]);
    settled(&mut allocator);
    allocator.gone(&key("a"));
    receiver(&mut allocator, "c", &Stored::of(3, &["c.com"], &[]));
    assert_eq!(settled(&mut allocator), ["c: c.com=240.240.0.3 c.com=2001:2::3"]);
}

#[test]
fn a_status_that_was_emptied_gets_the_same_again() {
    let has = Stored::of(1, &["a.com"], &[("a.com", "240.240.0.7"), ("a.com", "2001:2::7")]);
    let mut allocator = knows(&[("a", has.clone())]);
    settled(&mut allocator);
    receiver(&mut allocator, "a", &Stored { addresses: Vec::new(), ..has });
    assert!(settled(&mut allocator).is_empty(), "what was sent holds");
    receiver(&mut allocator, "b", &Stored::of(2, &["b.com"], &[]));
    assert_eq!(settled(&mut allocator), ["b: b.com=240.240.0.8 b.com=2001:2::8"]);
}

#[test]
fn an_entry_that_cannot_be_read_keeps_what_it_has() {
    let has = Stored::of(5, &["a.com"], &[("a.com", "240.240.0.1")]);
    let mut allocator = Allocator::new(AddressRanges::default());
    allocator.stored(&key("broken"), None, &has.status());
    receiver(&mut allocator, "b", &Stored::of(1, &["b.com"], &[]));
    allocator.listed();
    assert_eq!(settled(&mut allocator), ["b: b.com=240.240.0.2 b.com=2001:2::1"]);
}

#[test]
fn who_found_none_free_is_served_when_there_is_one() {
    let ranges = AddressRanges { v4: "10.0.0.0/30".parse().unwrap(), ..AddressRanges::default() };
    let mut allocator = Allocator::new(ranges);
    for (created, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        receiver(&mut allocator, name, &Stored::of(i64::try_from(created).unwrap(), &["x.com"], &[]));
    }
    allocator.listed();
    let expected = [
        "a: x.com=10.0.0.1 x.com=2001:2::1",
        "b: x.com=10.0.0.2 x.com=2001:2::2",
        "c: x.com=10.0.0.3 x.com=2001:2::3",
        "d: x.com=2001:2::4",
        "e: x.com=2001:2::5",
    ];
    assert_eq!(settled(&mut allocator), expected);
    allocator.gone(&key("b"));
    assert_eq!(settled(&mut allocator), ["d: x.com=2001:2::4 x.com=10.0.0.2"]);
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const HOSTS: [&str; 5] = ["a.com", "b.com", "c.com", "*.d.com", "e.com"];
const VALUES: [&str; 6] = ["240.240.0.1", "240.240.0.2", "2001:2::1", "2001:2::2", "10.0.0.1", "nonsense"];

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// People create or change an entry.
    Apply(usize, Box<Stored>),
    /// People delete one.
    Delete(usize),
    /// Another controller writes a status.
    Foreign(usize, Vec<HostAddress>),
    /// So many events of the watch arrive.
    Hear(usize),
    /// So many of our writes land.
    Land(usize),
    /// Another replica goes on.
    Restart,
}

fn addresses() -> impl Strategy<Value = Vec<HostAddress>> {
    let one = (prop::sample::select(&HOSTS[..]), prop::sample::select(&VALUES[..]));
    let pair = |(host, value): (&str, &str)| HostAddress { host: host.into(), value: value.into() };
    prop::collection::vec(one.prop_map(pair), 0..3)
}

fn entry() -> impl Strategy<Value = Stored> {
    let hosts = prop::collection::vec(prop::sample::select(&HOSTS[..]), 1..4);
    let typed =
        prop_oneof![4 => Just(Vec::new()), 1 => Just(vec!["240.240.0.1"]), 1 => Just(vec!["10.0.0.0/8"])];
    let resolution = prop_oneof![
        4 => Just(Resolution::Static),
        1 => Just(Resolution::None),
        1 => Just(Resolution::DynamicDns)
    ];
    let fields = (hosts, typed, resolution, prop::bool::weighted(0.1), 0..4i64, addresses());
    fields.prop_map(|(hosts, typed, resolution, refuses, created, addresses)| Stored {
        version: 0,
        created,
        hosts,
        typed,
        refuses,
        resolution,
        addresses,
    })
}

fn event() -> impl Strategy<Value = Event> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => (name.clone(), entry()).prop_map(|(name, entry)| Event::Apply(name, Box::new(entry))),
        1 => name.clone().prop_map(Event::Delete),
        2 => (name, addresses()).prop_map(|(name, addresses)| Event::Foreign(name, addresses)),
        4 => (1..5usize).prop_map(Event::Hear),
        4 => (1..3usize).prop_map(Event::Land),
        1 => Just(Event::Restart),
    ]
}

/// An API server, its watch, and a writer as the queue is one: a write names the version that was received
/// last.
struct Cluster {
    entries: BTreeMap<&'static str, Stored>,
    version: u64,
    watch: std::collections::VecDeque<(&'static str, Option<Stored>)>,
    allocator: Allocator,
    /// What is wanted, and what was received last.
    wanted: BTreeMap<ObjectKey, Vec<HostAddress>>,
    received: BTreeMap<&'static str, Stored>,
    writes: usize,
}

impl Cluster {
    fn new() -> Self {
        let mut allocator = Allocator::new(AddressRanges::default());
        allocator.listed();
        Self {
            entries: BTreeMap::new(),
            version: 0,
            watch: Default::default(),
            allocator,
            wanted: BTreeMap::new(),
            received: BTreeMap::new(),
            writes: 0,
        }
    }

    fn change(&mut self, name: &'static str, new: Option<Stored>) {
        self.version += 1;
        match new {
            Some(new) => {
                let new = Stored { version: self.version, ..new };
                self.watch.push_back((name, Some(new.clone())));
                self.entries.insert(name, new);
            }
            None => {
                self.watch.push_back((name, None));
                self.entries.remove(name);
            }
        }
    }

    fn handle_watch(&mut self) {
        let Some((name, news)) = self.watch.pop_front() else { return };
        match news {
            Some(stored) => {
                receiver(&mut self.allocator, name, &stored);
                self.received.insert(name, stored);
            }
            None => {
                self.allocator.gone(&key(name));
                self.received.remove(name);
                self.wanted.remove(&key(name));
            }
        }
        self.wanted.extend(self.allocator.settle());
    }

    /// The first write that is wanted lands, or is refused.
    fn land(&mut self) -> bool {
        let differs = |name: &&&'static str, stored: &Stored| {
            let wanted = self.wanted.get(&key(name));
            let sorted = |list: &[HostAddress]| list.iter().cloned().collect::<BTreeSet<_>>();
            wanted.is_some_and(|wanted| sorted(wanted) != sorted(&HostAddress::stored(&stored.status())))
        };
        let due = self.received.iter().find(|(name, stored)| {
            let is_newest = self.entries.get(*name).is_some_and(|now| now.version == stored.version);
            is_newest && differs(name, stored)
        });
        let Some((&name, stored)) = due else { return false };
        let addresses = self.wanted.get(&key(name)).cloned().unwrap_or_default();
        let new = Stored { addresses, ..stored.clone() };
        self.writes += 1;
        self.change(name, Some(new));
        true
    }

    /// Another replica goes on: it lists everything, in whatever order.
    fn restart(&mut self) {
        self.watch.clear();
        self.wanted.clear();
        self.received = self.entries.clone();
        self.allocator = Allocator::new(AddressRanges::default());
        for (name, stored) in self.entries.iter().rev() {
            receiver(&mut self.allocator, name, stored);
        }
        self.allocator.listed();
        self.wanted.extend(self.allocator.settle());
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Apply(name, entry) => {
                let before = NAMES.get(name).and_then(|name| self.entries.get(name)).cloned();
                // The age of an object never changes, and people do not write its status.
                let entry = match before {
                    Some(before) => Stored { created: before.created, addresses: before.addresses, ..*entry },
                    None => *entry,
                };
                self.change(NAMES[name], Some(entry));
            }
            Event::Delete(name) => {
                if self.entries.contains_key(NAMES[name]) {
                    self.change(NAMES[name], None);
                }
            }
            Event::Foreign(name, addresses) => {
                if let Some(entry) = self.entries.get(NAMES[name]).cloned() {
                    self.change(NAMES[name], Some(Stored { addresses, ..entry }));
                }
            }
            Event::Hear(count) => (0..count).for_each(|_| self.handle_watch()),
            Event::Land(count) => {
                let landed = (0..count).take_while(|_| self.land()).count();
                assert!(landed <= count);
            }
            Event::Restart => self.restart(),
        }
    }

    /// Lets everything arrive; the number of writes that this took.
    fn come_to_rest(&mut self) -> usize {
        let before = self.writes;
        for _ in 0..1000 {
            while !self.watch.is_empty() {
                self.handle_watch();
            }
            if !self.land() {
                return self.writes - before;
            }
        }
        panic!("writes never end");
    }
}

/// Every host has what it is to have, and no two share one.
fn check(cluster: &Cluster) -> Result<(), TestCaseError> {
    let mut holders: BTreeMap<IpAddr, (&str, String)> = BTreeMap::new();
    let typed: BTreeSet<IpAddr> = cluster
        .entries
        .values()
        .flat_map(|entry| entry.typed.iter().filter_map(|address| address.parse().ok()))
        .collect();
    for (name, entry) in &cluster.entries {
        let eligible = entry.eligible();
        let hosts: BTreeSet<&str> = entry.addresses.iter().map(|address| address.host.as_str()).collect();
        prop_assert_eq!(&hosts, &eligible, "{}", name);
        for host in eligible {
            let of_host = entry.addresses.iter().filter(|address| address.host == host);
            let parsed: Vec<IpAddr> = of_host.filter_map(|address| address.value.parse().ok()).collect();
            prop_assert!(
                parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6),
                "{}",
                name
            );
        }
        for address in &entry.addresses {
            let Ok(ip) = address.value.parse() else {
                return Err(TestCaseError::fail(format!("{name}: {address:?}")));
            };
            prop_assert!(!typed.contains(&ip), "{} has {} that people wrote", name, ip);
            let other = holders.insert(ip, (name, address.host.clone()));
            prop_assert!(other.is_none(), "{} and {:?} share {}", name, other, ip);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever people and other controllers do and however late it arrives: at rest every host has its
    /// addresses, no two hosts share one, and a new leader has nothing to write.
    #[test]
    fn two_hosts_never_share(events in prop::collection::vec(event(), 0..60)) {
        let mut cluster = Cluster::new();
        for event in events {
            cluster.apply(event);
        }
        cluster.come_to_rest();
        check(&cluster)?;
        let before: Vec<_> = cluster.entries.values().map(|entry| entry.addresses.clone()).collect();
        cluster.restart();
        prop_assert_eq!(cluster.come_to_rest(), 0, "the next leader writes");
        let after: Vec<_> = cluster.entries.values().map(|entry| entry.addresses.clone()).collect();
        prop_assert_eq!(before, after);
    }

    /// The same entries have the same addresses in whatever order they are listed.
    #[test]
    fn the_order_of_the_list_does_not_matter(
        entries in prop::collection::vec(entry(), NAMES.len()),
        order in Just(NAMES).prop_shuffle(),
    ) {
        let by_name: BTreeMap<&str, Stored> = NAMES.into_iter().zip(entries).collect();
        let outcome = |names: &[&str]| {
            let mut allocator = Allocator::new(AddressRanges::default());
            names.iter().for_each(|name| receiver(&mut allocator, name, &by_name[name]));
            allocator.listed();
            settled(&mut allocator)
        };
        prop_assert_eq!(outcome(&NAMES), outcome(&order));
    }
}
