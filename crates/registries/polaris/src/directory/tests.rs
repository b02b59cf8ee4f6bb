use super::*;
use proptest::prelude::*;

fn directory() -> Directory {
    Directory::new(&["a".to_owned(), "b".to_owned()], Mapping::default())
}

fn question(text: &str) -> Question {
    let (namespace, service) = text.split_once('/').unwrap_or((text, ""));
    Question { namespace: namespace.to_owned(), service: service.to_owned() }
}

/// An answer to a question.
fn answer(text: &str, code: u32, revision: Option<&str>) -> DiscoverResponse {
    let Question { namespace, service } = question(text);
    let kind = if service.is_empty() { Kind::Services } else { Kind::Instance };
    let about = Service {
        name: Some(service),
        namespace: Some(namespace),
        revision: revision.map(str::to_owned),
        ..Service::default()
    };
    DiscoverResponse {
        code: Some(code),
        r#type: kind as i32,
        service: Some(about),
        ..DiscoverResponse::default()
    }
}

fn list(namespace: &str, revision: &str, names: &[&str]) -> DiscoverResponse {
    let service = |name: &&str| Service { name: Some((*name).to_owned()), ..Service::default() };
    DiscoverResponse {
        services: names.iter().map(service).collect(),
        ..answer(namespace, DONE, Some(revision))
    }
}

fn instances(service: &str, revision: &str, hosts: &[&str]) -> DiscoverResponse {
    let instance =
        |host: &&str| Instance { host: Some((*host).to_owned()), port: Some(80), ..Instance::default() };
    DiscoverResponse {
        instances: hosts.iter().map(instance).collect(),
        ..answer(service, DONE, Some(revision))
    }
}

/// What a difference says, in words.
fn take(directory: &mut Directory, text: &str, answer: DiscoverResponse) -> Vec<String> {
    let difference = directory.take(&question(text), answer).unwrap();
    let set = difference.set.iter().map(told);
    let removed = difference.removed.iter().map(|id| format!("-{id}"));
    let ask = difference.ask.iter().map(|question| format!("?{question}"));
    set.chain(removed).chain(ask).collect()
}

fn told(service: &CatalogService) -> String {
    let hosts: Vec<_> = service.instances.iter().map(|instance| instance.addresses.join("+")).collect();
    format!("{}={}", service.id, hosts.join(","))
}

fn revision(directory: &Directory, text: &str) -> Option<String> {
    directory.request(&question(text)).unwrap().service.unwrap().revision
}

#[test]
fn lists_lead_to_services_and_revisions_are_asked_with() {
    let mut directory = directory();
    let asked: Vec<String> = directory.questions().iter().map(Question::to_string).collect();
    assert_eq!(asked, ["the services of a", "the services of b"]);
    assert_eq!(take(&mut directory, "a", list("a", "l1", &["web", "db"])), ["?a/web", "?a/db"]);
    assert_eq!(revision(&directory, "a").as_deref(), Some("l1"));
    assert!(directory.services().is_empty(), "not before their instances are known");
    assert_eq!(take(&mut directory, "a/web", instances("a/web", "i1", &["10.0.0.1"])), ["a/web=10.0.0.1"]);
    assert_eq!(take(&mut directory, "a/db", instances("a/db", "i1", &[])), ["a/db="]);
    assert_eq!(revision(&directory, "a/web").as_deref(), Some("i1"));
    assert!(take(&mut directory, "a/web", answer("a/web", NO_CHANGE, Some("i1"))).is_empty());
    assert_eq!(take(&mut directory, "a/web", instances("a/web", "i2", &["10.0.0.2"])), ["a/web=10.0.0.2"]);
    assert_eq!(take(&mut directory, "a", list("a", "l2", &["web", "new"])), ["-a/db", "?a/new"]);
    assert_eq!(directory.request(&question("a/db")), None, "it is gone");
    assert!(take(&mut directory, "a/db", instances("a/db", "i3", &["10.0.0.9"])).is_empty(), "a late answer");
    directory.begin();
    assert_eq!((revision(&directory, "a"), revision(&directory, "a/web")), (None, None));
    let all: Vec<String> = directory.services().iter().map(told).collect();
    assert_eq!(all, ["a/web=10.0.0.2"], "what was known stays");
}

