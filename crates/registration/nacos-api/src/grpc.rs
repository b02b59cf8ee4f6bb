//! The gRPC API: requests of clients, and the stream of pushes.

use crate::answer::status;
use crate::calls::{Core, NacosApi};
use crate::connections::name;
use crate::messages::{Answer, NamingRequest, NotifySubscriber};
use crate::record::Given;
use crate::service::{Scope, ServiceId, Wanted};
use futures::Stream;
use pilotfish_nacos_wire::{Host, Payload, PayloadError, SUCCESS, UNREGISTERED};
use pilotfish_registration::InstanceKey;
use pilotfish_registration::limits::MAX_BATCH;
use pilotfish_registration_server::{AdapterClient, AdapterConnection, Failure, GrpcAdapter};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, interval, timeout};
use tonic::body::Body;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const REQUEST: &str = "/Request/request";
const STREAM: &str = "/BiRequestStream/requestBiStream";
/// Result code of a failure; its reason is the error code.
const FAILED: i64 = 500;
/// Error code of a request that the server has no handler for.
const NO_HANDLER: i64 = 302;
/// Timeout for the first message on a stream.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of looking whether the client of a stream is still authenticated.
const LOOK: Duration = Duration::from_secs(1);

/// Returns the label of a gRPC method in metrics.
pub(crate) fn label(path: &str) -> Option<&'static str> {
    match path {
        REQUEST => Some("Request"),
        STREAM => Some("Stream"),
        _ => None,
    }
}

/// Error for a call of configuration management.
pub(crate) fn no_configuration() -> Failure {
    Failure::unsupported("Pilotfish serves naming only: configuration stays with a server of Nacos")
}

impl GrpcAdapter for NacosApi {
    fn is_stream(&self, path: &str) -> bool {
        path == STREAM
    }

    fn call(
        &self,
        connection: AdapterConnection,
        request: http::Request<Body>,
    ) -> Pin<Box<dyn Future<Output = http::Response<Body>> + Send>> {
        let core = Arc::clone(&self.0);
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Payload, Payload>::default());
            match request.uri().path() {
                REQUEST => {
                    let call = tower::service_fn(move |request: Request<Payload>| {
                        answer(Arc::clone(&core), connection.clone(), request.into_inner())
                    });
                    grpc.unary(call, request).await
                }
                STREAM => {
                    let call = tower::service_fn(move |request: Request<Streaming<Payload>>| {
                        let stream = pushes(Arc::clone(&core), connection.clone(), request.into_inner());
                        std::future::ready(Ok::<_, Status>(Response::new(stream)))
                    });
                    grpc.streaming(call, request).await
                }
                other => Status::unimplemented(format!("{other} is no method of Nacos")).into_http(),
            }
        })
    }
}

/// Answers a request. Failures are messages, as clients expect.
async fn answer(
    core: Arc<Core>,
    connection: AdapterConnection,
    payload: Payload,
) -> Result<Response<Payload>, Status> {
    let mut request_id = String::new();
    let answered = connection.in_time(core.request(&connection, &payload, &mut request_id)).await;
    let (payload, failure) = match answered {
        Ok(Answer { kind, mut fields }) => {
            let success = json!({
                "resultCode": SUCCESS, "errorCode": 0, "message": null, "requestId": request_id, "success": true,
            });
            if let Value::Object(success) = success {
                fields.extend(success);
            }
            (Payload::new(kind, &fields, None), None)
        }
        Err(failure) => {
            connection.note(&failure);
            (error(&failure, &request_id), Some(failure))
        }
    };
    let payload = payload.map_err(|error| Status::internal(error.to_string()))?;
    let mut response = Response::new(payload);
    if let Some(failure) = failure {
        response.extensions_mut().insert(failure.outcome());
    }
    Ok(response)
}

fn error(failure: &Failure, request_id: &str) -> Result<Payload, PayloadError> {
    let code = match status(failure) {
        501 => NO_HANDLER,
        410 => UNREGISTERED,
        status => status.into(),
    };
    let content = json!({
        "resultCode": FAILED, "errorCode": code, "message": failure.message(), "requestId": request_id,
        "success": false,
    });
    Payload::new("ErrorResponse", &content, None)
}

fn malformed(error: &PayloadError) -> Failure {
    Failure::invalid(error.to_string())
}

