//! Unary gRPC methods for clients that proved an identity, beside ADS on the secure listener.

use super::grpc::{self, Decoder};
use super::port::Port;
use super::services::{self, Incoming};
use crate::error::StreamError;
use crate::limits::{Quota, QuotaGuard};
use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use http_body_util::{BodyExt, Full};
use pilotfish_grpc_framing::{PREFIX, Prefix};
use pilotfish_identity::{Authenticated, Authentication, Call, Proof};
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use tonic::body::Body;
use tonic::{Code, Status};

/// Encoded response of a method, or its error.
pub type UnaryAnswer<'a> = Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send + 'a>>;

/// A unary gRPC method of the secure listener. Its calls are limited for each identity.
pub trait UnaryMethod: Send + Sync + 'static {
    /// Path of its requests: `/SERVICE/METHOD`.
    fn path(&self) -> &'static str;

    /// Admits a request from this address. Called first, before the client is authenticated.
    ///
    /// # Errors
    /// When there are too many.
    fn admit(&self, client: IpAddr) -> Result<(), Status>;

    /// Records that a client proved no identity.
    fn unauthenticated(&self);

    /// Answers an encoded request. The future is dropped if the connection ends.
    fn call(&self, client: SocketAddr, proof: Proof, request: Bytes) -> UnaryAnswer<'_>;
}

/// A request for a method, whose client is not authenticated yet.
pub(super) struct UnaryCall {
    pub(super) method: Arc<dyn UnaryMethod>,
    pub(super) port: Arc<Port>,
    pub(super) peer: SocketAddr,
    /// Identities of the client's certificate.
    pub(super) certificate: Authenticated,
    /// Used if the certificate proves no identity.
    pub(super) authentication: Arc<Authentication>,
    pub(super) call: Call,
    /// Charge for the headers.
    pub(super) headers: QuotaGuard,
    pub(super) body: Incoming,
    /// Maximum length of the request.
    pub(super) bytes: usize,
    /// Quota of the connection for incomplete requests.
    pub(super) incomplete: Arc<Quota>,
}

impl UnaryCall {
    /// Answers the request and sends the response. A client that does not take it in time gives up its place.
    pub(super) async fn run(self, respond: SendResponse<Bytes>) {
        let (time, mut place) = (self.body.time(), None);
        let answer = self.answer(&mut place).await;
        // An elapsed timeout drops the stream, which resets it.
        let _ = tokio::time::timeout(time, send(answer, respond)).await;
    }

    /// Answers the request. The client's place among the calls of its identity is held until the response is
    /// sent.
    async fn answer(self, place: &mut Option<QuotaGuard>) -> Result<Bytes, Status> {
        let Self { method, port, peer, certificate, authentication, call, headers, body, bytes, incomplete } =
            self;
        method.admit(peer.ip())?;
        let proof = match certificate {
            Ok(proof) => proof,
            Err(reason) => match authentication.run(&reason, &call).await {
                Ok((_, proof)) => proof,
                Err(error) => {
                    authentication.log_refusal(call.address, &error);
                    method.unauthenticated();
                    let code = if error.is_verdict { Code::Unauthenticated } else { Code::Unavailable };
                    return Err(Status::new(code, error.to_string()));
                }
            },
        };
        drop((call, headers));
        let admitted = port.identity_call(&proof);
        *place = Some(admitted.map_err(|error| body.refuse(&error))?);
        let request = message(body, bytes, incomplete).await?;
        method.call(peer, proof, request).await
    }
}

/// Reads the only message of a request.
async fn message(body: Incoming, bytes: usize, incomplete: Arc<Quota>) -> Result<Bytes, Status> {
    let all = body.collect().await?.to_bytes();
    let mut messages = Vec::new();
    let mut each = |message: &[u8]| -> Result<(), StreamError> {
        messages.push(Bytes::copy_from_slice(message));
        Ok(())
    };
    let mut decoder = Decoder::new(&incomplete);
    let read = decoder.push(all, bytes, &mut each);
    read.map_err(|error| Status::new(error.code(), error.to_string()))?;
    match (messages.pop(), messages.is_empty() && decoder.incomplete().is_none()) {
        (Some(message), true) => Ok(message),
        _ => Err(Status::invalid_argument("the request is not exactly one message")),
    }
}

/// Sends the answer; sending fails if the client is gone.
async fn send(answer: Result<Bytes, Status>, mut respond: SendResponse<Bytes>) {
    let message = match answer {
        Ok(message) => message,
        Err(status) => {
            let _ = respond.send_response(grpc::only_status(status.code(), status.message()), true);
            return;
        }
    };
    let Ok(out) = respond.send_response(grpc::head(), false) else { return };
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_slice(&Prefix::uncompressed(message.len()));
    framed.put(message);
    let trailers = async { Some(Ok::<_, Infallible>(grpc::status(Code::Ok, ""))) };
    let _ = services::send(Body::new(Full::new(framed.freeze()).with_trailers(trailers)), out).await;
}