#[test]
fn a_service_that_the_cache_does_not_know_stays_what_it_was() {
    let mut directory = directory();
    take(&mut directory, "a", list("a", "l1", &["web"]));
    assert!(take(&mut directory, "a/web", answer("a/web", NOT_FOUND, None)).is_empty());
    take(&mut directory, "a/web", instances("a/web", "i1", &["10.0.0.1"]));
    assert!(take(&mut directory, "a/web", answer("a/web", NOT_FOUND, None)).is_empty());
    assert_eq!(directory.services().iter().map(told).collect::<Vec<_>>(), ["a/web=10.0.0.1"]);
}

#[test]
fn new_metadata_of_a_service_is_told() {
    let mut directory = directory();
    take(&mut directory, "a", list("a", "l1", &["web"]));
    take(&mut directory, "a/web", instances("a/web", "i1", &["10.0.0.1"]));
    let mut with_metadata = list("a", "l2", &["web"]);
    with_metadata.services[0].metadata = [("k".to_owned(), "v".to_owned())].into();
    let difference = directory.take(&question("a"), with_metadata.clone()).unwrap();
    assert_eq!(difference.set.iter().map(|service| service.labels.len()).collect::<Vec<_>>(), [1]);
    assert_eq!(directory.take(&question("a"), with_metadata).unwrap(), Difference::default());
}

#[test]
fn refusals_and_answers_about_something_else_are_failures() {
    let mut directory = directory();
    let refused = DiscoverResponse {
        code: Some(401_001),
        info: Some("access is not approved".to_owned()),
        ..DiscoverResponse::default()
    };
    assert_eq!(
        directory.take(&question("a"), refused).unwrap_err().to_string(),
        "Polaris answered 401001 (access is not approved) for the services of a"
    );
    let other = directory.take(&question("a"), list("b", "l1", &["x"])).unwrap_err();
    assert_eq!(other, AnswerError::NotAsked("the services of b".to_owned()));
    let nothing = directory.take(&question("a"), DiscoverResponse::default()).unwrap_err();
    assert!(matches!(nothing, AnswerError::NotAsked(_)));
    let list_gone = directory.take(&question("a"), answer("a", NOT_FOUND, None)).unwrap_err();
    assert!(matches!(list_gone, AnswerError::Refused { code: NOT_FOUND, .. }), "a list is never not found");
}

/// One round of a Polaris: which services there are, each with its hosts.
fn state() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
    prop::collection::btree_map("[xyz]", prop::collection::vec(1..5_u8, 0..3), 0..4)
}

proptest! {
    /// What was told adds up to what Polaris has, whatever its history.
    #[test]
    fn differences_add_up(states in prop::collection::vec(state(), 1..6)) {
        let mut directory = Directory::new(&["a".to_owned()], Mapping::default());
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for state in &states {
            let mut questions = directory.questions();
            while !questions.is_empty() {
                let question = questions.remove(0);
                if directory.request(&question).is_none() {
                    continue;
                }
                let text = if question.service.is_empty() { "a".to_owned() } else { question.to_string() };
                let names: Vec<&str> = state.keys().map(String::as_str).collect();
                let known = state.get(&question.service).map(|hosts| {
                    hosts.iter().map(|host| format!("10.0.0.{host}")).collect::<Vec<_>>()
                });
                let answer = match known {
                    _ if question.service.is_empty() => list("a", "", &names),
                    Some(hosts) => instances(&text, "", &hosts.iter().map(String::as_str).collect::<Vec<_>>()),
                    None => answer(&text, NOT_FOUND, None),
                };
                let difference = directory.take(&question, answer).unwrap();
                for service in &difference.set {
                    seen.insert(service.id.to_string(), told(service));
                }
                for id in &difference.removed {
                    seen.remove(&**id);
                }
                questions.extend(difference.ask);
            }
            let wanted: Vec<String> = state
                .iter()
                .map(|(name, hosts)| {
                    let hosts: Vec<_> = hosts.iter().map(|host| format!("10.0.0.{host}")).collect();
                    format!("a/{name}={}", hosts.join(","))
                })
                .collect();
            prop_assert_eq!(seen.values().cloned().collect::<Vec<_>>(), wanted.clone());
            prop_assert_eq!(directory.services().iter().map(told).collect::<Vec<_>>(), wanted);
        }
    }
}
