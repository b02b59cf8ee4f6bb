//! Pilotfish as a library: settings, wiring, tasks and shutdown. The binary is a short `main` around
//! [`cli::Cli`]; [`control`] and [`resources`] are open for what drives them without a process.
//!
//! ```text
//! sources ─▶ Control (AggregateController, Debouncer, WorldWriter) ─▶ Translator ─▶ Fanout ─▶ streams
//!                 │                                       ▲             │
//!                 └──────▶ Shared ─▶ AdminState (admin API) ◀───────────┘
//! ```

mod admin;
pub mod cli;
mod configuration;
pub mod control;
mod demo;
mod history;
mod istioctl;
mod record;
mod recorder;
mod registries;
pub mod resources;
mod serve;
mod settings;
mod suspects;
mod sync;
