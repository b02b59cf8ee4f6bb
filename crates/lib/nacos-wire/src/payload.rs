//! The envelope of Nacos's gRPC messages: JSON with the name of its type.

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;

/// Header with the token of a client.
const TOKEN: &str = "accessToken";

/// Message `Payload` of `nacos_grpc_service.proto`.
#[derive(Clone, PartialEq, Message)]
pub struct Payload {
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<Metadata>,
    /// The content as JSON; the type URL is empty.
    #[prost(message, optional, tag = "3")]
    pub body: Option<prost_types::Any>,
}

/// Message `Metadata` of `nacos_grpc_service.proto`. Its headers may hold a token.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct Metadata {
    /// The simple name of Nacos's Java class for the content.
    #[prost(string, tag = "3")]
    pub kind: String,
    /// The address of the client, as it reports it.
    #[prost(string, tag = "8")]
    pub client_ip: String,
    /// Headers, such as the token.
    #[prost(map = "string, string", tag = "7")]
    pub headers: HashMap<String, String>,
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The content of a message has not the form of its type.
#[derive(Debug, thiserror::Error)]
#[error("{kind} cannot be read: {source}")]
pub struct PayloadError {
    /// Type of the message.
    pub kind: String,
    pub source: serde_json::Error,
}

impl Payload {
    /// Builds an envelope with this content, and with a token if there is one.
    ///
    /// # Errors
    /// When the content has map keys that JSON does not support.
    pub fn new(kind: &str, content: &impl Serialize, token: Option<&str>) -> Result<Self, PayloadError> {
        let value =
            serde_json::to_vec(content).map_err(|source| PayloadError { kind: kind.to_owned(), source })?;
        let headers = token.map(|token| (TOKEN.to_owned(), token.to_owned()));
        let metadata = Metadata {
            kind: kind.to_owned(),
            client_ip: String::new(),
            headers: headers.into_iter().collect(),
        };
        Ok(Self { metadata: Some(metadata), body: Some(prost_types::Any { type_url: String::new(), value }) })
    }

    /// Returns the message type, or an empty text if there is none.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| &metadata.kind)
    }

    /// Returns the token of the sender.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        let token = self.metadata.as_ref()?.headers.get(TOKEN)?;
        Some(token.as_str()).filter(|token| !token.is_empty())
    }

    /// Decodes the content.
    ///
    /// # Errors
    /// When it is not valid JSON of this type.
    pub fn content<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        let value = self.body.as_ref().map_or(&[][..], |body| &body.value);
        serde_json::from_slice(value).map_err(|source| PayloadError { kind: self.kind().to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_comes_back_and_tokens_are_not_shown() {
        let payload = Payload::new("Kind", &["a"], Some("secret")).unwrap();
        let decoded = Payload::decode(&*payload.encode_to_vec()).unwrap();
        assert_eq!((decoded.kind(), decoded.token()), ("Kind", Some("secret")));
        assert_eq!(decoded.content::<Vec<String>>().unwrap(), ["a"]);
        let error = decoded.content::<u8>().unwrap_err().to_string();
        assert!(error.starts_with("Kind cannot be read"), "{error}");
        assert!(!format!("{decoded:?}").contains("secret"));
        assert_eq!(Payload::new("Kind", &(), Some("")).unwrap().token(), None);
    }
}
