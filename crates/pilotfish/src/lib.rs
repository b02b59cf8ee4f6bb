//! Pilotfish as a library: settings, wiring, tasks and shutdown. The binary is a short `main` around it, and tests run the
//! whole control plane in their own process.
//!
//! ```text
//! files ─▶ Control (Hub, Lanes, WorldWriter) ─▶ Translator ─▶ Fanout ─▶ streams
//!                 │                                 ▲             │
//!                 └──────▶ Shared ─▶ Plane (admin API) ◀──────────┘
//! ```

pub mod bootstrap;
pub mod cli;
pub mod config_dump;
pub mod control;
pub mod crds;
pub mod demo;
mod election;
mod exports;
pub mod inject;
pub mod interception;
pub mod lanes;
pub mod logging;
pub mod plane;
pub mod recorder;
mod registration;
mod remote;
pub mod remote_secret;
pub mod resources;
mod secure;
pub mod serve;
pub mod settings;
pub mod shared;
pub mod sources;
pub mod status;
pub mod validate;
pub mod webhooks;
