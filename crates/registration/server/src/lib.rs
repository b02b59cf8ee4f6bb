//! The registration API's listener: gRPC and JSON over HTTP on one port.
//!
//! ```text
//! socket ─ TLS, limits ─▶ request ─ identity, rate ─┬─ gRPC ─▶ stubs ──────┐
//!                                                   └─ JSON ─▶ transcoding ┴▶ Api: validation, rules
//!                                                                              └─▶ Registrar
//! ```
//!
//! With an [`Adapter`], a listener speaks the protocol of another product instead, behind the same
//! identities, rules and limits.
//!
//! Secure by default: without TLS it listens on loopback only; with tokens or TLS, clients must authenticate;
//! with rules, everything that they do not allow is denied. All resources that a client can use are limited:
//! docs/limits.md.

mod access;
mod activity;
mod adapted;
mod adapter;
mod adapter_client;
mod answer;
mod api;
mod body;
mod connection;
mod convert;
mod failure;
mod grpc;
mod grpc_adapter;
mod heartbeat;
mod identity;
mod ids;
mod json;
mod limits;
mod mesh;
mod origin;
mod recorder;
mod server;
mod settings;
mod watch;

pub use access::{AccessError, AccessFiles};
pub use adapter::{Adapter, AdapterAnswer, AdapterBody, Credentials};
pub use adapter_client::{AdapterClient, WaitPermit};
pub use convert::read_instance;
pub use failure::{Failure, Outcome};
pub use grpc_adapter::{AdapterConnection, GrpcAdapter};
pub use ids::encode_id;
pub use limits::{Limit, ServerLimits};
pub use mesh::{Mesh, NoMesh};
pub use recorder::{Protocol, Recorder, Silent};
pub use server::{ALPN, Bound, RegistrationServer, ServerError};
pub use settings::ServerSettings;
