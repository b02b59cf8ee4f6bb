//! Registers a service with Pilotfish and keeps it registered.
//!
//! ```no_run
//! use pilotfish_registration_client::{Client, ClientOptions, Instance, Port};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientOptions::new(["http://127.0.0.1:15016"]))?;
//! let mut registration = client.register(Instance {
//!     namespace: "default".into(),
//!     service: "web".into(),
//!     id: "web-1".into(),
//!     addresses: vec!["10.0.0.1".into()],
//!     ports: vec![Port { number: 8080, protocol: "http".into(), ..Port::default() }],
//!     ..Instance::default()
//! }).await?;
//! // ... serve ...
//! registration.deregister(None).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Registration`] renews its lease in the background, fails over to another server, and registers again
//! after the lease was lost. [`Client::watch`] follows instances and resumes where a connection ended.

mod client;
mod connection;
mod error;
mod keeper;
mod registration;
mod watch;

pub use client::Client;
pub use connection::ClientOptions;
pub use error::{Error, FieldError};
pub use pilotfish_registration_api::v1::{
    Check, GrpcCheck, HttpCheck, Instance, Port, Record, TcpCheck, check,
};
pub use registration::{Registration, State};
pub use watch::{Change, Watch};

/// TTL of an instance without one: without a lease nothing would remove an instance of a client that died.
pub const DEFAULT_TTL: std::time::Duration = std::time::Duration::from_secs(10);
