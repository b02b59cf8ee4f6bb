use super::testing::{Case, at, key, object, progress, refuses};
use super::*;
use pilotfish_config::networking::VirtualService;
use pilotfish_model::{
    Endpoint, HealthStatus, Hostname, Kind, Object, ObjectKey, ObjectMeta, Port, Protocol, Provider,
    ServiceKey, ShardKey, Workload,
};
use pilotfish_proto::ResourceType;
use pilotfish_xds::{ClientId, Progress, Types};
use std::borrow::Cow;
use std::time::{Duration, Instant};

impl Case {
    fn hosts_at(&self, revision: u64) -> Result<Vec<String>, NotKept> {
        let world = self.history.world_at(revision)?;
        let hosts = world
            .objects(Kind::VirtualService)
            .map(|object| object.typed::<VirtualService>().unwrap().hosts[0].clone());
        Ok(hosts.collect())
    }
}

#[test]
fn every_revision_that_is_kept_is_as_it_was() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one"), object("b", "two")], &[]);
    let change = case.publish(vec![object("a", "three"), Update::RemoveObject(key("b"))], &[7, 3, 7]);
    case.publish(vec![object("c", "four")], &[3, 7]);
    assert_eq!(case.hosts_at(1).unwrap(), ["one", "two"]);
    assert_eq!(case.hosts_at(2).unwrap(), ["three"]);
    assert_eq!(case.hosts_at(3).unwrap(), ["three", "four"]);
    assert_eq!(case.hosts_at(4), Err(NotKept::Unknown { revision: 4, newest: 3 }));
    assert_eq!(
        change.summary(),
        "VirtualService shop/a changed (generation 3), VirtualService shop/b removed (generation 3)"
    );
    assert_eq!(change.sources(), "routes.yaml:1");
    assert!(
        change.items[0].concerns("VirtualService shop/a")
            && !change.items[0].concerns("VirtualService shop/b")
    );
    assert_eq!(*change.concerned, [ClientId(3), ClientId(7)]);
    let changes = case.history.changes();
    assert!(Arc::ptr_eq(&changes[0].concerned, &changes[1].concerned), "the same clients are kept once");
    assert!(changes[2].is_first && changes[2].items.is_empty());
}

#[test]
fn to_note_a_change_is_no_work_and_who_asks_finds_it() {
    let mut case = Case::default();
    for revision in 1..=NOTED as u64 {
        case.note(vec![object("a", &format!("host-{revision}"))], &[1]);
        assert_eq!(case.history.noted.lock().len() as u64, revision, "nothing is done with it yet");
    }
    assert_eq!(case.history.kept.lock().revision, 0);
    assert_eq!(case.history.span(), (1, NOTED as u64));
    assert!(case.history.noted.lock().is_empty());
    assert_eq!(case.hosts_at(7).unwrap(), ["host-7"]);
    // Where nobody comes, the worlds that wait are limited.
    for revision in 0..3 * NOTED {
        case.note(vec![object("a", &format!("other-{revision}"))], &[1]);
        assert!(case.history.noted.lock().len() <= NOTED);
    }
    assert_eq!(case.history.changes().len(), 4 * NOTED);
}

#[tokio::test]
async fn the_tracker_gets_each_change_once_even_where_it_did_not_wait() {
    let mut case = Case::default();
    for revision in 1..=3 {
        case.note(vec![object("a", &format!("host-{revision}"))], &[1]);
    }
    let history = Arc::new(std::mem::take(&mut case.history));
    let mut news = tokio::select! {
        biased;
        news = history.untracked() => news,
        () = std::future::ready(()) => Vec::new(),
    };
    if news.is_empty() {
        news = history.untracked().await;
    }
    let revisions: Vec<u64> = news.iter().map(|change| change.revision).collect();
    assert_eq!(revisions, [1, 2, 3]);
}

