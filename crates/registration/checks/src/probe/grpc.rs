//! `grpc.health.v1.Health/Check`, over HTTP/2 in clear text.

use crate::Outcome;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Error};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// Maximum size of response headers in bytes.
const MAX_HEADERS: u32 = 16 << 10;
/// Maximum size of the response message in bytes: it has one enum field.
const MAX_MESSAGE: usize = 1 << 10;

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// Serving status of a service, as in `HealthCheckResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

pub(super) async fn check(stream: TcpStream, target: SocketAddr, service: &str) -> Outcome {
    let channel = channel(stream, target).await.map_err(|_| Arc::from("the server speaks no HTTP/2"))?;
    let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
    grpc.ready().await.map_err(|_| Arc::from("the connection ended before an answer"))?;
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let answer = grpc.unary(request, path, codec).await.map_err(|status| refused(&status))?;
    match ServingStatus::try_from(answer.into_inner().status) {
        Ok(ServingStatus::Serving) => Ok(()),
        Ok(ServingStatus::NotServing) => Err("NOT_SERVING".into()),
        Ok(ServingStatus::ServiceUnknown) => Err("SERVICE_UNKNOWN".into()),
        Ok(ServingStatus::Unknown) | Err(_) => Err("UNKNOWN".into()),
    }
}

/// Returns a channel over this connection alone.
async fn channel(stream: TcpStream, target: SocketAddr) -> Result<Channel, Error> {
    let mut stream = Some(stream);
    let connector = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async move { stream.map(TokioIo::new) }
    });
    Endpoint::from_shared(format!("http://{target}"))?
        .user_agent("pilotfish-check")?
        .http2_max_header_list_size(MAX_HEADERS)
        .connect_with_connector(connector)
        .await
}

/// Describes a gRPC status without its message, which the server controls.
fn refused(status: &Status) -> Arc<str> {
    match status.code() {
        Code::NotFound => "the server does not know the service".into(),
        Code::Unimplemented => "the server has no grpc.health.v1.Health".into(),
        code => format!("gRPC status {}", code as i32).into(),
    }
}
