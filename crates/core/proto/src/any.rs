//! Packing messages into `Any`.

use crate::{Any, Struct};
use prost::{Message, Name};

/// Prefix of a type URL before a message's full name.
pub const PREFIX: &str = "type.googleapis.com/";

/// Packs a message into an `Any`.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: format!("{PREFIX}{}", M::full_name()), value: message.encode_to_vec() }
}

/// Packs a message into an optional `Any`, the type of most `typed_config` fields.
#[allow(clippy::unnecessary_wraps)]
pub fn config_any<M: Message + Name>(message: &M) -> Option<Any> {
    Some(any(message))
}

/// `udpa.type.v1.TypedStruct`: a configuration as a `Struct`, with its type URL.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TypedStruct {
    /// Type URL of the configuration.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// Content as proto JSON.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Struct>,
}

impl Name for TypedStruct {
    const NAME: &'static str = "TypedStruct";
    const PACKAGE: &'static str = "udpa.type.v1";
}

/// A configuration without a Rust type in this build, as `udpa.type.v1.TypedStruct`.
#[must_use]
pub fn typed_struct(type_url: &str, value: Struct) -> Any {
    let message = TypedStruct { type_url: type_url.to_owned(), value: Some(value) };
    any(&message)
}
