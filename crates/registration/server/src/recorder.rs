//! Interface of the server to metrics.

use std::time::Duration;

/// Protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Grpc,
    Json,
    Eureka,
    Consul,
    Nacos,
}

impl Protocol {
    /// Returns the label value, as in `grpc`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Json => "json",
            Self::Eureka => "eureka",
            Self::Consul => "consul",
            Self::Nacos => "nacos",
        }
    }
}

/// Receiver of the server's events. All labels are from closed sets.
pub trait Recorder: Send + Sync + 'static {
    /// Records an answered request or ended stream. `method` is the name in the definition (`Register`), or
    /// `other`; `code` is the gRPC code (`OK`, `NOT_FOUND`).
    fn request(&self, method: &'static str, protocol: Protocol, code: &'static str, took: Duration);

    /// Records a request, stream or connection refused by this limit.
    fn limit_exceeded(&self, limit: &str);

    /// Records a connection that opened.
    fn connected(&self);

    /// Records a connection that ended.
    fn disconnected(&self);

    /// Records a TLS handshake.
    fn handshake(&self, completed: bool);

    /// Records a reload of tokens and rules.
    fn access_reloaded(&self, succeeded: bool);
}

/// A recorder that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Recorder for Silent {
    fn request(&self, _: &'static str, _: Protocol, _: &'static str, _: Duration) {}
    fn limit_exceeded(&self, _: &str) {}
    fn connected(&self) {}
    fn disconnected(&self) {}
    fn handshake(&self, _: bool) {}
    fn access_reloaded(&self, _: bool) {}
}
