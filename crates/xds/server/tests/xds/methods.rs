//! Unary methods of the secure listener: authentication, limits, and errors.

use crate::secure::{Running, WEB, soon, start_with, status};
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::HeaderMap;
use parking_lot::Mutex;
use pilotfish_identity::Proof;
use pilotfish_xds::{ServerConfig, UnaryAnswer, UnaryMethod};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::Status;

const PATH: &str = "/test.Echo/Echo";

/// Answers with the client's identity and the request, and records its calls.
#[derive(Default)]
struct Echo {
    events: Mutex<Vec<&'static str>>,
    /// Requests are not admitted.
    closed: bool,
}

impl UnaryMethod for Echo {
    fn path(&self) -> &'static str {
        PATH
    }

    fn admit(&self, client: IpAddr) -> Result<(), Status> {
        assert!(client.is_loopback());
        self.events.lock().push("admit");
        if self.closed { Err(Status::resource_exhausted("closed")) } else { Ok(()) }
    }

    fn unauthenticated(&self) {
        self.events.lock().push("unauthenticated");
    }

    fn call(&self, client: SocketAddr, proof: Proof, request: Bytes) -> UnaryAnswer<'_> {
        assert!(client.ip().is_loopback());
        self.events.lock().push("call");
        Box::pin(async move {
            match request.as_ref() {
                b"bad" => Err(Status::invalid_argument("a bad request")),
                _ => Ok([proof.identities.concat().as_bytes(), b" ", &request].concat().into()),
            }
        })
    }
}

const OTHER: &str = "spiffe://cluster.local/ns/ns/sa/other";

fn server(echo: Echo) -> (Running, Arc<Echo>) {
    let echo = Arc::new(echo);
    (start_with(ServerConfig::default(), vec![echo.clone()]), echo)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

/// Opens a call with the beginning of a request.
async fn begin(
    client: &SendRequest<Bytes>,
    path: &str,
    body: Vec<u8>,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut client = soon(client.clone().ready()).await.unwrap();
    let request =
        http::Request::post(format!("https://xds{path}")).header("content-type", "application/grpc");
    let (response, mut out) = client.send_request(request.body(()).unwrap(), false).unwrap();
    out.send_data(body.into(), false).unwrap();
    (response, out)
}

/// Calls until the status is this one, and returns its message.
async fn until(client: &SendRequest<Bytes>, code: &str) -> String {
    let calls = async {
        loop {
            let (_, headers) = call(client, "", framed(b"hello")).await;
            let (found, message) = status(&headers);
            if found == code {
                return message.to_owned();
            }
        }
    };
    soon(calls).await
}

/// Sends a request body; returns the message of the response and the headers with its status.
async fn call(client: &SendRequest<Bytes>, password: &str, body: Vec<u8>) -> (Vec<u8>, HeaderMap) {
    let mut client = soon(client.clone().ready()).await.unwrap();
    let request = http::Request::post(format!("https://xds{PATH}"))
        .header("content-type", "application/grpc")
        .header("authorization", password);
    let (response, mut out) = client.send_request(request.body(()).unwrap(), false).unwrap();
    out.send_data(body.into(), true).unwrap();
    let (head, mut body) = soon(response).await.unwrap().into_parts();
    let mut message = Vec::new();
    while let Some(data) = soon(body.data()).await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        message.extend(data);
    }
    let trailers = soon(body.trailers()).await.unwrap();
    (message, trailers.unwrap_or(head.headers))
}

#[tokio::test]
async fn a_method_is_called_with_the_proven_identity() {
    let (server, echo) = server(Echo::default());
    let expected = framed(format!("{WEB} hello").as_bytes());
    for (identity, password) in [(Some(WEB), ""), (None, "ok")] {
        let client = server.client(identity).await;
        let (message, headers) = call(&client, password, framed(b"hello")).await;
        assert_eq!((message, status(&headers).0), (expected.clone(), "0"));
        let (message, headers) = call(&client, password, framed(b"bad")).await;
        assert_eq!((message.as_slice(), status(&headers)), (&b""[..], ("3", "a bad request")));
    }
    assert_eq!(*echo.events.lock(), ["admit", "call"].repeat(4));
}

