//! The files of the dashboard, and the stream of events.

use super::{fixture, get, routes};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, StatusCode, header};
use std::net::SocketAddr;
use tower::ServiceExt;

async fn ask(path: &str, headers: &[(header::HeaderName, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let reply = routes(fixture()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = reply.into_parts();
    (head.status, head.headers, axum::body::to_bytes(body, 1 << 20).await.unwrap().to_vec())
}

#[tokio::test]
async fn the_address_leads_to_the_dashboard() {
    for path in ["/", "/dashboard"] {
        let (status, headers, _) = ask(path, &[]).await;
        assert_eq!(
            (status, &headers["location"]),
            (StatusCode::TEMPORARY_REDIRECT, &"/dashboard/".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn no_answer_is_for_pages_of_other_sites() {
    for path in
        ["/debug/configz", "/api/v1/services", "/api/v1/none", "/metrics", "/ready", "/none", "/dashboard/"]
    {
        let (_, headers, _) = ask(path, &[]).await;
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin", "{path}");
    }
}

#[tokio::test]
async fn the_page_may_do_little_and_its_files_are_kept() {
    let (status, headers, page) = ask("/dashboard/", &[]).await;
    assert_eq!(status, StatusCode::OK);
    let policy = headers["content-security-policy"].to_str().unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-cache");
    let page = String::from_utf8(page).unwrap();
    let script = page.split('"').find(|text| text.ends_with("js/main.js")).unwrap();
    let path = format!("/dashboard/{script}");
    let (status, headers, plain) = ask(&path, &[]).await;
    assert_eq!(
        (status, &headers["content-type"]),
        (StatusCode::OK, &"text/javascript; charset=utf-8".parse().unwrap())
    );
    assert!(headers["cache-control"].to_str().unwrap().contains("immutable"));
    let (_, zipped, gzip) = ask(&path, &[(header::ACCEPT_ENCODING, "br, gzip;q=0.9")]).await;
    assert_eq!(zipped["content-encoding"], "gzip");
    assert!(gzip.len() < plain.len() && gzip.starts_with(&[0x1f, 0x8b]));
    let etag = headers["etag"].to_str().unwrap();
    let (status, _, body) = ask(&path, &[(header::IF_NONE_MATCH, etag)]).await;
    assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
}

#[tokio::test]
async fn files_of_another_version_and_what_is_no_file_are_not_there() {
    for path in
        ["/dashboard/0123456789abcdef/js/main.js", "/dashboard/js/main.js", "/dashboard/../Cargo.toml"]
    {
        assert_eq!(get(fixture(), path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

/// A page of another site that a browser of this machine has open, under a name of its own (DNS rebinding).
#[tokio::test]
async fn the_dashboard_and_its_events_are_for_those_who_see_debug_pages() {
    for path in ["/", "/dashboard/", "/api/v1/events", "/api/v1/overview"] {
        for (peer, host, status) in [
            ("127.0.0.1:1", "evil.example.com", StatusCode::FORBIDDEN),
            ("10.0.0.1:1", "127.0.0.1:15014", StatusCode::FORBIDDEN),
        ] {
            let peer: SocketAddr = peer.parse().unwrap();
            let request = Request::get(path).header(header::HOST, host).extension(ConnectInfo(peer));
            let reply = routes(fixture()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(reply.status(), status, "{path} of {peer} as {host}");
        }
    }
    let reply =
        routes(fixture()).oneshot(Request::get("/api/v1/events").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(
        (reply.status(), &reply.headers()["content-type"]),
        (StatusCode::OK, &"text/event-stream".parse().unwrap())
    );
}
