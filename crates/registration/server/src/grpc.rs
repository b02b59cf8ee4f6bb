//! The API as gRPC.

use crate::activity::Activity;
use crate::api::{Api, in_time};
use crate::failure::Failure;
use crate::identity::Who;
use futures::{Stream, StreamExt};
use pilotfish_registration_api::v1::registration_service_server::RegistrationService;
use pilotfish_registration_api::v1::{self, error::Code};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// Client of a request, as a request extension.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) who: Who,
    pub(crate) activity: Arc<Activity>,
}

/// Service implementation behind tonic's stubs.
#[derive(Clone)]
pub(crate) struct Grpc(pub(crate) Arc<Api>);

type Answer<T> = Result<Response<T>, Status>;
type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Returns the client, which authentication has added to every request.
fn client<T>(request: &Request<T>) -> Result<Client, Status> {
    let client = request.extensions().get::<Client>().cloned();
    client.ok_or_else(|| Failure::new(Code::Internal, "the client is not known").to_status())
}

impl Grpc {
    async fn unary<T>(&self, answer: impl Future<Output = Result<T, Failure>>) -> Answer<T> {
        let answer = in_time(self.0.limits.request_timeout, answer).await;
        answer.map(Response::new).map_err(|failure| failure.to_status())
    }
}

#[tonic::async_trait]
impl RegistrationService for Grpc {
    async fn register(&self, request: Request<v1::RegisterRequest>) -> Answer<v1::RegisterResponse> {
        let client = client(&request)?;
        self.unary(self.0.register(&client.who, request.into_inner())).await
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Answer<v1::RenewResponse> {
        let client = client(&request)?;
        self.unary(self.0.renew(&client.who, request.into_inner())).await
    }

    async fn deregister(&self, request: Request<v1::DeregisterRequest>) -> Answer<v1::DeregisterResponse> {
        let client = client(&request)?;
        self.unary(self.0.deregister(&client.who, request.into_inner())).await
    }

    async fn batch_register(
        &self,
        request: Request<v1::BatchRegisterRequest>,
    ) -> Answer<v1::BatchRegisterResponse> {
        let client = client(&request)?;
        self.unary(async { Ok(self.0.batch_register(&client.who, request.into_inner()).await) }).await
    }

    async fn batch_renew(&self, request: Request<v1::BatchRenewRequest>) -> Answer<v1::BatchRenewResponse> {
        let client = client(&request)?;
        self.unary(async { Ok(self.0.batch_renew(&client.who, request.into_inner()).await) }).await
    }

    async fn batch_deregister(
        &self,
        request: Request<v1::BatchDeregisterRequest>,
    ) -> Answer<v1::BatchDeregisterResponse> {
        let client = client(&request)?;
        self.unary(async { Ok(self.0.batch_deregister(&client.who, request.into_inner()).await) }).await
    }

    type HeartbeatStream = Responses<v1::HeartbeatResponse>;

    async fn heartbeat(
        &self,
        request: Request<Streaming<v1::HeartbeatRequest>>,
    ) -> Answer<Self::HeartbeatStream> {
        let Client { who, activity } = client(&request)?;
        let responses = self.0.heartbeat(&who, &activity, request.into_inner());
        let responses = responses.map_err(|failure| failure.to_status())?;
        Ok(Response::new(Box::pin(responses)))
    }

    async fn get_instance(
        &self,
        request: Request<v1::GetInstanceRequest>,
    ) -> Answer<v1::GetInstanceResponse> {
        let client = client(&request)?;
        self.unary(async { self.0.get(&client.who, request.get_ref()) }).await
    }

    async fn list_instances(
        &self,
        request: Request<v1::ListInstancesRequest>,
    ) -> Answer<v1::ListInstancesResponse> {
        let client = client(&request)?;
        self.unary(async { self.0.list(&client.who, request.get_ref()) }).await
    }

    type WatchStream = Responses<v1::WatchResponse>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let Client { who, activity } = client(&request)?;
        let responses = self.0.watch(&who, &activity, request.get_ref());
        let responses = responses.map_err(|failure| failure.to_status())?;
        Ok(Response::new(Box::pin(responses.map(|response| response.map_err(|failure| failure.to_status())))))
    }
}
