//! Who may have an entry, what it looks like, what marks say, and what is done when.

use super::entry::{Applicant, EntryName, make};
use super::live::{Event, Live, Outcome, Task};
use super::marks::{self, Ages, CleanUp, Verdict};
use super::{Proof, Refused, Wanted, admit};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use pilotfish_config::networking::WorkloadGroup;
use pilotfish_config::read_live;
use pilotfish_model::{Kind, Object, Typed, Update, World, WorldWriter};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_700_000_000 + seconds, 0).unwrap()
}

fn object(kind: Kind, mut json: Value) -> Object {
    json["metadata"]["namespace"] = "vms".into();
    read_live(kind, &"cluster test".into(), json.to_string().as_bytes()).unwrap().object
}

fn group(account: &str) -> Object {
    object(
        Kind::WorkloadGroup,
        json!({
            "metadata": {"name": "machines", "uid": "u-1"},
            "spec": {
                "metadata": {
                    "labels": {"app": "db", "of": "group"},
                    "annotations": {"note": "n", "istio.io/autoRegistrationGroup": "renamed"},
                },
                "template": {
                    "labels": {"app": "template", "of": "template", "istio-locality": "old"},
                    "ports": {"sql": 3306}, "network": "lost", "locality": "r1/z1", "serviceAccount": account,
                },
            },
        }),
    )
}

fn world(objects: Vec<Object>) -> Arc<World> {
    let mut writer = WorldWriter::new();
    objects.into_iter().for_each(|object| writer.apply(Update::Object(object)));
    writer.publish().map(|(world, _)| world).unwrap_or_default()
}

fn applicant() -> Applicant {
    Applicant {
        group: "machines".into(),
        namespace: "vms".into(),
        address: "10.0.0.1".into(),
        ..Applicant::default()
    }
}

fn name() -> EntryName {
    applicant().made_entry().unwrap()
}

const ALL: Wanted = Wanted { registration: true, health_checks: true };
const PROOF: Proof<'_> = Proof { namespace: "vms", service_account: "db" };

#[test]
fn names_tell_workloads_of_a_group_apart() {
    let of = |address: &str, network: &str| {
        let applicant = Applicant { address: address.into(), network: network.into(), ..applicant() };
        applicant.made_entry().map(|entry| entry.to_string())
    };
    assert_eq!(of("10.0.0.1", "").unwrap(), "vms/machines-10.0.0.1");
    assert_eq!(of("10.0.0.1", "n1").unwrap(), "vms/machines-10.0.0.1-n1");
    assert_eq!(of("fd00::1", "").unwrap(), "vms/machines-fd00--1");
    let long = of("10.0.0.1", &"n".repeat(300)).unwrap();
    assert_eq!(long, format!("vms/{}", "n".repeat(253)), "the end stays");
    let cut = of("10.0.0.1", &"n".repeat(252)).unwrap();
    assert_eq!(cut, format!("vms/{}", "n".repeat(252)), "no name begins with a dash");
    for (address, network) in
        [("", ""), ("10.0.0.1", "../secrets/x"), ("10.0.0.1", "A"), ("10.0.0.1", "n?x=1")]
    {
        assert_eq!(of(address, network), None, "{address} {network}");
    }
    assert_eq!(Applicant { namespace: String::new(), ..applicant() }.made_entry(), None);
}

#[test]
fn who_may_have_an_entry() {
    let all = world(vec![group("db")]);
    assert_eq!(admit(ALL, &applicant(), &all, Some(PROOF)), Ok(Some(name())));
    assert_eq!(admit(ALL, &Applicant::default(), &all, None), Ok(None), "an ordinary proxy");
    let nowhere = Applicant { address: String::new(), ..applicant() };
    assert_eq!(admit(ALL, &nowhere, &all, Some(PROOF)), Ok(None), "goes on without an entry");
    let unknown = Applicant { group: "other".into(), ..applicant() };
    assert!(matches!(admit(ALL, &unknown, &all, Some(PROOF)), Err(Refused::NoGroup { .. })));
    let reasons = [
        (None, "the connection proves no identity"),
        (Some(Proof { namespace: "else", ..PROOF }), "the identity is of namespace \"else\""),
        (
            Some(Proof { service_account: "web", ..PROOF }),
            "the identity is of service account \"web\", not \"db\"",
        ),
    ];
    for (proof, why) in reasons {
        let refused = admit(ALL, &applicant(), &all, proof).unwrap_err();
        assert_eq!(refused.to_string(), format!("not for WorkloadEntry vms/machines-10.0.0.1: {why}"));
    }
    let any = world(vec![group("")]);
    let web = Proof { service_account: "web", ..PROOF };
    assert_eq!(
        admit(ALL, &applicant(), &any, Some(web)),
        Ok(Some(name())),
        "a group without account takes any"
    );
}

