//! What goes wrong takes nothing away, and is over when it is over.

use crate::support::{gone, instance, registry};
use pilotfish_testkit::consul::{Consul, ConsulFault};
use pilotfish_testkit::real::LiveRegistry;
use std::cell::RefCell;
use std::time::Duration;
use tokio::time::Instant;

/// Three instances of two services.
async fn some() -> Consul {
    let consul = Consul::plain().await;
    for (service, number) in [("web", 1), ("web", 2), ("db", 3)] {
        consul.register(&instance(service, number));
    }
    consul
}

async fn in_sync(registry: &LiveRegistry) {
    registry.until("it is in sync", |state| state.synced && state.addresses().len() == 3).await;
}

/// A change arrives.
async fn follows(consul: &Consul, registry: &LiveRegistry, number: usize) {
    consul.register(&instance("web", number));
    let address = format!("10.0.0.{number}:8080");
    registry
        .until("a change arrives", |state| {
            state.failure.is_none() && state.addresses().contains(&address.as_str())
        })
        .await;
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back() {
    let mut consul = some().await;
    let registry = registry(&consul, "");
    in_sync(&registry).await;
    consul.kill().await;
    registry.fails("cannot connect").await;
    assert_eq!(registry.fewest_endpoints(), 3);
    consul.resume().await;
    follows(&consul, &registry, 4).await;
    assert_eq!(registry.fewest_endpoints(), 3);
}

#[tokio::test]
async fn a_server_that_comes_back_with_nothing_is_believed_when_it_says_so_twice() {
    let mut consul = some().await;
    for number in 0..200 {
        consul.register(&instance("churn", 1000 + number));
        consul.deregister(&gone("churn", 1000 + number));
    }
    let registry = registry(&consul, "guardWait=8s");
    in_sync(&registry).await;
    consul.kill().await;
    consul.forget();
    consul.resume().await;
    registry.fails("connection").await;
    // It has lost everything; while the second answer is awaited, what was registered comes back with low
    // indexes.
    for (service, number) in [("web", 1), ("web", 2), ("db", 3)] {
        consul.register(&instance(service, number));
    }
    follows(&consul, &registry, 4).await;
    assert!(registry.fewest_endpoints() > 0, "never empty");

    consul.kill().await;
    consul.forget();
    consul.resume().await;
    registry
        .until("it is really gone", |state| state.failure.is_none() && state.addresses().is_empty())
        .await;
    follows(&consul, &registry, 5).await;
}

#[tokio::test]
async fn a_server_that_loses_its_state_while_connections_stay() {
    let consul = some().await;
    for number in 0..50 {
        consul.register(&instance("churn", 1000 + number));
        consul.deregister(&gone("churn", 1000 + number));
    }
    let registry = registry(&consul, "wait=2s&guard=off");
    in_sync(&registry).await;
    let _ = consul.take_counts();
    let began = Instant::now();
    consul.forget();
    consul.register(&instance("web", 7));
    registry.until("what is new is there", |state| state.addresses() == ["10.0.0.7:8080"]).await;
    let (requests, time) = (consul.take_counts().total(), began.elapsed());
    assert!(requests < 60, "{requests} requests in {time:?}: lower indexes are no reason to spin");
}

#[tokio::test]
async fn answers_that_are_no_answers() {
    let consul = some().await;
    for (path, fault, want) in [
        ("/v1/catalog", ConsulFault::Status(500, "rpc error: No cluster leader".into()), "No cluster leader"),
        (
            "/v1/health/service/web",
            ConsulFault::Status(500, "rpc error".into()),
            "health/service/web: Consul answers 500",
        ),
        ("/v1", ConsulFault::Status(429, "too many concurrent connections".into()), "429"),
        ("/v1", ConsulFault::Truncated, "documentation"),
        ("/v1/health/service/web", ConsulFault::Truncated, "health/service/web"),
        ("/v1", ConsulFault::Cut, "broke off"),
        ("/v1", ConsulFault::Garbled, "documentation"),
        ("/v1", ConsulFault::Hang, "did not answer within 1s"),
        ("/v1", ConsulFault::Slow(Duration::from_secs(5)), "did not answer within 1s"),
    ] {
        let registry = registry(&consul, "wait=1s&timeout=1s");
        in_sync(&registry).await;
        consul.fail(path, fault.clone());
        // Something to answer, again and again: an answer with a known index is not looked into.
        for weight in 1.. {
            let mut instance = instance("web", 9);
            instance["Service"]["Weights"] = serde_json::json!({"Passing": weight});
            consul.register(&instance);
            let failed = registry.state().failure.is_some_and(|failure| failure.contains(want));
            if failed {
                break;
            }
            assert!(weight < 300, "{path} {fault:?}: {:?}", registry.state());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(registry.fewest_endpoints(), 3, "{path} {fault:?}");
        consul.heal();
        registry
            .until("it is well again", |state| state.failure.is_none() && state.addresses().len() == 4)
            .await;
        consul.deregister(&gone("web", 9));
    }
}

#[tokio::test]
async fn one_service_that_fails_does_not_hold_up_the_others() {
    let consul = some().await;
    consul.fail("/v1/health/service/db", ConsulFault::Status(500, "rpc error".into()));
    let registry = registry(&consul, "");
    let state = registry.fails("health/service/db: Consul answers 500").await;
    let synced =
        registry.until("the others are there", |state| state.synced && state.addresses().len() == 2).await;
    assert!(synced.failure.is_some(), "{state:?}");
    consul.register(&instance("web", 4));
    registry.until("and follow", |state| state.addresses().len() == 3).await;
    consul.heal();
    registry.until("until it is well", |state| state.failure.is_none() && state.addresses().len() == 4).await;
}

#[tokio::test]
async fn slow_answers_are_waited_for() {
    let consul = some().await;
    let registry = registry(&consul, "");
    in_sync(&registry).await;
    consul.fail("/v1", ConsulFault::Slow(Duration::from_secs(2)));
    follows(&consul, &registry, 4).await;
    assert_eq!(registry.failures(), 0);
}

#[tokio::test]
async fn without_a_leader_nothing_is_taken_away() {
    let consul = some().await;
    let registry_of = |options: &str| registry(&consul, options);
    let (stale, strict) = (registry_of("wait=1s"), registry_of("wait=1s&consistency=default"));
    in_sync(&stale).await;
    in_sync(&strict).await;
    consul.set_leader(false);
    // A follower that was left behind shows less.
    consul.deregister(&gone("web", 2));
    stale.fails("Consul has no leader").await;
    strict.fails("No cluster leader").await;
    assert_eq!((stale.fewest_endpoints(), strict.fewest_endpoints()), (3, 3));
    consul.set_leader(true);
    for registry in [&stale, &strict] {
        registry
            .until("then it counts", |state| state.failure.is_none() && state.addresses().len() == 2)
            .await;
    }
}

#[tokio::test]
async fn an_empty_answer_is_believed_when_it_is_said_twice() {
    let consul = some().await;
    (10..13).for_each(|number| consul.register(&instance("web", number)));
    let registry = registry(&consul, "wait=1s&guardWait=8s");
    registry.until("it is in sync", |state| state.synced && state.addresses().len() == 6).await;
    consul.fail("/v1/health/service", ConsulFault::Empty);
    consul.register(&instance("web", 4));
    // The second answer, by a new session, does not say so.
    registry.until("the first is held back", |_| registry.report().held.is_some()).await;
    consul.heal();
    registry.until("nothing was lost", |state| state.addresses().len() == 7).await;
    assert!(registry.fewest_endpoints() >= 6);
    consul.fail("/v1/catalog/services", ConsulFault::Empty);
    consul.register(&instance("web", 5));
    registry.until("said twice", |state| state.addresses().is_empty()).await;
    consul.heal();
    follows(&consul, &registry, 6).await;
}

#[tokio::test]
async fn indexes_that_go_back_start_anew_without_spinning() {
    let consul = some().await;
    let registry = registry(&consul, "wait=1s");
    in_sync(&registry).await;
    let _ = consul.take_asked();
    consul.fail("/v1/health/service/web", ConsulFault::Indexes([100, 100, 5, 0, 0, 0].into()));
    consul.register(&instance("web", 4));
    registry.until("it follows", |state| state.addresses().len() == 4).await;
    // The other service is asked for once in `wait`, and so is this one, but for the indexes that end its
    // waits.
    let asked = RefCell::new(Vec::new());
    let of = |service: &str, text: &str| {
        let asked = asked.borrow();
        asked.iter().filter(|uri: &&String| uri.contains(service) && uri.contains(text)).count()
    };
    registry
        .until("an index of 0 becomes 1", |_| {
            asked.borrow_mut().extend(consul.take_asked().into_iter().map(|asked| asked.uri));
            of("/db", "") > 4 && of("/web", "index=1&") > 0
        })
        .await;
    let (web, db) = (of("/web", ""), of("/db", ""));
    assert!(web <= db + 10, "{web} requests, {db} for the other service: {:#?}", asked.borrow());
    consul.heal();
    follows(&consul, &registry, 5).await;
    assert_eq!(registry.fewest_endpoints(), 3);
}

#[tokio::test]
async fn a_stale_answer_that_is_too_old_is_asked_of_the_leader() {
    let consul = some().await;
    let _ = consul.take_asked();
    consul.fail("/v1", ConsulFault::LastContact(60_000));
    let fallen_back = registry(&consul, "maxStale=5s");
    in_sync(&fallen_back).await;
    let asked = consul.take_asked();
    assert!(
        asked.iter().any(|asked| asked.uri.contains("stale"))
            && asked.iter().any(|asked| !asked.uri.contains("stale"))
    );
    drop(fallen_back);
    let _ = consul.take_asked();
    let patient = registry(&consul, "maxStale=2m");
    in_sync(&patient).await;
    drop(patient);
    assert!(consul.take_asked().iter().all(|asked| asked.uri.contains("stale")));
    for (consistency, want) in [("default", false), ("consistent", true)] {
        let consul = some().await;
        let _ = consul.take_asked();
        in_sync(&registry(&consul, &format!("consistency={consistency}"))).await;
        let asked = consul.take_asked();
        let as_wanted = |uri: &str| uri.contains("consistent") == want && !uri.contains("stale");
        assert!(!asked.is_empty() && asked.iter().all(|asked| as_wanted(&asked.uri)), "{asked:?}");
    }
}

#[tokio::test]
async fn attempts_grow_apart_while_nobody_is_there() {
    let mut consul = some().await;
    let registry = registry(&consul, "");
    in_sync(&registry).await;
    let began = Instant::now();
    consul.kill().await;
    registry.until("five attempts fail", |_| registry.report().failures >= 5).await;
    // From 0.1 s or more, doubled each time: 0.1, 0.2, 0.4, 0.8 at the fastest.
    assert!(began.elapsed() >= Duration::from_millis(1_500), "{:?}", began.elapsed());
    consul.resume().await;
    follows(&consul, &registry, 4).await;
}
