//! Connections of client commands with TLS.

use pilotfish_cli::{CliError, Dial, Dialing, Socket, TlsFiles};
use pilotfish_connect::{Connector, Server, TlsOptions};
use pilotfish_runtime::error_chain;
use std::sync::Arc;

/// Dialer of an admin address with TLS.
#[derive(Debug)]
struct Secure {
    address: String,
    connector: Connector,
}

/// Returns the dialer of `HOST:PORT`.
pub(super) fn dial(address: &str, files: TlsFiles) -> Arc<dyn Dial> {
    let options = TlsOptions::new(files.ca, files.identity, None).with_alpn(pilotfish_admin::ALPN);
    Arc::new(Secure { address: address.to_owned(), connector: Connector::new(Some(options)) })
}

impl Secure {
    fn server(&self) -> Option<Server> {
        let (host, port) = self.address.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Server { host, port: port.parse().ok()? })
    }
}

impl Dial for Secure {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async move {
            let server = self.server().ok_or_else(|| {
                CliError::new(format!("{:?} is no address", self.address))
                    .hint("--admin-address is written as https://HOST:PORT")
            })?;
            let stream = self.connector.connect(&server).await.map_err(|error| {
                CliError::new(error_chain(&error)).hint(
                    "is this the --secure-admin-address of `pilotfish serve`, and --admin-ca-file the authority \
                     of its certificate?",
                )
            })?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn name(&self) -> String {
        self.address.clone()
    }

    fn host(&self) -> String {
        self.address.clone()
    }
}