#[test]
fn of_a_service_with_thousands_of_endpoints_the_one_that_changed_is_named() {
    let shard = |instance: &str| ShardKey::new(Provider::new(7, "invented"), "east").with_instance(instance);
    let hostname = Hostname::parse("web.example.com").unwrap();
    let service = ServiceKey { hostname, namespace: "shop".into() };
    let port = Port { number: 80, name: "http".into(), protocol: Protocol::Http, target_port: None };
    let endpoint = |shard: &ShardKey, n: usize| {
        let address = format!("10.0.{}.{}", n / 250, n % 250);
        Workload::registered(shard, "shop", format!("w{n}"), vec![address.into()]).endpoint(&port, 8080)
    };
    let all = |shard: &ShardKey| -> Vec<_> { (0..5_000).map(|n| Arc::new(endpoint(shard, n))).collect() };
    let update = |shard: &ShardKey, list: &[Arc<Endpoint>]| {
        Update::Endpoints(service.clone(), shard.clone(), list.into())
    };
    let (one, two) = (shard("one"), shard("two"));
    let (mut first, second) = (all(&one), all(&two));
    let mut case = Case::default();
    case.publish(vec![update(&one, &first), update(&two, &second)], &[]);
    first[1] = Arc::new(Endpoint { health: HealthStatus::Unhealthy, ..endpoint(&one, 1) });
    let change = case.publish(vec![update(&one, &first)], &[]);
    let Item { what, detail, .. } = &change.items[0];
    assert_eq!(&**what, "endpoints of web.example.com");
    assert_eq!(detail, "10000 -> 10000, +10.0.0.1:8080 Unhealthy, -10.0.0.1:8080 Healthy");
}

#[test]
fn the_oldest_is_forgotten_so_that_the_rest_is_within_its_budget() {
    let mut case = Case::keeping(64 << 10);
    for revision in 1..=200 {
        case.publish(vec![object("a", &format!("host-{revision}"))], &[]);
        let (bytes, budget) = case.history.bytes();
        assert!(bytes <= budget, "{bytes} bytes at {revision}");
    }
    let (oldest, newest) = case.history.span();
    assert!(oldest > 100 && newest == 200, "{oldest} to {newest}");
    assert_eq!(case.hosts_at(oldest).unwrap(), [format!("host-{oldest}")]);
    let forgotten = case.hosts_at(oldest - 1).unwrap_err();
    assert_eq!(
        forgotten.to_string(),
        format!("revision {} is forgotten: {oldest} is the oldest that is kept", oldest - 1)
    );
    case.history.set_budget(0);
    assert_eq!(case.hosts_at(200).unwrap(), ["host-200"]);
    assert!(case.hosts_at(199).is_err() && case.history.changes().is_empty());
}

#[test]
fn the_page_of_limits_says_how_much_is_kept() {
    let page = include_str!("../../../../docs/limits.md");
    assert!(page.contains(&format!("(`--history-bytes`) | {} MiB", DEFAULT_BYTES >> 20)));
    assert!(page.contains(&format!("| Changes that wait to be taken into it | {NOTED} |")));
    assert!(page.contains(&format!("| A record | {} MiB", crate::record::LARGEST >> 20)));
}

#[test]
fn of_secrets_nothing_is_kept() {
    use pilotfish_config::kubernetes::Secret;
    let secret = |key: &str| {
        let data = [("tls.key".to_owned(), pilotfish_config::Base64(key.as_bytes().to_vec()))];
        let meta = ObjectMeta::of(ObjectKey::new(Kind::Secret, "shop", "tls"));
        Update::Object(Object::new(meta, Secret { data: data.into(), ..Secret::default() }))
    };
    let mut case = Case::default();
    case.publish(vec![secret("one")], &[]);
    let change = case.publish(vec![secret("two"), object("a", "host")], &[]);
    assert!(change.summary().contains("Secret shop/tls changed"), "that it changed is no secret");
    let world = case.history.world_at(1).unwrap();
    let kept = world.objects(Kind::Secret).next().unwrap().typed::<Secret>().unwrap();
    assert_eq!(kept.data["tls.key"].0, b"two");
    assert_eq!(world.objects(Kind::VirtualService).count(), 0);
    let updates = case.history.steps(None).unwrap().updates;
    assert!(updates.iter().all(|(_, updates)| updates.len() == 1), "the route alone");
}

