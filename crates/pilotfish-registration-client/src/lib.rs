//! A client of the registration API, for applications.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use pilotfish_registration_client::{ClientSettings, Instance, Port, RegistrationClient};
//!
//! let client = RegistrationClient::new(ClientSettings::new(["http://127.0.0.1:15013"]))?;
//! let registration = client
//!     .register(Instance {
//!         service: "web".into(),
//!         id: "web-1".into(),
//!         addresses: vec!["10.0.0.1".into()],
//!         ports: vec![Port { number: 8080, ..Port::default() }],
//!         ..Instance::default()
//!     })
//!     .await?;
//! // Serve. The lease is renewed meanwhile, and registered again where it was lost.
//! registration.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Several servers may be given: one that cannot be reached gives way to the next. What fails for a while is tried again, with waits that
//! grow and are partly random.

mod client;
mod error;
mod keeper;
mod registration;
mod settings;
mod watch;

pub use client::RegistrationClient;
pub use error::ClientError;
pub use pilotfish_registration_api::v1::{
    Check, FieldViolation, GrpcCheck, Health, HttpCheck, Instance, InstanceKey, Port, Record, TcpCheck,
    check, record,
};
pub use registration::{Registration, RegistrationState};
pub use settings::{ClientSettings, Token};
pub use watch::{Change, InstanceWatch, WatchFilter};
