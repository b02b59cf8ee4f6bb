//! Pilotfish as a library: settings, wiring, tasks and shutdown. The binary is a short `main` around
//! [`cli::Cli`]; `pilotfish_control_plane` has the control loop, for programs without a process around
//! it.
//!
//! ```text
//! sources ─▶ Control (AggregateController, Debouncer, WorldWriter) ─▶ Translator ─▶ Fanout ─▶ streams
//!                 │                                       ▲             │
//!                 └──────▶ Shared ─▶ AdminState (admin API) ◀───────────┘
//! ```

pub mod cli;
mod demo;
mod registries;
mod serve;
mod settings;