#[test]
fn a_standing_refusal_of_listeners_leaves_later_changes_of_routes_alone() {
    use ResourceType::{Listener, Route};
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let bad = case.publish_by(vec![object("a", "two")], &[(1, Listener), (2, Listener)]);
    let routes = case.publish_by(vec![object("a", "three")], &[(1, Route), (2, Listener)]);
    let mut tracker = Tracker::default();
    tracker.add(bad.clone());
    tracker.add(routes.clone());
    let progress = [refuses(1, Listener, 1, 2), progress(2, 3, None, 0.02)];
    let told = tracker.settle(&progress, at(3) + Duration::from_millis(50));
    assert_eq!(told.len(), 2, "one is late, and the other one in force");
    let late = Outcome::Late { missing: 1, clients: vec![ClientId(1)] };
    assert_eq!(*bad.outcome.lock(), Some(late));
    assert_eq!(*routes.outcome.lock(), Some(Outcome::InForce(Duration::from_millis(20))));
    assert_eq!(*bad.lacking.lock(), super::Lacking { missing: 1, refusing: 1 });
    assert_eq!(tracker.oldest(), Some(2));
}

#[test]
fn whom_a_change_concerns_is_kept_with_the_types() {
    use ResourceType::{Cluster, Listener, Route};
    let mut case = Case::default();
    let one_type = case.publish(vec![object("a", "one")], &[3, 1, 2]);
    assert_eq!(one_type.types.len(), 1, "one set for all");
    assert_eq!(one_type.types_of(ClientId(2)), Cluster.into());
    assert!(one_type.types_of(ClientId(4)).is_empty());
    let own = case.publish_by(vec![object("a", "two")], &[(3, Route), (1, Listener), (3, Listener)]);
    let of = |id| own.types_of(ClientId(id));
    assert_eq!((of(1), of(2)), (Listener.into(), Types::default()));
    assert_eq!(of(3), [Route, Listener].into_iter().collect());
}

#[test]
fn only_those_whom_watched_changes_concern_are_asked_how_far_they_are() {
    let mut case = Case::default();
    let mut tracker = Tracker::default();
    let mut publish = |tracker: &mut Tracker, name: &str, concerned: &[u64]| {
        tracker.add(case.publish(vec![object("a", name)], concerned));
        tracker.concerned().iter().map(|client| client.0).collect::<Vec<_>>()
    };
    assert_eq!(tracker.concerned().len(), 0);
    assert_eq!(publish(&mut tracker, "one", &[7, 3]), [3, 7]);
    assert_eq!(publish(&mut tracker, "two", &[7, 3]), [3, 7]);
    assert!(matches!(tracker.concerned(), Cow::Borrowed(_)), "equal ones are one list");
    assert_eq!(publish(&mut tracker, "three", &[5, 7, 1]), [1, 3, 5, 7]);
    assert_eq!(publish(&mut tracker, "four", &[]), [1, 3, 5, 7]);
}

#[test]
fn a_change_is_in_force_when_the_last_one_that_it_concerns_has_it() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let change = case.publish(vec![object("a", "two")], &[1, 2, 3]);
    let mut tracker = Tracker::default();
    tracker.add(change.clone());
    let soon = at(2) + Duration::from_millis(40);
    // The third one has left.
    assert!(tracker.settle(&[progress(1, 2, None, 0.01), progress(2, 2, Some(1), 0.0)], soon).is_empty());
    assert_eq!((tracker.oldest(), change.outcome.lock().clone()), (Some(2), None));
    let told = tracker.settle(&[progress(1, 2, None, 0.01), progress(2, 2, None, 0.03)], soon);
    assert_eq!(told.len(), 1);
    assert_eq!(*change.outcome.lock(), Some(Outcome::InForce(Duration::from_millis(30))));
    assert!(!tracker.is_waiting());
}

