//! Test helpers: a store in memory, instances, and the conformance tests of stores.

mod conformance;
mod memory;

pub use conformance::{Opened, Subject, conformance};
pub use memory::MemoryStore;

use crate::{
    Caller, Instance, InstanceKey, Registration, RegistrationCheck, RegistrationCheckKind, RegistrationPort,
    Value, Write,
};
use std::sync::Arc;
use std::time::Duration;

/// The domain of the cluster in tests.
pub const DOMAIN: &str = "cluster.local";

/// A registration of `web` in namespace `default` on 10.0.0.1:8080, with a lease of 10 s.
#[must_use]
pub fn registration(id: &str) -> Registration {
    Registration {
        addresses: vec!["10.0.0.1".to_owned()],
        ports: vec![RegistrationPort {
            number: 8080,
            service_port: 80,
            name: "http".into(),
            ..Default::default()
        }],
        ttl: Some(Duration::from_secs(10)),
        ..Registration::new("default", "web", id)
    }
}

/// The instance of [`registration`].
///
/// # Panics
/// If the id is invalid.
#[must_use]
pub fn instance(id: &str) -> Instance {
    registration(id).validate(DOMAIN).expect("a good registration")
}

/// The instance of [`registration`] with an active check and no lease.
///
/// # Panics
/// If the id is invalid.
#[must_use]
pub fn checked_instance(id: &str) -> Instance {
    let kind = Some(RegistrationCheckKind::Tcp);
    let checks = vec![RegistrationCheck { kind, ..Default::default() }];
    let registration = Registration { checks, ttl: None, ..registration(id) };
    registration.validate(DOMAIN).expect("a good registration")
}

/// The key of [`instance`].
#[must_use]
pub fn key(id: &str) -> InstanceKey {
    InstanceKey::new("default", "web", id)
}

/// A caller that owns its own registrations only.
#[must_use]
pub fn caller(identity: &str) -> Caller {
    Caller { identity: identity.into(), may_take_over: false }
}

/// An unconditional write of an instance by `owner`.
#[must_use]
pub fn put(instance: Instance) -> Write {
    let key = instance.key.clone();
    let value = Value { instance: Arc::new(instance), owner: "owner".into(), state: Default::default() };
    Write { key, expected: Default::default(), value: Some(value) }
}

/// Removal of a record in any state.
#[must_use]
pub fn remove(key: InstanceKey) -> Write {
    Write { key, expected: Default::default(), value: None }
}
