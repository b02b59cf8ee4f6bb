//! Protocols of other products in front of the registrar, each on a listener of its own.
//!
//! An adapter maps the calls of its protocol to registrations and reads of the directory. Connections,
//! identities, rules and limits are those of the registration API, and so is everything that a client may do.

use crate::adapter_client::AdapterClient;
use crate::failure::Failure;
use crate::grpc_adapter::GrpcAdapter;
use crate::recorder::Protocol;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::combinators::UnsyncBoxBody;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Body of an adapter's response.
pub type AdapterBody = UnsyncBoxBody<Bytes, Infallible>;
/// Response of an adapter, or the failure that the client is told.
pub type AdapterAnswer = Result<Response<AdapterBody>, Failure>;

/// Credentials of a request.
pub enum Credentials {
    /// The token from the head of the request, if there is one.
    Token(Option<String>),
    /// The token is in the body, which must be read first.
    InBody,
    /// The request needs no identity, and its answer depends on nothing that is registered.
    Unneeded,
}

/// A protocol of another product.
pub trait Adapter: Send + Sync + 'static {
    /// Returns the protocol, for metrics.
    fn protocol(&self) -> Protocol;

    /// Returns the metric label of a request's method, from a closed set.
    fn method(&self, parts: &Parts) -> &'static str;

    /// Returns the credentials of a request, from where the protocol has them. `body` is given after
    /// [`Credentials::InBody`].
    fn credentials(&self, parts: &Parts, body: Option<&[u8]>) -> Credentials;

    /// Returns the response for a failure in the form of the protocol; `None` for its text.
    fn refuse(&self, parts: &Parts, failure: &Failure) -> Option<Response<AdapterBody>> {
        let _ = (parts, failure);
        None
    }

    /// Returns the part of the protocol that is gRPC.
    fn grpc(&self) -> Option<&dyn GrpcAdapter> {
        None
    }

    /// Answers an authenticated request within its limits.
    fn answer<'a>(
        &'a self,
        client: AdapterClient,
        parts: &'a Parts,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = AdapterAnswer> + Send + 'a>>;

    /// Called every second while the listener serves.
    fn refresh(&self);

    /// Returns how much longer the answer to a request may take than others: the time that it waits for a
    /// change.
    fn wait(&self, _parts: &Parts) -> Duration {
        Duration::ZERO
    }

    /// Runs while the listener serves. Does not return.
    fn run<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}
