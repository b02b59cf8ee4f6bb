//! The embedded store does what stores must do.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pilotfish_registration::testing::{Opened, Subject, conformance};
use pilotfish_registration_redb::{OpenStore, RedbStore};
use std::sync::Arc;

struct Embedded(tempfile::TempDir);

impl Subject for Embedded {
    fn open(&mut self) -> BoxFuture<'_, Opened> {
        let OpenStore { store, events } = RedbStore::open(self.0.path()).expect("opened");
        std::future::ready(Opened { store: Arc::new(store), events }).boxed()
    }
}

#[tokio::test]
async fn it_conforms() {
    conformance(&mut Embedded(tempfile::tempdir().expect("a directory"))).await;
}
