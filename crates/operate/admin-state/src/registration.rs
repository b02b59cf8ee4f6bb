//! Registration in the admin API.

use pilotfish_api as api;
use pilotfish_registration::{Health, Registrar, RegistrarStats};

/// Returns the numbers of registered services, and the state of the registrar and its store.
pub(crate) fn view(registrar: &Registrar) -> api::Registration {
    let stats = registrar.stats();
    let store = registrar.store();
    let instances = Health::ALL.map(|health| (health.as_str().to_owned(), stats.counts.of(health)));
    api::Registration {
        store: api::RegistrationStore {
            kind: store.kind.to_owned(),
            place: store.place,
            bytes: store.bytes,
            trouble: store.trouble,
        },
        ready: stats.is_ready,
        revision: stats.revision,
        services: stats.counts.services,
        instances: instances.into(),
        owners: stats.counts.owners(),
        preserving: stats.preserving.iter().map(ToString::to_string).collect(),
        watches: stats.watches,
        history_events: stats.history_events,
        history_bytes: stats.history_bytes,
        requests: requests(&stats),
        lapsed: stats.lapsed,
        expired: stats.expired,
        preservations: stats.preservations,
    }
}

fn requests(stats: &RegistrarStats) -> Vec<api::RegistrationRequests> {
    [
        ("register", "ok", stats.registered),
        ("register", "unchanged", stats.registered_again),
        ("register", "failed", stats.register_errors),
        ("renew", "ok", stats.renewed),
        ("renew", "failed", stats.renew_errors),
        ("deregister", "ok", stats.deregistered),
        ("deregister", "failed", stats.deregister_errors),
    ]
    .map(|(operation, result, count)| api::RegistrationRequests {
        operation: operation.into(),
        result: result.into(),
        count,
    })
    .into()
}
