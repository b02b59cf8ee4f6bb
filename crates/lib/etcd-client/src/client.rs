//! etcd's API on one server.

use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse, WatchAsk, WatchCreate, WatchRequest, WatchResponse,
};
use crate::{CallError, MAX_MESSAGE};
use http::uri::PathAndQuery;
use pilotfish_connect::{Connector, Server, grpc_channel};
use pilotfish_runtime::SessionError;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

/// Default timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Client of one server. Cheap to clone; clones share its connection, and their calls run concurrently.
#[derive(Clone, Debug)]
pub struct Client {
    grpc: Grpc<Channel>,
    token: Option<MetadataValue<Ascii>>,
    timeout: Duration,
}

/// The two directions of a watch.
#[derive(Debug)]
pub struct WatchStream {
    /// Requests to the server.
    pub asks: mpsc::Sender<WatchRequest>,
    /// Responses of the server.
    pub answers: Streaming<WatchResponse>,
}

/// The two directions of a keepalive stream: one response per request, in order.
#[derive(Debug)]
pub struct KeepAliveStream {
    /// Requests to the server.
    pub asks: mpsc::Sender<LeaseKeepAliveRequest>,
    /// Responses of the server.
    pub answers: Streaming<LeaseKeepAliveResponse>,
}

impl Client {
    /// A client that connects at its first call. Calls time out after 10 s.
    ///
    /// # Errors
    /// When the server is no host and port of a URI.
    pub fn new(connector: Connector, server: &Server) -> Result<Self, SessionError> {
        let channel = grpc_channel(connector, server)?;
        let grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
        Ok(Self { grpc, token: None, timeout: TIMEOUT })
    }

    /// Sets the timeout of calls.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Logs in: later calls run as this user.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn authenticate(&mut self, name: &str, password: &str) -> Result<(), SessionError> {
        let ask = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let answer: AuthenticateResponse = self.call(path, ask).await?;
        let mut token: MetadataValue<Ascii> = answer.token.parse()?;
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(())
    }

    /// Reads one page of keys.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn range(&self, ask: RangeRequest) -> Result<RangeResponse, CallError> {
        self.call(PathAndQuery::from_static("/etcdserverpb.KV/Range"), ask).await
    }

    /// Writes one key.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn put(&self, ask: PutRequest) -> Result<PutResponse, CallError> {
        self.call(PathAndQuery::from_static("/etcdserverpb.KV/Put"), ask).await
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// See [`CallError`]. After a timeout the transaction may or may not have been applied.
    pub async fn transaction(&self, ask: TxnRequest) -> Result<TxnResponse, CallError> {
        self.call(PathAndQuery::from_static("/etcdserverpb.KV/Txn"), ask).await
    }

    /// Grants a lease of `ttl` seconds, or longer if etcd's minimum is higher.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn grant(&self, ttl: i64) -> Result<i64, CallError> {
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseGrant");
        let answer: LeaseGrantResponse = self.call(path, LeaseGrantRequest { ttl, id: 0 }).await?;
        if answer.error.is_empty() && answer.id != 0 {
            return Ok(answer.id);
        }
        Err(CallError::Refused(SessionError::new(format!("etcd granted no lease: {}", answer.error))))
    }

    /// Revokes a lease and deletes its keys.
    ///
    /// # Errors
    /// [`CallError::LeaseNotFound`] when it has already ended; see [`CallError`].
    pub async fn revoke(&self, id: i64) -> Result<(), CallError> {
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseRevoke");
        let _: LeaseRevokeResponse = self.call(path, LeaseRevokeRequest { id }).await?;
        Ok(())
    }

    /// Starts a watch. It ends when the server loses its leader: without a leader the watch would stay
    /// silent.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn watch(&self, create: WatchCreate) -> Result<WatchStream, CallError> {
        let first = WatchRequest { ask: Some(WatchAsk::Create(create)) };
        let (asks, answers) = self.stream("/etcdserverpb.Watch/Watch", first, 4).await?;
        Ok(WatchStream { asks, answers })
    }

    /// Starts a stream of lease keepalives with a first lease. It ends when the server loses its leader.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn keep_alive(&self, first: i64) -> Result<KeepAliveStream, CallError> {
        let first = LeaseKeepAliveRequest { id: first };
        let (asks, answers) = self.stream("/etcdserverpb.Lease/LeaseKeepAlive", first, 256).await?;
        Ok(KeepAliveStream { asks, answers })
    }

    /// Opens a bidirectional stream. The server sends response headers only after the first request, so that
    /// request is part of the opening.
    async fn stream<Ask, Answer>(
        &self,
        path: &'static str,
        first: Ask,
        waiting: usize,
    ) -> Result<(mpsc::Sender<Ask>, Streaming<Answer>), CallError>
    where
        Ask: prost::Message + Default + 'static,
        Answer: prost::Message + Default + 'static,
    {
        let (asks, asked) = mpsc::channel(waiting);
        asks.try_send(first).map_err(|error| CallError::Refused(error.into()))?;
        let mut request = self.request(ReceiverStream::new(asked));
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let path = PathAndQuery::from_static(path);
        let mut grpc = self.grpc.clone();
        let begun = timeout(self.timeout, async {
            ready(&mut grpc).await?;
            let codec = ProstCodec::<Ask, Answer>::default();
            Ok::<_, CallError>(grpc.streaming(request, path, codec).await?)
        });
        let answers = begun.await.map_err(|_| CallError::Timeout(self.timeout))??.into_inner();
        Ok((asks, answers))
    }

    async fn call<Ask, Answer>(&self, path: PathAndQuery, ask: Ask) -> Result<Answer, CallError>
    where
        Ask: prost::Message + Default + 'static,
        Answer: prost::Message + Default + 'static,
    {
        let request = self.request(ask);
        let mut grpc = self.grpc.clone();
        let answered = timeout(self.timeout, async {
            ready(&mut grpc).await?;
            let codec = ProstCodec::<Ask, Answer>::default();
            Ok::<_, CallError>(grpc.unary(request, path, codec).await?)
        });
        Ok(answered.await.map_err(|_| CallError::Timeout(self.timeout))??.into_inner())
    }

    fn request<T>(&self, ask: T) -> Request<T> {
        let mut request = Request::new(ask);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), CallError> {
    grpc.ready().await.map_err(|error| CallError::Unreachable(error.into()))
}
