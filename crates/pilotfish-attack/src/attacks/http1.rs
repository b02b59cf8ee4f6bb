//! Requests of HTTP/1, byte by byte.

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A GET under that name of the server; the connection ends with the answer.
pub(super) fn get(path: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// A request with a body of JSON; the connection ends with the answer.
pub(super) fn json(method: &str, path: &str, body: &str) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// The head of a POST of JSON of so many bytes.
pub(super) fn post(path: &str, bytes: usize) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Bytes of an answer that are kept.
const KEPT: usize = 16 << 10;

/// Sends a request, and reads what comes until the server closes. The status is that of its answer.
pub(super) async fn ask(io: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> Result<u16> {
    Ok(answer(io, request).await?.0)
}

/// Sends a request and returns the status and the first bytes of the answer, with its head.
pub(super) async fn answer(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> Result<(u16, String)> {
    // A server that has seen enough answers before it has all.
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
