//! HTTP requests: single ones, and a steady load in which every failure counts.

use super::LIMIT;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Number of responses by responder; failures by status or error message.
pub type Tally = BTreeMap<String, usize>;

type Http = Client<HttpConnector, Empty<Bytes>>;

fn client() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

/// Sends one request and returns the body.
///
/// # Errors
/// The status as `HTTP 503`, or the error message.
pub async fn get(port: u16, host: &str, headers: &[(&str, &str)]) -> Result<String, String> {
    send(&client(), port, host, headers).await
}

async fn send(client: &Http, port: u16, host: &str, headers: &[(&str, &str)]) -> Result<String, String> {
    let mut request = Request::get(format!("http://127.0.0.1:{port}/")).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    exchange(client, request).await
}

/// Sends one request without a body and returns the status and the body of the response.
///
/// # Errors
/// The error message, if there was no response.
pub async fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> Result<(u16, String), String> {
    let request = Request::builder().method(method).uri(url);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    status_and_body(&client(), request, REQUEST_LIMIT).await
}

/// Body of a URL.
///
/// # Errors
/// The status as `HTTP 503`, or the error message.
pub async fn fetch(url: &str) -> Result<String, String> {
    exchange(&client(), Request::get(url)).await
}

/// Posts JSON and returns the response.
pub(super) async fn post(url: &str, body: &str) -> Result<String, String> {
    let request = Request::post(url).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).map_err(|error| error.to_string())?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.map_err(|error| format!("{error:?}"))?;
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Status and body of a URL.
///
/// # Errors
/// The error message, if there was no response.
pub(super) async fn answer(url: &str) -> Result<(u16, String), String> {
    status_and_body(&client(), Request::get(url), LIMIT).await
}

async fn exchange(client: &Http, request: hyper::http::request::Builder) -> Result<String, String> {
    match status_and_body(client, request, REQUEST_LIMIT).await? {
        (200..300, body) => Ok(body),
        (status, _) => Err(format!("HTTP {status}")),
    }
}

async fn status_and_body(
    client: &Http,
    request: hyper::http::request::Builder,
    limit: Duration,
) -> Result<(u16, String), String> {
    let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(limit, client.request(request)).await;
    let answer =
        answer.map_err(|_| format!("no answer within {limit:?}"))?.map_err(|error| format!("{error:?}"))?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Timeout of a request of a load.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A steady load on one host from several concurrent clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    tally: Arc<Mutex<Tally>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    #[must_use]
    pub fn start(port: u16, host: &str) -> Self {
        let (stop, tally) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Tally::new())));
        let tasks = (0..4).map(|_| {
            let (stop, tally, host) = (stop.clone(), tally.clone(), host.to_owned());
            tokio::spawn(async move {
                let client = client();
                while !stop.load(Ordering::Acquire) {
                    let who = send(&client, port, &host, &[]).await.unwrap_or_else(|error| error);
                    *tally.lock().expect("no holder panics").entry(who).or_default() += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        });
        let tasks = tasks.collect();
        Self { stop, tally, tasks }
    }

    /// Responses so far.
    ///
    /// # Panics
    /// Never: no holder of the tally panics.
    #[must_use]
    pub fn so_far(&self) -> Tally {
        self.tally.lock().expect("no holder panics").clone()
    }

    /// Resets the counters.
    ///
    /// # Panics
    /// Never: no holder of the tally panics.
    pub fn reset(&self) -> Tally {
        std::mem::take(&mut *self.tally.lock().expect("no holder panics"))
    }

    /// Waits for that many further responses.
    pub async fn answers(&self, more: usize) {
        let count = || self.so_far().values().sum::<usize>();
        let enough = count() + more;
        super::eventually("the load goes on", || async {
            if count() >= enough { Ok(()) } else { Err(count()) }
        })
        .await;
    }

    /// Stops and returns the responses.
    ///
    /// # Panics
    /// When a client panicked.
    pub async fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Release);
        for task in self.tasks {
            task.await.expect("clients do not panic");
        }
        std::mem::take(&mut *self.tally.lock().expect("no holder panics"))
    }
}
