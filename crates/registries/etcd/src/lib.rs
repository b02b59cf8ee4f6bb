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
        about: "layout of keys and values: json, text, grpc, skydns or dubbo [default: json]",
    },
    OptionSpec {
        name: "prefix",
        value: "KEY",
        about: "prefix of the keys that are read [default: that of the layout, /services/ for json and text]",
    },
    OptionSpec {
        name: "key",
        value: "PATTERN",
        about: "pattern of a key behind the prefix [default: that of the layout, {service}/{instance} for \
            json and text]",
    },
    OptionSpec {
        name: "fields",
        value: "ROLE:FIELD,...",
        about: "names of fields in JSON values that differ from the default",
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
        about: "port of instances without one in key and value [default: they are left out]",
    },
];
