//! Sync of a cluster to a Polaris server over its HTTP API, compatible with polaris-controller.
//!
//! ```text
//!  Cluster (reconcile) ─ Desired ──────┐
//!                                      ├─ plan ─▶ Session ─ bodies ─▶ Client ─▶ Polaris
//!  Polaris ─ reading ─ Actual ─────────┘             ▲                  │
//!                                                    └── outcomes by element
//! ```
//!
//! [`PolarisTarget`] has the rules of Polaris: limits, and ownership of instances. [`Session`] runs passes on
//! demand; [`run`] schedules them, reads the cluster and takes part in the election.

mod bodies;
mod client;
mod codes;
mod credentials;
mod lingering;
mod metrics;
mod outcomes;
mod process;
mod reading;
pub mod reconcile;
mod session;
mod target;
mod wire;

pub use bodies::{Request, request_of};
pub use client::{Client, ClientSettings};
pub use codes::{Failure, FailureClass};
pub use credentials::{Credentials, TokenSource};
pub use metrics::SyncMetrics;
pub use process::{SyncPolaris, run};
pub use session::{DryRun, PassReport, Progress, Session, SessionSettings};
pub use target::{PolarisTarget, PolarisTargetError};

pub use pilotfish_connect::{Target as Address, TlsOptions};
