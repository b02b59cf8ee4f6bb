//! The registration API, from its one definition, `proto/pilotfish/registration/v1/registration.proto`.
//!
//! ```text
//!                      ┌─ types and gRPC stubs ([`v1`])
//! registration.proto ──┤
//!                      └─ descriptor ([`pool`]) ─┬─ HTTP routes ([`Routes`]) ─ requests, responses as JSON
//!                                                └─ OpenAPI document and page ([`openapi`], [`page`])
//! ```
//!
//! All HTTP routes are derived from the `google.api.http` annotations at start, so a new method only needs
//! its definition. The crate has no sockets.

mod bounds;
mod codec;
mod descriptor;
mod document;
mod error;
mod openapi;
mod page;
mod routes;
mod template;
mod transcode;

/// The API's messages and stubs, version 1.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#[allow(rustdoc::all)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/pilotfish.registration.v1.rs"));
}

pub use bounds::{BoundExceeded, MAX_ITEMS, MAX_VALUES};
pub use descriptor::{DESCRIPTORS, SERVICE, pool};
pub use error::{HTTP_BODY_TOO_LONG, HTTP_CLIENT_SLOW, LIMIT_HEADER, http_status};
pub use openapi::openapi;
pub use page::page;
pub use routes::{Binding, Found, NoRoute, Routes};
pub use transcode::{BadRequest, to_json};