#[test]
fn an_entry_that_somebody_made_needs_its_annotation() {
    let named = Applicant { entry: "vm".into(), group: String::new(), ..applicant() };
    let with = |annotations: Value| {
        world(vec![object(
            Kind::WorkloadEntry,
            json!({"metadata": {"name": "vm", "annotations": annotations}, "spec": {"address": "10.0.0.1"}}),
        )])
    };
    assert!(matches!(admit(ALL, &named, &world(vec![]), Some(PROOF)), Err(Refused::NoEntry(_))));
    assert_eq!(admit(ALL, &named, &with(json!({})), None), Ok(None));
    for value in ["", "false", "true"] {
        let all = with(json!({"proxy.istio.io/health-checks-enabled": value}));
        assert_eq!(
            admit(ALL, &named, &all, Some(PROOF)).unwrap().unwrap().to_string(),
            "vms/vm",
            "{value:?}"
        );
        assert!(admit(ALL, &named, &all, None).is_err());
    }
}

#[test]
fn what_is_switched_off_is_as_if_nobody_asked() {
    let all = world(vec![object(
        Kind::WorkloadEntry,
        json!({
            "metadata": {"name": "vm", "annotations": {"proxy.istio.io/health-checks-enabled": "true"}},
            "spec": {"address": "10.0.0.1"},
        }),
    )]);
    let named = Applicant { entry: "vm".into(), group: String::new(), ..applicant() };
    let only = |registration, health_checks| Wanted { registration, health_checks };
    assert!(admit(only(true, false), &named, &all, None).unwrap().is_none());
    assert!(admit(only(false, true), &named, &all, Some(PROOF)).unwrap().is_some());
    let grouped = Applicant { group: "unknown".into(), ..named };
    assert!(admit(only(false, false), &grouped, &all, None).unwrap().is_none());
    assert!(
        admit(only(false, true), &grouped, &all, Some(PROOF)).unwrap().is_some(),
        "it has an entry anyhow"
    );
}

#[test]
fn a_group_out_of_a_file_owns_nothing() {
    let mut group = group("db");
    std::sync::Arc::make_mut(&mut group.meta).uid = "".into();
    let entry = make(&name(), &group.typed().unwrap(), &applicant(), "replica-a", at(0));
    assert_eq!(entry["metadata"]["ownerReferences"], json!([]));
}

fn made(applicant: &Applicant) -> Value {
    let group: Typed<WorkloadGroup> = group("db").typed().unwrap();
    make(&name(), &group, applicant, "replica-a", at(0))
}

