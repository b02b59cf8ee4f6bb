//! One probe: a request to one port, with limits on time and bytes. Only the status of the response is
//! published.

mod grpc;
mod http;

use crate::Outcome;
use pilotfish_registration::{Check, CheckKind};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Probes a target within the timeout of the check.
pub(crate) async fn probe(target: SocketAddr, check: &Check) -> Outcome {
    let asked = async {
        let stream = connect(target).await?;
        match &check.kind {
            CheckKind::Tcp => Ok(()),
            CheckKind::Http { path, host } => http::get(stream, target, path, host).await,
            CheckKind::Grpc { service } => grpc::check(stream, target, service).await,
        }
    };
    match timeout(check.timeout, Box::pin(asked)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {:?}", check.timeout).into()),
    }
}

async fn connect(target: SocketAddr) -> Result<TcpStream, Arc<str>> {
    TcpStream::connect(target).await.map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => "the connection was refused".into(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "the address cannot be reached".into(),
        // Local errors, such as too many open files, are reported as they are.
        _ => format!("no connection: {error}").into(),
    })
}
