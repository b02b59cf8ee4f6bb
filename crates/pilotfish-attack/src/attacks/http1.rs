//! Requests of HTTP/1, byte by byte.

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A GET under that name of the server; the connection ends with the answer.
pub(super) fn get(path: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// The head of a POST of JSON of so many bytes.
pub(super) fn post(path: &str, bytes: usize) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// Sends a request, and reads what comes until the server closes. The status is that of its answer.
pub(super) async fn ask(mut io: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> Result<u16> {
    // A server that has seen enough answers before it has all.
    let sent = io.write_all(request).await;
    let mut head = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    loop {
        let read = match io.read(&mut chunk).await {
            Ok(0) => break,
            Ok(read) => read,
            Err(_) if !head.is_empty() => break,
            Err(error) => anyhow::bail!("no answer: {}", error.kind()),
        };
        if head.len() < 12 {
            head.extend_from_slice(chunk.get(..read.min(64)).unwrap_or_default());
        }
    }
    let status = head.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    if status.is_none() {
        sent.map_err(|error| anyhow::anyhow!("cannot send: {}", error.kind()))?;
    }
    status.context("closed without an answer")
}