#[test]
fn an_entry_is_made_of_template_group_and_workload() {
    let entry = made(&Applicant {
        network: "n1".into(),
        labels: [("of".to_owned(), "workload".to_owned())].into(),
        hbone: true,
        health_checks: true,
        ..applicant()
    });
    let labels = json!({"app": "db", "of": "workload", "networking.istio.io/tunnel": "http"});
    assert_eq!(entry["metadata"]["labels"], labels);
    assert_eq!(
        entry["spec"],
        json!({
            "address": "10.0.0.1", "labels": labels, "ports": {"sql": 3306}, "network": "n1", "locality": "r1/z1",
            "serviceAccount": "db",
        })
    );
    assert_eq!(
        entry["metadata"]["annotations"],
        json!({
            "istio.io/autoRegistrationGroup": "renamed", "note": "n", "proxy.istio.io/health-checks-enabled": "true",
            "istio.io/workloadController": "replica-a", "istio.io/connectedAt": "2023-11-14T22:13:20Z",
        })
    );
    let owner = &entry["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("WorkloadGroup"), &json!("machines"), &json!("u-1"))
    );
    assert_eq!(owner["controller"], true);
    let plain = made(&applicant());
    assert!(plain["metadata"]["annotations"].get("proxy.istio.io/health-checks-enabled").is_none());
    let read = read_live(Kind::WorkloadEntry, &"made".into(), plain.to_string().as_bytes()).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

const AGES: Ages = Ages { grace: SignedDuration::from_secs(10), oldest: SignedDuration::from_secs(2700) };

fn marks_of(entry: &Value) -> [Option<&str>; 3] {
    ["istio.io/workloadController", "istio.io/connectedAt", "istio.io/disconnectedAt"]
        .map(|mark| entry["metadata"]["annotations"].get(mark).and_then(Value::as_str))
}

#[test]
fn the_last_one_to_connect_keeps_the_entry() {
    let mut entry = made(&applicant());
    assert_eq!(marks::connect(&mut entry, "replica-a", at(0)), Verdict::Skip, "said already");
    assert_eq!(marks::connect(&mut entry, "replica-b", at(5)), Verdict::Write);
    assert_eq!(marks::connect(&mut entry, "replica-a", at(3)), Verdict::Skip, "it was later elsewhere");
    assert_eq!(marks::disconnect(&mut entry, "replica-a", at(0), at(6)), Verdict::Skip, "another one has it");
    assert_eq!(marks::disconnect(&mut entry, "replica-b", at(4), at(6)), Verdict::Skip, "a newer connection");
    assert_eq!(marks::disconnect(&mut entry, "replica-b", at(5), at(8)), Verdict::Write);
    let left = at(8).to_string();
    assert_eq!(marks_of(&entry), [Some("replica-b"), None, Some(&*left)]);
    assert_eq!(marks::disconnect(&mut entry, "replica-b", at(5), at(8)), Verdict::Skip, "said already");
    assert_eq!(marks::connect(&mut entry, "replica-a", at(7)), Verdict::Write, "it came before it left");
    let back = at(7).to_string();
    assert_eq!(marks_of(&entry), [Some("replica-a"), Some(&*back), None]);
}

#[test]
fn an_entry_goes_when_nobody_was_connected_for_too_long() {
    let mut entry = made(&applicant());
    assert_eq!(marks::clean_up(&mut entry, at(2700), AGES), CleanUp::Leave);
    assert_eq!(marks::clean_up(&mut entry, at(2701), AGES), CleanUp::Delete, "the mark of a dead replica");
    marks::disconnect(&mut entry, "replica-a", at(0), at(100));
    assert_eq!(marks::clean_up(&mut entry, at(109), AGES), CleanUp::Leave);
    assert_eq!(marks::clean_up(&mut entry, at(110), AGES), CleanUp::Delete);
    let mut foreign = json!({"metadata": {"name": "x"}});
    assert_eq!(marks::clean_up(&mut foreign, at(9999), AGES), CleanUp::Leave);
}

#[test]
fn health_is_told_by_the_replica_in_charge_and_forgotten_with_the_workload() {
    let mut entry = json!({"metadata": {"name": "vm"}});
    assert_eq!(marks::report(&mut entry, "a", at(1), &Ok(())), Verdict::Skip, "not in charge");
    marks::connect(&mut entry, "a", at(0));
    assert_eq!(marks::report(&mut entry, "a", at(2), &Err("down".into())), Verdict::Write);
    assert_eq!(marks::report(&mut entry, "a", at(1), &Ok(())), Verdict::Skip, "older");
    let probed = at(2).to_string();
    let want = json!([{
        "type": "Healthy", "status": "False", "message": "down", "lastProbeTime": probed, "lastTransitionTime": probed,
    }]);
    assert_eq!(entry["status"]["conditions"], want);
    assert_eq!(marks::report(&mut entry, "a", at(3), &Err("down".into())), Verdict::Skip, "said already");
    assert_eq!(marks::report(&mut entry, "a", at(3), &Ok(())), Verdict::Write);
    assert_eq!(entry["status"]["conditions"][0]["status"], "True");
    assert!(entry["status"]["conditions"][0].get("message").is_none());
    entry["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Other", "status": "True"}));
    marks::disconnect(&mut entry, "a", at(0), at(4));
    assert_eq!(marks::clean_up(&mut entry, at(20), AGES), CleanUp::ForgetHealth);
    assert_eq!(entry["status"]["conditions"], json!([{"type": "Other", "status": "True"}]));
    assert_eq!(marks::clean_up(&mut entry, at(20), AGES), CleanUp::Leave);
}

