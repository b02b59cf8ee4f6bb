//! Conformance tests of stores. A store's tests call [`conformance`] with a [`Subject`].

#![allow(clippy::panic, reason = "what fails is a test")]

mod leases;
mod probe;
mod reopening;
mod writes;

use crate::{Store, StoreEvents};
use futures::future::BoxFuture;
use probe::Probe;
use std::sync::Arc;

/// A store under test: empty at first, it can be opened repeatedly with its content.
pub trait Subject: Send {
    /// Opens the store. Earlier handles were dropped.
    fn open(&mut self) -> BoxFuture<'_, Opened>;
}

/// A store under test with its events.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub events: StoreEvents,
}

/// Runs the whole suite on one store. It takes some seconds, since leases lapse.
///
/// # Panics
/// If the store violates the contract.
pub async fn conformance(subject: &mut dyn Subject) {
    let mut probe = Probe::open(subject).await;
    assert!(probe.records.is_empty(), "empty at first");
    writes::create_change_remove(&mut probe).await;
    writes::expectations(&mut probe).await;
    writes::what_is_there_already_is_no_write(&mut probe).await;
    writes::a_batch(&mut probe).await;
    writes::every_field_comes_back(&mut probe).await;
    writes::nobody_overwrites_what_he_did_not_see(&mut probe).await;
    writes::a_write_that_nobody_waits_for(&mut probe).await;
    leases::lapse_and_renewal(&mut probe).await;
    leases::a_write_begins_a_lease_anew(&mut probe).await;
    leases::what_has_no_lease(&mut probe).await;
    reopening::everything_is_there(subject, probe).await;
}
