//! The messages of OTLP that traces need (`opentelemetry.proto.trace.v1`, `...collector.trace.v1`). Fields that are never set are left out: the
//! format allows it.

use prost::{Enumeration, Message, Oneof};

/// A request of `TraceService/Export`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    /// Spans by resource.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Its answer.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceResponse {
    /// What was not taken, if anything.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportTracePartialSuccess>,
}

/// What a collector did not take.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTracePartialSuccess {
    /// So many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Spans of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// What they are about.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// Spans by scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A process, in OpenTelemetry's words a resource.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// As `service.name`.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Spans of a scope.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// What measured them.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// What measures.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes; empty for the root.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What was done.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Its kind.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is known of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// What happened meanwhile.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<SpanEvent>,
    /// How it ended.
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
}

/// What a span is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not said.
    Unspecified = 0,
    /// Within the process.
    Internal = 1,
}

/// Something at one time.
#[derive(Clone, PartialEq, Message)]
pub struct SpanEvent {
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// What happened.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What is known of it.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// How a span ended.
#[derive(Clone, PartialEq, Message)]
pub struct SpanStatus {
    /// Why it failed.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Whether it failed.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// Whether a span failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// It did not.
    Unset = 0,
    /// It did.
    Error = 2,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// One of several kinds.
    #[prost(oneof = "AnyValueKind", tags = "1, 2, 3")]
    pub value: Option<AnyValueKind>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, Oneof)]
pub enum AnyValueKind {
    /// A text.
    #[prost(string, tag = "1")]
    StringValue(String),
    /// Yes or no.
    #[prost(bool, tag = "2")]
    BoolValue(bool),
    /// A number.
    #[prost(int64, tag = "3")]
    IntValue(i64),
}
