//! Comparison of two sets of resources of a proxy: what it was sent, what its Envoy has, what another control
//! plane sent it.
//!
//! ```text
//! config_dump of an Envoy ─▶ held ─▶ plain ─┐
//!                                           ├─▶ Comparison ─▶ Differences ─▶ by_form
//! resources of a control plane ─▶ plain ────┘
//! ```
//!
//! This crate reads and writes nothing: resources are JSON with the field names of Envoy's API.

mod comparison;
mod dump;
mod form;
mod plain;

pub use comparison::{Comparison, Difference, KINDS};
pub use dump::{Held, held};
pub use form::{Alike, by_form, form, without_numbers};
pub use plain::plain;
