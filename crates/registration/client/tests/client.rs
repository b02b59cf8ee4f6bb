//! The client against real servers.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{Caller, Deregister, Expected, InstanceKey, Registrar, RegistrarSettings};
use pilotfish_registration_client::{Change, Client, ClientOptions, Error, Instance, Port, Record, State};
use pilotfish_registration_server::{AccessFiles, RegistrationServer, ServerSettings, Silent};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A registrar, which any number of servers share.
struct Registry {
    registrar: Registrar,
    driver: JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Registry {
    async fn open() -> Self {
        let (store, events) = MemoryStore::open();
        let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
        let driver = tokio::spawn(driver.run());
        assert!(registrar.ready().await);
        Self { registrar, driver }
    }

    fn serve(&self, access: AccessFiles) -> Server {
        let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.access = access;
        settings.bookmark_interval = Duration::from_millis(50);
        settings.limits.drain_timeout = Duration::from_millis(500);
        let bound =
            RegistrationServer::new(self.registrar.clone(), settings, Arc::new(Silent)).bind().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let address = bound.local_addr();
        let task = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        Server { address, stop, task }
    }

    fn ids(&self) -> Vec<String> {
        let list = self.registrar.list(&Default::default(), None, 1_000);
        list.instances.iter().map(|view| view.record.instance.key.id.to_string()).collect()
    }

    /// Takes an instance away behind its client's back.
    async fn take_away(&self, id: &str) {
        let key = InstanceKey::new("default", "web", id);
        let caller = Caller { identity: "operator".into(), may_take_over: true };
        let request = Deregister { key, expected: Expected::Any, drain: None };
        self.registrar.deregister(&caller, vec![request]).await.remove(0).unwrap();
    }
}

impl Server {
    async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

fn client(servers: &[&Server]) -> Client {
    let addresses = servers.iter().map(|server| format!("http://{}", server.address));
    Client::new(ClientOptions::new(addresses)).unwrap()
}

fn id(record: &Record) -> &str {
    record.instance.as_ref().map_or("", |instance| &instance.id)
}

fn instance(id: &str) -> Instance {
    Instance {
        service: "web".into(),
        id: id.into(),
        addresses: vec!["10.0.0.1".into()],
        ports: vec![Port { number: 8080, ..Port::default() }],
        ttl: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..Instance::default()
    }
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_instance_is_renewed_and_goes_when_it_is_deregistered() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let mut registration = client(&[&server]).register(instance("a")).await.unwrap();
    let renewed = registry.registrar.stats().renewed;
    eventually("it is renewed", || registry.registrar.stats().renewed >= renewed + 3).await;
    assert!(matches!(*registration.state().borrow(), State::Registered { revision } if revision > 0));
    assert_eq!(registry.ids(), ["a"]);
    assert_eq!(registration.deregister(None).await.unwrap(), Duration::ZERO);
    assert_eq!(registry.ids(), Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_lease_is_registered_again() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let registration = client(&[&server]).register(instance("a")).await.unwrap();
    let first = registry.registrar.get(&InstanceKey::new("default", "web", "a")).unwrap().record.revision;
    registry.take_away("a").await;
    eventually("it is back", || registry.ids() == ["a"]).await;
    let mut state = registration.state();
    let back = state.wait_for(|state| matches!(state, State::Registered { revision } if *revision > first));
    tokio::time::timeout(Duration::from_secs(20), back).await.unwrap().unwrap();
}

#[tokio::test]
async fn another_server_takes_over() {
    let registry = Registry::open().await;
    let (first, second) = (registry.serve(AccessFiles::default()), registry.serve(AccessFiles::default()));
    let client = client(&[&first, &second]);
    let mut registration = client.register(instance("a")).await.unwrap();
    let mut watch = client.watch("", "");
    assert!(matches!(watch.next().await.unwrap(), Change::Updated(record) if id(&record) == "a"));
    assert_eq!(watch.next().await.unwrap(), Change::Synced);
    first.stop().await;
    let renewed = registry.registrar.stats().renewed;
    eventually("it is renewed elsewhere", || registry.registrar.stats().renewed >= renewed + 2).await;
    let mut other = client.register(instance("b")).await.unwrap();
    let change = watch.next().await.unwrap();
    assert!(
        matches!(&change, Change::Updated(record) if id(record) == "b"),
        "what there was is not told again: {change:?}"
    );
    other.deregister(None).await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), Change::Removed { id, .. } if id == "b"));
    registration.deregister(None).await.unwrap();
}

#[tokio::test]
async fn one_that_must_be_registered_waits_for_a_server() {
    let registry = Registry::open().await;
    let (server, gone) = (registry.serve(AccessFiles::default()), registry.serve(AccessFiles::default()));
    let address = gone.address;
    gone.stop().await;
    let alone = Client::new(ClientOptions::new([format!("http://{address}")])).unwrap();
    assert!(alone.register(instance("a")).await.unwrap_err().is_transient());
    let two = [format!("http://{address}"), format!("http://{}", server.address)];
    let kept = Client::new(ClientOptions::new(two)).unwrap().keep_registered(instance("a"));
    eventually("it is registered at the other", || registry.ids() == ["a"]).await;
    drop(kept);
}

#[tokio::test]
async fn updates_change_it_and_bad_ones_are_told() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let client = client(&[&server]);
    let registration = client.register(instance("a")).await.unwrap();
    registration.update(Instance { weight: 7, ..instance("a") }).unwrap();
    let weight =
        || registry.registrar.get(&InstanceKey::new("default", "web", "a")).unwrap().record.instance.weight;
    eventually("it is changed", || weight() == 7).await;
    registration.update(Instance { addresses: vec!["nowhere".into()], ..instance("a") }).unwrap();
    let mut state = registration.state();
    let refused = state.wait_for(|state| matches!(state, State::Refused { .. }));
    let refused = tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap().unwrap().clone();
    assert!(format!("{refused:?}").contains("instance.addresses[0]"), "{refused:?}");
    assert_eq!(weight(), 7, "what was registered stays");
    assert!(matches!(registration.update(instance("b")), Err(Error::Options(_))));
    let records = client.instances("default", "web").await.unwrap();
    assert_eq!(records.iter().map(id).collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn a_token_proves_who_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (tokens, own) = (directory.path().join("tokens.yaml"), directory.path().join("token"));
    std::fs::write(&tokens, "tokens:\n- name: web\n  token: 0123456789abcdef\n").unwrap();
    std::fs::write(&own, "wrong-wrong-wrong\n").unwrap();
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles { tokens: Some(tokens), rules: None });
    let client = || {
        let mut options = ClientOptions::new([format!("http://{}", server.address)]);
        options.token_file = Some(own.clone());
        Client::new(options).unwrap()
    };
    let refused = client().register(instance("a")).await.map(drop).unwrap_err();
    assert!(!refused.is_transient() && refused.to_string().contains("identity"), "{refused}");
    std::fs::write(&own, "0123456789abcdef\n").unwrap();
    client().register(instance("a")).await.unwrap();
    let owner =
        registry.registrar.get(&InstanceKey::new("default", "web", "a")).unwrap().record.owner.to_string();
    assert_eq!(owner, "token/web");
}
