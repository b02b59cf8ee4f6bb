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
