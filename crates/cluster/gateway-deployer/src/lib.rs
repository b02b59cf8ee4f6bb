//! Deployments and Services of Gateways (`gateway.networking.k8s.io`) whose class is Pilotfish's.
//!
//! ```text
//! ManagedGateways ─▶ template ─▶ overlays ─▶ Manifests ─▶ Planner (pure) ─▶ API server
//!                                                            ▲     by server-side apply
//! watch of the labelled objects (observe) ───────────────────┘
//! ```
//!
//! All objects of a Gateway are owned by it, so that the API server's garbage collector deletes them. Objects
//! that the Gateway does not own are never changed, and fields of other field managers are never taken over,
//! except for those of an istiod (`takeover`).

mod merge;
mod object;
mod observe;
mod planner;
mod projection;
mod render;
mod takeover;
mod writer;

pub use object::{FIELD_MANAGER, ManagedKind, Manifest, ObjectId};
pub use render::{DEFAULT_TEMPLATE, GatewayBootstrap, GatewayTemplate, RenderError};
pub use writer::{Classes, DesiredGateways, GatewayWriter, LeadsUntil, ReportProblems};