#[test]
fn a_change_that_somebody_lacks_is_late_once_and_in_force_when_it_is_acknowledged() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let change = case.publish(vec![object("a", "two")], &[1]);
    let mut tracker = Tracker::default();
    tracker.add(change.clone());
    let refused = [progress(1, 2, Some(1), 0.0)];
    assert!(tracker.settle(&refused, at(2) + Duration::from_secs(4)).is_empty());
    assert_eq!(tracker.settle(&refused, at(2) + Duration::from_secs(5)).len(), 1);
    let late = Outcome::Late { missing: 1, clients: vec![ClientId(1)] };
    assert_eq!(*change.outcome.lock(), Some(late));
    assert!(tracker.settle(&refused, at(2) + Duration::from_secs(6)).is_empty(), "it is said once");
    let mended = at(2) + Duration::from_secs(8);
    assert_eq!(tracker.settle(&[progress(1, 2, None, 7.0)], mended).len(), 1, "it is in force at last");
    assert_eq!(*change.outcome.lock(), Some(Outcome::InForce(Duration::from_secs(7))));
    assert!(tracker.settle(&[progress(1, 2, None, 7.0)], mended).is_empty(), "that is said once, too");
}

/// What became of a change that proxies 1 and 2 were sent, and that proxy 1 refused.
fn refused(resolution: Resolution) -> Outcome {
    let mut by = RefusedBy::default();
    by.add(ClientId(1), ResourceType::Listener, Some(&"web-0".into()));
    Outcome::Refused { by, resolution }
}

fn refusal(client: u64, ty: ResourceType, after: u64, until: u64) -> Refusal {
    Refusal { client: ClientId(client), connection: format!("web-{}", client - 1).into(), ty, after, until }
}

#[test]
fn refused_change_is_never_in_force() {
    use ResourceType::{Listener, Route};
    let soon = at(3) + Duration::from_millis(50);
    // However soon the next change mends it, and in whatever order the tracker learns of both.
    for early in [false, true] {
        let mut case = Case::default();
        case.publish(vec![object("a", "one")], &[]);
        let bad = case.publish_by(vec![object("a", "two")], &[(1, Listener), (2, Listener)]);
        let routes = case.publish_by(vec![object("a", "three")], &[(1, Route)]);
        let mended = case.publish_by(vec![object("a", "four")], &[(1, Listener)]);
        let mut tracker = Tracker::default();
        if early {
            tracker.refused([refusal(1, Listener, 1, 2)]);
        }
        for change in [&bad, &routes, &mended] {
            tracker.add(change.clone());
        }
        if !early {
            tracker.refused([refusal(1, Listener, 1, 2), refusal(1, Listener, 1, 2)]);
        }
        let told = tracker.settle(&[progress(1, 4, None, 0.02), progress(2, 4, None, 0.02)], soon);
        assert_eq!(told.len(), 3);
        assert_eq!(*bad.outcome.lock(), Some(refused(Resolution::Superseded(4))));
        for in_force in [&routes, &mended] {
            assert!(matches!(*in_force.outcome.lock(), Some(Outcome::InForce(_))));
        }
        assert!(!tracker.is_waiting());
    }
}

#[test]
fn refused_change_is_in_force_once_it_is_accepted_with_another_one() {
    use ResourceType::Listener;
    let (a, b) = (|host| vec![object("a", host)], |host| vec![object("b", host)]);
    let cases = [
        // The next response has the change as it was refused.
        (vec![b("other")], vec![2], Resolution::Accepted(Some(3))),
        // The next response was refused as well.
        (vec![b("other"), b("mended")], vec![2, 3], Resolution::Accepted(Some(4))),
        // A response in between replaced the change, and was refused as well.
        (vec![a("worse"), b("other")], vec![2, 3], Resolution::Superseded(4)),
        // What is changed after it was accepted does not count.
        (vec![b("other"), a("later")], vec![2], Resolution::Accepted(Some(3))),
        // The same response was sent again.
        (vec![], vec![2], Resolution::Accepted(None)),
    ];
    for (later, refused_until, expected) in cases {
        let mut case = Case::default();
        case.publish(a("one"), &[]);
        let bad = case.publish_by(a("two"), &[(1, Listener)]);
        let mut tracker = Tracker::default();
        tracker.add(bad.clone());
        let mut newest = 2;
        for update in later {
            newest += 1;
            tracker.add(case.publish_by(update, &[(1, Listener)]));
        }
        tracker.refused(refused_until.into_iter().map(|until| refusal(1, Listener, 1, until)));
        tracker.settle(&[progress(1, newest, None, 0.02)], at(newest));
        assert_eq!(*bad.outcome.lock(), Some(refused(expected)));
    }
}

