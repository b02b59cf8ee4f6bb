//! A little traffic through Envoy, as clients of the example would send it.

use super::envoy::Envoy;
use super::picture::Picture;
use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;

/// One kind of request.
struct Flow {
    /// As shown.
    title: &'static str,
    host: &'static str,
    user: Option<&'static str>,
}

/// What is sent, in turn.
const FLOWS: [Flow; 4] = [
    Flow { title: "catalog", host: "catalog.shop.svc.cluster.local", user: None },
    Flow { title: "catalog, as tester", host: "catalog.shop.svc.cluster.local", user: Some("tester") },
    Flow { title: "cart", host: "cart.shop.svc.cluster.local", user: None },
    Flow { title: "payment", host: "payment.example.com", user: None },
];

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer's words are short; more of them is no sample service.
const MOST_BYTES: usize = 4096;

/// Sends requests for ever, at a steady rate.
pub(super) async fn send(envoy: &Envoy, rate: u32, picture: &Picture) -> Result<()> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for flow in FLOWS.iter().cycle() {
        tick.tick().await;
        let mut request =
            Request::get(format!("http://127.0.0.1:{}/", envoy.port())).header("host", flow.host);
        if let Some(user) = flow.user {
            request = request.header("x-user", user);
        }
        let answer = async {
            let answer = client.request(request.body(Empty::new())?).await?;
            let status = answer.status();
            let body = http_body_util::Limited::new(answer.into_body(), MOST_BYTES).collect().await;
            let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned());
            anyhow::Ok(match text {
                Ok(text) if status.is_success() => text,
                _ => format!("HTTP {}", status.as_u16()),
            })
        };
        let from = match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(from)) => from,
            Ok(Err(error)) => format!("failed: {error}"),
            Err(_) => "no answer".to_owned(),
        };
        picture.count(flow.title, &from);
    }
    Ok(())
}
