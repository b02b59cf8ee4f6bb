//! gRPC calls of another product's protocol. Their tokens are in their messages, so an adapter reads a
//! message first and authenticates its client then.

use crate::adapter_client::AdapterClient;
use crate::api::{Api, closed, in_time};
use crate::failure::Failure;
use crate::identity::Who;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use tonic::body::Body;

/// The gRPC services of a protocol.
pub trait GrpcAdapter: Send + Sync {
    /// True for a method with a stream of requests.
    fn is_stream(&self, path: &str) -> bool;

    /// Answers a call. The size of each message and the time of its arrival are limited.
    fn call(
        &self,
        connection: AdapterConnection,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
}

/// Authentication of the messages of a connection.
pub(crate) trait Authenticate: Send + Sync {
    /// Identifies the client of a message by its token, or without one by its certificate.
    fn authenticate<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Who, Failure>>;
}

/// The connection of a call.
#[derive(Clone)]
pub struct AdapterConnection {
    pub(crate) api: Arc<Api>,
    pub(crate) address: IpAddr,
    pub(crate) number: u64,
    pub(crate) clients: Arc<dyn Authenticate>,
}

impl AdapterConnection {
    /// Number of the connection, unique in this process.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Authenticates the client of a message by its token, or without one by its certificate, and counts the
    /// message against its rate.
    ///
    /// # Errors
    /// When the client proves no identity where it must, or sends too much.
    pub async fn authenticate(&self, token: Option<&str>) -> Result<AdapterClient, Failure> {
        let who = self.clients.authenticate(token).await?;
        self.api.take_rate(&who)?;
        Ok(AdapterClient { api: Arc::clone(&self.api), who })
    }

    /// Counts a message that needs no identity against the rate of its address.
    ///
    /// # Errors
    /// When the address sends too much.
    pub fn count(&self) -> Result<(), Failure> {
        self.api.take_rate(&Who::anonymous(self.address))
    }

    /// Fails if an answer takes too long.
    ///
    /// # Errors
    /// Those of the answer, and the timeout.
    pub async fn in_time<R>(&self, answer: impl Future<Output = Result<R, Failure>>) -> Result<R, Failure> {
        in_time(self.api.limits.request_timeout, answer).await
    }

    /// True once the server shuts down.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        *self.api.closing.borrow()
    }

    /// Waits until the server begins to shut down.
    pub async fn closed(&self) {
        closed(&mut self.api.closing.clone()).await;
    }

    /// Records a failure that a message carries, and not the response.
    pub fn note(&self, failure: &Failure) {
        self.api.note(failure);
    }
}
