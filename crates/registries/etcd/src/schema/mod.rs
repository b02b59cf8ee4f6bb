//! Schema of keys and values: a pattern for keys, a format for values, and the well-known layouts.
//!
//! Pure: a key and its value become an instance or a problem.

mod address;
mod dubbo;
mod fields;
mod json;
mod pattern;
mod place;
mod reading;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use address::parse_port;
pub(crate) use fields::Fields;
pub(crate) use pattern::{Field, KeyPattern};
pub(crate) use place::{HostTemplate, Place};
pub(crate) use reading::Defaults;

use address::{Address, short};
use fields::Role;
use pilotfish_registry::CatalogInstance;
use reading::Reading;
use serde_json::Value;

/// Maximum size of a value in bytes. etcd accepts at most 1.5 MiB by default; a registry entry has some
/// hundred bytes.
const MAX_VALUE: usize = 256 << 10;

/// Format of the values below the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A JSON object with these fields.
    Json(Fields),
    /// An address, as in `10.0.0.1:8080` or `http://10.0.0.1:8080`.
    Text,
    /// JSON of gRPC's naming package for Go: `{"Op":0,"Addr":"10.0.0.1:8080","Metadata":...}`.
    Grpc,
    /// JSON of SkyDNS and CoreDNS: `{"host":"10.0.0.1","port":8080,"weight":1}`.
    SkyDns,
    /// No value is read: the key holds everything.
    Key,
}

/// A well-known layout of keys and values.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    /// Conventional prefix; empty if there is none.
    pub(crate) prefix: &'static str,
    pub(crate) key: &'static str,
    pub(crate) host: &'static str,
    pub(crate) protocol: Option<&'static str>,
    pub(crate) format: fn() -> Format,
}

/// All layouts, the default first.
pub(crate) const LAYOUTS: &[Layout] = &[
    Layout {
        name: "json",
        prefix: "/services/",
        key: "{service}/{instance}",
        host: "{service}.{group}.etcd",
        protocol: None,
        format: || Format::Json(Fields::default()),
    },
    Layout {
        name: "text",
        prefix: "/services/",
        key: "{service}/{instance}",
        host: "{service}.{group}.etcd",
        protocol: None,
        format: || Format::Text,
    },
    Layout {
        name: "grpc",
        prefix: "",
        key: "{service*}/{address}",
        host: "{service}.{group}.etcd",
        protocol: Some("grpc"),
        format: || Format::Grpc,
    },
    Layout {
        name: "skydns",
        prefix: "/skydns/",
        key: "{domain*}/{instance}",
        host: "{service}",
        protocol: None,
        format: || Format::SkyDns,
    },
    Layout {
        name: "dubbo",
        prefix: "/dubbo/",
        key: "{service}/providers/{url}",
        host: "{service}",
        protocol: Some("dubbo"),
        format: || Format::Key,
    },
];

/// Pattern, format and defaults that turn keys and values into instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    /// Common prefix of all keys.
    pub(crate) prefix: String,
    pub(crate) key: KeyPattern,
    pub(crate) format: Format,
    pub(crate) host: HostTemplate,
    pub(crate) defaults: Defaults,
}

/// Interpretation of a key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning {
    /// An instance of a service.
    Instance(Place, Box<CatalogInstance>),
    /// Not an instance: the key belongs to another program, or the value marks a removed instance.
    Nothing,
    /// An invalid instance, with the reason.
    Bad(String),
}

impl Schema {
    /// Interprets a key and its value.
    pub(crate) fn read(&self, key: &[u8], value: &[u8]) -> Meaning {
        let Some(name) = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(self.prefix.as_str()))
        else {
            return Meaning::Nothing;
        };
        let Some(captures) = self.key.captures(name) else { return Meaning::Nothing };
        let read = Reading::of(captures).and_then(|mut reading| {
            let is_there = self.read_value(value, &mut reading)?;
            if !is_there {
                return Ok(Meaning::Nothing);
            }
            let place = reading.place().ok_or("it says no service")?;
            Ok(Meaning::Instance(place, Box::new(reading.finish(name, &self.defaults)?)))
        });
        read.unwrap_or_else(|reason| Meaning::Bad(format!("the key {}: {reason}", short(name))))
    }

    /// Reads a value; returns `false` if it marks a removed instance.
    fn read_value(&self, bytes: &[u8], reading: &mut Reading) -> Result<bool, String> {
        if bytes.len() > MAX_VALUE && self.format != Format::Key {
            return Err(format!("its value has {} bytes, more than {MAX_VALUE}", bytes.len()));
        }
        match &self.format {
            Format::Json(fields) => json::read(fields, &json::parse(bytes)?, reading)?,
            Format::Text => {
                let text = std::str::from_utf8(bytes).map_err(|_| "its value is no text")?;
                reading.address(Address::parse(text)?);
            }
            Format::Grpc => {
                let value = json::parse(bytes)?;
                // 0 adds and 1 deletes.
                if value.get("Op").and_then(Value::as_u64) == Some(1) {
                    return Ok(false);
                }
                json::read(
                    &Fields::of(&[(Role::Address, "Addr"), (Role::Labels, "Metadata")]),
                    &value,
                    reading,
                )?;
            }
            Format::SkyDns => {
                let fields = [(Role::Address, "host"), (Role::Port, "port"), (Role::Weight, "weight")];
                json::read(&Fields::of(&fields), &json::parse(bytes)?, reading)?;
                // SkyDNS omits zero values, so 0 means unset.
                reading.weight = reading.weight.filter(|weight| *weight > 0);
            }
            Format::Key => {}
        }
        Ok(true)
    }
}
