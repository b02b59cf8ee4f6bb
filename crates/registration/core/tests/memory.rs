//! The store in memory does what stores must do.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pilotfish_registration::testing::{MemoryStore, Opened, Subject, conformance};
use std::sync::Arc;

/// The store in memory, opened again with what it had.
#[derive(Default)]
struct Memory(Option<Arc<MemoryStore>>);

impl Subject for Memory {
    fn open(&mut self) -> BoxFuture<'_, Opened> {
        let (revision, records) = self.0.take().map(|store| store.contents()).unwrap_or_default();
        let (store, events) = MemoryStore::open_with(revision, records);
        let store = Arc::new(store);
        self.0 = Some(Arc::clone(&store));
        std::future::ready(Opened { store, events }).boxed()
    }
}

#[tokio::test]
async fn it_conforms() {
    conformance(&mut Memory::default()).await;
}
