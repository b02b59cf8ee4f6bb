//! Sessions against a server that says what the test says.

use super::*;
use tokio::io::{DuplexStream, duplex};

const TIMEOUT: Duration = Duration::from_secs(6);

fn frame(body: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    out.extend(body);
    out
}

/// The answer to a connect request.
fn accepted(timeout: i32) -> Vec<u8> {
    let mut body = 0i32.to_be_bytes().to_vec();
    body.extend(timeout.to_be_bytes());
    body.extend(7i64.to_be_bytes());
    body.extend(16i32.to_be_bytes());
    body.extend([0; 17]);
    frame(&body)
}

fn reply(number: i32, zxid: i64, error: i32, body: &[u8]) -> Vec<u8> {
    let mut out = number.to_be_bytes().to_vec();
    out.extend(zxid.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(body);
    frame(&out)
}

fn opening() -> Opening<'static> {
    Opening { connect: Connect { last_zxid: 0, session_timeout: TIMEOUT }, digest: None }
}

async fn request(server: &mut DuplexStream) -> Vec<u8> {
    let length = server.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(length).unwrap()];
    server.read_exact(&mut body).await.unwrap();
    body
}

async fn opened() -> (Session<DuplexStream>, DuplexStream) {
    let (client, mut server) = duplex(1 << 20);
    let serves = async {
        assert_eq!(request(&mut server).await.len(), 45);
        server.write_all(&accepted(6_000)).await.unwrap();
    };
    let (session, ()) = tokio::join!(Session::open(client, opening()), serves);
    (session.unwrap(), server)
}

#[tokio::test(start_paused = true)]
async fn answers_belong_to_requests_in_order() {
    let (mut session, mut server) = opened().await;
    session.send(Request::Data { path: "/a".into(), watch: false });
    session.send(Request::Exists { path: "/b".into() });
    server.write_all(&reply(1, 5, 0, b"\0\0\0\x02hi")).await.unwrap();
    let data = session.next().await.unwrap();
    let Incoming::Answer(Request::Data { .. }, Ok(Body::Data(data))) = data else { panic!("{data:?}") };
    assert_eq!(data, b"hi");
    server.write_all(&reply(-1, -1, 0, b"\0\0\0\x01\0\0\0\x03\0\0\0\x02/c")).await.unwrap();
    assert!(matches!(session.next().await.unwrap(), Incoming::Event(event) if event.path == "/c"));
    server.write_all(&reply(2, 4, -101, b"")).await.unwrap();
    assert!(matches!(session.next().await.unwrap(), Incoming::Answer(_, Err(Refusal::NoNode))));
    assert_eq!((session.unanswered(), session.last_zxid()), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_nothing_to_say_pings() {
    let (mut session, mut server) = opened().await;
    let waits = tokio::spawn(async move { session.next().await });
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(request(&mut server).await, b"\xff\xff\xff\xfe\0\0\0\x0b");
        assert_eq!(began.elapsed().as_secs(), 2, "a third of the timeout");
        server.write_all(&reply(-2, 0, 0, b"")).await.unwrap();
    }
    let began = Instant::now();
    let end = waits.await.unwrap().unwrap_err();
    assert_eq!(end.to_string(), "the server is silent for 4s");
    assert!(began.elapsed() <= Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn what_a_server_does_to_a_session_has_its_name() {
    for (bytes, want) in [
        (reply(9, 0, 0, b""), "the server's answer is garbled: an answer to another request"),
        (reply(-4, 0, -115, b""), "the server refuses the secret"),
        (reply(1, 0, -112, b""), "the session has expired"),
        (frame(b"short"), "the server's answer is garbled: an answer has no head"),
        (vec![0x7f; 8], "the server's answer is garbled: a frame is longer than 32 MiB"),
    ] {
        let (mut session, mut server) = opened().await;
        session.send(Request::Exists { path: "/b".into() });
        server.write_all(&bytes).await.unwrap();
        assert_eq!(session.next().await.unwrap_err().to_string(), want);
    }
    let (mut session, mut server) = opened().await;
    server.write_all(&reply(3, 0, 0, b"")).await.unwrap();
    assert_eq!(
        session.next().await.unwrap_err().to_string(),
        "the server's answer is garbled: an answer to nothing"
    );
    let (mut session, server) = opened().await;
    drop(server);
    assert_eq!(session.next().await.unwrap_err().to_string(), "the server closed the connection");
}

#[tokio::test(start_paused = true)]
async fn a_server_can_refuse_a_session_in_three_ways() {
    let (client, server) = duplex(1 << 10);
    let opens = tokio::spawn(Session::open(client, opening()));
    let (mut reads, mut writes) = tokio::io::split(server);
    let _ = reads.read_u8().await;
    writes.shutdown().await.unwrap();
    drop((reads, writes));
    assert!(matches!(opens.await.unwrap().err(), Some(ClientError::Refused)));

    let (client, mut server) = duplex(1 << 10);
    server.write_all(&accepted(0)).await.unwrap();
    assert!(matches!(Session::open(client, opening()).await.err(), Some(ClientError::Expired)));

    let (client, _server) = duplex(1 << 10);
    let began = Instant::now();
    assert!(matches!(Session::open(client, opening()).await.err(), Some(ClientError::Silent(_))));
    assert_eq!(began.elapsed().as_secs(), 4);
}
