//! Certificates signed through gRPC, beside the same signatures by rcgen alone.
//!
//! Clients with 16 identities and addresses renew over mutual TLS, 8 requests at a time each: fewer than a
//! rate limit's burst, and enough that the server never waits for them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use prost::Message;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::messages::framed;
use crate::report::Bar;
use crate::server::{CpuTimes, Server};
use crate::world::World;

/// Measurements, and their sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pub pilotfish: PathBuf,
    /// Certificates of each kind of key
    #[arg(long, value_name = "N", default_value_t = 16_000, value_parser = clap::value_parser!(u32).range(1_600..=28_000))]
    pub certificates: u32,
}

const PATH: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
const RSA: &str = include_str!("../testdata/rsa-2048.pem");
/// Clients, each with an identity and an address of its own, and their requests at a time.
const CLIENTS: u8 = 16;
const AT_A_TIME: usize = 8;
/// CPU time of a signature with an EC key: 3,000 a second on one core.
const MOST_MICROSECONDS: f64 = 1_000_000.0 / 3_000.0;

/// Request of the method.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    csr: String,
    #[prost(int64, tag = "3")]
    validity_duration: i64,
}

/// CPU times of a signature.
struct Cost {
    /// CPU time of the server, which includes HTTP/2, TLS and limits.
    served: Duration,
    /// CPU time of rcgen alone: the request is parsed and verified, and the certificate signed.
    bare: Duration,
    /// Certificates in a second.
    rate: f64,
}

/// Measures both kinds of keys, prints the figures, and returns the bars.
///
/// # Errors
/// If Pilotfish cannot be started, or refuses a request.
pub async fn run(options: &Options) -> Result<Vec<Bar>> {
    let mut bars = Vec::new();
    for (name, key) in [("EC P-256", KeyPair::generate()?), ("RSA 2048", KeyPair::from_pem(RSA)?)] {
        let cost = measure(options, &Authority::new(key)?).await.with_context(|| name)?;
        let (served, bare) = (microseconds(cost.served), microseconds(cost.bare));
        println!(
            "{name}: {served:.0} µs of CPU for a certificate through gRPC, {bare:.0} µs by rcgen alone \
             ({:.2}x); {:.0} a second",
            served / bare,
            cost.rate
        );
        if name.starts_with("EC") {
            let what = format!("CPU of a certificate through gRPC, {name} key of the CA");
            bars.push(Bar { what, value: served, limit: MOST_MICROSECONDS, unit: "µs" });
        }
    }
    Ok(bars)
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Authority whose key Pilotfish has.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

impl Authority {
    fn new(key: KeyPair) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key)?.pem();
        let text = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, key: text })
    }

    /// Signs a request as a server does, without anything around it.
    fn sign(&self, csr: &str, identity: &str) -> Result<String> {
        let mut request = CertificateSigningRequestParams::from_pem(csr)?;
        request.params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
        request.params.is_ca = IsCa::ExplicitNoCa;
        request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        request.params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(request.signed_by(&self.issuer)?.pem())
    }

    /// TLS of a client with this identity.
    fn client(&self, identity: &str) -> Result<TlsConnector> {
        let key = KeyPair::generate()?;
        let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
        let certificate = CertificateDer::from_pem_slice(self.sign(&csr, identity)?.as_bytes())?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

async fn measure(options: &Options, authority: &Authority) -> Result<Cost> {
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate()?)?.pem()?;
    let bare = bare(authority, &csr, options.certificates / 4)?;
    let temporary = tempfile::tempdir().context("cannot make a folder")?;
    let (server, secure) = start(options, authority, temporary.path()).await?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(connect(authority, secure, number).await?);
    }
    let body = framed(&Request { csr, validity_duration: 3_600 }.encode_to_vec());
    let each = usize::try_from(options.certificates)? / clients.len() / AT_A_TIME;
    // The first ones cost allocations and pages of the executable.
    renew(&clients, &body, 2).await?;
    let (before, began) = (server.cpu()?, Instant::now());
    renew(&clients, &body, each).await?;
    let (cpu, wall) = (server.cpu()?.since(&before), began.elapsed());
    let count = u32::try_from(each * clients.len() * AT_A_TIME)?;
    Ok(Cost { served: cpu / count, bare, rate: f64::from(count) / wall.as_secs_f64() })
}

