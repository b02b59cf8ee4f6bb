//! Files of the dashboard below `/dashboard/`, to which `/` redirects.

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use pilotfish_dashboard::{Asset, VERSION, find, index};

/// Content security policy of the dashboard: its pages may load their own files and call the API beside them.
/// Inline scripts and styles are not allowed, and no text becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
    'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";
const HEADERS: [(HeaderName, &str); 2] =
    [(header::CONTENT_SECURITY_POLICY, POLICY), (header::REFERRER_POLICY, "no-referrer")];
/// Cache policy for files whose path changes with their content.
const FOREVER: &str = "private, max-age=31536000, immutable";

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let lead = || async { Redirect::temporary("/dashboard/") };
    Router::new()
        .route("/", get(lead))
        .route("/dashboard", get(lead))
        .route("/dashboard/", get(page))
        .route("/dashboard/{version}/{*path}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    index().map_or_else(missing, |asset| answer(asset, &headers, "no-cache"))
}

async fn file(Path((version, path)): Path<(String, String)>, headers: HeaderMap) -> Response {
    match find(&path).filter(|_| version == VERSION) {
        Some(asset) => answer(asset, &headers, FOREVER),
        None => missing(),
    }
}

fn missing() -> Response {
    (StatusCode::NOT_FOUND, "no such file of the dashboard\n").into_response()
}

fn answer(asset: &Asset, asked: &HeaderMap, cache: &'static str) -> Response {
    let etag = format!("\"{VERSION}-{}\"", asset.path());
    let has = |name: HeaderName, what: &str| {
        let values = asked.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|one| one.split(';').next().unwrap_or_default().trim() == what)
    };
    let mut response = if has(header::IF_NONE_MATCH, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if has(header::ACCEPT_ENCODING, "gzip") {
        ([(header::CONTENT_ENCODING, "gzip")], Bytes::from_static(asset.gzip())).into_response()
    } else {
        asset.content().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}