impl Core {
    async fn request(
        &self,
        connection: &AdapterConnection,
        payload: &Payload,
        request_id: &mut String,
    ) -> Result<Answer, Failure> {
        let number = connection.number();
        if payload.kind() == "ServerCheckRequest" {
            connection.count()?;
            let id = name(self.registrar.epoch(), number);
            let fields = json!({"connectionId": id, "supportAbilityNegotiation": false});
            return Ok(Answer::new("ServerCheckResponse", fields));
        }
        if !self.connections.is_open(number) {
            connection.count()?;
            return Err(Failure::gone("Connection is unregistered."));
        }
        if payload.kind() == "HealthCheckRequest" {
            connection.count()?;
            return Ok(Answer::new("HealthCheckResponse", Value::Null));
        }
        let client = connection.authenticate(payload.token()).await?;
        if payload.kind().starts_with("Config") {
            return Err(no_configuration());
        }
        let request: NamingRequest = payload.content().map_err(|error| malformed(&error))?;
        request_id.clone_from(&request.request_id);
        let caller = Caller { number, id: self.connections.used_by(number, &client)?, client };
        match payload.kind() {
            "InstanceRequest" | "PersistentInstanceRequest" => self.instance_request(&caller, &request).await,
            "BatchInstanceRequest" => self.batch(&caller, &request).await,
            "SubscribeServiceRequest" => self.subscribe(&caller, &request),
            "ServiceQueryRequest" => self.query(&caller, &request),
            "ServiceListRequest" => self.list(&caller, &request),
            other => {
                let shown: String = other.chars().take(63).collect();
                Err(Failure::unsupported(format!("RequestHandler Not Found: {shown:?} is not served")))
            }
        }
    }

    async fn instance_request(&self, caller: &Caller, request: &NamingRequest) -> Result<Answer, Failure> {
        let service = Arc::new(service(request)?);
        let host =
            request.instance.as_ref().ok_or_else(|| Failure::invalid("Param 'instance' is required."))?;
        match &*request.action {
            "registerInstance" => self.put(caller, &service, host).await.map(drop)?,
            "deregisterInstance" => {
                let given = Given::of_host(host);
                let place = (&*given.ip, given.port, &*given.cluster);
                // Forgotten first, so that no renewal registers it again.
                let key = self.key(&caller.client, &service, place)?;
                self.connections.forget(caller.number, &key, &service);
                self.deregister(&caller.client, &service, place).await?;
            }
            other => return Err(unknown_action(other)),
        }
        Ok(Answer::new("InstanceResponse", json!({"type": request.action})))
    }

    /// Registers an instance, and keeps it as long as the connection if it is ephemeral.
    async fn put(
        &self,
        caller: &Caller,
        service: &Arc<ServiceId>,
        host: &Host,
    ) -> Result<InstanceKey, Failure> {
        let mut given = Given::of_host(host);
        given.connection = given.ephemeral.then(|| Arc::clone(&caller.id));
        let key = self.register(&caller.client, service, &given).await?;
        self.connections.keep(caller.number, &caller.client, key.clone(), Arc::clone(service), given);
        Ok(key)
    }

    /// Registers the instances of a service that the connection keeps, in place of those that it kept before.
    async fn batch(&self, caller: &Caller, request: &NamingRequest) -> Result<Answer, Failure> {
        if request.action != "batchRegisterInstance" {
            return Err(unknown_action(&request.action));
        }
        if request.instances.len() > MAX_BATCH {
            return Err(Failure::too_many(format!("a batch has at most {MAX_BATCH} instances")));
        }
        let service = Arc::new(service(request)?);
        let before = self.connections.kept(caller.number, &service);
        let mut keys = Vec::with_capacity(request.instances.len());
        for host in &request.instances {
            keys.push(self.put(caller, &service, host).await?);
        }
        for (key, given) in before.into_iter().filter(|(key, _)| !keys.contains(key)) {
            self.connections.forget(caller.number, &key, &service);
            self.deregister(&caller.client, &service, (&given.ip, given.port, &given.cluster)).await?;
        }
        Ok(Answer::new("BatchInstanceResponse", json!({"type": request.action})))
    }

    fn subscribe(&self, caller: &Caller, request: &NamingRequest) -> Result<Answer, Failure> {
        let service = Arc::new(service(request)?);
        let wanted = Wanted::read(&request.clusters, false)?;
        if !request.subscribe {
            self.connections.unsubscribe(caller.number, &service);
            let info = self.instances(&caller.client, &service, &wanted)?;
            return Ok(Answer::new("SubscribeServiceResponse", json!({"serviceInfo": info})));
        }
        // Before it is read, so that no change is missed; and not for a client that may not read it.
        self.instances(&caller.client, &service, &wanted)?;
        let key = service.key(&self.settings)?;
        self.connections.subscribe(caller.number, caller.client.identity(), &service, key, wanted.clone())?;
        let info = self.instances(&caller.client, &service, &wanted)?;
        Ok(Answer::new("SubscribeServiceResponse", json!({"serviceInfo": info})))
    }

    fn query(&self, caller: &Caller, request: &NamingRequest) -> Result<Answer, Failure> {
        let clusters = if request.cluster.is_empty() { &request.clusters } else { &request.cluster };
        let wanted = Wanted::read(clusters, request.healthy_only)?;
        let info = self.instances(&caller.client, &service(request)?, &wanted)?;
        Ok(Answer::new("QueryServiceResponse", json!({"serviceInfo": info})))
    }

    fn list(&self, caller: &Caller, request: &NamingRequest) -> Result<Answer, Failure> {
        let scope = Scope::read(&request.namespace, &request.group_name)?;
        let page = self.services(&caller.client, &scope, request.page_no, request.page_size)?;
        Ok(Answer::new("ServiceListResponse", json!({"count": page.count, "serviceNames": page.names})))
    }
}

