//! Connections of version 2: one for each namespace, with calls and a stream on which the server pushes.

use crate::api::{ApiError, Done, LIMIT, Push, TIMEOUT};
use crate::follower::{Ask, ListPage, PAGE};
use crate::mapping::{Scope, ServiceName};
use crate::payload::Payload;
use crate::wire::{
    Acknowledgement, ConnectionSetup, Empty, NotifySubscriberRequest, PushHead, ResultHead, SUCCESS,
    ServiceInfo, ServiceListRequest, ServiceListResponse, SubscribeServiceRequest, SubscribeServiceResponse,
    UNREGISTERED,
};
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use pilotfish_registry_client::{Connector, Server, grpc_channel};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// Of whom the server thinks: its own clients say `Nacos-LANGUAGE-Client:vVERSION`.
const CLIENT_VERSION: &str = concat!("Pilotfish:v", env!("CARGO_PKG_VERSION"));
/// How long a server may take to answer that it is there.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to know a new connection, and how often it is asked.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
const REGISTER_PAUSE: Duration = Duration::from_millis(20);
/// Pushes that wait for the session, and acknowledgements that wait for the server.
const PUSHES: usize = 64;
const ACKNOWLEDGEMENTS: usize = 1024;

/// All connections of a session. They end when dropped.
pub(crate) struct Grpc {
    connections: BTreeMap<Arc<str>, Connection>,
    pushes: mpsc::Receiver<Result<Push, ApiError>>,
    readers: JoinSet<()>,
}

/// A connection. Calls and stream go over one TCP connection, by which the server knows whose stream is whose.
#[derive(Clone)]
struct Connection {
    channel: Channel,
    server: Arc<str>,
}

impl Grpc {
    /// Whether a server speaks gRPC.
    pub(crate) async fn is_there(connector: Connector, server: &Server) -> Result<(), ApiError> {
        Connection::new(connector, server)?.check().await
    }

    /// Connects for each namespace.
    ///
    /// # Errors
    /// When a connection cannot be had, or the server does not want one.
    pub(crate) async fn open(
        connector: &Connector,
        server: &Server,
        namespaces: impl Iterator<Item = Arc<str>>,
        token: Option<&str>,
    ) -> Result<Self, ApiError> {
        let (sender, pushes) = mpsc::channel(PUSHES);
        let mut opened = Self { connections: BTreeMap::new(), pushes, readers: JoinSet::new() };
        for namespace in namespaces {
            let connection = Connection::new(connector.clone(), server)?;
            connection.check().await?;
            let reader = connection.setup(&namespace, token, sender.clone())?;
            opened.readers.spawn(reader);
            connection.until_registered(token).await?;
            opened.connections.insert(namespace, connection);
        }
        Ok(opened)
    }

    pub(crate) fn ask(&self, ask: Ask, token: Option<Arc<str>>) -> BoxFuture<'static, Done> {
        let namespace = match &ask {
            Ask::List(scope, _) => &scope.namespace,
            Ask::Service(name) | Ask::Unsubscribe(name) => &name.scope.namespace,
        };
        let connection = self.connections.get(namespace).cloned();
        Box::pin(async move {
            let none = || ApiError::malformed("the request", &"its namespace has no connection");
            let connection = connection.ok_or_else(none);
            match ask {
                Ask::List(scope, page) => match connection {
                    Ok(connection) => {
                        let answer = connection.list(&scope, page, token.as_deref()).await;
                        Done::Listed(scope, page, answer)
                    }
                    Err(error) => Done::Listed(scope, page, Err(error)),
                },
                Ask::Service(name) => match connection {
                    Ok(connection) => {
                        let answer = connection.subscribe(&name, token.as_deref()).await;
                        Done::Service(name, answer)
                    }
                    Err(error) => Done::Service(name, Err(error)),
                },
                Ask::Unsubscribe(name) => {
                    if let Ok(connection) = connection {
                        // Its pushes would be ignored too.
                        let _ = connection.call_subscribe(&name, false, token.as_deref()).await;
                    }
                    Done::Unsubscribed
                }
            }
        })
    }

    /// Asks on each connection whether it is alive: a server forgets those that are silent.
    pub(crate) fn keep_alive(&self, token: Option<&Arc<str>>) -> Vec<BoxFuture<'static, Done>> {
        let ask = |connection: &Connection| -> BoxFuture<'static, Done> {
            let (connection, token) = (connection.clone(), token.cloned());
            Box::pin(async move { Done::Healthy(connection.health(token.as_deref()).await) })
        };
        self.connections.values().map(ask).collect()
    }

    pub(crate) async fn push(&mut self) -> Result<Push, ApiError> {
        let ended = || ApiError::Stream { server: "the server".into(), reason: "nobody reads it".to_owned() };
        self.pushes.recv().await.ok_or_else(ended)?
    }
}

