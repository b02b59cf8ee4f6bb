//! The Polaris registry: services and instances of some namespaces, read from the Discover stream of Polaris'
//! gRPC API.
//!
//! ```text
//! Polaris ◀─ Discover: questions with revisions ─▶ session ─ answers ─▶ Directory, Mapping ─▶ CatalogWriter
//! ```
//!
//! [`directory`] keeps the state, creates questions and applies answers, [`mapping`] converts services and
//! instances to the catalog: both without IO. [`session`] polls, because Polaris has no pushes.

mod directory;
mod mapping;
mod proto;
mod session;
mod settings;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_registry::{CATALOG_OPTIONS, Input, OptionSpec, RegistryType};

/// The registry type of Polaris.
pub static POLARIS: RegistryType = RegistryType {
    name: "Polaris",
    provider: "Polaris",
    about: "services of Polaris, by its gRPC API",
    address: "grpc://HOST:8091[,HOST:8091...]",
    options: &[OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(settings::open),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "namespaces",
        value: "NAME,...",
        about: "the namespaces of Polaris that are read; it cannot list them [default: default]",
    },
    OptionSpec {
        name: "interval",
        value: "DURATION",
        about: "interval of requests for changes [default: 2s]",
    },
    OptionSpec {
        name: "host",
        value: "TEMPLATE",
        about: "the host name of a service [default: {service}.{namespace}.polaris]",
    },
    OptionSpec {
        name: "tokenFile",
        value: "FILE",
        about: "the token of a user of Polaris [default: the environment's PILOTFISH_POLARIS_TOKEN]",
    },
];
