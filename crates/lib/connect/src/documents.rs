//! Documents at addresses that others publish: keys of issuers, bundles of trust domains.

use crate::{Connector, HttpClient, HttpRequest, Scheme, Target, TlsOptions};
use pilotfish_runtime::error_chain;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Client for documents, with one request at a time.
#[derive(Clone)]
pub struct DocumentClient(HttpClient);

impl DocumentClient {
    /// Maximum size of a document in bytes.
    pub const LARGEST: usize = 1 << 20;

    /// Returns the client for an address. `ca_file` has the authorities of servers with TLS; those of the
    /// system are used without it.
    #[must_use]
    pub fn new(target: &Target, ca_file: Option<PathBuf>) -> Self {
        let tls = target.scheme.is_tls.then(|| TlsOptions::new(ca_file, None, None));
        Self(HttpClient::new(Connector::new(tls), 1))
    }

    /// Reads the document at a path below the address. Redirects are not followed.
    ///
    /// # Errors
    /// If there is no complete document in time, in one line.
    pub async fn get(&self, target: &Target, path: &str) -> Result<Vec<u8>, String> {
        let server = target.servers.first().ok_or("the address has no host")?;
        let path = format!("{}{path}", target.path);
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let request = HttpRequest { timeout: TIMEOUT, limit: Self::LARGEST, ..HttpRequest::get(path) };
        let answer = self.0.send(server, request).await.map_err(|error| error_chain(&error))?;
        if !answer.status.is_success() {
            return Err(format!("{server} answers {}", answer.status));
        }
        Ok(answer.body.to_vec())
    }
}

/// Parses an address below which documents are. Without TLS, only this machine is trusted.
///
/// # Errors
/// With what is wrong, in one line.
pub fn document_base(text: &str) -> Result<Target, String> {
    const SCHEMES: [Scheme; 2] =
        [Scheme { name: "https", port: 443, is_tls: true }, Scheme { name: "http", port: 80, is_tls: false }];
    let target = Target::parse(text, &SCHEMES)?;
    let is_local =
        |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !target.scheme.is_tls && !target.servers.iter().all(|server| is_local(&server.host)) {
        return Err(format!("{text:?} has no TLS: anybody on the way could replace the keys"));
    }
    Ok(target)
}

/// Parses the address of a document. A slash at its end is a part of it.
///
/// # Errors
/// As [`document_base`].
pub fn document_address(text: &str) -> Result<Target, String> {
    let parsed = document_base(text)?;
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| rest.split_at(at).1);
    Ok(Target { path: path.to_owned(), ..parsed })
}
