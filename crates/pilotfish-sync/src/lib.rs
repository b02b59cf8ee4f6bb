//! Keeps another registry equal to a cluster: a reconciler without IO.
//!
//! ```text
//!  Kubernetes objects ─▶ Cluster ─ Desired ─┐
//!                        (pure)             ├─▶ plan ─ Plan: calls in phases ─▶ a rim sends them, and tells Actual what was done
//!  the other registry ── read by a rim ─ Actual ┘
//! ```
//!
//! Nothing here reacts to single events: [`Cluster`] says what there should be, [`plan()`] compares it with what there is. So a second pass
//! makes no call, a pass that was interrupted is finished by the next one, and what was missed while nobody ran is made up for.
//!
//! [`Target`] says what the other registry can hold and whose an instance is. The one that there is is Polaris
//! (`pilotfish-polaris-sync`).

mod actual;
mod desired;
mod kubernetes;
mod names;
mod plan;
mod schedule;
mod target;

pub use actual::{Actual, ActualAlias, ActualInstance, ActualService};
pub use desired::{Desired, DesiredService, Instance, Metadata};
pub use kubernetes::{Cluster, ClusterSettings, Mode, ObjectName, Problem};
pub use names::{AliasKey, InstanceKey, Place, ServiceKey, Text};
pub use plan::{Call, InstanceRetirement, InstanceWrite, Plan, ServiceWrite, plan};
pub use schedule::{Next, Pass, Schedule, ScheduleSettings};
pub use target::{Capabilities, Target};
