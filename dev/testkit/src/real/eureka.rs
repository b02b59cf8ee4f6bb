//! A real Eureka server, an application with its usual client, and its API for instances without their own
//! JVM.

use super::{Java, Program, eventually, free_port};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::path::Path;
use tempfile::TempDir;

/// Spring Cloud's server, without peers, configured to publish changes quickly.
pub struct EurekaServer {
    java: Java,
    arguments: Vec<String>,
    program: Program,
    folder: TempDir,
    pub port: u16,
}

/// An instance for [`EurekaServer::register`].
pub struct EurekaInstance<'a> {
    pub app: &'a str,
    pub id: &'a str,
    pub ip: &'a str,
    /// Port without TLS.
    pub port: u16,
    /// Status: `UP`, `DOWN` and so on.
    pub status: &'a str,
    /// Virtual addresses; the application's name if empty.
    pub vip: &'a str,
    /// Metadata as JSON.
    pub metadata: &'a str,
}

impl<'a> EurekaInstance<'a> {
    /// An instance with status `UP` on port 8080.
    #[must_use]
    pub const fn up(app: &'a str, id: &'a str, ip: &'a str) -> Self {
        Self { app, id, ip, port: 8080, status: "UP", vip: "", metadata: "{}" }
    }
}

impl EurekaServer {
    /// Starts a server with these additional arguments. `None` without a JVM.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(more: &[&str]) -> Option<Self> {
        Self::start_on(free_port(), more).await
    }

    /// Starts a server on a port, with these additional arguments.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_on(port: u16, more: &[&str]) -> Option<Self> {
        Self::start_with(Java::find("eureka")?, port, more).await
    }

    /// Starts a server for 50,000 instances, which delays deltas by minutes: otherwise each of its deltas has
    /// all instances.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_large() -> Option<Self> {
        let forget = [
            "--eureka.server.retention-time-in-m-s-in-delta-queue=5000",
            "--eureka.server.delta-retention-timer-interval-in-ms=1000",
        ];
        Self::start_with(Java::find("eureka")?.with_heap("4g"), free_port(), &forget).await
    }

    async fn start_with(java: Java, port: u16, more: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut arguments: Vec<String> = [
            "--server.address=127.0.0.1",
            "--eureka.instance.hostname=127.0.0.1",
            "--eureka.client.register-with-eureka=false",
            "--eureka.client.fetch-registry=false",
            "--eureka.server.enable-self-preservation=false",
            // Responses are never cached.
            "--eureka.server.use-read-only-response-cache=false",
            "--eureka.server.eviction-interval-timer-in-ms=500",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--server.port={port}"));
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let program = run(&java, &arguments, folder.path());
        let mut server = Self { java, arguments, program, folder, port };
        server.ready().await;
        Some(server)
    }

    async fn ready(&mut self) {
        self.program.until_printed("Started Server").await;
    }

    pub async fn kill(&mut self) {
        self.program.kill().await;
    }

    /// Restarts it without data.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restart(&mut self) {
        std::fs::remove_file(self.folder.path().join("server.log")).expect("it was there");
        self.program = run(&self.java, &self.arguments, self.folder.path());
        self.ready().await;
    }

    pub async fn freeze(&mut self) {
        self.program.freeze().await;
    }

    pub async fn thaw(&mut self) {
        self.program.thaw().await;
    }

    /// Address for `--registry eureka=`, with short intervals.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/eureka?interval=200ms", self.port)
    }

    /// Registers an instance like a client of Netflix, and sends heartbeats from then on.
    pub async fn register(&self, instance: &EurekaInstance<'_>) {
        let EurekaInstance { app, id, ip, port, status, vip, metadata } = instance;
        let vip = if vip.is_empty() { app } else { vip };
        let body = format!(
            r#"{{"instance":{{"instanceId":"{id}","hostName":"{ip}","app":"{app}","ipAddr":"{ip}","status":"{status}",
            "vipAddress":"{vip}","secureVipAddress":"{vip}","port":{{"$":{port},"@enabled":"true"}},
            "securePort":{{"$":443,"@enabled":"false"}},"metadata":{metadata},
            "dataCenterInfo":{{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}},
            "leaseInfo":{{"renewalIntervalInSecs":30,"durationInSecs":3600}}}}}}"#
        );
        self.call(Method::POST, &format!("/apps/{app}"), &body, StatusCode::NO_CONTENT).await;
    }

    pub async fn cancel(&self, app: &str, id: &str) {
        self.call(Method::DELETE, &format!("/apps/{app}/{id}"), "", StatusCode::OK).await;
    }

    /// Overrides the status of an instance, like an operator.
    pub async fn order(&self, app: &str, id: &str, status: &str) {
        let path = format!("/apps/{app}/{id}/status?value={status}");
        self.call(Method::PUT, &path, "", StatusCode::OK).await;
    }

    /// Removes the override.
    pub async fn take_back(&self, app: &str, id: &str) {
        self.call(Method::DELETE, &format!("/apps/{app}/{id}/status?value=UP"), "", StatusCode::OK).await;
    }

    async fn call(&self, method: Method, path: &str, body: &str, expected: StatusCode) {
        let what = format!("{method} {path}");
        eventually(&what, || async {
            let got = self.try_call(&method, path, body).await?;
            if got == expected { Ok(()) } else { Err(got.to_string()) }
        })
        .await;
    }

    async fn try_call(&self, method: &Method, path: &str, body: &str) -> Result<StatusCode, String> {
        let uri = format!("http://127.0.0.1:{}/eureka{path}", self.port);
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let request =
            request.body(Full::new(Bytes::from(body.to_owned()))).map_err(|error| error.to_string())?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await.map_err(|error| format!("{error:?}"))?;
        Ok(answer.status())
    }
}

fn run(java: &Java, arguments: &[String], folder: &Path) -> Program {
    let mut command = java.command(&[], "pilotfish.eureka.Server");
    Program::start(command.args(arguments).current_dir(folder), folder.join("server.log"))
}

/// Starts an application with Spring Cloud's client, which registers with a server and answers each request
/// with its instance id. `None` without a JVM.
#[must_use]
pub fn eureka_application(
    server: u16,
    name: &str,
    instance: &str,
    port: u16,
    folder: &Path,
) -> Option<Program> {
    eureka_application_with(server, name, instance, port, folder, &[])
}

/// Starts the application of [`eureka_application`] with these additional arguments. `None` without a JVM.
#[must_use]
pub fn eureka_application_with(
    server: u16,
    name: &str,
    instance: &str,
    port: u16,
    folder: &Path,
    more: &[&str],
) -> Option<Program> {
    let mut command = Java::find("eureka")?.command(&[], "pilotfish.eureka.Application");
    command.args([
        &format!("--spring.application.name={name}"),
        &format!("--server.port={port}"),
        &format!("--eureka.instance.instance-id={instance}"),
        &format!("--eureka.client.service-url.defaultZone=http://127.0.0.1:{server}/eureka/"),
        "--server.address=127.0.0.1",
        "--eureka.instance.prefer-ip-address=true",
        "--eureka.instance.ip-address=127.0.0.1",
        "--eureka.instance.metadata-map.zone=z1",
        // A short interval, so that it registers soon after a restart of the server. Its lease is the usual
        // one: a JVM on a loaded machine may be silent for seconds.
        "--eureka.instance.lease-renewal-interval-in-seconds=1",
    ]);
    command.args(more);
    let log = folder.join(format!("{instance}.log"));
    Some(Program::start(command.current_dir(folder), log))
}
