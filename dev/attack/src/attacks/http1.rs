//! Hand-written HTTP/1 requests.

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A GET request with that host; the connection ends with the response.
pub(super) fn get(path: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// A request with a JSON body; the connection ends with the response.
pub(super) fn json(method: &str, path: &str, body: &str) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// Head of a POST request with a JSON body of that size.
pub(super) fn post(path: &str, bytes: usize) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Maximum number of stored bytes of a response.
const KEPT: usize = 16 << 10;

/// Sends a request and reads until the server closes the connection. Returns the status.
pub(super) async fn ask(io: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> Result<u16> {
    Ok(answer(io, request).await?.0)
}

/// Sends a request and returns the status and the first bytes of the response, including its head.
pub(super) async fn answer(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> Result<(u16, String)> {
    // A server may respond before it has read the whole request.
    let sent = io.write_all(request).await;
    let mut kept = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    loop {
        let read = match io.read(&mut chunk).await {
            Ok(0) => break,
            Ok(read) => read,
            Err(_) if !kept.is_empty() => break,
            Err(error) => anyhow::bail!("no answer: {}", error.kind()),
        };
        let room = KEPT.saturating_sub(kept.len());
        kept.extend_from_slice(chunk.get(..read.min(room)).unwrap_or_default());
    }
    let status = kept.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    if status.is_none() {
        sent.map_err(|error| anyhow::anyhow!("cannot send: {}", error.kind()))?;
    }
    Ok((status.context("closed without an answer")?, String::from_utf8_lossy(&kept).into_owned()))
}
