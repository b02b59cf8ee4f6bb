//! The etcd registry: keys of a prefix, by a schema that settings describe, as services and instances.
//!
//! ```text
//! etcd ◀─ Range, Watch ─▶ session ─ responses ─▶ Watch, Keyspace ─ changed services ─▶ CatalogWriter
//! ```
//!
//! [`schema`] interprets keys and values, [`keyspace`] keeps the state of all keys: both without IO.
//! [`session`] reads everything at one revision and watches later changes.

mod keyspace;
mod schema;
mod session;
mod settings;

use pilotfish_connect::TLS_OPTIONS;
use pilotfish_etcd_client::LOGIN_OPTIONS;
use pilotfish_registry::{CATALOG_OPTIONS, Input, OptionSpec, RegistryType};

/// The registry type of etcd.
pub static ETCD: RegistryType = RegistryType {
    name: "etcd",
    provider: "etcd",
    about: "keys of a prefix, by a schema of your own",
    address: "http://HOST:2379[,HOST:2379...]",
    options: &[OPTIONS, LOGIN_OPTIONS, TLS_OPTIONS, CATALOG_OPTIONS],
    input: Input::Live(settings::open),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "layout",
        value: "NAME",
        about: "how keys and values are written: json, text, grpc, skydns or dubbo [default: json]",
    },
    OptionSpec {
        name: "prefix",
        value: "KEY",
        about: "the keys that are read begin so [default: that of the layout, /services/ for json and text]",
    },
    OptionSpec {
        name: "key",
        value: "PATTERN",
        about: "what follows the prefix in a key [default: that of the layout, {service}/{instance} for json \
            and text]",
    },
    OptionSpec {
        name: "fields",
        value: "ROLE:FIELD,...",
        about: "which fields of JSON values say what, where they are named otherwise",
    },
    OptionSpec {
        name: "host",
        value: "TEMPLATE",
        about: "the host name of a service [default: that of the layout, {service}.{group}.etcd for json and \
            text]",
    },
    OptionSpec {
        name: "instancePort",
        value: "NUMBER",
        about: "where instances listen whose key and value do not say it [default: they are left out]",
    },
];
