//! Calls of etcd's API on one server.

use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse, WatchAsk, WatchCreate,
    WatchRequest, WatchResponse,
};
use http::uri::PathAndQuery;
use pilotfish_registry_client::{Connector, Server, SessionError, grpc_channel};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest message that is taken. etcd's own limit for what it takes is 1.5 MiB, and its messages of a watch are not larger by much.
const MAX_MESSAGE: usize = 16 << 20;

/// One server.
pub(crate) struct Client {
    grpc: Grpc<Channel>,
    token: Option<MetadataValue<Ascii>>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The revision that was asked for is gone.
    #[error("the revision was compacted")]
    Compacted,
    /// The answer is larger than what is taken.
    #[error("the answer is larger than {} MiB", MAX_MESSAGE >> 20)]
    TooLarge,
    /// Nothing came in time.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The server refused, or cannot be reached.
    #[error("{0}")]
    Refused(SessionError),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        // Both have this code; etcd's texts are part of its API, as its own client compares them.
        let is_out_of_range = status.code() == Code::OutOfRange;
        if is_out_of_range && status.message().contains("has been compacted") {
            return Self::Compacted;
        }
        if is_out_of_range && status.message().contains("message length too large") {
            return Self::TooLarge;
        }
        Self::Refused(reason(&status))
    }
}

/// What a status says, for people: its text, and what is behind it.
pub(crate) fn reason(status: &Status) -> SessionError {
    match std::error::Error::source(status) {
        Some(source) => SessionError::new(pilotfish_source::error_chain(source)),
        None if status.message().is_empty() => SessionError::new(status.code().description()),
        None => SessionError::new(status.message()),
    }
}

/// A watch that runs: what is asked, and what is answered.
pub(crate) struct WatchStream {
    pub(crate) asks: mpsc::Sender<WatchRequest>,
    pub(crate) answers: Streaming<WatchResponse>,
}

impl Client {
    /// A server that is connected to at the first call.
    pub(crate) fn new(connector: Connector, server: &Server) -> Result<Self, SessionError> {
        let channel = grpc_channel(connector, server)?;
        Ok(Self { grpc: Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE), token: None })
    }

    /// Logs in: calls that follow are this user's.
    pub(crate) async fn authenticate(&mut self, name: &str, password: &str) -> Result<(), SessionError> {
        let ask = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let answer: AuthenticateResponse = self.call(path, ask).await?;
        let mut token: MetadataValue<Ascii> = answer.token.parse()?;
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(())
    }

    /// Reads one page of keys.
    pub(crate) async fn range(&mut self, ask: RangeRequest) -> Result<RangeResponse, CallError> {
        self.call(PathAndQuery::from_static("/etcdserverpb.KV/Range"), ask).await
    }

    /// Begins a watch. It ends when the server loses its leader, which would else be a silent one.
    pub(crate) async fn watch(&mut self, create: WatchCreate) -> Result<WatchStream, CallError> {
        let (asks, asked) = mpsc::channel(4);
        // It answers, with headers too, when it was asked for something.
        let first = WatchRequest { ask: Some(WatchAsk::Create(create)) };
        asks.try_send(first).map_err(|error| CallError::Refused(error.into()))?;
        let mut request = self.request(ReceiverStream::new(asked));
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let begun = timeout(TIMEOUT, async {
            self.ready().await?;
            Ok::<_, CallError>(self.grpc.streaming(request, path, ProstCodec::default()).await?)
        });
        let answers = begun.await.map_err(|_| CallError::Timeout)??.into_inner();
        Ok(WatchStream { asks, answers })
    }

    async fn call<Ask, Answer>(&mut self, path: PathAndQuery, ask: Ask) -> Result<Answer, CallError>
    where
        Ask: prost::Message + Default + 'static,
        Answer: prost::Message + Default + 'static,
    {
        let request = self.request(ask);
        let answered = timeout(TIMEOUT, async {
            self.ready().await?;
            let codec = ProstCodec::<Ask, Answer>::default();
            Ok::<_, CallError>(self.grpc.unary(request, path, codec).await?)
        });
        Ok(answered.await.map_err(|_| CallError::Timeout)??.into_inner())
    }

    async fn ready(&mut self) -> Result<(), CallError> {
        self.grpc.ready().await.map_err(|error| CallError::Refused(error.into()))
    }

    fn request<T>(&self, ask: T) -> Request<T> {
        let mut request = Request::new(ask);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}
