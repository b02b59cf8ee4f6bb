//! What a session asks of a server, by gRPC or by HTTP.

use crate::credentials::Token;
use crate::follower::{Ask, ListPage};
use crate::grpc::Grpc;
use crate::http_api::HttpApi;
use crate::mapping::{Scope, ServiceName};
use crate::wire::ServiceInfo;
use futures::future::BoxFuture;
use pilotfish_registry_client::HttpError;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// How many bytes an answer may have.
pub(crate) const LIMIT: usize = 16 << 20;

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The answer is not what it should be.
    #[error("{what} cannot be read: {reason}")]
    Malformed {
        /// The type of the message, or the path.
        what: String,
        /// Why.
        reason: String,
    },
    /// The server says no.
    #[error("{what} is refused with {code}: {message}")]
    Refused {
        /// The type of the message, or the path.
        what: String,
        /// Its error code or HTTP status.
        code: i64,
        /// Its words.
        message: String,
    },
    /// The call failed below Nacos.
    #[error("{what} failed at {server}: {reason}")]
    Call {
        /// The type of the message.
        what: &'static str,
        /// The server.
        server: Arc<str>,
        /// Why.
        reason: String,
    },
    /// No answer came in time.
    #[error("{server} did not answer {what} within {timeout:?}")]
    Timeout {
        /// The type of the message.
        what: &'static str,
        /// The server.
        server: Arc<str>,
        /// The time.
        timeout: Duration,
    },
    /// The stream of pushes ended.
    #[error("the stream of pushes from {server} ended: {reason}")]
    Stream {
        /// The server.
        server: Arc<str>,
        /// Why.
        reason: String,
    },
    /// The server sends its clients elsewhere.
    #[error("{0} asks its clients to connect again")]
    Reset(Arc<str>),
    /// HTTP failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The password cannot be read.
    #[error(transparent)]
    Secret(#[from] pilotfish_registry_client::SecretError),
}

impl ApiError {
    pub(crate) fn malformed(what: &str, reason: &dyn Display) -> Self {
        Self::Malformed { what: what.to_owned(), reason: reason.to_string() }
    }

    /// Whether the token, or what it allows, is to blame.
    pub(crate) const fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { code: 401 | 403, .. })
    }

    /// Whether the server answered and said no.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// A push: the instances of a service that is subscribed to.
pub(crate) struct Push {
    pub(crate) namespace: Arc<str>,
    pub(crate) info: ServiceInfo,
}

/// What was asked for in the background.
pub(crate) enum Done {
    Listed(Scope, u32, Result<ListPage, ApiError>),
    Service(ServiceName, Result<ServiceInfo, ApiError>),
    Unsubscribed,
    Healthy(Result<(), ApiError>),
    LoggedIn(Result<Token, ApiError>),
    /// Whether a server that is polled has gRPC now.
    HasGrpc(bool),
}

/// How a server is read.
pub(crate) enum Api {
    Grpc(Grpc),
    Http(Box<HttpApi>),
}

impl Api {
    /// Asks; the answer does not need this any more.
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

    /// The next push; never by HTTP.
    pub(crate) async fn push(&mut self) -> Result<Push, ApiError> {
        match self {
            Self::Grpc(grpc) => grpc.push().await,
            Self::Http(_) => std::future::pending().await,
        }
    }
}
