//! Client of Istio's certificate service.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tonic::{Request, Status};

#[derive(Clone, PartialEq, prost::Message)]
struct IstioCertificateRequest {
    #[prost(string, tag = "1")]
    csr: String,
    #[prost(int64, tag = "3")]
    validity_duration: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct IstioCertificateResponse {
    #[prost(string, repeated, tag = "1")]
    cert_chain: Vec<String>,
}

/// Calls the service at a port of loopback, with a token of a service account if there is one.
pub(crate) async fn create_with(port: u16, csr: &str, token: Option<&str>) -> Result<Vec<String>, Status> {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
        .map_err(|error| Status::internal(error.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel.connect_lazy());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = tonic_prost::ProstCodec::<IstioCertificateRequest, IstioCertificateResponse>::default();
    let path =
        http::uri::PathAndQuery::from_static("/istio.v1.auth.IstioCertificateService/CreateCertificate");
    let request = IstioCertificateRequest { csr: csr.to_owned(), validity_duration: 3600 };
    let mut request = Request::new(request);
    if let Some(token) = token {
        let bearer = format!("Bearer {token}").parse();
        let bearer = bearer.map_err(|_| Status::internal("the token is no header value"))?;
        request.metadata_mut().insert("authorization", bearer);
    }
    let answer = client.unary(request, path, codec).await?;
    Ok(answer.into_inner().cert_chain)
}

/// The first certificate of a text.
pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("it is a certificate")
}
