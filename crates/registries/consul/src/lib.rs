//! The Consul registry: `--registry consul=http://HOST:8500`.
//!
//! ```text
//! Consul ◀─ GET, blocking ─ session ─ answers ─▶ Known ─ mapping ─▶ CatalogService
//!              ▲                │
//!              └── Schedule ◀───┘   next questions and their blocking times: a state machine without IO
//! ```
//!
//! `catalog/services` lists the services, `health/service` the instances of one. Over HTTP/2 a blocking query
//! for each service is always open. Over HTTP/1.1 each query takes a connection, of which an agent allows a
//! client 200: with more services than connections, the list of services and the checks in the states
//! critical and warning are always watched and show which service to query again, and the services themselves
//! take turns with short waits. See [`Schedule`] for the rules.

mod answer;
mod client;
mod health;
mod index;
mod known;
mod mapping;
mod query;
mod schedule;
mod select;
mod session;
mod settings;
mod triggers;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_registry::{CATALOG_OPTIONS, Input, RegistryType};

#[cfg(doc)]
use schedule::Schedule;

/// The registry type of Consul.
pub static CONSUL: RegistryType = RegistryType {
    name: "Consul",
    provider: "Consul",
    about: "services of a Consul agent, by blocking queries",
    address: "http://HOST:8500[,HOST:8500...]",
    options: &[settings::OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(session::open),
};
