//! Connections of clients: addresses with options, TLS, HTTP, gRPC channels, secrets.
//!
//! | Part | Does |
//! |---|---|
//! | [`Target`] | reads an address |
//! | [`TlsOptions`] | TLS by options of the address, with files that are read again |
//! | [`SecretOption`] | a token or password by file or environment |
//! | [`Connector`] | TCP or TLS connections |
//! | [`HttpClient`] | requests with limits on connections, time and bytes |
//! | [`DocumentClient`] | documents that others publish, such as keys of issuers |
//! | [`grpc_channel`] | a channel of tonic over a [`Connector`] |

mod connector;
mod documents;
mod grpc;
mod http_client;
mod places;
mod secret;
mod target;
mod tls;

pub use connector::{ConnectError, Connection, Connector};
pub use documents::{DocumentClient, document_address, document_base};
pub use grpc::grpc_channel;
pub use http_client::{HttpAnswer, HttpClient, HttpError, HttpRequest};
pub use secret::{SecretError, SecretOption};
pub use target::{Scheme, Server, Target};
pub use tls::{TLS_OPTIONS, TlsError, TlsOptions};
