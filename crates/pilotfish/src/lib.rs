//! Pilotfish as a library: settings, wiring, tasks and shutdown. The binary is a short `main` around it, and tests run the
//! whole control plane in their own process.
//!
//! ```text
//! sources ─▶ Control (Hub, Debouncer, WorldWriter) ─▶ Translator ─▶ Fanout ─▶ streams
//!                 │                                       ▲             │
//!                 └──────▶ Shared ─▶ AdminState (admin API) ◀───────────┘
//! ```

pub mod admin;
pub mod cli;
pub mod control;
pub mod demo;
pub mod recorder;
pub mod resources;
pub mod serve;
pub mod settings;
