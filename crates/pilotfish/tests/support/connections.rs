//! Connections that are not HTTP, and what an Envoy did with each.

use super::requests::{Done, holds, log};
use pilotfish_testkit::real::{eventually, request};
use serde_json::Value;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Waits for the line of what arrives, and gives what the log says of anything else so far. `key`: what the line begins with.
pub(crate) async fn done(why: &Value, key: Option<&String>, file: &Path) -> Option<Done> {
    let key = key?;
    if why["reaches"] == false {
        return log(file).remove(key);
    }
    let line = || async { log(file).remove(key).ok_or(()) };
    Some(eventually(&format!("the log tells of {key}, which arrives: {why:#}"), line).await)
}

/// As [`holds`], also for a connection that nothing takes: of it the log says nothing.
pub(crate) fn connection_holds(why: &Value, done: Option<&Done>) -> Result<(), String> {
    match done {
        Some(done) => holds(why, done),
        None if why["outcome"].as_str().unwrap().starts_with("the connection") => Ok(()),
        None => Err("nothing took it".to_owned()),
    }
}

/// Sends bytes and waits for the end; the client's port, or `None` where nothing listens.
pub(crate) async fn stream(port: u16, bytes: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let own = stream.local_addr().unwrap().port().to_string();
    // The other side may close it before it has read. This side stays open: Envoy tells nothing of a client that leaves before its server name was read.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
    Some(own)
}

/// Waits until the access log tells of all that a world was asked so far: the lines of requests come in order, so that of one more request, to a
/// host at a port of the proxy, is the last.
pub(crate) async fn logged(port: u16, host: &str, world: u64, file: &Path) {
    let last = format!("last-{world}");
    let headers = [("host", host), ("x-number", last.as_str())];
    request("GET", &format!("http://127.0.0.1:{port}/"), &headers).await.unwrap();
    eventually("the access log has all requests", || async {
        if log(file).contains_key(&last) { Ok(()) } else { Err(()) }
    })
    .await;
}
