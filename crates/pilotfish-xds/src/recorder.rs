//! Events of streams and connections, for metrics and logs.

use crate::limits::Limit;
use crate::nack::Nack;
use pilotfish_proto::ResourceType;
use std::time::Duration;

/// One response that went out.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The resources' type.
    pub ty: ResourceType,
    /// The response's length with its gRPC frame.
    pub bytes: usize,
    /// How many resources are in it.
    pub resources: usize,
    /// How many resources it removes.
    pub removed: usize,
}

/// How a TLS handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeResult {
    /// The connection is encrypted, and the client's certificate, if it presented one, is verified.
    Completed,
    /// One side did not accept the other's certificate or TLS, or the client left.
    Failed,
    /// It took longer than [`ServerConfig::handshake_timeout`](crate::ServerConfig::handshake_timeout).
    TimedOut,
    /// It had waited longest when there were more than
    /// [`ServerConfig::max_handshakes`](crate::ServerConfig::max_handshakes).
    GaveWay,
}

impl HandshakeResult {
    /// The value of the label `result` in metrics.
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

/// Is called for events; the binary counts them. Every method does nothing by default. Called from the streams' tasks, so
/// implementations must not block.
#[allow(unused_variables)]
pub trait Recorder: Send + Sync + 'static {
    /// A client sent its first request and was accepted (`pilot_xds` counts up).
    fn connected(&self) {}
    /// A client that had been accepted is gone (`pilot_xds` counts down).
    fn disconnected(&self) {}
    /// A stream was refused or ended with an error: the gRPC status code's name.
    fn stream_error(&self, code: &'static str) {}
    /// A client was refused or ended because it asked for more than a limit allows.
    fn limit_exceeded(&self, limit: Limit) {}
    /// A TLS handshake of the secure listener ended.
    fn handshake(&self, result: HandshakeResult) {}
    /// A client of the secure listener proved an identity, by a certificate or to the authenticator of that name. Those that do
    /// not are counted by [`Self::stream_error`] as `UNAUTHENTICATED`.
    fn authenticated(&self, method: &'static str) {}
    /// A request came in (`pilot_xds_recv_max` is the largest).
    fn received(&self, bytes: usize) {}
    /// A response was handed to the connection (`pilot_xds_pushes{type}`, `pilot_xds_config_size_bytes{type}`).
    fn pushed(&self, push: Push) {}
    /// How long it took to choose, encode and write a response (`pilot_xds_push_time{type}`). What many streams share is encoded once, and
    /// counts for the stream that comes first.
    fn push_time(&self, ty: ResourceType, took: Duration) {}
    /// How long it took to write a response, with the time that it waited for a client whose window was full (`pilot_xds_send_time`).
    fn send_time(&self, ty: ResourceType, took: Duration) {}
    /// A client acknowledged a response, that long after it was sent.
    fn acknowledged(&self, ty: ResourceType, after: Duration) {}
    /// A client refused a response (`pilot_total_xds_rejects`, `pilot_xds_cds_reject`, ...). This crate does not log it.
    fn rejected(&self, nack: &Nack<'_>) {}
    /// A client refused a response of a collection.
    fn collection_rejected(&self, connection: &str, type_url: &str, error: &str) {}
    /// A request carried the nonce of an older response (`pilot_xds_expired_nonce{type}`).
    fn expired_nonce(&self, ty: ResourceType) {}
    /// From a publication to the moment in which the stream's task handles it (`pilot_proxy_queue_time`).
    fn queue_time(&self, waited: Duration) {}
    /// From a publication to all of its types being sent on a stream (`pilot_proxy_convergence_time`).
    fn converged(&self, after: Duration) {}
    /// A client asks for a type that is not served to it, for the first time on its stream: it is answered
    /// that there is nothing of it.
    fn unknown_type(&self, type_url: &str) {}
}

/// Ignores all events, for tests and measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {}
