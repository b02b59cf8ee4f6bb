//! The control plane without its sources and servers: from messages of sources to resources for streams.
//!
//! ```text
//! messages ─▶ Control (AggregateController, Debouncer, WorldWriter) ─▶ Translator ─▶ Resources ─▶ streams
//!                 │
//!                 └──────▶ Shared (newest world, states, history) ─▶ admin API, followers of worlds
//! ```
//!
//! [`Control::step`](control::Control::step) is the whole loop. It needs no process, listener or clock.

pub mod control;
pub mod followers;
pub mod history;
pub mod likely_causes;
mod mesh;
pub mod record;
pub mod resources;

pub use mesh::{trust_domain, with_mesh};
