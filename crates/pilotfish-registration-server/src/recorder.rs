//! What metrics learn of the server.

use std::time::Duration;

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// JSON over HTTP.
    Json,
}

impl Protocol {
    /// Its name, as a label: `grpc`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Json => "json",
        }
    }
}

/// Hears of what happens. Every label is of a closed set.
pub trait Recorder: Send + Sync + 'static {
    /// A request was answered, or a stream ended. `method` is its name in the definition (`Register`), or `other`; `code` that of gRPC
    /// (`OK`, `NOT_FOUND`).
    fn request(&self, method: &'static str, protocol: Protocol, code: &'static str, took: Duration);

    /// A limit refused a request, a stream or a connection; its name.
    fn limit_exceeded(&self, limit: &str);

    /// Connections that are open now.
    fn connections(&self, open: usize);

    /// A TLS handshake ended, with success or not.
    fn handshake(&self, completed: bool);

    /// Tokens and rules were read again; whether that succeeded.
    fn access_reloaded(&self, succeeded: bool);
}

/// A recorder that forgets everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Recorder for Silent {
    fn request(&self, _: &'static str, _: Protocol, _: &'static str, _: Duration) {}
    fn limit_exceeded(&self, _: &str) {}
    fn connections(&self, _: usize) {}
    fn handshake(&self, _: bool) {}
    fn access_reloaded(&self, _: bool) {}
}
