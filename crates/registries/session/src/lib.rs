//! Client-side building blocks of registries with their own source: sessions with a product, connections,
//! TLS, HTTP, gRPC, secrets.
//!
//! A registry implements [`Product`]: one session connects, reads everything and follows changes until
//! something fails. [`live`] makes a [`pilotfish_registry::LiveSource`] of it, which runs sessions for ever.
//!
//! | Part | Does |
//! |---|---|
//! | [`live`] | consecutive sessions, with backoff and jitter; the second answer for the guard |
//! | [`CatalogWriter`] | publishes what a session reads: full answers, changes, errors |
//! | [`ProductSettings`] | the address of `--registry`, with the options for TLS and the catalog |
//! | [`Target`] | reads the address alone |
//! | [`Connector`] | TCP or TLS connections, with files that are read again |
//! | [`HttpClient`] | requests with limits on connections, time and bytes |
//! | [`grpc_channel`] | a channel of tonic over a [`Connector`] |
//! | [`SecretOption`] | a token or password by file or environment |

mod connect;
mod grpc;
mod http_client;
mod places;
mod product;
mod secret;
mod settings;
mod target;
mod tls;
mod writer;

pub use connect::{ConnectError, Connection, Connector};
pub use grpc::grpc_channel;
pub use http_client::{HttpAnswer, HttpClient, HttpError, HttpRequest};
pub use product::{Product, SessionError, live};
pub use secret::{SecretError, SecretOption};
pub use settings::{ProductSettings, take_login};
pub use target::{Scheme, Server, Target};
pub use tls::{TLS_OPTIONS, TlsError, TlsOptions};
pub use writer::CatalogWriter;
