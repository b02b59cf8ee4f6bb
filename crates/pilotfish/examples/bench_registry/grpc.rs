//! gRPC with messages as bytes: a bare client only looks for an address in them.

use anyhow::Result;
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use pilotfish_connect::{Connector, Server, grpc_channel};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// The largest message that is taken: everything of a product at once.
const LIMIT: usize = 256 << 20;

/// Messages are not read here.
#[derive(Clone, Copy, Default)]
pub(super) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// One connection to a server on loopback.
#[derive(Clone)]
pub(super) struct Connection(Channel);

impl Connection {
    pub(super) fn new(port: u16) -> Result<Self> {
        let server = Server { host: "127.0.0.1".into(), port };
        Ok(Self(grpc_channel(Connector::default(), &server)?))
    }

    /// Makes a unary call.
    pub(super) async fn call(&self, path: &'static str, message: Vec<u8>) -> Result<Bytes> {
        let mut client = tonic::client::Grpc::new(self.0.clone());
        client.ready().await?;
        let request = tonic::Request::new(message.into());
        Ok(client.unary(request, PathAndQuery::from_static(path), Raw).await?.into_inner())
    }

    /// A stream both ways; messages that are given before it is there wait.
    pub(super) async fn stream(
        &self,
        path: &'static str,
        messages: mpsc::UnboundedReceiver<Bytes>,
    ) -> Result<Streaming<Bytes>> {
        let mut client = tonic::client::Grpc::new(self.0.clone()).max_decoding_message_size(LIMIT);
        client.ready().await?;
        let request = tonic::Request::new(UnboundedReceiverStream::new(messages));
        Ok(client.streaming(request, PathAndQuery::from_static(path), Raw).await?.into_inner())
    }
}
