//! Export of traces to OpenTelemetry collectors: OTLP over gRPC.
//!
//! ```text
//! Traces::send(Trace) ─▶ a bounded queue ─▶ Exporter: batches, timeouts, retries ─▶ collector
//! ```
//!
//! Traces are complete when they are sent, including the times of their spans. So no SDK with contexts,
//! samplers and processors is needed; the few messages of the protocol are declared in [`message`]. Sending
//! never waits: traces above the queue's capacity are counted and dropped.

mod endpoint;
mod exporter;
pub mod message;
mod trace;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, Observer, Outcome, Traces, exporter};
pub use trace::{Event, Span, Trace, Value};