/// The machine with its clock.
struct Scene {
    live: Live,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { live: Live::new(Duration::from_secs(10)), now: Instant::now() }
    }

    fn connect(&mut self, connection: u64, time: i64) {
        self.live.take(Event::Connected { connection, entry: name(), applicant: applicant(), at: at(time) });
    }

    fn disconnect(&mut self, connection: u64, time: i64) {
        self.live.take(Event::Disconnected { connection, entry: name(), at: at(time) });
    }

    fn due(&mut self) -> Option<Task> {
        let mut due = self.live.due(self.now);
        assert!(due.len() < 2);
        due.pop().map(|(_, task)| task)
    }

    fn done(&mut self, task: &Task, outcome: Outcome) {
        self.live.done(&name(), task, outcome, self.now);
    }

    /// What is due is done; as words.
    fn work(&mut self) -> String {
        self.now += Duration::from_millis(1);
        let Some(task) = self.due() else { return String::new() };
        self.done(&task, Outcome::Done);
        match task {
            Task::Connect { at: time, .. } => {
                format!("connected at {}", time.duration_since(at(0)).as_secs())
            }
            Task::Disconnect { connected, at: time } => format!(
                "disconnected at {}, connected at {}",
                time.duration_since(at(0)).as_secs(),
                connected.duration_since(at(0)).as_secs()
            ),
            Task::Report { health, .. } => format!("{health:?}"),
            Task::CleanUp => "clean up".into(),
        }
    }
}

#[test]
fn only_the_last_connection_counts_and_the_grace_time_follows() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    assert_eq!(scene.work(), "connected at 0");
    scene.connect(2, 5);
    assert_eq!(scene.work(), "connected at 5");
    scene.disconnect(1, 6);
    assert_eq!(scene.work(), "");
    scene.disconnect(2, 7);
    assert_eq!(scene.work(), "disconnected at 7, connected at 5");
    assert_eq!(scene.work(), "");
    scene.now += Duration::from_secs(9);
    assert_eq!(scene.work(), "");
    scene.now += Duration::from_secs(1);
    assert_eq!(scene.work(), "clean up");
    assert_eq!(scene.live.next(), None, "nothing is left");
}

#[test]
fn a_workload_that_returns_in_time_keeps_its_entry() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    scene.work();
    scene.disconnect(1, 1);
    scene.work();
    scene.connect(2, 3);
    assert_eq!(scene.work(), "connected at 3");
    scene.now += Duration::from_secs(60);
    assert_eq!(scene.work(), "");
}

#[test]
fn what_happens_meanwhile_is_told_once() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    let task = scene.due().unwrap();
    scene.disconnect(1, 1);
    scene.connect(2, 2);
    scene.disconnect(2, 3);
    scene.connect(3, 4);
    assert_eq!(scene.due(), None, "one thing at a time");
    scene.done(&task, Outcome::Done);
    assert_eq!(scene.work(), "connected at 4");
    assert_eq!(scene.work(), "");
}

#[test]
fn what_fails_is_tried_on_ever_more_seldom() {
    let mut scene = Scene::new();
    let fail = |scene: &mut Scene, outcome| {
        let task = scene.due().unwrap();
        scene.done(&task, outcome);
        assert_eq!(scene.due(), None);
        let next = scene.live.next()?;
        let pause = next.duration_since(scene.now).as_millis();
        scene.now = next;
        Some(pause)
    };
    scene.connect(1, 0);
    for pause in [5, 10, 20, 40] {
        assert_eq!(fail(&mut scene, Outcome::Retry), Some(pause));
    }
    for _ in 0..100 {
        let pause = fail(&mut scene, Outcome::Retry).unwrap();
        assert!((80..=15_000).contains(&pause), "{pause}");
    }
    assert_eq!(fail(&mut scene, Outcome::Retry), Some(15_000), "a connection is not forgotten");
    assert_eq!(scene.work(), "connected at 0");
    scene.disconnect(1, 1);
    for _ in 0..20 {
        fail(&mut scene, Outcome::Retry);
    }
    assert_eq!(scene.work(), "disconnected at 1, connected at 0", "nor is a workload that left");
}

