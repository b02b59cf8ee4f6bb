//! Bytes and values, against what the protocol's description says, and against garbage.

use super::record::Writer;
use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    write(&mut out);
    out.to_vec()
}

#[test]
fn requests_are_written_as_the_protocol_says() {
    let connect = Connect { last_zxid: 0x0102, session_timeout: Duration::from_secs(10) };
    let mut want = vec![0, 0, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0x27, 0x10];
    want.extend([0; 8]);
    want.extend([0, 0, 0, 16]);
    want.extend([0; 16]);
    want.push(0);
    assert_eq!(written(|out| connect.write(out)), want);

    let children = Request::Children { path: "/d".into(), watch: true };
    assert_eq!(written(|out| children.write(7, out)), b"\0\0\0\x0f\0\0\0\x07\0\0\0\x08\0\0\0\x02/d\x01");
    let data = Request::Data { path: "/d".into(), watch: false };
    assert_eq!(written(|out| data.write(8, out)), b"\0\0\0\x0f\0\0\0\x08\0\0\0\x04\0\0\0\x02/d\0");
    let below = Request::WatchBelow { path: "/d".into() };
    assert_eq!(written(|out| below.write(9, out)), b"\0\0\0\x12\0\0\0\x09\0\0\0\x6a\0\0\0\x02/d\0\0\0\x01");
    assert_eq!(written(ping), b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b");
    let secret = written(|out| authenticate("digest", b"u:p", out));
    assert_eq!(secret, b"\0\0\0\x1d\xff\xff\xff\xfc\0\0\0\x64\0\0\0\0\0\0\0\x06digest\0\0\0\x03u:p");
}

#[test]
fn answers_are_told_apart_by_their_numbers() {
    let head = |number: i32, error: i32| {
        let mut head = number.to_be_bytes().to_vec();
        head.extend(77i64.to_be_bytes());
        head.extend(error.to_be_bytes());
        head
    };
    assert_eq!(Answer::parse(&head(-2, 0)), Ok(Answer::Pong));
    assert_eq!(Answer::parse(&head(-4, 0)), Ok(Answer::Authenticated(Ok(()))));
    let refused = Answer::Authenticated(Err(Refusal::AuthenticationFailed));
    assert_eq!(Answer::parse(&head(-4, -115)), Ok(refused));
    let missing = Answer::Reply { number: 3, zxid: 77, body: Err(Refusal::NoNode) };
    assert_eq!(Answer::parse(&head(3, -101)), Ok(missing));

    let mut event = head(-1, 0);
    event.extend(b"\0\0\0\x02\0\0\0\x03\0\0\0\x04/a/b");
    let want = Event { kind: EventKind::Deleted, path: "/a/b".into() };
    assert_eq!(Answer::parse(&event), Ok(Answer::Event(want)));

    let children = Request::Children { path: "/".into(), watch: false };
    let list = b"\0\0\0\x02\0\0\0\x01a\0\0\0\x02bc";
    assert_eq!(Body::parse(&children, list), Ok(Body::Children(vec!["a".into(), "bc".into()])));
    assert_eq!(Body::parse(&children, b"\x7f\xff\xff\xff"), Err(Garbled("a list is longer than its frame")));
    let data = Request::Data { path: "/".into(), watch: false };
    assert_eq!(Body::parse(&data, b"\xff\xff\xff\xff"), Ok(Body::Data(Vec::new())));
    assert!(Body::parse(&data, b"\0\0\0\x05abc").is_err());
}

#[test]
fn frames_are_taken_whole_and_no_longer_than_the_limit() {
    let mut received = BytesMut::new();
    Writer::new(&mut received).int(5);
    Writer::new(&mut received).int(6);
    let whole = received.clone();
    let mut partial = BytesMut::from(&whole[..7]);
    assert_eq!(take_frame(&mut partial), Ok(None));
    partial.extend_from_slice(&whole[7..]);
    assert_eq!(take_frame(&mut partial).unwrap().as_deref(), Some(&[0, 0, 0, 5][..]));
    assert_eq!(take_frame(&mut partial).unwrap().as_deref(), Some(&[0, 0, 0, 6][..]));
    assert_eq!(take_frame(&mut partial), Ok(None));
    assert!(take_frame(&mut BytesMut::from(&[0x7f, 0, 0, 0][..])).is_err());
    assert!(take_frame(&mut BytesMut::from(&[0xff, 0, 0, 0][..])).is_err());
}

proptest! {
    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = take_frame(&mut BytesMut::from(&bytes[..]));
        let _ = Accepted::parse(&bytes);
        let _ = Answer::parse(&bytes);
        for request in [
            Request::Children { path: String::new(), watch: false },
            Request::Data { path: String::new(), watch: false },
        ] {
            let _ = Body::parse(&request, &bytes);
        }
    }
}
