//! Traffic of the demo through Envoy, as clients of the example would send it.

use super::envoy::Envoy;
use super::picture::Picture;
use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;

/// Kind of request, with its host and user.
struct Flow {
    /// Name in the picture.
    title: &'static str,
    host: &'static str,
    user: Option<&'static str>,
}

/// Kinds of requests, sent in turn.
const FLOWS: [Flow; 4] = [
    Flow { title: "catalog", host: "catalog.shop.svc.cluster.local", user: None },
    Flow { title: "catalog, as tester", host: "catalog.shop.svc.cluster.local", user: Some("tester") },
    Flow { title: "cart", host: "cart.shop.svc.cluster.local", user: None },
    Flow { title: "payment", host: "payment.example.com", user: None },
];

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size limit of an answer. Those of the sample services are shorter.
const MOST_BYTES: usize = 4096;

/// Sends requests at a steady rate until dropped.
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
                Ok(text) if status.is_success() => known(&text).to_owned(),
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

/// Returns the sample service that answers with this text. Other texts come from programs outside the demo
/// and are not shown.
fn known(text: &str) -> &'static str {
    let mut names = super::services::addresses().map(|(name, _)| name);
    names.find(|name| *name == text).unwrap_or("a server that is no sample service")
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_of_foreign_servers_are_not_shown() {
        let shown = ["catalog v1", "<html>\n<body>", "\u{1b}[2J", ""].map(super::known);
        let foreign = "a server that is no sample service";
        assert_eq!(shown, ["catalog v1", foreign, foreign, foreign]);
    }
}