#[test]
fn what_may_be_hopeless_is_tried_five_times_and_again_at_the_sweep() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    for _ in 0..5 {
        scene.now += Duration::from_secs(1);
        let task = scene.due().unwrap();
        scene.done(&task, Outcome::Missing);
    }
    assert_eq!((scene.due(), scene.live.next()), (None, None));
    scene.now += Duration::from_secs(10);
    scene.live.renew(|_| false, at(-1800), at(100));
    assert_eq!(scene.work(), "connected at 0");
    scene.live.renew(|_| true, at(-1800), at(100));
    assert_eq!(scene.work(), "", "all is well");
    scene.live.renew(|_| true, at(0), at(1800));
    assert_eq!(scene.work(), "connected at 1800", "an old mark is written anew");
    scene.disconnect(1, 1900);
    assert_eq!(scene.work(), "disconnected at 1900, connected at 1800");
}

#[test]
fn at_the_end_nothing_is_tried_for_ever() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    for _ in 0..20 {
        scene.now += Duration::from_secs(15);
        let task = scene.due().unwrap();
        scene.done(&task, Outcome::Retry);
    }
    scene.disconnect(1, 1);
    let task = scene.due().unwrap();
    scene.done(&task, Outcome::Retry);
    scene.live.end();
    for _ in 0..5 {
        assert!(scene.live.has_news());
        let task = scene.due().unwrap();
        scene.done(&task, Outcome::Retry);
        scene.now += Duration::from_millis(500);
    }
    assert!(!scene.live.has_news());
}

#[test]
fn a_workload_that_comes_and_goes_without_end_is_told_of_once_in_a_second() {
    let mut scene = Scene::new();
    let mut told = 0;
    for n in 0..1000 {
        scene.connect(n, n as i64);
        told += usize::from(!scene.work().is_empty());
        scene.live.take(Event::Health { entry: name(), at: at(n as i64), health: Ok(()) });
        told += usize::from(!scene.work().is_empty());
        scene.disconnect(n, n as i64);
        told += usize::from(!scene.work().is_empty());
        scene.now += Duration::from_millis(7);
    }
    assert!((14..=16).contains(&told), "{told} in 10 s, 5 of them at once");
    scene.now += Duration::from_secs(1);
    assert_eq!(scene.work(), "disconnected at 999, connected at 999", "the last word is told");
}

#[test]
fn what_others_did_to_the_entry_of_a_connected_workload_is_mended() {
    let mut scene = Scene::new();
    scene.live.take(Event::Left { entry: name() });
    assert_eq!(scene.work(), "", "nobody is connected here");
    scene.connect(1, 0);
    scene.live.take(Event::Health { entry: name(), at: at(1), health: Err("down".into()) });
    assert_eq!((scene.work(), scene.work()), ("connected at 0".into(), "Err(\"down\")".into()));
    scene.live.take(Event::Left { entry: name() });
    assert_eq!((scene.work(), scene.work()), ("connected at 0".into(), "Err(\"down\")".into()));
    scene.live.take(Event::Gone { entry: name(), at: scene.now });
    assert_eq!(scene.work(), "", "not at once: somebody may take it away again and again");
    scene.now += Duration::from_secs(1);
    assert_eq!((scene.work(), scene.work()), ("connected at 0".into(), "Err(\"down\")".into()));
}

#[test]
fn health_follows_the_connection_and_the_newest_counts() {
    let mut scene = Scene::new();
    let report = |scene: &mut Scene, time, health: Result<(), &str>| {
        scene.live.take(Event::Health { entry: name(), at: at(time), health: health.map_err(str::to_owned) });
    };
    report(&mut scene, 0, Ok(()));
    assert_eq!(scene.work(), "", "nobody is connected");
    scene.connect(1, 0);
    report(&mut scene, 1, Ok(()));
    report(&mut scene, 2, Err("down"));
    assert_eq!(scene.work(), "connected at 0");
    assert_eq!(scene.work(), "Err(\"down\")");
    assert_eq!(scene.work(), "");
    report(&mut scene, 3, Ok(()));
    scene.disconnect(1, 4);
    assert_eq!(scene.work(), "disconnected at 4, connected at 0");
    assert_eq!(scene.work(), "", "a workload that is gone has no health");
}