/// The client of a request, and its connection.
struct Caller {
    number: u64,
    /// Name of the connection.
    id: Arc<str>,
    client: AdapterClient,
}

fn service(request: &NamingRequest) -> Result<ServiceId, Failure> {
    ServiceId::read(&request.namespace, &request.group_name, &request.service_name)
}

fn unknown_action(action: &str) -> Failure {
    let shown: String = action.chars().take(63).collect();
    Failure::invalid(format!("Unsupported request type {shown:?}"))
}

/// The stream of a connection.
struct Pushes {
    core: Arc<Core>,
    connection: AdapterConnection,
    messages: Streaming<Payload>,
    open: Option<Open>,
    look: Interval,
    /// Number of the next push.
    next: u64,
}

/// An open connection, until it is dropped.
struct Open {
    core: Arc<Core>,
    connection: AdapterConnection,
    /// True if the client comes back with new credentials.
    is_expired: bool,
}

impl Drop for Open {
    /// A client whose connection ends is gone. At shutdown it connects elsewhere, and its leases are longer
    /// than that takes.
    fn drop(&mut self) {
        let comes_back = self.is_expired || self.connection.is_closing();
        self.core.connections.close(self.connection.number(), !comes_back);
    }
}

fn pushes(
    core: Arc<Core>,
    connection: AdapterConnection,
    messages: Streaming<Payload>,
) -> impl Stream<Item = Result<Payload, Status>> + Send {
    let pushes = Pushes { core, connection, messages, open: None, look: interval(LOOK), next: 0 };
    futures::stream::unfold(Some(pushes), |pushes| async {
        let mut pushes = pushes?;
        match pushes.next().await {
            Ok(Some(payload)) => Some((Ok(payload), Some(pushes))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl Pushes {
    /// Returns the next push; `None` at the end of the client's stream.
    async fn next(&mut self) -> Result<Option<Payload>, Status> {
        if self.open.is_none() {
            self.set_up().await?;
        }
        loop {
            tokio::select! {
                biased;
                () = self.connection.closed() => {
                    return Err(Status::unavailable("Pilotfish is shutting down: connect again"));
                }
                _ = self.look.tick() => self.check()?,
                message = self.messages.message() => match message? {
                    // Acknowledgements: the connection delivers pushes in order, or ends.
                    Some(_) => {}
                    None => return Ok(None),
                },
                push = self.core.connections.push(self.connection.number()) => {
                    self.check_client(&push.client)?;
                    let any = InstanceKey::new(push.key.namespace, push.key.service, "");
                    if push.client.may_read(&any) {
                        return self.payload(&push.service, &push.wanted).map(Some);
                    }
                }
            }
        }
    }

    /// Fails once the client is not authenticated any more, or not yet after some time.
    fn check(&mut self) -> Result<(), Status> {
        let number = self.connection.number();
        if self.core.connections.is_unproved(number, Instant::now()) {
            return Err(Status::unauthenticated("no message proved an identity in time"));
        }
        match self.core.connections.client(number) {
            Some(client) => self.check_client(&client),
            None => Ok(()),
        }
    }

    fn check_client(&mut self, client: &AdapterClient) -> Result<(), Status> {
        let Err(failure) = client.check_current() else { return Ok(()) };
        if let Some(open) = &mut self.open {
            open.is_expired = true;
        }
        Err(match failure.http_status() {
            401 => Status::unauthenticated(failure.message()),
            _ => Status::unavailable(failure.message()),
        })
    }

    /// Reads the first message.
    async fn set_up(&mut self) -> Result<(), Status> {
        let first = timeout(SETUP_TIMEOUT, self.messages.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no message on the stream"))??;
        let Some(first) = first.filter(|first| first.kind() == "ConnectionSetupRequest") else {
            return Err(Status::failed_precondition("the first message is no ConnectionSetupRequest"));
        };
        let number = self.connection.number();
        if !self.core.connections.open(number, name(self.core.registrar.epoch(), number)) {
            return Err(Status::already_exists("the connection has a stream"));
        }
        let (core, connection) = (Arc::clone(&self.core), self.connection.clone());
        self.open = Some(Open { core, connection, is_expired: false });
        // A certificate proves the identity already. Tokens come with later messages.
        if let Ok(client) = self.connection.authenticate(first.token()).await {
            let used = self.core.connections.used_by(number, &client);
            used.map_err(|failure| Status::resource_exhausted(failure.message()))?;
        }
        Ok(())
    }

    fn payload(&mut self, service: &ServiceId, wanted: &Wanted) -> Result<Payload, Status> {
        self.next += 1;
        let push = NotifySubscriber {
            request_id: self.next.to_string(),
            namespace: service.scope.namespace.to_string(),
            group_name: service.scope.group.to_string(),
            service_name: service.name.to_string(),
            service_info: self.core.info(service, wanted),
            module: "naming",
        };
        Payload::new("NotifySubscriberRequest", &push, None)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
