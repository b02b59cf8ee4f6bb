//! `/ready`: what it tells whom, and that nothing keeps it waiting.

use super::{Fixture, fixture, routes};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use pilotfish_api::Readiness;
use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use tokio::time::timeout;
use tower::ServiceExt;

async fn ask(router: &Router, path: &str, peer: &str) -> (StatusCode, Readiness) {
    let peer: SocketAddr = peer.parse().unwrap();
    let request = Request::get(path).extension(ConnectInfo(peer)).body(Body::empty()).unwrap();
    let reply = timeout(Duration::from_secs(20), router.clone().oneshot(request)).await;
    let (head, body) = reply.expect("it is answered").unwrap().into_parts();
    (head.status, serde_json::from_slice(&to_bytes(body, 1 << 20).await.unwrap()).unwrap())
}

#[tokio::test]
async fn other_machines_learn_numbers_only() {
    for ready in [true, false] {
        let router = routes(Fixture { ready, ..fixture() });
        for path in ["/ready", "/healthz/ready"] {
            let (status, here) = ask(&router, path, "127.0.0.1:1").await;
            let (same, there) = ask(&router, path, "10.0.0.1:1").await;
            assert_eq!(status.is_success(), ready);
            assert_eq!((same, there.ready), (status, ready), "{path}");
            assert_eq!((here.problems.len(), here.waiting_for.len()), (1, usize::from(!ready)));
            let numbers = (here.problem_count, here.waiting_for_count);
            assert_eq!((there.problem_count, there.waiting_for_count), numbers);
            assert!(there.problems.is_empty() && there.waiting_for.is_empty(), "{there:?}");
        }
    }
}

/// What is wrong takes locks that computations hold.
#[tokio::test]
async fn it_is_answered_while_what_is_wrong_cannot_be_found_out() {
    let (go_on, wait) = mpsc::channel();
    let router = routes(Fixture { problems_wait: Some(Mutex::new(wait)), ..fixture() });
    for peer in ["127.0.0.1:1", "10.0.0.1:1", "127.0.0.1:1"] {
        let (status, readiness) = ask(&router, "/ready", peer).await;
        assert_eq!((status, readiness.ready, readiness.problem_count), (StatusCode::OK, true, 0));
    }
    go_on.send(()).unwrap();
    while ask(&router, "/ready", "127.0.0.1:1").await.1.problem_count == 0 {}
    // The next ones find the sender gone, and nobody waits for it.
    drop(go_on);
}
