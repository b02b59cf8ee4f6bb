//! Certificate requests to `istio.v1.auth.IstioCertificateService`, and their responses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pilotfish_bench::messages::framed;
use rcgen::{CertificateParams, KeyPair};
use tokio::time::{Instant, timeout};

use crate::dialer::{Client, Dialer, Stream};
use crate::wire::{contains, field, number};

/// Path of the only method.
pub(crate) const CREATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
/// End of the identities of attackers and honest clients.
const DOMAIN: &str = "spiffe://cluster.local/ns/bench/sa/";

/// Encodes a request: the CSR, the requested seconds, and encoded metadata.
pub(crate) fn request(csr: &str, seconds: i64, metadata: &[u8]) -> Vec<u8> {
    let seconds = number(3, seconds.cast_unsigned());
    let metadata = if metadata.is_empty() { Vec::new() } else { field(4, metadata) };
    [field(1, csr), seconds, metadata].concat()
}

/// CSR of a new EC key that claims nothing.
pub(crate) fn csr() -> Result<String> {
    Ok(CertificateParams::default().serialize_request(&KeyPair::generate()?)?.pem()?)
}

/// Sends a body as one request, and returns the response; an error has the message of the refusal.
pub(crate) async fn ask(client: &mut Client, path: &str, headers: &[(&str, &str)], body: &Bytes) -> Answer {
    let mut stream = client.open(path, headers).await.map_err(|error| format!("{error:#}"))?;
    // A refused stream accepts no data.
    let _ = stream.send_raw(body.clone()).and_then(|()| stream.finish());
    answer(&mut stream).await
}

/// Response of the method, or the message of its refusal.
pub(crate) type Answer = Result<Vec<u8>, String>;

/// Reads a response to its end.
pub(crate) async fn answer(stream: &mut Stream) -> Answer {
    let mut all = Vec::new();
    loop {
        match stream.next().await {
            Ok(chunk) => all.extend_from_slice(&chunk),
            Err(words) if words == "ended well" => return Ok(all),
            Err(words) => return Err(words),
        }
    }
}

/// Checks that the leaf of a response is for a service account of the namespace `bench`, and no other.
pub(crate) fn check(response: &[u8], account: &str) -> Result<()> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let text = String::from_utf8_lossy(response);
    let (_, leaf) = text.split_once(BEGIN).context("there is no certificate")?;
    let (leaf, _) = leaf.split_once("-----END").context("there is no whole certificate")?;
    let leaf: String = leaf.split_whitespace().collect();
    let leaf = STANDARD.decode(leaf).context("the certificate is not PEM")?;
    // The URI is a field of its own: an implicit tag, its length, and the text.
    let identity = format!("{DOMAIN}{account}");
    let length = u8::try_from(identity.len()).context("the identity is short")?;
    ensure!(contains(&leaf, &[&[0x86, length], identity.as_bytes()].concat()), "it is not for {identity}");
    let uris = leaf.windows(9).filter(|bytes| *bytes == b"spiffe://").count();
    ensure!(uris == 1, "it has {uris} identities");
    Ok(())
}

/// Honest workload that requests certificates, each over a new connection.
pub(crate) struct Agent {
    dialer: Dialer,
    account: &'static str,
    body: Bytes,
}

impl Agent {
    pub(crate) fn new(dialer: Dialer, account: &'static str) -> Result<Self> {
        Ok(Self { dialer, account, body: framed(&request(&csr()?, 3600, &[])) })
    }

    /// Obtains a certificate, and returns the time that it took.
    pub(crate) async fn renew(&self, limit: Duration) -> Result<Duration> {
        let began = Instant::now();
        let asked = async {
            let mut client = self.dialer.connect().await?;
            let response = ask(&mut client, CREATE, &[], &self.body).await.map_err(anyhow::Error::msg)?;
            check(&response, self.account)
        };
        timeout(limit, asked).await.with_context(|| format!("no certificate within {limit:?}"))??;
        Ok(began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_testkit::real::Authority;

    #[test]
    fn certificate_of_another_identity_is_found() {
        let authority = Authority::new();
        let of = |uris: &[&str]| field(1, authority.with_uris(uris).0);
        let (a, b) = ("spiffe://cluster.local/ns/bench/sa/a", "spiffe://cluster.local/ns/bench/sa/b");
        check(&of(&[a]), "a").unwrap();
        for (response, account) in [(of(&[a]), "b"), (of(&[a, b]), "a"), (of(&[b]), ""), (vec![], "a")] {
            check(&response, account).unwrap_err();
        }
    }
}
