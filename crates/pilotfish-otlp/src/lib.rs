//! Traces for OpenTelemetry collectors: OTLP over gRPC.
//!
//! ```text
//! Traces::send(Trace) ─▶ a bounded queue ─▶ Exporter: batches, time limits, another try ─▶ collector
//! ```
//!
//! A trace is known as a whole when it is sent: spans have their times already. So nothing of an SDK is needed, such as contexts, samplers and
//! processors; the messages of the protocol are few and declared in [`message`]. Sending never waits: what does not fit into the queue is
//! counted and dropped.

mod endpoint;
mod exporter;
pub mod message;
mod trace;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, Observer, Outcome, Traces, exporter};
pub use trace::{Event, Span, Trace, Value};