#[tokio::test]
async fn a_client_without_an_identity_is_refused_before_the_method_is_called() {
    let (server, echo) = server(Echo::default());
    let client = server.client(None).await;
    let (_, headers) = call(&client, "wrong", framed(b"hello")).await;
    let (code, reason) = status(&headers);
    assert_eq!(code, "16");
    assert!(reason.ends_with("password: it is wrong"), "{reason}");
    assert_eq!(*echo.events.lock(), ["admit", "unauthenticated"]);

    let io = TcpStream::connect(server.address).await.unwrap();
    let (plain, connection) = soon(h2::client::handshake(io)).await.unwrap();
    tokio::spawn(connection);
    let (_, headers) = call(&plain, "ok", framed(b"hello")).await;
    assert_eq!(status(&headers), ("12", "no such method: /test.Echo/Echo"), "plaintext");
}

#[tokio::test]
async fn a_request_that_is_not_admitted_is_not_authenticated() {
    let (server, echo) = server(Echo { closed: true, ..Echo::default() });
    let client = server.client(None).await;
    // Its authentication would never end.
    let (_, headers) = call(&client, "never", framed(b"hello")).await;
    assert_eq!(status(&headers), ("8", "closed"));
    assert_eq!(*echo.events.lock(), ["admit"]);
}

#[tokio::test]
async fn a_request_is_one_message_within_the_limit() {
    let (server, echo) = server(Echo::default());
    let client = server.client(Some(WEB)).await;
    let cut = framed(b"hello")[..7].to_vec();
    let compressed = [&[1], &framed(b"hello")[1..]].concat();
    for (body, code) in [
        (vec![], "3"),
        (framed(b"a").repeat(2), "3"),
        (cut, "3"),
        (compressed, "12"),
        (framed(&vec![0; 20_000]), "8"),
    ] {
        let (_, headers) = call(&client, "", body).await;
        assert_eq!(status(&headers).0, code, "{headers:?}");
    }
    assert!(!echo.events.lock().contains(&"call"));
}

#[tokio::test]
async fn requests_of_one_identity_that_do_not_end_leave_room_for_others() {
    let config = ServerConfig { identity_calls: 2, all_calls: 3, ..ServerConfig::default() };
    let server = start_with(config, vec![Arc::new(Echo::default())]);
    let (web, other) = (server.client(Some(WEB)).await, server.client(Some(OTHER)).await);
    let cut = framed(b"hello")[..7].to_vec();
    let first = begin(&web, PATH, cut.clone()).await;
    let _second = begin(&web, PATH, cut).await;
    let refusal = until(&web, "8").await;
    assert!(refusal.ends_with("(limit identity-calls)"), "{refusal}");
    let (_, headers) = call(&other, "", framed(b"hello")).await;
    assert_eq!(status(&headers).0, "0");
    drop(first);
    until(&web, "0").await;
}

#[tokio::test]
async fn calls_of_strangers_take_no_place_of_methods() {
    let config = ServerConfig { all_calls: 1, ..ServerConfig::default() };
    let server = start_with(config, vec![Arc::new(Echo::default())]);
    let stranger = server.client(None).await;
    let watch = async || {
        let (response, mut requests) = begin(&stranger, "/grpc.health.v1.Health/Watch", framed(b"")).await;
        requests.send_data(Bytes::new(), true).unwrap();
        soon(response).await.unwrap()
    };
    let _held = watch().await;
    assert_eq!(status(watch().await.headers()).0, "8", "the only place is taken");
    for (identity, password) in [(Some(WEB), ""), (None, "ok")] {
        let (_, headers) = call(&server.client(identity).await, password, framed(b"hello")).await;
        assert_eq!(status(&headers).0, "0", "{headers:?}");
    }
}

#[tokio::test]
async fn response_that_is_not_taken_gives_up_its_place() {
    let request_timeout = Duration::from_millis(100);
    let config = ServerConfig { identity_calls: 1, request_timeout, ..ServerConfig::default() };
    let server = start_with(config, vec![Arc::new(Echo::default())]);
    let closed = server.client_with_window(Some(WEB), 0).await;
    let (response, mut requests) = begin(&closed, PATH, framed(b"hello")).await;
    requests.send_data(Bytes::new(), true).unwrap();
    let _unread = soon(response).await.unwrap();
    until(&server.client(Some(WEB)).await, "0").await;
}
