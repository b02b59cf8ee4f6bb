//! Requests of a session to a server, over gRPC or HTTP.

use crate::credentials::Token;
use crate::follower::{Ask, ListPage};
use crate::grpc::Grpc;
use crate::http_api::HttpApi;
use crate::mapping::{Scope, ServiceName};
use futures::future::BoxFuture;
use pilotfish_connect::HttpError;
use pilotfish_nacos_wire::{PayloadError, ServiceInfo};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a request.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response in bytes.
pub(crate) const LIMIT: usize = 16 << 20;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The response cannot be decoded.
    #[error("{what} cannot be read: {reason}")]
    Malformed {
        /// Message type or path.
        what: String,
        reason: String,
    },
    /// The server refused the request.
    #[error("{what} is refused with {code}: {message}")]
    Refused {
        /// Message type or path.
        what: String,
        /// Error code or HTTP status.
        code: i64,
        message: String,
    },
    /// The gRPC call failed.
    #[error("{what} failed at {server}: {reason}")]
    Call {
        /// Type of the request message.
        what: &'static str,
        server: Arc<str>,
        reason: String,
    },
    /// No response within the timeout.
    #[error("{server} did not answer {what} within {timeout:?}")]
    Timeout {
        /// Type of the request message.
        what: &'static str,
        server: Arc<str>,
        timeout: Duration,
    },
    /// The push stream ended.
    #[error("the stream of pushes from {server} ended: {reason}")]
    Stream { server: Arc<str>, reason: String },
    /// The server asks its clients to reconnect to another one.
    #[error("{0} asks its clients to connect again")]
    Reset(Arc<str>),
    /// The HTTP request failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The password cannot be read.
    #[error(transparent)]
    Secret(#[from] pilotfish_connect::SecretError),
}

impl From<PayloadError> for ApiError {
    fn from(PayloadError { kind, source }: PayloadError) -> Self {
        Self::malformed(&kind, &source)
    }
}

impl ApiError {
    pub(crate) fn malformed(what: &str, reason: &dyn Display) -> Self {
        Self::Malformed { what: what.to_owned(), reason: reason.to_string() }
    }

    /// True if the token is invalid or lacks permission.
    pub(crate) const fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { code: 401 | 403, .. })
    }

    /// True if the server answered with an error.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// A push: the instances of a subscribed service.
pub(crate) struct Push {
    pub(crate) namespace: Arc<str>,
    pub(crate) info: ServiceInfo,
}

/// Result of a background request.
pub(crate) enum Done {
    Listed(Scope, u32, Result<ListPage, ApiError>),
    Service(ServiceName, Result<ServiceInfo, ApiError>),
    Unsubscribed,
    Healthy(Result<(), ApiError>),
    LoggedIn(Result<Token, ApiError>),
    /// True if a polled server now supports gRPC.
    HasGrpc(bool),
}

/// API in use with a server.
pub(crate) enum Api {
    Grpc(Grpc),
    Http(Box<HttpApi>),
}

impl Api {
    /// Starts a request; the future does not borrow the API.
    pub(crate) fn ask(&self, ask: Ask, token: Option<Arc<str>>) -> BoxFuture<'static, Done> {
        match (self, ask) {
            (Self::Grpc(grpc), ask) => grpc.ask(ask, token),
            (Self::Http(http), Ask::List(scope, page)) => {
                let http = http.clone();
                Box::pin(async move {
                    let answer = http.list(&scope, page, token.as_deref()).await;
                    Done::Listed(scope, page, answer)
                })
            }
            (Self::Http(http), Ask::Service(name)) => {
                let http = http.clone();
                Box::pin(async move {
                    let answer = http.instances(&name, token.as_deref()).await;
                    Done::Service(name, answer)
                })
            }
            (Self::Http(_), Ask::Unsubscribe(_)) => Box::pin(std::future::ready(Done::Unsubscribed)),
        }
    }

    /// Returns the next push; pending forever over HTTP.
    pub(crate) async fn push(&mut self) -> Result<Push, ApiError> {
        match self {
            Self::Grpc(grpc) => grpc.push().await,
            Self::Http(_) => std::future::pending().await,
        }
    }
}
