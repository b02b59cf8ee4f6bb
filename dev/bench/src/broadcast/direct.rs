//! Broadcast server on the h2 crate alone: one task for each connection, which has the stream and all of its
//! state.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use anyhow::Result;
use bytes::{Buf, Bytes, BytesMut};
use h2::server::Connection;
use h2::{RecvStream, SendStream};
use tokio::net::{TcpListener, TcpStream};

use super::hub::{Hub, Peer};

const WINDOW: u32 = 1 << 20;

pub(super) async fn serve(listener: TcpListener, hub: Arc<Hub>) -> Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        let hub = Arc::clone(&hub);
        // Errors of a stream appear on its client.
        tokio::spawn(async move { drop(serve_connection(socket, hub).await) });
    }
}

async fn serve_connection(socket: TcpStream, hub: Arc<Hub>) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut connection = h2::server::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(1)
        .handshake::<_, Bytes>(socket)
        .await?;
    let Some(opened) = connection.accept().await else { return Ok(()) };
    let (request, mut respond) = opened?;
    let mut response = http::Response::new(());
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    let answers = respond.send_response(response, false)?;
    let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    let quiet = Arc::new(Quiet {
        task: task.clone(),
        polling: AtomicBool::new(false),
        again: AtomicBool::new(false),
    });
    let slot = hub.wakers.join(task);
    let mut stream = Stream {
        connection,
        requests: request.into_body(),
        answers,
        part: BytesMut::new(),
        peer: Peer::default(),
        hub,
        waker: Waker::from(Arc::clone(&quiet)),
        quiet,
    };
    let ended = poll_fn(|_| stream.poll()).await;
    stream.hub.wakers.leave(slot);
    Ok(ended?)
}

struct Stream {
    connection: Connection<TcpStream, Bytes>,
    requests: RecvStream,
    answers: SendStream<Bytes>,
    /// Received part of an incomplete request.
    part: BytesMut,
    peer: Peer,
    hub: Arc<Hub>,
    quiet: Arc<Quiet>,
    waker: Waker,
}

impl Stream {
    fn poll(&mut self) -> Poll<io::Result<()>> {
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        self.quiet.polling.store(true, Ordering::SeqCst);
        loop {
            let push = self.hub.push(&mut self.peer);
            self.send(push)?;
            self.quiet.again.store(false, Ordering::SeqCst);
            match self.connection.poll_accept(&mut context) {
                // Another stream is refused by dropping it.
                Poll::Ready(Some(Ok(_))) => self.quiet.again.store(true, Ordering::SeqCst),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {}
            }
            if self.read()? {
                return Poll::Ready(Ok(()));
            }
            if self.quiet.again.load(Ordering::SeqCst) {
                continue;
            }
            self.quiet.polling.store(false, Ordering::SeqCst);
            // A wake-up may have come since the check above.
            if !self.quiet.again.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            self.quiet.polling.store(true, Ordering::SeqCst);
        }
    }

    /// Handles received requests; true at the end of the stream. Data arrives only during polls of the
    /// connection, so no separate wake-up is needed.
    fn read(&mut self) -> io::Result<bool> {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(data) = self.requests.poll_data(&mut context) {
            let Some(data) = data else { return Ok(true) };
            let data = data.map_err(io::Error::other)?;
            let _ = self.requests.flow_control().release_capacity(data.len());
            self.part.extend_from_slice(&data);
            while let Some(request) = take_message(&mut self.part) {
                if let Some(answer) = self.hub.request(&mut self.peer, &request) {
                    self.send(answer)?;
                }
            }
        }
        Ok(false)
    }

    fn send(&mut self, frame: Bytes) -> io::Result<()> {
        if frame.is_empty() {
            return Ok(());
        }
        self.answers.send_data(frame, false).map_err(io::Error::other)
    }
}

/// A complete gRPC message from the front of the buffer.
fn take_message(part: &mut BytesMut) -> Option<BytesMut> {
    let (header, rest) = part.split_first_chunk::<5>()?;
    let [_, length @ ..] = *header;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    if rest.len() < length {
        return None;
    }
    part.advance(5);
    Some(part.split_to(length))
}

/// Waker that does not wake its task while that is being polled, but makes the poll repeat. h2 wakes the
/// connection for every sent piece, which would cause a second poll.
struct Quiet {
    task: Waker,
    polling: AtomicBool,
    again: AtomicBool,
}

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            self.task.wake_by_ref();
        }
    }
}
