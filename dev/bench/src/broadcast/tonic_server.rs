//! Broadcast server on tonic: its HTTP/2 and its routing, with shared frames as body. tonic's own encoder
//! would keep a buffer of the size of the largest message for every stream.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::{Buf, Bytes};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::transport::server::TcpIncoming;
use tonic::{Status, Streaming};

use super::hub::{Hub, Peer};
use crate::messages::DELTA_PATH;

/// Maximum number of queued responses of one stream.
const QUEUE: usize = 16;

pub(super) async fn serve(listener: TcpListener, hub: Arc<Hub>) -> Result<()> {
    // Without TCP_NODELAY the first exchanges of each stream wait for delayed ACKs.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder().add_service(Ads(hub)).serve_with_incoming(incoming).await?;
    Ok(())
}

#[derive(Clone)]
struct Ads(Arc<Hub>);

impl tonic::server::NamedService for Ads {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl tower::Service<http::Request<Body>> for Ads {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let hub = Arc::clone(&self.0);
        Box::pin(async move { Ok(respond(hub, request)) })
    }
}

fn respond(hub: Arc<Hub>, request: http::Request<Body>) -> http::Response<Body> {
    if request.uri().path() != DELTA_PATH {
        return Status::unimplemented("delta ADS only").into_http();
    }
    let requests = Streaming::new_request(Messages, request.into_body(), None, Some(usize::MAX));
    let (answers, queue) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        if let Err(status) = exchange(&hub, requests, &answers).await {
            // Fails if the stream is gone.
            drop(answers.send(Err(status)).await);
        }
    });
    let frames = ReceiverStream::new(queue).map(|answer| {
        Ok::<_, Infallible>(match answer {
            Ok(bytes) => Frame::data(bytes),
            Err(status) => Frame::trailers(status.into_http::<()>().into_parts().0.headers),
        })
    });
    let mut response = http::Response::new(Body::new(StreamBody::new(frames)));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    response
}

async fn exchange(
    hub: &Hub,
    mut requests: Streaming<Bytes>,
    answers: &mpsc::Sender<Result<Bytes, Status>>,
) -> Result<(), Status> {
    let mut peer = Peer::default();
    let mut changed = hub.changed.subscribe();
    let gone = |_| Status::cancelled("the stream is gone");
    loop {
        tokio::select! {
            message = requests.message() => {
                let Some(message) = message? else { return Ok(()) };
                if let Some(answer) = hub.request(&mut peer, &message) {
                    answers.send(Ok(answer)).await.map_err(gone)?;
                }
            }
            alive = changed.changed() => {
                if alive.is_err() {
                    return Ok(());
                }
                let push = hub.push(&mut peer);
                if !push.is_empty() {
                    answers.send(Ok(push)).await.map_err(gone)?;
                }
            }
        }
    }
}

/// Codec that passes messages through.
struct Messages;

impl Decoder for Messages {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }
}
