//! The one message of Nacos's gRPC: JSON in an envelope that names its type.

use crate::api::ApiError;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// The envelope, `nacos_grpc_service.proto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    /// What it is.
    #[prost(message, optional, tag = "2")]
    pub(crate) metadata: Option<Metadata>,
    /// Its value is JSON; its type URL is empty.
    #[prost(message, optional, tag = "3")]
    pub(crate) body: Option<prost_types::Any>,
}

/// What stands on the envelope.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    /// The simple name of the class that Nacos has for it.
    #[prost(string, tag = "3")]
    pub(crate) kind: String,
    /// Where the client is, in its own words.
    #[prost(string, tag = "8")]
    pub(crate) client_ip: String,
    /// Tokens, among others.
    #[prost(map = "string, string", tag = "7")]
    pub(crate) headers: HashMap<String, String>,
}

impl Payload {
    /// An envelope with this content, and with a token where there is one.
    ///
    /// # Errors
    /// Never for requests of this crate: they have no keys that JSON has not.
    pub(crate) fn new(kind: &str, content: &impl Serialize, token: Option<&str>) -> Result<Self, ApiError> {
        let value = serde_json::to_vec(content).map_err(|error| ApiError::malformed(kind, &error))?;
        let headers = token.map(|token| ("accessToken".to_owned(), token.to_owned()));
        let metadata = Metadata {
            kind: kind.to_owned(),
            client_ip: String::new(),
            headers: headers.into_iter().collect(),
        };
        Ok(Self { metadata: Some(metadata), body: Some(prost_types::Any { type_url: String::new(), value }) })
    }

    /// The type, empty when there is none.
    pub(crate) fn kind(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| &metadata.kind)
    }

    /// The content.
    ///
    /// # Errors
    /// When it is not what it should be.
    pub(crate) fn content<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let value = self.body.as_ref().map_or(&[][..], |body| &body.value);
        serde_json::from_slice(value).map_err(|error| ApiError::malformed(self.kind(), &error))
    }
}
