//! Discover: the clients' view over gRPC.

use super::codes::info;
use super::element::{Element, INSTANCE_FIELDS, SERVICE_FIELDS, sha1, shaped, text};
use super::grpc;
use super::http::Answer;
use super::server::Server;
use super::store::Store;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic_prost::ProstCodec;

/// Data of Discover: the store as of the last tick.
#[derive(Default)]
pub(super) struct Published {
    /// Services with their data, in order, by namespace.
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, Listed>>,
}

pub(super) struct Listed {
    pub(super) service: grpc::Service,
    /// [rec grpc-discover] SHA-1 of its instances' revisions: that of the empty string for an empty service.
    pub(super) revision: String,
    pub(super) instances: Vec<grpc::Instance>,
    /// Instances in the format of Discover over HTTP.
    pub(super) shown: Vec<Value>,
}

impl Published {
    pub(super) fn of(store: &Store) -> Self {
        let mut this = Self::default();
        for ((namespace, name), service) in &store.services {
            let of_service: Vec<&Element> = store.instances_of(namespace, name).collect();
            let revisions: String =
                of_service.iter().filter_map(|instance| text(instance, "revision")).collect();
            let listed = Listed {
                service: grpc::service(service),
                revision: sha1(&revisions),
                shown: of_service.iter().map(|instance| shown(instance)).collect(),
                instances: of_service.into_iter().map(grpc::instance).collect(),
            };
            this.namespaces.entry(namespace.clone()).or_default().insert(name.clone(), listed);
        }
        // [rec aliases] An alias has the data of its service, under its own name.
        for ((namespace, name), alias) in &store.aliases {
            let part = |field| text(alias, field).unwrap_or_default();
            let of =
                this.namespaces.get(part("namespace")).and_then(|services| services.get(part("service")));
            let Some(of) = of else { continue };
            let service = grpc::Service {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                ..of.service.clone()
            };
            let (revision, instances) = (of.revision.clone(), of.instances.clone());
            let listed = Listed { service, revision, instances, shown: of.shown.clone() };
            this.namespaces.entry(namespace.clone()).or_default().insert(name.clone(), listed);
        }
        this
    }

