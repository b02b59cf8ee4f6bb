//! gRPC connections of Nacos 2: one for each namespace, with unary calls and a push stream.

use crate::api::{ApiError, Done, LIMIT, Push, TIMEOUT};
use crate::follower::{Ask, ListPage, PAGE};
use crate::mapping::{Scope, ServiceName};
use crate::wire::{
    Acknowledgement, ConnectionSetup, Empty, NotifySubscriberRequest, PushHead, ResultHead,
    ServiceListRequest, ServiceListResponse, SubscribeServiceRequest, SubscribeServiceResponse,
};
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use pilotfish_connect::{Connector, Server, grpc_channel};
use pilotfish_nacos_wire::{Payload, SUCCESS, ServiceInfo, UNREGISTERED};
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
use tracing::Instrument;

/// Client version sent to the server; Nacos's own clients send `Nacos-LANGUAGE-Client:vVERSION`.
const CLIENT_VERSION: &str = concat!("Pilotfish:v", env!("CARGO_PKG_VERSION"));
/// Timeout of a server check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time until a server accepts calls of a new connection, and the first pause between attempts.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
const REGISTER_PAUSE: Duration = Duration::from_millis(20);
/// Capacities of the queues of pushes for the session, and of acknowledgements for the server.
const PUSHES: usize = 64;
const ACKNOWLEDGEMENTS: usize = 1024;

/// All connections of a session. They close when dropped.
pub(crate) struct Grpc {
    connections: BTreeMap<Arc<str>, Connection>,
    pushes: mpsc::Receiver<Result<Push, ApiError>>,
    readers: JoinSet<()>,
}

/// A connection. Calls and stream share one TCP connection, which is how the server relates them.
#[derive(Clone)]
struct Connection {
    channel: Channel,
    server: Arc<str>,
}

impl Grpc {
    /// Checks that a server speaks gRPC.
    pub(crate) async fn is_there(connector: Connector, server: &Server) -> Result<(), ApiError> {
        Connection::new(connector, server)?.check().await
    }

    /// Opens a connection for each namespace.
    ///
    /// # Errors
    /// When a connection fails, or the server refuses it.
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
            opened.readers.spawn(reader.in_current_span());
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

    /// Sends a health check on each connection: a server drops silent ones.
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
            reason: pilotfish_runtime::error_chain(&error),
        };
        let channel = grpc_channel(connector, server).map_err(failed)?;
        Ok(Self { channel, server: name })
    }

    fn client(&self) -> tonic::client::Grpc<Channel> {
        tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(LIMIT)
    }

    /// Sends a request, and returns its answer if its result code is success.
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
            client.ready().await.map_err(|error| failed(pilotfish_runtime::error_chain(&error)))?;
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

    /// Opens the stream and sends the setup. The returned future reads the stream until it ends.
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
                // Fails only if the session is over.
                let _ = pushes.send(Err(error)).await;
            }
        })
    }

    /// Waits until the server accepts calls: it refuses them until it has processed the setup of the stream.
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

/// Reads pushes and server requests from the stream.
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
        client.ready().await.map_err(|error| self.ended(pilotfish_runtime::error_chain(&error)))?;
        let path = PathAndQuery::from_static("/BiRequestStream/requestBiStream");
        let request = tonic::Request::new(ReceiverStream::new(outgoing));
        // Not awaited earlier: a server may send response headers only with its first push.
        let answer = client.streaming(request, path, ProstCodec::<Payload, Payload>::default()).await;
        let mut stream = answer.map_err(|status| self.ended(reason(&status)))?.into_inner();
        while let Some(message) = stream.message().await.map_err(|status| self.ended(reason(&status)))? {
            self.take(&message).await?;
        }
        Err(self.ended("the server closed it".to_owned()))
    }

    /// Acknowledges a message, and forwards its push.
    async fn take(&self, message: &Payload) -> Result<(), ApiError> {
        let answer = match message.kind() {
            "NotifySubscriberRequest" => "NotifySubscriberResponse",
            "ClientDetectionRequest" => "ClientDetectionResponse",
            "SetupAckRequest" => "SetupAckResponse",
            "ConnectResetRequest" => "ConnectResetResponse",
            // The answer to the setup, and kinds of later versions.
            other => {
                tracing::debug!(
                    kind = other,
                    server = &*self.server,
                    "ignoring a message of an unknown kind"
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
                // Fails only if the session is over.
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

/// Returns the message of a status with its causes, without metadata.
fn reason(status: &tonic::Status) -> String {
    let source = std::error::Error::source(status).map(pilotfish_runtime::error_chain);
    let words = [status.message(), source.as_deref().unwrap_or_default()];
    let words: Vec<&str> = words.into_iter().filter(|text| !text.is_empty()).collect();
    format!("{:?} {}", status.code(), words.join(": ")).trim_end().to_owned()
}