#[test]
fn refused_change_waits_for_the_accepted_one_that_is_not_tracked_yet() {
    use ResourceType::Listener;
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let bad = case.publish_by(vec![object("a", "two")], &[(1, Listener)]);
    let mut tracker = Tracker::default();
    tracker.add(bad.clone());
    tracker.refused([refusal(1, Listener, 1, 2)]);
    tracker.published(3);
    assert!(tracker.settle(&[progress(1, 3, None, 0.02)], at(3)).is_empty());
    tracker.add(case.publish_by(vec![object("a", "three")], &[(1, Listener)]));
    tracker.settle(&[progress(1, 3, None, 0.02)], at(3));
    assert_eq!(*bad.outcome.lock(), Some(refused(Resolution::Superseded(3))));
}

#[test]
fn refused_change_is_not_in_force_when_the_refusing_client_leaves() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let change = case.publish_by(vec![object("a", "two")], &[(1, ResourceType::Listener)]);
    let mut tracker = Tracker::default();
    tracker.add(change.clone());
    tracker.refused([refusal(1, ResourceType::Listener, 1, 2)]);
    let refusing = [refuses(1, ResourceType::Listener, 1, 2)];
    assert!(tracker.settle(&refusing, at(2) + Duration::from_secs(1)).is_empty());
    assert_eq!(tracker.settle(&[], at(2) + Duration::from_secs(2)).len(), 1);
    assert_eq!(*change.outcome.lock(), Some(refused(Resolution::Left)));
}

#[test]
fn refusal_is_of_changes_that_the_client_was_sent_by_that_type_since_its_last_acknowledgement() {
    use ResourceType::{Listener, Route};
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let before = case.publish_by(vec![object("a", "two")], &[(1, Listener)]);
    let routes = case.publish_by(vec![object("a", "three")], &[(1, Route)]);
    let others = case.publish_by(vec![object("a", "four")], &[(2, Listener)]);
    let after = case.publish_by(vec![object("a", "five")], &[(1, Listener)]);
    let mut tracker = Tracker::default();
    let all = [&before, &routes, &others, &after];
    for change in all {
        tracker.add(change.clone());
    }
    tracker.refused([refusal(1, Listener, 2, 4)]);
    tracker.settle(&[progress(1, 5, None, 0.02), progress(2, 5, None, 0.02)], at(6));
    let in_force = all.map(|change| matches!(*change.outcome.lock(), Some(Outcome::InForce(_))));
    assert_eq!(in_force, [true; 4]);
}

#[test]
fn a_refused_change_has_a_line_of_its_own() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let change = case.publish(vec![object("a", "two")], &[1]);
    *change.outcome.lock() = Some(refused(Resolution::Superseded(3)));
    let (mut log, now) = (ChangeLog::default(), Instant::now());
    assert!(matches!(log.add(&change, now), Some(Line::One(_))));
    while matches!(log.add(&change, now), Some(Line::One(_))) {}
    let Some(Line::Many(many)) = log.due(now + Duration::from_secs(10)) else { panic!("a line is due") };
    assert_eq!((many.refused, many.late), (1, 0));
}

