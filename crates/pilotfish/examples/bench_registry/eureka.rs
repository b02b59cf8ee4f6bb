//! Eureka: a real server of Spring Cloud, which serves deltas without a cache. It has no push: both clients
//! poll once a second.

use super::http_api::HttpApi;
use super::{Product, Seen, service};
use anyhow::{Context, Result};
use http::Method;
use pilotfish_testkit::real::EurekaServer;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Eureka {
    _server: EurekaServer,
    api: HttpApi,
}

impl Eureka {
    pub(super) async fn start() -> Result<Self> {
        let server = EurekaServer::start_large().await;
        let server = server.context("Java is missing: run `cargo xtask tools java-eureka`")?;
        let api = HttpApi::new(server.port);
        Ok(Self { _server: server, api })
    }
}

impl Product for Eureka {
    fn registry(&self) -> String {
        format!("eureka=http://{}/eureka?interval={INTERVAL:?}", self.api.at)
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let name = service(number).to_uppercase();
        let body = format!(
            r#"{{"instance":{{"instanceId":"{name}:{index}","hostName":"{address}","app":"{name}",
            "ipAddr":"{address}","status":"UP","vipAddress":"{name}","secureVipAddress":"{name}",
            "port":{{"$":8080,"@enabled":"true"}},
            "securePort":{{"$":443,"@enabled":"false"}},"metadata":{{"version":"v1","zone":"z1"}},
            "dataCenterInfo":{{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo",
            "name":"MyOwn"}},
            "leaseInfo":{{"renewalIntervalInSecs":30,"durationInSecs":36000}}}}}}"#
        );
        self.api.send(Method::POST, &format!("/eureka/apps/{name}"), body).await.map(drop)
    }

    async fn watch(&self) -> Result<Seen> {
        let (say, seen) = mpsc::unbounded_channel();
        let api = self.api.clone();
        tokio::spawn(async move {
            loop {
                // The measurement ends when nothing more is said.
                let Ok(answer) = api.send(Method::GET, "/eureka/apps/delta", "").await else { return };
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
