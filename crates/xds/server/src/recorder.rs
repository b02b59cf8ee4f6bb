//! Events of streams and connections, for metrics and logs.

use crate::limits::Limit;
use crate::protocol::nack::Nack;
use pilotfish_proto::ResourceType;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Push {
    pub ty: ResourceType,
    /// Length of the response with its gRPC frame.
    pub bytes: usize,
    pub resources: usize,
    /// Number of removed resources.
    pub removed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeResult {
    /// The connection is encrypted, and the client's certificate, if it presented one, is verified.
    Completed,
    /// One side did not accept the other's certificate or TLS, or the client closed the connection.
    Failed,
    /// The handshake exceeded [`ServerConfig::handshake_timeout`](crate::ServerConfig::handshake_timeout).
    TimedOut,
    /// The oldest handshake when there were more than
    /// [`ServerConfig::max_handshakes`](crate::ServerConfig::max_handshakes).
    GaveWay,
}

impl HandshakeResult {
    /// Value of the metric label `result`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::GaveWay => "gave_way",
        }
    }
}

/// Receiver of events, which the binary counts. All methods do nothing by default. They are called from the
/// streams' tasks, so implementations must not block.
#[allow(unused_variables)]
pub trait Recorder: Send + Sync + 'static {
    /// A client sent its first request and was accepted (`pilot_xds` counts up).
    fn connected(&self) {}
    /// An accepted client disconnected (`pilot_xds` counts down).
    fn disconnected(&self) {}
    /// A stream was refused or ended with an error; `code` is the name of its gRPC status code.
    fn stream_error(&self, code: &'static str) {}
    /// A client was refused or disconnected because it exceeded a limit.
    fn limit_exceeded(&self, limit: Limit) {}
    /// A TLS handshake of the secure listener ended.
    fn handshake(&self, result: HandshakeResult) {}
    /// A client of the secure listener proved an identity, by certificate or to the named authenticator.
    /// [`Self::stream_error`] counts the others as `UNAUTHENTICATED`.
    fn authenticated(&self, method: &'static str) {}
    /// A request was received (`pilot_xds_recv_max` is the largest).
    fn received(&self, bytes: usize) {}
    /// A response was handed to the connection (`pilot_xds_pushes{type}`,
    /// `pilot_xds_config_size_bytes{type}`).
    fn pushed(&self, push: Push) {}
    /// Time to choose, encode and write a response (`pilot_xds_push_time{type}`). The encoding of resources
    /// that streams share counts for the stream that comes first.
    fn push_time(&self, ty: ResourceType, took: Duration) {}
    /// Time to write a response, including the wait for a client whose window was full
    /// (`pilot_xds_send_time`).
    fn send_time(&self, ty: ResourceType, took: Duration) {}
    /// A client acknowledged a response, `after` it was sent.
    fn acknowledged(&self, ty: ResourceType, after: Duration) {}
    /// A client refused a response (`pilot_total_xds_rejects`, `pilot_xds_cds_reject`, ...). This crate does
    /// not log it.
    fn rejected(&self, nack: &Nack<'_>) {}
    /// A client refused a response of a collection.
    fn collection_rejected(&self, connection: &str, type_url: &str, error: &str) {}
    /// A request carried the nonce of an older response (`pilot_xds_expired_nonce{type}`).
    fn expired_nonce(&self, ty: ResourceType) {}
    /// Time from a publication to its handling by the stream's task (`pilot_proxy_queue_time`).
    fn queue_time(&self, waited: Duration) {}
    /// Time from a publication to the last response of its types on a stream
    /// (`pilot_proxy_convergence_time`).
    fn converged(&self, after: Duration) {}
    /// First request of a stream for a type that is not served to the client. It is answered with an empty
    /// response.
    fn unknown_type(&self, type_url: &str) {}
}

/// Ignores all events, for tests and measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {}