#[test]
fn services_that_clients_register_share_a_line_and_those_of_other_registries_have_their_own() {
    use pilotfish_registry::REGISTRATION;
    let service = |provider: &'static str, host: &str| {
        let shard = ShardKey::new(Provider::new(2, provider), "Kubernetes");
        let hostname = Hostname::parse(host).unwrap();
        let key = ServiceKey { hostname: hostname.clone(), namespace: "shop".into() };
        let origin = pilotfish_model::Origin::registered(shard.clone(), host);
        let service =
            pilotfish_model::Service::registered(shard.provider, hostname, "shop", Vec::new(), origin);
        Update::Services(key, [Arc::new(service)].into())
    };
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let (mut log, now) = (ChangeLog::default(), Instant::now());
    let mut has_line = |updates: Vec<Update>| {
        let change = case.publish(updates, &[]);
        *change.outcome.lock() = Some(Outcome::InForce(Duration::ZERO));
        matches!(log.add(&change, now), Some(Line::One(_)))
    };
    let own = REGISTRATION.provider;
    assert!(has_line(vec![service("consul", "a.example")]));
    assert!(!has_line(vec![service(own, "b.example"), service(own, "c.example")]));
    assert!(has_line(vec![service(own, "d.example"), service("consul", "e.example")]));
    assert!(!has_line(vec![service(own, "f.example")]));
    let Some(Line::Many(many)) = log.due(now + Duration::from_secs(10)) else { panic!("a line is due") };
    assert_eq!((many.changes, many.configuration, many.registrations), (2, 0, 2));
    assert!(many.newest.contains("f.example"), "{}", many.newest);
}

#[test]
fn a_late_change_has_a_line_when_it_is_late_and_one_when_it_is_in_force() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let change = case.publish(vec![object("a", "two")], &[1]);
    let (mut tracker, mut log, now) = (Tracker::default(), ChangeLog::default(), Instant::now());
    tracker.add(change);
    let mut lines = |progress: Progress, seconds| {
        let told = tracker.settle(&[progress], at(2) + Duration::from_secs(seconds));
        told.iter().filter(|change| matches!(log.add(change, now), Some(Line::One(_)))).count()
    };
    let (lacks, has) = (progress(1, 2, Some(1), 0.0), progress(1, 2, None, 7.0));
    assert_eq!([lines(lacks, 4), lines(lacks, 5), lines(lacks, 6), lines(has, 8)], [0, 1, 0, 1]);
}

#[test]
fn what_is_watched_is_limited() {
    let mut case = Case::default();
    case.publish(vec![object("a", "one")], &[]);
    let mut tracker = Tracker::default();
    let given_up: Vec<u64> = (0..300)
        .filter_map(|n| tracker.add(case.publish(vec![object("a", &format!("host-{n}"))], &[1])))
        .map(|change| change.revision)
        .collect();
    assert_eq!(given_up, (2..=45).collect::<Vec<u64>>());
}

#[test]
fn a_burst_of_changes_shares_a_line() {
    let mut case = Case::default();
    let first = case.publish(vec![object("a", "one")], &[]);
    let (mut log, began) = (ChangeLog::default(), Instant::now());
    assert!(log.add(&first, began).is_none(), "the start has a line of its own");
    let mut ones = 0;
    for n in 0..120_u64 {
        let change = case.publish(vec![object("a", &format!("host-{n}"))], &[]);
        *change.outcome.lock() = Some(Outcome::InForce(Duration::from_millis(n)));
        ones += u64::from(matches!(log.add(&change, began), Some(Line::One(_))));
    }
    assert_eq!(ones, 20);
    assert!(log.due(began + Duration::from_secs(9)).is_none() && log.is_waiting());
    let Some(Line::Many(many)) = log.due(began + Duration::from_secs(10)) else { panic!("a line is due") };
    assert_eq!((many.revisions, many.changes, many.configuration), ((22, 121), 100, 100));
    assert_eq!((many.slowest, many.late), (Duration::from_millis(119), 0));
    assert!(many.newest.contains("VirtualService shop/a changed"));
    assert!(!log.is_waiting() && log.due(began + Duration::from_secs(20)).is_none());
    let change = case.publish(vec![object("a", "later")], &[]);
    assert!(matches!(log.add(&change, began + Duration::from_secs(21)), Some(Line::One(_))));
}
