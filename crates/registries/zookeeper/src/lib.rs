//! The ZooKeeper registry: services registered by Dubbo providers or Spring Cloud applications.
//!
//! ```text
//! server ─ wire ─▶ client::Session ─ answers, events ─▶ Mirror ─ Registrations, changes ─▶ Mapper ─▶ catalog
//!          ◀─ requests ───────────────────────────────┘
//! ```
//!
//! | Module | Content |
//! |---|---|
//! | `wire` | ZooKeeper's protocol as bytes and values |
//! | `client` | a session over a connection |
//! | `mirror` | mirror of the registration nodes; a state machine |
//! | `dubbo` | Dubbo's formats of URLs, instances and metadata |
//! | `mapping` | conversion of registrations to services |
//! | `product` | sessions that connect these parts |
//!
//! The crate implements the protocol itself: a reader needs six requests, and thus has the same limits, TLS
//! and runtime as other registries.

mod client;
mod dubbo;
mod mapping;
mod mirror;
mod options;
mod product;
#[cfg(test)]
mod testing;
mod wire;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_registry::{CATALOG_OPTIONS, Input, RegistryType};

/// The registry type of ZooKeeper.
pub static ZOOKEEPER: RegistryType = RegistryType {
    name: "zookeeper",
    provider: "zookeeper",
    about: "Dubbo and Spring Cloud in ZooKeeper",
    address: "zk://HOST:2181[,HOST...]",
    options: &[options::OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(product::open),
};
