//! Who may have something made or changed.

use super::{fixture, routes_for};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode, header};
use pilotfish_admin::Access;
use std::net::SocketAddr;
use tower::ServiceExt;

/// The status of a request of that address with these headers.
async fn ask(method: Method, path: &str, peer: &str, headers: &[(&str, &str)]) -> StatusCode {
    let peer: SocketAddr = peer.parse().unwrap();
    let mut request = Request::builder().method(method.clone()).uri(path).extension(ConnectInfo(peer));
    for (name, value) in [("host", "localhost:15014")].iter().chain(headers) {
        request = request.header(*name, *value);
    }
    let body = match method {
        Method::POST if path.ends_with("/plan") => r#"{"files": [{"name": "a.yaml", "text": ""}]}"#,
        Method::POST if path.ends_with("/config") => r#"{"node": {}}"#,
        Method::POST => r#"{"filter": "off"}"#,
        _ => "",
    };
    let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap();
    routes_for(fixture(), Access::Everybody).oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn logs_are_changed_from_this_machine_only() {
    for (method, peer, status) in [
        (Method::POST, "127.0.0.1:1", StatusCode::OK),
        (Method::POST, "[::1]:1", StatusCode::OK),
        (Method::POST, "10.0.0.1:1", StatusCode::FORBIDDEN),
        (Method::GET, "10.0.0.1:1", StatusCode::OK),
    ] {
        assert_eq!(ask(method.clone(), "/api/v1/log", peer, &[]).await, status, "{method} {peer}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_have_nothing_made_and_change_nothing() {
    let picture =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")];
    let neighbour = [("origin", "http://localhost:3000")];
    let link =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let own = [("sec-fetch-site", "same-origin"), ("origin", "http://localhost:15014")];
    for (method, path) in [
        (Method::GET, "/debug/config_dump?proxyID=web-0.shop"),
        (Method::GET, "/api/v1/record"),
        (Method::GET, "/api/v1/profile?seconds=0.1"),
        (Method::GET, "/api/v1/events"),
        (Method::GET, "/metrics"),
        (Method::GET, "/dashboard/"),
        (Method::POST, "/api/v1/plan"),
        (Method::POST, "/api/v1/node/config"),
        (Method::POST, "/api/v1/log"),
    ] {
        for foreign in [&picture[..], &neighbour[..]] {
            let found = ask(method.clone(), path, "127.0.0.1:1", foreign).await;
            assert_eq!(found, StatusCode::FORBIDDEN, "{method} {path} {foreign:?}");
        }
        assert_eq!(ask(method.clone(), path, "127.0.0.1:1", &own).await, StatusCode::OK, "{method} {path}");
        let linked = ask(method.clone(), path, "127.0.0.1:1", &link).await;
        assert_eq!(linked.is_success(), path == "/dashboard/", "{method} {path}: {linked}");
    }
}