#[test]
fn a_group_that_is_made_again_registers_its_workloads() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    scene.work();
    let added = |group: &str| Event::GroupAdded { namespace: "vms".into(), name: group.into() };
    scene.live.take(added("other"));
    assert_eq!(scene.work(), "");
    scene.live.take(added("machines"));
    assert_eq!(scene.work(), "connected at 0");
}

#[test]
fn clean_ups_come_one_after_the_other_and_spare_the_connected() {
    let mut scene = Scene::new();
    let entry = |n: u32| EntryName { namespace: "vms".into(), name: format!("e{n}").into() };
    scene.connect(1, 0);
    scene.work();
    scene.live.suspect(&name(), scene.now);
    (0..3).for_each(|n| scene.live.suspect(&entry(n), scene.now));
    for n in 0..3 {
        assert_eq!(scene.live.due(scene.now), [(entry(n), Task::CleanUp)]);
        scene.live.done(&entry(n), &Task::CleanUp, Outcome::Done, scene.now);
        assert_eq!(scene.live.due(scene.now), []);
        scene.now += Duration::from_millis(50);
    }
    assert_eq!(scene.live.next(), None);
}

/// Two replicas with the marks of one entry between them; a workload moves from one to the other as it likes.
#[derive(Clone, Copy, Debug)]
enum Move {
    Connect(usize),
    Disconnect(usize),
    /// The replica does what it has to do.
    Work(usize),
}

proptest! {
    /// Whatever the order in which replicas write: when all is done, the entry says who has the workload, or since when nobody
    /// has it.
    #[test]
    fn replicas_agree_in_the_end(
        moves in proptest::collection::vec((0usize..2, 0u8..3), 1..40),
    ) {
        let mut replicas = [Scene::new(), Scene::new()];
        let names = ["replica-a", "replica-b"];
        let mut entry = json!({"metadata": {"name": "machines-10.0.0.1"}});
        // The connection of the workload: at most one, as of one proxy.
        let mut connected: Option<(usize, u64)> = None;
        let mut time = 0;
        let mut work = |replica: &mut Scene, at_replica: usize| {
            replica.now += Duration::from_secs(1);
            let Some(task) = replica.due() else { return false };
            match &task {
                Task::Connect { at, .. } => marks::connect(&mut entry, names[at_replica], *at),
                Task::Disconnect { connected, at } => {
                    marks::disconnect(&mut entry, names[at_replica], *connected, *at)
                }
                _ => Verdict::Skip,
            };
            replica.done(&task, Outcome::Done);
            true
        };
        let moves = moves.into_iter().map(|(replica, what)| match what {
            0 => Move::Connect(replica),
            1 => Move::Disconnect(replica),
            _ => Move::Work(replica),
        });
        for (number, next) in moves.enumerate() {
            time += 1;
            match next {
                Move::Connect(replica) => {
                    // It connects before the other replica sees that it left.
                    replicas[replica].connect(number as u64, time);
                    time += 1;
                    if let Some((old, number)) = connected.replace((replica, number as u64)) {
                        replicas[old].disconnect(number, time);
                    }
                }
                Move::Disconnect(replica) => {
                    if let Some((_, number)) = connected.take_if(|(at, _)| *at == replica) {
                        replicas[replica].disconnect(number, time);
                    }
                }
                Move::Work(replica) => {
                    work(&mut replicas[replica], replica);
                }
            }
        }
        for (at_replica, replica) in replicas.iter_mut().enumerate() {
            while work(replica, at_replica) {}
        }
        let marks = marks_of(&entry);
        match connected {
            Some((replica, _)) => prop_assert_eq!((marks[0], marks[1].is_some(), marks[2]), (Some(names[replica]), true, None)),
            None => prop_assert!(marks[1].is_none(), "{:?}", marks),
        }
    }
}
