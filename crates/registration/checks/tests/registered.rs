//! Checks of what is registered: an instance that fails is marked, stays, and is well again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_registration::testing::{DOMAIN, MemoryStore, key};
use pilotfish_registration::{
    CheckResult, Expected, Health, Registrar, RegistrarSettings, Registration, RegistrationCheck,
    RegistrationCheckKind, RegistrationPort, Store, Value, Write,
};
use pilotfish_registration_checks::{CheckSettings, Networks, Verdict, checks};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

fn write(port: u16, weight: u32) -> Write {
    let second = Duration::from_secs(1);
    let check = RegistrationCheck {
        kind: Some(RegistrationCheckKind::Tcp),
        interval: second,
        timeout: second,
        unhealthy_threshold: 1,
        ..Default::default()
    };
    let registration = Registration {
        addresses: vec!["127.0.0.1".to_owned()],
        ports: vec![RegistrationPort { number: u32::from(port), ..Default::default() }],
        checks: vec![check],
        weight,
        ..Registration::new("default", "web", "a")
    };
    let instance = Arc::new(registration.validate(DOMAIN).unwrap());
    let value = Value { instance, owner: "me".into(), state: Default::default() };
    Write { key: key("a"), expected: Expected::Any, value: Some(value) }
}

#[tokio::test]
async fn what_fails_is_marked_and_stays() {
    let (store, events) = MemoryStore::open();
    let store = Arc::new(store);
    let (registrar, driver) = Registrar::new(store.clone(), events, RegistrarSettings::default());
    let driver = tokio::spawn(driver.run());
    assert!(registrar.ready().await);
    let (handle, runner) =
        checks(CheckSettings { networks: Networks::with_loopback(), ..CheckSettings::default() });
    let told = registrar.clone();
    let checking = tokio::spawn(runner.run(move |Verdict { key, revision, failure }| {
        told.report_checks([CheckResult { key, revision, has_failed: failure.is_some() }]);
    }));
    let until = async |what: &str, wanted: Option<Health>| {
        let end = Instant::now() + Duration::from_secs(20);
        while registrar.get(&key("a")).map(|view| view.health) != wanted {
            assert!(Instant::now() < end, "{what}: {:?} {:?}", registrar.get(&key("a")), handle.report());
            sleep(Duration::from_millis(10)).await;
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let written = store.write(vec![write(address.port(), 0)]).await;
    assert!(written[0].is_ok(), "{written:?}");
    until("it is well", Some(Health::Healthy)).await;
    let check = || handle.set(registrar.get(&key("a")).unwrap().record);
    check();
    let begin = Instant::now();
    while handle.report().passed == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it is asked");
        sleep(Duration::from_millis(10)).await;
    }
    drop(listener);
    until("it fails", Some(Health::CheckFailed)).await;
    // Another revision of what fails fails still.
    store.write(vec![write(address.port(), 7)]).await;
    let begin = Instant::now();
    while registrar.get(&key("a")).unwrap().record.instance.weight != 7 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it changes");
        sleep(Duration::from_millis(10)).await;
    }
    let failed = handle.report().failed;
    check();
    let begin = Instant::now();
    // The second probe from now on is one of the new revision.
    while handle.report().failed < failed + 2 {
        assert_eq!(registrar.get(&key("a")).unwrap().health, Health::CheckFailed);
        assert!(begin.elapsed() < Duration::from_secs(20), "it is asked again");
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(registrar.get(&key("a")).unwrap().health, Health::CheckFailed);
    let _listener = TcpListener::bind(address).await.unwrap();
    until("it is well again", Some(Health::Healthy)).await;
    store.write(vec![Write { value: None, ..write(address.port(), 0) }]).await;
    until("it is gone", None).await;
    handle.remove(&key("a"));
    let end = Instant::now() + Duration::from_secs(10);
    while handle.report().checks > 0 {
        assert!(Instant::now() < end, "nothing is checked any more");
        sleep(Duration::from_millis(10)).await;
    }
    checking.abort();
    driver.abort();
}
