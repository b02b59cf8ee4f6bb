//! The client against real servers.

use pilotfish_registration::testing::MemoryStore;
use pilotfish_registration::{Caller, Deregister, Expected, InstanceKey, Registrar, RegistrarSettings};
use pilotfish_registration_client::{
    Change, ClientError, ClientSettings, Instance, Port, RegistrationClient, RegistrationState, Token,
    WatchFilter,
};
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

fn client(servers: &[&Server]) -> RegistrationClient {
    let addresses = servers.iter().map(|server| format!("http://{}", server.address));
    RegistrationClient::new(ClientSettings::new(addresses)).unwrap()
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
async fn an_instance_is_renewed_and_goes_when_it_is_closed() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let registration = client(&[&server]).register(instance("a")).await.unwrap();
    assert!(matches!(registration.state(), RegistrationState::Registered { revision } if revision > 0));
    let renewed = registry.registrar.stats().renewed;
    eventually("it is renewed", || registry.registrar.stats().renewed >= renewed + 3).await;
    assert_eq!(registry.ids(), ["a"]);
    registration.close().await.unwrap();
    assert_eq!(registry.ids(), Vec::<String>::new());
}

#[tokio::test]
async fn dropping_it_deregisters_in_the_background() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let registration = client(&[&server]).register(instance("a")).await.unwrap();
    drop(registration);
    eventually("it is gone", || registry.ids().is_empty()).await;
}

#[tokio::test]
async fn a_lost_lease_is_registered_again() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let registration = client(&[&server]).register(instance("a")).await.unwrap();
    registry.take_away("a").await;
    eventually("it is back", || registry.ids() == ["a"]).await;
    let mut states = registration.states();
    let back =
        states.wait_for(|state| matches!(state, RegistrationState::Registered { revision } if *revision > 1));
    tokio::time::timeout(Duration::from_secs(10), back).await.unwrap().unwrap();
}

#[tokio::test]
async fn another_server_takes_over() {
    let registry = Registry::open().await;
    let (first, second) = (registry.serve(AccessFiles::default()), registry.serve(AccessFiles::default()));
    let client = client(&[&first, &second]);
    let registration = client.register(instance("a")).await.unwrap();
    let mut watch = client.watch(WatchFilter::default());
    assert!(
        matches!(watch.next().await.unwrap(), Change::Updated(record) if record.instance.as_ref().unwrap().id == "a")
    );
    assert_eq!(watch.next().await.unwrap(), Change::Synced);
    first.stop().await;
    let renewed = registry.registrar.stats().renewed;
    eventually("it is renewed elsewhere", || registry.registrar.stats().renewed >= renewed + 2).await;
    let other = client.register(instance("b")).await.unwrap();
    let changes = [watch.next().await.unwrap()];
    assert!(
        matches!(&changes[0], Change::Updated(record) if record.instance.as_ref().unwrap().id == "b"),
        "{changes:?}"
    );
    other.close().await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), Change::Removed(key) if key.id == "b"));
    registration.close().await.unwrap();
}

#[tokio::test]
async fn registering_waits_for_a_server() {
    let registry = Registry::open().await;
    let (server, late) = (registry.serve(AccessFiles::default()), registry.serve(AccessFiles::default()));
    let address = late.address;
    late.stop().await;
    let client = RegistrationClient::new(ClientSettings::new([format!("http://{address}")])).unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(300), client.register(instance("a"))).await;
    assert!(waiting.is_err(), "nobody answers yet");
    let two = [format!("http://{address}"), format!("http://{}", server.address)];
    let client = RegistrationClient::new(ClientSettings::new(two)).unwrap();
    client.register(instance("a")).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn updates_change_it_and_bad_ones_do_not() {
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles::default());
    let client = client(&[&server]);
    let registration = client.register(instance("a")).await.unwrap();
    registration.update(Instance { weight: 7, ..instance("a") }).await.unwrap();
    let key = pilotfish_registration_client::InstanceKey {
        service: "web".into(),
        id: "a".into(),
        ..Default::default()
    };
    let weight = async || client.get(key.clone()).await.unwrap().unwrap().instance.unwrap().weight;
    assert_eq!(weight().await, 7);
    let refused = registration.update(Instance { addresses: vec!["nowhere".into()], ..instance("a") }).await;
    assert!(
        matches!(&refused, Err(ClientError::Invalid { fields, .. }) if fields[0].field == "instance.addresses[0]"),
        "{refused:?}"
    );
    let renamed = registration.update(instance("b")).await;
    assert!(matches!(renamed, Err(ClientError::Settings(_))), "{renamed:?}");
    assert_eq!(weight().await, 7);
    let renewed = registry.registrar.stats().renewed;
    eventually("it is still renewed", || registry.registrar.stats().renewed > renewed).await;
    registration.close().await.unwrap();
    assert_eq!(client.get(key).await.unwrap(), None);
}

#[tokio::test]
async fn a_token_is_read_for_each_request_and_a_refusal_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (tokens, own) = (directory.path().join("tokens.yaml"), directory.path().join("token"));
    std::fs::write(&tokens, "tokens:\n- name: web\n  token: 0123456789abcdef\n").unwrap();
    std::fs::write(&own, "wrong\n").unwrap();
    let registry = Registry::open().await;
    let server = registry.serve(AccessFiles { tokens: Some(tokens), rules: None });
    let mut settings = ClientSettings::new([format!("http://{}", server.address)]);
    settings.token = Some(Token::File(own.clone()));
    let client = RegistrationClient::new(settings).unwrap();
    let refused = client.register(instance("a")).await.map(drop).unwrap_err();
    assert!(!refused.is_temporary() && refused.to_string().contains("identity"), "{refused}");
    std::fs::write(&own, "0123456789abcdef\n").unwrap();
    client.register(instance("a")).await.unwrap();
}
