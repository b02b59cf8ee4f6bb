//! The envelope of Nacos's gRPC messages: JSON with the name of its type.

use crate::api::ApiError;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// Message `Payload` of `nacos_grpc_service.proto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    #[prost(message, optional, tag = "2")]
    pub(crate) metadata: Option<Metadata>,
    /// The content as JSON; the type URL is empty.
    #[prost(message, optional, tag = "3")]
    pub(crate) body: Option<prost_types::Any>,
}

/// Message `Metadata` of `nacos_grpc_service.proto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    /// The simple name of Nacos's Java class for the content.
    #[prost(string, tag = "3")]
    pub(crate) kind: String,
    /// The address of the client, as it reports it.
    #[prost(string, tag = "8")]
    pub(crate) client_ip: String,
    /// Headers, such as the token.
    #[prost(map = "string, string", tag = "7")]
    pub(crate) headers: HashMap<String, String>,
}

impl Payload {
    /// Builds an envelope with this content, and with a token if there is one.
    ///
    /// # Errors
    /// When the content has map keys that JSON does not support; requests of this crate have none.
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

    /// Returns the message type, or an empty text if there is none.
    pub(crate) fn kind(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| &metadata.kind)
    }

    /// Decodes the content.
    ///
    /// # Errors
    /// When it is not valid JSON of this type.
    pub(crate) fn content<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let value = self.body.as_ref().map_or(&[][..], |body| &body.value);
        serde_json::from_slice(value).map_err(|error| ApiError::malformed(self.kind(), &error))
    }
}
