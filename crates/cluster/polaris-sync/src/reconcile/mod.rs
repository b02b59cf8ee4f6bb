//! Reconciler without IO that keeps another registry equal to a cluster.
//!
//! ```text
//!  Kubernetes objects ─▶ Cluster ─ Desired ─┐
//!                        (pure)             ├─▶ plan ─ Plan: calls in phases ─▶ client: sends calls,
//!  the other registry ── client ─ Actual ───┘                                          updates Actual
//! ```
//!
//! Nothing here reacts to single events: [`plan()`] compares the desired content of [`Cluster`] with the
//! actual one. So a second pass makes no calls, an interrupted pass is completed by the next one, and changes
//! missed while no process ran are synced.
//!
//! [`Target`] defines the capabilities of the other registry and the ownership of instances. Its one
//! implementation is Polaris (`pilotfish-polaris-sync`).

mod actual;
mod calls;
mod desired;
mod kubernetes;
mod names;
mod plan;
mod schedule;
mod target;

pub use actual::{Actual, ActualAlias, ActualInstance, ActualService};
pub use calls::{Call, InstanceRetirement, InstanceWrite, ServiceWrite};
pub use desired::{Desired, DesiredService, Instance, Metadata};
pub use kubernetes::{Cluster, ClusterSettings, Mode, ObjectName, Problem};
pub use names::{AliasKey, InstanceKey, Place, ServiceKey, Text};
pub use plan::{Plan, plan};
pub use schedule::{Next, Pass, Schedule, ScheduleSettings};
pub use target::{Capabilities, Target};
