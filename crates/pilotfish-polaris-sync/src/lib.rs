//! Keeps a Polaris server equal to a cluster, as polaris-controller does, over the server's HTTP API.
//!
//! ```text
//!  Cluster (pilotfish-sync) ─ Desired ─┐
//!                                      ├─ plan ─▶ Session ─ bodies ─▶ Client ─▶ Polaris
//!  Polaris ─ reading ─ Actual ─────────┘             ▲                  │
//!                                                    └── outcomes by element
//! ```
//!
//! [`PolarisTarget`] has the rules of the product: limits, and whose an instance is. [`Session`] makes one pass after the other, on demand;
//! when, and what the cluster has, is for its owner to say.

mod bodies;
mod client;
mod codes;
mod credentials;
mod lingering;
mod metrics;
mod outcomes;
mod reading;
mod session;
mod target;
mod wire;

pub use bodies::{Request, request_of};
pub use client::{Client, ClientSettings};
pub use codes::{Failure, FailureClass};
pub use credentials::{Credentials, TokenSource};
pub use metrics::SyncMetrics;
pub use session::{DryRun, PassReport, Progress, Session, SessionSettings};
pub use target::{PolarisTarget, PolarisTargetError};

pub use pilotfish_registry_client::{Target as Address, TlsOptions};