/// CPU time of rcgen for a signature.
fn bare(authority: &Authority, csr: &str, count: u32) -> Result<Duration> {
    let before = CpuTimes::own()?;
    for _ in 0..count {
        std::hint::black_box(authority.sign(csr, "spiffe://cluster.local/ns/bench/sa/default")?);
    }
    Ok(CpuTimes::own()?.since(&before) / count)
}

/// Starts Pilotfish with the authority, and returns its secure address.
async fn start(options: &Options, authority: &Authority, folder: &Path) -> Result<(Server, SocketAddr)> {
    let (world, files) = (folder.join("world"), folder.join("ca"));
    for folder in [&world, &files] {
        std::fs::create_dir(folder).context("cannot make a folder")?;
    }
    World::create(&world, 1, 1)?;
    std::fs::write(files.join("ca-cert.pem"), &authority.certificate)?;
    std::fs::write(files.join("ca-key.pem"), &authority.key)?;
    let secure = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut source = OsString::from("files=");
    source.push(&files);
    let arguments = [
        "--secure-xds-address".into(),
        secure.to_string().into(),
        "--ca-cert-file".into(),
        files.join("ca-cert.pem").into(),
        "--ca".into(),
        source,
    ];
    let server = Server::pilotfish_with(&options.pilotfish, &world, &arguments, folder.join("log")).await?;
    Ok((server, secure))
}

/// Connects as a client of its own identity, from its own address: limits count for each.
async fn connect(authority: &Authority, to: SocketAddr, number: u8) -> Result<SendRequest<Bytes>> {
    let tls = authority.client(&format!("spiffe://cluster.local/ns/bench/sa/client-{number}"))?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 10 + number], 0)))?;
    let socket = socket.connect(to).await.context("cannot connect")?;
    socket.set_nodelay(true)?;
    let socket = tls.connect(ServerName::from(to.ip()), socket).await.context("no TLS")?;
    let (client, connection) = h2::client::handshake(socket).await.context("no HTTP/2")?;
    // Errors appear on its streams.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Has each client send that many requests, on several streams at a time.
async fn renew(clients: &[SendRequest<Bytes>], body: &Bytes, each: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..AT_A_TIME {
            let (client, body) = (client.clone(), body.clone());
            tasks.spawn(async move {
                for _ in 0..each {
                    request(client.clone(), &body).await?;
                }
                Ok(())
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        let done: Result<()> = done.context("a client panicked")?;
        done?;
    }
    Ok(())
}

async fn request(client: SendRequest<Bytes>, body: &Bytes) -> Result<()> {
    let mut client = client.ready().await?;
    let request = http::Request::post(format!("https://localhost{PATH}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(())?;
    let (response, mut out) = client.send_request(request, false)?;
    out.send_data(body.clone(), true)?;
    let (head, mut body) = response.await?.into_parts();
    if let Some(message) = head.headers.get("grpc-message") {
        bail!("refused: {}", String::from_utf8_lossy(message.as_bytes()));
    }
    let mut length = 0;
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        length += chunk.len();
        body.flow_control().release_capacity(chunk.len())?;
    }
    ensure!(length > 1_000, "a response of {length} bytes has no certificate");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_signatures_are_made_with_both_kinds_of_keys() {
        let csr = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap();
        for key in [KeyPair::generate().unwrap(), KeyPair::from_pem(RSA).unwrap()] {
            let authority = Authority::new(key).unwrap();
            let signed = authority.sign(&csr.pem().unwrap(), "spiffe://cluster.local/ns/a/sa/b").unwrap();
            assert!(signed.starts_with("-----BEGIN CERTIFICATE-----"), "{signed}");
            authority.client("spiffe://cluster.local/ns/a/sa/b").unwrap();
        }
    }
}
