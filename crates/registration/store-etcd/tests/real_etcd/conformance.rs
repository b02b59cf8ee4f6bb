//! The suite of all stores.

use crate::support::settings;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use pilotfish_registration::testing::{Opened, Subject, conformance};
use pilotfish_registration_etcd::EtcdStore;
use pilotfish_testkit::real::Etcd;
use std::sync::Arc;

struct OnEtcd(String);

impl Subject for OnEtcd {
    fn open(&mut self) -> BoxFuture<'_, Opened> {
        async move {
            let (store, events) = EtcdStore::open(settings(&self.0));
            Opened { store: Arc::new(store), events }
        }
        .boxed()
    }
}

#[tokio::test]
async fn conforms() {
    let Some(etcd) = Etcd::start().await else { return };
    conformance(&mut OnEtcd(format!("http://127.0.0.1:{}", etcd.port(0)))).await;
}

#[tokio::test]
async fn conforms_on_three_members() {
    let Some(etcd) = Etcd::start_with(3, None, &[]).await else { return };
    let servers: Vec<String> =
        (0..3).map(|member| format!("http://127.0.0.1:{}", etcd.port(member))).collect();
    conformance(&mut OnEtcd(format!("{}?prefix=/other", servers.join(",")))).await;
}
