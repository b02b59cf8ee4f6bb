//! Eureka: a real server of Spring Cloud, which tells what changed without a cache. It has no push: both clients ask once a second.

use super::{Product, service};
use anyhow::{Context, Result, bail};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use pilotfish_registry_client::{Connector, HttpClient, HttpRequest, Server};
use pilotfish_testkit::real::EurekaServer;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Eureka {
    _server: EurekaServer,
    at: Server,
    client: HttpClient,
}

impl Eureka {
    pub(super) async fn start() -> Result<Self> {
        let server = EurekaServer::start_large().await;
        let server = server.context("Java is missing: run `cargo xtask tools java-eureka`")?;
        let at = Server { host: "127.0.0.1".into(), port: server.port };
        Ok(Self { _server: server, at, client: HttpClient::new(Connector::default(), 32) })
    }
}

fn headers() -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)])
}

impl Product for Eureka {
    fn registry(&self) -> String {
        format!("eureka=http://{}/eureka?interval={INTERVAL:?}", self.at)
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let name = service(number).to_uppercase();
        let body = format!(
            r#"{{"instance":{{"instanceId":"{name}:{index}","hostName":"{address}","app":"{name}","ipAddr":"{address}",
            "status":"UP","vipAddress":"{name}","secureVipAddress":"{name}","port":{{"$":8080,"@enabled":"true"}},
            "securePort":{{"$":443,"@enabled":"false"}},"metadata":{{"version":"v1","zone":"z1"}},
            "dataCenterInfo":{{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}},
            "leaseInfo":{{"renewalIntervalInSecs":30,"durationInSecs":36000}}}}}}"#
        );
        let request = HttpRequest {
            method: Method::POST,
            headers: headers(),
            body: body.into(),
            ..HttpRequest::get(format!("/eureka/apps/{name}"))
        };
        let answer = self.client.send(&self.at, request).await?;
        if answer.status.is_success() { Ok(()) } else { bail!("Eureka answered {}", answer.status) }
    }

    async fn watch(&self) -> Result<mpsc::UnboundedReceiver<(String, Instant)>> {
        let (say, seen) = mpsc::unbounded_channel();
        let (client, at) = (self.client.clone(), self.at.clone());
        tokio::spawn(async move {
            loop {
                let request = HttpRequest { headers: headers(), ..HttpRequest::get("/eureka/apps/delta") };
                // The measurement ends when nothing more is said.
                let Ok(answer) = client.send(&at, request).await else { return };
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                if say.send((text, Instant::now())).is_err() {
                    return;
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Ok(seen)
    }
}
