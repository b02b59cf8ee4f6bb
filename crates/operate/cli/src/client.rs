//! Client of the admin API over HTTP, with deadlines and limits.

use crate::dial::{Dial, InCluster, TlsFiles, dialer};
use crate::error::CliError;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use pilotfish_api::v1::{Failure, Page};
use pilotfish_runtime::{FileReader, SecretFile};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum size of a response in bytes.
const LARGEST_ANSWER: usize = 64 << 20;

/// Flags with the address of the control plane.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Control plane")]
pub struct Address {
    /// The admin address of the control plane, with https:// where it has TLS
    #[arg(
        long,
        env = "PILOTFISH_ADMIN_ADDRESS",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:15014"
    )]
    pub admin_address: String,
    /// A Pod of a cluster, in the place of the address.
    #[command(flatten)]
    pub cluster: InCluster,
    /// Credentials for a role.
    #[command(flatten)]
    pub credentials: Credentials,
}

/// Flags with credentials for the admin API.
#[derive(Args, Clone, Debug, Default)]
pub struct Credentials {
    /// A file with a token that has a role
    #[arg(long, env = "PILOTFISH_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// CAs of the certificate of an https:// address in PEM [default: those of the system]
    #[arg(long, env = "PILOTFISH_ADMIN_CA_FILE", value_name = "FILE")]
    pub admin_ca_file: Option<PathBuf>,
    /// Certificate of this client in PEM, whose SPIFFE ID has a role
    #[arg(long, env = "PILOTFISH_ADMIN_CERT_FILE", requires = "admin_key_file", value_name = "FILE")]
    pub admin_cert_file: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, env = "PILOTFISH_ADMIN_KEY_FILE", requires = "admin_cert_file", value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,
}

/// Flags with the address of the control plane, and the timeout.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Control plane")]
pub struct Connection {
    #[command(flatten)]
    pub address: Address,
    /// Timeout of each request
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = crate::time::parse_duration)]
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Client {
    to: Arc<dyn Dial>,
    timeout: Duration,
    /// File with a token.
    token: Option<PathBuf>,
}

impl Connection {
    #[must_use]
    pub fn client(&self) -> Client {
        self.address.client(self.timeout)
    }
}

impl Address {
    /// Creates a client with this timeout for each response.
    pub(crate) fn client(&self, timeout: Duration) -> Client {
        let own = self.credentials.clone();
        let identity = own.admin_cert_file.zip(own.admin_key_file);
        let files = TlsFiles { ca: own.admin_ca_file, identity };
        let to = self.cluster.dial().unwrap_or_else(|| dialer(&self.admin_address, files));
        Client { to, timeout, token: own.admin_token_file }
    }
}

impl Client {
    /// Returns a client of another server, which gets no credentials.
    #[must_use]
    pub(crate) fn at(&self, address: &str) -> Self {
        let to = dialer(address, TlsFiles::default());
        Self { to, timeout: self.timeout, token: None }
    }

    /// Value of the header `authorization`, if there is a token.
    async fn authorization(&self) -> Result<Option<HeaderValue>, CliError> {
        let failed = |error: String| CliError::new(format!("--admin-token-file: {error}"));
        let Some(path) = self.token.clone() else { return Ok(None) };
        if !self.to.is_private() {
            return Err(failed(format!("others could read the token on the way to {}", self.address()))
                .hint(
                    "--admin-address https://HOST:PORT is the --secure-admin-address of the control plane",
                ));
        }
        let read = move || {
            let mut file = SecretFile::new(path);
            file.read().map(|_| file.content().and_then(|token| Some(format!("Bearer {}", token.as_str()?))))
        };
        let text = FileReader::default().run(read).await?.map_err(|error| failed(error.to_string()))?;
        let value = text.and_then(|text| HeaderValue::try_from(text).ok());
        let mut value =
            value.ok_or_else(|| failed("the token holds characters that no header may have".into()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Address of the control plane, for messages.
    pub(crate) fn address(&self) -> String {
        self.to.name()
    }

    /// Requests a page outside of `/api/v1`, which is JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) async fn get_page<T: DeserializeOwned>(&self, target: &str) -> Result<T, CliError> {
        let exchange = self.exchange(Method::GET, target.to_owned(), Bytes::new());
        let (status, answer) = timeout(self.timeout, exchange).await.map_err(|_| self.late())??;
        if !status.is_success() {
            return Err(CliError::new(format!("{} answers {target} with {status}", self.address()))
                .hint("is this the address that was meant?"));
        }
        serde_json::from_slice(&answer).map_err(|error| {
            CliError::new(format!("{} answers {target} in another form: {error}", self.address()))
                .hint("is this the address that was meant?")
        })
    }

    fn late(&self) -> CliError {
        let seconds = self.timeout.as_secs_f64();
        CliError::new(format!("{} has not answered within {seconds} s", self.address()))
            .hint("--timeout gives it longer")
    }

    /// Requests a resource below `/api/v1/` with these parameters.
    ///
    /// # Errors
    /// On a failure, with a hint.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, CliError> {
        self.ask(Method::GET, path, query, Bytes::new()).await
    }

    /// Sends a POST request with a body.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        let body = serde_json::to_vec(body);
        let body = body.map_err(|error| CliError::new("the question is no JSON").caused_by(error))?;
        self.ask(Method::POST, path, &[], body.into()).await
    }

