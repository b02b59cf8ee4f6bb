//! Comparison of two sets of resources of a proxy: what it was sent, what its Envoy has, what another control
//! plane sent it.
//!
//! ```text
//! config_dump of an Envoy ─▶ held ─▶ plain ─┐
//!                                           ├─▶ align ─▶ Comparison ─▶ Differences ─▶ Report by proxy,
//! resources of a control plane ─▶ plain ────┘                               ▲         by cause
//!                                            oracle/differences.yaml ─▶ KnownDifferences
//! ```
//!
//! This crate reads and writes nothing: resources are JSON with the field names of Envoy's API.

mod align;
mod comparison;
mod dump;
mod form;
mod known;
mod plain;
mod references;
mod report;

pub use comparison::{ALL_KINDS, Comparison, Difference, KINDS};
pub use dump::{Held, Names, held, node, subscribed, to_dump};
pub use form::{Alike, by_form, form, without_numbers};
pub use known::KnownDifferences;
pub use plain::plain;
pub use references::references;
pub use report::{Cause, Example, Failed, Place, ProxyResult, Report, Resources, Sent, compare};
