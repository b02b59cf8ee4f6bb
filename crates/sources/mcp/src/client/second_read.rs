//! Second read of data that the guard holds back: a stream of its own on the same connection, so that the
//! updates of all other kinds continue.

use super::stream::{Answered, ClientStream};
use super::transport::{MessageStream, TransportError};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use tokio::time::{Instant, timeout_at};

type Opening = Pin<Box<dyn Future<Output = Result<MessageStream, TransportError>> + Send>>;

/// A second read in progress. It ends after the first response of each kind.
pub(crate) struct SecondRead {
    pub(crate) client: ClientStream,
    messages: Messages,
    deadline: Instant,
}

enum Messages {
    Opening(Opening),
    Open(MessageStream),
}

impl SecondRead {
    pub(crate) fn new(
        client: ClientStream,
        opening: impl Future<Output = Result<MessageStream, TransportError>> + Send + 'static,
        deadline: Instant,
    ) -> Self {
        Self { client, messages: Messages::Opening(Box::pin(opening)), deadline }
    }

    /// Receives the next message; pending for ever without a second read. `None` if the read failed, or was
    /// not over in time. Can be dropped at any await.
    pub(crate) async fn next(read: &mut Option<Self>) -> Option<Bytes> {
        match read {
            None => std::future::pending().await,
            Some(read) => timeout_at(read.deadline, read.messages.next()).await.ok()?.ok(),
        }
    }

    /// Sends the reply to a response. Returns true if the read continues.
    pub(crate) async fn reply(&mut self, answered: &Answered) -> Result<bool, TransportError> {
        if let Messages::Open(messages) = &mut self.messages {
            messages.send(&answered.reply).await?;
        }
        Ok(!self.client.is_answered())
    }
}

