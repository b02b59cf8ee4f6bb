//! The registry `zookeeper`: services that Dubbo's providers, or applications of Spring Cloud, registered in ZooKeeper.
//!
//! ```text
//! server ─ wire ─▶ client::Session ─ answers, events ─▶ Mirror ─ Registrations, what changed ─▶ Mapper ─ CatalogServices ─▶ catalog
//!          ◀─ requests ───────────────────────────────┘
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | `wire` | ZooKeeper's protocol as bytes and values |
//! | `client` | a session over a connection |
//! | `mirror` | which nodes to read, and what they say; a state machine |
//! | `dubbo` | URLs, instances and metadata as Dubbo writes them |
//! | `mapping` | registrations as services |
//! | `product` | what brings them together |
//!
//! The protocol is spoken by this crate itself: a reader needs six requests of it, and the limits, the TLS and the runtime are then those
//! of all registries.

mod client;
mod dubbo;
mod mapping;
mod mirror;
mod options;
mod product;
#[cfg(test)]
mod testing;
mod wire;

use pilotfish_registry::{CATALOG_OPTIONS, Input, RegistryType};
use pilotfish_registry_client::TLS_OPTIONS;

/// The line in the table of registries.
pub static ZOOKEEPER: RegistryType = RegistryType {
    name: "zookeeper",
    provider: "zookeeper",
    about: "Dubbo and Spring Cloud in ZooKeeper",
    address: "zk://HOST:2181[,HOST...]",
    options: &[options::OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(product::open),
};
