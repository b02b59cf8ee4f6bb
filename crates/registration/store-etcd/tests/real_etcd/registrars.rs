//! Two registrars on one etcd, as in two Pilotfishes: clients go from one to the other, and what falls silent
//! is removed once.

use crate::support::{LIMIT, leased, settings};
use pilotfish_registration::testing::{key, put};
use pilotfish_registration::{Health, LivenessSettings, Registrar, RegistrarSettings, Store};
use pilotfish_registration_etcd::EtcdStore;
use pilotfish_testkit::real::Etcd;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

struct Pilotfish {
    store: Arc<EtcdStore>,
    registrar: Registrar,
    driver: JoinHandle<()>,
}

impl Drop for Pilotfish {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Pilotfish {
    async fn start(address: &str) -> Self {
        let (store, events) = EtcdStore::open(settings(address));
        let store = Arc::new(store);
        let liveness = LivenessSettings { remove_after: Some(Duration::from_secs(8)), ..Default::default() };
        let registrar_settings = RegistrarSettings { liveness, ..Default::default() };
        let (registrar, driver) = Registrar::new(store.clone(), events, registrar_settings);
        let this = Self { store, registrar, driver: tokio::spawn(driver.run()) };
        assert!(this.registrar.ready().await);
        this
    }

    fn health(&self, id: &str) -> Option<Health> {
        self.registrar.get(&key(id)).map(|view| view.health)
    }

    async fn until(&self, id: &str, wanted: Option<Health>) {
        let end = Instant::now() + LIMIT;
        while self.health(id) != wanted {
            assert!(Instant::now() < end, "{id} is {:?}, and not {wanted:?}", self.health(id));
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn what_falls_silent_is_marked_and_removed_everywhere() {
    let Some(etcd) = Etcd::start().await else { return };
    let address = format!("http://127.0.0.1:{}", etcd.port(0));
    let (a, b) = (Pilotfish::start(&address).await, Pilotfish::start(&address).await);
    let writes = ["renewed", "silent"].map(|id| put(leased(id, 6)));
    assert!(a.store.write(writes.to_vec()).await.iter().all(Result::is_ok));
    let renewing = b.store.clone();
    let heartbeat = tokio::spawn(async move {
        loop {
            assert_eq!(renewing.renew(vec![key("renewed")]).await, [Ok(())]);
            sleep(Duration::from_millis(500)).await;
        }
    });
    for pilotfish in [&a, &b] {
        pilotfish.until("silent", Some(Health::Lapsed)).await;
    }
    // Both want to remove it.
    for pilotfish in [&a, &b] {
        pilotfish.until("silent", None).await;
        assert_eq!(pilotfish.health("renewed"), Some(Health::Healthy));
    }
    // One of them dies; the client goes on with the other.
    drop(a);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(b.health("renewed"), Some(Health::Healthy));
    assert!(!heartbeat.is_finished());
    heartbeat.abort();
    b.until("renewed", None).await;
}
