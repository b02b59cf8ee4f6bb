use super::*;
use crate::mapping::ZoneFrom;
use pilotfish_nacos_wire::HostPattern;

fn scope(group: &str) -> Scope {
    Scope { namespace: "public".into(), group: group.into() }
}

fn name(name: &str) -> ServiceName {
    ServiceName { scope: scope("G"), name: name.into() }
}

fn follower(keep_empty: bool, polls: bool) -> Follower {
    let mapping = Mapping {
        host: HostPattern::parse("{service}").unwrap(),
        zone: ZoneFrom::Metadata,
        clusters: BTreeSet::new(),
        namespace: "default".into(),
    };
    let mut follower = Follower::new(mapping, keep_empty, [scope("G")]);
    follower.begin(polls);
    follower
}

fn page(count: usize, names: &[&str]) -> ListPage {
    ListPage { count, names: names.iter().map(|&name| name.to_owned()).collect() }
}

/// What a server says of a service: the last parts of its instances' addresses, at a time.
fn info(service: &str, time: i64, hosts: &[u8]) -> ServiceInfo {
    let hosts: Vec<String> =
        hosts.iter().map(|host| format!(r#"{{"ip":"10.0.0.{host}","port":80}}"#)).collect();
    let text = format!(r#"{{"name":"G@@{service}","lastRefTime":{time},"hosts":[{}]}}"#, hosts.join(","));
    serde_json::from_str(&text).unwrap()
}

/// All that is to be asked now: `list 1`, `web`, `-web` to unsubscribe.
fn asks(follower: &mut Follower) -> Vec<String> {
    let mut asks = Vec::new();
    while let Some(ask) = follower.next() {
        asks.push(match ask {
            Ask::List(_, page) => format!("list {page}"),
            Ask::Service(name) => name.name.to_string(),
            Ask::Unsubscribe(name) => {
                follower.unsubscribed();
                format!("-{}", name.name)
            }
        });
    }
    asks
}

/// What differs: `web: 10.0.0.1 ...`, `-web` for one that is gone.
fn told(follower: &mut Follower) -> Vec<String> {
    let changes = follower.take_changes();
    let set = changes.set.iter().map(|service| {
        let hosts = service.instances.iter().map(|instance| instance.addresses[0].clone());
        let ports = service.ports.iter().map(|port| format!("port {}", port.number));
        format!("{}: {}", service.host, hosts.chain(ports).collect::<Vec<_>>().join(" "))
    });
    let removed = changes.removed.iter().map(|id| format!("-{}", id.trim_start_matches("public/G@@")));
    set.chain(removed).collect()
}

/// Reads a list of one page.
fn list(follower: &mut Follower, names: &[&str]) -> Vec<String> {
    follower.refresh();
    assert_eq!(asks(follower), ["list 1"]);
    follower.listed(&scope("G"), 1, &page(names.len(), names));
    asks(follower)
}

/// A follower that has told of two services.
fn with_two(keep_empty: bool) -> Follower {
    let mut follower = follower(keep_empty, false);
    assert_eq!(list(&mut follower, &["a", "b"]), ["a", "b"]);
    follower.answered(&name("a"), &info("a", 1, &[1, 2]));
    assert!(!follower.is_settled());
    follower.answered(&name("b"), &info("b", 1, &[3]));
    assert!(follower.is_settled());
    assert_eq!(told(&mut follower), ["a: 10.0.0.1 10.0.0.2", "b: 10.0.0.3"]);
    follower
}

#[test]
fn lists_are_read_page_by_page_and_each_service_is_asked_for_once() {
    let mut follower = follower(false, false);
    assert_eq!(asks(&mut follower), ["list 1"]);
    follower.refresh();
    assert_eq!(asks(&mut follower), [""; 0], "it is being read");
    follower.listed(&scope("G"), 1, &page(3, &["G@@a", "b"]));
    assert_eq!(asks(&mut follower), ["list 2"]);
    follower.listed(&scope("G"), 2, &page(3, &["c"]));
    assert_eq!(asks(&mut follower), ["a", "b", "c"]);
    for service in ["a", "b", "c"] {
        follower.answered(&name(service), &info(service, 1, &[1]));
    }
    assert_eq!(told(&mut follower).len(), 3);
    assert_eq!(list(&mut follower, &["a", "b", "c", "d"]), ["d"], "the others are subscribed to");
}

#[test]
fn a_list_that_lies_about_its_length_ends() {
    let mut follower = follower(false, false);
    assert_eq!(asks(&mut follower), ["list 1"]);
    follower.listed(&scope("G"), 1, &page(usize::MAX, &["a"]));
    assert_eq!(asks(&mut follower), ["list 2"]);
    follower.listed(&scope("G"), 2, &page(usize::MAX, &[]));
    assert_eq!(asks(&mut follower), ["a"]);
    follower.answered(&name("a"), &info("a", 1, &[]));
    assert_eq!(told(&mut follower), ["a: "], "nothing was known, so nothing is lost");
    let empty = page(0, &["", &"x".repeat(2000)]);
    follower.refresh();
    assert_eq!(asks(&mut follower), ["list 1"]);
    follower.listed(&scope("G"), 1, &empty);
    assert_eq!(asks(&mut follower), ["a"], "names that are none are left out");
}

#[test]
fn pushes_are_told() {
    let mut follower = with_two(false);
    follower.pushed(&"public".into(), &info("a", 2, &[1, 2, 4]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.1 10.0.0.2 10.0.0.4"]);
    follower.pushed(&"public".into(), &info("c", 2, &[1]));
    follower.pushed(&"other".into(), &info("a", 3, &[1]));
    assert_eq!((told(&mut follower), asks(&mut follower)), (vec![], vec![]), "nobody asked for those");
}

#[test]
fn the_last_instance_is_gone_when_the_server_says_so_twice() {
    let mut follower = with_two(false);
    follower.pushed(&"public".into(), &info("a", 2, &[]));
    assert_eq!((told(&mut follower), asks(&mut follower)), (vec![], vec!["a".to_owned()]));
    follower.answered(&name("a"), &info("a", 3, &[1]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.1"], "it was not");
    follower.pushed(&"public".into(), &info("a", 4, &[]));
    assert_eq!(asks(&mut follower), ["a"]);
    follower.answered(&name("a"), &info("a", 5, &[]));
    assert_eq!(told(&mut follower), ["a: port 80"], "its port stays, so that its listeners do");
    follower.pushed(&"public".into(), &info("a", 6, &[2]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.2"]);
}

#[test]
fn empty_services_keep_their_instances_where_that_is_wanted() {
    let mut follower = with_two(true);
    follower.pushed(&"public".into(), &info("a", 2, &[]));
    assert_eq!(asks(&mut follower), ["a"]);
    follower.answered(&name("a"), &info("a", 3, &[]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.1 10.0.0.2"]);
    assert_eq!(list(&mut follower, &["b"]), ["a"], "it is not listed any more");
    follower.answered(&name("a"), &info("a", 4, &[]));
    assert_eq!(told(&mut follower), ["-a"]);
}

#[test]
fn a_service_is_gone_when_no_list_names_it_and_it_is_empty() {
    let mut follower = with_two(false);
    assert_eq!(list(&mut follower, &["a"]), ["b"], "asked, not believed");
    follower.answered(&name("b"), &info("b", 2, &[3]));
    assert_eq!(told(&mut follower), ["b: 10.0.0.3"], "the list was wrong");
    assert_eq!(list(&mut follower, &["a"]), ["b"]);
    follower.answered(&name("b"), &info("b", 3, &[]));
    assert_eq!((told(&mut follower), asks(&mut follower)), (vec!["-b".to_owned()], vec!["-b".to_owned()]));
    assert_eq!(list(&mut follower, &["a", "b"]), ["b"], "it may come back");
}

#[test]
fn a_list_with_holes_says_nothing_of_what_is_missing() {
    let mut follower = with_two(false);
    follower.refresh();
    assert_eq!(asks(&mut follower), ["list 1"]);
    // One name twice, as when the set moved between two pages.
    follower.listed(&scope("G"), 1, &page(2, &["a", "a"]));
    assert_eq!(asks(&mut follower), ["b"]);
    follower.answered(&name("b"), &info("b", 2, &[]));
    assert_eq!(asks(&mut follower), ["b"], "listed as far as is known, so its emptiness is doubted");
    follower.answered(&name("b"), &info("b", 3, &[]));
    assert_eq!(told(&mut follower), ["b: port 80"]);
}

#[test]
fn what_is_older_is_asked_for_again_and_a_clock_that_went_back_is_no_trap() {
    let mut follower = with_two(false);
    follower.pushed(&"public".into(), &info("a", 9, &[1]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.1"]);
    follower.pushed(&"public".into(), &info("a", 5, &[7]));
    assert_eq!((told(&mut follower), asks(&mut follower)), (vec![], vec!["a".to_owned()]));
    follower.answered(&name("a"), &info("a", 6, &[8]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.8"], "the second answer counts");
    follower.pushed(&"public".into(), &info("a", 7, &[9]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.9"], "from its time on");
}

#[test]
fn a_push_beside_an_answer_on_its_way_is_not_lost() {
    let mut follower = follower(false, false);
    assert_eq!(list(&mut follower, &["a"]), ["a"]);
    follower.pushed(&"public".into(), &info("a", 5, &[1, 2]));
    follower.answered(&name("a"), &info("a", 4, &[1]));
    assert_eq!(asks(&mut follower), ["a"], "the answer is older than the push");
    follower.answered(&name("a"), &info("a", 5, &[1, 2]));
    assert_eq!(told(&mut follower), ["a: 10.0.0.1 10.0.0.2"]);
    assert!(follower.is_settled());
}

#[test]
fn a_service_that_is_refused_does_not_take_the_others_along() {
    let mut follower = follower(false, false);
    assert_eq!(list(&mut follower, &["a", "b"]), ["a", "b"]);
    follower.answered(&name("a"), &info("a", 1, &[1]));
    assert_eq!(follower.refused(&name("b")), Ok(()));
    assert!(follower.is_settled() && follower.has_refused());
    assert_eq!(told(&mut follower), ["a: 10.0.0.1"]);
    assert_eq!(list(&mut follower, &["a", "b"]), ["b"], "asked again with the next list");
    follower.answered(&name("b"), &info("b", 1, &[2]));
    assert!(!follower.has_refused());
    assert_eq!(told(&mut follower), ["b: 10.0.0.2"]);
}

#[test]
fn a_service_that_was_told_is_not_dropped_by_a_refusal() {
    let mut follower = with_two(false);
    follower.begin(false);
    assert_eq!(list(&mut follower, &["a", "b"]), ["a", "b"]);
    assert_eq!(follower.refused(&name("b")), Err(LostService), "the session cannot tell everything");
    let mut follower = with_two(true);
    follower.begin(false);
    assert_eq!(list(&mut follower, &["a", "b"]), ["a", "b"]);
    assert_eq!(follower.refused(&name("b")), Ok(()));
    assert_eq!(told(&mut follower), ["b: 10.0.0.3"], "it is at hand");
}

#[test]
fn a_new_session_asks_for_everything_and_doubts_what_is_missing() {
    let mut follower = with_two(false);
    follower.begin(false);
    assert_eq!(list(&mut follower, &["a"]), ["a", "b"]);
    follower.answered(&name("a"), &info("a", 0, &[1]));
    assert!(!follower.is_settled());
    follower.answered(&name("b"), &info("b", 0, &[]));
    assert_eq!(asks(&mut follower), ["-b"]);
    assert!(follower.is_settled());
    assert_eq!(told(&mut follower), ["a: 10.0.0.1", "-b"], "another clock is no reason to doubt");
}

#[test]
fn what_nobody_pushes_is_polled() {
    let mut follower = follower(false, true);
    assert_eq!(list(&mut follower, &["a"]), ["a"]);
    follower.answered(&name("a"), &info("a", 1, &[1]));
    assert_eq!(list(&mut follower, &["a"]), ["a"]);
    follower.answered(&name("a"), &info("a", 2, &[]));
    assert_eq!(asks(&mut follower), ["a"], "empty: asked once more");
    follower.answered(&name("a"), &info("a", 2, &[]));
    assert_eq!(told(&mut follower), ["a: port 80"]);
    assert_eq!(list(&mut follower, &[]), ["a"]);
    follower.answered(&name("a"), &info("a", 3, &[]));
    assert_eq!(
        (told(&mut follower), asks(&mut follower)),
        (vec!["-a".to_owned()], vec![]),
        "there is nothing to unsubscribe"
    );
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut follower = follower(false, false);
    follower.listed(&scope("H"), 1, &page(1, &["a"]));
    follower.answered(&name("x"), &info("x", 1, &[1]));
    assert_eq!(follower.refused(&name("x")), Ok(()));
    follower.unsubscribed();
    assert_eq!((asks(&mut follower), told(&mut follower)), (vec!["list 1".to_owned()], vec![]));
}
