//! Packing messages into `Any`.

use crate::{Any, Struct};
use prost::{Message, Name};

/// The part of a type URL before a message's full name.
pub const PREFIX: &str = "type.googleapis.com/";

/// The message as an `Any`.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: format!("{PREFIX}{}", M::full_name()), value: message.encode_to_vec() }
}

/// The message as an optional `Any`, the shape of most `typed_config` fields.
#[allow(clippy::unnecessary_wraps)]
pub fn config_any<M: Message + Name>(message: &M) -> Option<Any> {
    Some(any(message))
}

/// `udpa.type.v1.TypedStruct`: a configuration as a `Struct`, beside the type that it stands for.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TypedStruct {
    /// The type URL of the configuration.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// Its content, as proto JSON.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Struct>,
}

impl Name for TypedStruct {
    const NAME: &'static str = "TypedStruct";
    const PACKAGE: &'static str = "udpa.type.v1";
}

/// A configuration of a type that this build has no Rust type for, as `udpa.type.v1.TypedStruct`.
#[must_use]
pub fn typed_struct(type_url: &str, value: Struct) -> Any {
    let message = TypedStruct { type_url: type_url.to_owned(), value: Some(value) };
    any(&message)
}
