//! Limits and timeouts of the server, and its start-up errors.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Limits and timeouts of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Open connections of a listener; more are closed at once.
    pub max_connections: usize,
    /// Open connections of one address.
    pub address_connections: usize,
    /// Open ADS streams of a listener; more are refused.
    pub max_streams: usize,
    /// Open streams of clients without an identity at one address.
    pub address_streams: usize,
    /// Open streams of one identity.
    pub identity_streams: usize,
    /// Open streams of one connection.
    pub connection_streams: u32,
    /// Bytes of one request message.
    pub max_message: usize,
    /// Bytes of the headers of one stream.
    pub max_headers: u32,
    /// Bytes that may be queued on a stream for a slow client; no further response is built for it until they
    /// are sent.
    pub send_buffer: usize,
    /// Bytes of the first request before the client's node. The rest of the request may be longer: a client
    /// that reconnects lists its resources.
    pub first_bytes: usize,
    /// Bytes that all connections of a listener may send before they are read, beyond the 64 KiB that HTTP/2
    /// gives each.
    pub all_windows: usize,
    /// Bytes of incomplete requests of one connection.
    pub incomplete_bytes: usize,
    /// Bytes of incomplete requests of all connections from one address.
    pub address_incomplete_bytes: usize,
    /// Bytes of incomplete requests of all connections of a listener.
    pub all_incomplete_bytes: usize,
    /// Requests of one stream that are read per second; those with many names count as more. Bursts may be
    /// ten times as large.
    pub requests_per_second: u32,
    /// Frames of one connection that are read per second; a new stream and a SETTINGS frame count as 100, and
    /// each KiB of a frame adds one. A stream with a known client adds a twentieth. Bursts may be ten times
    /// as large.
    pub frames_per_second: u32,
    /// Streams of one connection whose clients are being authenticated.
    pub max_unidentified: usize,
    /// Bytes of these streams' headers.
    pub unidentified_bytes: usize,
    /// Concurrent calls of methods other than ADS on one connection.
    pub max_calls: usize,
    /// Calls of health and reflection on a listener, and as many of methods by identified clients.
    pub all_calls: usize,
    /// Calls of health and reflection from one address.
    pub address_calls: usize,
    /// Calls of methods by clients with one identity.
    pub identity_calls: usize,
    /// Bytes that one such call may send.
    pub call_bytes: usize,
    /// Maximum time for a TLS handshake, and then again for the HTTP/2 preface.
    pub handshake_timeout: Duration,
    /// Connections of a listener without a known client: those in a handshake, and those without a stream
    /// since. Beyond it, the oldest is closed.
    pub max_handshakes: usize,
    /// Maximum age of a connection of the secure listener, after which its clients have to authenticate
    /// again. Reduced by up to a tenth for each client address, so that simultaneous clients do not reconnect
    /// together.
    pub max_identity_age: Duration,
    /// Maximum time for all authenticators together to identify a client.
    pub authentication_timeout: Duration,
    /// Maximum time until a stream's first request.
    pub first_request_timeout: Duration,
    /// Maximum time from the first byte of a request to its last, for the whole request of a call other than
    /// ADS, and for its client to take the response of a method.
    pub request_timeout: Duration,
    /// Maximum time of a connection without streams.
    pub idle_timeout: Duration,
    /// Time between two keepalive pings of a connection.
    pub keepalive_interval: Duration,
    /// Maximum time for the answer to a keepalive ping.
    pub keepalive_timeout: Duration,
    /// Maximum time for connections to end after a shutdown began; then they are closed.
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_connections: 50_000,
            address_connections: 12_500,
            max_streams: 100_000,
            address_streams: 25_000,
            identity_streams: 50_000,
            connection_streams: 1_000,
            max_message: 4 << 20,
            max_headers: 32 << 10,
            send_buffer: 1 << 20,
            first_bytes: 1 << 20,
            all_windows: 64 << 20,
            incomplete_bytes: 8 << 20,
            address_incomplete_bytes: 64 << 20,
            all_incomplete_bytes: 128 << 20,
            requests_per_second: 1_000,
            frames_per_second: 2_000,
            max_unidentified: 32,
            unidentified_bytes: 64 << 10,
            max_calls: 16,
            all_calls: 1_024,
            address_calls: 256,
            identity_calls: 256,
            call_bytes: 16 << 10,
            handshake_timeout: Duration::from_secs(5),
            max_handshakes: 1_024,
            max_identity_age: Duration::from_secs(30 * 60),
            authentication_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Start-up error of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address of the plaintext listener is in use or not one of this machine.
    #[error("cannot listen on {address} for xDS")]
    Bind {
        /// The address as configured.
        address: SocketAddr,
        source: io::Error,
    },
    /// The address of the secure listener is in use or not one of this machine.
    #[error("cannot listen on {address} for xDS over TLS")]
    BindSecure {
        /// The address as configured.
        address: SocketAddr,
        source: io::Error,
    },
}
