//! A real rnacos: a server that is compatible with Nacos.

use super::{Program, Tool, eventually, free_port};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// Time after its start at which a server has its first user.
const FIRST_USER: Duration = Duration::from_secs(3);
/// Maximum number of starts until it has one.
const LIVES: u32 = 4;
/// Maximum number of logins after each start.
const ATTEMPTS: usize = 3;

/// One server. It keeps its ports when it is restarted. To be used within [`super::Host::here`]: it probes
/// persistent instances at any address.
pub struct Rnacos {
    folder: TempDir,
    environment: Vec<(String, String)>,
    program: Program,
    port: u16,
    life: u32,
    token: Option<String>,
}

impl Rnacos {
    /// Starts a server with these additional settings. `None` when it is missing and not required.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start(settings: &[(&str, &str)]) -> Option<Self> {
        let tool = Tool::Rnacos.find()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let environment: Vec<(String, String)> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // The gRPC port is higher by a thousand.
        let port = free_port();
        let program = launch(&tool, folder.path(), port, 0, &environment);
        let server = Self { folder, environment, program, port, life: 0, token: None };
        server.answers().await;
        Some(server)
    }

    /// Waits until it accepts instances.
    pub async fn answers(&self) {
        eventually("rnacos answers", || async {
            // An instance of another group that no test reads.
            let query = "serviceName=ready&groupName=ready&ip=127.0.0.1&port=1&ephemeral=true";
            match self.call("POST", &format!("/v1/ns/instance?{query}"), "").await {
                // It requires authentication, so it is ready.
                Err(error) if error == "HTTP 403" => Ok(()),
                answer => answer.map(drop).map_err(|error| format!("{error}\n{}", self.program.printed())),
            }
        })
        .await;
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn grpc_port(&self) -> u16 {
        self.port + 1000
    }

    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Restarts it after it was killed; without its data if `forget` is true.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self, forget: bool) {
        let tool = Tool::Rnacos.find().expect("it was there before");
        self.life += u32::from(forget);
        self.program = launch(&tool, self.folder.path(), self.port, self.life, &self.environment);
        self.answers().await;
    }

    /// Logs in and sends the token from now on.
    ///
    /// # Panics
    /// When the login fails.
    pub async fn login(&mut self, username: &str, password: &str) {
        let body = format!("username={username}&password={password}");
        let mut last = String::new();
        for life in 0..LIVES {
            if self.token.is_none() {
                // The first user is created soon after the start, without a signal. A login before that makes
                // the server report permanently that there is none.
                tokio::time::sleep(FIRST_USER * (life + 1)).await;
            }
            // It counts attempts, and refuses all after a few.
            for _ in 0..ATTEMPTS {
                match self.call("POST", "/v1/auth/login", &body).await {
                    Ok(answer) => {
                        let answer: serde_json::Value = serde_json::from_str(&answer).expect("it is JSON");
                        self.token = answer["accessToken"].as_str().map(str::to_owned);
                        return;
                    }
                    Err(error) => last = error,
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            self.program.kill().await;
            // Its threads may have panicked at the first start, and the remaining state makes them panic
            // again. Before the first login nothing is lost.
            self.restart(self.token.is_none()).await;
        }
        panic!("no login: {last}\n{}", self.program.printed());
    }

    /// Registers a persistent instance: `serviceName=web&ip=10.0.0.1&port=80`, and other parameters of the
    /// HTTP API.
    pub async fn register(&self, query: &str) {
        let query = format!("/v1/ns/instance?ephemeral=false&{query}");
        eventually("an instance is registered", || self.call("POST", &query, "")).await;
    }

    pub async fn update(&self, query: &str) {
        let query = format!("/v1/ns/instance?ephemeral=false&{query}");
        eventually("an instance is changed", || self.call("PUT", &query, "")).await;
    }

    pub async fn deregister(&self, query: &str) {
        let query = format!("/v1/ns/instance?ephemeral=false&{query}");
        eventually("an instance is taken away", || self.call("DELETE", &query, "")).await;
    }

    /// Sends a request to its API and returns the body of a successful response.
    ///
    /// # Errors
    /// The status as `HTTP 503`, or the error message.
    pub async fn call(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{}/nacos{path}", self.port);
        let mut request = Request::builder().method(method).uri(url);
        request = request.header("content-type", "application/x-www-form-urlencoded");
        if let Some(token) = &self.token {
            request = request.header("accessToken", token);
        }
        let request =
            request.body(Full::new(Bytes::from(body.to_owned()))).map_err(|error| error.to_string())?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await.map_err(|error| format!("{error:?}"))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        if status.is_success() {
            Ok(String::from_utf8_lossy(&body).into_owned())
        } else {
            Err(format!("HTTP {}", status.as_u16()))
        }
    }
}

fn launch(tool: &Path, folder: &Path, port: u16, life: u32, environment: &[(String, String)]) -> Program {
    let mut command = Command::new(tool);
    command.current_dir(folder);
    command.env("RNACOS_HTTP_PORT", port.to_string());
    command.env("RNACOS_GRPC_PORT", (port + 1000).to_string());
    command.env("RNACOS_HTTP_CONSOLE_PORT", (port + 2000).to_string());
    command.env("RNACOS_DATA_DIR", folder.join(format!("data-{life}")));
    // The default is all addresses.
    command.env("RNACOS_SDK_HOST", "127.0.0.1").env("RNACOS_CONSOLE_HOST", "127.0.0.1");
    command.env("RNACOS_HTTP_WORKERS", "1");
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Program::start(&mut command, folder.join("rnacos.log"))
}
