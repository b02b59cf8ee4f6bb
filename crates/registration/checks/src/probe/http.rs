//! A GET over HTTP/1.1. Only the head of the response is read; redirects are not followed.

use crate::Outcome;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Empty;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Maximum size of the response head in bytes, and of all that is read.
const MAX_HEAD: usize = 16 << 10;
const AGENT: HeaderValue = HeaderValue::from_static("pilotfish-check");

pub(super) async fn get(stream: TcpStream, target: SocketAddr, path: &str, host: &str) -> Outcome {
    let request = request(target, path, host).map_err(|error| Arc::from(format!("no request: {error}")))?;
    let begun = Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|error| broken(&error))?;
    let (mut connection, mut answer) = (pin!(connection), pin!(sender.send_request(request)));
    let mut ended = false;
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut answer => break answer,
            // The response or its error comes from the request's future.
            _ = &mut connection, if !ended => ended = true,
        }
    };
    let status = answer.map_err(|error| broken(&error))?.status();
    if (200..400).contains(&status.as_u16()) {
        Ok(())
    } else {
        Err(format!("status {}", status.as_u16()).into())
    }
}

fn request(target: SocketAddr, path: &str, host: &str) -> Result<Request<Empty<Bytes>>, http::Error> {
    let address;
    let host = if host.is_empty() {
        address = target.to_string();
        &address
    } else {
        host
    };
    Request::get(path)
        .header(HOST, host)
        .header(USER_AGENT, AGENT)
        .header(CONNECTION, HeaderValue::from_static("close"))
        .body(Empty::new())
}

/// Describes an error without any data from the server.
fn broken(error: &hyper::Error) -> Arc<str> {
    if error.is_parse_too_large() {
        format!("the head of the answer has more than {MAX_HEAD} bytes").into()
    } else if error.is_parse() {
        "the answer is no HTTP".into()
    } else {
        "the connection ended before an answer".into()
    }
}