impl Connection {
    fn new(connector: Connector, server: &Server) -> Result<Self, ApiError> {
        let name: Arc<str> = server.to_string().into();
        let failed = |error: tonic::transport::Error| ApiError::Call {
            what: "connecting",
            server: name.clone(),
            reason: pilotfish_source::error_chain(&error),
        };
        let channel = grpc_channel(connector, server).map_err(failed)?;
        Ok(Self { channel, server: name })
    }

    fn client(&self) -> tonic::client::Grpc<Channel> {
        tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(LIMIT)
    }

    /// Asks something, and gives an answer that says that all went well.
    async fn call(
        &self,
        what: &'static str,
        content: &impl Serialize,
        token: Option<&str>,
        limit: Duration,
    ) -> Result<Payload, ApiError> {
        let failed = |reason: String| ApiError::Call { what, server: self.server.clone(), reason };
        let payload = Payload::new(what, content, token)?;
        let mut client = self.client();
        let exchange = async {
            client.ready().await.map_err(|error| failed(pilotfish_source::error_chain(&error)))?;
            let path = PathAndQuery::from_static("/Request/request");
            let codec = ProstCodec::<Payload, Payload>::default();
            client
                .unary(tonic::Request::new(payload), path, codec)
                .await
                .map_err(|status| failed(reason(&status)))
        };
        let late = || ApiError::Timeout { what, server: self.server.clone(), timeout: limit };
        let answer = timeout(limit, exchange).await.map_err(|_| late())??.into_inner();
        let head: ResultHead = answer.content()?;
        if head.result_code == SUCCESS {
            return Ok(answer);
        }
        let code = if head.error_code == 0 { head.result_code } else { head.error_code };
        Err(ApiError::Refused { what: what.to_owned(), code, message: head.message.unwrap_or_default() })
    }

    async fn check(&self) -> Result<(), ApiError> {
        self.call("ServerCheckRequest", &Empty {}, None, CHECK_TIMEOUT).await.map(drop)
    }

    async fn health(&self, token: Option<&str>) -> Result<(), ApiError> {
        self.call("HealthCheckRequest", &Empty {}, token, CHECK_TIMEOUT).await.map(drop)
    }