    /// Requests all items of a list, page by page.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        most: usize,
    ) -> Result<Page<T>, CliError> {
        let mut all = Page { items: Vec::new(), total: 0, next: None, replica: String::new() };
        loop {
            let offset = all.items.len().to_string();
            let mut query = query.to_vec();
            query.push(("offset", &offset));
            let page: Page<T> = self.get(path, &query).await?;
            (all.total, all.replica) = (page.total, page.replica);
            all.items.extend(page.items);
            all.next = page.next;
            if all.next.is_none() || all.items.len() >= most {
                return Ok(all);
            }
        }
    }

    /// Requests a response as bytes.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_bytes(&self, path: &str, query: &[(&str, &str)]) -> Result<Bytes, CliError> {
        self.answer(Method::GET, path, query, Bytes::new()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<T, CliError> {
        let answer = self.answer(method, path, query, body).await?;
        serde_json::from_slice(&answer).map_err(|error| {
            CliError::new(format!("{} answers /api/v1/{path} in another form: {error}", self.address()))
                .hint("is the control plane of this version? see `pilotfish --version` and /version")
        })
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Bytes, CliError> {
        let exchange = self.exchange(method, target(path, query), body);
        let (status, answer) = timeout(self.timeout, exchange).await.map_err(|_| self.late())??;
        if !status.is_success() {
            return Err(self.refused(status, path, &answer));
        }
        Ok(answer)
    }

    async fn exchange(
        &self,
        method: Method,
        target: String,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), CliError> {
        let request = Request::builder().method(method).uri(target).header(header::HOST, self.to.host());
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::new(body));
        let mut request = request.map_err(|error| {
            CliError::new(format!("{:?} is no address", self.address()))
                .hint("--admin-address is written as HOST:PORT")
                .caused_by(error)
        })?;
        if let Some(authorization) = self.authorization().await? {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        let stream = self.to.dial().await?;
        let broken = |error: hyper::Error| {
            let why = chain(&error);
            CliError::new(format!("{} does not answer as an admin address does: {why}", self.address()))
                .hint("--admin-address names another one; 15014 is the default port of `serve`")
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = tokio::spawn(connection);
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            // The connection ended before the request was written; its error has the reason.
            Err(error) if error.is_canceled() => {
                let ended = connection.await.ok().and_then(Result::err);
                return Err(broken(ended.unwrap_or(error)));
            }
            Err(error) => return Err(broken(error)),
        };
        let status = response.status();
        let too_large = || {
            CliError::new(format!("the answer is larger than {} MiB", LARGEST_ANSWER >> 20))
                .hint("ask for less: the filters are in --help")
        };
        if response.body().size_hint().lower() > LARGEST_ANSWER as u64 {
            return Err(too_large());
        }
        let answer = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                too_large()
            } else {
                CliError::new(format!("{} broke the answer off: {error}", self.address()))
                    .hint("its log may say why; has it been restarted?")
            }
        })?;
        connection.abort();
        Ok((status, answer.to_bytes()))
    }

    fn refused(&self, status: StatusCode, path: &str, answer: &[u8]) -> CliError {
        if let Ok(failure) = serde_json::from_slice::<Failure>(answer) {
            return failure.into();
        }
        if status == StatusCode::NOT_FOUND {
            return CliError::new(format!("{} does not know /api/v1/{path}", self.address()))
                .hint("it is a control plane of another version, or none; see /version there");
        }
        let text = String::from_utf8_lossy(answer);
        let line: String = text.lines().next().unwrap_or_default().chars().take(300).collect();
        CliError::new(format!("{} answers {status}: {line}", self.address())).hint(
            "its log may say why; debug pages are for its own machine, unless it has --allow-remote-debug, and \
             for clients with a role (--admin-token-file)",
        )
    }
}

/// Text of an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = format!("/api/v1/{path}");
    if !query.is_empty() {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        target.push('?');
        target.push_str(&query);
    }
    target
}

/// Encodes a name as one segment of a path.
pub(crate) fn part(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A client that gives up soon.
    pub(crate) fn client(address: &str) -> Client {
        let to = dialer(address, TlsFiles::default());
        Client { to, timeout: Duration::from_secs(5), token: None }
    }

    /// Answers the target of each request with the JSON of a function.
    pub(crate) async fn server(answer: impl Fn(&str) -> String + Send + 'static) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 16_384];
                let read = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let body = answer(request.split(' ').nth(1).unwrap());
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        client(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers one request with these bytes.
    async fn server(answer: &'static [u8]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer).await;
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
        });
        Client { timeout: Duration::from_millis(200), ..testing::client(&address) }
    }

    async fn error(answer: &'static [u8]) -> String {
        server(answer).await.get::<u32>("x", &[("a", "b c")]).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn answers_that_cannot_be_read_are_said_in_one_line_with_a_hint() {
        for (answer, message) in [
            (&b""[..], "has not answered within 0.2 s\nhint: --timeout"),
            (b"hello\r\n\r\n", "does not answer as an admin address does"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "in another form"),
            (
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
                "does not know /api/v1/x\nhint: it is a control plane of another version",
            ),
            (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\n\r\nno\nno", "answers 403 Forbidden: no"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", "larger than 64 MiB"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1", "broke the answer off"),
        ] {
            let text = error(answer).await;
            assert!(text.contains(message), "{message:?} in {text:?}");
        }
        let nobody = testing::client("127.0.0.1:1");
        let text = nobody.get::<u32>("x", &[]).await.unwrap_err().to_string();
        assert!(text.contains("cannot connect to 127.0.0.1:1") && text.contains("pilotfish serve"), "{text}");
    }

    #[test]
    fn targets_are_escaped() {
        assert_eq!(target("proxies", &[("name", "a&b c")]), "/api/v1/proxies?name=a%26b+c");
        assert_eq!(part("a/b c"), "a%2Fb%20c");
    }
}