    pub(super) fn answer(&self, ask: &grpc::DiscoverRequest) -> grpc::DiscoverResponse {
        let asked = ask.service.clone().unwrap_or_default();
        match ask.r#type {
            grpc::INSTANCE => self.instances(asked),
            grpc::SERVICES => self.services(asked),
            // [rec grpc-discover] All others are refused with this type, except for rules, which are not
            // simulated.
            _ => grpc::answer(400_004, 3, asked),
        }
    }

    /// [rec client-api] Discover over HTTP.
    pub(super) fn answer_http(&self, given: &Element) -> Option<Answer> {
        let kind = match given.get("type")? {
            Value::String(name) => match name.as_str() {
                "INSTANCE" => grpc::INSTANCE,
                "SERVICES" => grpc::SERVICES,
                _ => 0,
            },
            number => i32::try_from(number.as_i64()?).ok()?,
        };
        let about = given.get("service")?.as_object()?;
        let part = |name| text(about, name).map(str::to_owned);
        let service = grpc::Service {
            name: part("name"),
            namespace: part("namespace"),
            revision: part("revision"),
            ..grpc::Service::default()
        };
        let answer = self.answer(&grpc::DiscoverRequest { r#type: kind, service: Some(service) });
        let code = answer.code.unwrap_or_default();
        let about = answer.service.unwrap_or_default();
        let of = |part: &Option<String>| part.clone().unwrap_or_default();
        let listed = self.namespaces.get(&of(&about.namespace)).and_then(|all| all.get(&of(&about.name)));
        let listed = listed.filter(|_| code == 200_000 && answer.r#type == grpc::INSTANCE);
        let kind = match answer.r#type {
            grpc::INSTANCE => "INSTANCE",
            grpc::SERVICES => "SERVICES",
            _ => "ROUTING",
        };
        let mut body = json!({
            "code": code, "info": answer.info, "type": kind, "service": service_json(&about),
            "instances": listed.map(|listed| listed.shown.clone()).unwrap_or_default(),
            "services": answer.services.iter().map(service_json).collect::<Vec<_>>(),
        });
        for name in ["routing", "rateLimit", "circuitBreaker", "faultDetector", "aliasFor"] {
            body[name] = Value::Null;
        }
        for name in ["namespaces", "lanes", "customRouteRules", "nearbyRouteRules", "losslessRules"] {
            body[name] = json!([]);
        }
        Some(Answer::coded(code, &body))
    }

    pub(super) fn instances(&self, mut asked: grpc::Service) -> grpc::DiscoverResponse {
        // [rec grpc-discover] A missing namespace means `default`.
        let namespace =
            asked.namespace.take().filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
        asked.namespace = Some(namespace.clone());
        let name = asked.name.clone().unwrap_or_default();
        if name.is_empty() {
            return grpc::answer(400_120, grpc::INSTANCE, asked);
        }
        let Some(listed) = self.namespaces.get(&namespace).and_then(|services| services.get(&name)) else {
            return grpc::answer(400_202, grpc::INSTANCE, asked);
        };
        if asked.revision.as_ref() == Some(&listed.revision) {
            return grpc::answer(200_001, grpc::INSTANCE, asked);
        }
        let service = grpc::Service {
            revision: Some(listed.revision.clone()),
            metadata: HashMap::new(),
            ..listed.service.clone()
        };
        let instances = listed.instances.clone();
        grpc::DiscoverResponse { instances, ..grpc::answer(200_000, grpc::INSTANCE, service) }
    }

    pub(super) fn services(&self, asked: grpc::Service) -> grpc::DiscoverResponse {
        let namespace = asked.namespace.clone().unwrap_or_default();
        // [rec grpc-discover] An unknown namespace has no revision, and is no error.
        let Some(services) = self.namespaces.get(&namespace) else {
            return grpc::answer(200_000, grpc::SERVICES, asked);
        };
        let all: String = services.values().filter_map(|listed| listed.service.revision.clone()).collect();
        let revision = sha1(&all);
        if asked.revision.as_ref() == Some(&revision) {
            return grpc::answer(200_001, grpc::SERVICES, asked);
        }
        let list = services.values().map(|listed| grpc::Service {
            name: listed.service.name.clone(),
            namespace: listed.service.namespace.clone(),
            metadata: listed.service.metadata.clone(),
            ..grpc::Service::default()
        });
        let about = grpc::Service {
            name: Some(String::new()),
            namespace: asked.namespace,
            revision: Some(revision),
            ..grpc::Service::default()
        };
        grpc::DiscoverResponse { services: list.collect(), ..grpc::answer(200_000, grpc::SERVICES, about) }
    }
}

/// An instance with the metadata that Discover adds.
fn shown(instance: &Element) -> Value {
    let mut shown = instance.clone();
    shown.insert("metadata".to_owned(), json!(grpc::instance(instance).metadata));
    if let Some(location) = instance.get("location").and_then(Value::as_object) {
        shown.insert("location".to_owned(), shaped(&["region", "zone", "campus"], location));
    }
    shaped(INSTANCE_FIELDS, &shown)
}

fn service_json(service: &grpc::Service) -> Value {
    let set = [
        ("name", json!(service.name)),
        ("namespace", json!(service.namespace)),
        ("metadata", json!(service.metadata)),
        ("owners", json!(service.owners)),
        ("revision", json!(service.revision)),
        ("id", json!(service.id)),
    ];
    shaped(SERVICE_FIELDS, &set.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

pub(super) async fn serve_grpc(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    while let Ok((io, _)) = listener.accept().await {
        let server = server.clone();
        let answer = move |request: Request<Incoming>| {
            let server = server.clone();
            async move {
                let is_discover = request.uri().path() == "/v1.PolarisGRPC/Discover";
                let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                let token = request.headers().get("x-polaris-token").and_then(|value| value.to_str().ok());
                let allowed = !server.options.clients_need_token || server.allows(token);
                Ok::<_, Infallible>(if is_discover {
                    grpc.streaming(Discover { server, allowed }, request).await
                } else {
                    tonic::Status::unimplemented("unknown method").into_http()
                })
            }
        };
        let connection = http2::Builder::new(TokioExecutor::new());
        connections.spawn(connection.serve_connection(TokioIo::new(io), service_fn(answer)));
        while connections.try_join_next().is_some() {}
    }
}

pub(super) struct Discover {
    pub(super) server: Arc<Server>,
    pub(super) allowed: bool,
}

pub(super) type Answers = ReceiverStream<Result<grpc::DiscoverResponse, tonic::Status>>;

impl tonic::server::StreamingService<grpc::DiscoverRequest> for Discover {
    type Response = grpc::DiscoverResponse;
    type ResponseStream = Answers;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Answers>, tonic::Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<tonic::Streaming<grpc::DiscoverRequest>>) -> Self::Future {
        let (server, allowed) = (self.server.clone(), self.allowed);
        let mut asks = request.into_inner();
        let (sender, answers) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok(Some(ask)) = asks.message().await {
                // [rec grpc-discover] Without a service the stream ends, with status 0.
                if ask.service.is_none() {
                    return;
                }
                let answer = if allowed {
                    server.published().answer(&ask)
                } else {
                    // [rec auth-grpc] A refusal has neither type nor service.
                    grpc::DiscoverResponse {
                        code: Some(401_001),
                        info: Some(info(401_001).to_owned()),
                        ..grpc::DiscoverResponse::default()
                    }
                };
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(std::future::ready(Ok(tonic::Response::new(ReceiverStream::new(answers)))))
    }
}