    /// Introduces the connection. What comes back reads the stream, until it ends.
    fn setup(
        &self,
        namespace: &Arc<str>,
        token: Option<&str>,
        pushes: mpsc::Sender<Result<Push, ApiError>>,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ApiError> {
        let labels = [("source", "sdk"), ("module", "naming"), ("AppName", "pilotfish")].into();
        let setup = ConnectionSetup {
            client_version: CLIENT_VERSION,
            tenant: namespace,
            labels,
            abilities: Empty {},
        };
        let setup = Payload::new("ConnectionSetupRequest", &setup, token)?;
        let (acknowledge, outgoing) = mpsc::channel(ACKNOWLEDGEMENTS);
        let reader =
            Reader { server: self.server.clone(), namespace: namespace.clone(), acknowledge, pushes };
        let client = self.client();
        Ok(async move {
            let pushes = reader.pushes.clone();
            if let Err(error) = reader.read(client, setup, outgoing).await {
                // Nobody hears it when the session is over.
                let _ = pushes.send(Err(error)).await;
            }
        })
    }

    /// The stream and the calls are handled apart: a server refuses calls of a connection until it has read who it is.
    async fn until_registered(&self, token: Option<&str>) -> Result<(), ApiError> {
        let deadline = Instant::now() + REGISTER_TIMEOUT;
        let mut pause = REGISTER_PAUSE;
        loop {
            match self.health(token).await {
                Err(ApiError::Refused { code: UNREGISTERED, .. }) if Instant::now() < deadline => {
                    sleep(pause).await;
                    pause *= 2;
                }
                result => return result,
            }
        }
    }

    async fn list(&self, scope: &Scope, page: u32, token: Option<&str>) -> Result<ListPage, ApiError> {
        let request = ServiceListRequest {
            namespace: &scope.namespace,
            group_name: &scope.group,
            service_name: "",
            page_no: page,
            page_size: PAGE,
        };
        let answer = self.call("ServiceListRequest", &request, token, TIMEOUT).await?;
        let list: ServiceListResponse = answer.content()?;
        Ok(ListPage { count: list.count, names: list.service_names })
    }

    async fn subscribe(&self, name: &ServiceName, token: Option<&str>) -> Result<ServiceInfo, ApiError> {
        let answer = self.call_subscribe(name, true, token).await?;
        Ok(answer.content::<SubscribeServiceResponse>()?.service_info)
    }

    async fn call_subscribe(
        &self,
        name: &ServiceName,
        subscribe: bool,
        token: Option<&str>,
    ) -> Result<Payload, ApiError> {
        let request = SubscribeServiceRequest {
            namespace: &name.scope.namespace,
            group_name: &name.scope.group,
            service_name: &name.name,
            subscribe,
            clusters: "",
        };
        self.call("SubscribeServiceRequest", &request, token, TIMEOUT).await
    }
}

/// Reads what a server sends by itself.
struct Reader {
    server: Arc<str>,
    namespace: Arc<str>,
    acknowledge: mpsc::Sender<Payload>,
    pushes: mpsc::Sender<Result<Push, ApiError>>,
}

impl Reader {
    async fn read(
        &self,
        mut client: tonic::client::Grpc<Channel>,
        setup: Payload,
        outgoing: mpsc::Receiver<Payload>,
    ) -> Result<(), ApiError> {
        self.send(setup)?;
        client.ready().await.map_err(|error| self.ended(pilotfish_source::error_chain(&error)))?;
        let path = PathAndQuery::from_static("/BiRequestStream/requestBiStream");
        let request = tonic::Request::new(ReceiverStream::new(outgoing));
        // A server may answer with its head only when it has something to push, so this is not waited for.
        let answer = client.streaming(request, path, ProstCodec::<Payload, Payload>::default()).await;
        let mut stream = answer.map_err(|status| self.ended(reason(&status)))?.into_inner();
        while let Some(message) = stream.message().await.map_err(|status| self.ended(reason(&status)))? {
            self.take(&message).await?;
        }
        Err(self.ended("the server closed it".to_owned()))
    }

    /// Answers a message, and passes on what it tells.
    async fn take(&self, message: &Payload) -> Result<(), ApiError> {
        let answer = match message.kind() {
            "NotifySubscriberRequest" => "NotifySubscriberResponse",
            "ClientDetectionRequest" => "ClientDetectionResponse",
            "SetupAckRequest" => "SetupAckResponse",
            "ConnectResetRequest" => "ConnectResetResponse",
            // Answers to the setup, and what later versions may have.
            other => {
                tracing::debug!(
                    kind = other,
                    server = &*self.server,
                    "a message of a kind that is not known"
                );
                return Ok(());
            }
        };
        let head: PushHead = message.content()?;
        let acknowledgement = Acknowledgement {
            request_id: head.request_id.as_deref(),
            result_code: SUCCESS,
            error_code: 0,
            success: true,
        };
        self.send(Payload::new(answer, &acknowledgement, None)?)?;
        match message.kind() {
            "NotifySubscriberRequest" => {
                let info = message.content::<NotifySubscriberRequest>()?.service_info;
                let push = Push { namespace: self.namespace.clone(), info };
                // Nobody wants it when the session is over.
                let _ = self.pushes.send(Ok(push)).await;
                Ok(())
            }
            "ConnectResetRequest" => Err(ApiError::Reset(self.server.clone())),
            _ => Ok(()),
        }
    }

    fn send(&self, message: Payload) -> Result<(), ApiError> {
        let failed = |_| self.ended("it does not take acknowledgements".to_owned());
        self.acknowledge.try_send(message).map_err(failed)
    }

    fn ended(&self, reason: String) -> ApiError {
        ApiError::Stream { server: self.server.clone(), reason }
    }
}

/// A status without its metadata.
fn reason(status: &tonic::Status) -> String {
    let source = std::error::Error::source(status).map(pilotfish_source::error_chain);
    let words = [status.message(), source.as_deref().unwrap_or_default()];
    let words: Vec<&str> = words.into_iter().filter(|text| !text.is_empty()).collect();
    format!("{:?} {}", status.code(), words.join(": ")).trim_end().to_owned()
}