impl Messages {
    async fn next(&mut self) -> Result<Bytes, TransportError> {
        loop {
            match self {
                Self::Open(messages) => return messages.next().await,
                Self::Opening(opening) => *self = Self::Open(opening.await?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::McpKind;
    use crate::resource::{Metadata, Resource, json_to_body};
    use bytes::{BufMut, Bytes, BytesMut};
    use pilotfish_config::{SourceBatch, SourceEvent};
    use pilotfish_model::Kind;
    use pilotfish_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
    use pilotfish_registry::testing::live_settings;
    use pilotfish_registry::{BatchSender, ObjectSettings, SourceReport};
    use prost::Message;
    use prost_types::Any;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    /// Lists of a server by kind.
    type Lists = Arc<Mutex<BTreeMap<Kind, Vec<Any>>>>;
    /// Output of the first stream of a connection.
    type First = mpsc::UnboundedReceiver<h2::SendStream<Bytes>>;

    fn entry(number: usize) -> Any {
        let spec = json!({"hosts": [format!("h{number}.example")], "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]});
        resource(Kind::ServiceEntry, &format!("n/{number}"), &spec)
    }

    fn resource(kind: Kind, name: &str, spec: &serde_json::Value) -> Any {
        let metadata = Metadata { name: name.into(), ..Metadata::default() };
        let body = json_to_body(McpKind::of(kind).unwrap(), spec).unwrap();
        Resource { metadata: Some(metadata), body: Some(body) }.into_any()
    }

    fn push(out: &mut h2::SendStream<Bytes>, lists: &Lists, entry: &McpKind) {
        let resources = lists.lock().unwrap().get(&entry.kind).cloned().unwrap_or_default();
        let type_url = entry.type_url(false);
        let response = DiscoveryResponse { type_url, resources, nonce: "1".into(), ..Default::default() };
        let bytes = response.encode_to_vec();
        let mut message = BytesMut::new();
        message.put_u8(0);
        message.put_u32(u32::try_from(bytes.len()).unwrap());
        message.extend_from_slice(&bytes);
        out.send_data(message.freeze(), false).unwrap();
    }

    /// Answers first requests of each kind with its list. The first stream of each connection is handed out.
    async fn serve(
        listener: TcpListener,
        lists: Lists,
        firsts: mpsc::UnboundedSender<h2::SendStream<Bytes>>,
    ) {
        while let Ok((io, _)) = listener.accept().await {
            let (lists, firsts) = (lists.clone(), firsts.clone());
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(io).await.unwrap();
                let mut count = 0;
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    count += 1;
                    let out = respond.send_response(http::Response::new(()), false).unwrap();
                    let firsts = (count == 1).then(|| firsts.clone());
                    tokio::spawn(stream(request.into_body(), out, lists.clone(), firsts));
                }
            });
        }
    }

    async fn stream(
        mut requests: h2::RecvStream,
        mut out: h2::SendStream<Bytes>,
        lists: Lists,
        firsts: Option<mpsc::UnboundedSender<h2::SendStream<Bytes>>>,
    ) {
        let mut partial = BytesMut::new();
        let mut answered = 0;
        while let Some(Ok(chunk)) = requests.data().await {
            partial.extend_from_slice(&chunk);
            while let Some(length) =
                partial.get(1..5).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()))
            {
                let end = 5 + usize::try_from(length).unwrap();
                if partial.len() < end {
                    break;
                }
                let message = partial.split_to(end);
                let request = DiscoveryRequest::decode(message.get(5..).unwrap()).unwrap();
                if let Some(entry) =
                    McpKind::of_type_url(&request.type_url).filter(|_| request.response_nonce.is_empty())
                {
                    push(&mut out, &lists, entry);
                    answered += 1;
                }
            }
            if let Some(firsts) = firsts.as_ref().filter(|_| answered == 2) {
                firsts.send(out).unwrap();
                // The stream stays open.
                while let Some(Ok(_)) = requests.data().await {}
                return;
            }
        }
    }

    /// Waits for the application of an object of that name, or of its deletion.
    async fn until(batches: &mut mpsc::UnboundedReceiver<SourceBatch>, name: &str, deleted: bool) {
        loop {
            let batch = batches.recv().await.unwrap();
            let is_it = |event: &SourceEvent| match event {
                SourceEvent::Apply(object) => !deleted && *object.key().name == *name,
                SourceEvent::Delete(key) => deleted && *key.name == *name,
                _ => false,
            };
            if batch.events.iter().any(is_it) {
                return;
            }
        }
    }

    #[tokio::test]
    async fn second_read_of_a_kind_leaves_the_stream_of_the_others_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("xds://{}", listener.local_addr().unwrap());
        let lists = Lists::default();
        lists.lock().unwrap().insert(Kind::ServiceEntry, (0..6).map(entry).collect());
        let (firsts, mut first): (_, First) = mpsc::unbounded_channel();
        let server = tokio::spawn(serve(listener, lists.clone(), firsts));
        let options = [("kinds", "ServiceEntry,Sidecar"), ("protocol", "sotw")];
        let live = live_settings("mcp", &address, &options);
        let source = super::super::open(ObjectSettings { name: "mcp".into(), live, checks: vec![] }).unwrap();
        let (sender, mut batches) = mpsc::unbounded_channel();
        let report = SourceReport::default();
        let deliver = move |batch| -> pilotfish_registry::Delivery {
            let sent = sender.send(batch).is_ok();
            Box::pin(std::future::ready(sent))
        };
        let client = tokio::spawn(source.run(BatchSender::new(report.clone(), deliver)));
        until(&mut batches, "5", false).await;
        let mut out = first.recv().await.unwrap();

        // A list without any is held; another kind is updated all the same.
        lists.lock().unwrap().insert(Kind::ServiceEntry, Vec::new());
        push(&mut out, &lists, McpKind::of(Kind::ServiceEntry).unwrap());
        let sidecar =
            |name: &str| vec![resource(Kind::Sidecar, name, &json!({"egress": [{"hosts": ["./*"]}]}))];
        lists.lock().unwrap().insert(Kind::Sidecar, sidecar("n/a"));
        push(&mut out, &lists, McpKind::of(Kind::Sidecar).unwrap());
        until(&mut batches, "a", false).await;
        assert_eq!(report.losses().accept(), 1, "the loss is held");
        until(&mut batches, "5", true).await;

        // The first stream still works, and there was no other connection.
        lists.lock().unwrap().insert(Kind::Sidecar, sidecar("n/b"));
        push(&mut out, &lists, McpKind::of(Kind::Sidecar).unwrap());
        until(&mut batches, "b", false).await;
        let state = report.state();
        assert_eq!((state.sessions, state.failures), (1, 0));
        assert!(state.held.is_none() && first.try_recv().is_err());
        client.abort();
        server.abort();
    }
}
